package main

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/nodeapi"
)

func about(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge(d *prometheus.Desc, n float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
}

func flag(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// inventoryMeter tells of what the last look has shown; nothing until the first.
type inventoryMeter struct {
	functions, ports, carrier *prometheus.Desc

	mu    sync.Mutex
	state *nic.State
}

func newInventoryMeter() *inventoryMeter {
	return &inventoryMeter{
		functions: about("sluice_functions", "PFs, VFs and SFs that were there at the last look.", "kind"),
		ports:     about("sluice_ports", "PFs that were there at the last look, by driver and mode of the eswitch.", "driver", "eswitch"),
		carrier:   about("sluice_port_carrier", "1 if the PF's uplink had a carrier at the last look, else 0.", "pf"),
	}
}

func (m *inventoryMeter) see(state nic.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = &state
}

// Describe is of prometheus.Collector.
func (m *inventoryMeter) Describe(out chan<- *prometheus.Desc) {
	out <- m.functions
	out <- m.ports
	out <- m.carrier
}

// Collect is of prometheus.Collector.
func (m *inventoryMeter) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	state := m.state
	m.mu.Unlock()
	if state == nil {
		return
	}
	vfs, sfs := 0, 0
	type kind struct{ driver, eswitch string }
	ports := map[kind]int{}
	for _, pf := range state.PFs {
		vfs, sfs = vfs+len(pf.VFs), sfs+len(pf.SFs)
		ports[kind{pf.Driver, string(pf.Eswitch)}]++
		if pf.Uplink.Name != "" {
			out <- gauge(m.carrier, flag(pf.Uplink.Carrier), pf.Handle.String())
		}
	}
	for k, n := range ports {
		out <- gauge(m.ports, float64(n), k.driver, k.eswitch)
	}
	for kind, n := range map[string]int{"pf": len(state.PFs), "vf": vfs, "sf": sfs} {
		out <- gauge(m.functions, float64(n), kind)
	}
}

// poolMeter reads the pools when it is asked.
type poolMeter struct {
	devices, healthy, attached, registered *prometheus.Desc

	mu     sync.Mutex
	status func() []deviceplugin.PoolStatus
}

func newPoolMeter() *poolMeter {
	return &poolMeter{
		devices:    about("sluice_pool_devices", "Devices of a pool.", "resource"),
		healthy:    about("sluice_pool_healthy_devices", "Devices of a pool that kubelet may give to pods.", "resource"),
		attached:   about("sluice_pool_allocated_devices", "Devices of a pool that a pod has.", "resource"),
		registered: about("sluice_pool_registered", "1 if the kubelet has the pool, else 0.", "resource"),
	}
}

// offers notes who tells of the pools.
func (p *poolMeter) offers(status func() []deviceplugin.PoolStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

// Describe is of prometheus.Collector.
func (p *poolMeter) Describe(out chan<- *prometheus.Desc) {
	out <- p.devices
	out <- p.healthy
	out <- p.attached
	out <- p.registered
}

// Collect is of prometheus.Collector.
func (p *poolMeter) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	status := p.status
	p.mu.Unlock()
	if status == nil {
		return
	}
	for _, s := range status() {
		healthy := 0
		for _, d := range s.Devices {
			if d.Problem == "" {
				healthy++
			}
		}
		out <- gauge(p.devices, float64(len(s.Devices)), s.Resource)
		out <- gauge(p.healthy, float64(healthy), s.Resource)
		out <- gauge(p.attached, float64(len(s.Pods)), s.Resource)
		out <- gauge(p.registered, flag(s.Away == nil), s.Resource)
	}
}

// countedServer counts what the API server does not take.
type countedServer struct {
	nodeapi.Server
	meters *meters
}

// Write is of nodeapi.Server.
func (c countedServer) Write(ctx context.Context, s v1alpha1.NodeNICStatus) error {
	err := c.Server.Write(ctx, s)
	if err != nil && ctx.Err() == nil {
		c.meters.faults.WithLabelValues(faultAPI).Inc()
	}
	return err
}
