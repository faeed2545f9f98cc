package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// trafficRest is how long agents are given to say more before it is taken up: nothing
// of it is urgent.
const trafficRest = 2 * time.Second

// traffic says of pods and Networks where their flows run, as the agents of the nodes
// say it in NodeNICs.
type traffic struct {
	*theFleet
	said map[string]string // by UID of pods, what was said of them; of the loop alone
}

func (t *traffic) add(m ctrl.Manager) error {
	moved := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.NodeNIC)
		is, also := e.ObjectNew.(*v1alpha1.NodeNIC)
		return ok && also && !equality.Semantic.DeepEqual(was.Status.Pods, is.Status.Pods)
	}}
	return ctrl.NewControllerManagedBy(m).Named("traffic").
		Watches(&v1alpha1.NodeNIC{}, handler.EnqueueRequestsFromMapFunc(one), builder.WithPredicates(moved)).
		Complete(t.meters.loop("traffic", t.turn))
}

func (t *traffic) turn(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	time.Sleep(trafficRest)
	var nics v1alpha1.NodeNICList
	if err := t.List(ctx, &nics, uncopied); err != nil {
		return reconcile.Result{}, err
	}
	var failed []error
	said, networks := map[string]string{}, map[string]*v1alpha1.NetworkTraffic{}
	for i := range nics.Items {
		o := &nics.Items[i]
		of := map[string][]v1alpha1.PodOffload{}
		for _, p := range o.Status.Pods {
			addTo(networks, p)
			if p.UID != "" { // without it another pod of the name would be meant
				of[p.UID] = append(of[p.UID], p)
			}
		}
		for uid, all := range of {
			c := conditionOf(all)
			text := string(c.Status) + c.Reason + c.Message
			if t.said[uid] != text {
				if err := t.tell(ctx, o.Name, uid, all[0].Pod, c); err != nil {
					failed = append(failed, fmt.Errorf("pod %s: %w", all[0].Pod, err))
					continue
				}
			}
			said[uid] = text
		}
	}
	t.said = said
	failed = append(failed, t.sum(ctx, networks))
	return reconcile.Result{}, errors.Join(failed...)
}

func addTo(by map[string]*v1alpha1.NetworkTraffic, p v1alpha1.PodOffload) {
	if p.Network == "" {
		return
	}
	n := by[p.Network]
	if n == nil {
		n = &v1alpha1.NetworkTraffic{}
		by[p.Network] = n
	}
	switch p.Runs {
	case v1alpha1.RunsHardware:
		n.Hardware++
	case v1alpha1.RunsPartly:
		n.Partly++
	case v1alpha1.RunsSoftware:
		n.Software++
	}
}

// conditionOf is what is said of a pod with these interfaces: the worst of them decides.
func conditionOf(all []v1alpha1.PodOffload) corev1.PodCondition {
	slices.SortFunc(all, func(a, b v1alpha1.PodOffload) int { return strings.Compare(a.Interface, b.Interface) })
	out := corev1.PodCondition{Type: v1alpha1.InHardware, Status: corev1.ConditionTrue, Reason: v1alpha1.RunsHardware}
	var text []string
	for _, p := range all {
		line := fmt.Sprintf("%s: %d %% of the packets of heavy flows in the NIC", p.Interface, p.Percent)
		if p.Reason != "" {
			line += "; " + p.Reason
		}
		if p.Change != "" {
			line += "; " + p.Change
		}
		text = append(text, line)
		if p.Runs == v1alpha1.RunsHardware {
			continue
		}
		out.Status = corev1.ConditionFalse
		if out.Reason != v1alpha1.RunsSoftware {
			out.Reason = p.Runs
		}
	}
	out.Message = clip(strings.Join(text, "\n"))
	return out
}

// tell sets the pod's condition and, if it was the other way round, makes an event. A pod
// that is gone, or another, has none.
func (t *traffic) tell(ctx context.Context, node, uid, name string, c corev1.PodCondition) error {
	p, err := t.pod(ctx, node, name)
	if err != nil || p == nil || string(p.UID) != uid {
		return err
	}
	c.LastTransitionTime = metav1.Now()
	was := corev1.ConditionUnknown
	for _, old := range p.Status.Conditions {
		if old.Type != c.Type {
			continue
		}
		if was = old.Status; was == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		if was == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return nil // another controller has said it
		}
	}
	o, err := podPart(p, c)
	if err != nil {
		return err
	}
	err = t.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(trafficManager), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has gone meanwhile
	}
	if err != nil {
		return err
	}
	switch {
	case c.Status == corev1.ConditionFalse && was != c.Status:
		t.events.Eventf(p, nil, corev1.EventTypeWarning, "OutOfHardware", "Offload", "%s", c.Message)
	case c.Status == corev1.ConditionTrue && was == corev1.ConditionFalse:
		t.events.Eventf(p, nil, corev1.EventTypeNormal, "InHardware", "Offload", "%s", c.Message)
	}
	return nil
}

// podPart is a pod with one condition, to be applied to that pod and to no later one of
// its name.
func podPart(p *corev1.Pod, c corev1.PodCondition) (*unstructured.Unstructured, error) {
	o, err := part("Pod", p.Name, map[string]any{"status": map[string]any{"conditions": []map[string]any{{
		"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastTransitionTime": c.LastTransitionTime,
	}}}})
	if err != nil {
		return nil, err
	}
	o.SetAPIVersion("v1")
	o.SetNamespace(p.Namespace)
	o.SetUID(p.UID)
	return o, nil
}

// sum writes into each Network how its interfaces' traffic runs, where that is another.
func (t *traffic) sum(ctx context.Context, by map[string]*v1alpha1.NetworkTraffic) error {
	var list v1alpha1.NetworkList
	if err := t.List(ctx, &list); err != nil {
		return err
	}
	var failed []error
	for i := range list.Items {
		o := &list.Items[i]
		if equality.Semantic.DeepEqual(o.Status.Traffic, by[o.Name]) {
			continue
		}
		o.Status.Traffic = by[o.Name]
		if err := t.Status().Update(ctx, o, client.FieldOwner(FieldManager)); err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("network %s: %w", o.Name, err))
		}
	}
	return errors.Join(failed...)
}
