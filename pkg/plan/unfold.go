package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// Plan is all steps from a state to a spec, in order, with the impact of each in
// the state that it will be done in.
type Plan struct {
	Steps   []Step
	Impacts []Impact // of Steps[i]
}

// Impact is the highest of the steps'.
func (p Plan) Impact() Impact {
	out := None
	for _, i := range p.Impacts {
		out = max(out, i)
	}
	return out
}

// String is one line a step, as golden files have it; "" for an empty plan.
func (p Plan) String() string {
	var b strings.Builder
	for i, s := range p.Steps {
		b.WriteString(s.String())
		if p.Impacts[i] != None {
			fmt.Fprintf(&b, " (%s)", p.Impacts[i])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// MarshalJSON writes {"impact", "steps": [{"op", "object", ..., "text", "impact"}]}.
func (p Plan) MarshalJSON() ([]byte, error) {
	type step struct {
		form
		Text   string `json:"text"`
		Impact Impact `json:"impact"`
	}
	out := struct {
		Impact Impact `json:"impact"`
		Steps  []step `json:"steps"`
	}{Impact: p.Impact(), Steps: []step{}}
	for i, s := range p.Steps {
		out.Steps = append(out.Steps, step{s.form(), s.String(), p.Impacts[i]})
	}
	return json.Marshal(out)
}

// Unfold lists the steps from state to spec, which should have gone through
// Complete. It fails when spec names a PF that state does not have, and when the
// steps do not come to an end, which is a fault of the planner.
func Unfold(spec nic.Spec, state nic.State) (Plan, error) {
	var out Plan
	for _, want := range spec.PFs {
		if state.PF(want.Handle) == nil {
			return Plan{}, fmt.Errorf("plan for %s: there is no such PF", want.Handle)
		}
	}
	for _, scope := range Scopes(spec) {
		if err := out.unfold(scope, part(state, scope)); err != nil {
			return Plan{}, err
		}
	}
	return out, nil
}

// part is a copy of what of state a scope can see or change.
func part(state nic.State, scope nic.Spec) nic.State {
	out := nic.State{RDMA: state.RDMA, Bonds: state.Bonds}
	for _, pf := range state.PFs {
		if scope.PF(pf.Handle) != nil {
			out.PFs = append(out.PFs, pf)
		}
	}
	return out.Clone()
}

func (p *Plan) unfold(scope nic.Spec, state nic.State) error {
	limit := Limit(scope, state)
	for n := 0; ; n++ {
		s, more := NextOf(scope, state)
		if !more {
			return nil
		}
		if n == limit {
			return fmt.Errorf("plan for %s: no end after %d steps, the last one: %s", Key(scope), n, s)
		}
		p.Steps = append(p.Steps, s)
		p.Impacts = append(p.Impacts, s.Impact(state))
		s.predict(&state)
	}
}

// Limit is a number of steps that no plan of scope from state reaches. Of a PF:
// its mode twice, VFs twice, autoprobe twice, its settings; of a VF: its driver
// taken twice and given, two addresses, two MTUs, its settings; of an SF the like;
// of a bond: made, removed, its ports out and in.
func Limit(scope nic.Spec, state nic.State) int {
	n := 16
	for _, want := range scope.PFs {
		vfs, sfs := 0, 0
		if pf := state.PF(want.Handle); pf != nil {
			vfs, sfs = len(pf.VFs), len(pf.SFs)
		}
		if want.VFCount != nil {
			vfs = max(vfs, *want.VFCount)
		}
		if want.SFs != nil {
			sfs += len(*want.SFs)
		}
		n += 16 + 2*settings + (8+settings)*(vfs+sfs)
	}
	return n
}

// settings is the number of settings that there are, or more.
const settings = 24
