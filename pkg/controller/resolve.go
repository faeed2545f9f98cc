package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrloptions "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/fleet"
)

// addResolve: a node is resolved when its labels or its inventory have changed, or
// somebody has written its spec, and all are when a policy has.
func (f *theFleet) addResolve(m ctrl.Manager) error {
	every := func(ctx context.Context, _ client.Object) []reconcile.Request {
		var nodes corev1.NodeList
		if err := f.List(ctx, &nodes, uncopied); err != nil {
			return nil // from memory: it fails only at the end
		}
		out := make([]reconcile.Request, 0, len(nodes.Items))
		for _, n := range nodes.Items {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: n.Name}})
		}
		return out
	}
	relabelled := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
	other := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.NodeNIC)
		is, also := e.ObjectNew.(*v1alpha1.NodeNIC)
		return !ok || !also || was.Generation != is.Generation || !reflect.DeepEqual(was.Status.Inventory, is.Status.Inventory)
	}}
	return ctrl.NewControllerManagedBy(m).Named("resolve").
		For(&corev1.Node{}, builder.WithPredicates(relabelled)).
		Watches(&v1alpha1.NodeNIC{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(other)).
		Watches(&v1alpha1.NICPolicy{}, handler.EnqueueRequestsFromMapFunc(every), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(ctrloptions.TypedOptions[reconcile.Request]{MaxConcurrentReconciles: atOnce}).
		Complete(f.meters.loop("resolve", f.resolve))
}

// resolve writes what the policies want of one node.
func (f *theFleet) resolve(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	n, object, err := f.node(ctx, r.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if n == nil {
		f.forget(r.Name)
		return reconcile.Result{}, nil
	}
	if n.NIC == nil {
		// Its agent needs it, to say what there is.
		if err := f.applySpec(ctx, object, v1alpha1.NodeNICSpec{}); err != nil {
			return reconcile.Result{}, err
		}
	}
	policies, err := f.policies(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	w, err := fleet.Resolve(policies, *n)
	f.note(r.Name, wish{w, err})
	if n.NIC == nil {
		return reconcile.Result{}, nil // it is heard of when it is there
	}
	if err == nil && w.Err() == nil && !equality.Semantic.DeepEqual(n.NIC.Spec, w.Spec) {
		if err := f.applySpec(ctx, object, w.Spec); err != nil {
			return reconcile.Result{}, fmt.Errorf("spec of NodeNIC %s: %w", n.Name, err)
		}
		f.events.Eventf(n.NIC, nil, corev1.EventTypeNormal, "Resolved", "Resolve", "of policies %q", w.Policies)
		return reconcile.Result{}, nil // and again when it is heard of
	}
	return reconcile.Result{}, f.applyCondition(ctx, n.NIC, resolvedCondition(w, err), FieldManager)
}

func resolvedCondition(w fleet.Wish, err error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Resolved, Status: metav1.ConditionFalse}
	switch {
	case errors.Is(err, fleet.ErrNoInventory):
		c.Reason, c.Message = v1alpha1.ReasonNoInventory, err.Error()
	case err != nil:
		c.Reason, c.Message = v1alpha1.ReasonRefused, clip(err.Error())
	case len(w.Conflicts) > 0:
		c.Reason, c.Message = v1alpha1.ReasonConflict, clip(w.Err().Error())
	case len(w.Problems) > 0:
		c.Reason, c.Message = v1alpha1.ReasonRefused, clip(w.Err().Error())
	case len(w.Policies) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, "NoPolicy"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonAsWanted, clip(fmt.Sprintf("policies %q", w.Policies))
	}
	return c
}

func (f *theFleet) note(node string, w wish) {
	f.mu.Lock()
	f.wishes[node] = w
	f.mu.Unlock()
	poke(f.tallyAgain)
}

func (f *theFleet) forget(node string) {
	f.mu.Lock()
	delete(f.wishes, node)
	delete(f.let, node)
	delete(f.drains, node)
	f.mu.Unlock()
	poke(f.tallyAgain)
	poke(f.paceAgain)
}

// clip keeps a message within what a condition takes.
func clip(text string) string {
	const most = 4096
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..." // as it comes back from the API server
}

// atOnce is how many nodes are resolved at one time: each waits for the API server,
// once or twice.
const atOnce = 8

// calm is how long the loops over all nodes wait for more to come before they run:
// each run is about all of them.
const calm = 200 * time.Millisecond
