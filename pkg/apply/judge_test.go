package apply

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/sluice/pkg/nic"
)

// What the laws are judged by: unmet compares fields with what was named, kept
// with what was not. Neither asks package plan.

// unmet lists what spec names and state does not have.
func unmet(spec nic.Spec, state nic.State) (bad []string) {
	for _, want := range spec.PFs {
		pf := state.PF(want.Handle)
		if pf == nil {
			bad = append(bad, want.Handle.String()+" is not there")
			continue
		}
		unmetPF(want, *pf, state.BondOf(want.Handle), func(what string, got, want any) {
			bad = append(bad, fmt.Sprintf("%s: %s is %v, want %v", pf.Handle, what, got, want))
		})
	}
	for _, want := range spec.Bonds {
		bad = append(bad, unmetBond(want, state)...)
	}
	if have := state.RDMA; spec.RDMA != "" && have.Mode != "" && (have.Mode != spec.RDMA && !have.Fixed ||
		have.Mode != spec.RDMA && have.AtBoot != spec.RDMA || have.AtBoot != "" && have.AtBoot != spec.RDMA) {
		bad = append(bad, fmt.Sprintf("RDMA is %+v, want %s", have, spec.RDMA))
	}
	return bad
}

func unmetPF(want nic.PFSpec, pf nic.PF, bond *nic.Bond, not func(string, any, any)) {
	if want.Eswitch != "" && pf.Eswitch != "" && want.Eswitch != pf.Eswitch {
		not("eswitch", pf.Eswitch, want.Eswitch)
	}
	if in := nameOf(bond); want.Bond != nil && *want.Bond != in {
		not("bond", in, *want.Bond)
	}
	for name, value := range want.Settings {
		if bond != nil && (name == nic.LinkMTU || name == nic.AdminLink) {
			continue // the bond's
		}
		unmetSetting(name, value, pf.Settings, pf.Limits, true, not)
	}
	if want.SFs != nil && (pf.Eswitch == nic.Switchdev || len(pf.SFs) > 0) {
		unmetSFs(*want.SFs, pf.SFs, not)
	}
	if want.VFCount != nil && *want.VFCount != len(pf.VFs) {
		not("VF count", len(pf.VFs), *want.VFCount)
		return
	}
	if want.Autoprobe != nil && *want.Autoprobe != pf.Autoprobe {
		not("autoprobe", pf.Autoprobe, *want.Autoprobe)
	}
	for i, w := range want.VFs {
		unmetVF(w, pf, i, func(what string, got, want any) { not(fmt.Sprintf("vf %d %s", i, what), got, want) })
	}
}

func nameOf(b *nic.Bond) string {
	if b == nil {
		return ""
	}
	return b.Name
}

// unmetSetting: a size of offloads over the limit is the limit; a GUID of zeros is
// none, and cannot be wished for.
func unmetSetting(name nic.Setting, want string, have nic.Settings, limits nic.Limits, here bool, not func(string, any, any)) {
	_, netdev := netdevDefaults()[name]
	if netdev && !here || want == "00:00:00:00:00:00:00:00" {
		return
	}
	switch name {
	case nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		if n, _ := strconv.Atoi(want); limits[name] > 0 && n > limits[name] {
			want = strconv.Itoa(limits[name])
		}
	}
	if got := have[name]; got != want {
		not(string(name), got, want)
	}
}

