package plan

import (
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// This file is what becomes of a LAG in hardware that is not what was asked about.
// It ends when a port changes its mode or leaves (mlx5/core/lag/lag.c,
// mlx5_lag_disable_change), for the VFs of all ports, and comes back only with these
// unbound.

// shaken lists the bonds in hardware that spec does not name and whose LAG ends on
// its way, as a port changes its mode: they are to be in hardware again, if they
// can be with what is wanted of their ports.
func shaken(spec nic.Spec, before nic.State) []nic.BondSpec {
	var out []nic.BondSpec
	for _, b := range before.Bonds {
		named := slices.ContainsFunc(spec.Bonds, func(w nic.BondSpec) bool { return w.Name == b.Name })
		if named || !active(b, before) || shakes(b.Members, spec, before) == nil {
			continue
		}
		if _, _, differ := modesDiffer(b.Members, spec, before); differ {
			continue // Check refuses it
		}
		for _, f := range nic.Freeze(before, b.Members...).Bonds {
			f.Software = !aggregable(b.Members, spec, before)
			out = append(out, f)
		}
	}
	return out
}

// active: hardware aggregates the ports of b.
func active(b nic.Bond, state nic.State) bool {
	return len(b.Members) > 0 && !slices.ContainsFunc(b.Members, func(h nic.Handle) bool {
		pf := state.PF(h)
		return pf == nil || pf.LAG != nic.LAGActive
	})
}

// shakes is the first of ports that stays in its bond and changes its mode, nil
// for none.
func shakes(ports []nic.Handle, spec nic.Spec, before nic.State) *nic.Handle {
	for i, h := range ports {
		want, pf := spec.PF(h), before.PF(h)
		if want == nil || pf == nil {
			continue
		}
		if g := goalIn(spec, *want, *pf, before); g.stays && g.leavesMode() {
			return &ports[i]
		}
	}
	return nil
}

// aggregable: at the end the ports are all there, and in a mode that hardware
// aggregates in.
func aggregable(ports []nic.Handle, spec nic.Spec, before nic.State) bool {
	return !slices.ContainsFunc(ports, func(h nic.Handle) bool {
		g := endOf(h, spec, before)
		return !g.stays || g.endMode != nic.Switchdev && g.endCount > 0
	})
}

// modesDiffer finds two ports that stay and are not to be in one mode.
func modesDiffer(ports []nic.Handle, spec nic.Spec, before nic.State) (a, b *goal, differ bool) {
	for _, h := range ports {
		g := endOf(h, spec, before)
		switch {
		case !g.stays:
		case a == nil:
			a = g
		case g.endMode != a.endMode:
			return a, g, true
		}
	}
	return nil, nil, false
}

// emptied lists the bonds of ours that all their ports leave, and bonds in hardware
// that one does: without it the others have no LAG either, so that they go back
// together.
func emptied(spec nic.Spec, before nic.State) []nic.BondSpec {
	var out []nic.BondSpec
	for _, b := range before.Bonds {
		named := slices.ContainsFunc(spec.Bonds, func(w nic.BondSpec) bool { return w.Name == b.Name })
		leaves := func(h nic.Handle) bool {
			want := spec.PF(h)
			return want != nil && want.Bond != nil && *want.Bond != b.Name
		}
		stays := func(h nic.Handle) bool { return !leaves(h) }
		gone := b.Ours && len(b.Members) > 0 && len(b.Others) == 0 && !slices.ContainsFunc(b.Members, stays)
		if !named && (gone || active(b, before) && slices.ContainsFunc(b.Members, leaves)) {
			out = append(out, nic.BondSpec{Name: b.Name, Mode: b.Mode, Members: slices.Clone(b.Members), Absent: true})
		}
	}
	return out
}

// endsLAG: the port leaves its bond, or its mode.
func endsLAG(h nic.Handle, spec nic.Spec, state nic.State) bool {
	g := endOf(h, spec, state)
	return !g.stays || g.leavesMode()
}

// endOf is what is wanted of a PF of spec, nothing where it does not name it.
func endOf(h nic.Handle, spec nic.Spec, state nic.State) *goal {
	want := nic.PFSpec{Handle: h}
	if w := spec.PF(h); w != nil {
		want = *w
	}
	return goalIn(spec, want, *state.PF(h), state)
}
