package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

const policyText = `apiVersion: sluice.dev/v1alpha1
kind: NICPolicy
metadata: {name: all}
spec:
  nodeSelector: {}
  pfs:
  - {pf: "1000:00:00.0", eswitch: switchdev, numVfs: %d}
  - {pf: "1000:00:01.0", eswitch: switchdev, numVfs: 1}
  pools:
  - {name: fast, pfs: ["1000:00:00.0"]}
  - {name: far, pfs: ["1000:00:01.0"]}
`

// policy writes a policy that wants so many VFs of the first port.
func (w *world) policy(t *testing.T, vfs int) {
	t.Helper()
	var wanted unstructured.Unstructured
	if err := yaml.Unmarshal(fmt.Appendf(nil, policyText, vfs), &wanted.Object); err != nil {
		t.Fatal(err)
	}
	if err := w.api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&wanted), client.FieldOwner("test"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
}

// nic waits until the node's NodeNIC is as done says.
func (w *world) nic(t *testing.T, what string, done func(*v1alpha1.NodeNIC) bool) {
	t.Helper()
	eventually(t, nodeTime, what, func(ctx context.Context) (bool, string, error) {
		var n v1alpha1.NodeNIC
		if err := w.api.Get(ctx, types.NamespacedName{Name: nodeName}, &n); err != nil {
			return false, "", err
		}
		seen := []string{fmt.Sprintf("generation %d, last good %d", n.Generation, n.Status.LastGoodGeneration)}
		for _, c := range n.Status.Conditions {
			seen = append(seen, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return done(&n), strings.Join(seen, "\n"), nil
	})
}

func good(n *v1alpha1.NodeNIC) bool {
	return n.Generation > 0 && n.Status.LastGoodGeneration == n.Generation &&
		meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.Ready)
}

// A policy takes the node over from the file, under a pod that holds a VF.
func policyToReady(t *testing.T, w *world) {
	pod := w.holder(t, "holder", 1)
	if _, err := envtest.InstallCRDs(w.plane.config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(w.node.tree, "deploy/crds")}, ErrorIfPathMissing: true,
	}); err != nil {
		t.Fatal(err)
	}
	w.control(t)
	w.policy(t, 4)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"agent","args":["agent","--node","` + nodeName + `"]}]}}}}`
	if _, err := w.kube.AppsV1().DaemonSets(sluiceSpace).Patch(t.Context(), "sluice-agent", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.nic(t, "the node's NodeNIC is Ready", good)
	eventually(t, nodeTime, "the policy is Ready on one node", func(ctx context.Context) (bool, string, error) {
		var p v1alpha1.NICPolicy
		err := w.api.Get(ctx, types.NamespacedName{Name: "all"}, &p)
		return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.Ready) && p.Status.ReadyNodes == 1, fmt.Sprintf("%+v", p.Status), err
	})
	w.offered(t, fast, 4, 4)
	w.untouched(t, pod)
}

// control starts the controller, on the pods' network.
func (w *world) control(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: sluiceSpace, Name: "default"}},
	}
	if _, err := w.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "sluice-controller"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-controller"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "controller", Image: sluiceImage, ImagePullPolicy: corev1.PullNever, Args: []string{"controller"},
					}},
				},
			},
		},
	}
	if _, err := w.kube.AppsV1().Deployments(sluiceSpace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Another number of VFs needs those that are there gone, and so the pods that have
// them. A budget keeps one; when it is gone the pod goes, and only it.
func drainIsBlocked(t *testing.T, w *world) {
	ctx := t.Context()
	w.run(t, "bystander", "", 0, tellEnv)
	w.running(t, "bystander")
	bystander, err := w.kube.CoreV1().Pods(space).Get(ctx, "bystander", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	one := int32(1)
	labels := map[string]string{"app": "kept"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(corev1.ResourceList{fast: *resource.NewQuantity(1, resource.DecimalSI)}, tellEnv),
			},
		},
	}
	if _, err := w.kube.AppsV1().Deployments(space).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.gone(t, "kept", labels) })
	kept := func(ctx context.Context) (*corev1.Pod, error) {
		pods, err := w.kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{LabelSelector: "app=kept"})
		if err != nil {
			return nil, err
		}
		if len(pods.Items) != 1 {
			return nil, fmt.Errorf("%d pods of the service, want 1", len(pods.Items))
		}
		return &pods.Items[0], nil
	}
	runs := func(not types.UID) types.UID {
		var uid types.UID
		eventually(t, nodeTime, "the service's pod runs", func(ctx context.Context) (bool, string, error) {
			p, err := kept(ctx)
			if err != nil {
				return false, "", err
			}
			uid = p.UID
			return p.Status.Phase == corev1.PodRunning && p.UID != not, w.about(ctx, p), nil
		})
		return uid
	}
	before := runs("")
	minimum := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &minimum, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	if _, err := w.kube.PolicyV1().PodDisruptionBudgets(space).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.policy(t, 6)
	w.nic(t, "the node waits, and says for which pod", func(n *v1alpha1.NodeNIC) bool {
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.Draining)
		return meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.DrainRequired) &&
			c != nil && c.Reason == v1alpha1.ReasonBlocked && strings.Contains(c.Message, "kept-")
	})
	w.offered(t, fast, 4, 4)
	if p, err := kept(ctx); err != nil || p.UID != before {
		t.Fatalf("the pod that its budget keeps is another: %v, %v", p, err)
	}
	if err := w.kube.PolicyV1().PodDisruptionBudgets(space).Delete(ctx, "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.nic(t, "the node is as the policy wants it", good)
	w.offered(t, fast, 6, 6)
	runs(before)
	w.untouched(t, bystander)
	eventually(t, nodeTime, "the node takes pods again", func(ctx context.Context) (bool, string, error) {
		node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil && !node.Spec.Unschedulable, "", err
	})
}
