package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/lab/kubetest"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// kube is a real API server with sluice's kinds, and no other part of Kubernetes:
// the test is kubelet, scheduler and whoever makes pods.
type kube struct {
	t testing.TB
	client.Client
	config *rest.Config
}

func newKube(t testing.TB) *kube {
	t.Helper()
	config := kubetest.Start(t, "../../deploy/crds")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme, authenticationv1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	k := &kube{t: t, Client: c, config: config}
	k.do(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sluice-system"}}))
	for _, file := range []string{"rbac.yaml", "admission.yaml"} {
		k.apply("../../deploy/" + file)
	}
	return k
}

// apply makes the objects of a file.
func (k *kube) apply(path string) {
	k.t.Helper()
	raw, err := os.ReadFile(path)
	k.do(err)
	for i, doc := range strings.Split(string(raw), "\n---\n") {
		o := &unstructured.Unstructured{}
		k.do(yaml.UnmarshalStrict([]byte(doc), &o.Object))
		if err := k.Create(k.t.Context(), o); err != nil {
			k.t.Fatalf("%s, document %d: %v", path, i, err)
		}
	}
}

// as is how a service account of the installation reaches the API server, from a pod
// on a node if one is named.
func (k *kube) as(account, node string) *rest.Config {
	k.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", GenerateName: account + "-"},
			Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		k.do(k.Create(k.t.Context(), p))
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice-system", Name: account}}
	k.do(k.SubResource("token").Create(k.t.Context(), sa, request))
	c := rest.AnonymousClientConfig(k.config)
	c.BearerToken = request.Status.Token
	return c
}

func writeKubeconfig(t testing.TB, c *rest.Config) string {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["a"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	out.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	out.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	out.CurrentContext = "a"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// do fails the test if a write is refused.
func (k *kube) do(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// node is a ready node.
func (k *kube) node(name string) *corev1.Node {
	k.t.Helper()
	k.do(k.readyNode(name))
	return k.nodeNow(name)
}

func (k *kube) policy(name, text string) *v1alpha1.NICPolicy {
	k.t.Helper()
	p := &v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	k.do(yaml.UnmarshalStrict([]byte(text), &p.Spec))
	k.do(k.Create(k.t.Context(), p))
	return p
}

// respec gives a policy another spec.
func (k *kube) respec(name, text string) {
	k.t.Helper()
	// The controller may write the status in between.
	k.do(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p := &v1alpha1.NICPolicy{}
		k.do(k.Get(k.t.Context(), client.ObjectKey{Name: name}, p))
		p.Spec = v1alpha1.NICPolicySpec{}
		k.do(yaml.UnmarshalStrict([]byte(text), &p.Spec))
		return k.Update(k.t.Context(), p)
	}))
}

// await waits until what is so of the node's NodeNIC, and answers it.
func (k *kube) await(node, what string, so func(*v1alpha1.NodeNIC) bool) *v1alpha1.NodeNIC {
	k.t.Helper()
	last := &v1alpha1.NodeNIC{}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		o := &v1alpha1.NodeNIC{}
		if err := k.Get(k.t.Context(), client.ObjectKey{Name: node}, o); err != nil {
			continue
		}
		if last = o; so(o) {
			return o
		}
	}
	status := last.Status // shallow: what is said below is left out of it
	status.Conditions, status.Inventory = nil, nil
	k.t.Fatalf("%s does not become: %s\n%s", node, what, dump(last.Generation, last.Status.Conditions, last.Spec, status, last.Status.Inventory))
	return nil
}

func (k *kube) awaitPolicy(name, what string, so func(*v1alpha1.NICPolicy) bool) *v1alpha1.NICPolicy {
	k.t.Helper()
	last := &v1alpha1.NICPolicy{}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		o := &v1alpha1.NICPolicy{}
		k.do(k.Get(k.t.Context(), client.ObjectKey{Name: name}, o))
		if last = o; so(o) {
			return o
		}
	}
	status := last.Status
	status.Conditions = nil
	k.t.Fatalf("policy %s does not become: %s\n%s", name, what, dump(last.Generation, last.Status.Conditions, last.Spec, status))
	return nil
}

