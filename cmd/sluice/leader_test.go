package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// Nodes are drained, two at a time. The controller that leads is killed in the middle
// of a drain; the next is stopped in the middle of the rollout, as a machine stops that
// has no memory left, and goes on after a third has taken over. All nodes get there,
// never more than two are out, each is emptied and opened again once.
func TestLeadersComeAndGo(t *testing.T) {
	k := newKube(t)
	c := k.crowd(9)
	watch := k.referee(2)
	config := writeKubeconfig(t, k.as("sluice-controller", ""))
	replica := func() *child { return spawn(t, "controller", "--kubeconfig", config, "--health-address", "0") }
	first, second := replica(), replica()
	c.await(t, "known", func(o *v1alpha1.NodeNIC) bool { return o.Status.Inventory != nil })
	k.policy("p", "{nodeSelector: {}, maxUnavailable: 2, pfs: [{pf: '0000:03:00.0', numVfs: 4}]}")
	c.await(t, "of four VFs", asWanted(4))
	for name, s := range c.nodes {
		k.podOn(name, "holder-of-"+name)
		s.hold("default/holder-of-" + name)
	}

	k.respec("p", "{nodeSelector: {}, maxUnavailable: 2, pfs: [{pf: '0000:03:00.0', numVfs: 2}]}")
	for len(k.leaving()) < 2 {
		time.Sleep(100 * time.Millisecond)
	}
	leader, other := first, second
	if !first.leads() {
		leader, other = second, first
	}
	leader.kill()
	other.awaitLead()

	go k.kubelets(t.Context(), c)
	third := replica()
	c.awaitSome(t, 4, asWanted(2))
	other.signal(syscall.SIGSTOP)
	third.awaitLead()
	other.signal(syscall.SIGCONT)
	c.await(t, "of two VFs", asWanted(2))
	k.awaitPolicy("p", "ready", func(p *v1alpha1.NICPolicy) bool { return p.Status.ReadyNodes == 9 })
	for _, name := range c.names {
		k.awaitNode(name, "open to pods", func(n *corev1.Node) bool {
			return !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordoned] == ""
		})
	}
	watch.judge(t, c.names)
}

// leads says that the controller has begun to work.
func (c *child) leads() bool {
	raw, err := os.ReadFile(c.cmd.Stdout.(*os.File).Name())
	return err == nil && strings.Contains(string(raw), "Starting workers")
}

func (c *child) awaitLead() {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !c.leads(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatal("nobody takes over")
		}
	}
}

// awaitSome waits until so holds of some of the NodeNICs.
func (c *crowd) awaitSome(t testing.TB, some int, so func(*v1alpha1.NodeNIC) bool) {
	t.Helper()
	for end := time.Now().Add(c.patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		n := 0
		for _, o := range c.seen() {
			if so(o) {
				n++
			}
		}
		if n >= some {
			return
		}
	}
	t.Fatalf("not even %d nodes get there", some)
}

func (k *kube) podOn(node, name string) {
	k.t.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name = "default", name
	p.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	k.do(k.Create(k.t.Context(), p))
	p.Status.Phase = corev1.PodRunning
	k.do(k.Status().Update(k.t.Context(), p))
}

// leaving are the pods that have been asked to go.
func (k *kube) leaving() []corev1.Pod {
	k.t.Helper()
	var pods corev1.PodList
	k.do(k.List(k.t.Context(), &pods, client.InNamespace("default")))
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil })
}

// kubelets end the pods of a crowd that have been asked to go.
func (k *kube) kubelets(ctx context.Context, c *crowd) {
	for ; ctx.Err() == nil; time.Sleep(300 * time.Millisecond) {
		var pods corev1.PodList
		if k.List(ctx, &pods, client.InNamespace("default")) != nil {
			continue
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp != nil && k.Delete(ctx, &p, client.GracePeriodSeconds(0)) == nil {
				c.nodes[p.Spec.NodeName].hold("")
			}
		}
	}
}

// referee sees every change of Nodes and NodeNICs, in their order.
type referee struct {
	most int

	mu       sync.Mutex
	going    map[string]bool
	cordoned map[string]bool
	opened   map[string]int // how often
	fouls    []string
}

