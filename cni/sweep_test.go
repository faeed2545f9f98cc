package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
)

// TestGC sweeps a network of what is not valid, and of nothing else.
func TestGC(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	stays, goes := full(w.pod("stays", w.vf(0, 0))), full(w.pod("goes", w.vf(0, 1)))
	other := w.pod("other", w.vf(0, 2)).with("name", "another").with("ipam", nil)
	w.mustAdd(stays)
	w.mustAdd(other)
	want := w.snap()
	w.mustAdd(goes)
	w.mustDeleteNetns(goes)
	if err := w.gc(stays, stays); err != nil {
		t.Fatal(err)
	}
	w.mustBe(want, "after GC")
	writes := w.sim.Writes()
	if err := w.gc(stays, stays); err != nil || w.sim.Writes() != writes {
		t.Errorf("GC of nothing: %v, %d writes", err, w.sim.Writes()-writes)
	}
	// A port of nobody's record goes, one of somebody's own does not.
	rep := w.state().PFs[0].VFs[3].Rep.Netdev.Name
	lost := offload.Port{Bridge: "br-int", Representor: rep, Owner: "lost/net1"}
	w.sw.ports[rep], w.sw.ports["tap7"] = lost, samplePort("tap7")
	w.sw.ports["gone"] = offload.Port{Bridge: "br-int", Representor: "gone", Owner: "lost/net2"}
	if err := w.gc(stays, stays); err != nil {
		t.Fatal(err)
	}
	delete(w.sw.ports, "tap7")
	w.mustBe(want, "after GC of ports")
	if err := w.gc(stays); err != nil {
		t.Fatal(err)
	}
	if err := w.gc(other); err != nil {
		t.Fatal(err)
	}
	w.mustBe(before, "after GC of all")
}

// TestGCFinishesDEL comes after a DEL that Open vSwitch kept from its end.
func TestGCFinishesDEL(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := full(w.pod("c1", w.vf(0, 1)))
	w.mustAdd(p)
	w.sw.down = true
	if err := w.del(p); err == nil {
		t.Fatal("DEL is done without Open vSwitch")
	}
	// It is not there for GC either, which says so.
	var e *types.Error
	if err := w.gc(p, p); !errors.As(err, &e) || e.Code != ErrSwitch {
		t.Fatalf("GC: %v", err)
	}
	w.sw.down = false
	if err := w.gc(p, p); err != nil {
		t.Fatal(err)
	}
	w.ipam.leases = map[string]string{}
	w.mustBe(before, "after GC")
}

func TestGCRefuses(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	w.mustAdd(p)
	held := w.snap()
	for conf, want := range map[any]string{
		nil:    "cni.dev/valid-attachments is missing: want the list of attachments that stay, [] for none",
		"none": `cni.dev/valid-attachments = "none": want a list of {containerID, ifname}`,
	} {
		err := w.plugin().GC(context.Background(), w.args(p.with("cni.dev/valid-attachments", conf)))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Msg, want) {
			t.Errorf("%v: %v", conf, err)
		}
	}
	w.mustBe(held, "after GCs that were refused")
}

// TestGCLeavesWhatIsWorkedOn passes over a VF that another process has locked.
func TestGCLeavesWhatIsWorkedOn(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1)).with("ipam", nil)
	w.mustAdd(p)
	held := w.snap()
	unlock, err := record.In(w.dir).Lock(context.Background(), p.vf)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.gc(p); err != nil {
		t.Error(err)
	}
	w.mustBe(held, "after GC")
	unlock()
}

// TestSweepAfterAnyKill ends ADD and DEL after each piece of work, and then no
// runtime calls again: the sweep of an agent that starts leaves what is complete and
// takes down the rest.
func TestSweepAfterAnyKill(t *testing.T) {
	for verb, do := range map[string]func(*world, pod) error{
		"ADD": (*world).add,
		"DEL": (*world).del,
	} {
		kills := 0
		for n := 1; ; n++ {
			w := newWorld(t)
			before := w.snap()
			stays := full(w.pod("stays", w.vf(0, 0)))
			w.mustAdd(stays)
			p := full(w.pod("c1", w.vf(0, 1)))
			if verb == "DEL" {
				w.mustAdd(p)
			}
			crashed, err := w.crash(n, func() error { return do(w, p) })
			if err != nil {
				t.Fatal(err)
			}
			when := fmt.Sprintf("%s killed after %d", verb, n)
			swept := w.sweep()
			w.invariants(when)
			switch r, err := record.In(w.dir).Load(p.vf); {
			case err == nil && !r.Attached():
				t.Fatalf("%s: the record says %s", when, r.Progress())
			case err == nil && len(swept) != 0:
				t.Fatalf("%s: swept %v", when, swept)
			case err == nil:
				w.mustDel(p)
			}
			if w.ipam.leases["stays/net1"] == "" || len(w.sw.ports) != 1 {
				t.Fatalf("%s: swept more than that: %v, %v", when, w.ipam.leases, w.sw.ports)
			}
			w.mustDel(stays)
			w.mustBe(before, when+" and a sweep")
			if !crashed {
				break
			}
			kills++
		}
		if kills < 15 {
			t.Errorf("%s: only %d kills", verb, kills)
		}
	}
}

