package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// Do does one step on m. State is what was observed last; from it come the
// addresses, ports and ifindexes of what the step names. A step that would take
// a VF or an SF from somebody who uses it is host.ErrBusy and not tried, one whose
// object is not there fs.ErrNotExist; all else is the machine's answer.
func Do(ctx context.Context, m host.Machine, state nic.State, s plan.Step) error {
	if s.Action == nil {
		return errors.New("do: no step given")
	}
	for _, t := range s.Takes(state) {
		return fmt.Errorf("%s: %w: %s", t.Object, host.ErrBusy, t.Why)
	}
	d := doer{ctx: ctx, m: m, state: state}
	h := s.Object()
	switch h.Bus {
	case "bond":
		return d.bond(s.Action)
	case plan.NodeRDMA().Bus:
		return d.node(s.Action)
	}
	d.pf = state.PF(h)
	if d.pf == nil {
		return fmt.Errorf("%s: %w", h, fs.ErrNotExist)
	}
	if h.Bus != "pci" {
		return fmt.Errorf("%s is on no PCI bus: %w", h, host.ErrNotSupported)
	}
	if _, ok := s.VF(); ok {
		return d.vf(s)
	}
	if _, ok := s.SF(); ok {
		return d.sf(s)
	}
	return d.port(s.Action)
}

// doer is one step at work; pf is the PF that it is about, nil if none.
type doer struct {
	ctx   context.Context
	m     host.Machine
	state nic.State
	pf    *nic.PF
}

// set sets a setting on a machine that has any.
func (d doer) set(do func(host.Settings) error) error {
	if d.m.Settings == nil {
		return none()
	}
	return do(d.m.Settings)
}

// none is of a machine that lacks a whole part.
func none() error {
	return fmt.Errorf("%w: this machine has no such thing", host.ErrNotSupported)
}

func unknown(a plan.Action) error { return fmt.Errorf("do %q: unknown kind of step", a) }

func (d doer) port(a plan.Action) error {
	switch a := a.(type) {
	case plan.SetVFs:
		return explain(a, d.m.PCI.SetVFs(d.ctx, a.PF.Name, a.To))
	case plan.SetAutoprobe:
		return d.m.PCI.SetAutoprobe(d.ctx, a.PF.Name, a.To)
	case plan.SetEswitch:
		return d.m.Devlink.SetEswitch(d.ctx, a.PF, a.To)
	case plan.SetPF:
		return d.set(func(m host.Settings) error { return m.SetPF(d.ctx, *d.pf, a.Setting, a.To) })
	}
	return unknown(a)
}

func (d doer) vf(s plan.Step) error {
	id, _ := s.VF()
	if id.Index < 0 || id.Index >= len(d.pf.VFs) {
		return fmt.Errorf("%s: %w", id, fs.ErrNotExist)
	}
	v := d.pf.VFs[id.Index]
	switch a := s.Action.(type) {
	case plan.Unbind:
		return d.m.PCI.Unbind(d.ctx, v.Address)
	case plan.Bind:
		return d.m.PCI.Bind(d.ctx, v.Address, driver(a.To))
	case plan.SetVFMAC:
		return d.setVFMAC(v, a.To)
	case plan.SetVFLinkMAC:
		return d.m.Links.SetMAC(d.ctx, v.Netdev.Ifindex, a.To)
	case plan.SetVFMTU:
		return d.m.Links.SetMTU(d.ctx, v.Netdev.Ifindex, a.To)
	case plan.SetRepMTU:
		return d.m.Links.SetMTU(d.ctx, v.Rep.Netdev.Ifindex, a.To)
	case plan.SetVF:
		return d.set(func(m host.Settings) error { return m.SetVF(d.ctx, *d.pf, id.Index, a.Setting, a.To) })
	}
	return unknown(s.Action)
}

func (d doer) sf(s plan.Step) error {
	id, _ := s.SF()
	if _, ok := s.Action.(plan.AddSF); ok {
		return d.m.Devlink.AddSF(d.ctx, id.PF, id.Num)
	}
	f := d.pf.SF(id.Num)
	if f == nil {
		return fmt.Errorf("%s: %w", id, fs.ErrNotExist)
	}
	switch a := s.Action.(type) {
	case plan.DelSF:
		return d.m.Devlink.DelSF(d.ctx, id.PF, f.Port)
	case plan.SetSFActive:
		return d.m.Devlink.SetSFActive(d.ctx, id.PF, f.Port, a.To)
	case plan.SetSFMAC:
		return d.m.Devlink.SetPortMAC(d.ctx, id.PF, f.Port, a.To)
	case plan.SetSFMTU:
		return d.m.Links.SetMTU(d.ctx, f.Netdev.Ifindex, a.To)
	case plan.SetSFRepMTU:
		return d.m.Links.SetMTU(d.ctx, f.Rep.Ifindex, a.To)
	case plan.SetSF:
		return d.set(func(m host.Settings) error { return m.SetSF(d.ctx, *d.pf, id.Num, a.Setting, a.To) })
	}
	return unknown(s.Action)
}

