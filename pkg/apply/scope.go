package apply

import (
	"bytes"
	"encoding/json"
	"slices"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// scope is what stands and falls together in a run (plan.Scopes).
type scope struct {
	key  nic.Handle
	want nic.Spec

	// was is what an interrupted run had begun to change of it.
	was   nic.Spec
	clear bool // go back to what was before first: that run wanted something else
	back  bool // want is what was before, as the scope has failed already
	left  bool // the spec names nothing of it
}

// backTo is the way back: of all that this run wants and the interrupted one did.
func (s scope) backTo(before nic.State) nic.Spec { return plan.Back(before, union(s.want, s.was)) }

// union is a and what b names beyond it.
func union(a, b nic.Spec) nic.Spec {
	out := a
	out.PFs, out.Bonds = slices.Clone(a.PFs), slices.Clone(a.Bonds)
	for _, w := range b.PFs {
		if a.PF(w.Handle) == nil {
			out.PFs = append(out.PFs, w)
		}
	}
	for _, w := range b.Bonds {
		if !slices.ContainsFunc(a.Bonds, func(o nic.BondSpec) bool { return o.Name == w.Name }) {
			out.Bonds = append(out.Bonds, w)
		}
	}
	if out.RDMA == "" {
		out.RDMA, out.RDMAAtBoot = b.RDMA, b.RDMAAtBoot
	}
	return out
}

// meet says whether two scopes have something in common.
func meet(a, b nic.Spec) bool {
	return a.RDMA != "" && b.RDMA != "" || slices.ContainsFunc(a.PFs, func(w nic.PFSpec) bool { return b.PF(w.Handle) != nil })
}

// scopesOf lists the scopes of spec. Those of an interrupted run are taken over
// by the ones that they have something in common with, which makes one of several
// if the bonds are others now; what spec does not name of them is to be taken
// back. PFs that are gone are gone.
func scopesOf(kind Kind, spec nic.Spec, before nic.State, open *Entry) []scope {
	var out []scope
	for _, s := range plan.Scopes(spec) {
		out = append(out, scope{key: plan.Key(s), want: s})
	}
	if open == nil {
		return out
	}
	for _, was := range plan.Scopes(there(open.Spec, before)) {
		out = takenOver(out, was)
	}
	for i := range out {
		out[i].takeOver(kind, before, open)
	}
	return out
}

// there is spec without PFs that are gone.
func there(spec nic.Spec, state nic.State) nic.Spec {
	spec.PFs = slices.DeleteFunc(slices.Clone(spec.PFs), func(w nic.PFSpec) bool { return state.PF(w.Handle) == nil })
	return spec
}

// takenOver gives was to the scopes that it meets, all in one.
func takenOver(scopes []scope, was nic.Spec) []scope {
	var out []scope
	into := -1
	for _, s := range scopes {
		switch {
		case !meet(s.want, was) && !meet(s.was, was):
			out = append(out, s)
		case into < 0:
			into = len(out)
			s.was = union(s.was, was)
			out = append(out, s)
		default:
			m := &out[into]
			m.want, m.was = union(m.want, s.want), union(m.was, s.was)
		}
	}
	if into < 0 {
		out = append(out, scope{was: was, left: true})
	}
	return out
}

// takeOver says how to go on with what an interrupted run had begun. Straight on
// is right only on the way that it was on: from its states a plan for something
// else would not know what has been disturbed.
func (s *scope) takeOver(kind Kind, before nic.State, open *Entry) {
	if len(s.was.PFs) == 0 && s.was.RDMA == "" {
		return
	}
	last := map[Outcome]bool{}
	for _, was := range plan.Scopes(s.was) {
		last[open.last(plan.Key(was))] = true
	}
	failed := last[TurningBack] || last[RolledBack] || last[Failed]
	switch {
	case s.left:
		s.want, s.back = plan.Back(before, s.was), true
	case kind == KindResume && failed:
		s.want, s.back = plan.Back(before, s.was), true
	default:
		asked := s.want
		s.want = union(asked, restOf(plan.Back(before, s.was), asked))
		s.clear = failed || last[Clearing] || open.Damage != "" || !same(s.want, s.was)
	}
	s.key = plan.Key(s.want)
}

// restOf is what of back is of PFs that asked does not name, and the bonds that are
// to go: who takes this run over in turn has to know of them.
func restOf(back, asked nic.Spec) nic.Spec {
	var out nic.Spec
	for _, w := range back.PFs {
		if asked.PF(w.Handle) == nil {
			out.PFs = append(out.PFs, w)
		}
	}
	for _, b := range back.Bonds {
		if b.Absent || slices.ContainsFunc(b.Members, func(h nic.Handle) bool { return out.PF(h) != nil }) {
			out.Bonds = append(out.Bonds, b)
		}
	}
	return out
}

// same compares as the journal does: what is written alike is alike.
func same(a, b nic.Spec) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// foresee unfolds the steps of a scope.
func (s *scope) foresee(before, now nic.State) (plan.Plan, error) {
	if !s.clear {
		return plan.Unfold(s.want, now)
	}
	out, err := plan.Unfold(s.backTo(before), now)
	if err != nil {
		return out, err
	}
	rest, err := plan.Unfold(s.want, before)
	out.Steps = append(out.Steps, rest.Steps...)
	out.Impacts = append(out.Impacts, rest.Impacts...)
	return out, err
}

// beginning is now, with what an interrupted run named as it was before that. Who
// has VFs and SFs is asked of now.
func beginning(now nic.State, open *Entry) nic.State {
	out := now.Clone()
	if open == nil {
		return out
	}
	old := open.Before.Clone()
	for i, pf := range out.PFs {
		was := old.PF(pf.Handle)
		if was == nil {
			continue
		}
		inUseAs(was, pf)
		out.PFs[i] = *was
	}
	if open.Spec.RDMA != "" {
		fixed := out.RDMA.Fixed
		out.RDMA = old.RDMA
		out.RDMA.Fixed = fixed
	}
	// A bond may have lost all that made it one of the run's.
	out.Bonds = slices.DeleteFunc(out.Bonds, func(b nic.Bond) bool { return concerns(b, open.Spec) || old.Bond(b.Name) != nil })
	out.Bonds = append(out.Bonds, old.Bonds...)
	slices.SortFunc(out.Bonds, func(a, b nic.Bond) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out
}

func inUseAs(was *nic.PF, now nic.PF) {
	for v := range was.VFs {
		was.VFs[v].Owner, was.VFs[v].Away = "", false
		if v < len(now.VFs) {
			was.VFs[v].Owner, was.VFs[v].Away = now.VFs[v].Owner, now.VFs[v].Away
		}
	}
	for f := range was.SFs {
		sf := &was.SFs[f]
		sf.Owner, sf.Away = "", false
		if n := now.SF(sf.Num); n != nil {
			sf.Owner, sf.Away = n.Owner, n.Away
		}
	}
}

// only is what of state spec names or may change.
func only(state nic.State, spec nic.Spec) nic.State {
	var out nic.State
	for _, pf := range state.PFs {
		if spec.PF(pf.Handle) != nil {
			out.PFs = append(out.PFs, pf)
		}
	}
	for _, b := range state.Bonds {
		if concerns(b, spec) {
			out.Bonds = append(out.Bonds, b)
		}
	}
	out.RDMA = state.RDMA
	return out
}

// concerns: spec names the bond or one of its members.
func concerns(b nic.Bond, spec nic.Spec) bool {
	return slices.ContainsFunc(spec.Bonds, func(w nic.BondSpec) bool { return w.Name == b.Name }) ||
		slices.ContainsFunc(b.Members, func(h nic.Handle) bool { return spec.PF(h) != nil })
}
