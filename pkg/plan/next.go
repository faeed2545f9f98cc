package plan

import "sluice.dev/sluice/pkg/nic"

// Next answers the one step to do now so that state becomes what spec wants; no
// step (false) means that it is. The scopes of spec are taken in its order; PFs
// that state does not have are passed over (Check refuses them).
//
// The spec should have gone through Complete: Next leaves a field that is zero
// where it lies, even when its own steps have moved it.
func Next(spec nic.Spec, state nic.State) (Step, bool) {
	for _, scope := range Scopes(spec) {
		if s, ok := NextOf(scope, state); ok {
			return s, true
		}
	}
	return Step{}, false
}

// NextOf is Next for one scope (Scopes). What it does not do: touch the netdev of
// a VF or SF that is in another namespace (it is a pod's as long as it is there).
//
// The order within a scope is what VF-LAG asks for: the ports leave bonds that
// they are not to be in; modes and VFs are made right, VFs without their drivers;
// the bond is made and seen to be in hardware; then everything gets its settings
// and the VFs get their drivers.
func NextOf(want nic.Spec, state nic.State) (Step, bool) {
	a := nextRDMA(want, state)
	u := unitOf(want, state)
	for _, next := range []func(*unit) Action{(*unit).leave, (*unit).structure, (*unit).bonds, (*unit).settle, (*unit).tidy} {
		if a != nil {
			break
		}
		a = next(u)
	}
	return Step{a}, a != nil
}

// unit is one scope with what was observed of it.
type unit struct {
	want  nic.Spec
	state nic.State
	goals []*goal // of the PFs that are there
}

func unitOf(want nic.Spec, state nic.State) *unit {
	u := &unit{want: want, state: state}
	for _, w := range want.PFs {
		if pf := state.PF(w.Handle); pf != nil {
			u.goals = append(u.goals, goalIn(want, w, *pf, state))
		}
	}
	return u
}

func (u *unit) structure() Action {
	for _, g := range u.goals {
		if a := g.structure(); a != nil {
			return a
		}
	}
	return nil
}

// settle is all that has its place after modes, VFs and bonds are right.
func (u *unit) settle() Action {
	for _, g := range u.goals {
		if a := g.settle(); a != nil {
			return a
		}
	}
	return nil
}

func (g *goal) settle() Action {
	if a := g.portSettings(); a != nil {
		return a
	}
	if a := g.subfunctions(); a != nil {
		return a
	}
	for i := range min(len(g.pf.VFs), len(g.want.VFs)) {
		if a := g.vf(i); a != nil {
			return a
		}
	}
	return nil
}

// goal is what is wanted of a PF beside what it is.
type goal struct {
	want nic.PFSpec
	pf   nic.PF
	prof profile

	endCount int         // of VFs at the end
	endMode  nic.Eswitch // at the end

	// The same for now. They differ from the end while something has to be set
	// that the driver takes only in legacy mode, or only without VFs.
	count int
	mode  nic.Eswitch

	// awaitsLAG: the bond that is wanted is not in hardware yet, and VFs are not
	// to be bound before it is.
	awaitsLAG bool

	// bond is the one that the uplink is to be a member of, "" none; stays: it is
	// one now and does not leave it on the way.
	bond  string
	stays bool
}

// goalIn is goalOf with what state and spec say of bonds.
func goalIn(spec nic.Spec, want nic.PFSpec, pf nic.PF, state nic.State) *goal {
	g := goalOf(want, pf)
	wanted, have := spec.BondOf(pf.Handle), state.BondOf(pf.Handle)
	g.awaitsLAG = awaitsLAG(wanted, state)
	switch {
	case want.Bond != nil:
		g.bond = *want.Bond
	case wanted != nil:
		g.bond = wanted.Name
	case have != nil:
		g.bond = have.Name
	}
	g.stays = have != nil && have.Name == g.bond && !(wanted != nil && remade(*wanted, *have))
	return g
}

func goalOf(want nic.PFSpec, pf nic.PF) *goal {
	g := &goal{want: want, pf: pf, prof: profileOf(pf), endCount: len(pf.VFs), endMode: pf.Eswitch}
	if want.VFCount != nil {
		g.endCount = *want.VFCount
	}
	// A device without an eswitch stays without one, whatever is wished.
	if want.Eswitch != "" && pf.Eswitch != "" {
		g.endMode = want.Eswitch
	}
	g.count, g.mode = g.endCount, g.endMode
	if g.wants(nic.SteeringMode) && pf.Eswitch == nic.Switchdev {
		g.mode = nic.Legacy
	}
	if g.wants(nic.RoCE) {
		g.count = 0
		if pf.Eswitch != "" {
			g.mode = nic.Legacy
		}
	}
	return g
}

