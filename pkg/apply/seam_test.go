package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// seam is a node behind package host, for a Runner: each setter finds the object
// that its addresses, ports and ifindexes mean.
type seam struct {
	mu sync.Mutex
	n  *node

	// fail, if it is not nil, is asked before each write and after it, and what it
	// answers is the machine's answer.
	fail  func(write int, s plan.Step, after bool) error
	wrote []plan.Step
}

var errBitten = errors.New("cable bitten")

func newSeam(t *testing.T, n *node) (*seam, *Runner) {
	t.Helper()
	m := &seam{n: n.clone().(*node)}
	return m, m.runner(&Journal{Dir: memory(t)})
}

func (m *seam) runner(j *Journal) *Runner {
	return &Runner{Machine: m.machine(), Journal: j, Observe: func(context.Context) (nic.State, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.n.observe(), nil
	}}
}

func (m *seam) observe() nic.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n.observe()
}

func (m *seam) machine() host.Machine {
	return host.Machine{
		PCI: seamPCI{m: m}, Devlink: seamDevlink{m: m}, Links: seamLinks{m: m}, Bonds: seamBonds{m: m},
		RDMA: seamRDMA{m: m}, Settings: seamSettings{m: m},
	}
}

// do finds the step for a write under the lock, and does it.
func (m *seam) do(find func(st *nic.State) plan.Action) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := find(&m.n.st)
	if a == nil {
		return refusedf("no such object")
	}
	s := plan.Step{Action: a}
	write := len(m.wrote)
	m.wrote = append(m.wrote, s)
	if m.fail != nil {
		if err := m.fail(write, s, false); err != nil {
			return err
		}
	}
	if err := m.n.do(nic.State{}, s); err != nil {
		return err
	}
	if m.fail != nil {
		return m.fail(write, s, true)
	}
	return nil
}

// What has a method of its own name cannot be embedded under it.
type (
	links interface{ host.Links }
	bonds interface{ host.Bonds }
)

type (
	seamPCI struct {
		host.PCI
		m *seam
	}
	seamDevlink struct {
		host.Devlink
		m *seam
	}
	seamLinks struct {
		links
		m *seam
	}
	seamBonds struct {
		bonds
		m *seam
	}
	seamRDMA struct {
		host.RDMA
		m *seam
	}
	seamSettings struct {
		host.Settings
		m *seam
	}
)

func (p seamPCI) SetVFs(_ context.Context, pf string, to int) error {
	return p.m.do(func(st *nic.State) plan.Action {
		return plan.SetVFs{PF: nic.PCI(pf), From: len(st.PF(nic.PCI(pf)).VFs), To: to}
	})
}

func (p seamPCI) SetAutoprobe(_ context.Context, pf string, on bool) error {
	return p.m.do(func(*nic.State) plan.Action { return plan.SetAutoprobe{PF: nic.PCI(pf), To: on} })
}

func (p seamPCI) Bind(_ context.Context, function, driver string) error {
	d := nic.Driver(driver)
	if d == "" {
		d = nic.DriverKernel
	}
	return p.m.do(func(st *nic.State) plan.Action {
		id, v := st.VFAt(function)
		if v == nil {
			return nil
		}
		return plan.Bind{VF: id, To: d}
	})
}

func (p seamPCI) Unbind(_ context.Context, vf string) error {
	return p.m.do(func(st *nic.State) plan.Action {
		id, v := st.VFAt(vf)
		if v == nil {
			return nil
		}
		return plan.Unbind{VF: id, From: v.Driver}
	})
}

func (d seamDevlink) SetEswitch(_ context.Context, h nic.Handle, to nic.Eswitch) error {
	return d.m.do(func(st *nic.State) plan.Action { return plan.SetEswitch{PF: h, From: st.PF(h).Eswitch, To: to} })
}

func (d seamDevlink) SetPortMAC(_ context.Context, h nic.Handle, port uint32, mac nic.MAC) error {
	return d.m.do(func(st *nic.State) plan.Action {
		pf := st.PF(h)
		for i, v := range pf.VFs {
			if v.Rep.Exists() && v.Rep.Port == port {
				return plan.SetVFMAC{VF: nic.VFID{PF: h, Index: i}, To: mac}
			}
		}
		if f := sfOf(pf, port); f != nil {
			return plan.SetSFMAC{SF: nic.SFID{PF: h, Num: f.Num}, To: mac}
		}
		return nil
	})
}

func sfOf(pf *nic.PF, port uint32) *nic.SF {
	for i := range pf.SFs {
		if pf.SFs[i].Port == port {
			return &pf.SFs[i]
		}
	}
	return nil
}

func (d seamDevlink) AddSF(_ context.Context, h nic.Handle, num int) error {
	return d.m.do(func(*nic.State) plan.Action { return plan.AddSF{SF: nic.SFID{PF: h, Num: num}} })
}

func (d seamDevlink) DelSF(_ context.Context, h nic.Handle, port uint32) error {
	return d.m.do(func(st *nic.State) plan.Action {
		if f := sfOf(st.PF(h), port); f != nil {
			return plan.DelSF{SF: nic.SFID{PF: h, Num: f.Num}}
		}
		return nil
	})
}

func (d seamDevlink) SetSFActive(_ context.Context, h nic.Handle, port uint32, active bool) error {
	return d.m.do(func(st *nic.State) plan.Action {
		if f := sfOf(st.PF(h), port); f != nil {
			return plan.SetSFActive{SF: nic.SFID{PF: h, Num: f.Num}, To: active}
		}
		return nil
	})
}

