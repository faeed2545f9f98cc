package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

// meters are what an agent counts. docs/metrics.md lists them.
type meters struct {
	registry                  *prometheus.Registry
	functions                 *prometheus.GaugeVec
	looks, runs, steps, mends *prometheus.CounterVec
}

func newMeters() *meters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &meters{
		registry:  prometheus.NewRegistry(),
		functions: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_functions", Help: "PFs, VFs and SFs that were there at the last look."}, []string{"kind"}),
		looks:     counter("sluice_looks_total", "Looks at the machine, by result.", "result"),
		runs:      counter("sluice_runs_total", "Runs to what is wanted, by how they ended.", "outcome"),
		steps:     counter("sluice_steps_total", "Steps of runs, by result.", "result"),
		mends:     counter("sluice_mends_total", "Runs because somebody else had changed the node, by result.", "result"),
	}
	m.registry.MustRegister(m.functions, m.looks, m.runs, m.steps, m.mends)
	return m
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
		return
	}
	vfs, sfs := 0, 0
	for _, pf := range state.PFs {
		vfs, sfs = vfs+len(pf.VFs), sfs+len(pf.SFs)
	}
	for kind, n := range map[string]int{"pf": len(state.PFs), "vf": vfs, "sf": sfs} {
		m.functions.WithLabelValues(kind).Set(float64(n))
	}
}

// event notes what a run tells of itself.
func (m *meters) event(e apply.Event) {
	switch e.Kind {
	case apply.EventDone:
		m.steps.WithLabelValues("ok").Inc()
	case apply.EventFailed:
		m.steps.WithLabelValues("error").Inc()
	}
}

// poolMeter reads the pools when it is asked.
type poolMeter struct {
	status                     func() []deviceplugin.PoolStatus
	devices, healthy, attached *prometheus.Desc
}

func newPoolMeter(status func() []deviceplugin.PoolStatus) *poolMeter {
	about := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"resource"}, nil)
	}
	return &poolMeter{
		status:   status,
		devices:  about("sluice_pool_devices", "Devices of a pool."),
		healthy:  about("sluice_pool_healthy_devices", "Devices of a pool that kubelet may give to pods."),
		attached: about("sluice_pool_allocated_devices", "Devices of a pool that a pod has."),
	}
}

// Describe is of prometheus.Collector.
func (p *poolMeter) Describe(out chan<- *prometheus.Desc) {
	out <- p.devices
	out <- p.healthy
	out <- p.attached
}

// Collect is of prometheus.Collector.
func (p *poolMeter) Collect(out chan<- prometheus.Metric) {
	for _, s := range p.status() {
		healthy := 0
		for _, d := range s.Devices {
			if d.Problem == "" {
				healthy++
			}
		}
		for about, n := range map[*prometheus.Desc]int{p.devices: len(s.Devices), p.healthy: healthy, p.attached: len(s.Pods)} {
			out <- prometheus.MustNewConstMetric(about, prometheus.GaugeValue, float64(n), s.Resource)
		}
	}
}

// serve answers at /metrics of address until stop is called.
func (m *meters) serve(ctx context.Context, address string, status func() []deviceplugin.PoolStatus) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	m.registry.MustRegister(newPoolMeter(status))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("answer for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // it ends with Close, and only then
	return func() {
		_ = s.Close()
		serving.Wait()
	}, nil
}
