package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// busy is an agent's meters after one of each thing that they count.
func busy() *meters {
	m := newMeters()
	m.pools.offers(func() []deviceplugin.PoolStatus {
		return []deviceplugin.PoolStatus{{
			Resource: "sluice.dev/fast",
			Devices:  []deviceplugin.Device{{ID: "a"}, {ID: "b", Problem: "gone"}, {ID: "c"}},
			Pods:     map[string]deviceplugin.Holder{"a": {}},
		}, {Resource: "sluice.dev/slow", Away: deviceplugin.ErrNoKubelet}}
	})
	up := nic.PF{Handle: nic.PCI("0000:03:00.0"), Driver: "mlx5_core", Eswitch: nic.Switchdev, VFs: make([]nic.VF, 3)}
	up.Uplink = nic.Netdev{Name: "p0", Carrier: true}
	m.looked(nic.State{PFs: []nic.PF{up, {Driver: "ice", Eswitch: nic.Legacy}}}, nil)
	m.looked(nic.State{}, errors.New("no"))
	m.offload.see([]portCount{fromPod(1000, 400)})
	m.offload.see([]portCount{fromPod(2000, 500)})
	m.offload.fell(2)
	m.event(apply.Event{Kind: apply.EventPlanned})
	m.event(apply.Event{Kind: apply.EventFailed, Err: fmt.Errorf("set: %w", host.ErrBusy)})
	m.event(apply.Event{Kind: apply.EventBack})
	m.ran(apply.RolledBack, 2*time.Second, errors.New("no"))
	m.drifted(3, true)
	m.mends.WithLabelValues(resultOf(nil)).Inc()
	m.allocated("sluice.dev/fast", 2*time.Millisecond, nil)
	m.allocated("sluice.dev/fast", 2*time.Millisecond, errors.New("no"))
	return m
}

// fromPod is a pod's port with so many packets in all, and by the host.
func fromPod(all, host uint64) portCount {
	return portCount{
		report: why.Report{Port: why.Port{Netdev: "rep0", Ifindex: 7, Pod: "shop/web-0", Interface: "net1"}, Flows: []why.Verdict{{Where: why.Hardware}, {Where: why.Datapath}}},
		link:   tc.Link{RX: tc.Counter{Packets: all}, CPU: &tc.Directions{RX: tc.Counter{Packets: host}}},
	}
}

