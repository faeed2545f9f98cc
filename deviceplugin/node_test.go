package deviceplugin

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// card returns a node with a card of two ports, in switchdev mode, with n VFs
// each, all of them free, bound by the kernel and with all their files.
func card(n int) Node {
	node := Node{RDMA: map[string]host.RDMADevice{}, Exists: func(string) bool { return true }}
	for port := range 2 {
		pf := nic.PF{
			Handle: nic.PCI(fmt.Sprintf("0000:03:00.%d", port)), Driver: "mlx5_core", NUMA: port,
			Eswitch: nic.Switchdev, SwitchID: "e8ebd30003abcdef", TotalVFs: 128, Autoprobe: true,
		}
		for i := range n {
			k := port*n + i
			rdma := fmt.Sprintf("mlx5_%d", 2+k)
			pf.VFs = append(pf.VFs, nic.VF{
				Index: i, Address: fmt.Sprintf("0000:%02x:%02x.%d", 0x10+k/256, k/8%32, k%8), Driver: "mlx5_core",
				Netdev:     nic.Netdev{Name: fmt.Sprintf("eth%d", k), Ifindex: 100 + k},
				Rep:        nic.Representor{Port: uint32(k), Netdev: nic.Netdev{Name: fmt.Sprintf("rep%d", k), Ifindex: 1000 + k}},
				RDMA:       []string{rdma},
				IOMMUGroup: 40 + k,
			})
			files(node, rdma, fmt.Sprintf("/dev/infiniband/umad%d", k), fmt.Sprintf("/dev/infiniband/uverbs%d", k))
		}
		node.State.PFs = append(node.State.PFs, pf)
	}
	return node
}

// files gives an RDMA device its files.
func files(n Node, device string, paths ...string) {
	n.RDMA[device] = host.RDMADevice{Name: device, Files: paths}
}

// pool has VFs of both ports.
func pool(name, ranges string) nic.Pool { return nic.Pool{Name: name, Select: ports(ranges)} }

// vf returns VF i of a port of n, to be changed.
func (n Node) vf(port, i int) *nic.VF { return &n.State.PFs[port].VFs[i] }

// vfio binds a VF to vfio-pci.
func vfio(v *nic.VF) { v.Driver, v.Netdev, v.RDMA = "vfio-pci", nic.Netdev{}, nil }

// inPod moves a VF's netdev and RDMA device into a pod.
func inPod(v *nic.VF) { v.Netdev, v.Away, v.RDMA = nic.Netdev{}, true, nil }

// ports selects VFs of both ports.
func ports(ranges string) []nic.Pick {
	r, err := nic.ParseRanges(ranges)
	if err != nil {
		panic(err)
	}
	return []nic.Pick{{PF: nic.PCI("0000:03:00.0"), Indexes: r}, {PF: nic.PCI("0000:03:00.1"), Indexes: r}}
}

// sight is one that cannot be followed: each change is looked at as a whole.
type sight struct {
	state nic.State
	rdma  []host.RDMADevice
}

func (s sight) State() nic.State        { return s.state }
func (s sight) RDMA() []host.RDMADevice { return s.rdma }

func (s sight) After(context.Context, []host.Change) (Sight, bool, error) { return s, false, nil }

// looking is Config.Look by what observe answers.
func looking(observe func(context.Context) (nic.State, error)) func(context.Context) (Sight, error) {
	return func(ctx context.Context) (Sight, error) {
		state, err := observe(ctx)
		return sight{state: state}, err
	}
}
