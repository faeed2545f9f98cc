package nodeapi

import (
	"context"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/plan"
)

// Engine is what works on the node.
type Engine interface {
	// Current is the document that the node is kept as; one without a UID if none
	// was ever taken up.
	Current() *v1alpha1.NodeNIC

	// Preview is what would be done for a document. An error says why it is refused
	// on this node, and nothing is touched.
	Preview(context.Context, *v1alpha1.NodeNIC) (Outlook, error)

	// Take makes doc what the node is kept as. It returns at once; Agent.Ended is
	// told when the run for it has ended. Drained are devices whose holders are
	// gone, whatever is recorded of them.
	Take(doc *v1alpha1.NodeNIC, drained bool)

	// See looks at the node.
	See(context.Context) (Seen, error)
}

// Outlook is what would be done.
type Outlook struct {
	Plan    plan.Plan
	Holders []v1alpha1.Holder // of devices that it takes
}

// Seen is what a look at the node has shown.
type Seen struct {
	Inventory *v1alpha1.Inventory
	Pools     []v1alpha1.PoolStatus
	Offload   Answer // whether rules run in hardware here
	Pods      []v1alpha1.PodOffload
	Reboot    string // what takes effect with the next boot; "" nothing
	Gone      string // wanted VFs that went from the bus, and why they stay away; "" none

	// AsWanted says that nothing is to be done for the document that the node is
	// kept as. Drift is what is to be done and is only reported; "" nothing.
	AsWanted bool
	Drift    string
}

// Answer is a condition's status ("True", "False", "Unknown") with its reason.
type Answer struct{ Status, Reason, Message string }

// maxSteps is how many steps of a plan a status has.
const maxSteps = 100

// planOf is a plan as a status has it.
func planOf(generation int64, o Outlook) *v1alpha1.Plan {
	out := &v1alpha1.Plan{
		Generation: generation, Impact: o.Plan.Impact().String(), State: v1alpha1.PlanWaiting, Holders: o.Holders,
	}
	steps := newSteps()
	steps.add(o.Plan)
	steps.into(out)
	return out
}

// steps are the steps of a plan as they are ticked off, all of them.
type steps struct {
	all  []v1alpha1.PlanStep
	done int
}

func newSteps() *steps { return &steps{} }

func (s *steps) add(p plan.Plan) {
	for i, step := range p.Steps {
		impact := ""
		if p.Impacts[i] != plan.None {
			impact = p.Impacts[i].String()
		}
		s.all = append(s.all, v1alpha1.PlanStep{Text: step.String(), Impact: impact})
	}
}

// tick notes how far the step of that text is. One that nobody foresaw is added: a
// run goes by what it observes.
func (s *steps) tick(text, state, failure string) {
	at := -1
	for i := range s.all {
		if e := &s.all[i]; e.Text == text && (e.State == "" || e.State == v1alpha1.StepRunning) {
			at = i
			break
		}
	}
	if at < 0 {
		s.all = append(s.all, v1alpha1.PlanStep{Text: text})
		at = len(s.all) - 1
	}
	s.all[at].State, s.all[at].Error = state, clip(failure)
	if state == v1alpha1.StepDone {
		s.done++
	}
}

func (s *steps) into(p *v1alpha1.Plan) {
	p.Steps = nil
	p.Steps = append(p.Steps, s.all[:min(len(s.all), maxSteps)]...)
	p.Progress = progress(s.done, len(s.all))
}

// clip keeps an error within what a status should hold.
func clip(text string) string {
	const most = 1024
	text = strings.TrimSpace(text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
}
