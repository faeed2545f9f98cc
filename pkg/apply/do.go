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
// a VF from somebody who uses it is host.ErrBusy and not tried, one whose object
// is not there fs.ErrNotExist; all else is the machine's answer.
func Do(ctx context.Context, m host.Machine, state nic.State, s plan.Step) error {
	if s.Action == nil {
		return errors.New("do: no step given")
	}
	h := s.Scope()
	pf := state.PF(h)
	if pf == nil {
		return fmt.Errorf("%s: %w", h, fs.ErrNotExist)
	}
	if h.Bus != "pci" {
		return fmt.Errorf("%s is on no PCI bus: %w", h, host.ErrNotSupported)
	}
	for _, id := range s.Takes(state) {
		return fmt.Errorf("%s: %w: %s", id, host.ErrBusy, pf.VFs[id.Index].InUse())
	}
	switch a := s.Action.(type) {
	case plan.SetVFs:
		return m.PCI.SetVFs(ctx, h.Name, a.To)
	case plan.SetAutoprobe:
		return m.PCI.SetAutoprobe(ctx, h.Name, a.To)
	case plan.SetEswitch:
		return m.Devlink.SetEswitch(ctx, h, a.To)
	case plan.Unbind:
		return onVF(pf, a.VF, func(v nic.VF) error { return m.PCI.Unbind(ctx, v.Address) })
	case plan.Bind:
		return onVF(pf, a.VF, func(v nic.VF) error { return m.PCI.Bind(ctx, v.Address, driver(a.To)) })
	case plan.SetVFMAC:
		return onVF(pf, a.VF, func(v nic.VF) error { return setVFMAC(ctx, m, pf, v, a.To) })
	case plan.SetVFLinkMAC:
		return onVF(pf, a.VF, func(v nic.VF) error { return m.Links.SetMAC(ctx, v.Netdev.Ifindex, a.To) })
	case plan.SetVFMTU:
		return onVF(pf, a.VF, func(v nic.VF) error { return m.Links.SetMTU(ctx, v.Netdev.Ifindex, a.To) })
	case plan.SetRepMTU:
		return onVF(pf, a.VF, func(v nic.VF) error { return m.Links.SetMTU(ctx, v.Rep.Netdev.Ifindex, a.To) })
	}
	return fmt.Errorf("do %q: unknown kind of step", s)
}

func onVF(pf *nic.PF, id nic.VFID, do func(nic.VF) error) error {
	if id.Index < 0 || id.Index >= len(pf.VFs) {
		return fmt.Errorf("%s: %w", id, fs.ErrNotExist)
	}
	return do(pf.VFs[id.Index])
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
func setVFMAC(ctx context.Context, m host.Machine, pf *nic.PF, v nic.VF, mac nic.MAC) error {
	if pf.Eswitch == nic.Switchdev {
		err := m.Devlink.SetPortMAC(ctx, pf.Handle, v.Rep.Port, mac)
		if !errors.Is(err, host.ErrNotSupported) {
			return err
		}
	}
	if !pf.Uplink.Exists() {
		return fmt.Errorf("netdev of %s: %w in the host's namespace, and VF addresses are set through it", pf.Handle, fs.ErrNotExist)
	}
	return m.Links.SetVFMAC(ctx, pf.Uplink.Ifindex, v.Index, mac)
}
