package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// The pools of the policy. The VFs of fast are of the card at NUMA node 1, those of
// either one of each card.
const (
	fast   = corev1.ResourceName("sluice.dev/fast")
	either = corev1.ResourceName("sluice.dev/either")
)

const policyText = `apiVersion: sluice.dev/v1alpha1
kind: NICPolicy
metadata: {name: all}
spec:
  nodeSelector: {}
  pfs:
  - {pf: "1000:00:00.0", eswitch: switchdev, numVfs: %d, vfGroups: [{driver: kernel}]}
  - {pf: "1000:00:00.1", eswitch: switchdev, numVfs: 1}
  - {pf: "1000:00:01.0", eswitch: switchdev, numVfs: 1}
  pools:
  - {name: fast, pfs: ["1000:00:00.0"]}
  - {name: either, pfs: ["1000:00:00.1", "1000:00:01.0"]}
`

// apply does what kubectl apply --server-side does.
func (w *world) apply(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if err := w.api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")); err != nil {
		t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// policy writes a policy that wants so many VFs of the first port.
func (w *world) policy(t *testing.T, vfs int) {
	t.Helper()
	var wanted unstructured.Unstructured
	if err := yaml.Unmarshal(fmt.Appendf(nil, policyText, vfs), &wanted.Object); err != nil {
		t.Fatal(err)
	}
	w.apply(t, &wanted)
}

// nic waits until the node's NodeNIC is as done says.
func (w *world) nic(t *testing.T, what string, done func(*v1alpha1.NodeNIC) bool) {
	t.Helper()
	eventually(t, nodeTime, what, func(ctx context.Context) (bool, string, error) {
		var n v1alpha1.NodeNIC
		if err := w.api.Get(ctx, types.NamespacedName{Name: nodeName}, &n); err != nil {
			return false, "", err
		}
		seen := []string{fmt.Sprintf("generation %d, last good %d, pools %+v", n.Generation, n.Status.LastGoodGeneration, n.Status.Pools)}
		for _, c := range n.Status.Conditions {
			seen = append(seen, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return done(&n), strings.Join(seen, "\n"), nil
	})
}

// good says that a node is as its policies want it, and which generation of that is.
func good(after int64) func(*v1alpha1.NodeNIC) bool {
	return func(n *v1alpha1.NodeNIC) bool {
		return n.Generation > after && len(n.Spec.PFs) > 0 && n.Status.LastGoodGeneration == n.Generation &&
			meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.Ready)
	}
}

func (w *world) generation(t *testing.T) int64 {
	t.Helper()
	var n v1alpha1.NodeNIC
	if err := w.api.Get(t.Context(), types.NamespacedName{Name: nodeName}, &n); err != nil {
		t.Fatal(err)
	}
	return n.Generation
}

// allocated waits until the NodeNIC says that the pod has its VFs, and no others.
func (w *world) allocated(t *testing.T, h *held) {
	t.Helper()
	w.nic(t, fmt.Sprintf("the NodeNIC says that pod %s has %q", h.pod.Name, h.vfs), func(n *v1alpha1.NodeNIC) bool {
		var has []string
		for _, p := range n.Status.Pools {
			for _, d := range p.Holders {
				if p.Resource == string(fast) && d.Pod == space+"/"+h.pod.Name {
					has = append(has, d.Device)
				}
			}
		}
		slices.Sort(has)
		return slices.Equal(has, slices.Sorted(slices.Values(h.vfs)))
	})
}

// event waits for an event about the NodeNIC.
func (w *world) event(t *testing.T, reason, words string) {
	t.Helper()
	eventually(t, podTime, fmt.Sprintf("there is an event %s with %q", reason, words), func(ctx context.Context) (bool, string, error) {
		list, err := w.kube.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		seen := ""
		for _, e := range list.Items {
			if e.Regarding.Kind == v1alpha1.KindNodeNIC {
				seen += e.Reason + ": " + e.Note + "\n"
			}
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == v1alpha1.KindNodeNIC && e.Reason == reason && strings.Contains(e.Note, words)
		}), seen, nil
	})
}
