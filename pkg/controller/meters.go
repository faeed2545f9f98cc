package controller

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/fleet"
)

// meters are what the controller counts. docs/metrics.md lists them.
type meters struct {
	leads            prometheus.Gauge
	loops            *prometheus.CounterVec
	loopTime         *prometheus.HistogramVec
	moves, evictions *prometheus.CounterVec
	fleet            *fleetMeter
}

func newMeters() *meters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &meters{
		leads: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_controller_leads", Help: "1 in the replica that works, 0 in those that wait."}),
		loops: counter("sluice_reconciles_total", "Turns of the controller's loops, by result.", "loop", "result"),
		loopTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_reconcile_duration_seconds", Help: "How long turns of the controller's loops took.", Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30},
		}, []string{"loop"}),
		moves:     counter("sluice_node_moves_total", "What was done about nodes, by result.", "act", "result"),
		evictions: counter("sluice_evictions_total", "Pods that were asked to go, by what came of it.", "result"),
		fleet:     newFleetMeter(),
	}
}

func (m *meters) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.leads, m.loops, m.loopTime, m.moves, m.evictions, m.fleet} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// lead notes that this replica works, until ctx ends.
func (m *meters) lead(ctx context.Context) error {
	m.leads.Set(1)
	<-ctx.Done()
	m.leads.Set(0)
	return nil
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// loop is turn, counted.
func (m *meters) loop(name string, turn reconcile.Func) reconcile.Func {
	m.loops.WithLabelValues(name, "ok") // what a rate is asked of is there from the start
	m.loops.WithLabelValues(name, "error")
	return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		begun := time.Now()
		result, err := turn(ctx, r)
		m.loopTime.WithLabelValues(name).Observe(time.Since(begun).Seconds())
		m.loops.WithLabelValues(name, resultOf(err)).Inc()
		return result, err
	}
}

// fleetMeter tells of all nodes and policies, as tallied last.
type fleetMeter struct {
	policies, policyNodes, readyNodes, conflicts, paused, nodes, conditions *prometheus.Desc

	mu   sync.Mutex
	last []prometheus.Metric
}

func newFleetMeter() *fleetMeter {
	about := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &fleetMeter{
		policies:    about("sluice_policies", "Policies, by what has become of them.", "state"),
		policyNodes: about("sluice_policy_nodes", "Nodes that a policy chooses.", "policy"),
		readyNodes:  about("sluice_policy_ready_nodes", "Nodes of a policy that are as their policies want them.", "policy"),
		conflicts:   about("sluice_policy_conflicts", "Fields of which a policy and another of equal priority say different things.", "policy"),
		paused:      about("sluice_policy_paused", "1 while nodes of a policy wait and none of those that are unavailable is on its way, else 0.", "policy"),
		nodes:       about("sluice_nodes", "Nodes that the controller knows."),
		conditions:  about("sluice_node_conditions", "Nodes, by what a condition of their NodeNIC is.", "condition", "status"),
	}
}

// Describe is of prometheus.Collector.
func (m *fleetMeter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.policies, m.policyNodes, m.readyNodes, m.conflicts, m.paused, m.nodes, m.conditions} {
		out <- d
	}
}

// Collect is of prometheus.Collector.
func (m *fleetMeter) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, metric := range m.last {
		out <- metric
	}
}

// tallied notes what is there: policies with their status as of now.
func (m *fleetMeter) tallied(policies []v1alpha1.NICPolicy, nodes []fleet.Node) {
	var now []prometheus.Metric
	set := func(d *prometheus.Desc, n int, labels ...string) {
		now = append(now, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...))
	}
	paused := fleet.Paused(policies, nodes)
	states := map[string]int{"ready": 0, "not ready": 0, "refused": 0, "conflicted": 0}
	for _, p := range policies {
		states[stateOf(p.Status)]++
		set(m.policyNodes, int(p.Status.Nodes), p.Name)
		set(m.readyNodes, int(p.Status.ReadyNodes), p.Name)
		set(m.conflicts, len(p.Status.Conflicts), p.Name)
		stopped := 0
		if paused[p.Name] {
			stopped = 1
		}
		set(m.paused, stopped, p.Name)
	}
	for state, n := range states {
		set(m.policies, n, state)
	}
	set(m.nodes, len(nodes))
	for kind, by := range conditionsOf(nodes) {
		for status, n := range by {
			set(m.conditions, n, kind, status)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = now
}

func stateOf(s v1alpha1.NICPolicyStatus) string {
	switch {
	case meta.IsStatusConditionFalse(s.Conditions, v1alpha1.Valid):
		return "refused"
	case meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Conflicted):
		return "conflicted"
	case meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Ready):
		return "ready"
	}
	return "not ready"
}

// conditionsOf counts nodes by condition and its status; one that a NodeNIC has not is
// Unknown there.
func conditionsOf(nodes []fleet.Node) map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, kind := range []string{
		v1alpha1.Ready, v1alpha1.Progressing, v1alpha1.Degraded, v1alpha1.RebootRequired, v1alpha1.DrainRequired, v1alpha1.OffloadCapable,
		v1alpha1.Resolved, v1alpha1.Draining,
	} {
		by := map[string]int{string(metav1.ConditionTrue): 0, string(metav1.ConditionFalse): 0, string(metav1.ConditionUnknown): 0}
		for _, n := range nodes {
			status := metav1.ConditionUnknown
			if n.NIC != nil {
				if c := meta.FindStatusCondition(n.NIC.Status.Conditions, kind); c != nil {
					status = c.Status
				}
			}
			by[string(status)]++
		}
		out[kind] = by
	}
	return out
}
