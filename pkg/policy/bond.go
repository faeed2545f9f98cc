package policy

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// Bonds' defaults and bounds, ms.
const (
	defaultMiimon = 100
	maxMiimon     = 60_000
)

func (r *resolver) bonds(bonds []v1alpha1.Bond) {
	names := map[string]int{}
	member := map[nic.Handle]int{}
	for i, b := range bonds {
		path := fmt.Sprintf("spec.bonds[%d]", i)
		r.bondForm(path, b)
		if first, twice := names[b.Name]; twice && b.Name != "" {
			r.fail(path+".name", "%q is spec.bonds[%d] already: want one entry for each bond", b.Name, first)
		}
		names[b.Name] = i
		spec := nic.BondSpec{
			Name: b.Name, Mode: nic.BondMode(b.Mode), Hash: b.Hash, LACPRate: b.LACPRate, Adopt: b.Adopt,
			MTU: r.mtu(path+".mtu", b.MTU), Members: r.members(path, i, b.PFs, member),
		}
		switch {
		case b.Miimon != nil:
			spec.Miimon = *b.Miimon
		case !b.Adopt:
			spec.Miimon = defaultMiimon
		}
		r.join(path, spec)
		r.spec.Bonds = append(r.spec.Bonds, spec)
	}
}

// bonded is the PFs that are in a bond, or are to be in one.
func bonded(bonds []v1alpha1.Bond, state nic.State) map[nic.Handle]bool {
	out := map[nic.Handle]bool{}
	for _, b := range bonds {
		for _, name := range b.PFs {
			if pf, err := FindPF(state, name); err == nil {
				out[pf.Handle] = true
			}
		}
	}
	for _, b := range state.Bonds {
		for _, h := range b.Members {
			out[h] = true
		}
	}
	return out
}

// bondForm checks what says nothing of PFs.
func (r *resolver) bondForm(path string, b v1alpha1.Bond) {
	o := r.object(path)
	if !isNetdevName(b.Name) {
		o.fail(o.at("name"), "%q is no name for a netdev: want 1 to 15 characters without /, :, %% and space, for example bond0", b.Name)
	}
	if slices.Contains([]string{"lo", "all", "default", none}, b.Name) {
		// lo is in every namespace; the others are no device's, sysctl_dev_name_is_allowed
		// of include/net/ip.h.
		o.fail(o.at("name"), "%q is a name that the kernel keeps for itself: want another, for example bond0", b.Name)
	}
	for i := range r.state.PFs {
		if pf := &r.state.PFs[i]; b.Name != "" && pf.Uplink.Name == b.Name {
			o.fail(o.at("name"), "%q is the uplink of %s: want another name", b.Name, pf.Handle)
		}
	}
	modes := []string{string(nic.ActiveBackup), string(nic.BalanceXOR), string(nic.IEEE8023AD)}
	if b.Mode == "" {
		o.fail(o.at("mode"), "it is left out: want %s", either(modes))
	}
	o.word(o.at("mode"), b.Mode, modes...)
	// xmit_hashtype_tbl of drivers/net/bonding/bond_options.c.
	o.word(o.at("hash"), b.Hash, "layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac")
	o.number(o.at("miimon"), b.Miimon, 1, maxMiimon, " ms (without it a bond never notices a dead port)")
	o.word(o.at("lacpRate"), b.LACPRate, "slow", "fast")
	if b.Adopt {
		o.notAdopted("hash", b.Hash != "")
		o.notAdopted("miimon", b.Miimon != nil)
		o.notAdopted("lacpRate", b.LACPRate != "")
		o.notAdopted("mtu", b.MTU != nil)
		return
	}
	mode := nic.BondMode(b.Mode)
	if b.Hash != "" && mode == nic.ActiveBackup {
		o.fail(o.at("hash"), "%q in mode %s, which sends through one port and hashes nothing: want no hash, or mode %s or %s", b.Hash, mode, nic.BalanceXOR, nic.IEEE8023AD)
	}
	if b.LACPRate != "" && mode != nic.IEEE8023AD && mode != "" {
		o.fail(o.at("lacpRate"), "%q in mode %s, which speaks no LACP: want no lacpRate, or mode %s", b.LACPRate, mode, nic.IEEE8023AD)
	}
}

