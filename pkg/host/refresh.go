package host

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nic"
)

// Refresh reads one VF again into s, at a cost that does not grow with the number
// of VFs. It is for switchdev mode, where all that is of a VF can be asked for by
// its own names; in legacy mode, and for whatever it does not find at once, it is
// ErrNotSupported, and only Observe knows. Owner and RDMA devices stay as they were.
func Refresh(ctx context.Context, m Machine, s *nic.State, id nic.VFID) error {
	pf := s.PF(id.PF)
	if pf == nil || pf.Eswitch != nic.Switchdev || id.Index < 0 || id.Index >= len(pf.VFs) ||
		!pf.VFs[id.Index].Rep.Exists() || pf.VFs[id.Index].Address == "" {
		return fmt.Errorf("%s: read alone: %w", id, ErrNotSupported)
	}
	v := &pf.VFs[id.Index]
	f, err := m.PCI.Function(ctx, v.Address)
	if err != nil {
		return err
	}
	port, err := m.Devlink.Port(ctx, pf.Handle, v.Rep.Port)
	if err != nil {
		return err
	}
	rep, err := m.Links.Link(ctx, v.Rep.Netdev.Ifindex)
	if err != nil {
		return err
	}
	if !port.HasMAC || port.Ifindex != rep.Ifindex {
		return fmt.Errorf("%s: read alone: %w", id, ErrNotSupported)
	}
	var own nic.Netdev
	if len(f.Netdevs) > 0 {
		l, err := m.Links.Link(ctx, f.Netdevs[0])
		if err != nil {
			return err
		}
		own = l.Netdev
	}
	v.Driver, v.Away, v.IOMMUGroup, v.MAC, v.Netdev = f.Driver, f.Away, f.IOMMUGroup, port.MAC, own
	v.Rep.Netdev = rep.Netdev
	if m.Settings == nil {
		return nil
	}
	return m.Settings.ReadVF(ctx, pf, id.Index)
}
