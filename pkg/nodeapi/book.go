package nodeapi

import (
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/plan"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func progress(done, of int) string { return fmt.Sprintf("%d/%d", done, of) }

// book is what the agent knows of the node and its wishes.
type book struct {
	seen Seen

	previewed id     // the wish that plan or refused is about
	refused   string // why it cannot be done here

	plan    *v1alpha1.Plan
	steps   *steps
	planned bool // the run that is under way has said its steps

	running bool
	good    id     // the newest wish that was reached
	failed  id     // the wish whose last run has failed
	failure string // how
	outcome string // of the last run: v1alpha1.Plan...
	reason  string // v1alpha1.Reason...
}

// see notes what a look has shown, with what the node is kept as.
func (b *book) see(seen Seen, current id) {
	b.seen = seen
	b.previewed = id{} // what was foreseen was of another node
	if seen.AsWanted && !b.running && current.uid != "" {
		b.good, b.failed, b.failure, b.reason = current, id{}, "", ""
	}
}

// foresee notes what would be done for a wish.
func (b *book) foresee(o *v1alpha1.NodeNIC, outlook Outlook, err error) {
	b.previewed, b.refused = idOf(o), ""
	if err != nil {
		b.refused = clip(err.Error())
		return
	}
	b.plan = planOf(o.Generation, outlook)
}

// begin notes that a wish is taken up.
func (b *book) begin(o *v1alpha1.NodeNIC) {
	b.running, b.planned = true, false
	b.steps = newSteps()
	b.plan = &v1alpha1.Plan{
		Generation: o.Generation, Impact: b.plan.Impact, State: v1alpha1.PlanRunning, Progress: b.plan.Progress, Steps: b.plan.Steps,
	}
}

// event notes what goes on in a run, be it for a wish or to mend something.
func (b *book) event(e apply.Event) {
	if !b.planned && !b.running { // a run that nobody has announced mends
		b.running = true
		b.steps = newSteps()
		b.plan = &v1alpha1.Plan{State: v1alpha1.PlanRunning, Impact: plan.None.String()}
	}
	b.planned = true
	switch e.Kind {
	case apply.EventPlanned:
		b.steps.add(e.Plan)
		b.plan.Impact = worst(b.plan.Impact, e.Plan.Impact())
	case apply.EventStarted:
		b.steps.tick(e.Step.String(), v1alpha1.StepRunning, "")
	case apply.EventDone:
		b.steps.tick(e.Step.String(), v1alpha1.StepDone, "")
	case apply.EventFailed:
		b.steps.tick(e.Step.String(), v1alpha1.StepFailed, e.Err.Error())
	}
	b.steps.into(b.plan)
}

func worst(have string, other plan.Impact) string {
	var i plan.Impact
	if err := i.UnmarshalText([]byte(have)); err != nil {
		return other.String()
	}
	return max(i, other).String()
}

// ended notes how a run for a wish has ended.
func (b *book) ended(wish id, result apply.Result, err error) {
	state := v1alpha1.PlanDone
	switch {
	case err == nil:
		b.good, b.failed, b.failure, b.reason = wish, id{}, "", ""
	case result.Outcome == apply.Failed:
		b.failed, b.failure, b.reason, state = wish, clip(err.Error()), v1alpha1.ReasonBroken, v1alpha1.PlanBroken
	default:
		b.failed, b.failure, b.reason, state = wish, clip(err.Error()), v1alpha1.ReasonRolledBack, v1alpha1.PlanFailed
		if refused := (*apply.RefusedError)(nil); errors.As(err, &refused) {
			b.reason = v1alpha1.ReasonRefused
		}
	}
	if b.plan != nil && (b.running || b.planned) {
		b.plan.State, b.plan.Holders = state, nil
	}
	b.running, b.planned, b.outcome = false, false, state
}

// status is what the object should say, which said before what is given.
func (b *book) status(o *v1alpha1.NodeNIC, before v1alpha1.NodeNICStatus, current id) v1alpha1.NodeNICStatus {
	out := v1alpha1.NodeNICStatus{
		ObservedGeneration: before.ObservedGeneration,
		LastGoodGeneration: before.LastGoodGeneration,
		Inventory:          b.seen.Inventory,
		Pools:              b.seen.Pools,
		Pods:               b.seen.Pods,
		Plan:               before.Plan,
		Conditions:         before.DeepCopy().Conditions,
	}
	switch {
	case b.plan != nil:
		out.Plan = b.plan.DeepCopy()
	case out.Plan != nil && out.Plan.State == v1alpha1.PlanRunning && b.outcome != "":
		// An agent before this one began it, and this one has seen it end.
		out.Plan = out.Plan.DeepCopy()
		out.Plan.State = b.outcome
	}
	if b.good.uid == o.UID {
		out.LastGoodGeneration = b.good.generation
	} else if out.LastGoodGeneration > o.Generation {
		out.LastGoodGeneration = 0
	}
	if b.previewed == idOf(o) || current == idOf(o) {
		out.ObservedGeneration = o.Generation
	}
	for _, c := range b.conditions(o, out, current) {
		c.ObservedGeneration = out.ObservedGeneration
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out
}

func condition(kind string, holds bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: clip(message)}
}

func (b *book) conditions(o *v1alpha1.NodeNIC, s v1alpha1.NodeNICStatus, current id) []metav1.Condition {
	wish := idOf(o)
	waits := s.Plan != nil && s.Plan.State == v1alpha1.PlanWaiting && s.Plan.Generation == o.Generation && b.refused == ""
	drain := waits && s.Plan.Impact == plan.Drain.String()

	bad, why := "", ""
	switch {
	case b.previewed == wish && b.refused != "":
		bad, why = v1alpha1.ReasonRefused, b.refused
	case b.failure != "": // also while the next wish waits: the node may be broken
		bad, why = b.reason, b.failure
	case b.seen.Gone != "":
		bad, why = v1alpha1.ReasonDeviceGone, b.seen.Gone
	}
	progressing, doing := v1alpha1.ReasonIdle, ""
	switch {
	case b.running:
		progressing, doing = v1alpha1.ReasonChanging, "steps "+s.Plan.Progress
	case drain:
		progressing, doing = v1alpha1.ReasonWaitsForPods, holders(s.Plan.Holders)
	case waits:
		progressing, doing = v1alpha1.ReasonWaitsForTurn, fmt.Sprintf("%d steps, impact %s", len(s.Plan.Steps), s.Plan.Impact)
	}
	ready, said := v1alpha1.ReasonAsWanted, ""
	switch {
	case progressing != v1alpha1.ReasonIdle:
		ready, said = progressing, doing
	case bad != "":
		ready, said = bad, why
	case b.seen.Drift != "":
		ready, said = v1alpha1.ReasonDrifted, b.seen.Drift
	case current != wish || s.LastGoodGeneration != o.Generation:
		ready, said = v1alpha1.ReasonUnknown, "the agent has yet to look at what is wanted"
	}
	out := []metav1.Condition{
		condition(v1alpha1.Ready, ready == v1alpha1.ReasonAsWanted, ready, said),
		condition(v1alpha1.Progressing, progressing != v1alpha1.ReasonIdle, progressing, doing),
		condition(v1alpha1.Degraded, bad != "", or(bad, v1alpha1.ReasonAsWanted), why),
		condition(v1alpha1.DrainRequired, drain, or(when(drain, v1alpha1.ReasonWaitsForPods), v1alpha1.ReasonIdle), when(drain, doing)),
		condition(v1alpha1.RebootRequired, b.seen.Reboot != "", or(when(b.seen.Reboot != "", v1alpha1.ReasonAtBoot), v1alpha1.ReasonIdle), b.seen.Reboot),
	}
	if a := b.seen.Offload; a.Status != "" {
		out = append(out, metav1.Condition{Type: v1alpha1.OffloadCapable, Status: metav1.ConditionStatus(a.Status), Reason: a.Reason, Message: clip(a.Message)})
	}
	return out
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func when(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

// holders says who has what a plan takes.
func holders(all []v1alpha1.Holder) string {
	const few = 5
	text := ""
	for i, h := range all {
		if i == few {
			return fmt.Sprintf("%s and %d more", text, len(all)-few)
		}
		who := h.Pod
		if who == "" {
			who = h.Why
		}
		if i > 0 {
			text += ", "
		}
		text += h.Device + ": " + who
	}
	return text
}

// own is what of a status is the agent's: conditions of other types are not.
func own(s v1alpha1.NodeNICStatus) v1alpha1.NodeNICStatus {
	out := *s.DeepCopy()
	out.Conditions = nil
	for _, c := range s.Conditions {
		switch c.Type {
		case v1alpha1.Ready, v1alpha1.Progressing, v1alpha1.Degraded, v1alpha1.RebootRequired, v1alpha1.DrainRequired, v1alpha1.OffloadCapable:
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

func same(a, b v1alpha1.NodeNICStatus) bool { return equality.Semantic.DeepEqual(a, b) }
