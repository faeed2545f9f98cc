package plan

import "sluice.dev/sluice/pkg/nic"

// Back answers the Spec that goes back to before for the PFs named (all, if none
// is named): nic.Freeze, less what the driver would refuse. An address of a
// netdev that departs from a VF's administrative one was chosen before that was
// set, and some drivers allow none such afterwards.
func Back(before nic.State, handles ...nic.Handle) nic.Spec {
	out := nic.Freeze(before, handles...)
	for i, want := range out.PFs {
		pf := before.PF(want.Handle)
		for j := range want.VFs {
			w := &want.VFs[j]
			if w.LinkMAC != nil && !profileOf(*pf).mayChoose(w.MAC, *w.LinkMAC) {
				w.LinkMAC = nil
			}
		}
		out.PFs[i] = want
	}
	return out
}

// mayChoose says whether the netdev of a VF with the administrative address
// admin may have the address link.
func (p profile) mayChoose(admin *nic.MAC, link nic.MAC) bool {
	return !p.rowFollowsVF || admin == nil || admin.IsZero() || *admin == link
}

// Spare answers spec without what it wants of VFs that are in use in state: who
// goes back leaves alone what has meanwhile been given away.
func Spare(spec nic.Spec, state nic.State) nic.Spec {
	out := nic.Spec{PFs: make([]nic.PFSpec, len(spec.PFs))}
	for i, want := range spec.PFs {
		if pf := state.PF(want.Handle); pf != nil {
			want = sparePF(want, *pf)
		}
		out.PFs[i] = want
	}
	return out
}

func sparePF(want nic.PFSpec, pf nic.PF) nic.PFSpec {
	vfs := make([]nic.VFSpec, len(want.VFs))
	copy(vfs, want.VFs)
	for i := range vfs {
		if i < len(pf.VFs) && pf.VFs[i].InUse() != "" {
			vfs[i] = nic.VFSpec{}
		}
	}
	want.VFs = vfs
	return want
}