// dump is an object in few lines, what tells most first, since of a failed run somebody
// may see the last lines only: the conditions, a line each, and then parts of it, each
// cut where it becomes long. Who wrote which field (managedFields) is no part of it.
func dump(generation int64, conditions []metav1.Condition, parts ...any) string {
	const longest = 2000 // bytes of a part
	var out strings.Builder
	fmt.Fprintf(&out, "generation %d", generation)
	for _, c := range conditions {
		fmt.Fprintf(&out, "\n%s=%s of generation %d: %s: %s", c.Type, c.Status, c.ObservedGeneration, c.Reason, c.Message)
	}
	for _, part := range parts {
		raw, err := json.Marshal(part)
		if err != nil {
			raw = []byte(err.Error())
		}
		text := string(raw)
		if len(text) > longest {
			text = strings.ToValidUTF8(text[:longest], "") + "..."
		}
		fmt.Fprintf(&out, "\n%T %s", part, text)
	}
	return out.String()
}

// ready says that the node is as its newest spec wants it, and wants something.
func ready(o *v1alpha1.NodeNIC) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Ready)
	return len(o.Spec.PFs) > 0 && c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation
}

func is(o *v1alpha1.NodeNIC, kind, reason string) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, kind)
	return c != nil && c.Status == metav1.ConditionTrue && (reason == "" || c.Reason == reason) && c.ObservedGeneration == o.Generation
}

// process is a command of sluice that runs until it is stopped.
type process struct {
	t    testing.TB
	stop context.CancelFunc
	end  chan int
	log  string
}

func (k *kube) start(args ...string) *process {
	k.t.Helper()
	log, err := os.CreateTemp(k.t.TempDir(), "log")
	k.do(err)
	ctx, stop := context.WithCancel(context.Background())
	p := &process{t: k.t, stop: stop, end: make(chan int, 1), log: log.Name()}
	go func() {
		p.end <- run(ctx, args, log, log)
		log.Close()
	}()
	k.t.Cleanup(func() {
		p.halt()
		if k.t.Failed() {
			raw, _ := os.ReadFile(p.log)
			k.t.Logf("%s:\n%s", strings.Join(args, " "), raw)
		}
	})
	return p
}

// halt ends the process, if it has not ended.
func (p *process) halt() {
	p.stop()
	select {
	case code := <-p.end:
		p.end <- code
	case <-time.After(time.Minute):
		p.t.Errorf("it does not end: see %s", p.log)
	}
}

// machine is a simulated node and where it is kept.
type machine struct{ sim, dir string }

func newMachine(t *testing.T) machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice") // short: the path of a socket in it has a bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return machine{"mlx5:cards=1,vfs=8", dir}
}

func (k *kube) agent(node string, m machine) *process {
	k.t.Helper()
	kubelet := filepath.Join(m.dir, "kubelet")
	k.do(os.MkdirAll(kubelet, 0o700))
	return k.start("agent", "--sim", m.sim, "--state-dir", m.dir, "--kubelet-dir", kubelet, "--node", node, "--kubeconfig", writeKubeconfig(k.t, k.as("sluice-agent", node)))
}

func (k *kube) controller() *process {
	k.t.Helper()
	return k.start("controller", "--kubeconfig", writeKubeconfig(k.t, k.as("sluice-controller", "")), "--health-address", "0")
}

func netnsOf(p *corev1.Pod) string { return "/run/netns/" + p.Name }

// change is what others than sluice do to the machine.
func (m machine) change(t testing.TB, f func(*sim.Sim) error) {
	t.Helper()
	path := filepath.Join(m.dir, "machine.json")
	s, err := sim.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(s), s.Save(path)); err != nil {
		t.Fatal(err)
	}
}

