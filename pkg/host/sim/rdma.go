package sim

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

type rdma struct{ hand }

// Devices lists those of the host's namespace, wherever their netdevs are; in shared
// mode that is all.
func (s rdma) Devices(ctx context.Context) ([]host.RDMADevice, error) {
	var out []host.RDMADevice
	err := s.read(ctx, "list RDMA devices", func() error {
		out = s.rdmaDevices()
		return nil
	})
	return out, err
}

func (s *Sim) rdmaDevices() (out []host.RDMADevice) {
	netdevs := s.netdevs()
	for _, d := range s.st.RDMA {
		if d.Netns == hostNS {
			out = append(out, s.rdmaDevice(d, netdevs[d.id()]))
		}
	}
	slices.SortFunc(out, func(a, b host.RDMADevice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// rdmaDevice describes a device; l is the function's netdev in the host's namespace,
// nil if there is none.
func (s *Sim) rdmaDevice(d *rdmaDevice, l *link) host.RDMADevice {
	p := s.st.PFs[d.PF]
	if l == nil {
		l = &link{}
	}
	out := host.RDMADevice{
		Name: d.Name, Parent: p.Address, NodeGUID: guidOf(p.MAC),
		Files: []string{
			fmt.Sprintf("/dev/infiniband/umad%d", d.Verbs),
			fmt.Sprintf("/dev/infiniband/uverbs%d", d.Verbs),
		},
	}
	switch {
	case d.VF >= 0:
		out.Parent, out.NodeGUID = s.vfAddress(d.PF, d.VF), guidOf(l.MAC)
		if p.InfiniBand {
			out.NodeGUID = cmp.Or(d.GUID, noGUID)
		}
	case d.SF >= 0:
		out.Parent, out.NodeGUID = s.sfDevice(p.sf(d.SF)), guidOf(l.MAC)
	}
	port := host.RDMAPort{Number: 1, LinkLayer: "Ethernet", State: "DOWN", Netdev: l.Name}
	if p.InfiniBand {
		port.LinkLayer = "InfiniBand"
	}
	if s.wired(l) {
		port.State = "ACTIVE"
	}
	out.Ports = []host.RDMAPort{port}
	return out
}

// noGUID is that of a VF of an InfiniBand port which nobody gave one.
const noGUID = "00:00:00:00:00:00:00:00"

// guidOf is the EUI-64 of an address (addrconf_addr_eui48).
func guidOf(m nic.MAC) string {
	if m.IsZero() {
		return noGUID
	}
	return net.HardwareAddr{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}.String()
}

func rdmaMode(m nic.RDMAMode) bool { return m == nic.RDMAShared || m == nic.RDMAExclusive }

// hasRDMA says whether anything on the machine has loaded the subsystem.
func (s *Sim) hasRDMA() bool {
	for f := range s.st.PFs {
		if s.profile(f).rdma != "" {
			return true
		}
	}
	return false
}

func (s rdma) System(ctx context.Context) (nic.RDMA, error) {
	var out nic.RDMA
	err := s.read(ctx, "read RDMA mode", func() error {
		if s.hasRDMA() {
			out = nic.RDMA{Mode: s.st.RDMAMode, AtBoot: s.st.RDMAAtBoot, Fixed: len(s.st.Netns) > 1}
		}
		return nil
	})
	return out, err
}

func (s rdma) SetMode(ctx context.Context, m nic.RDMAMode) error {
	return s.set(ctx, Op{Verb: SetRDMAMode, Arg: string(m), Object: "the machine"}, func() (func(), error) {
		switch {
		case !s.hasRDMA():
			return nil, refuse(syscall.EOPNOTSUPP, "")
		case !rdmaMode(m):
			return nil, refuse(syscall.EINVAL, "")
		case s.st.RDMAMode == m:
			return nil, nil
		case len(s.st.Netns) > 1: // rdma_compatdev_set
			return nil, refuse(syscall.EBUSY, "")
		}
		return func() { s.st.RDMAMode = m }, nil
	}, nil)
}

// SetModeAtBoot writes a file; "" takes it away.
func (s rdma) SetModeAtBoot(ctx context.Context, m nic.RDMAMode) error {
	return s.set(ctx, Op{Verb: SetRDMABoot, Arg: string(m), Object: "the machine"}, func() (func(), error) {
		switch {
		case !s.hasRDMA():
			return nil, refuse(syscall.EOPNOTSUPP, "")
		case m != "" && !rdmaMode(m):
			return nil, refuse(syscall.EINVAL, "")
		case s.st.RDMAAtBoot == m:
			return nil, nil
		}
		return func() { s.st.RDMAAtBoot = m }, nil
	}, nil)
}

func (s rdma) Move(ctx context.Context, name, path string) error {
	return s.moveRDMA(ctx, hostNS, Op{Object: name}, path)
}

func (n *links) RDMADevices(ctx context.Context) ([]string, error) {
	s := n.s
	var out []string
	err := s.read(ctx, "list RDMA devices", func() error {
		if n.closed {
			return Op{Verb: "list", Object: "RDMA devices"}.fail(fs.ErrClosed)
		}
		for _, d := range s.st.RDMA {
			if s.sees(n.ns, d) {
				out = append(out, d.Name)
			}
		}
		slices.Sort(out)
		return nil
	})
	return out, err
}

func (n *links) MoveRDMA(ctx context.Context, name, path string) error {
	s := n.s
	op := Op{Verb: MoveRDMA, Object: name}
	s.mu.Lock()
	closed := n.closed
	if !closed {
		op.Netns = s.netns(n.ns).Path
	}
	s.mu.Unlock()
	if closed {
		return op.fail(fs.ErrClosed)
	}
	return s.moveRDMA(ctx, n.ns, op, path)
}

// sees says whether a namespace may use a device (rdma_dev_access_netns).
func (s *Sim) sees(ns int, d *rdmaDevice) bool {
	return s.st.RDMAMode == nic.RDMAShared || d.Netns == ns
}

// moveRDMA is ib_device_set_netns_put.
func (s hand) moveRDMA(ctx context.Context, from int, op Op, path string) error {
	op.Verb, op.Arg = MoveRDMA, cmp.Or(path, "of the host")
	return s.set(ctx, op, func() (func(), error) {
		to, err := s.netnsAt(path)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(s.st.RDMA, func(d *rdmaDevice) bool { return d.Name == op.Object && s.sees(from, d) })
		switch {
		case i < 0:
			return nil, refuse(syscall.ENODEV, "")
		case s.st.RDMAMode == nic.RDMAShared:
			return nil, refuse(syscall.EOPNOTSUPP, "")
		case to.ID == from:
			return nil, nil
		}
		return func() { s.st.RDMA[i].Netns = to.ID }, nil
	}, nil)
}