func (o *object) notAdopted(field string, given bool) {
	if given {
		o.fail(o.at(field), "it is given for a bond that somebody else makes (adopt): want it left out here and set there")
	}
}

// members finds the PFs of bond i; member is which bond each PF is in so far.
func (r *resolver) members(path string, i int, names []string, member map[nic.Handle]int) []nic.Handle {
	var out []nic.Handle
	whole := true
	for j, name := range names {
		at := fmt.Sprintf("%s.pfs[%d]", path, j)
		pf, err := FindPF(r.state, name)
		if err != nil {
			r.fail(at, "%v", err)
			whole = false
			continue
		}
		if other, in := member[pf.Handle]; in {
			r.fail(at, "%q is %s, which spec.bonds[%d].pfs has already: want each PF in one bond, once", name, pf.Handle, other)
			continue
		}
		member[pf.Handle] = i
		out = append(out, pf.Handle)
	}
	if len(names) < 2 {
		r.fail(path+".pfs", "it has %d of them: want the ports of one card, two or more", len(names))
	} else if whole {
		r.oneCard(path, out)
	}
	slices.SortFunc(out, nic.Handle.Compare)
	return out
}

// oneCard refuses ports of different cards: a card takes a bond into hardware
// only if the members are its own ports (mlx5/core/lag/lag.c,
// mlx5_handle_changeupper_event).
func (r *resolver) oneCard(path string, members []nic.Handle) {
	var on []string
	cards := map[int]bool{}
	all := r.state.Cards()
	for _, h := range members {
		for c, card := range all {
			if !slices.ContainsFunc(card.PFs, func(pf nic.PF) bool { return pf.Handle == h }) {
				continue
			}
			cards[c] = true
			serial := "without a serial number"
			if card.Serial != "" {
				serial = "with serial number " + card.Serial
			}
			on = append(on, fmt.Sprintf("%s on the card %s", h, serial))
		}
	}
	if len(cards) > 1 {
		r.fail(path+".pfs", "these are ports of different cards: %s: want ports of one card", strings.Join(on, ", "))
	}
}

// join puts the members into the bond. An entry that the PFs lack is made.
func (r *resolver) join(path string, b nic.BondSpec) {
	for _, h := range b.Members {
		if r.spec.PF(h) == nil {
			r.spec.PFs = append(r.spec.PFs, nic.PFSpec{Handle: h})
		}
		pf := r.spec.PF(h)
		if pf.Bond != nil && *pf.Bond == "" {
			r.fail(path+".pfs", "%s is to be in %s, and in no bond by %s.bond: want one of them", h, b.Name, r.entryOf(h))
		}
		pf.Bond, pf.Named = &b.Name, true
	}
	r.alike(path, b)
}

// alike refuses members for which the document itself wants different things
// that hardware needs to be the same (mlx5_lag_check_prereq: the eswitch modes).
func (r *resolver) alike(path string, b nic.BondSpec) {
	var first *nic.PFSpec
	for _, h := range b.Members {
		pf := r.spec.PF(h)
		if pf.Eswitch == "" {
			continue
		}
		if first != nil && first.Eswitch != pf.Eswitch {
			r.fail(path+".pfs", "%s is to be in %s mode by %s, and %s in %s by %s: want one mode for all ports of a bond",
				first.Handle, first.Eswitch, r.entryOf(first.Handle), h, pf.Eswitch, r.entryOf(h))
		}
		first = pf
	}
}

// entryOf is the path of the entry of spec.pfs that has the PF.
func (r *resolver) entryOf(h nic.Handle) string {
	i, named := r.named[h]
	if !named {
		i = r.selected[h]
	}
	return fmt.Sprintf("spec.pfs[%d]", i)
}