func unmetVF(w nic.VFSpec, pf nic.PF, i int, not func(string, any, any)) {
	if i >= len(pf.VFs) {
		not("VF", "not there", "there")
		return
	}
	v := pf.VFs[i]
	if w.Driver != "" && w.Driver != nic.DriverOf(v.Driver) {
		not("driver", v.Driver, w.Driver)
	}
	// A bound VF of such a driver has an address of its own in the row.
	if w.MAC != nil && *w.MAC != v.MAC && !(w.MAC.IsZero() && v.Driver != "" && follows(pf.Driver)) {
		not("MAC", v.MAC, *w.MAC)
	}
	for name, value := range w.Settings {
		unmetSetting(name, value, v.Settings, v.Limits, v.Netdev.Exists() || !v.Away, not)
	}
	if v.Away {
		return
	}
	imposed := follows(pf.Driver) && !v.MAC.IsZero() && w.MAC != nil && !w.MAC.IsZero()
	if w.LinkMAC != nil && *w.LinkMAC != v.Netdev.MAC && !(imposed && v.Netdev.MAC == v.MAC) {
		not("netdev MAC", v.Netdev.MAC, *w.LinkMAC)
	}
	if w.MTU != 0 && w.MTU != v.Netdev.MTU {
		not("MTU", v.Netdev.MTU, w.MTU)
	}
	if w.RepMTU != 0 && w.RepMTU != v.Rep.Netdev.MTU {
		not("representor MTU", v.Rep.Netdev.MTU, w.RepMTU)
	}
}

func unmetSFs(want []nic.SFSpec, have []nic.SF, not func(string, any, any)) {
	numbers := func() (w, h []int) {
		for _, f := range want {
			w = append(w, f.Num)
		}
		for _, f := range have {
			h = append(h, f.Num)
		}
		return w, h
	}
	if w, h := numbers(); !slices.Equal(w, h) {
		not("SFs", h, w)
		return
	}
	for i, w := range want {
		f := have[i]
		say := func(what string, got, want any) { not(fmt.Sprintf("sf %d %s", w.Num, what), got, want) }
		if f.Active == w.Inactive {
			say("active", f.Active, !w.Inactive)
		}
		if w.MAC != nil && *w.MAC != f.MAC {
			say("MAC", f.MAC, *w.MAC)
		}
		if w.RepMTU != 0 && w.RepMTU != f.Rep.MTU {
			say("representor MTU", f.Rep.MTU, w.RepMTU)
		}
		if w.MTU != 0 && !f.Away && w.MTU != f.Netdev.MTU {
			say("MTU", f.Netdev.MTU, w.MTU)
		}
		for name, value := range w.Settings {
			unmetSetting(name, value, f.Settings, f.Limits, !f.Away, say)
		}
	}
}

func unmetBond(want nic.BondSpec, state nic.State) (bad []string) {
	not := func(what string, got, want any) {
		bad = append(bad, fmt.Sprintf("bond: %s is %v, want %v", what, got, want))
	}
	have := state.Bond(want.Name)
	if want.Absent {
		if have != nil && have.Ours && len(have.Members)+len(have.Others) == 0 {
			not(want.Name, "there", "not there")
		}
		return bad
	}
	if have == nil {
		not(want.Name, "not there", "there")
		return bad
	}
	if want.Mode != "" && want.Mode != have.Mode {
		not("mode", have.Mode, want.Mode)
	}
	if want.Hash != "" && want.Hash != have.Hash {
		not("hash", have.Hash, want.Hash)
	}
	if want.Miimon != 0 && want.Miimon != have.Miimon {
		not("miimon", have.Miimon, want.Miimon)
	}
	if want.MTU != 0 && want.MTU != have.MTU {
		not("MTU", have.MTU, want.MTU)
	}
	for _, h := range want.Members {
		if !slices.Contains(have.Members, h) {
			not("members", have.Members, want.Members)
		}
		if pf := state.PF(h); pf != nil && hasLAG(pf.Driver) && !want.Software && pf.LAG != nic.LAGActive {
			not("LAG of "+h.String(), pf.LAG, nic.LAGActive)
		}
	}
	return bad
}