// referee watches over a rollout of which most nodes may be out at one time.
func (k *kube) referee(most int) *referee {
	k.t.Helper()
	r := &referee{most: most, going: map[string]bool{}, cordoned: map[string]bool{}, opened: map[string]int{}}
	scheme := runtime.NewScheme()
	k.do(corev1.AddToScheme(scheme))
	k.do(v1alpha1.AddToScheme(scheme))
	all, err := cache.New(k.config, cache.Options{Scheme: scheme})
	k.do(err)
	for _, o := range []client.Object{&corev1.Node{}, &v1alpha1.NodeNIC{}} {
		informer, err := all.GetInformer(k.t.Context(), o, cache.BlockUntilSynced(false))
		k.do(err)
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: r.see, UpdateFunc: func(_, o any) { r.see(o) }})
		k.do(err)
	}
	go func() { _ = all.Start(k.t.Context()) }()
	return r
}

func (r *referee) see(object any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := object.(type) {
	case *v1alpha1.NodeNIC:
		r.count("changing", r.going, o.Name, o.Annotations[v1alpha1.AnnotationGo] == fmt.Sprint(o.Generation) && o.Status.LastGoodGeneration != o.Generation)
	case *corev1.Node:
		if r.cordoned[o.Name] && !o.Spec.Unschedulable {
			r.opened[o.Name]++
		}
		r.count("cordoned", r.cordoned, o.Name, o.Spec.Unschedulable)
	}
}

func (r *referee) count(what string, set map[string]bool, name string, in bool) {
	if in {
		set[name] = true
	} else {
		delete(set, name)
	}
	if len(set) > r.most {
		r.fouls = append(r.fouls, fmt.Sprintf("%d nodes are %s: %v", len(set), what, slices.Sorted(maps.Keys(set))))
	}
}

// judge says what was against the rules, of nodes that were each drained.
func (r *referee) judge(t *testing.T, names []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fouls {
		t.Error(f)
	}
	for _, name := range names {
		if r.opened[name] != 1 {
			t.Errorf("%s was opened to pods %d times: want once", name, r.opened[name])
		}
	}
}

// The agent dies in the middle of a change for which pods have left, and the controller
// too. Started anew they finish it: the node is not drained again, and is open to pods
// in the end.
func TestDrainedRunKilledHalfway(t *testing.T) {
	k := newKube(t)
	k.node("n1")
	m := newMachine(t)
	m.sim += "+fail:verb=set eswitch mode,crash=on,after=on,times=1" // once, whoever does it
	watch := k.referee(1)
	k.do(os.MkdirAll(m.dir+"/kubelet", 0o700))
	asAgent, asController := writeKubeconfig(t, k.as("sluice-agent", "n1")), writeKubeconfig(t, k.as("sluice-controller", ""))
	agent := func() *child {
		return spawn(t, "agent", "--sim", m.sim, "--state-dir", m.dir, "--kubelet-dir", m.dir+"/kubelet", "--node", "n1", "--kubeconfig", asAgent)
	}
	controller := func() *child {
		return spawn(t, "controller", "--kubeconfig", asController, "--health-address", "0", "--leader-elect=false")
	}
	dying, first := agent(), controller()
	k.policy("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 4}]}")
	k.await("n1", "ready", ready)
	vf := vfAddress(t, m, 1)
	pod := k.hold(m, "n1", "holder", vf)

	k.respec("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', eswitch: switchdev, numVfs: 4}]}")
	k.awaitPod(pod, "asked to go", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })

	// The controller dies while the pod leaves, the agent in the midst of the mode change.
	first.kill()
	k.gone(m, pod, vf)
	second := controller()
	select {
	case <-dying.end:
	case <-time.After(3 * time.Minute):
		t.Fatal("the agent does not get to the mode change")
	}
	if code := dying.cmd.ProcessState.ExitCode(); code != 137 {
		t.Fatalf("the agent ends with %d, want it killed", code)
	}
	half := k.nicNow("n1")
	if n := k.nodeNow("n1"); !n.Spec.Unschedulable || half.Annotations[v1alpha1.AnnotationDrained] != fmt.Sprint(half.Generation) || half.Status.LastGoodGeneration == half.Generation {
		t.Errorf("unschedulable %v, annotations %v: want a node in the middle of a drained change", n.Spec.Unschedulable, half.Annotations)
	}
	second.kill()

	agent()
	controller()
	k.await("n1", "in switchdev mode", func(o *v1alpha1.NodeNIC) bool { return ready(o) && o.Status.Inventory.Ports[0].Eswitch == "switchdev" })
	k.awaitNode("n1", "open to pods again", func(n *corev1.Node) bool {
		return !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordoned] == ""
	})
	k.await("n1", "with nothing left of the drain", func(o *v1alpha1.NodeNIC) bool { return o.Annotations[v1alpha1.AnnotationDrained] == "" })
	watch.judge(t, []string{"n1"})
}
