package plan

import (
	"maps"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Back answers the Spec that goes back to before for what spec names: nic.Freeze,
// less what the driver would refuse, and without the bonds that spec brought in; one of ours that was empty is no loss.
// An address of a netdev that departs from a VF's administrative one was chosen
// before that was set, and some drivers allow none such afterwards.
func Back(before nic.State, spec nic.Spec) nic.Spec {
	var out nic.Spec
	if len(spec.PFs) > 0 {
		out = nic.Freeze(before, spec.Handles()...)
	}
	out.RDMA = ""
	if spec.RDMA != "" {
		out.RDMA, out.RDMAAtBoot = before.RDMA.Mode, &before.RDMA.AtBoot
	}
	for i, want := range out.PFs {
		pf := before.PF(want.Handle)
		for j := range want.VFs {
			w := &want.VFs[j]
			if w.LinkMAC != nil && !profileOf(*pf).mayChoose(w.MAC, *w.LinkMAC) {
				w.LinkMAC = nil
			}
			maps.DeleteFunc(w.Settings, func(_ nic.Setting, value string) bool { return value == noGUID })
		}
		out.PFs[i] = want
	}
	for _, b := range spec.Bonds {
		if b.Adopt {
			continue
		}
		b.Absent, b.Members = true, slices.Clone(b.Members)
		if had := before.Bond(b.Name); had != nil {
			// The ports that come out stand together with those that were in.
			b.Members = slices.DeleteFunc(b.Members, func(h nic.Handle) bool { return slices.Contains(had.Members, h) })
		}
		if len(b.Members) > 0 {
			out.Bonds = append(out.Bonds, b)
		}
	}
	return out
}

// mayChoose says whether the netdev of a VF with the administrative address
// admin may have the address link.
func (p profile) mayChoose(admin *nic.MAC, link nic.MAC) bool {
	return !p.rowFollowsVF || admin == nil || admin.IsZero() || *admin == link
}

// Spare answers spec without what it wants of VFs and SFs that are in use in
// state: who goes back leaves alone what has meanwhile been given away. A
// representor is not the holder's, and keeps its wish. A VF that has gone stays away
// while another is in use: it would take that with it.
func Spare(spec nic.Spec, state nic.State) nic.Spec {
	out := spec
	out.PFs = make([]nic.PFSpec, len(spec.PFs))
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
	used := false
	for i, v := range pf.VFs {
		if v.InUse() == "" {
			continue
		}
		used = true
		if i < len(vfs) {
			vfs[i] = nic.VFSpec{RepMTU: vfs[i].RepMTU}
		}
	}
	for i, v := range pf.VFs {
		if !used || !v.Gone {
			continue
		}
		for len(vfs) <= i {
			vfs = append(vfs, nic.VFSpec{})
		}
		vfs[i] = nic.VFSpec{Gone: true}
	}
	want.VFs = vfs
	if want.SFs != nil {
		sfs := slices.Clone(*want.SFs)
		for _, f := range pf.SFs {
			if f.InUse() == "" {
				continue
			}
			spared := nic.SFSpec{Num: f.Num, Inactive: !f.Active}
			if w := want.SF(f.Num); w != nil {
				spared.RepMTU = w.RepMTU
			}
			sfs = slices.DeleteFunc(sfs, func(w nic.SFSpec) bool { return w.Num == f.Num })
			sfs = append(sfs, spared)
		}
		slices.SortFunc(sfs, func(a, b nic.SFSpec) int { return a.Num - b.Num })
		want.SFs = &sfs
	}
	return want
}