func (d doer) bond(a plan.Action) error {
	if d.m.Bonds == nil {
		return none()
	}
	switch a := a.(type) {
	case plan.AddBond:
		return d.m.Bonds.AddBond(d.ctx, nic.BondSpec{
			Name: a.Name, Mode: a.Mode, Hash: a.Hash, Miimon: a.Miimon, LACPRate: a.LACPRate, MTU: a.MTU,
		})
	case plan.DelBond:
		return d.m.Bonds.DelBond(d.ctx, a.Name)
	case plan.Enslave:
		return d.member(a.Bond, a.PF, d.m.Bonds.Enslave)
	case plan.Release:
		return d.member(a.Bond, a.PF, d.m.Bonds.Release)
	case plan.SetBondMTU:
		return d.member(a.Bond, nic.Handle{}, func(ctx context.Context, bond, _ int) error {
			return d.m.Links.SetMTU(ctx, bond, a.To)
		})
	case plan.AwaitBond:
		pf := d.state.PF(a.PF)
		if pf == nil {
			return fmt.Errorf("%s: %w", a.PF, fs.ErrNotExist)
		}
		err := d.m.Bonds.AwaitBond(d.ctx, a.Bond, []int{pf.Uplink.Ifindex})
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w; want whoever makes %s to put %s into it, or adopt left out, and sluice makes it", err, a.Bond, pf.Uplink.Name)
		}
		return err
	case plan.AwaitLAG:
		b := d.state.Bond(a.Bond)
		if b == nil {
			return fmt.Errorf("bond %s: %w", a.Bond, fs.ErrNotExist)
		}
		var pfs []string
		for _, h := range b.Members {
			pfs = append(pfs, h.Name)
		}
		return d.m.Bonds.AwaitLAG(d.ctx, pfs)
	}
	return unknown(a)
}

// member does something with a bond and the uplink of h, by their ifindexes.
func (d doer) member(bond string, h nic.Handle, do func(ctx context.Context, bond, member int) error) error {
	b := d.state.Bond(bond)
	if b == nil {
		return fmt.Errorf("bond %s: %w", bond, fs.ErrNotExist)
	}
	member := 0
	if !h.IsZero() {
		pf := d.state.PF(h)
		if pf == nil || !pf.Uplink.Exists() {
			return fmt.Errorf("netdev of %s: %w", h, fs.ErrNotExist)
		}
		member = pf.Uplink.Ifindex
	}
	return do(d.ctx, b.Ifindex, member)
}

func (d doer) node(a plan.Action) error {
	if d.m.RDMA == nil {
		return none()
	}
	switch a := a.(type) {
	case plan.SetRDMA:
		return d.m.RDMA.SetMode(d.ctx, a.To)
	case plan.SetRDMAAtBoot:
		return d.m.RDMA.SetModeAtBoot(d.ctx, a.To)
	}
	return unknown(a)
}

// driver is the name that host.PCI.Bind wants: "" for the kernel's own choice.
func driver(d nic.Driver) string {
	if d == nic.DriverKernel {
		return ""
	}
	return string(d)
}

// setVFMAC sets the administrative address where host.Observe reads it: of the
// port function in switchdev mode, if the driver offers it there, else in the
// VF's row of the PF's netdev.
func (d doer) setVFMAC(v nic.VF, mac nic.MAC) error {
	if d.pf.Eswitch == nic.Switchdev {
		err := d.m.Devlink.SetPortMAC(d.ctx, d.pf.Handle, v.Rep.Port, mac)
		if !errors.Is(err, host.ErrNotSupported) {
			return err
		}
	}
	if !d.pf.Uplink.Exists() {
		return fmt.Errorf("netdev of %s: %w in the host's namespace, and VF addresses are set through it", d.pf.Handle, fs.ErrNotExist)
	}
	return d.m.Links.SetVFMAC(d.ctx, d.pf.Uplink.Ifindex, v.Index, mac)
}
