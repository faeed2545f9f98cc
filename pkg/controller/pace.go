package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/fleet"
)

// How long a drain waits between two looks at pods that are still there.
const (
	firstTry = 2 * time.Second
	lastTry  = 30 * time.Second
)

// fresh is how long a round goes by what it has seen at its beginning: less than a
// lease lasts, so that a process that was stopped and goes on after another has taken
// over does nothing more by what was so before.
const fresh = 5 * time.Second

// one is the request of loops that are over all nodes.
func one(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
}

// addPace: turns change with anything that a NodeNIC or a Node says of its state.
func (f *theFleet) addPace(m ctrl.Manager) error {
	turned := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*corev1.Node)
		is, also := e.ObjectNew.(*corev1.Node)
		return !ok || !also || nodeOf(was, nil).Away != nodeOf(is, nil).Away || nodeOf(was, nil).Ready != nodeOf(is, nil).Ready || was.Spec.Unschedulable != is.Spec.Unschedulable ||
			was.Annotations[v1alpha1.AnnotationCordoned] != is.Annotations[v1alpha1.AnnotationCordoned]
	}}
	moved := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.NodeNIC)
		is, also := e.ObjectNew.(*v1alpha1.NodeNIC)
		if ok && also {
			f.tell(was, is)
		}
		return true
	}}
	return ctrl.NewControllerManagedBy(m).Named("pace").
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(turned)).
		Watches(&v1alpha1.NodeNIC{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(moved)).
		Watches(&v1alpha1.NICPolicy{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.TypedChannel(f.paceAgain, handler.TypedEnqueueRequestsFromMapFunc(oneOf))).
		Complete(f.meters.loop("pace", f.pace))
}

func oneOf(ctx context.Context, _ string) []reconcile.Request { return one(ctx, nil) }

// tell makes events of what is said of a node, once each: what Progressing and Draining
// say in between Ready says too, and that somebody has yet to look is no news.
func (f *theFleet) tell(was, is *v1alpha1.NodeNIC) {
	for _, c := range is.Status.Conditions {
		old := meta.FindStatusCondition(was.Status.Conditions, c.Type)
		switch {
		case c.Type == v1alpha1.Progressing, c.Reason == v1alpha1.ReasonUnknown, c.Reason == v1alpha1.ReasonNoInventory:
			continue
		case old != nil && old.Status == c.Status && old.Reason == c.Reason, old == nil && c.Status == metav1.ConditionFalse && c.Type != v1alpha1.Ready && c.Type != v1alpha1.Resolved:
			continue
		}
		kind := corev1.EventTypeNormal
		switch {
		case c.Type == v1alpha1.Degraded && c.Status == metav1.ConditionTrue,
			c.Type == v1alpha1.Resolved && c.Status != metav1.ConditionTrue, c.Reason == v1alpha1.ReasonNodeAway:
			kind = corev1.EventTypeWarning
		}
		f.events.Eventf(is, nil, kind, c.Reason, c.Type, "%s is %s: %s", c.Type, c.Status, clip(c.Message))
	}
}

// pace makes the next move of every node.
func (f *theFleet) pace(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	time.Sleep(calm)
	if err := f.inherit(ctx); err != nil {
		return reconcile.Result{}, err
	}
	begun := time.Now()
	policies, err := f.policies(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, objects, err := f.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	turns := fleet.Turns(policies, nodes)
	var again time.Duration
	var failed []error
	for i := range nodes {
		if time.Since(begun) > fresh {
			poke(f.paceAgain)
			break
		}
		n := &nodes[i]
		wait, err := f.move(ctx, n, objects[n.Name], turns[n.Name].Wait)
		if err != nil {
			failed = append(failed, fmt.Errorf("node %s: %w", n.Name, err))
		}
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	return inTime(ctx, again, errors.Join(failed...))
}

// inTime is how a round ends: with an error controller-runtime hears no RequeueAfter, and
// one node that fails for ever would put the others' drains off by its backoff.
func inTime(ctx context.Context, again time.Duration, err error) (reconcile.Result, error) {
	if err != nil && again > 0 {
		log.FromContext(ctx).Error(err, "nodes were not moved; they are tried again", "after", again)
		err = nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// move makes the next move of one node, and answers when to look again at what
// nobody tells of: 0 never.
func (f *theFleet) move(ctx context.Context, n *fleet.Node, object *corev1.Node, turn string) (time.Duration, error) {
	if err := f.sayAway(ctx, n); err != nil {
		return 0, err
	}
	if wait := f.drainedLately(n); wait > 0 {
		return wait, nil
	}
	if err := f.pods(ctx, n); err != nil {
		return 0, err
	}
	m := fleet.Next(*n, turn)
	blocked := ""
	var err error
	switch m.Act {
	case fleet.LetGo:
		err = f.letGo(ctx, n)
	case fleet.Cordon:
		err = f.cordon(ctx, n, object)
	case fleet.Evict:
		blocked, err = f.evict(ctx, n, m.Pods)
	case fleet.Drained:
		err = f.annotate(ctx, n.NIC, v1alpha1.AnnotationDrained, decimal(n.NIC.Generation))
	case fleet.Uncordon:
		err = f.uncordon(ctx, n, object)
	case fleet.Forget:
		err = f.annotate(ctx, n.NIC, v1alpha1.AnnotationDrained, "")
	}
	if m.Act != fleet.Nothing {
		f.meters.moves.WithLabelValues(string(m.Act), resultOf(err)).Inc()
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", m.Act, err)
	}
	if n.NIC != nil {
		err = f.sayDrain(ctx, n, m, blocked)
	}
	return f.again(n, m), err
}

// look is a look at pods that are to leave a node.
type look struct {
	version string // of the NodeNIC that said which
	tries   int
	next    time.Time
}

// drainedLately says how long the pods of a node that is drained need not be looked at:
// a round is made for any other node too, and each look asks the API server.
func (f *theFleet) drainedLately(n *fleet.Node) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.drains[n.Name]
	if !ok || n.NIC == nil || n.NIC.ResourceVersion != last.version || !n.Drains() {
		return 0
	}
	return time.Until(last.next)
}

// again is when to look at a drain again, less and less often.
func (f *theFleet) again(n *fleet.Node, m fleet.Move) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Act != fleet.Evict {
		delete(f.drains, n.Name)
		return 0
	}
	tries := f.drains[n.Name].tries
	wait := min(firstTry<<min(tries, 8), lastTry)
	f.drains[n.Name] = look{n.NIC.ResourceVersion, tries + 1, time.Now().Add(wait)}
	return wait
}

func (f *theFleet) letGo(ctx context.Context, n *fleet.Node) error {
	if err := f.annotate(ctx, n.NIC, v1alpha1.AnnotationGo, decimal(n.NIC.Generation)); err != nil {
		return err
	}
	f.mu.Lock()
	f.let[n.Name] = n.NIC.Generation
	f.mu.Unlock()
	f.events.Eventf(n.NIC, nil, corev1.EventTypeNormal, "LetGo", "LetGo", "it may change to generation %d", n.NIC.Generation)
	return nil
}

// cordon keeps pods from coming, and notes whether that was so before.
func (f *theFleet) cordon(ctx context.Context, n *fleet.Node, object *corev1.Node) error {
	before, ours := object.Annotations[v1alpha1.AnnotationCordoned]
	value := decimal(n.NIC.Generation)
	if ours && strings.HasSuffix(before, found) || !ours && object.Spec.Unschedulable {
		value += found
	}
	f.events.Eventf(n.NIC, object, corev1.EventTypeNormal, "Cordoned", "Cordon", "no pod comes to the node while generation %d drains it", n.NIC.Generation)
	return f.merge(ctx, object, map[string]any{
		"metadata": annotation(v1alpha1.AnnotationCordoned, value), "spec": map[string]any{"unschedulable": true},
	})
}

func (f *theFleet) uncordon(ctx context.Context, n *fleet.Node, object *corev1.Node) error {
	patch := map[string]any{"metadata": annotation(v1alpha1.AnnotationCordoned, "")}
	if !strings.HasSuffix(object.Annotations[v1alpha1.AnnotationCordoned], found) {
		patch["spec"] = map[string]any{"unschedulable": nil}
	}
	if n.NIC != nil {
		f.events.Eventf(n.NIC, object, corev1.EventTypeNormal, "Uncordoned", "Uncordon", "pods may come again")
	}
	return f.merge(ctx, object, patch)
}

// sayAway takes the word of an agent back whose node nobody has heard of: that it was
// ready is no more known to be so. When the node is back its agent is asked to say.
func (f *theFleet) sayAway(ctx context.Context, n *fleet.Node) error {
	if n.NIC == nil {
		return nil
	}
	c := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionUnknown}
	is := meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Ready)
	switch away := is != nil && is.Reason == v1alpha1.ReasonNodeAway; {
	case n.Lost:
		c.Reason, c.Message = v1alpha1.ReasonNodeAway, clip(n.Away)
	case away:
		c.Reason, c.Message = v1alpha1.ReasonNodeBack, "the agent has yet to say how the node is"
	default:
		return nil
	}
	return f.applyCondition(ctx, n.NIC, c, awayManager)
}

// sayDrain says on the NodeNIC what a drain does, and what keeps it.
func (f *theFleet) sayDrain(ctx context.Context, n *fleet.Node, m fleet.Move, blocked string) error {
	c := metav1.Condition{Type: v1alpha1.Draining, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonIdle}
	switch drains := n.Drains(); {
	case blocked != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonBlocked, clip(blocked)
	case drains && m.Act != fleet.Drained && m.Why != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonWaitsForPods, clip(m.Why)
	case meta.FindStatusCondition(n.NIC.Status.Conditions, v1alpha1.Draining) == nil:
		return nil // of a node that was never drained it says nothing
	}
	return f.applyCondition(ctx, n.NIC, c, drainManager)
}
