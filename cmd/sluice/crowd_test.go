package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/nodeapi"
	"sluice.dev/sluice/pkg/plan"
	"sluice.dev/sluice/pkg/policy"
)

// crowd is the agents of many nodes in one process. Each is the agent that runs on a
// node, down to its writes, over a node that is no more than a nic.State: planned for
// real, and changed as the planner predicts. One watch serves all of them.
type crowd struct {
	names  []string
	nodes  map[string]*stage
	counts *counter

	patience time.Duration

	mu   sync.Mutex
	tell map[string]func(*v1alpha1.NodeNIC)
	last map[string]*v1alpha1.NodeNIC
}

// crowd makes n ready nodes, and their agents, which work until the test ends.
func (k *kube) crowd(n int) *crowd {
	k.t.Helper()
	state := simulated(k.t, "mlx5:cards=1,vfs=8")
	c := &crowd{nodes: map[string]*stage{}, counts: &counter{}, patience: 5 * time.Minute, tell: map[string]func(*v1alpha1.NodeNIC){}, last: map[string]*v1alpha1.NodeNIC{}}
	for i := range n {
		c.names = append(c.names, fmt.Sprintf("node-%04d", i))
	}
	k.do(several(c.names, k.readyNode))
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	k.t.Cleanup(func() {
		stop()
		working.Wait()
	})
	config := c.counts.of(k.config)
	working.Go(func() {
		if err := c.watch(ctx, config); err != nil {
			k.t.Errorf("the crowd hears nothing: %v", err)
		}
	})
	for _, name := range c.names {
		server, err := nodeapi.Dial(config, name)
		k.do(err)
		s := &stage{state: state.Clone(), orders: make(chan *v1alpha1.NodeNIC, 1), current: &v1alpha1.NodeNIC{}}
		s.agent = nodeapi.New(seat{server, c, name}, s, "crowd", slog.New(slog.DiscardHandler))
		c.nodes[name] = s
		working.Go(func() {
			if err := s.agent.Run(ctx); err != nil {
				k.t.Errorf("%s: %v", name, err)
			}
		})
		working.Go(func() { s.work(ctx) })
	}
	return c
}