// wants says whether a setting of the PF has to change.
func (g *goal) wants(name nic.Setting) bool {
	value, ok := g.want.Settings[name]
	return ok && value != g.pf.Settings[name]
}

// detours: the way to the end leads through legacy mode or a PF without VFs.
func (g *goal) detours() bool { return g.count != g.endCount || g.mode != g.endMode }

// flips: the eswitch mode has to change.
func (g *goal) flips() bool { return g.mode != g.pf.Eswitch }

// leavesMode: the mode is another one for good, or for a moment.
func (g *goal) leavesMode() bool {
	return g.flips() || g.detours() || g.prof.dropsMode && g.pf.Eswitch == nic.Switchdev && g.removes()
}

// removes: the VFs that there are have to go, for good or to be made anew.
func (g *goal) removes() bool {
	have := len(g.pf.VFs)
	return have > 0 && (have != g.count || g.flips() && g.prof.modeWithoutVFs || g.lacks())
}

// lacks: a VF that is wanted has gone. The kernel makes all VFs or none.
func (g *goal) lacks() bool {
	for i := range g.pf.VFs {
		if w := g.wish(i); g.pf.VFs[i].Gone && !w.Gone && (g.want.VFCount != nil || !w.IsZero()) {
			return true
		}
	}
	return false
}

// flipsFirst: the mode is to change before the VFs are made.
func (g *goal) flipsFirst() bool {
	return g.mode == nic.Legacy || g.prof.modeBeforeVFs || g.count == 0
}

