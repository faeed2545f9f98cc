package cni

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
)

// newExclusive is a node whose RDMA devices belong to one namespace each.
func newExclusive(t *testing.T) *world {
	return newWorldOf(t, "mlx5:cards=1,ports=2,vfs=8,numvfs=4,mode=switchdev+machine:rdma=exclusive")
}

// rdmaOf is the host's RDMA devices of a VF.
func (w *world) rdmaOf(vf string) []string {
	w.t.Helper()
	st := w.state()
	_, v := st.VFAt(vf)
	return v.RDMA
}

// rdmaIn is the RDMA devices of a pod.
func (w *world) rdmaIn(p pod) []string {
	w.t.Helper()
	ns, err := w.sim.Machine().Netns.Open(context.Background(), p.netns)
	if err != nil {
		w.t.Fatal(err)
	}
	defer ns.Close()
	names, err := ns.RDMADevices(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return names
}

// moves is what has gone from namespace to namespace since the write after n, in
// order.
func (w *world) moves(n int) []string {
	var out []string
	for _, op := range w.sim.Log() {
		if op.N > n && (op.Verb == sim.Move || op.Verb == sim.MoveRDMA) {
			out = append(out, fmt.Sprintf("%s of %s", op.Arg, op.Object))
		}
	}
	return out
}

// wholeOrHeld checks what a watcher sees at any time: a VF that nobody holds has its
// netdev and its RDMA device on the host.
func (w *world) wholeOrHeld(vf, when string) {
	w.t.Helper()
	st, err := host.Observe(context.Background(), w.sim.Machine())
	if err != nil {
		w.t.Fatal(err)
	}
	owners, err := record.Owners(w.dir, "")
	if err != nil {
		w.t.Fatal(err)
	}
	_, v := st.VFAt(vf)
	if owners[vf] == "" && (len(v.RDMA) != 1 || !v.Netdev.Exists() || v.Away) {
		w.t.Errorf("%s: nobody holds VF %s, which has RDMA devices %q, netdev %q, away %v", when, vf, v.RDMA, v.Netdev.Name, v.Away)
	}
	// The netdev is what tells of a VF that came back: then nothing is missing.
	if v.Netdev.Exists() && len(v.RDMA) != 1 && strings.HasPrefix(when, "DEL") {
		w.t.Errorf("%s: netdev %s is back before its RDMA device", when, v.Netdev.Name)
	}
}

// watched lets somebody look at the node after each piece of p's work.
func (w *world) watched(p *Plugin, vf, verb string) *Plugin {
	trace := p.Trace
	p.Trace = func(s Span) {
		trace(s)
		w.wholeOrHeld(vf, fmt.Sprintf("%s, %s", verb, s.Name))
	}
	return p
}

// TestB23RDMAFirst: in exclusive mode the VF's RDMA device goes to the pod with the
// netdev. On the way back it comes first, so that who is woken by the netdev finds
// it there; who looks in between finds an owner.
func TestB23RDMAFirst(t *testing.T) {
	w := newExclusive(t)
	before := w.snap()
	p := full(w.pod("c1", w.vf(0, 1)))
	device, temp := w.rdmaOf(p.vf)[0], TempName(p.vf)
	n := w.sim.Writes()
	if err := w.watched(w.plugin(), p.vf, "ADD").Add(t.Context(), w.args(p)); err != nil {
		t.Fatal(err)
	}
	result := w.out.String()
	if d := cmp.Diff([]string{p.netns + " of " + temp, p.netns + " of " + device}, w.moves(n)); d != "" {
		t.Errorf("ADD moved (-want +got):\n%s", d)
	}
	if got := w.rdmaIn(p); !slices.Equal(got, []string{device}) || len(w.rdmaOf(p.vf)) != 0 {
		t.Errorf("the pod has %q, the host %q: want %s in the pod alone", got, w.rdmaOf(p.vf), device)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	n = w.sim.Writes()
	if err := w.watched(w.plugin(), p.vf, "DEL").Del(t.Context(), w.args(p)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"of the host of " + device, "of the host of " + temp}, w.moves(n)); d != "" {
		t.Errorf("DEL moved (-want +got):\n%s", d)
	}
	w.mustBe(before, "after ADD and DEL")
	w.wholeOrHeld(p.vf, "after DEL")
}

// TestB23SharedMovesNoRDMA: where all namespaces have the device it stays, and the
// record is as it always was.
func TestB23SharedMovesNoRDMA(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	w.mustAdd(p)
	r, err := record.In(w.dir).Load(p.vf)
	if err != nil || len(r.RDMA) != 0 || len(w.moves(0)) != 1 || len(w.rdmaOf(p.vf)) != 1 {
		t.Errorf("record %+v, %v; moved %q; the host has %q", r, err, w.moves(0), w.rdmaOf(p.vf))
	}
	w.mustDel(p)
}

// TestB23CheckMissesRDMA: somebody took the device out of the pod.
func TestB23CheckMissesRDMA(t *testing.T) {
	w := newExclusive(t)
	p := w.pod("c1", w.vf(0, 1))
	result := w.mustAdd(p)
	device := w.rdmaIn(p)[0]
	_, ns := w.inPod(p.netns)
	if err := ns.MoveRDMA(t.Context(), device, ""); err != nil {
		t.Fatal(err)
	}
	want := "RDMA device " + device + " is not in the pod"
	if err := w.check(p, result); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("CHECK: %v, want %q", err, want)
	}
	w.mustDel(p)
}