// hold is a pod on the node that has a VF, by sluice's own record.
func (k *kube) hold(m machine, node, pod, vf string) *corev1.Pod {
	k.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod, Labels: map[string]string{"app": "held"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	k.do(k.Create(k.t.Context(), p))
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	k.do(k.Status().Update(k.t.Context(), p))
	r := &record.Record{Container: "c-" + pod, IfName: "eth0", VF: vf, PF: nic.PCI("0000:03:00.0")}
	r.Pod = record.Pod{Namespace: "default", Name: pod, UID: string(p.UID)}
	store := record.In(m.dir)
	k.do(store.Save(r))
	k.do(store.Append(r, record.Entry{Time: time.Now(), Goal: record.Attached, Done: true}))
	return p
}

// inside has the VF's netdev in the pod, or the sweep of an agent's start takes what
// hold recorded down.
func (k *kube) inside(m machine, p *corev1.Pod, vf string) {
	k.t.Helper()
	m.change(k.t, func(s *sim.Sim) error {
		list, err := s.Machine().Links.Links(k.t.Context())
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list, func(l host.Link) bool { return l.Parent == vf })
		if at < 0 {
			return fmt.Errorf("VF %s has no netdev", vf)
		}
		return errors.Join(s.AddNetns(netnsOf(p)), s.Machine().Links.Move(k.t.Context(), list[at].Ifindex, netnsOf(p)))
	})
}

// gone does what kubelet does when a pod has been asked to go: the CNI plugin gives
// the VF back, and the pod ends.
func (k *kube) gone(m machine, p *corev1.Pod, vf string) {
	k.t.Helper()
	k.do(record.In(m.dir).Remove(vf))
	zero := int64(0)
	k.do(client.IgnoreNotFound(k.Delete(k.t.Context(), p, &client.DeleteOptions{GracePeriodSeconds: &zero})))
}

func (k *kube) awaitPod(p *corev1.Pod, what string, so func(*corev1.Pod) bool) {
	k.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now := &corev1.Pod{}
		k.do(k.Get(k.t.Context(), client.ObjectKeyFromObject(p), now))
		if so(now) {
			return
		}
	}
	k.t.Fatalf("pod %s does not become: %s", p.Name, what)
}