// freeAddress is one of loopback that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// What the agent counts is answered over HTTP.
func TestMetrics(t *testing.T) {
	d := doors{metrics: freeAddress(t), pprof: "0"}
	stop, err := d.open(t.Context(), busy().registry)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	_, text := get(t, "http://"+d.metrics+"/metrics")
	for _, want := range []string{
		`sluice_functions{kind="pf"} 2`, `sluice_functions{kind="vf"} 3`,
		`sluice_ports{driver="mlx5_core",eswitch="switchdev"} 1`, `sluice_port_carrier{pf="pci/0000:03:00.0"} 1`,
		`sluice_looks_total{result="ok"} 1`, `sluice_looks_total{result="error"} 1`,
		`sluice_steps_total{result="error"} 1`, `sluice_step_errors_total{reason="busy"} 1`,
		`sluice_rollbacks_total 1`, `sluice_runs_total{outcome="rolled back"} 1`,
		`sluice_run_duration_seconds_sum{outcome="rolled back"} 2`,
		`sluice_plan_state{state="rolled back"} 1`, `sluice_plan_state{state="running"} 0`,
		`sluice_port_offload_ratio{interface="net1",namespace="shop",pod="web-0"} 0.9`,
		`sluice_port_offload_packets_total{by="nic",interface="net1",namespace="shop",pod="web-0"} 1500`,
		`sluice_port_offload_packets_total{by="host",interface="net1",namespace="shop",pod="web-0"} 500`,
		`sluice_port_offload_flows{interface="net1",namespace="shop",pod="web-0",where="hardware"} 1`,
		`sluice_port_offload_flows{interface="net1",namespace="shop",pod="web-0",where="userspace"} 0`,
		`sluice_port_offload_falls_total 2`,
		`sluice_drifts_total 1`, `sluice_drift_steps 3`,
		`sluice_errors_total{kind="observe"} 1`, `sluice_errors_total{kind="run"} 1`, `sluice_errors_total{kind="api"} 0`,
		`sluice_pool_devices{resource="sluice.dev/fast"} 3`,
		`sluice_pool_healthy_devices{resource="sluice.dev/fast"} 2`,
		`sluice_pool_allocated_devices{resource="sluice.dev/fast"} 1`,
		`sluice_pool_registered{resource="sluice.dev/fast"} 1`, `sluice_pool_registered{resource="sluice.dev/slow"} 0`,
		`sluice_allocations_total{resource="sluice.dev/fast",result="error"} 1`,
		`sluice_allocation_duration_seconds_count{resource="sluice.dev/fast"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if !strings.Contains(text, "sluice_build_info{") || !strings.Contains(text, "process_resident_memory_bytes ") {
		t.Error("nothing of the build, or of the process")
	}
}

// metricsPage is the rows of a part of docs/metrics.md: name, type, labels.
func metricsPage(t *testing.T, parts ...string) []string {
	t.Helper()
	row, label := regexp.MustCompile("^\\| `(sluice_\\w+)` \\| (\\w+) \\|([^|]*)\\|"), regexp.MustCompile("`(\\w+)`")
	var out []string
	for part := range strings.SplitSeq(readFile(t, "../../docs/metrics.md"), "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		if !slices.Contains(parts, title) {
			continue
		}
		for line := range strings.Lines(text) {
			if m := row.FindStringSubmatch(line); m != nil {
				var labels []string
				for _, l := range label.FindAllStringSubmatch(m[3], -1) {
					labels = append(labels, l[1])
				}
				slices.Sort(labels)
				out = append(out, fmt.Sprint(m[1], " ", m[2], " ", labels))
			}
		}
	}
	slices.Sort(out)
	return out
}

// counted is what a registry counts of our own, in the same form.
func counted(t *testing.T, r *prometheus.Registry) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "sluice_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out = append(out, fmt.Sprint(f.GetName(), " ", strings.ToLower(f.GetType().String()), " ", labels))
	}
	return out
}

// docs/metrics.md lists what the agent counts, and nothing else.
func TestMetricsPage(t *testing.T) {
	m := busy()
	have := counted(t, m.registry)
	if diff := cmp.Diff(have, metricsPage(t, "Of both", "Of the agent")); diff != "" {
		t.Errorf("counted (-) and in docs/metrics.md (+):\n%s", diff)
	}
	// What busy has not touched would not be seen above.
	all := make(chan *prometheus.Desc, 200)
	m.registry.Describe(all)
	close(all)
	for d := range all {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if strings.HasPrefix(name, "sluice_") && !slices.ContainsFunc(have, func(h string) bool { return strings.HasPrefix(h, name+" ") }) {
			t.Errorf("nothing counts %s", name)
		}
	}
}

// Profiles are for whoever is on the machine.
func TestProfilesAreOnLoopbackAlone(t *testing.T) {
	d := doors{pprof: freeAddress(t)}
	if err := d.check(); err != nil {
		t.Fatal(err)
	}
	stop, err := d.open(t.Context(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if status, text := get(t, "http://"+d.pprof+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(text, "goroutine profile") {
		t.Errorf("%d %s", status, text)
	}
	for _, good := range []string{"", "0", "[::1]:6060", "localhost:6060"} {
		if err := (&doors{pprof: good}).check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "192.0.2.1:6060", "node-7:6060", "127.0.0.1", "6060"} {
		for _, command := range [][]string{{"agent", "-f", "/nowhere.yaml"}, {"controller"}} {
			code, _, said := runHere(t, append(command, "--pprof-address", bad)...)
			if code != exitUsage || !strings.Contains(said, "want an address of loopback, for example 127.0.0.1:6060") {
				t.Errorf("%s %q: %d %s", command[0], bad, code, said)
			}
		}
	}
}

// An agent that is asked for its state says it, ready or not.
func TestReadiness(t *testing.T) {
	var r readiness
	want := func(ready bool, words ...string) {
		t.Helper()
		got, text := r.look()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%q: want %q in it", text, w)
			}
		}
		if got != ready {
			t.Errorf("ready %v: want %v: %s", got, ready, text)
		}
	}
	pools := []deviceplugin.PoolStatus{{Resource: "sluice.dev/fast", Away: errors.New("refused")}, {Resource: "sluice.dev/slow"}}
	want(false, "the first run to what is wanted has not ended", "none is offered yet")
	r.ran(nil)
	want(false, "node: as wanted", "none is offered yet")
	r.offers(func() []deviceplugin.PoolStatus { return pools })
	want(false, "sluice.dev/fast: not with the kubelet: refused", "sluice.dev/slow: with the kubelet")
	pools[0].Away = fmt.Errorf("%w: its socket is not there", deviceplugin.ErrNoKubelet)
	want(true, "sluice.dev/fast: no kubelet listens")
	r.ran(errors.New("no such port"))
	want(true, "node: not as wanted: no such port")
	pools[0].Away = nil
	want(true, "sluice.dev/fast: with the kubelet")
}

// The same, of an agent on a simulated node.
func TestAgentAnswersProbes(t *testing.T) {
	k := newKept(t)
	k.health = freeAddress(t)
	k.write(k.document(4, "fast"))
	defer k.agent()()
	k.until("an agent that answers", func() bool {
		answer, err := http.Get("http://" + k.health + "/healthz")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	k.until("that it is ready", func() bool {
		status, text := get(t, "http://"+k.health+"/readyz")
		return status == http.StatusOK && text == "node: as wanted\nsluice.dev/fast: with the kubelet\n"
	})
	k.k.Stop()
	k.until("that no kubelet is there", func() bool {
		status, text := get(t, "http://"+k.health+"/readyz")
		return status == http.StatusOK && strings.Contains(text, "sluice.dev/fast: no kubelet listens")
	})
}

// A flag that cannot be is refused before anything is done, and what can be does.
func TestLogFormats(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ format, level, want string }{
		{"json", "warn", `"level":"WARN","msg":"a word","k":"v"}`},
		{"text", "warn", `level=WARN msg="a word" k=v`},
		{"text", "error", ""},
	} {
		f, err := os.Create(dir + "/log")
		if err != nil {
			t.Fatal(err)
		}
		log, err := (&logging{c.format, c.level}).to(f)
		if err != nil {
			t.Fatal(err)
		}
		log.Warn("a word", "k", "v")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := readFile(t, dir+"/log"); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v: %s", c, got)
		}
	}
	for _, args := range [][]string{{"--log-format", "xml"}, {"--log-level", "loud"}} {
		if code, _, said := runHere(t, append([]string{"controller"}, args...)...); code != exitUsage || !strings.Contains(said, "want ") {
			t.Errorf("%v: %d %s", args, code, said)
		}
	}
}
