package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nodeapi"
)

// An agent says what it has to say of its own node, and can do nothing else: not of
// another node, not with a token of no pod, not to what is wanted, not to nodes.
func TestAgentMayTouchItsOwnNodeOnly(t *testing.T) {
	k := newKube(t)
	ctx := t.Context()
	for _, name := range []string{"n1", "n2"} {
		k.node(name)
		k.do(k.Create(ctx, &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	n1, nobody := k.as("sluice-agent", "n1"), k.as("sluice-agent", "")
	write := func(ctx context.Context, account int, node string) error {
		config := n1
		if account == 0 {
			config = nobody
		}
		s, err := nodeapi.Dial(config, node)
		k.do(err)
		return s.Write(ctx, v1alpha1.NodeNICStatus{Version: "v", Inventory: &v1alpha1.Inventory{}})
	}
	if err := write(ctx, 1, "n1"); err != nil {
		t.Errorf("its own: %v", err)
	}
	// The admission policy is heard of by the API server some time after it is there.
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = write(ctx, 1, "n2"); err != nil {
			break
		}
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the agent of node n1 may write NodeNIC n1 alone, not n2") {
		t.Errorf("another's: %v", err)
	}
	if err := write(ctx, 0, "n1"); err == nil || !strings.Contains(err.Error(), "does not say on which node") {
		t.Errorf("with a token of no pod: %v", err)
	}
	if err := write(ctx, 1, "n1"); err != nil {
		t.Errorf("its own, after that: %v", err)
	}

	c, err := client.New(n1, client.Options{Scheme: k.Scheme()})
	k.do(err)
	own, node, pod := &v1alpha1.NodeNIC{}, k.nodeNow("n1"), &corev1.Pod{}
	k.do(k.Get(ctx, client.ObjectKey{Name: "n1"}, own))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"sluice.dev/go":"1"}}}`))
	pod.Namespace, pod.Name = "default", "p"
	for what, err := range map[string]error{
		"what is wanted":    c.Patch(ctx, own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"drift":"report"}}`))),
		"its own turn":      c.Patch(ctx, own.DeepCopy(), patch),
		"its NodeNIC":       c.Delete(ctx, own.DeepCopy()),
		"another NodeNIC":   c.Create(ctx, &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}),
		"its node":          c.Patch(ctx, node, patch),
		"policies":          c.List(ctx, &v1alpha1.NICPolicyList{}),
		"pods":              c.Get(ctx, client.ObjectKeyFromObject(pod), pod),
		"secrets of others": c.List(ctx, &corev1.SecretList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v: want it forbidden", what, err)
		}
	}
	// By way of the status nothing else can be written.
	if err := c.Status().Patch(ctx, own.DeepCopy(), patch); err != nil {
		t.Errorf("status: %v", err)
	}
	k.do(k.Get(ctx, client.ObjectKey{Name: "n1"}, own))
	if own.Annotations[v1alpha1.AnnotationGo] != "" {
		t.Error("an agent has given itself the turn, by way of its status")
	}
}

// What Kubernetes lets a role say about reading one NodeNIC: its name, for who asks for
// no other by field selector, as an agent does. One account for all nodes has a role
// for all of them, so that its agents can read each other's; an account of one node,
// with a role that names it, cannot.
func TestReadingOtherNodes(t *testing.T) {
	k := newKube(t)
	ctx := t.Context()
	for _, name := range []string{"n1", "n2"} {
		k.node(name)
		k.do(k.Create(ctx, &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "agent-n1"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodenics"}, ResourceNames: []string{"n1"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodenics/status"}, ResourceNames: []string{"n1"}, Verbs: []string{"patch"}},
	}}
	k.do(k.Create(ctx, role))
	k.do(k.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: "agent-n1"}}))
	k.do(k.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-n1"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent-n1"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "sluice-system", Name: "agent-n1"}},
	}))
	own, shared := k.as("agent-n1", "n1"), k.as("sluice-agent", "n1")

	// All that an agent does of its own node works, with either account.
	for _, config := range []*rest.Config{own, shared} {
		s, err := nodeapi.Dial(config, "n1")
		k.do(err)
		heard := make(chan string, 10)
		watching, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- s.Watch(watching, func(o *v1alpha1.NodeNIC) {
				if o != nil {
					heard <- o.Name
				}
			})
		}()
		select {
		case name := <-heard:
			if name != "n1" {
				t.Errorf("it hears of %s", name)
			}
		case <-time.After(time.Minute):
			t.Error("it hears nothing of its own")
		}
		if err := s.Write(ctx, v1alpha1.NodeNICStatus{Version: "v"}); err != nil {
			t.Errorf("its own status: %v", err)
		}
		stop()
		k.do(<-ended)
	}

	for what, opts := range map[string][]client.ListOption{
		"all":       nil,
		"another's": {client.MatchingFields{"metadata.name": "n2"}},
	} {
		for name, config := range map[string]*rest.Config{"own": own, "shared": shared} {
			c, err := client.New(config, client.Options{Scheme: k.Scheme()})
			k.do(err)
			err = c.List(ctx, &v1alpha1.NodeNICList{}, opts...)
			if mayNot := name == "own"; apierrors.IsForbidden(err) != mayNot || err != nil && !mayNot {
				t.Errorf("%s, with an account that is %s: %v", what, name, err)
			}
		}
	}
	other, err := nodeapi.Dial(own, "n2")
	k.do(err)
	if err := other.Write(ctx, v1alpha1.NodeNICStatus{Version: "v"}); !apierrors.IsForbidden(err) {
		t.Errorf("another's status: %v", err)
	}
}

// No rule of the installation has a wildcard, or more than it should be able to do.
func TestRolesHaveNoWildcards(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			rules++
			all := slices.Concat(r.APIGroups, r.Resources, r.Verbs, r.ResourceNames, r.NonResourceURLs)
			if slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "*") }) || len(r.Verbs) == 0 || len(r.Resources) == 0 {
				t.Errorf("%s %s: %v", role.Kind, role.Name, r)
			}
			for _, risky := range []string{"secrets", "serviceaccounts/token", "nodes/proxy", "pods/exec"} {
				if slices.Contains(r.Resources, risky) {
					t.Errorf("%s %s may have %s", role.Kind, role.Name, risky)
				}
			}
		}
	}
	if rules < 8 {
		t.Errorf("only %d rules are read", rules)
	}
}
