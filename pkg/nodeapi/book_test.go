package nodeapi

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// A wish that failed on the node: it is said until another is reached, also while
// that waits for its turn; and the generation that the node is as stays the last
// good one.
func TestFailureIsSaidUntilSomethingIsReached(t *testing.T) {
	b := book{steps: newSteps()}
	first := &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Generation: 1}}
	second := first.DeepCopy()
	second.Generation = 2
	third := first.DeepCopy()
	third.Generation = 3
	step := plan.Step{Action: plan.SetVFs{PF: nic.PCI("0000:03:00.0"), To: 4}}
	outlook := Outlook{Plan: plan.Plan{Steps: []plan.Step{step}, Impacts: []plan.Impact{plan.None}}}

	b.foresee(first, outlook, nil)
	b.begin(first)
	b.ended(idOf(first), apply.Result{Outcome: apply.Reached}, nil)
	at := b.status(first, v1alpha1.NodeNICStatus{}, idOf(first))
	if at.LastGoodGeneration != 1 || !meta.IsStatusConditionTrue(at.Conditions, v1alpha1.Ready) || at.Plan.State != v1alpha1.PlanDone {
		t.Fatalf("reached: %+v", at)
	}

	b.foresee(second, outlook, nil)
	at = b.status(second, at, idOf(first))
	if c := meta.FindStatusCondition(at.Conditions, v1alpha1.Ready); c.Reason != v1alpha1.ReasonWaitsForTurn || at.ObservedGeneration != 2 {
		t.Errorf("waiting: %+v", at)
	}
	b.begin(second)
	b.event(apply.Event{Kind: apply.EventPlanned, Plan: outlook.Plan})
	b.event(apply.Event{Kind: apply.EventStarted, Step: step})
	b.event(apply.Event{Kind: apply.EventFailed, Step: step, Err: errors.New("no room")})
	b.ended(idOf(second), apply.Result{Outcome: apply.RolledBack}, errors.New("rolled back: no room"))
	at = b.status(second, at, idOf(second))
	if s := at.Plan.Steps[0]; at.Plan.State != v1alpha1.PlanFailed || s.State != v1alpha1.StepFailed || s.Error != "no room" || at.LastGoodGeneration != 1 {
		t.Errorf("failed: %+v", at)
	}

	b.foresee(third, outlook, nil)
	at = b.status(third, at, idOf(second))
	if c := meta.FindStatusCondition(at.Conditions, v1alpha1.Degraded); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonRolledBack {
		t.Errorf("after a failure, waiting: %+v", c)
	}
	b.begin(third)
	b.ended(idOf(third), apply.Result{Outcome: apply.Reached}, nil)
	at = b.status(third, at, idOf(third))
	if meta.IsStatusConditionTrue(at.Conditions, v1alpha1.Degraded) || at.LastGoodGeneration != 3 {
		t.Errorf("reached after all: %+v", at)
	}
	if again := b.status(third, at, idOf(third)); !same(again, at) {
		t.Error("the same book says something else")
	}
}

// A node of which a VF has gone is as far as it can be, and is not fine.
func TestNodeWithoutAVFIsNotReady(t *testing.T) {
	b := book{steps: newSteps()}
	o := &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Generation: 1}}
	b.see(Seen{AsWanted: true, Gone: "pci/0000:03:00.0 vf 1 went from the bus"}, idOf(o))
	at := b.status(o, v1alpha1.NodeNICStatus{}, idOf(o))
	for kind, want := range map[string]metav1.ConditionStatus{v1alpha1.Ready: metav1.ConditionFalse, v1alpha1.Degraded: metav1.ConditionTrue} {
		c := meta.FindStatusCondition(at.Conditions, kind)
		if c.Status != want || c.Reason != v1alpha1.ReasonDeviceGone || c.Message != "pci/0000:03:00.0 vf 1 went from the bus" {
			t.Errorf("%s: %+v, want %s for DeviceGone", kind, c, want)
		}
	}
	if at.LastGoodGeneration != 1 {
		t.Errorf("last good generation %d: want 1, all that can be done is", at.LastGoodGeneration)
	}
	b.see(Seen{AsWanted: true}, idOf(o))
	at = b.status(o, at, idOf(o))
	if !meta.IsStatusConditionTrue(at.Conditions, v1alpha1.Ready) {
		t.Errorf("with all VFs: %+v", at.Conditions)
	}
}
