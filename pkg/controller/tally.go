package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/fleet"
)

// tallyEvery is how often at most.
const tallyEvery = time.Second

// listed is how many nodes and conflicts a policy's status has.
const listed = 20

func (f *theFleet) addTally(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("tally").
		Watches(&v1alpha1.NICPolicy{}, handler.EnqueueRequestsFromMapFunc(one)).
		Watches(&v1alpha1.NodeNIC{}, handler.EnqueueRequestsFromMapFunc(one)).
		WatchesRawSource(source.TypedChannel(f.tallyAgain, handler.TypedEnqueueRequestsFromMapFunc(oneOf))).
		Complete(f.meters.loop("tally", f.tally))
}

// tally says on each policy what has become of it.
func (f *theFleet) tally(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	// Soon after the first news, and then once a second: while 1,000 nodes change
	// there is always more.
	time.Sleep(max(calm, time.Until(f.tallied.Add(tallyEvery))))
	f.tallied = time.Now()
	policies, err := f.policies(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, _, err := f.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	f.mu.Lock()
	wishes := make(map[string]wish, len(f.wishes))
	for k, v := range f.wishes {
		wishes[k] = v
	}
	f.mu.Unlock()
	turns := fleet.Turns(policies, nodes)
	defer func() { f.meters.fleet.tallied(policies, nodes) }()
	for i := range policies {
		p := &policies[i]
		now := count(p, nodes, wishes, turns)
		if equality.Semantic.DeepEqual(now, p.Status) {
			continue
		}
		f.tellPolicy(p, now.Conditions)
		if err := f.applyStatus(ctx, v1alpha1.KindNICPolicy, p.Name, now, FieldManager); err != nil {
			return reconcile.Result{}, fmt.Errorf("status of policy %s: %w", p.Name, err)
		}
		p.Status = now
	}
	return reconcile.Result{}, nil
}

// tellPolicy makes events of what is new about a policy.
func (f *theFleet) tellPolicy(p *v1alpha1.NICPolicy, now []metav1.Condition) {
	for _, c := range now {
		old := meta.FindStatusCondition(p.Status.Conditions, c.Type)
		bad := c.Type == v1alpha1.Conflicted && c.Status == metav1.ConditionTrue || c.Type == v1alpha1.Valid && c.Status == metav1.ConditionFalse ||
			c.Reason == v1alpha1.ReasonHeldUp
		was := old != nil && old.Status == c.Status && old.Reason == c.Reason
		good := c.Type == v1alpha1.Ready && c.Status == metav1.ConditionTrue || old != nil && (c.Type == v1alpha1.Conflicted || c.Type == v1alpha1.Valid)
		switch {
		case was || c.Type == v1alpha1.Ready && bad:
		case bad:
			f.events.Eventf(p, nil, corev1.EventTypeWarning, c.Reason, c.Type, "%s", clip(c.Message))
		case good:
			f.events.Eventf(p, nil, corev1.EventTypeNormal, c.Reason, c.Type, "%s is %s: %s", c.Type, c.Status, clip(c.Message))
		}
	}
}

// count is the status of a policy.
func count(p *v1alpha1.NICPolicy, nodes []fleet.Node, wishes map[string]wish, turns map[string]fleet.Turn) v1alpha1.NICPolicyStatus {
	out := v1alpha1.NICPolicyStatus{ObservedGeneration: p.Generation, Conditions: p.DeepCopy().Status.Conditions}
	conflicts := map[fleet.Conflict]int32{}
	var notReady []v1alpha1.PolicyNode
	invalid := ""
	chosen, err := fleet.Chosen(p, nodes)
	if err != nil {
		invalid = err.Error()
	}
	for _, n := range chosen {
		out.Nodes++
		w := wishes[n.Name]
		for _, c := range w.Conflicts {
			if c.A == p.Name || c.B == p.Name {
				conflicts[c]++
			}
		}
		why := state(n, w)
		if why == nil {
			out.ReadyNodes++
			continue
		}
		if why.Reason == v1alpha1.ReasonRefused && mine(p.Name, w) != "" {
			invalid = cmp.Or(invalid, mine(p.Name, w))
		}
		notReady = append(notReady, *why)
	}
	slices.SortFunc(notReady, func(a, b v1alpha1.PolicyNode) int { return cmp.Compare(a.Name, b.Name) })
	out.NotReady = notReady[:min(len(notReady), listed)]
	for c, n := range conflicts {
		out.Conflicts = append(out.Conflicts, v1alpha1.PolicyConflict{With: c.Other(p.Name), Field: c.Field, Message: clip(c.Error()), Nodes: n})
	}
	slices.SortFunc(out.Conflicts, func(a, b v1alpha1.PolicyConflict) int {
		return cmp.Or(cmp.Compare(a.With, b.With), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	out.Conflicts = out.Conflicts[:min(len(out.Conflicts), listed)]
	for _, c := range conditions(out, invalid, fleet.RolloutOf(chosen, turns)) {
		c.ObservedGeneration = p.Generation
		meta.SetStatusCondition(&out.Conditions, c)
	}
	return out
}

// mine is what is wrong with the policy on a node.
func mine(policy string, w wish) string {
	var out []string
	for _, p := range w.Problems {
		if slices.Contains(p.Policies, policy) {
			out = append(out, p.Error())
		}
	}
	return strings.Join(out, "; ")
}

// state says why a node is not as its policies want it; nil if it is.
func state(n fleet.Node, w wish) *v1alpha1.PolicyNode {
	out := &v1alpha1.PolicyNode{Name: n.Name}
	if c := resolvedCondition(w.Wish, w.err); c.Status != metav1.ConditionTrue {
		out.Reason, out.Message = c.Reason, c.Message
		return out
	}
	if n.NIC == nil || !equality.Semantic.DeepEqual(n.NIC.Spec, w.Spec) {
		out.Reason = v1alpha1.ReasonUnknown
		return out
	}
	c := meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Ready)
	switch {
	case !n.Ready:
		out.Reason, out.Message = v1alpha1.ReasonNodeNotReady, clip(n.Away)
	case c == nil:
		out.Reason, out.Message = v1alpha1.ReasonUnknown, "its agent has said nothing"
	case c.ObservedGeneration != n.NIC.Generation:
		out.Reason, out.Message = v1alpha1.ReasonUnknown, "its agent has yet to look at what is wanted"
	case c.Status != metav1.ConditionTrue:
		out.Reason, out.Message = c.Reason, c.Message
	default:
		return nil
	}
	return out
}

func conditions(s v1alpha1.NICPolicyStatus, invalid string, r fleet.Rollout) []metav1.Condition {
	is := func(kind string, holds bool, yes, no, message string) metav1.Condition {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: no, Message: clip(message)}
		if holds {
			c.Status, c.Reason = metav1.ConditionTrue, yes
		}
		return c
	}
	conflict := ""
	if len(s.Conflicts) > 0 {
		conflict = s.Conflicts[0].Message
	}
	ready := invalid == "" && s.ReadyNodes == s.Nodes
	reason, message := v1alpha1.ReasonAsWanted, fmt.Sprintf("%d of %d nodes are as wanted", s.ReadyNodes, s.Nodes)
	if !ready && len(s.NotReady) > 0 {
		reason = s.NotReady[0].Reason
		message += fmt.Sprintf("; %s: %s", s.NotReady[0].Name, s.NotReady[0].Message)
	}
	moves, how := v1alpha1.ReasonIdle, ""
	switch {
	case r.Held:
		moves, how = v1alpha1.ReasonHeldUp, fmt.Sprintf("%d nodes wait: %s", r.Waiting, r.Why)
		reason, message = moves, fmt.Sprintf("%d of %d nodes are as wanted; %s", s.ReadyNodes, s.Nodes, how)
	case r.Waiting+r.Changing > 0:
		moves, how = v1alpha1.ReasonChanging, fmt.Sprintf("%d nodes change, %d wait for their turn", r.Changing, r.Waiting)
	}
	return []metav1.Condition{
		is(v1alpha1.Progressing, moves == v1alpha1.ReasonChanging, moves, moves, how),
		is(v1alpha1.Ready, ready, v1alpha1.ReasonAsWanted, cmp.Or(reason, v1alpha1.ReasonUnknown), message),
		is(v1alpha1.Valid, invalid == "", v1alpha1.ReasonAsWanted, v1alpha1.ReasonRefused, invalid),
		is(v1alpha1.Conflicted, conflict != "", v1alpha1.ReasonConflict, v1alpha1.ReasonAsWanted, conflict),
	}
}
