package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/controller"
)

// counting runs a controller whose requests are counted.
func (k *kube) counting() *counter {
	k.t.Helper()
	c := &counter{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		config := c.of(k.as("sluice-controller", ""))
		ended <- controller.Run(ctx, controller.Options{Config: config, Namespace: "sluice-system", Log: slog.New(slog.DiscardHandler)})
	}()
	k.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			k.t.Errorf("controller: %v", err)
		}
	})
	return c
}

// asWanted says that a NodeNIC of a crowd wants n VFs, and the node has them.
func asWanted(n int) func(*v1alpha1.NodeNIC) bool {
	return func(o *v1alpha1.NodeNIC) bool {
		return ready(o) && o.Spec.PFs[0].NumVFs != nil && *o.Spec.PFs[0].NumVFs == n && o.Status.Inventory.Ports[0].VFs == int32(n)
	}
}

// A hundred nodes: each gets what its policies want, no more of them change at a time
// than may, nothing is asked or written while nothing happens, and a conflict is named
// in both policies and at every node.
func TestHundredNodes(t *testing.T) {
	const nodes = 100
	k := newKube(t)
	c := k.crowd(nodes)
	requests := k.counting()
	c.await(t, "known", func(o *v1alpha1.NodeNIC) bool { return o.Status.Inventory != nil })

	k.policy("p", "{nodeSelector: {}, maxUnavailable: 20%, pfs: [{pf: '0000:03:00.0', numVfs: 4}]}")
	c.await(t, "of four VFs", asWanted(4))
	k.awaitPolicy("p", "ready", func(p *v1alpha1.NICPolicy) bool { return p.Status.ReadyNodes == nodes })
	t.Logf("first wish: %v", requests.now())

	// What changes no NIC needs no turn.
	quiet(t, c, requests)
	before := requests.now()
	k.respec("p", "{nodeSelector: {}, maxUnavailable: 20%, pfs: [{pf: '0000:03:00.0', numVfs: 4}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}")
	c.await(t, "with a pool", func(o *v1alpha1.NodeNIC) bool { return ready(o) && len(o.Spec.Pools) == 1 })
	k.awaitPolicy("p", "ready", func(p *v1alpha1.NICPolicy) bool {
		return p.Status.ReadyNodes == nodes && p.Status.ObservedGeneration == p.Generation
	})
	quiet(t, c, requests)
	asked := requests.since(before)
	t.Logf("a change of pools: %v", asked)
	if asked["PATCH nodenics"] != nodes || asked["PATCH nodenics/status"] != 0 {
		t.Errorf("requests of the controller for a change of pools: %v: want one write of each NodeNIC, and none of a status", asked)
	}

	k.policy("q", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 6}]}")
	for name, other := range map[string]string{"p": "q", "q": "p"} {
		p := k.awaitPolicy(name, "in conflict on all nodes", func(p *v1alpha1.NICPolicy) bool {
			return len(p.Status.Conflicts) == 1 && p.Status.Conflicts[0].Nodes == nodes
		})
		if p.Status.Conflicts[0].With != other || len(p.Status.NotReady) != 20 {
			t.Errorf("policy %s: %+v: want a conflict with %s, and 20 nodes listed", name, p.Status.Conflicts, other)
		}
	}
	c.await(t, "in conflict", func(o *v1alpha1.NodeNIC) bool {
		r := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Resolved)
		return r != nil && r.Status == metav1.ConditionFalse && r.Reason == v1alpha1.ReasonConflict && *o.Spec.PFs[0].NumVFs == 4
	})
	quiet(t, c, requests)
}

// quiet waits for a time in which nothing happens: no NodeNIC is written, and nothing
// asked by anybody. What has happened before may go on for a while, not for ever.
func quiet(t *testing.T, c *crowd, requests *counter) {
	t.Helper()
	const silence = 6 * time.Second
	var agents, controllers map[string]int
	written := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		agents, controllers = c.counts.now(), requests.now()
		before := c.versions()
		time.Sleep(silence)
		agents, controllers = c.counts.since(agents), requests.since(controllers)
		written = cmp.Diff(before, c.versions())
		if total(agents)+total(controllers) == 0 && written == "" {
			return
		}
	}
	t.Errorf("there is always something: agents ask %v, the controller %v, written are %s", agents, controllers, written)
}

