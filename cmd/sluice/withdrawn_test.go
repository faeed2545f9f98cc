package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// What is withdrawn while it waits is as if it had never been wanted: the node is open to
// pods again, and the pod that would have had to go stays. So it is when the wish goes
// back, and when its policy is deleted. A NodeNIC that somebody deletes is there again.
func TestWishesAreWithdrawn(t *testing.T) {
	const (
		switchdev = "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: switchdev, numVfs: 4}]}"
		legacy    = "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: legacy, numVfs: 4}]}"
	)
	k := newKube(t)
	ctx := t.Context()
	k.node("n1")
	m := newMachine(t)
	k.agent("n1", m)
	k.controller()
	k.policy("p", switchdev)
	k.await("n1", "ready", ready)
	vf := vfAddress(t, m, 1)
	pod := k.hold(m, "n1", "holder", vf)
	k.inside(m, pod, vf)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"}}
	least := intstr.FromInt32(1)
	budget.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}}
	k.do(k.Create(ctx, budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 1, CurrentHealthy: 1, ExpectedPods: 1}
	k.do(k.Status().Update(ctx, budget))
	blocked := func() {
		t.Helper()
		k.await("n1", "blocked by the budget", func(o *v1alpha1.NodeNIC) bool { return is(o, v1alpha1.Draining, v1alpha1.ReasonBlocked) })
		if n := k.nodeNow("n1"); !n.Spec.Unschedulable {
			t.Error("the node takes pods while it is drained")
		}
	}
	open := func(what string) {
		t.Helper()
		var n *corev1.Node
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if n = k.nodeNow("n1"); !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordoned] == "" {
				break
			}
		}
		if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordoned] != "" {
			t.Errorf("%s: the node stays closed to pods: %v", what, n.Annotations)
		}
		k.do(k.Get(ctx, client.ObjectKeyFromObject(pod), pod))
		if pod.DeletionTimestamp != nil {
			t.Errorf("%s: the pod is asked to go", what)
		}
	}
	calm := func(o *v1alpha1.NodeNIC) bool {
		return !is(o, v1alpha1.Draining, "") && !is(o, v1alpha1.DrainRequired, "") && !is(o, v1alpha1.Progressing, "") && o.Status.LastGoodGeneration == o.Generation
	}

	k.respec("p", legacy)
	blocked()
	k.respec("p", switchdev)
	k.await("n1", "as before", func(o *v1alpha1.NodeNIC) bool { return ready(o) && calm(o) })
	open("the wish went back")

	k.respec("p", legacy)
	blocked()
	k.do(k.Delete(ctx, &v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}))
	k.await("n1", "wanted by nobody", func(o *v1alpha1.NodeNIC) bool { return len(o.Spec.PFs) == 0 && calm(o) })
	open("the policy went")

	k.policy("p", legacy)
	blocked()
	old := k.await("n1", "there", func(*v1alpha1.NodeNIC) bool { return true })
	k.do(k.Delete(ctx, old.DeepCopy()))
	k.await("n1", "made anew", func(o *v1alpha1.NodeNIC) bool { return o.UID != old.UID })
	blocked()
	k.respec("p", switchdev)
	k.await("n1", "as before, anew", func(o *v1alpha1.NodeNIC) bool { return o.UID != old.UID && ready(o) && calm(o) })
	open("the NodeNIC went")
}

// A pod that two budgets are of cannot be evicted (the API server says so with another
// error than for one that is used up): the drain says it, asks the others, and goes on
// when there is one budget less.
func TestPodOfTwoBudgets(t *testing.T) {
	k := newKube(t)
	ctx := t.Context()
	k.node("n1")
	m := newMachine(t)
	k.agent("n1", m)
	k.controller()
	k.policy("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: switchdev, numVfs: 4}]}")
	k.await("n1", "ready", ready)
	var pods []*corev1.Pod
	for i, name := range []string{"a-held-twice", "b-plain"} {
		vf := vfAddress(t, m, i)
		pod := k.hold(m, "n1", name, vf)
		k.inside(m, pod, vf)
		pods = append(pods, pod)
	}
	k.do(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		k.do(k.Get(ctx, client.ObjectKeyFromObject(pods[0]), pods[0]))
		pods[0].Labels = map[string]string{"app": "twice"}
		return k.Update(ctx, pods[0])
	}))
	all := intstr.FromInt32(0)
	for _, name := range []string{"one", "two"} {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		b.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "twice"}}}
		k.do(k.Create(ctx, b))
		b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, ExpectedPods: 1, DisruptionsAllowed: 1}
		k.do(k.Status().Update(ctx, b))
	}
	k.respec("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: legacy, numVfs: 4}]}")
	k.await("n1", "blocked by two budgets", func(o *v1alpha1.NodeNIC) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Draining)
		return is(o, v1alpha1.Draining, v1alpha1.ReasonBlocked) && strings.Contains(c.Message, "default/a-held-twice") && strings.Contains(c.Message, "more than one PodDisruptionBudget")
	})
	gone := func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }
	k.awaitPod(pods[1], "asked to go, beside one that cannot", gone)
	k.do(k.Delete(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"}}))
	k.awaitPod(pods[0], "asked to go, with one budget", gone)
}
