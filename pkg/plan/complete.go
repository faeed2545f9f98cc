package plan

import (
	"cmp"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Complete answers spec with everything written out that its steps would disturb
// and that it does not name, so that this ends as it was in before: autoprobe,
// which is turned off while VFs are made; drivers, addresses and MTUs of VFs that
// lose their driver or are made anew for a change of the mode (a representor
// outlives the driver of its VF). VFs that come from
// a change of their count are new, and get the drivers that the kernel would have
// given them. Nothing is added that the steps leave alone.
//
// Before is the state before the change was first begun: after an interruption
// it is the one in the journal, not the one that is found. Complete does not
// change what it is given, and completing twice is completing once.
func Complete(spec nic.Spec, before nic.State) nic.Spec {
	out := nic.Spec{PFs: slices.Clone(spec.PFs)}
	for i, want := range out.PFs {
		if pf := before.PF(want.Handle); pf != nil {
			out.PFs[i] = completePF(want, *pf)
		}
	}
	return out
}

func completePF(want nic.PFSpec, pf nic.PF) nic.PFSpec {
	g := goalOf(want, pf)
	g.want.VFs = slices.Clone(want.VFs)
	makes := g.count > 0 && (len(pf.VFs) == 0 || g.removes())
	if makes || g.removes() {
		g.want.VFCount = &g.count
		// Some drivers fall back to legacy mode with their last VF.
		g.want.Eswitch = cmp.Or(g.want.Eswitch, g.mode)
	}
	if makes && g.want.Autoprobe == nil {
		g.want.Autoprobe = &pf.Autoprobe
	}
	if g.count == len(pf.VFs) {
		for i := range pf.VFs {
			if g.flips() || g.wantsDriver(i) || g.wantsMAC(i) {
				*g.entry(i) = g.keep(i)
			}
		}
	} else if g.afterRemoval().startsUnbound() {
		for i := range g.count {
			if w := g.entry(i); w.Driver == "" {
				w.Driver = nic.DriverNone
				if *g.want.Autoprobe {
					w.Driver = nic.DriverKernel
				}
			}
		}
	}
	return g.want
}

// afterRemoval is the same goal seen when the VFs that have to go are gone.
func (g *goal) afterRemoval() *goal {
	pf := clonePF(g.pf)
	if g.removes() {
		SetVFs{PF: pf.Handle, From: len(pf.VFs), To: 0}.predict(&pf)
	}
	return goalOf(g.want, pf)
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
	if w.Driver == "" {
		w.Driver = nic.DriverOf(v.Driver)
	}
	newMAC := w.MAC != nil && *w.MAC != v.MAC
	// A VF that is made anew has none. To wish for none would be in vain with
	// drivers that fill it in when they bind.
	if w.MAC == nil && !v.MAC.IsZero() {
		w.MAC = &v.MAC
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
	return w
}
