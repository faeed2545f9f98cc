package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// BenchmarkFleet measures what 1,000 nodes cost, against 100: how long a change of a
// policy takes, and what the controller uses for it, in a process of its own, against
// a real API server. The agents are those of a crowd, which share this process and
// the machine with it.
func BenchmarkFleet(b *testing.B) {
	var base *figures
	for _, nodes := range []int{100, 1000} {
		b.Run(strconv.Itoa(nodes), func(b *testing.B) {
			is := fleetOf(b, nodes)
			if base == nil {
				base = is
			}
			is.print(base)
		})
	}
}

// figures are what was measured, in the order of their measuring.
type figures struct {
	nodes int
	names []string
	units map[string]string
	value map[string]float64
}

func (f *figures) add(name string, value float64, unit string) {
	f.names = append(f.names, name)
	f.units[name], f.value[name] = unit, value
}

func (f *figures) print(base *figures) {
	for _, name := range f.names {
		fmt.Printf("bench: fleet/%s/%d %.2f %s (%.2f vs fleet/%s/%d)\n",
			name, f.nodes, f.value[name], f.units[name], f.value[name]/base.value[name], name, base.nodes)
	}
}

func fleetOf(b *testing.B, nodes int) *figures {
	k := newKube(b)
	k.config.QPS = -1
	out := &figures{nodes: nodes, units: map[string]string{}, value: map[string]float64{}}
	c := k.crowd(nodes)
	c.patience = 20 * time.Minute
	free, err := net.Listen("tcp", "127.0.0.1:0")
	k.do(err)
	m := meter{b, "http://" + free.Addr().String() + "/metrics"}
	k.do(free.Close())
	spawn(b, "controller", "--kubeconfig", writeKubeconfig(b, k.as("sluice-controller", "")), "--health-address", "0", "--metrics-address", free.Addr().String())
	c.await(b, "known", func(o *v1alpha1.NodeNIC) bool { return o.Status.Inventory != nil })
	k.policy("p", "{nodeSelector: {}, maxUnavailable: 100%, pfs: [{pf: '0000:03:00.0', numVfs: 4}]}")
	c.await(b, "of four VFs", asWanted(4))

	// run gives the policy another spec and says what becomes of that.
	run := func(what, spec string, written, done func(*v1alpha1.NodeNIC) bool) {
		time.Sleep(5 * time.Second) // for what the change before has left
		agents, before, begin := c.counts.now(), m.read(), time.Now()
		k.respec("p", spec)
		out.add(what+"/spec-written", c.await(b, "of the new spec", written).Seconds(), "s")
		c.await(b, "as wanted", done)
		took := time.Since(begin).Seconds()
		time.Sleep(5 * time.Second)
		after := m.read()
		asked := after["rest_client_requests_total"] - before["rest_client_requests_total"]
		out.add(what+"/done", took, "s")
		out.add(what+"/cpu", after["process_cpu_seconds_total"]-before["process_cpu_seconds_total"], "s")
		out.add(what+"/requests-per-second", asked/took, "1/s")
		out.add(what+"/requests-per-node", asked/float64(nodes), "requests")
		out.add(what+"/agent-requests-per-node", float64(total(c.counts.since(agents)))/float64(nodes), "requests")
	}
	pooled := func(o *v1alpha1.NodeNIC) bool { return len(o.Spec.Pools) == 1 }
	run("pools", "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 4}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}",
		pooled, func(o *v1alpha1.NodeNIC) bool { return pooled(o) && ready(o) })
	run("rollout", "{nodeSelector: {}, maxUnavailable: 10%, pfs: [{pf: '0000:03:00.0', numVfs: 6}]}",
		func(o *v1alpha1.NodeNIC) bool { return *o.Spec.PFs[0].NumVFs == 6 }, asWanted(6))
	end := m.read()
	out.add("heap", end["go_memstats_heap_inuse_bytes"]/(1<<20), "MiB")
	out.add("resident", end["process_resident_memory_bytes"]/(1<<20), "MiB")
	return out
}

// meter reads what a process says of itself.
type meter struct {
	b   *testing.B
	url string
}

// read sums each metric over its labels.
func (m meter) read() map[string]float64 {
	m.b.Helper()
	answer, err := http.Get(m.url)
	if err != nil {
		m.b.Fatal(err)
	}
	defer answer.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if i := strings.LastIndex(lines.Text(), "} "); i > 0 {
			name, value = lines.Text()[:strings.Index(lines.Text(), "{")], lines.Text()[i+2:]
		}
		v, err := strconv.ParseFloat(value, 64)
		if !ok || strings.HasPrefix(name, "#") || err != nil {
			continue
		}
		out[name] += v
	}
	return out
}
