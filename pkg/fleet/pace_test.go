package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// of is a policy that chooses the nodes with a label.
func of(name, label string, most *intstr.IntOrString) v1alpha1.NICPolicy {
	p := v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}
	p.Spec.MaxUnavailable = most
	return p
}

// asking is a node whose plan waits.
func asking(name string, labels ...string) Node {
	n := Node{Name: name, Ready: true, Labels: map[string]string{}, NIC: &v1alpha1.NodeNIC{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2, Annotations: map[string]string{}},
	}}
	for _, l := range labels {
		n.Labels[l] = "yes"
	}
	n.NIC.Status.LastGoodGeneration = 1
	n.NIC.Status.Plan = &v1alpha1.Plan{Generation: 2, State: v1alpha1.PlanWaiting, Impact: "link flap"}
	return n
}

func (n Node) with(f func(*Node)) Node {
	n.NIC = n.NIC.DeepCopy()
	f(&n)
	return n
}

func let(n *Node) { n.NIC.Annotations[v1alpha1.AnnotationGo] = "2" }
func degraded(n *Node) {
	n.NIC.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Degraded, Status: "True", ObservedGeneration: 1}}
}
func failed(n *Node) {
	n.NIC.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Degraded, Status: "True", ObservedGeneration: 2}}
	n.NIC.Status.Plan.State = v1alpha1.PlanFailed
}
func good(n *Node) {
	n.NIC.Status.LastGoodGeneration = 2
	n.NIC.Status.Plan.State = v1alpha1.PlanDone
}

func away(n *Node) { n.Ready, n.Lost, n.Away = false, true, "NodeStatusUnknown" }
func blocked(n *Node) {
	let(n)
	n.NIC.Status.Plan.Impact = "drain"
	n.NIC.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Draining, Status: "True", Reason: v1alpha1.ReasonBlocked, Message: "budget b"}}
}

