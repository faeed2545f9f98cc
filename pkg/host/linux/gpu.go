package linux

import (
	"context"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/pci"
)

// gpus is what else sits on the PCI bus and moves data.
type gpus struct{ sys *pci.Sys }

func (g gpus) GPUs(ctx context.Context) ([]host.GPU, error) {
	list, err := g.sys.GPUs(ctx)
	if err != nil {
		return nil, fail("list", "GPUs", err)
	}
	out := make([]host.GPU, len(list))
	for i, f := range list {
		out[i] = host.GPU(f)
	}
	return out, nil
}