func (l seamLinks) SetVFMAC(_ context.Context, pf, vf int, mac nic.MAC) error {
	return l.m.do(func(st *nic.State) plan.Action {
		if h, ok := uplinkAt(st, pf); ok {
			return plan.SetVFMAC{VF: nic.VFID{PF: h, Index: vf}, To: mac}
		}
		return nil
	})
}

func uplinkAt(st *nic.State, ifindex int) (nic.Handle, bool) {
	for _, pf := range st.PFs {
		if pf.Uplink.Ifindex == ifindex {
			return pf.Handle, true
		}
	}
	return nic.Handle{}, false
}

func (l seamLinks) SetMAC(_ context.Context, ifindex int, mac nic.MAC) error {
	return l.m.do(func(st *nic.State) plan.Action {
		for _, pf := range st.PFs {
			for i, v := range pf.VFs {
				if v.Netdev.Ifindex == ifindex {
					return plan.SetVFLinkMAC{VF: nic.VFID{PF: pf.Handle, Index: i}, To: mac}
				}
			}
		}
		return nil
	})
}

func (l seamLinks) SetMTU(_ context.Context, ifindex, mtu int) error {
	return l.m.do(func(st *nic.State) plan.Action {
		for _, b := range st.Bonds {
			if b.Ifindex == ifindex {
				return plan.SetBondMTU{Bond: b.Name, To: mtu}
			}
		}
		for _, pf := range st.PFs {
			for i, v := range pf.VFs {
				id := nic.VFID{PF: pf.Handle, Index: i}
				switch ifindex {
				case v.Netdev.Ifindex:
					return plan.SetVFMTU{VF: id, To: mtu}
				case v.Rep.Netdev.Ifindex:
					return plan.SetRepMTU{VF: id, To: mtu}
				}
			}
			for _, f := range pf.SFs {
				id := nic.SFID{PF: pf.Handle, Num: f.Num}
				switch ifindex {
				case f.Netdev.Ifindex:
					return plan.SetSFMTU{SF: id, To: mtu}
				case f.Rep.Ifindex:
					return plan.SetSFRepMTU{SF: id, To: mtu}
				}
			}
		}
		return nil
	})
}

func (b seamBonds) AddBond(_ context.Context, s nic.BondSpec) error {
	return b.m.do(func(*nic.State) plan.Action {
		return plan.AddBond{Name: s.Name, Hash: s.Hash, LACPRate: s.LACPRate, Mode: s.Mode, Miimon: s.Miimon, MTU: s.MTU}
	})
}

func (b seamBonds) DelBond(_ context.Context, name string) error {
	return b.m.do(func(*nic.State) plan.Action { return plan.DelBond{Name: name} })
}

func (b seamBonds) Enslave(_ context.Context, bond, member int) error {
	return b.m.do(func(st *nic.State) plan.Action {
		name, h := membership(st, bond, member)
		return plan.Enslave{Bond: name, PF: h}
	})
}

func (b seamBonds) Release(_ context.Context, bond, member int) error {
	return b.m.do(func(st *nic.State) plan.Action {
		name, h := membership(st, bond, member)
		return plan.Release{Bond: name, PF: h}
	})
}

func membership(st *nic.State, bond, member int) (string, nic.Handle) {
	h, _ := uplinkAt(st, member)
	for _, b := range st.Bonds {
		if b.Ifindex == bond {
			return b.Name, h
		}
	}
	return "", h
}

// AwaitBond lets somebody else put all the members in.
func (b seamBonds) AwaitBond(_ context.Context, name string, members []int) error {
	for _, m := range members {
		err := b.m.do(func(st *nic.State) plan.Action {
			h, _ := uplinkAt(st, m)
			return plan.AwaitBond{Bond: name, PF: h}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b seamBonds) AwaitLAG(_ context.Context, pfs []string) error {
	return b.m.do(func(st *nic.State) plan.Action {
		if have := st.BondOf(nic.PCI(pfs[0])); have != nil && len(have.Members) == len(pfs) {
			return plan.AwaitLAG{Bond: have.Name}
		}
		return nil
	})
}

func (r seamRDMA) SetMode(_ context.Context, to nic.RDMAMode) error {
	return r.m.do(func(*nic.State) plan.Action { return plan.SetRDMA{To: to} })
}

func (r seamRDMA) SetModeAtBoot(_ context.Context, to nic.RDMAMode) error {
	return r.m.do(func(*nic.State) plan.Action { return plan.SetRDMAAtBoot{To: to} })
}

func (s seamSettings) SetPF(_ context.Context, pf nic.PF, name nic.Setting, to string) error {
	return s.m.do(func(*nic.State) plan.Action { return plan.SetPF{PF: pf.Handle, Setting: name, To: to} })
}

func (s seamSettings) SetVF(_ context.Context, pf nic.PF, vf int, name nic.Setting, to string) error {
	return s.m.do(func(*nic.State) plan.Action {
		return plan.SetVF{VF: nic.VFID{PF: pf.Handle, Index: vf}, Setting: name, To: to}
	})
}

func (s seamSettings) SetSF(_ context.Context, pf nic.PF, num int, name nic.Setting, to string) error {
	return s.m.do(func(*nic.State) plan.Action {
		return plan.SetSF{SF: nic.SFID{PF: pf.Handle, Num: num}, Setting: name, To: to}
	})
}

// failAt fails one write, undone or done.
func (m *seam) failAt(at int, afterwards bool) {
	m.fail = func(write int, _ plan.Step, after bool) error {
		if write == at && after == afterwards {
			return fmt.Errorf("write %d: %w", at, errBitten)
		}
		return nil
	}
}
