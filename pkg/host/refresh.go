package host

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nic"
)

// Part is what of a VF is to be read again; parts add up.
type Part int

// The parts.
const (
	VFDriver   Part = 1 << iota // driver, netdev and whose namespace it is in, IOMMU group
	VFNetdev                    // the netdev that is known
	VFMAC                       // the administrative address
	VFRep                       // the representor's netdev
	VFSettings                  // settings and limits

	VFWhole = VFDriver | VFNetdev | VFMAC | VFRep | VFSettings
)

// Refresh reads parts of one VF again into s, at a cost that does not grow with the
// number of VFs. It is for switchdev mode, where all that is of a VF can be asked for
// by its own names; in legacy mode, and for whatever it does not find at once, it is
// ErrNotSupported, and only Observe knows. Owner and RDMA devices stay as they were.
func Refresh(ctx context.Context, m Machine, s *nic.State, id nic.VFID, what Part) error {
	pf := s.PF(id.PF)
	if pf == nil || pf.Eswitch != nic.Switchdev || id.Index < 0 || id.Index >= len(pf.VFs) ||
		!pf.VFs[id.Index].Rep.Exists() || pf.VFs[id.Index].Address == "" {
		return fmt.Errorf("%s: read alone: %w", id, ErrNotSupported)
	}
	r := refresh{ctx, m, pf, id}
	for _, p := range []struct {
		part Part
		read func(*nic.VF) error
	}{{VFDriver, r.driver}, {VFNetdev, r.netdev}, {VFMAC, r.mac}, {VFRep, r.rep}} {
		if what&p.part == 0 {
			continue
		}
		if err := p.read(&pf.VFs[id.Index]); err != nil {
			return err
		}
	}
	if what&VFSettings == 0 || m.Settings == nil {
		return nil
	}
	return m.Settings.ReadVF(ctx, pf, id.Index)
}

// refresh is one reading.
type refresh struct {
	ctx context.Context
	m   Machine
	pf  *nic.PF
	id  nic.VFID
}

func (r refresh) driver(v *nic.VF) error {
	f, err := r.m.PCI.Function(r.ctx, v.Address)
	if err != nil {
		return err
	}
	v.Driver, v.Away, v.IOMMUGroup, v.VFIO, v.Netdev = f.Driver, f.Away, f.IOMMUGroup, f.VFIO, nic.Netdev{}
	if len(f.Netdevs) > 0 {
		v.Netdev.Ifindex = f.Netdevs[0]
	}
	return r.netdev(v)
}

func (r refresh) netdev(v *nic.VF) error {
	if !v.Netdev.Exists() {
		return nil
	}
	l, err := r.m.Links.Link(r.ctx, v.Netdev.Ifindex)
	if err == nil {
		v.Netdev = l.Netdev
	}
	return err
}

func (r refresh) mac(v *nic.VF) error {
	port, err := r.m.Devlink.Port(r.ctx, r.pf.Handle, v.Rep.Port)
	if err == nil && (!port.HasMAC || port.Ifindex != v.Rep.Netdev.Ifindex) {
		err = fmt.Errorf("%s: MAC read alone: %w", r.id, ErrNotSupported)
	}
	if err == nil {
		v.MAC = port.MAC
	}
	return err
}

func (r refresh) rep(v *nic.VF) error {
	l, err := r.m.Links.Link(r.ctx, v.Rep.Netdev.Ifindex)
	if err == nil {
		v.Rep.Netdev = l.Netdev
	}
	return err
}
