package fleet

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/plan"
)

// phase is where a node stands on the way to the generation that is wanted of it.
type phase int

const (
	idle    phase = iota // it is as wanted, or has no agent, or has yet to answer
	asks                 // its plan waits
	goes                 // it may change, and has not got there
	settled              // the last word on this generation is that it cannot be reached
)

func (n Node) generation() string {
	if n.NIC == nil {
		return ""
	}
	return strconv.FormatInt(n.NIC.Generation, 10)
}

// annotated says that an annotation has the generation that is wanted now: what it
// says of an older one has ended with it.
func (n Node) annotated(key string) bool {
	return n.NIC != nil && n.NIC.Annotations[key] == n.generation()
}

func (n Node) phase() phase {
	switch {
	case n.NIC == nil || n.reached():
		return idle
	case n.gaveUp():
		return settled
	case n.annotated(v1alpha1.AnnotationGo):
		return goes
	case n.waits():
		return asks
	}
	return idle
}

// reached says that the node has been brought to what is wanted now.
func (n Node) reached() bool {
	return n.NIC.Status.LastGoodGeneration == n.NIC.Generation
}

// waits says that the node has a plan for what is wanted now, and asks to begin.
func (n Node) waits() bool {
	p := n.NIC.Status.Plan
	return p != nil && p.Generation == n.NIC.Generation && p.State == v1alpha1.PlanWaiting
}

// gaveUp says that what is wanted now was tried, or refused, on the node.
func (n Node) gaveUp() bool {
	c := meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Degraded)
	return c != nil && c.Status == "True" && c.ObservedGeneration == n.NIC.Generation && !n.waits() && !n.runs()
}

func (n Node) runs() bool {
	p := n.NIC.Status.Plan
	return p != nil && p.Generation == n.NIC.Generation && p.State == v1alpha1.PlanRunning
}

// unavailable says that the node does not count among those that carry the load: it
// is in change, or drained, or broken, or not ready at all.
func (n Node) unavailable() bool {
	if !n.Ready || n.Cordoned != "" {
		return true
	}
	if n.NIC == nil {
		return false
	}
	c := meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Degraded)
	return n.phase() == goes || c != nil && c.Status == "True" && c.Reason != v1alpha1.ReasonRefused
}

// Stuck says why a node that is unavailable will not be available again by itself:
// "" if it will, or is.
func (n Node) Stuck() string {
	if !n.Ready {
		return strings.TrimSuffix("not ready: "+n.Away, ": ")
	}
	if n.NIC == nil || !n.unavailable() {
		return ""
	}
	if c := meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Draining); c != nil && c.Status == "True" && c.Reason == v1alpha1.ReasonBlocked && n.Drains() {
		return "its drain is blocked: " + c.Message
	}
	if c := meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Degraded); c != nil && c.Status == "True" && n.phase() != goes && n.phase() != asks {
		return strings.TrimSuffix("its last change failed: "+c.Reason, ": ")
	}
	return ""
}

// Drains says that the node's plan takes devices from pods, and may begin when they
// have gone.
func (n Node) Drains() bool {
	return n.phase() == goes && n.waits() && n.NIC.Status.Plan.Impact == plan.Drain.String()
}

// leavers are the pods that hold what the plan takes, and are still there.
func (n Node) leavers() []string {
	var out []string
	for _, h := range n.NIC.Status.Plan.Holders {
		if h.Pod != "" && n.Pods[h.Pod] && !slices.Contains(out, h.Pod) {
			out = append(out, h.Pod)
		}
	}
	slices.Sort(out)
	return out
}