// kept lists what spec does not name and is not as it was. To the letter means
// that what has no need to be touched is the very same, down to its ifindex; else
// it may have gone and come back.
func kept(spec nic.Spec, before, after nic.State, toTheLetter bool) (bad []string) {
	for _, old := range before.PFs {
		k := keeper{
			old: old, now: *after.PF(old.Handle), want: spec.PF(old.Handle), letter: toTheLetter,
			was: before.BondOf(old.Handle), is: after.BondOf(old.Handle),
			say: func(what string, got, want any) {
				bad = append(bad, fmt.Sprintf("%s: %s was %v and is %v", old.Handle, what, want, got))
			},
		}
		if k.want == nil {
			k.unnamed()
			bad = append(bad, unmet(onlyPF(nic.Freeze(before, old.Handle)), after)...)
			continue
		}
		k.lag = lagged(spec.BondOf(old.Handle), before) || shaken(k.was, spec, before, after)
		k.port()
		k.vfs()
		k.sfs()
	}
	if !toTheLetter {
		before, after = anew(before), anew(after)
	}
	bad = append(bad, keptBonds(spec, before, after)...)
	if spec.RDMA == "" && before.RDMA != after.RDMA {
		bad = append(bad, fmt.Sprintf("RDMA was %+v and is %+v", before.RDMA, after.RDMA))
	}
	return bad
}

// anew forgets the ifindexes of bonds, which may have been made anew.
func anew(s nic.State) nic.State {
	s.Bonds = slices.Clone(s.Bonds)
	for i := range s.Bonds {
		s.Bonds[i].Ifindex = 0
	}
	return s
}

// onlyPF leaves the bonds out, of which other members may have been named.
func onlyPF(s nic.Spec) nic.Spec { s.Bonds = nil; return s }

// lagged: the wanted bond was not all there, so that VFs had to be unbound for it.
func lagged(want *nic.BondSpec, before nic.State) bool {
	return want != nil && (len(unmetBond(*want, before)) > 0)
}

// alike is equality in which nothing is nothing, quick where it is given. A carrier
// goes with that of others.
func alike[T any](a, b T) bool {
	return reflect.DeepEqual(a, b) || cmp.Equal(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(nic.Netdev{}, "Carrier"))
}

// shaken: hardware aggregated the ports of the bond, and does it anew because of
// the mode of one.
func shaken(b *nic.Bond, spec nic.Spec, before, after nic.State) bool {
	return b != nil && slices.ContainsFunc(b.Members, func(h nic.Handle) bool {
		return before.PF(h).LAG == nic.LAGActive && disturbed(spec.PF(h), *before.PF(h), *after.PF(h))
	})
}

type keeper struct {
	old, now nic.PF
	want     *nic.PFSpec
	was, is  *nic.Bond
	letter   bool
	lag      bool
	say      func(what string, got, want any)
}

// unnamed: the PF is not touched at all. Hardware may aggregate less, or more, when
// the other port of its bond changes, and has another RDMA device then.
func (k *keeper) unnamed() {
	old, now := k.old, k.now
	if k.was != nil {
		now.LAG, now.RDMA = old.LAG, old.RDMA
	}
	if k.letter && !alike(old, now) {
		k.say("not named", cmp.Diff(old, now), "")
	}
}

func (k *keeper) disturbed() bool { return k.lag || disturbed(k.want, k.old, k.now) }

// disturbed: something was wanted that takes the drivers from all VFs.
func disturbed(want *nic.PFSpec, old, now nic.PF) bool {
	changes := func(name nic.Setting) bool {
		value, ok := want.Settings[name]
		return ok && value != old.Settings[name]
	}
	return want != nil && (old.Eswitch != now.Eswitch || changes(nic.SteeringMode) && old.Eswitch == nic.Switchdev || changes(nic.RoCE))
}

