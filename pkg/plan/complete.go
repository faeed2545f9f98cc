package plan

import (
	"cmp"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Complete answers spec with everything written out that its steps would disturb
// and that it does not name, so that this ends as it was in before: autoprobe,
// which is turned off while VFs are made; drivers, addresses, MTUs and settings of
// VFs that lose their driver or are made anew for a change of the mode (a
// representor outlives the driver of its VF); SFs, which a detour through legacy
// mode takes; bonds of ours that lose all their ports, which go; and bonds whose LAG
// ends with the mode of a port, which is to be there again. VFs that come from a
// change of their count are new, and get the drivers that the kernel would have
// given them. Nothing is added that the steps leave alone.
//
// Before is the state before the change was first begun: after an interruption
// it is the one in the journal, not the one that is found. Complete does not
// change what it is given, and completing twice is completing once.
func Complete(spec nic.Spec, before nic.State) nic.Spec {
	out := spec
	out.PFs, out.Bonds = slices.Clone(spec.PFs), slices.Clone(spec.Bonds)
	for i := range out.PFs {
		if b := spec.BondOf(out.PFs[i].Handle); b != nil && out.PFs[i].Bond == nil {
			out.PFs[i].Bond = &b.Name
		}
	}
	out.Bonds = append(out.Bonds, emptied(out, before)...)
	out.Bonds = append(out.Bonds, shaken(out, before)...)
	done := slices.Clone(out.PFs)
	for i, want := range out.PFs {
		if pf := before.PF(want.Handle); pf != nil {
			g := goalIn(out, want, *pf, before)
			if b := out.BondOf(want.Handle); b != nil && !b.Software && shakes(b.Members, out, before) != nil {
				g.awaitsLAG = true
			}
			done[i] = g.complete()
		}
	}
	out.PFs = done
	return out
}

// complete is Complete for one PF.
func (g *goal) complete() nic.PFSpec {
	pf := g.pf
	g.want.VFs = slices.Clone(g.want.VFs)
	makes := g.endCount > 0 && (g.removes() || len(pf.VFs) == 0)
	if makes || g.removes() {
		g.want.VFCount = &g.endCount
		// Some drivers fall back to legacy mode with their last VF.
		g.want.Eswitch = cmp.Or(g.want.Eswitch, g.endMode)
	}
	if g.detours() {
		g.want.Eswitch = cmp.Or(g.want.Eswitch, g.endMode)
	}
	if makes && g.want.Autoprobe == nil {
		g.want.Autoprobe = &pf.Autoprobe
	}
	if g.endCount == len(pf.VFs) {
		disturbed := g.flips() || g.detours() || g.awaitsLAG || g.lacks()
		for i := range pf.VFs {
			if disturbed || g.wantsDriver(i) || g.wantsUnbound(i) {
				*g.entry(i) = g.keep(i)
			}
		}
	} else if g.atTheEnd().startsUnbound() {
		for i := range g.endCount {
			if w := g.entry(i); w.Driver == "" {
				w.Driver = g.driverOfNew()
			}
		}
	}
	g.keepSFs()
	g.keepPort()
	return g.want
}

// driverOfNew is what the kernel gives to VFs that are made anew.
func (g *goal) driverOfNew() nic.Driver {
	if *g.want.Autoprobe {
		return nic.DriverKernel
	}
	return nic.DriverNone
}

// atTheEnd is the same goal seen when the VFs that have to go are gone and no
// detour is before it any more.
func (g *goal) atTheEnd() *goal {
	s := nic.State{PFs: []nic.PF{g.pf.Clone()}}
	if g.removes() {
		SetVFs{PF: g.pf.Handle, From: len(g.pf.VFs), To: 0}.predict(&s)
	}
	pf := s.PFs[0]
	for name, value := range g.want.Settings {
		pf.Settings = pf.Settings.With(name, value)
	}
	if g.detours() && g.mode == nic.Legacy && pf.Eswitch != "" {
		pf.Eswitch = nic.Legacy
	}
	out := goalOf(g.want, pf)
	out.awaitsLAG = g.awaitsLAG
	return out
}

// entry is the entry for VF i, made if there is none.
func (g *goal) entry(i int) *nic.VFSpec {
	for len(g.want.VFs) <= i {
		g.want.VFs = append(g.want.VFs, nic.VFSpec{})
	}
	return &g.want.VFs[i]
}

// keep is what is wanted of VF i with the rest as it is now.
func (g *goal) keep(i int) nic.VFSpec {
	w, v := g.want.VF(i), g.pf.VFs[i]
	if v.Gone {
		if g.removes() && w.Driver == "" {
			w.Driver = g.driverOfNew()
		}
		return w
	}
	if w.Driver == "" {
		w.Driver = nic.DriverOf(v.Driver)
	}
	newMAC := w.MAC != nil && *w.MAC != v.MAC
	// A VF that is made anew has none. To wish for none would be in vain with
	// drivers that fill it in when they bind.
	if w.MAC == nil && !v.MAC.IsZero() {
		w.MAC = &v.MAC
	}
	if w.RepMTU == 0 && g.endMode == nic.Switchdev && (g.removes() || g.leavesMode()) {
		w.RepMTU = v.Rep.Netdev.MTU
	}
	if w.Driver == nic.DriverKernel && v.Netdev.Exists() {
		// A driver that binds takes a new administrative address for its netdev.
		if w.LinkMAC == nil && !newMAC && g.prof.mayChoose(w.MAC, v.Netdev.MAC) {
			w.LinkMAC = &v.Netdev.MAC
		}
		if w.MTU == 0 {
			w.MTU = v.Netdev.MTU
		}
	}
	have := lasting(ofVF, g.endMode, v.Settings)
	if g.endMode != g.pf.Eswitch && !g.prof.rates {
		delete(have, nic.MinRate)
		delete(have, nic.MaxRate)
	}
	w.Settings = over(lostBy(ofVF, g.removes() || g.leavesMode(), w.Driver, have), w.Settings)
	return w
}

// lostBy is what of have a function loses that is unbound, or also made anew or
// taken to another mode, and that means something with the driver that it gets.
// Rates and port functions end with a mode (mlx5/core/eswitch.c,
// mlx5_esw_vport_disable; esw/qos.c).
func lostBy(k kind, anew bool, driver nic.Driver, have nic.Settings) nic.Settings {
	var out nic.Settings
	for name, value := range have {
		r, _ := ruleOf(name)
		switch r.at(k).phase {
		case netdev, bound:
			if driver == nic.DriverKernel {
				out = out.With(name, value)
			}
		default:
			if anew && value != noGUID {
				out = out.With(name, value)
			}
		}
	}
	return out
}

// over is want where it says something, else have.
func over(have, want nic.Settings) nic.Settings {
	for name, value := range want {
		have = have.With(name, value)
	}
	return have
}

// keepSFs names the SFs that legacy mode would take, and what SFs that are named
// lose on the way beyond what is asked of them.
func (g *goal) keepSFs() {
	if g.pf.Eswitch != nic.Switchdev || len(g.pf.SFs) == 0 {
		return
	}
	sfs := []nic.SFSpec{}
	switch {
	case g.want.SFs != nil:
		for _, w := range *g.want.SFs {
			sfs = append(sfs, g.keepSF(w))
		}
	case !g.leavesMode():
		return
	case g.endMode == nic.Switchdev:
		sfs = *nic.Freeze(nic.State{PFs: []nic.PF{g.pf}}).PFs[0].SFs
	}
	g.want.SFs = &sfs
}

func (g *goal) keepSF(w nic.SFSpec) nic.SFSpec {
	f, anew := g.pf.SF(w.Num), g.leavesMode()
	if f == nil || g.endMode != nic.Switchdev {
		return w
	}
	if anew {
		if w.MAC == nil && !f.MAC.IsZero() {
			w.MAC = &f.MAC
		}
		w.RepMTU = cmp.Or(w.RepMTU, f.Rep.MTU)
	}
	driver := nic.DriverNone
	if f.Active && !w.Inactive {
		driver = nic.DriverKernel
	}
	if anew || sfRests(w, *f) {
		if driver == nic.DriverKernel {
			w.MTU = cmp.Or(w.MTU, f.Netdev.MTU)
		}
		w.Settings = over(lostBy(ofSF, anew, driver, lasting(ofSF, g.endMode, f.Settings)), w.Settings)
	}
	return w
}

// keepPort names settings of the uplink that the steps disturb: a change of the
// mode attaches another profile to it (mlx5e_netdev_change_profile), and a reload
// makes it anew. Channels and rings are the profile's own: they are kept where the
// mode at the end is the one that there was.
func (g *goal) keepPort() {
	if !g.leavesMode() && !g.wants(nic.RoCE) {
		return
	}
	for name, value := range g.pf.Settings {
		r, _ := ruleOf(name)
		_, named := g.want.Settings[name]
		if named || r.at(ofPF).phase != netdev || g.bond != "" && ofBond(name) {
			continue
		}
		if g.endMode == g.pf.Eswitch || !r.queues {
			g.want.Settings = g.want.Settings.With(name, value)
		}
	}
}
