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
		pf := state.PF(want.Handle)
		if pf == nil {
			return Plan{}, fmt.Errorf("plan for %s: there is no such PF", want.Handle)
		}
		if err := out.unfold(want, clonePF(*pf)); err != nil {
			return Plan{}, err
		}
	}
	return out, nil
}

func (p *Plan) unfold(want nic.PFSpec, pf nic.PF) error {
	g := goalOf(want, pf)
	limit := Limit(max(len(pf.VFs), g.count))
	for n := 0; ; n++ {
		s, more := NextOf(want, pf)
		if !more {
			return nil
		}
		if n == limit {
			return fmt.Errorf("plan for %s: no end after %d steps, the last one: %s", want.Handle, n, s)
		}
		p.Steps = append(p.Steps, s)
		p.Impacts = append(p.Impacts, s.impact(pf))
		s.predict(&pf)
	}
}

// Limit is a number of steps that no plan of one PF with so many VFs reaches:
// five for the PF, and for each VF the driver taken twice (before the mode
// changes and for another address), one given, two addresses, two MTUs.
func Limit(vfs int) int { return 8 + 8*vfs }

func clonePF(pf nic.PF) nic.PF {
	return nic.State{PFs: []nic.PF{pf}}.Clone().PFs[0]
}