// From a policy to a node that is as it wants; the agent and the controller started
// anew in between; a change that has to take a VF from a pod, with a budget that
// blocks it for a while; and the API server not needed for what was taken up.
func TestStoryOfAPolicy(t *testing.T) {
	k := newKube(t)
	ctx := t.Context()
	k.node("n1")
	m := newMachine(t)
	agent, controller := k.agent("n1", m), k.controller()

	seen := k.await("n1", "known", func(o *v1alpha1.NodeNIC) bool { return o.Status.Inventory != nil })
	if seen.Status.Inventory.PFs != 2 || len(seen.OwnerReferences) != 1 {
		t.Fatalf("inventory %+v, owners %v: want two PFs and the node", seen.Status.Inventory, seen.OwnerReferences)
	}
	k.policy("p", "{nodeSelector: {matchLabels: {role: worker}}, pfs: [{pf: '0000:03:00.0', eswitch: switchdev, numVfs: 4}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}")
	done := k.await("n1", "ready", ready)
	if p := done.Status.Plan; p == nil || p.State != v1alpha1.PlanDone || p.Generation != done.Generation || len(p.Steps) == 0 ||
		slices.ContainsFunc(p.Steps, func(s v1alpha1.PlanStep) bool { return s.State != v1alpha1.StepDone }) {
		t.Errorf("plan %+v: want all its steps ticked", p)
	}
	if done.Status.LastGoodGeneration != done.Generation {
		t.Errorf("last good generation %d of %d", done.Status.LastGoodGeneration, done.Generation)
	}
	pools := k.await("n1", "offering its pool", func(o *v1alpha1.NodeNIC) bool {
		return len(o.Status.Pools) == 1 && o.Status.Pools[0].Resource == "sluice.dev/fast" && o.Status.Pools[0].Devices == 4
	})
	k.awaitPolicy("p", "ready", func(p *v1alpha1.NICPolicy) bool {
		return p.Status.Nodes == 1 && p.Status.ReadyNodes == 1 && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.Ready)
	})

	// Started anew nothing is done, and nothing is written but what is new.
	agent.halt()
	agent = k.agent("n1", m)
	k.await("n1", "seen by the new agent", ready)
	time.Sleep(3 * time.Second)
	quiet := k.await("n1", "there", ready)
	time.Sleep(3 * time.Second)
	if now := k.await("n1", "there", ready); now.ResourceVersion != quiet.ResourceVersion {
		t.Errorf("it is written to while nothing happens: %s, then %s", quiet.ResourceVersion, now.ResourceVersion)
	}
	if quiet.Status.Plan == nil || quiet.Status.Plan.State != v1alpha1.PlanDone {
		t.Errorf("plan %+v after a restart, which had none to do", quiet.Status.Plan)
	}
	_ = pools

	// A pod has VF 1. Going back to legacy mode takes it away.
	vf := vfAddress(t, m, 1)
	pod := k.hold(m, "n1", "holder", vf)
	k.inside(m, pod, vf)
	bystander := k.hold(machine{dir: t.TempDir()}, "n1", "bystander", "0000:99:00.1")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"}}
	one := intstr.FromInt32(2)
	budget.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}}
	k.do(k.Create(ctx, budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 2, CurrentHealthy: 2, ExpectedPods: 2, DisruptionsAllowed: 0}
	k.do(k.Status().Update(ctx, budget))
	k.respec("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: legacy, numVfs: 4}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}")
	blocked := k.await("n1", "blocked by the budget", func(o *v1alpha1.NodeNIC) bool { return is(o, v1alpha1.Draining, v1alpha1.ReasonBlocked) })
	if c := meta.FindStatusCondition(blocked.Status.Conditions, v1alpha1.Draining); !strings.Contains(c.Message, "default/holder") || !strings.Contains(c.Message, "held") {
		t.Errorf("it says %q: want the pod and the budget", c.Message)
	}
	if !is(blocked, v1alpha1.DrainRequired, "") || blocked.Status.Plan.Impact != "drain" {
		t.Errorf("conditions %v, impact %q: want a drain", blocked.Status.Conditions, blocked.Status.Plan.Impact)
	}
	if n := k.nodeNow("n1"); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordoned] == "" {
		t.Error("the node takes pods while it is drained")
	}

	// Both are started anew in the middle of that.
	agent.halt()
	controller.halt()
	agent, controller = k.agent("n1", m), k.controller()
	budget.Status.DisruptionsAllowed = 1
	budget.Status.CurrentHealthy = 3
	k.do(k.Get(ctx, client.ObjectKeyFromObject(budget), budget))
	budget.Status.DisruptionsAllowed, budget.Status.CurrentHealthy = 1, 3
	k.do(k.Status().Update(ctx, budget))
	k.awaitPod(pod, "asked to go", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	m.change(t, func(s *sim.Sim) error { return s.DeleteNetns(netnsOf(pod)) })
	k.gone(m, pod, vf)
	k.await("n1", "in legacy mode", func(o *v1alpha1.NodeNIC) bool {
		return ready(o) && o.Status.Inventory.Ports[0].Eswitch == "legacy"
	})
	k.awaitPod(bystander, "let be", func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil })
	k.awaitNode("n1", "open to pods again", func(n *corev1.Node) bool {
		return !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordoned] == ""
	})

	// A wish that fails on the node is said, and nothing stays half done.
	k.respec("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: legacy, numVfs: 4, mtu: 9000}], probe: {connect: ['127.0.0.1:9'], timeout: 1s}}")
	k.await("n1", "rolled back", func(o *v1alpha1.NodeNIC) bool { return is(o, v1alpha1.Degraded, v1alpha1.ReasonRolledBack) })
	bad := k.awaitPolicy("p", "not ready", func(p *v1alpha1.NICPolicy) bool {
		return p.Status.ReadyNodes == 0 && len(p.Status.NotReady) == 1 && p.Status.NotReady[0].Reason == v1alpha1.ReasonRolledBack
	})
	if !strings.Contains(bad.Status.NotReady[0].Message, "127.0.0.1:9") {
		t.Errorf("the policy says %q", bad.Status.NotReady[0].Message)
	}
	var events eventsv1.EventList
	k.do(k.List(ctx, &events))
	for _, want := range []string{"Resolved", "LetGo", "Cordoned", "Evicted", "Uncordoned", v1alpha1.ReasonRolledBack} {
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == want && e.Regarding.Name == "n1" }) {
			t.Errorf("there is no event %s of n1", want)
		}
	}
	agent.halt()
	controller.halt()
}

