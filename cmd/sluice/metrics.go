package main

import (
	"errors"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// meters are what an agent counts. docs/metrics.md lists them.
type meters struct {
	registry *prometheus.Registry

	looks, faults           *prometheus.CounterVec
	runs, steps, stepErrors *prometheus.CounterVec
	runTime                 *prometheus.HistogramVec
	backs, drifts           prometheus.Counter
	state                   *prometheus.GaugeVec
	missing                 prometheus.Gauge
	mends, allocations      *prometheus.CounterVec
	allocationTime          *prometheus.HistogramVec
	inventory               *inventoryMeter
	pools                   *poolMeter
	offload                 *offloadMeter
}

// The kinds of faults, of sluice_errors_total.
const (
	faultObserve  = "observe"  // the machine cannot be looked at
	faultDocument = "document" // what is wanted cannot be made out
	faultRun      = "run"      // it was not reached
	faultPools    = "pools"    // what is offered cannot be made out
	faultState    = "state"    // journal and records cannot be written
	faultAPI      = "api"      // the API server does not take the status
)

func newMeters() *meters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	seconds := func(name, help, label string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label})
	}
	m := &meters{
		registry:    prometheus.NewRegistry(),
		looks:       counter("sluice_looks_total", "Looks at the machine, by result.", "result"),
		faults:      counter("sluice_errors_total", "What went wrong, by kind.", "kind"),
		runs:        counter("sluice_runs_total", "Runs to what is wanted, by how they ended.", "outcome"),
		runTime:     seconds("sluice_run_duration_seconds", "How long runs took, by how they ended.", "outcome", 0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600),
		state:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_plan_state", Help: "1 for what has become of the plan that was begun last, 0 for the others."}, []string{"state"}),
		steps:       counter("sluice_steps_total", "Steps of runs, by result.", "result"),
		stepErrors:  counter("sluice_step_errors_total", "Steps that failed, by why.", "reason"),
		backs:       prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_rollbacks_total", Help: "PFs that went back to what was before."}),
		drifts:      prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_drifts_total", Help: "Times that the node was found changed by somebody else."}),
		missing:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_drift_steps", Help: "Steps from the node, as looked at last, to what is wanted."}),
		mends:       counter("sluice_mends_total", "Runs because somebody else had changed the node, by result.", "result"),
		allocations: counter("sluice_allocations_total", "Allocations that the kubelet asked for, by result.", "resource", "result"),
		allocationTime: seconds("sluice_allocation_duration_seconds", "How long the kubelet waited for the answer to an allocation.", "resource",
			0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
		inventory: newInventoryMeter(),
		pools:     newPoolMeter(),
		offload:   newOffloadMeter(),
	}
	m.registry.MustRegister(
		buildMeter(), m.looks, m.faults, m.runs, m.runTime, m.state, m.steps, m.stepErrors, m.backs, m.drifts, m.missing, m.mends,
		m.allocations, m.allocationTime, m.inventory, m.pools, m.offload,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	// What a rate is asked of is there from the start.
	for _, kind := range []string{faultObserve, faultDocument, faultRun, faultPools, faultState, faultAPI} {
		m.faults.WithLabelValues(kind)
	}
	m.become("")
	return m
}

// buildMeter says which program this is.
func buildMeter() prometheus.Collector {
	b := build()
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_build_info", Help: "1, with what the program is made of."}, []string{"version", "commit", "goversion"})
	g.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	return g
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// looked notes a look at the machine.
func (m *meters) looked(state nic.State, err error) {
	m.looks.WithLabelValues(resultOf(err)).Inc()
	if err != nil {
		m.faults.WithLabelValues(faultObserve).Inc()
		return
	}
	m.inventory.see(state)
}

// event notes what a run tells of itself.
func (m *meters) event(e apply.Event) {
	switch e.Kind {
	case apply.EventPlanned:
		m.become("running")
	case apply.EventDone:
		m.steps.WithLabelValues("ok").Inc()
	case apply.EventFailed:
		m.steps.WithLabelValues("error").Inc()
		m.stepErrors.WithLabelValues(reasonOf(e.Err)).Inc()
	case apply.EventBack:
		m.backs.Inc()
	}
}

// reasonOf puts an error of a step into one of few kinds.
func reasonOf(err error) string {
	for _, k := range []struct {
		is   error
		name string
	}{{host.ErrBusy, "busy"}, {host.ErrExhausted, "exhausted"}, {host.ErrNotSupported, "unsupported"}, {fs.ErrNotExist, "gone"}} {
		if errors.Is(err, k.is) {
			return k.name
		}
	}
	return "other"
}

// ran notes how a run has ended.
func (m *meters) ran(outcome apply.Outcome, took time.Duration, err error) {
	if outcome == "" { // it did not come to a plan
		outcome = apply.Refused
	}
	m.become(string(outcome))
	m.runs.WithLabelValues(string(outcome)).Inc()
	m.runTime.WithLabelValues(string(outcome)).Observe(took.Seconds())
	if err != nil {
		m.faults.WithLabelValues(faultRun).Inc()
	}
}

// become notes what has become of the plan; "": there was none yet.
func (m *meters) become(state string) {
	for _, s := range []string{"running", string(apply.Reached), string(apply.Refused), string(apply.RolledBack), string(apply.Failed)} {
		is := 0.0
		if s == state {
			is = 1
		}
		m.state.WithLabelValues(s).Set(is)
	}
}

// drifted notes how far the node is from what is wanted.
func (m *meters) drifted(steps int, news bool) {
	m.missing.Set(float64(steps))
	if news {
		m.drifts.Inc()
	}
}

// allocated notes an allocation.
func (m *meters) allocated(resource string, took time.Duration, err error) {
	m.allocations.WithLabelValues(resource, resultOf(err)).Inc()
	m.allocationTime.WithLabelValues(resource).Observe(took.Seconds())
}