// startsUnbound: the VFs that are to be made must not be bound at once, because
// they get another driver or none, or something that their driver reads when it
// binds, or the mode changes under them, or the bond is not in hardware yet.
func (g *goal) startsUnbound() bool {
	if g.flips() && !g.flipsFirst() || g.awaitsLAG {
		return true
	}
	for i := range min(g.count, len(g.want.VFs)) {
		w := &g.want.VFs[i]
		if w.Driver != "" && w.Driver != nic.DriverKernel || w.MAC != nil && !w.MAC.IsZero() ||
			len(pending(ofVF, unbound, g.mode, w.Settings, nil, nil)) > 0 {
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
	case g.flips() && g.mode == nic.Legacy && len(g.pf.SFs) > 0:
		return g.dropSF(g.pf.SFs[0])
	case !g.flips() || g.mode == nic.Switchdev:
		if a := g.earlySettings(); a != nil {
			return a
		}
	}
	switch {
	case g.flips() && (have > 0 || g.flipsFirst()):
		return g.flip()
	case have < g.count:
		if on := g.autoprobeForNew(); on != g.pf.Autoprobe {
			return SetAutoprobe{PF: h, To: on}
		}
		return SetVFs{PF: h, From: 0, To: g.count}
	case !g.detours() && g.want.Autoprobe != nil && *g.want.Autoprobe != g.pf.Autoprobe:
		// Before the VFs are bound: with autoprobe off the kernel probes a VF only
		// for a driver that driver_override names (pci_device_can_probe), so its
		// own choice needs autoprobe back on.
		return SetAutoprobe{PF: h, To: *g.want.Autoprobe}
	}
	return nil
}

// earlySettings are those that are set before the mode becomes switchdev, or
// while there is nothing but the bare PF.
func (g *goal) earlySettings() Action {
	p := g.pf
	names := pending(ofPF, early, p.Eswitch, g.want.Settings, p.Settings, p.Limits)
	if len(p.VFs) == 0 && p.Eswitch != nic.Switchdev {
		names = append(names, pending(ofPF, bare, p.Eswitch, g.want.Settings, p.Settings, p.Limits)...)
	}
	for _, name := range names {
		if name != nic.SteeringMode || p.Eswitch != nic.Switchdev {
			return g.setPF(name)
		}
	}
	return nil
}

func (g *goal) setPF(name nic.Setting) Action {
	return SetPF{g.pf.Handle, name, g.pf.Settings[name], asked(g.want.Settings, g.pf.Limits, name)}
}

// portSettings are those of the uplink's netdev.
func (g *goal) portSettings() Action {
	p := g.pf
	if !p.Uplink.Exists() {
		return nil
	}
	for _, name := range pending(ofPF, netdev, p.Eswitch, g.want.Settings, p.Settings, p.Limits) {
		return g.setPF(name)
	}
	return nil
}

// ofBond: a bond says it for its members, and Check lets nobody else.
func ofBond(name nic.Setting) bool { return name == nic.AdminLink || name == nic.LinkMTU }

// flip takes the drivers from all VFs and then sets the mode.
func (g *goal) flip() Action {
	if a := g.unbindAll(); a != nil {
		return a
	}
	return SetEswitch{PF: g.pf.Handle, From: g.pf.Eswitch, To: g.mode}
}

func (g *goal) unbindAll() Action {
	for i := range g.pf.VFs {
		if driver := g.pf.VFs[i].Driver; driver != "" {
			return Unbind{VF: g.id(i), From: driver}
		}
	}
	return nil
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
	w, v, id := &g.want.VFs[i], &g.pf.VFs[i], g.id(i)
	if v.Gone {
		return nil
	}
	set := within(w.Settings, v.Settings) // which saves looking for what to set
	switch {
	case v.Driver != "" && (g.wantsDriver(i) || g.wantsMAC(i) || !set && g.wantsUnbound(i)):
		return Unbind{VF: id, From: v.Driver}
	case g.wantsMAC(i):
		return SetVFMAC{VF: id, From: v.MAC, To: *w.MAC}
	}
	if !set {
		if a := g.setVF(i, unbound, anytime); a != nil {
			return a
		}
	}
	if g.wantsDriver(i) {
		return Bind{VF: id, To: w.Driver}
	}
	if !set {
		if a := g.setVF(i, bound); a != nil {
			return a
		}
	}
	switch {
	case g.wantsLinkMAC(i):
		return SetVFLinkMAC{VF: id, From: v.Netdev.MAC, To: *w.LinkMAC}
	case w.MTU != 0 && v.Netdev.Exists() && w.MTU != v.Netdev.MTU:
		return SetVFMTU{VF: id, From: v.Netdev.MTU, To: w.MTU}
	case w.RepMTU != 0 && v.Rep.Exists() && w.RepMTU != v.Rep.Netdev.MTU:
		return SetRepMTU{VF: id, From: v.Rep.Netdev.MTU, To: w.RepMTU}
	}
	if !set && v.Netdev.Exists() {
		return g.setVF(i, netdev)
	}
	return nil
}

// setVF is the step towards the settings of VF i that have their time in phases.
func (g *goal) setVF(i int, phases ...phase) Action {
	w, v := &g.want.VFs[i], &g.pf.VFs[i]
	for _, p := range phases {
		if p == bound && nic.DriverOf(v.Driver) != nic.DriverKernel {
			continue
		}
		for _, name := range pending(ofVF, p, g.pf.Eswitch, w.Settings, v.Settings, v.Limits) {
			return SetVF{g.id(i), name, v.Settings[name], asked(w.Settings, v.Limits, name)}
		}
	}
	return nil
}

// wish is what is wanted of VF i, also where nothing is.
func (g *goal) wish(i int) *nic.VFSpec {
	if i < len(g.want.VFs) {
		return &g.want.VFs[i]
	}
	return &nic.VFSpec{}
}

func (g *goal) wantsDriver(i int) bool {
	w := g.wish(i).Driver
	return w != "" && w != nic.DriverOf(g.pf.VFs[i].Driver)
}

// wantsUnbound: VF i is to be given something that a driver reads when it binds.
func (g *goal) wantsUnbound(i int) bool {
	w, v := g.wish(i), &g.pf.VFs[i]
	return g.wantsMAC(i) || len(pending(ofVF, unbound, g.pf.Eswitch, w.Settings, v.Settings, v.Limits)) > 0
}

func (g *goal) wantsMAC(i int) bool {
	w, v := g.wish(i).MAC, &g.pf.VFs[i]
	if w == nil || *w == v.MAC {
		return false
	}
	// The VF's own driver has filled the row in; clearing it would be followed
	// by the same again.
	return !w.IsZero() || v.Driver == "" || !g.prof.rowFollowsVF
}

func (g *goal) wantsLinkMAC(i int) bool {
	w, n := g.wish(i).LinkMAC, &g.pf.VFs[i].Netdev
	return w != nil && n.Exists() && *w != n.MAC
}

func (g *goal) id(i int) nic.VFID { return nic.VFID{PF: g.pf.Handle, Index: i} }

// nextRDMA is the step towards the mode of the node's RDMA subsystem. What cannot
// be changed now, because other namespaces exist, is left to the next boot.
func nextRDMA(want nic.Spec, state nic.State) Action {
	have := state.RDMA
	switch {
	case want.RDMA == "" || have.Mode == "":
		return nil
	case want.RDMAAtBoot != nil && have.AtBoot != *want.RDMAAtBoot:
		return SetRDMAAtBoot{have.AtBoot, *want.RDMAAtBoot}
	case want.RDMAAtBoot == nil && have.AtBoot != want.RDMA && (have.AtBoot != "" || have.Mode != want.RDMA):
		return SetRDMAAtBoot{have.AtBoot, want.RDMA}
	case have.Mode != want.RDMA && !have.Fixed:
		return SetRDMA{have.Mode, want.RDMA}
	}
	return nil
}