func TestTurns(t *testing.T) {
	two, share := intstr.FromInt32(2), intstr.FromString("34%")
	full := func(policy string, most, size int, out string) Turn {
		return Turn{Wait: fmt.Sprintf("policy %q: %d of %d nodes may be unavailable at one time (maxUnavailable), and are: %s", policy, most, size, out)}
	}
	held := func(policy string, most, size int, out string) Turn {
		return Turn{full(policy, most, size, out).Wait, true}
	}
	for name, c := range map[string]struct {
		policies []v1alpha1.NICPolicy
		nodes    []Node
		want     map[string]Turn
	}{
		"one at a time, by name": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n2", "a"), asking("n1", "a"), asking("n3", "a")},
			map[string]Turn{"n1": {}, "n2": full("p", 1, 3, "n1"), "n3": full("p", 1, 3, "n1")},
		},
		"two at a time, and one goes already": {
			[]v1alpha1.NICPolicy{of("p", "a", &two)},
			[]Node{asking("n1", "a").with(let), asking("n2", "a"), asking("n3", "a")},
			map[string]Turn{"n2": {}, "n3": full("p", 2, 3, "n1, n2")},
		},
		"a share is rounded up": {
			[]v1alpha1.NICPolicy{of("p", "a", &share)},
			[]Node{asking("n1", "a"), asking("n2", "a"), asking("n3", "a")},
			map[string]Turn{"n1": {}, "n2": {}, "n3": full("p", 2, 3, "n1, n2")},
		},
		"a node of two policies asks both": {
			[]v1alpha1.NICPolicy{of("p", "a", &two), of("q", "b", nil)},
			[]Node{asking("n1", "b").with(let), asking("n2", "a", "b"), asking("n3", "a")},
			map[string]Turn{"n2": full("q", 1, 2, "n1"), "n3": {}},
		},
		"a broken node stops the others, and may itself": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n1", "a"), asking("n2", "a").with(degraded)},
			map[string]Turn{"n1": full("p", 1, 2, "n2"), "n2": {}},
		},
		"a change that failed stops the others": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n1", "a").with(let).with(failed), asking("n2", "a")},
			map[string]Turn{"n2": held("p", 1, 2, "n1 (its last change failed)")},
		},
		"one that refuses carries on as before": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n1", "a").with(failed).with(func(n *Node) { n.NIC.Status.Conditions[0].Reason = v1alpha1.ReasonRefused }), asking("n2", "a")},
			map[string]Turn{"n2": {}},
		},
		"a node that has gone away counts, and holds up the others": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n1", "a").with(good).with(away), asking("n2", "a")},
			map[string]Turn{"n2": held("p", 1, 2, "n1 (not ready: NodeStatusUnknown)")},
		},
		"beside it one goes, which is waited for": {
			[]v1alpha1.NICPolicy{of("p", "a", &two)},
			[]Node{asking("n1", "a").with(let), asking("n2", "a"), asking("n3", "a").with(good).with(away)},
			map[string]Turn{"n2": full("p", 2, 3, "n3 (not ready: NodeStatusUnknown), n1")},
		},
		"of two policies the one that is held up is said": {
			[]v1alpha1.NICPolicy{of("p", "a", nil), of("q", "b", nil)},
			[]Node{asking("n1", "a").with(let), asking("n2", "a", "b"), asking("n3", "b").with(good).with(away)},
			map[string]Turn{"n2": held("q", 1, 2, "n3 (not ready: NodeStatusUnknown)")},
		},
		"one whose drain is blocked holds up the others": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n1", "a").with(blocked), asking("n2", "a")},
			map[string]Turn{"n2": held("p", 1, 2, "n1 (its drain is blocked: budget b)")},
		},
		"one that has got there does not": {
			[]v1alpha1.NICPolicy{of("p", "a", nil)},
			[]Node{asking("n1", "a").with(let).with(good), asking("n2", "a")},
			map[string]Turn{"n2": {}},
		},
		"nobody's node is nobody's concern": {
			nil, []Node{asking("n1"), asking("n2")}, map[string]Turn{"n1": {}, "n2": {}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Turns(c.policies, c.nodes)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNext(t *testing.T) {
	drain := func(n *Node) {
		let(n)
		n.NIC.Status.Plan.Impact = "drain"
		n.NIC.Status.Plan.Holders = []v1alpha1.Holder{{Device: "vf 1", Pod: "x/b"}, {Device: "vf 2", Pod: "x/a"}, {Device: "vf 3", Pod: "x/a"}}
		n.Pods = map[string]bool{"x/a": true, "x/b": true, "x/other": true}
	}
	cordoned := func(n *Node) { n.Cordoned = "2" }
	for name, c := range map[string]struct {
		node Node
		turn string
		want Move
	}{
		"its turn":      {asking("n"), "", Move{Act: LetGo, Why: "may change to generation 2"}},
		"not its turn":  {asking("n"), "others", Move{Why: "others"}},
		"at work":       {asking("n").with(let), "", Move{}},
		"to be drained": {asking("n").with(drain), "", Move{Act: Cordon, Why: "pods leave that hold what generation 2 changes"}},
		"cordoned for what was wanted before": {
			asking("n").with(drain).with(func(n *Node) { n.Cordoned = "1" }), "",
			Move{Act: Cordon, Why: "pods leave that hold what generation 2 changes"},
		},
		"cordoned: only those that hold something": {
			asking("n").with(drain).with(cordoned), "",
			Move{Act: Evict, Pods: []string{"x/a", "x/b"}, Why: "waits for x/a, x/b to go"},
		},
		"gone, and the agent has not seen it": {
			asking("n").with(drain).with(cordoned).with(func(n *Node) { n.Pods = nil }), "",
			Move{Act: Drained, Why: "the pods that held what the plan takes have gone"},
		},
		"held by nobody who could be asked": {
			asking("n").with(drain).with(cordoned).with(func(n *Node) {
				n.NIC.Status.Plan.Holders = []v1alpha1.Holder{{Device: "vf 1", Why: "its netdev is in another network namespace"}}
			}), "",
			Move{Why: "waits for devices that no pod is known to have: vf 1 (its netdev is in another network namespace)"},
		},
		"said to be drained": {
			asking("n").with(drain).with(cordoned).with(func(n *Node) { n.NIC.Annotations[v1alpha1.AnnotationDrained] = "2" }), "", Move{},
		},
		"there": {
			asking("n").with(drain).with(cordoned).with(good), "", Move{Act: Uncordon, Why: "the change for which it was made has ended"},
		},
		"failed": {
			asking("n").with(drain).with(cordoned).with(failed), "", Move{Act: Uncordon, Why: "the change for which it was made has ended"},
		},
		"there, and something is left": {
			asking("n").with(good).with(func(n *Node) { n.NIC.Annotations[v1alpha1.AnnotationDrained] = "1" }), "", Move{Act: Forget},
		},
		"there, and nothing is left": {asking("n").with(good), "", Move{}},
		"another wish in the middle, of which the agent has not heard": {
			asking("n").with(drain).with(cordoned).with(func(n *Node) { n.NIC.Generation = 3 }), "", Move{},
		},
		"its NodeNIC has gone": {
			Node{Name: "n", Cordoned: "2"}, "", Move{Act: Uncordon, Why: "the change for which it was made has ended"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Next(c.node, c.turn)); d != "" {
				t.Error(d)
			}
		})
	}
}

// world is nodes with agents and pods that do what they do in any order, and a
// controller that remembers nothing.
type world struct {
	*rand.Rand
	policies []v1alpha1.NICPolicy
	nodes    map[string]*Node
	budget   map[string]int // how often an eviction of the pod is refused
	evicted  map[string]bool
}

func newWorld(r *rand.Rand) *world {
	w := &world{Rand: r, nodes: map[string]*Node{}, budget: map[string]int{}, evicted: map[string]bool{}}
	one, share := intstr.FromInt32(int32(1+r.IntN(3))), intstr.FromString("25%")
	w.policies = []v1alpha1.NICPolicy{of("p", "a", &one), of("q", "b", &share), of("rest", "c", nil)}
	for i := range 3 + r.IntN(8) {
		n := asking(fmt.Sprintf("n%d", i))
		for _, l := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				n.Labels[l] = "yes"
			}
		}
		n.NIC.Status.Plan = nil
		n.Pods = map[string]bool{}
		for p := range r.IntN(4) {
			pod := fmt.Sprintf("ns/%s-%d", n.Name, p)
			n.Pods[pod] = true
			w.budget[pod] = r.IntN(4)
		}
		w.nodes[n.Name] = &n
	}
	return w
}

