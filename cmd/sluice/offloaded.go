package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/offload/why/look"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/capability/probe"
	"sluice.dev/sluice/pkg/tc"
	"sluice.dev/sluice/pkg/unixctl"
)

// flowLook bounds one look at the flows of a node.
const flowLook = 20 * time.Second

// flowWatch looks every so often at where the flows of the pods' ports run. It asks no
// drivers: that is for people, with sluice why. Where Open vSwitch does not run or no pod
// has a VF by our records it does nothing.
type flowWatch struct {
	node   *node
	every  time.Duration
	log    *slog.Logger
	meter  *offloadMeter
	watch  why.Watch
	kernel capability.Kernel
	failed bool // the last look did, and that was said

	traffic traffic
	say     func([]v1alpha1.PodOffload) // told when it is another; nil: nobody asks
}

// run looks until ctx ends.
func (f *flowWatch) run(ctx context.Context) {
	f.kernel = probe.Reader{}.Kernel()
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := f.look(ctx)
		if err != nil && ctx.Err() == nil && !f.failed {
			f.log.Warn("where flows run is not known", "error", err)
		}
		f.failed = err != nil
	}
}

func (f *flowWatch) look(ctx context.Context) error {
	if _, err := unixctl.Socket("", "ovs-vswitchd"); errors.Is(err, fs.ErrNotExist) {
		f.nothing()
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, flowLook)
	defer stop()
	begin, err := f.node.around(ctx, f.kernel)
	if err != nil {
		return err
	}
	if len(begin.Records) == 0 {
		f.nothing()
		return nil
	}
	rules, err := tc.Open()
	if err != nil {
		return err
	}
	defer rules.Close()
	reports, err := look.Reader{Rules: rules, Switch: proof.Datapath{}}.Ours(ctx, begin)
	if err != nil {
		return err
	}
	ports := make([]portCount, 0, len(reports))
	for _, r := range reports {
		link, err := rules.Link(ctx, r.Port.Ifindex)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since
		}
		if err != nil {
			return err
		}
		ports = append(ports, portCount{report: r, link: link})
	}
	f.meter.see(ports)
	f.tell(f.watch.Look(reports))
	f.publish(reports, begin.Records)
	return nil
}

// nothing is a look that finds no flows of pods.
func (f *flowWatch) nothing() {
	f.meter.see(nil)
	f.publish(nil, nil)
}

// publish says of the pods where their traffic runs, if that is another place than before.
func (f *flowWatch) publish(reports []why.Report, records []*record.Record) {
	var standings []why.Standing
	if reports != nil {
		standings = f.watch.Standings()
	}
	if said, news := f.traffic.see(reports, standings, records); news && f.say != nil {
		f.say(said)
	}
}

// tell logs what fell out of hardware, with the reason as far as nobody was asked.
func (f *flowWatch) tell(falls []why.Fall) {
	f.meter.fell(len(falls))
	for _, fall := range falls {
		what := "a heavy flow runs in software"
		if fall.Was {
			what = "a heavy flow fell out of hardware"
		}
		args := []any{
			"port", fall.Port.Netdev, "pod", fall.Port.Pod, "interface", fall.Port.Interface, "where", string(fall.Flow.Where),
			"packets", fall.Packets, "flow", fall.Flow.UFID, "match", fall.Flow.Match, "actions", fall.Flow.Actions,
		}
		if len(fall.Flow.Reasons) > 0 {
			r := fall.Flow.Reasons[0]
			args = append(args, "class", string(r.Class), "reason", r.What, "change", r.Change)
		}
		if fall.Other > 0 {
			args = append(args, "others", fall.Other)
		}
		f.log.Warn(what, args...)
	}
}

// portCount is a port's report, and the counters of its netdev.
type portCount struct {
	report why.Report
	link   tc.Link
}

// byHost is what came up to the host of what came in by the port; ok says that the
// driver tells it apart.
func (p portCount) byHost() (host, nic tc.Counter, ok bool) {
	if p.link.CPU == nil {
		return host, nic, false
	}
	return p.link.CPU.RX, p.link.RX.Minus(p.link.CPU.RX), true
}

// offloadMeter is what was seen of the pods' ports at the last look.
type offloadMeter struct {
	mu     sync.Mutex
	ports  []portCount
	before map[int]portCount // by ifindex
	falls  prometheus.Counter

	ratio, packets, flows *prometheus.Desc
}

func newOffloadMeter() *offloadMeter {
	about := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"namespace", "pod", "interface"}, labels...), nil)
	}
	return &offloadMeter{
		ratio:   about("sluice_port_offload_ratio", "Share of the packets from a pod's interface, between the last two looks, that the NIC handled."),
		packets: about("sluice_port_offload_packets_total", "Packets from a pod's interface, by who handled them.", "by"),
		flows:   about("sluice_port_offload_flows", "Flows from a pod's interface, by where they run.", "where"),
		falls:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_port_offload_falls_total", Help: "Heavy flows that were found out of hardware."}),
	}
}

// see takes the place of what was seen before.
func (m *offloadMeter) see(ports []portCount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = map[int]portCount{}
	for _, p := range m.ports {
		m.before[p.report.Port.Ifindex] = p
	}
	m.ports = ports
}

func (m *offloadMeter) fell(n int) { m.falls.Add(float64(n)) }

// Describe is of prometheus.Collector.
func (m *offloadMeter) Describe(out chan<- *prometheus.Desc) {
	out <- m.ratio
	out <- m.packets
	out <- m.flows
	m.falls.Describe(out)
}

// Collect is of prometheus.Collector.
func (m *offloadMeter) Collect(out chan<- prometheus.Metric) {
	m.falls.Collect(out)
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, p := range m.ports {
		port := p.report.Port
		labels := whose(port)
		key := strings.Join(labels, " ")
		if port.Interface == "" || seen[key] {
			continue // nobody's by our records; or of a pod that came again under its name
		}
		seen[key] = true
		for _, w := range []why.Where{why.Hardware, why.Software, why.Datapath, why.Userspace} {
			out <- prometheus.MustNewConstMetric(m.flows, prometheus.GaugeValue, float64(p.report.Count(w)), append(labels, string(w))...)
		}
		host, nic, ok := p.byHost()
		if !ok {
			continue
		}
		out <- prometheus.MustNewConstMetric(m.packets, prometheus.CounterValue, float64(host.Packets), append(labels, "host")...)
		out <- prometheus.MustNewConstMetric(m.packets, prometheus.CounterValue, float64(nic.Packets), append(labels, "nic")...)
		hostBefore, nicBefore, known := m.before[port.Ifindex].byHost()
		host, nic = host.Minus(hostBefore), nic.Minus(nicBefore)
		if all := host.Packets + nic.Packets; known && all > 0 {
			out <- prometheus.MustNewConstMetric(m.ratio, prometheus.GaugeValue, float64(nic.Packets)/float64(all), labels...)
		}
	}
}

// whose are the labels of a port.
func whose(p why.Port) []string {
	namespace, pod, _ := strings.Cut(p.Pod, "/")
	return []string{namespace, pod, p.Interface}
}