// TestB23Failures lets each act of ADD and DEL fail, before and after its effect:
// ADD takes the RDMA device back too, DEL finishes when it is called again.
func TestB23Failures(t *testing.T) {
	moved := 0
	for _, after := range []bool{false, true} {
		for n, failed := 1, true; failed; n++ {
			w := newExclusive(t)
			before := w.snap()
			p := full(w.pod("c1", w.vf(0, 1)))
			w.sim.Inject(sim.Fault{Skip: n - 1, After: after, Match: func(o sim.Op) bool { return o.Verb != sim.Announce }})
			err := w.add(p)
			w.heal()
			if failed = err != nil; failed && strings.Contains(err.Error(), string(sim.MoveRDMA)) {
				moved++
			}
			when := fmt.Sprintf("act %d (after effect: %v): %v", n, after, err)
			if failed {
				w.home(before, p, when)
				w.mustAdd(p)
			}
			w.mustDel(p)
			w.home(before, p, when+", ADD and DEL")
		}
		for n, failed := 1, true; failed; n++ {
			w := newExclusive(t)
			before := w.snap()
			p := full(w.pod("c1", w.vf(0, 1)))
			w.mustAdd(p)
			w.sim.Inject(sim.Fault{Skip: n - 1, After: after})
			err := w.del(p)
			if failed = err != nil; failed && strings.Contains(err.Error(), string(sim.MoveRDMA)) {
				moved++
			}
			w.heal()
			w.wholeOrHeld(p.vf, "DEL failed")
			w.mustDel(p)
			w.home(before, p, fmt.Sprintf("DEL failed: %v", err))
		}
	}
	if moved != 4 {
		t.Errorf("the move of the RDMA device failed %d times: want 4", moved)
	}
}

// home checks that all is as it was before the pod, RDMA devices too.
func (w *world) home(before snapshot, p pod, when string) {
	w.t.Helper()
	w.mustBe(before, when)
	if got := w.rdmaOf(p.vf); len(got) != 1 {
		w.t.Fatalf("%s: the VF has RDMA devices %q on the host", when, got)
	}
}

// TestB23KilledAnywhere ends the process of ADD and of DEL after each piece of work,
// between the two moves too. Then DEL, with the namespace or when it is gone.
func TestB23KilledAnywhere(t *testing.T) {
	gone := func(w *world, p pod) { w.mustDeleteNetns(p); w.mustDel(p) }
	for name, end := range map[string]func(w *world, p pod){"DEL": (*world).mustDel, "netns gone, DEL": gone} {
		for _, verb := range []string{"ADD", "DEL"} {
			between := 0
			for n, crashed := 1, true; crashed; n++ {
				w := newExclusive(t)
				before := w.snap()
				p := w.pod("c1", w.vf(0, 1)).with("ipam", nil)
				work := w.add
				if verb == "DEL" {
					w.mustAdd(p)
					work = w.del
				}
				var err error
				if crashed, err = w.crash(n, func() error { return work(p) }); err != nil {
					t.Fatal(err)
				}
				w.wholeOrHeld(p.vf, verb+" killed")
				if l, ns := w.inPod(p.netns); ns.Close() == nil && l.Ifindex != 0 && len(w.rdmaIn(p)) == 0 {
					between++
				}
				end(w, p)
				w.home(before, p, fmt.Sprintf("%s killed after %d pieces, %s", verb, n, name))
			}
			if between == 0 {
				t.Errorf("%s was never killed between the two moves", verb)
			}
		}
	}
}

// TestB23NetnsGone: the kernel gives the device back, and DEL finds nothing to move.
func TestB23NetnsGone(t *testing.T) {
	w := newExclusive(t)
	before := w.snap()
	p := w.pod("c1", w.vf(0, 1))
	w.mustAdd(p)
	w.mustDeleteNetns(p)
	n := w.sim.Writes()
	p.netns = ""
	w.mustDel(p)
	if got := w.moves(n); len(got) > 0 {
		t.Errorf("DEL moved %q", got)
	}
	w.home(before, p, "after DEL")
}
