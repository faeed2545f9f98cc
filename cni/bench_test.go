package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
)

// BenchmarkAttachInLab measures ADD and DEL of the program sluice-cni on a real
// kernel with a real Open vSwitch and host-local, on a node with few VFs and with
// many, and says what the time goes into. -test.benchtime=10x will do.
func BenchmarkAttachInLab(b *testing.B) {
	n := newLabNode(b)
	st := n.state()
	most := st.PF(n.pfs[0]).TotalVFs
	var few *attachBench
	for _, vfs := range []int{labVFs, most} {
		b.Run(fmt.Sprintf("2x%d", vfs), func(b *testing.B) {
			n.setVFs(vfs)
			bench := &attachBench{n: n, node: fmt.Sprintf("2x%d", vfs), total: map[string]time.Duration{}, spans: map[string]time.Duration{}}
			for b.Loop() {
				bench.once(b)
			}
			if few == nil {
				few = bench
			}
			bench.print(few)
		})
	}
}

type attachBench struct {
	n     *labNode
	node  string // how many VFs it has
	turns int
	total map[string]time.Duration // of the program, by verb
	spans map[string]time.Duration // within, by verb and kind
}

// once attaches and detaches with the program, to be timed from outside, then
// once more in this process, for the shares.
func (a *attachBench) once(b *testing.B) {
	a.turns++
	p := a.n.pod(fmt.Sprintf("b%s-%d", a.node, a.turns), a.n.vf(0, 1).Address)
	a.timed("start", func() { a.n.must("VERSION", p) })
	a.timed("add", func() { a.n.must("ADD", p) })
	a.timed("del", func() { a.n.must("DEL", p) })

	data, err := json.Marshal(p.with("name", "offloaded").with("cniVersion", "1.1.0").with("deviceID", p.vf).
		with("bridge", "br-int").with("stateDir", a.n.dir).conf)
	if err != nil {
		b.Fatal(err)
	}
	args := &skel.CmdArgs{
		ContainerID: p.container, Netns: p.netns, IfName: p.ifname, Args: p.args, Path: a.n.path, StdinData: data,
	}
	a.within(b, "add", (*Plugin).Add, args)
	a.within(b, "del", (*Plugin).Del, args)
}

func (a *attachBench) timed(verb string, f func()) {
	start := time.Now()
	f()
	a.total[verb] += time.Since(start)
}

func (a *attachBench) within(b *testing.B, verb string, call func(*Plugin, context.Context, *skel.CmdArgs) error, args *skel.CmdArgs) {
	p := &Plugin{
		Host: a.n.m.Machine, Switch: OpenSwitch, IPAM: Delegate{}, Out: new(bytes.Buffer), Limits: DefaultLimits(),
		Trace: func(s Span) {
			a.spans[verb+"-"+s.Kind] += s.Duration
			if s.Name == observing {
				a.spans[verb+"-observe"] += s.Duration
			}
		},
	}
	if err := call(p, context.Background(), args); err != nil {
		b.Fatal(err)
	}
}

// print prints what an ADD and a DEL took, against those of a node with few VFs, and
// what of that went where.
func (a *attachBench) print(few *attachBench) {
	each := func(d time.Duration, turns int) float64 { return float64(d.Microseconds()) / 1000 / float64(turns) }
	for _, verb := range []string{"add", "del"} {
		whole, name := each(a.total[verb], a.turns), fmt.Sprintf("lab/%s/%s", verb, a.node)
		fmt.Printf("bench: %s %.1f ms (%.2f vs lab/%s/%s)\n", name, whole, whole/each(few.total[verb], few.turns), verb, few.node)
		part := func(kind string, d time.Duration) {
			fmt.Printf("bench: lab/%s/%s/%s %.1f ms (%.2f vs %s)\n", verb, kind, a.node, each(d, a.turns), each(d, a.turns)/whole, name)
		}
		part("start", a.total["start"])
		// observe is the part of kernel that grows with the node.
		for _, kind := range []string{"kernel", "observe", "ovsdb", "ipam", "record"} {
			part(kind, a.spans[verb+"-"+kind])
		}
	}
}