// plan is what the agent publishes: some of the pods hold what is taken.
func (w *world) plan(n *Node) {
	p := &v1alpha1.Plan{Generation: n.NIC.Generation, State: v1alpha1.PlanWaiting, Impact: "link flap"}
	for i, pod := range slices.Sorted(maps.Keys(n.Pods)) {
		if i%2 == 0 {
			p.Holders = append(p.Holders, v1alpha1.Holder{Device: fmt.Sprint("vf ", i), Pod: pod})
			p.Impact = "drain"
		}
	}
	n.NIC.Status.Plan = p
}

// agent does one thing that an agent may do.
func (w *world) agent(n *Node) {
	gen := strconv.FormatInt(n.NIC.Generation, 10)
	p := n.NIC.Status.Plan
	switch {
	case n.reached():
	case p == nil || p.Generation != n.NIC.Generation:
		w.plan(n)
	case p.State == v1alpha1.PlanRunning:
		p.State = v1alpha1.PlanDone
		n.NIC.Status.LastGoodGeneration = n.NIC.Generation
	case n.NIC.Annotations[v1alpha1.AnnotationGo] != gen:
	case p.Impact != "drain" || n.NIC.Annotations[v1alpha1.AnnotationDrained] == gen:
		p.State = v1alpha1.PlanRunning
	}
}

func (w *world) controller(t *testing.T, n *Node) {
	var all []Node
	for _, o := range w.nodes {
		all = append(all, *o)
	}
	m := Next(*n, Turns(w.policies, all)[n.Name].Wait)
	gen := strconv.FormatInt(n.NIC.Generation, 10)
	switch m.Act {
	case LetGo:
		n.NIC.Annotations[v1alpha1.AnnotationGo] = gen
	case Cordon:
		n.Cordoned = gen
	case Evict:
		for _, pod := range m.Pods {
			if !slices.ContainsFunc(n.NIC.Status.Plan.Holders, func(h v1alpha1.Holder) bool { return h.Pod == pod }) {
				t.Fatalf("%s holds nothing that is taken, and is evicted", pod)
			}
			if w.budget[pod]--; w.budget[pod] < 0 {
				delete(n.Pods, pod)
				w.evicted[pod] = true
			}
		}
	case Drained:
		n.NIC.Annotations[v1alpha1.AnnotationDrained] = gen
	case Uncordon:
		n.Cordoned = ""
	case Forget:
		delete(n.NIC.Annotations, v1alpha1.AnnotationDrained)
	}
}

// Whatever happens in which order: never more nodes are out than each policy lets
// be, only pods that hold something go, and in the end all nodes are as wanted,
// none is cordoned, and there is nothing more to do.
func TestRolloutLaws(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(rand.New(rand.NewPCG(seed, 1)))
		names := slices.Sorted(maps.Keys(w.nodes))
		for step := 0; !w.ended(); step++ {
			if step == 2000*len(names) {
				t.Fatalf("seed %d: after %d steps: %s", seed, step, text(w.nodes))
			}
			n := w.nodes[names[w.IntN(len(names))]]
			if w.IntN(2) == 0 {
				w.agent(n)
			} else {
				w.controller(t, n)
			}
			w.within(t, seed)
		}
	}
}

