package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/host"
)

type rdma struct{ *Sim }

// Devices lists them all wherever their netdevs are: the namespace mode is shared.
func (s rdma) Devices(ctx context.Context) ([]host.RDMADevice, error) {
	var out []host.RDMADevice
	err := s.read(ctx, "list RDMA devices", func() error {
		for _, d := range s.st.RDMA {
			parent := s.st.PFs[d.PF].Address
			if d.VF >= 0 {
				parent = s.vfAddress(d.PF, d.VF)
			}
			out = append(out, host.RDMADevice{Name: d.Name, Parent: parent, Files: []string{
				fmt.Sprintf("/dev/infiniband/umad%d", d.Verbs),
				fmt.Sprintf("/dev/infiniband/uverbs%d", d.Verbs),
			}})
		}
		slices.SortFunc(out, func(a, b host.RDMADevice) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return out, err
}