// TestSweepOfEndedPods takes down what is of pods that have ended and of an earlier
// boot, not of one whose namespace just cannot be seen from here.
func TestSweepOfEndedPods(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	ended, unseen := full(w.pod("ended", w.vf(0, 1))), full(w.pod("unseen", w.vf(0, 2)))
	w.mustAdd(ended)
	w.mustAdd(unseen)
	process, err := w.sim.Machine().Netns.Open(context.Background(), unseen.netns)
	if err != nil {
		t.Fatal(err)
	}
	w.mustDeleteNetns(ended)
	w.mustDeleteNetns(unseen)
	if d := cmp.Diff(Swept{"VF " + ended.vf + " of pod shop/web-0 (net1 of container ended) is taken down: its pod has ended"}, w.sweep()); d != "" {
		t.Errorf("swept (-want +got):\n%s", d)
	}
	if len(w.sw.ports) != 1 {
		t.Errorf("ports: %v", w.sw.ports)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	w.sweep()
	w.mustBe(before, "after the sweep")
}

// Case B47: a record that was emptied, cut short or filled with zeros keeps neither
// DEL from its end nor the VF from its next pod. It is set aside, and what Open
// vSwitch says of the attachment is enough.
func TestB47DamagedRecord(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut": `{"version":1`, "zeros": strings.Repeat("\x00", 4096), "another's": `{"version":1,"vf":"0000:03:00.7"}`, "newer": `{"version":99}`,
	} {
		for verb, do := range map[string]func(*world, pod) error{
			"DEL":           (*world).del,
			"DEL, no netns": func(w *world, p pod) error { w.mustDeleteNetns(p); p.netns = ""; return w.del(p) },
			"GC":            func(w *world, p pod) error { w.mustDeleteNetns(p); return w.gc(p) },
			"sweep":         func(w *world, p pod) error { w.mustDeleteNetns(p); w.sweep(); return nil },
			"ADD of the next, DEL": func(w *world, p pod) error {
				w.mustDeleteNetns(p)
				next := w.pod("next", p.vf)
				w.mustAdd(next)
				return w.del(next)
			},
		} {
			t.Run(name+", "+verb, func(t *testing.T) {
				w := newWorld(t)
				before := w.snap()
				p := w.pod("c1", w.vf(0, 1)).with("mtu", nil).with("ipam", nil)
				w.mustAdd(p)
				w.damageRecord(p.vf, text)
				if err := do(w, p); err != nil {
					t.Fatal(err)
				}
				w.mustBe(before, "after "+verb)
				w.mustAdd(w.pod("c2", p.vf))
			})
		}
	}
}

// TestDamagedRecordOfSomebody does not take a VF away of which nobody can say whose it
// is while it is in a pod.
func TestDamagedRecordOfSomebody(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1)).with("ipam", nil)
	w.mustAdd(p)
	w.damageRecord(p.vf, "")
	rep := w.state().PFs[0].VFs[1].Rep.Netdev.Name
	port := w.sw.ports[rep]
	delete(w.sw.ports, rep)
	held := w.snap()
	stranger := w.pod("c2", p.vf)
	if err := w.del(stranger); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if err := w.add(stranger); err == nil || !strings.Contains(err.Error(), "is in a pod, and nobody knows in which: attachment record "+w.dir) {
		t.Errorf("ADD: %v", err)
	}
	w.sweep()
	w.mustBe(held, "after ADD, DEL and a sweep")
	// With its port it is the first one's, whoever asks.
	w.sw.ports[rep] = port
	if err := w.del(stranger); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if owners, _ := record.Owners(w.dir, ""); owners[p.vf] != "container c1 (net1)" {
		t.Errorf("owners: %v", owners)
	}
	if l, _ := w.inPod(p.netns); l.Name != "net1" || w.sw.ports[rep].Owner != "c1/net1" {
		t.Errorf("in the pod: %+v; port %+v", l, w.sw.ports[rep])
	}
	w.mustDel(p)
	w.mustAdd(w.pod("c3", p.vf))
}
