package main

import (
	"context"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// sight is a look at the node that can be followed, with who holds which VF.
type sight struct {
	*node
	view  *host.View
	state nic.State // with owners
}

// see is observe for the device plugin, which asks kubelet by itself.
func (n *node) see(ctx context.Context) (deviceplugin.Sight, error) {
	view, err := host.Look(ctx, n.seam())
	if err != nil {
		return nil, err
	}
	state := view.State.Clone()
	if err := n.own(&state, n.recorded); err != nil {
		return nil, err
	}
	return &sight{n, view, state}, nil
}

func (s *sight) State() nic.State        { return s.state }
func (s *sight) RDMA() []host.RDMADevice { return s.view.RDMA() }

// After: who holds a VF is looked up where it has become another, for a pod's comes
// and goes with its netdev. The rest a later look sees.
func (s *sight) After(ctx context.Context, changes []host.Change) (deviceplugin.Sight, bool, error) {
	m, err := s.quick()
	if err != nil {
		return nil, false, err
	}
	view, sure, err := s.view.After(ctx, m, changes)
	if err != nil {
		return nil, false, err
	}
	state, store := view.State.Clone(), record.In(s.dir)
	for i := range state.PFs {
		old := s.state.PF(state.PFs[i].Handle)
		if old == nil {
			old = &nic.PF{}
		}
		for j := range state.PFs[i].VFs {
			v := &state.PFs[i].VFs[j]
			if j < len(old.VFs) && old.VFs[j].Address == v.Address && old.VFs[j].Driver == v.Driver && old.VFs[j].Netdev.Ifindex == v.Netdev.Ifindex && old.VFs[j].Away == v.Away {
				v.Owner = old.VFs[j].Owner
			} else if v.Address != "" {
				v.Owner = s.recorded(v.Address, store.Owner(v.Address, s.machine.Boot))
			}
		}
		for j := range state.PFs[i].SFs {
			f := &state.PFs[i].SFs[j]
			if o := old.SF(f.Num); o != nil && o.Device == f.Device && o.Netdev.Ifindex == f.Netdev.Ifindex && o.Away == f.Away {
				f.Owner = o.Owner
			} else if f.Device != "" {
				f.Owner = s.recorded(f.Device, store.Owner(f.Device, s.machine.Boot))
			}
		}
	}
	return &sight{s.node, view, state}, sure, nil
}