func (k *keeper) port() {
	old, now, want := k.old, k.now, k.want
	if want.Eswitch == "" && now.Eswitch != old.Eswitch {
		k.say("eswitch", now.Eswitch, old.Eswitch)
	}
	if want.Autoprobe == nil && now.Autoprobe != old.Autoprobe {
		k.say("autoprobe", now.Autoprobe, old.Autoprobe)
	}
	bondWished := want.Bond != nil || k.lag || k.is != nil && (k.was == nil || k.is.MTU != k.was.MTU)
	if want.Bond == nil && nameOf(k.was) != nameOf(k.is) && !bondWished {
		k.say("bond", nameOf(k.is), nameOf(k.was))
	}
	for name, value := range old.Settings {
		others := bondWished && (name == nic.LinkMTU || name == nic.AdminLink) || // the bond's
			old.Eswitch != now.Eswitch && (name == nic.Channels || name == nic.RxRing || name == nic.TxRing) // the mode's
		if _, named := want.Settings[name]; !named && !others && now.Settings[name] != value {
			k.say(string(name), now.Settings[name], value)
		}
	}
}

func (k *keeper) vfs() {
	old, now, want := k.old, k.now, k.want
	if want.VFCount == nil && len(now.VFs) != len(old.VFs) {
		k.say("VF count", len(now.VFs), len(old.VFs))
		return
	}
	for i := range now.VFs {
		say := func(what string, got, want any) { k.say(fmt.Sprintf("vf %d %s", i, what), got, want) }
		if len(now.VFs) == len(old.VFs) {
			k.vf(i, say)
		} else if w := want.VF(i); w.Driver == "" && (nic.DriverOf(now.VFs[i].Driver) == nic.DriverKernel) != now.Autoprobe {
			say("driver of a new VF with autoprobe "+fmt.Sprint(now.Autoprobe), now.VFs[i].Driver, "the kernel's way")
		}
	}
}

func (k *keeper) vf(i int, not func(string, any, any)) {
	w, old, now := k.want.VF(i), k.old.VFs[i], k.now.VFs[i]
	driver := k.now.Driver
	if old.InUse() != "" {
		old.Rep, now.Rep = nic.Representor{}, nic.Representor{} // its MTU may be wished for
		if k.letter && !alike(old, now) {
			not("in use", cmp.Diff(old, now), "")
		}
		return
	}
	if k.letter && !k.disturbed() && w.IsZero() && !alike(old, now) {
		not("not named", cmp.Diff(old, now), "")
	}
	if w.Driver == "" && now.Driver != old.Driver {
		not("driver", now.Driver, old.Driver)
	}
	took := old.MAC.IsZero() && now.Driver != "" && follows(driver) // by its driver
	if w.MAC == nil && w.LinkMAC == nil && now.MAC != old.MAC && !took {
		not("MAC", now.MAC, old.MAC)
	}
	if k.old.Eswitch != k.now.Eswitch && !ratesOver(driver) {
		old.Settings = maps.Clone(old.Settings)
		delete(old.Settings, nic.MinRate)
		delete(old.Settings, nic.MaxRate)
	}
	keptSettings(w.Settings, old.Settings, now.Settings, not)
	if !old.Netdev.Exists() || !now.Netdev.Exists() {
		return
	}
	imposed := follows(driver) && now.Netdev.MAC == now.MAC
	if w.LinkMAC == nil && (w.MAC == nil || *w.MAC == old.MAC) && now.Netdev.MAC != old.Netdev.MAC && !imposed {
		not("netdev MAC", now.Netdev.MAC, old.Netdev.MAC)
	}
	if w.MTU == 0 && now.Netdev.MTU != old.Netdev.MTU {
		not("MTU", now.Netdev.MTU, old.Netdev.MTU)
	}
	if w.RepMTU == 0 && k.old.Eswitch == k.now.Eswitch && now.Rep.Netdev.MTU != old.Rep.Netdev.MTU {
		not("representor MTU", now.Rep.Netdev.MTU, old.Rep.Netdev.MTU)
	}
}

// keptSettings are those that there were, and that there are. A GUID that was none
// is nothing to keep.
func keptSettings(want, old, now nic.Settings, not func(string, any, any)) {
	for name, value := range old {
		_, named := want[name]
		if got, ok := now[name]; ok && !named && got != value && value != "00:00:00:00:00:00:00:00" {
			not(string(name), got, value)
		}
	}
}