func (k *kube) nodeNow(name string) *corev1.Node {
	k.t.Helper()
	n := &corev1.Node{}
	k.do(k.Get(k.t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

func (k *kube) awaitNode(name, what string, so func(*corev1.Node) bool) {
	k.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if so(k.nodeNow(name)) {
			return
		}
	}
	k.t.Fatalf("node %s does not become: %s", name, what)
}

// vfAddress is the PCI address of a VF of the first PF.
func vfAddress(t *testing.T, m machine, index int) string {
	t.Helper()
	o := &options{sim: m.sim, stateDir: m.dir}
	var out string
	err := o.with(func(n *node) error {
		state, err := n.observe(t.Context())
		if err != nil {
			return err
		}
		if index >= len(state.PFs[0].VFs) {
			return fmt.Errorf("%s has no VF %d: %w", state.PFs[0].Handle, index, fs.ErrNotExist)
		}
		out = state.PFs[0].VFs[index].Address
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out == "" {
		t.Fatal(errors.New("it has no address"))
	}
	return out
}

// Two policies that contradict each other are named in both, and the node stays as
// it is; when one has the higher priority it is heard. Of two nodes one changes at a
// time: the second waits, and its agent says so.
func TestB51PoliciesInACluster(t *testing.T) {
	k := newKube(t)
	for _, name := range []string{"n1", "n2"} {
		k.node(name)
		k.agent(name, newMachine(t))
	}
	k.controller()
	k.policy("blue", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 4, vfGroups: [{range: 0-2, mtu: 1400}]}]}")
	for _, n := range []string{"n1", "n2"} {
		k.await(n, "as blue wants it", ready)
	}
	before := k.await("n1", "there", ready)

	const green = "pfs: [{pf: '0000:03:00.0', numVfs: 3, vfGroups: [{range: 1-1, mtu: 1300}]}]}"
	k.policy("green", "{nodeSelector: {}, "+green)
	for name, other := range map[string]string{"blue": "green", "green": "blue"} {
		p := k.awaitPolicy(name, "conflicted", func(p *v1alpha1.NICPolicy) bool {
			return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.Conflicted) && len(p.Status.Conflicts) == 2 && p.Status.Conflicts[0].Nodes == 2
		})
		for i, want := range []string{"numVfs: 4 and 3", "vfGroups: VF 1 in both"} {
			if c := p.Status.Conflicts[i]; c.With != other || !strings.Contains(c.Message, want) || !strings.Contains(c.Message, `policies "blue" and "green"`) {
				t.Errorf("policy %s: %+v: want %q with %s", name, c, want, other)
			}
		}
	}
	if now := k.await("n1", "conflicted", func(o *v1alpha1.NodeNIC) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Resolved)
		return c != nil && c.Reason == v1alpha1.ReasonConflict
	}); now.Generation != before.Generation {
		t.Errorf("generation %d of a node that was at %d before the conflict", now.Generation, before.Generation)
	}

	// Louder, it is heard; and the nodes go one after the other.
	k.respec("green", "{nodeSelector: {}, priority: 1, "+green)
	most := 0
	k.awaitPolicy("green", "ready", func(p *v1alpha1.NICPolicy) bool {
		busy := 0
		for _, n := range []string{"n1", "n2"} {
			o := k.nicNow(n)
			if o.Annotations[v1alpha1.AnnotationGo] == fmt.Sprint(o.Generation) && o.Status.LastGoodGeneration != o.Generation {
				busy++
			}
		}
		most = max(most, busy)
		return p.Status.ReadyNodes == 2 && p.Status.ObservedGeneration == p.Generation && len(p.Status.Conflicts) == 0
	})
	if most > 1 {
		t.Errorf("%d nodes changed at one time, of policies that let one", most)
	}
	for _, n := range []string{"n1", "n2"} {
		if o := k.await(n, "ready", ready); o.Status.Inventory.Ports[0].VFs != 3 {
			t.Errorf("%s has %d VFs, want the three of the louder policy", n, o.Status.Inventory.Ports[0].VFs)
		}
	}
}

func (k *kube) nicNow(name string) *v1alpha1.NodeNIC {
	k.t.Helper()
	o := &v1alpha1.NodeNIC{}
	k.do(k.Get(k.t.Context(), client.ObjectKey{Name: name}, o))
	return o
}

