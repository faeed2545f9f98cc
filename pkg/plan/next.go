package plan

import "sluice.dev/sluice/pkg/nic"

// Next answers the one step to do now so that state becomes what spec wants; no
// step (false) means that it is. PFs of spec are taken in its order; those that
// state does not have are passed over (Check refuses them).
//
// The spec should have gone through Complete: Next leaves a field that is zero
// where it lies, even when its own steps have moved it.
func Next(spec nic.Spec, state nic.State) (Step, bool) {
	for _, want := range spec.PFs {
		if pf := state.PF(want.Handle); pf != nil {
			if s, ok := NextOf(want, *pf); ok {
				return s, true
			}
		}
	}
	return Step{}, false
}

// NextOf is Next for one PF. What it does not do: touch the netdev of a VF that
// is in another namespace (it is a pod's as long as it is there).
func NextOf(want nic.PFSpec, pf nic.PF) (Step, bool) {
	g := goalOf(want, pf)
	a := g.structure()
	for i := 0; a == nil && i < len(pf.VFs); i++ {
		a = g.vf(i)
	}
	return Step{a}, a != nil
}

// goal is what is wanted of a PF beside what it is.
type goal struct {
	want  nic.PFSpec
	pf    nic.PF
	prof  profile
	count int         // of VFs at the end
	mode  nic.Eswitch // at the end
}

func goalOf(want nic.PFSpec, pf nic.PF) *goal {
	g := &goal{want: want, pf: pf, prof: profileOf(pf), count: len(pf.VFs), mode: pf.Eswitch}
	if want.VFCount != nil {
		g.count = *want.VFCount
	}
	// A device without an eswitch stays without one, whatever is wished.
	if want.Eswitch != "" && pf.Eswitch != "" {
		g.mode = want.Eswitch
	}
	return g
}

// flips: the eswitch mode has to change.
func (g *goal) flips() bool { return g.mode != g.pf.Eswitch }

// removes: the VFs that there are have to go, for good or to be made anew.
func (g *goal) removes() bool {
	have := len(g.pf.VFs)
	return have > 0 && (have != g.count || g.flips() && g.prof.modeWithoutVFs)
}

// flipsFirst: the mode is to change before the VFs are made.
func (g *goal) flipsFirst() bool {
	return g.mode == nic.Legacy || g.prof.modeBeforeVFs || g.count == 0
}

// startsUnbound: the VFs that are to be made must not be bound at once, because
// they get another driver or none, or an address first, or the mode changes
// under them.
func (g *goal) startsUnbound() bool {
	if g.flips() && !g.flipsFirst() {
		return true
	}
	for i := range min(g.count, len(g.want.VFs)) {
		w := g.want.VFs[i]
		if w.Driver != "" && w.Driver != nic.DriverKernel || w.MAC != nil && !w.MAC.IsZero() {
			return true
		}
	}
	return false
}

// structure is the step towards the right mode and the right number of VFs, nil
// when both are right.
func (g *goal) structure() Action {
	h, have := g.pf.Handle, len(g.pf.VFs)
	switch {
	case g.removes():
		return SetVFs{PF: h, From: have, To: 0}
	case g.flips() && (have > 0 || g.flipsFirst()):
		return g.flip()
	case have < g.count:
		if on := g.autoprobeForNew(); on != g.pf.Autoprobe {
			return SetAutoprobe{PF: h, To: on}
		}
		return SetVFs{PF: h, From: 0, To: g.count}
	case g.want.Autoprobe != nil && *g.want.Autoprobe != g.pf.Autoprobe:
		// Before the VFs are bound: with autoprobe off the kernel probes a VF only
		// for a driver that driver_override names (pci_device_can_probe), so its
		// own choice needs autoprobe back on.
		return SetAutoprobe{PF: h, To: *g.want.Autoprobe}
	}
	return nil
}

// flip takes the drivers from all VFs and then sets the mode.
func (g *goal) flip() Action {
	for i, v := range g.pf.VFs {
		if v.Driver != "" {
			return Unbind{VF: g.id(i), From: v.Driver}
		}
	}
	return SetEswitch{PF: g.pf.Handle, From: g.pf.Eswitch, To: g.mode}
}

func (g *goal) autoprobeForNew() bool {
	switch {
	case g.startsUnbound():
		return false
	case g.want.Autoprobe != nil:
		return *g.want.Autoprobe
	}
	return g.pf.Autoprobe
}

// vf is the step towards what is wanted of VF i, nil when it is so. Each VF is
// finished before the next is begun, so that it is without driver for as short
// a time as can be.
func (g *goal) vf(i int) Action {
	w, v, id := g.want.VF(i), g.pf.VFs[i], g.id(i)
	switch {
	case v.Driver != "" && (g.wantsDriver(i) || g.wantsMAC(i)):
		return Unbind{VF: id, From: v.Driver}
	case g.wantsMAC(i):
		return SetVFMAC{VF: id, From: v.MAC, To: *w.MAC}
	case g.wantsDriver(i):
		return Bind{VF: id, To: w.Driver}
	case g.wantsLinkMAC(i):
		return SetVFLinkMAC{VF: id, From: v.Netdev.MAC, To: *w.LinkMAC}
	case w.MTU != 0 && v.Netdev.Exists() && w.MTU != v.Netdev.MTU:
		return SetVFMTU{VF: id, From: v.Netdev.MTU, To: w.MTU}
	case w.RepMTU != 0 && v.Rep.Exists() && w.RepMTU != v.Rep.Netdev.MTU:
		return SetRepMTU{VF: id, From: v.Rep.Netdev.MTU, To: w.RepMTU}
	}
	return nil
}

func (g *goal) wantsDriver(i int) bool {
	w := g.want.VF(i).Driver
	return w != "" && w != nic.DriverOf(g.pf.VFs[i].Driver)
}

func (g *goal) wantsMAC(i int) bool {
	w, v := g.want.VF(i).MAC, g.pf.VFs[i]
	if w == nil || *w == v.MAC {
		return false
	}
	// The VF's own driver has filled the row in; clearing it would be followed
	// by the same again.
	return !w.IsZero() || v.Driver == "" || !g.prof.rowFollowsVF
}

func (g *goal) wantsLinkMAC(i int) bool {
	w, n := g.want.VF(i).LinkMAC, g.pf.VFs[i].Netdev
	return w != nil && n.Exists() && *w != n.MAC
}

func (g *goal) id(i int) nic.VFID { return nic.VFID{PF: g.pf.Handle, Index: i} }