// several does the same for all, 16 at a time.
func several(names []string, do func(string) error) error {
	var all sync.WaitGroup
	failed := make([]error, len(names))
	room := make(chan struct{}, 16)
	for i, name := range names {
		room <- struct{}{}
		all.Go(func() {
			failed[i] = do(name)
			<-room
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// simulated is a machine as it is observed.
func simulated(t testing.TB, sim string) nic.State {
	t.Helper()
	var out nic.State
	err := (&options{sim: sim, stateDir: t.TempDir()}).with(func(n *node) (err error) {
		out, err = n.observe(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readyNode makes a node of which kubelet says that it is ready.
func (k *kube) readyNode(name string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "worker"}}}
	if err := k.Create(context.Background(), n); err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return k.Status().Update(context.Background(), n)
}

// watch tells each agent of its object.
func (c *crowd) watch(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	all, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	informer, err := all.GetInformer(ctx, &v1alpha1.NodeNIC{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	heard := func(object any) {
		o, ok := object.(*v1alpha1.NodeNIC)
		if !ok {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last[o.Name] = o
		if tell := c.tell[o.Name]; tell != nil {
			tell(o.DeepCopy())
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: heard, UpdateFunc: func(_, o any) { heard(o) }})
	if err != nil {
		return err
	}
	return all.Start(ctx)
}

// seen is what the API server last told of every NodeNIC. It is not to be changed.
func (c *crowd) seen() map[string]*v1alpha1.NodeNIC {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.last)
}

// await waits until so holds of each NodeNIC, and answers how long that took.
func (c *crowd) await(t testing.TB, what string, so func(*v1alpha1.NodeNIC) bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		left, one := len(c.names), &v1alpha1.NodeNIC{}
		for _, o := range c.seen() {
			if so(o) {
				left--
			} else {
				one = o
			}
		}
		switch {
		case left == 0:
			return time.Since(begin)
		case time.Since(begin) > c.patience:
			raw, err := yaml.Marshal(one)
			t.Fatalf("%d of %d nodes do not become: %s; one of them:\n%s%v", left, len(c.names), what, raw, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// seat is one agent's API server: its own writes, and its part of the one watch.
type seat struct {
	nodeapi.Server
	crowd *crowd
	node  string
}

func (s seat) Watch(ctx context.Context, tell func(*v1alpha1.NodeNIC)) error {
	s.crowd.mu.Lock()
	s.crowd.tell[s.node] = tell
	if o := s.crowd.last[s.node]; o != nil {
		tell(o.DeepCopy())
	}
	s.crowd.mu.Unlock()
	<-ctx.Done()
	return nil
}

// stage is the engine of one node.
type stage struct {
	agent  *nodeapi.Agent
	orders chan *v1alpha1.NodeNIC

	mu      sync.Mutex
	state   nic.State
	current *v1alpha1.NodeNIC
	reached bool
	pod     string // that has VF 1 of the first PF, as namespace/name
}

// hold gives VF 1 to a pod, or takes it back: "".
func (s *stage) hold(pod string) {
	s.mu.Lock()
	s.pod = pod
	s.state = s.state.Clone()
	s.state.PFs[0].VFs[1].Owner = pod
	s.mu.Unlock()
	s.agent.Looked()
}

func (s *stage) Current() *v1alpha1.NodeNIC {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *stage) See(context.Context) (nodeapi.Seen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return nodeapi.Seen{Inventory: inventoryOf(s.state), AsWanted: s.reached}, nil
}

func (s *stage) Preview(_ context.Context, doc *v1alpha1.NodeNIC) (nodeapi.Outlook, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.plan(doc)
	out := nodeapi.Outlook{Plan: p}
	for _, u := range plan.Uses(p, s.state) {
		out.Holders = append(out.Holders, v1alpha1.Holder{Device: u.Object, Pod: s.pod})
	}
	return out, err
}

func (s *stage) plan(doc *v1alpha1.NodeNIC) (plan.Plan, error) {
	spec, err := policy.Resolve(doc, s.state)
	if err != nil {
		return plan.Plan{}, err
	}
	spec = plan.Complete(spec, s.state)
	if problems := plan.Check(spec, free(s.state)); len(problems) > 0 {
		return plan.Plan{}, &apply.RefusedError{Problems: problems}
	}
	return plan.Unfold(spec, s.state)
}

func (s *stage) Take(doc *v1alpha1.NodeNIC, _ bool) {
	s.mu.Lock()
	s.current, s.reached = doc, false
	s.mu.Unlock()
	s.orders <- doc
}

// work does what is taken up.
func (s *stage) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case doc := <-s.orders:
			err := s.do(doc)
			result := apply.Result{Outcome: apply.Reached}
			if err != nil {
				result.Outcome = apply.Refused
			}
			s.agent.Ended(doc, result, err)
		}
	}
}

// do tells the agent of each step, without the lock that the agent may be waiting for.
func (s *stage) do(doc *v1alpha1.NodeNIC) error {
	s.mu.Lock()
	p, err := s.plan(doc)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.agent.Event(apply.Event{Kind: apply.EventPlanned, Plan: p})
	for _, step := range p.Steps {
		s.agent.Event(apply.Event{Kind: apply.EventStarted, Step: step})
		s.mu.Lock()
		s.state = step.Predict(s.state)
		s.mu.Unlock()
		s.agent.Event(apply.Event{Kind: apply.EventDone, Step: step})
	}
	s.mu.Lock()
	s.state = settled(s.state)
	s.reached = true
	s.mu.Unlock()
	return nil
}

// settled gives the netdevs that were predicted what nobody can predict: an address.
func settled(state nic.State) nic.State {
	state = state.Clone()
	for i := range state.PFs {
		for j := range state.PFs[i].VFs {
			if vf := &state.PFs[i].VFs[j]; vf.Netdev.MAC.IsZero() {
				vf.Netdev.MAC = nic.MAC{0x02, 0, 0, 0, byte(i), byte(j)}
			}
		}
	}
	return state
}

// counter counts requests, by verb and what they are about: "PATCH nodenics/status".
// A watch is a request when it begins.
type counter struct {
	mu  sync.Mutex
	all map[string]int
}

func (c *counter) of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return trip{next, c} })
	return config
}

type trip struct {
	http.RoundTripper
	counter *counter
}

func (r trip) RoundTrip(q *http.Request) (*http.Response, error) {
	r.counter.mu.Lock()
	if r.counter.all == nil {
		r.counter.all = map[string]int{}
	}
	r.counter.all[asked(q)]++
	r.counter.mu.Unlock()
	return r.RoundTripper.RoundTrip(q)
}

// asked is a request without the names in its path.
func asked(q *http.Request) string {
	verb := q.Method
	if q.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	words := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	for i, w := range words {
		switch w {
		case "namespaces":
			if i+2 < len(words) {
				continue // of something in it
			}
		case "nodenics", "nicpolicies", "nodes", "pods", "leases", "events":
		default:
			continue
		}
		if len(words) > i+2 {
			w += "/" + words[i+2]
		}
		return verb + " " + w
	}
	return verb + " " + q.URL.Path
}

func (c *counter) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.all)
}

// since is what has been asked after before was.
func (c *counter) since(before map[string]int) map[string]int {
	out := map[string]int{}
	for what, n := range c.now() {
		if n > before[what] {
			out[what] = n - before[what]
		}
	}
	return out
}

// total of some requests; WATCH is what is not counted in it.
func total(counts map[string]int) int {
	out := 0
	for what, n := range counts {
		if !strings.HasPrefix(what, "WATCH") {
			out += n
		}
	}
	return out
}