// With the API server away an agent starts from what it took up last, offers its
// pools, and mends what a stranger changes.
func TestAgentWithoutAnAPIServer(t *testing.T) {
	k := newKube(t)
	k.node("n1")
	m := newMachine(t)
	agent, controller := k.agent("n1", m), k.controller()
	k.policy("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 3}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}")
	k.await("n1", "ready", ready)
	agent.halt()
	controller.halt()

	away := rest.AnonymousClientConfig(k.config)
	away.Host = "https://127.0.0.1:9"
	agent = k.start("agent", "--sim", m.sim, "--state-dir", m.dir, "--kubelet-dir", filepath.Join(m.dir, "kubelet"), "--node", "n1", "--kubeconfig", writeKubeconfig(t, away), "--every", "1s")
	k.logged(agent, "the node is as it was taken up last")
	other := &options{sim: m.sim, stateDir: m.dir}
	k.do(other.with(func(n *node) error { return n.machine.PCI.SetVFs(t.Context(), "0000:03:00.0", 0) }))
	k.logged(agent, "mended")
	agent.halt()
	if vfAddress(t, m, 2) == "" {
		t.Error("the VFs have not come back")
	}
}

// logged waits until a process has said something.
func (k *kube) logged(p *process, text string) {
	k.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if raw, err := os.ReadFile(p.log); err == nil && strings.Contains(string(raw), text) {
			return
		}
	}
	k.t.Fatalf("it does not say %q", text)
}

// Whoever asks agent and controller in a cluster how they are is told: by probes, and by
// metrics, those of the controller's libraries as well.
func TestProbesAndMetricsInACluster(t *testing.T) {
	k := newKube(t)
	k.node("n1")
	m := newMachine(t)
	health, agentMetrics, metrics := freeAddress(t), freeAddress(t), freeAddress(t)
	kubelet := filepath.Join(m.dir, "kubelet")
	k.do(os.MkdirAll(kubelet, 0o700))
	k.start("agent", "--sim", m.sim, "--state-dir", m.dir, "--kubelet-dir", kubelet, "--node", "n1", "--kubeconfig", writeKubeconfig(t, k.as("sluice-agent", "n1")),
		"--health-address", health, "--metrics-address", agentMetrics, "--log-format", "json")
	k.start("controller", "--kubeconfig", writeKubeconfig(t, k.as("sluice-controller", "")), "--health-address", "0", "--metrics-address", metrics)
	k.policy("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 3}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}")
	k.await("n1", "ready", ready)

	say := func(url string, want ...string) {
		t.Helper()
		var text string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			_, text = get(t, url)
			if !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(text, w) }) {
				return
			}
		}
		t.Errorf("%s: want %q in\n%s", url, want, text)
	}
	say("http://"+health+"/readyz", "node: as wanted", "sluice.dev/fast: no kubelet listens")
	say("http://"+agentMetrics+"/metrics", `sluice_functions{kind="vf"} 3`, `sluice_runs_total{outcome="reached"} `, `sluice_plan_state{state="reached"} 1`,
		`sluice_pool_devices{resource="sluice.dev/fast"} 3`, `sluice_pool_registered{resource="sluice.dev/fast"} 0`, "sluice_drift_steps 0")
	say("http://"+metrics+"/metrics", "sluice_controller_leads 1", `sluice_policies{state="ready"} 1`, `sluice_policy_ready_nodes{policy="p"} 1`,
		`sluice_node_conditions{condition="Ready",status="True"} 1`, `sluice_node_moves_total{act="let go",result="ok"} 1`, `sluice_policy_paused{policy="p"} 0`,
		`controller_runtime_reconcile_total{controller="resolve"`, "sluice_build_info{")
}

// What a test says when it waited in vain is short, and says why first.
func TestDumpIsShort(t *testing.T) {
	conditions := []metav1.Condition{{Type: "Ready", Status: "False", ObservedGeneration: 2, Reason: "Because", Message: "of this"}}
	said := dump(3, conditions, strings.Repeat("ü", 5000))
	if want := "generation 3\nReady=False of generation 2: Because: of this\n"; !strings.HasPrefix(said, want) {
		t.Errorf("it begins %q: want %q", said[:min(len(said), len(want))], want)
	}
	if len(said) > 3000 || !strings.HasSuffix(said, "ü...") {
		t.Errorf("%d bytes, which end %q: want the long part cut after a whole letter", len(said), said[max(0, len(said)-8):])
	}
}
