package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/fleet"
)

// pods asks which of the pods that hold what the plan takes are still on the node.
func (f *theFleet) pods(ctx context.Context, n *fleet.Node) error {
	if !n.Drains() {
		return nil
	}
	n.Pods = map[string]bool{}
	for _, h := range n.NIC.Status.Plan.Holders {
		if h.Pod == "" || n.Pods[h.Pod] {
			continue
		}
		p, err := f.pod(ctx, n.Name, h.Pod)
		if err != nil {
			return err
		}
		if p != nil {
			n.Pods[h.Pod] = true
		}
	}
	return nil
}

// pod is one of that name on the node that has not ended; nil if there is none:
// another of the name elsewhere is another.
func (f *theFleet) pod(ctx context.Context, node, name string) (*corev1.Pod, error) {
	namespace, short, _ := strings.Cut(name, "/")
	var p corev1.Pod
	if err := f.Get(ctx, types.NamespacedName{Namespace: namespace, Name: short}, &p); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if p.Spec.NodeName != node || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, nil
	}
	return &p, nil
}

// evict asks pods to go, and answers what keeps them.
func (f *theFleet) evict(ctx context.Context, n *fleet.Node, pods []string) (blocked string, err error) {
	var keeps []string
	for _, name := range pods {
		p, err := f.pod(ctx, n.Name, name)
		if err != nil {
			return "", err
		}
		if p == nil || p.DeletionTimestamp != nil {
			continue
		}
		if why := stays(p); why != "" {
			f.meters.evictions.WithLabelValues("never").Inc()
			keeps = append(keeps, fmt.Sprintf("pod %s %s", name, why))
			continue
		}
		why, err := f.ask(ctx, p)
		switch {
		case err != nil:
			f.meters.evictions.WithLabelValues("error").Inc()
			return "", err
		case why != "":
			f.meters.evictions.WithLabelValues("blocked").Inc()
			keeps = append(keeps, fmt.Sprintf("pod %s: %s", name, why))
		default:
			f.meters.evictions.WithLabelValues("asked").Inc()
			f.events.Eventf(n.NIC, p, corev1.EventTypeNormal, "Evicted", "Evict", "pod %s has a device that generation %d changes", name, n.NIC.Generation)
		}
	}
	return strings.Join(keeps, "; "), nil
}

// stays says why it is no use to evict a pod.
func stays(p *corev1.Pod) string {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return "is a static pod of the node, which no eviction ends: want it stopped there"
	}
	if o := metav1.GetControllerOf(p); o != nil && o.Kind == "DaemonSet" {
		return fmt.Sprintf("is of DaemonSet %s, which would bring it back at once: want the node taken out of that", o.Name)
	}
	return ""
}

// ask evicts a pod. It answers why the API server refuses that for now: a budget that is
// used up (429), two budgets for one pod (500, registry/core/pod/storage/eviction.go), or
// what an admission webhook says. That is of this pod alone, and others are asked.
func (f *theFleet) ask(ctx context.Context, p *corev1.Pod) (refused string, err error) {
	err = f.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil // it goes, has gone, or is another by now
	case errors.As(err, new(apierrors.APIStatus)):
		return reasonOf(err), nil
	}
	return "", err // nobody has answered
}

// reasonOf is what the API server says of a budget that is used up, with its name.
func reasonOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error()
	}
	out := status.Status().Message
	for _, c := range status.Status().Details.Causes {
		out += " " + c.Message
	}
	return out
}