// versions are those of all NodeNICs.
func (c *crowd) versions() map[string]string {
	out := map[string]string{}
	for name, o := range c.seen() {
		out[name] = o.ResourceVersion
	}
	return out
}

// A node that nobody has heard of for some time counts as unavailable: others go on as
// far as maxUnavailable lets them, and then it is said who holds them up and why. Its
// NodeNIC does not say ready any more, until its agent says so again.
func TestNodeThatWentAway(t *testing.T) {
	k := newKube(t)
	c := k.crowd(4)
	requests := k.counting()
	c.await(t, "known", func(o *v1alpha1.NodeNIC) bool { return o.Status.Inventory != nil })
	k.policy("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 4}]}")
	c.await(t, "of four VFs", asWanted(4))

	k.heartbeat("node-0002", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	k.await("node-0002", "not known to be ready", func(o *v1alpha1.NodeNIC) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Ready)
		return c.Status == metav1.ConditionUnknown && c.Reason == v1alpha1.ReasonNodeAway && strings.Contains(c.Message, "Kubelet stopped posting node status.")
	})
	k.respec("p", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 2}]}")
	held := k.awaitPolicy("p", "held up", func(p *v1alpha1.NICPolicy) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.Progressing)
		return c != nil && c.Reason == v1alpha1.ReasonHeldUp && strings.HasPrefix(c.Message, "3 nodes wait: ")
	})
	for _, kind := range []string{v1alpha1.Progressing, v1alpha1.Ready} {
		c := meta.FindStatusCondition(held.Status.Conditions, kind)
		for _, want := range []string{"1 of 4 nodes may be unavailable", "node-0002 (not ready: NodeStatusUnknown since ", "Kubelet stopped posting"} {
			if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonHeldUp || !strings.Contains(c.Message, want) {
				t.Errorf("%s is %s, %s: %q; want %q", kind, c.Status, c.Reason, c.Message, want)
			}
		}
	}
	is := func(n v1alpha1.PolicyNode) bool {
		return n.Name == "node-0002" && n.Reason == v1alpha1.ReasonNodeNotReady
	}
	if !slices.ContainsFunc(held.Status.NotReady, is) {
		t.Errorf("nodes that are not ready: %+v: want the one that is away", held.Status.NotReady)
	}
	quiet(t, c, requests)

	// Two may be out: the others go past it, one at a time.
	k.respec("p", "{nodeSelector: {}, maxUnavailable: 2, pfs: [{pf: '0000:03:00.0', numVfs: 2}]}")
	k.awaitPolicy("p", "done but for one", func(p *v1alpha1.NICPolicy) bool { return p.Status.ReadyNodes == 3 })
	k.heartbeat("node-0002", corev1.ConditionTrue, "KubeletReady", "")
	c.await(t, "of two VFs", asWanted(2))
	k.awaitPolicy("p", "ready", func(p *v1alpha1.NICPolicy) bool { return p.Status.ReadyNodes == 4 })
	k.told(t, "p", v1alpha1.ReasonHeldUp)
	k.told(t, "node-0002", v1alpha1.ReasonNodeAway)
	quiet(t, c, requests)
}

// heartbeat makes a node say of itself what kubelet or the node controller would.
func (k *kube) heartbeat(name string, status corev1.ConditionStatus, reason, message string) {
	k.t.Helper()
	n := k.nodeNow(name)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}}
	k.do(k.Status().Update(k.t.Context(), n))
}

// told waits for an event about an object.
func (k *kube) told(t *testing.T, name, reason string) {
	t.Helper()
	var all eventsv1.EventList
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		k.do(k.List(t.Context(), &all))
		if slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool {
			return e.Reason == reason && e.Regarding.Name == name && e.Type == corev1.EventTypeWarning
		}) {
			return
		}
	}
	t.Errorf("there is no warning %s of %s", reason, name)
}