func (k *keeper) sfs() {
	if k.now.Eswitch != nic.Switchdev || k.old.Eswitch != nic.Switchdev {
		return
	}
	if k.want.SFs != nil {
		k.sfsNamed()
		return
	}
	if k.letter && !k.disturbed() && !alike(k.old.SFs, k.now.SFs) {
		k.say("SFs", cmp.Diff(k.old.SFs, k.now.SFs), "")
	}
	unmetSFs(frozenSFs(k.old.SFs), k.now.SFs, k.say)
}

// sfsNamed: of SFs that were there and that are named, what is not said of them.
func (k *keeper) sfsNamed() {
	for _, w := range *k.want.SFs {
		old, now := k.old.SF(w.Num), k.now.SF(w.Num)
		if old == nil || now == nil {
			continue
		}
		say := func(what string, got, want any) { k.say(fmt.Sprintf("sf %d %s", w.Num, what), got, want) }
		if w.MAC == nil && old.MAC != now.MAC {
			say("MAC", now.MAC, old.MAC)
		}
		if w.RepMTU == 0 && old.Rep.MTU != now.Rep.MTU {
			say("representor MTU", now.Rep.MTU, old.Rep.MTU)
		}
		if w.MTU == 0 && old.Netdev.Exists() && now.Netdev.Exists() && old.Netdev.MTU != now.Netdev.MTU {
			say("MTU", now.Netdev.MTU, old.Netdev.MTU)
		}
		keptSettings(w.Settings, old.Settings, now.Settings, say)
	}
}

func frozenSFs(have []nic.SF) []nic.SFSpec {
	out := make([]nic.SFSpec, len(have))
	for i, f := range have {
		out[i] = nic.SFSpec{Num: f.Num, MTU: f.Netdev.MTU, RepMTU: f.Rep.MTU, Settings: f.Settings, Inactive: !f.Active}
		if !f.MAC.IsZero() {
			out[i].MAC = &f.MAC
		}
	}
	return out
}

// keptBonds: a bond that nobody asked about is as it was; one that all its ports
// have left, if it was ours, has gone. What others make is theirs.
func keptBonds(spec nic.Spec, before, after nic.State) (bad []string) {
	for _, old := range before.Bonds {
		if slices.ContainsFunc(spec.Bonds, func(w nic.BondSpec) bool { return w.Name == old.Name }) {
			continue
		}
		stay := slices.DeleteFunc(slices.Clone(old.Members), func(h nic.Handle) bool {
			w := spec.PF(h)
			return w != nil && (w.Bond != nil && *w.Bond != old.Name || spec.BondOf(h) != nil)
		})
		now := after.Bond(old.Name)
		switch {
		case now == nil && old.Ours && len(stay)+len(old.Others) == 0:
		case now == nil:
			bad = append(bad, fmt.Sprintf("bond %s was there and is not", old.Name))
		case len(old.Members) > 0 && len(stay)+len(old.Others) == 0 && old.Ours:
			bad = append(bad, fmt.Sprintf("bond %s of ours is left behind without a member", old.Name))
		default:
			old.Members = stay
			old.Active = now.Active // which changes by itself
			if !alike(old, *now) {
				bad = append(bad, fmt.Sprintf("bond %s is not named and is not as it was:\n%s", old.Name, cmp.Diff(old, *now)))
			}
		}
	}
	for _, now := range after.Bonds {
		wanted := slices.ContainsFunc(spec.Bonds, func(w nic.BondSpec) bool { return w.Name == now.Name && !w.Absent })
		if !wanted && now.Ours && before.Bond(now.Name) == nil {
			bad = append(bad, fmt.Sprintf("bond %s was not there and is", now.Name))
		}
	}
	return bad
}
