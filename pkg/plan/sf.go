package plan

import "sluice.dev/sluice/pkg/nic"

// subfunctions is the step towards the wanted SFs. They exist in switchdev mode
// only; an SF grows and shrinks by itself, so the others keep running.
func (g *goal) subfunctions() Action {
	if g.want.SFs == nil {
		return nil
	}
	wanted := make(map[int]bool, len(*g.want.SFs))
	for _, w := range *g.want.SFs {
		wanted[w.Num] = true
	}
	have := make(map[int]*nic.SF, len(g.pf.SFs))
	for i := range g.pf.SFs {
		f := &g.pf.SFs[i]
		if !wanted[f.Num] {
			return g.dropSF(*f)
		}
		have[f.Num] = f
	}
	if g.pf.Eswitch != nic.Switchdev {
		return nil
	}
	for _, w := range *g.want.SFs {
		if a := g.sf(w, have[w.Num]); a != nil {
			return a
		}
	}
	return nil
}

// dropSF removes an SF: the driver wants it inactive first
// (mlx5/core/sf/devlink.c, mlx5_devlink_sf_port_del).
func (g *goal) dropSF(f nic.SF) Action {
	id := nic.SFID{PF: g.pf.Handle, Num: f.Num}
	if f.Active {
		return SetSFActive{id, false}
	}
	return DelSF{id}
}

func newMAC(w nic.SFSpec, f nic.SF) bool { return w.MAC != nil && *w.MAC != f.MAC }

// sfRests: the SF is not to be active, or not while it is given something that its
// driver reads when it begins.
func sfRests(w nic.SFSpec, f nic.SF) bool {
	return w.Inactive || newMAC(w, f) ||
		len(pending(ofSF, unbound, nic.Switchdev, w.Settings, f.Settings, f.Limits)) > 0
}

// sf is the step towards what is wanted of one SF, which is f, nil if there is none.
func (g *goal) sf(w nic.SFSpec, f *nic.SF) Action {
	id := nic.SFID{PF: g.pf.Handle, Num: w.Num}
	if f == nil {
		return AddSF{id}
	}
	set := func(p phase) Action {
		for _, name := range pending(ofSF, p, g.pf.Eswitch, w.Settings, f.Settings, f.Limits) {
			return SetSF{id, name, f.Settings[name], asked(w.Settings, f.Limits, name)}
		}
		return nil
	}
	first := set(unbound)
	switch {
	case f.Active && sfRests(w, *f):
		return SetSFActive{id, false}
	case newMAC(w, *f):
		return SetSFMAC{id, f.MAC, *w.MAC}
	case first != nil:
		return first
	}
	if a := set(anytime); a != nil {
		return a
	}
	switch {
	case !f.Active && !w.Inactive:
		return SetSFActive{id, true}
	case w.MTU != 0 && f.Netdev.Exists() && w.MTU != f.Netdev.MTU:
		return SetSFMTU{id, f.Netdev.MTU, w.MTU}
	case w.RepMTU != 0 && f.Rep.Exists() && w.RepMTU != f.Rep.MTU:
		return SetSFRepMTU{id, f.Rep.MTU, w.RepMTU}
	case f.Netdev.Exists():
		return set(netdev)
	}
	return nil
}
