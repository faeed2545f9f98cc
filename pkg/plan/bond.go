package plan

import (
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// This file is bonds and VF-LAG. Source of the order: mlx5/core/lag/lag.c
// (mlx5_lag_check_prereq: all ports in the same mode, the bond's members exactly
// the card's ports) and the vendor's manuals, which bind VFs after it.

// leave takes ports out of bonds that they are not to be in: another one is
// wanted, or none, or one that has to be made anew.
func (u *unit) leave() Action {
	for _, g := range u.goals {
		have := u.state.BondOf(g.pf.Handle)
		if g.want.Bond == nil || have == nil {
			continue
		}
		want := u.want.BondOf(g.pf.Handle)
		if *g.want.Bond != have.Name || want != nil && remade(*want, *have) {
			return Release{have.Name, g.pf.Handle}
		}
	}
	return nil
}

// remade: the bond is ours and has to be made anew.
func remade(want nic.BondSpec, have nic.Bond) bool {
	return !want.Adopt && have.Ours && differs(want, have)
}

// differs: the bond is another one than wanted in what can be chosen only while
// it has no members (bond_opts with BOND_OPTFLAG_NOSLAVES), or is kept simple by
// treating it so.
func differs(want nic.BondSpec, have nic.Bond) bool {
	return want.Mode != have.Mode ||
		want.Hash != "" && want.Hash != have.Hash ||
		(want.Miimon != 0 || want.Exact) && want.Miimon != have.Miimon ||
		want.LACPRate != "" && want.LACPRate != have.LACPRate
}

// awaitsLAG: the bond is not as wanted, or hardware does not aggregate its ports
// although the driver is one that tells.
func awaitsLAG(want *nic.BondSpec, state nic.State) bool {
	if want == nil || want.Absent || want.Software {
		return false
	}
	have := state.Bond(want.Name)
	if have == nil || remade(*want, *have) {
		return true
	}
	for _, h := range want.Members {
		if !slices.Contains(have.Members, h) {
			return true
		}
	}
	return !inHardware(*want, state)
}

// inHardware: every port says that the LAG is active; drivers that do not tell
// are believed.
func inHardware(want nic.BondSpec, state nic.State) bool {
	if want.Software {
		return true
	}
	for _, h := range want.Members {
		if pf := state.PF(h); pf != nil && profileOf(*pf).tellsLAG && pf.LAG != nic.LAGActive {
			return false
		}
	}
	return true
}

// bonds is the step towards the wanted bonds, when modes and VFs are right.
func (u *unit) bonds() Action {
	for _, want := range u.want.Bonds {
		if want.Absent {
			continue
		}
		if a := u.bond(want); a != nil {
			return a
		}
	}
	return nil
}

func (u *unit) bond(want nic.BondSpec) Action {
	have := u.state.Bond(want.Name)
	if awaitsLAG(&want, u.state) {
		for _, g := range u.goals {
			if slices.Contains(want.Members, g.pf.Handle) {
				if a := g.unbindAll(); a != nil {
					return a
				}
			}
		}
	}
	if have == nil {
		if !want.Adopt {
			return AddBond{want.Name, want.Hash, want.LACPRate, want.Mode, want.Miimon, want.MTU}
		}
		return AwaitBond{want.Name, want.Members[0]}
	}
	if remade(want, *have) {
		return DelBond{want.Name} // its members have left
	}
	for _, h := range want.Members {
		switch {
		case slices.Contains(have.Members, h):
		case want.Adopt:
			return AwaitBond{want.Name, h}
		default:
			return Enslave{want.Name, h}
		}
	}
	switch {
	case want.MTU != 0 && want.MTU != have.MTU:
		return SetBondMTU{want.Name, have.MTU, want.MTU}
	case !inHardware(want, u.state):
		return AwaitLAG{want.Name}
	}
	return nil
}

// tidy removes bonds of ours that are to be gone, when their ports have left.
func (u *unit) tidy() Action {
	for _, want := range u.want.Bonds {
		have := u.state.Bond(want.Name)
		if want.Absent && have != nil && have.Ours && len(have.Members)+len(have.Others) == 0 {
			return DelBond{want.Name}
		}
	}
	return nil
}