// ended says that all is as wanted, and nothing is left of the way there.
func (w *world) ended() bool {
	for _, n := range w.nodes {
		if !n.reached() || n.Cordoned != "" || n.NIC.Annotations[v1alpha1.AnnotationDrained] != "" {
			return false
		}
	}
	return true
}

func (w *world) within(t *testing.T, seed uint64) {
	t.Helper()
	for i := range w.policies {
		p := &w.policies[i]
		size, out := 0, 0
		for _, n := range w.nodes {
			if yes, err := Chooses(p, n.Labels); err != nil {
				t.Fatal(err)
			} else if !yes {
				continue
			}
			size++
			if n.Cordoned != "" || n.NIC.Status.Plan != nil && n.NIC.Status.Plan.State == v1alpha1.PlanRunning {
				out++
			}
		}
		limit := 1
		switch {
		case p.Spec.MaxUnavailable == nil:
		case p.Spec.MaxUnavailable.Type == intstr.Int:
			limit = p.Spec.MaxUnavailable.IntValue()
		default:
			limit = (size + 3) / 4
		}
		if out > max(limit, 1) {
			t.Fatalf("seed %d: policy %s: %d of %d nodes are out, and %d may be", seed, p.Name, out, size, limit)
		}
	}
}

// A rollout is paused when nodes wait, nothing moves, and no place is left: not while
// somebody is on the way, and not where nobody waits.
func TestPaused(t *testing.T) {
	two := intstr.FromInt32(2)
	for name, c := range map[string]struct {
		most  *intstr.IntOrString
		nodes []Node
		want  bool
	}{
		"nobody waits":        {nil, []Node{asking("a", "x").with(good)}, false},
		"its turn":            {nil, []Node{asking("a", "x")}, false},
		"one is on its way":   {nil, []Node{asking("a", "x").with(let), asking("b", "x")}, false},
		"one is broken":       {nil, []Node{asking("a", "x").with(failed), asking("b", "x")}, true},
		"two may be":          {&two, []Node{asking("a", "x").with(failed), asking("b", "x")}, false},
		"broken and moving":   {&two, []Node{asking("a", "x").with(failed), asking("b", "x").with(let), asking("c", "x")}, false},
		"another's is broken": {nil, []Node{asking("a", "y").with(failed), asking("b", "x")}, false},
		"its node is away":    {nil, []Node{asking("a", "x").with(func(n *Node) { n.Ready = false }).with(good), asking("b", "x")}, true},
	} {
		got := Paused([]v1alpha1.NICPolicy{of("p", "x", c.most)}, c.nodes)["p"]
		if got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A node that has just joined has no NodeNIC yet: nothing is to be done there, and
// nothing is asked of what is not there.
func TestNodeWithoutANodeNIC(t *testing.T) {
	n := Node{Name: "new", Ready: true, Labels: map[string]string{"a": "yes"}}
	if n.Drains() {
		t.Error("it drains")
	}
	turns := Turns([]v1alpha1.NICPolicy{of("p", "a", nil)}, []Node{n})
	if m := Next(n, turns["new"].Wait); m.Act != Nothing {
		t.Errorf("the next move is %+v: want none", m)
	}
}

func TestRolloutOf(t *testing.T) {
	p := of("p", "a", nil)
	for name, c := range map[string]struct {
		nodes []Node
		want  Rollout
	}{
		"all there": {[]Node{asking("n1", "a").with(good)}, Rollout{}},
		"one goes, one waits": {
			[]Node{asking("n1", "a").with(let), asking("n2", "a")},
			Rollout{Changing: 1, Waiting: 1, Why: `policy "p": 1 of 2 nodes may be unavailable at one time (maxUnavailable), and are: n1`},
		},
		"one is away, two wait": {
			[]Node{asking("n1", "a").with(good).with(away), asking("n2", "a"), asking("n3", "a")},
			Rollout{Waiting: 2, Held: true, Why: `policy "p": 1 of 3 nodes may be unavailable at one time (maxUnavailable), and are: n1 (not ready: NodeStatusUnknown)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, RolloutOf(c.nodes, Turns([]v1alpha1.NICPolicy{p}, c.nodes))); d != "" {
				t.Error(d)
			}
		})
	}
}
