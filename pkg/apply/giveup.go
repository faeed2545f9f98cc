package apply

import (
	"errors"
	"maps"
	"slices"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// giveUp strikes out of want what the step was about that failed with err, so
// that the way back can go on past it; false if there is nothing to strike out, or
// the step was one that the rest stands on.
func giveUp(want *nic.Spec, err error) bool {
	var failed *StepError
	if !errors.As(err, &failed) {
		return false
	}
	s, ok := failed.Step.(plan.Step)
	if !ok {
		return false
	}
	if vf, ok := s.VF(); ok {
		return giveUpVF(want.PF(vf.PF), vf.Index)
	}
	if sf, ok := s.SF(); ok {
		pf := want.PF(sf.PF)
		had := pf != nil && pf.SFs != nil
		if had {
			pf.SFs = nil
		}
		return had
	}
	switch a := s.Action.(type) {
	case plan.SetPF:
		return giveUpSetting(want.PF(a.PF), a.Setting)
	case plan.AwaitLAG:
		return giveUpBond(want, a.Bond, func(b *nic.BondSpec) { b.Software = true })
	case plan.SetBondMTU:
		return giveUpBond(want, a.Bond, func(b *nic.BondSpec) { b.MTU = 0 })
	case plan.AddBond:
		return giveUpMembers(want, a.Name)
	case plan.Enslave:
		return giveUpMembers(want, a.Bond)
	}
	return false
}

func giveUpVF(pf *nic.PFSpec, i int) bool {
	if pf == nil || i >= len(pf.VFs) || pf.VFs[i].IsZero() {
		return false
	}
	pf.VFs[i] = nic.VFSpec{}
	return true
}

func giveUpSetting(pf *nic.PFSpec, name nic.Setting) bool {
	if pf == nil || pf.Settings[name] == "" {
		return false
	}
	pf.Settings = maps.Clone(pf.Settings)
	delete(pf.Settings, name)
	return true
}

func giveUpBond(want *nic.Spec, name string, change func(*nic.BondSpec)) bool {
	i := slices.IndexFunc(want.Bonds, func(b nic.BondSpec) bool { return b.Name == name })
	if i < 0 {
		return false
	}
	was := want.Bonds[i]
	change(&want.Bonds[i])
	return was.Software != want.Bonds[i].Software || was.MTU != want.Bonds[i].MTU
}

// giveUpMembers lets the ports be in whatever bond they are.
func giveUpMembers(want *nic.Spec, name string) bool {
	had := len(want.Bonds)
	want.Bonds = slices.DeleteFunc(want.Bonds, func(b nic.BondSpec) bool { return b.Name == name })
	for i := range want.PFs {
		if b := want.PFs[i].Bond; b != nil && *b == name {
			want.PFs[i].Bond = nil
		}
	}
	return len(want.Bonds) != had
}
