package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host/sim"
	logical "sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/network/slots"
)

// red is a second Network beside blue.
func (w *world) red() {
	w.t.Helper()
	err := slots.Open(w.dir).Put(slots.Grant{Block: 0, Network: logical.Network{
		Name: "red", Layer: 2, Encapsulation: "geneve", Ports: 8, MTU: 1300,
		Subnets: []logical.Subnet{{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Gateway: netip.MustParseAddr("10.2.0.1")}},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// several is a node whose only plugin this is, and a pod on it with three interfaces: two
// VFs that the kubelet gave it, and a pair.
func several(t *testing.T) (*world, pod) {
	w := newWorld(t)
	w.blue()
	w.red()
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": {"c": {w.vf(0, 1), w.vf(1, 2)}}})
	return w, w.annotated(w.pod("c1", ""), `[{"network": "red", "interface": "red0"}, {"network": "blue", "attach": "veth"}]`)
}

// annotated is a pod with that annotation, attached to Network blue first.
func (w *world) annotated(p pod, text string) pod {
	p = p.uid("u1").in("blue").with("attach", "any").with("podNetworks", []string{"red", "blue"})
	p.ifname = "eth0"
	return p.with("runtimeConfig", map[string]any{annotations: map[string]string{annotation: text, "other": strings.Repeat("x", 1000)}})
}

func (w *world) call(verb func(*Plugin, context.Context, *skel.CmdArgs) error, p pod) error {
	return verb(w.native(), context.Background(), w.args(p))
}

// leases is how many slots are taken in all Networks.
func (w *world) slots() (out []string) {
	w.t.Helper()
	for _, name := range []string{"blue", "red"} {
		leases, err := slots.Open(w.dir).Leases(name)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, l := range leases {
			out = append(out, name+":"+l.Owner)
		}
	}
	return out
}

// nothing checks that the node is as before, and no slot is taken.
func (w *world) nothing(before snapshot, when string) {
	w.t.Helper()
	w.mustBe(before, when)
	if taken := w.slots(); len(taken) != 0 {
		w.t.Fatalf("%s: slots %q are taken", when, taken)
	}
}

// TestFurtherInterfaces: one ADD makes all of a pod's interfaces, and lists them; CHECK
// compares all; GC keeps all while the first is valid; and one DEL, without the
// annotation, takes all.
func TestFurtherInterfaces(t *testing.T) {
	w, p := several(t)
	before := w.snap()
	if err := w.call((*Plugin).Add, p); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Interfaces []struct{ Name, Sandbox string }
		IPs        []struct {
			Address   string
			Interface int
		}
		Routes []struct{ Dst, GW string }
		DNS    struct{ Nameservers []string }
	}
	result := w.out.String()
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		t.Fatal(err)
	}
	addresses := map[string][]string{}
	for _, ip := range r.IPs {
		f := r.Interfaces[ip.Interface]
		addresses[f.Name] = append(addresses[f.Name], ip.Address)
		if f.Sandbox != p.netns {
			t.Errorf("address %s is of %+v", ip.Address, f)
		}
	}
	if got := fmt.Sprint(addresses); got != "map[eth0:[10.1.0.8/24 fd00:1::8/64] net2:[10.1.0.9/24 fd00:1::9/64] red0:[10.2.0.2/24]]" {
		t.Errorf("addresses %s", got)
	}
	if len(r.Interfaces) != 6 || len(r.Routes) != 1 || r.Routes[0].GW != "10.1.0.1" || len(r.DNS.Nameservers) != 1 {
		t.Errorf("result: %s", result)
	}
	for name, kind := range map[string]string{"eth0": "", "red0": "", "net2": "veth"} {
		if l := w.linkIn(p.netns, name); l.Kind != kind || !l.Up {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if mtu := w.linkIn(p.netns, "red0").MTU; mtu != 1300 {
		t.Errorf("MTU of red0: %d", mtu)
	}
	if got := strings.Join(w.slots(), " "); got != "blue:c1/eth0 blue:c1/net2 red:c1/red0" {
		t.Errorf("slots %s", got)
	}
	// The record of the first has no annotations of others.
	found, err := record.In(w.dir).Find("c1", "eth0")
	if err != nil || len(found) != 1 || len(found[0].Config) > 1000 || !strings.Contains(string(found[0].Config), annotation) {
		t.Errorf("record %+v, %v", found, err)
	}
	var prev map[string]any
	if err := json.Unmarshal([]byte(result), &prev); err != nil {
		t.Fatal(err)
	}
	if err := w.call((*Plugin).Check, p.with("prevResult", prev)); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.native().GC(t.Context(), w.args(p.with("cni.dev/valid-attachments", []any{map[string]string{"containerID": "c1", "ifname": "eth0"}}))); err != nil {
		t.Errorf("GC: %v", err)
	}
	if len(w.sw.ports) != 3 || len(w.slots()) != 3 {
		t.Errorf("after GC with all valid: ports %v, slots %q", w.sw.ports, w.slots())
	}
	red := w.linkIn(p.netns, "red0")
	ns, err := w.sim.Machine().Netns.Open(t.Context(), p.netns)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ns.SetUp(t.Context(), red.Ifindex, false), ns.Close()); err != nil {
		t.Fatal(err)
	}
	if err := w.call((*Plugin).Check, p.with("prevResult", prev)); err == nil || !strings.Contains(err.Error(), "red0 in the pod is down") {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.call((*Plugin).Del, p.with("runtimeConfig", nil)); err != nil {
		t.Fatal(err)
	}
	w.nothing(before, "after DEL")
	if err := w.call((*Plugin).Del, p); err != nil {
		t.Errorf("DEL again: %v", err)
	}

	for name, end := range map[string]func() error{
		"GC": func() error {
			return w.native().GC(t.Context(), w.args(p.with("cni.dev/valid-attachments", []any{})))
		},
		"a sweep after the pod's end": func() error {
			w.mustDeleteNetns(p)
			_, err := w.native().Sweep(t.Context(), w.dir, DefaultOVSDB)
			return err
		},
	} {
		_ = w.sim.AddNetns(p.netns) // it may be there
		if err := w.call((*Plugin).Add, p); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.nothing(before, "after "+name)
	}
}

// TestFurtherRefused: what no annotation can be is refused, and nothing is begun.
func TestFurtherRefused(t *testing.T) {
	w, p := several(t)
	before := w.snap()
	for text, want := range map[string]string{
		`{"network": "red"}`:                        `want a list such as [{"network": "red", "interface": "net1"}]`,
		`[{"network": "red"}] []`:                   "want a list such as",
		`[{"net": "red"}]`:                          `unknown field "net"`,
		`[{"network": "green"}]`:                    `network = "green": pods may have one of ["red" "blue"]`,
		`[{}]`:                                      `network = "": pods may have one of`,
		`[{"network": "red", "mac": "02::"}]`:       `unknown field "mac"`,
		`[{"network": "red", "interface": "eth0"}]`: `interface = "eth0": the pod has one of this name`,
		`[{"network": "red", "interface": "lo"}]`:   `interface = "lo": the pod has one of this name`,
		`[{"network": "red", "interface": "a"}, {"network": "blue", "interface": "a"}]`:           `interface = "a": the pod has one of this name`,
		`[{"network": "red", "interface": "a/b"}]`:                                                `interface = "a/b": want an interface's name`,
		`[{"network": "red", "attach": "vf"}]`:                                                    `interface net1: network configuration "offloaded": attach = "vf"`,
		`[{"network": "red", "attach": "veth", "resourceName": "sluice.dev/fast"}]`:               `resourceName = "sluice.dev/fast": want it away`,
		`[{"network": "red", "attach": "representor"}]`:                                           `attach = "representor": network = "red"`,
		"[" + strings.TrimSuffix(strings.Repeat(`{"network": "red"},`, mostFurther+1), ",") + "]": "17 interfaces: want at most 16",
	} {
		err := w.call((*Plugin).Add, w.annotated(p, text))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Msg, "annotation sluice.dev/networks of pod shop/c1: ") || !strings.Contains(e.Msg, want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		w.nothing(before, text)
	}
	if err := w.call((*Plugin).Add, p.with("runtimeConfig", nil)); err == nil || !strings.Contains(err.Error(), `want "capabilities": {"io.kubernetes.cri.pod-annotations": true}`) {
		t.Errorf("a runtime that gives no annotations: %v", err)
	}
	if err := w.call((*Plugin).Add, p.with("podNetworks", []string{})); err == nil || !strings.Contains(err.Error(), "podNetworks = []: want a list of names of Networks") {
		t.Errorf("no Networks: %v", err)
	}
	w.nothing(before, "after all")
	// A pod without the annotation, or without any, has its first interface.
	for _, none := range []any{nil, map[string]string{"other": "x"}} {
		q := p.with("runtimeConfig", map[string]any{annotations: none})
		if err := w.call((*Plugin).Add, q); err != nil {
			t.Errorf("annotations %v: %v", none, err)
		}
		if len(w.sw.ports) != 1 {
			t.Errorf("annotations %v: ports %v", none, w.sw.ports)
		}
		if err := w.call((*Plugin).Del, q); err != nil {
			t.Error(err)
		}
	}
	// Without podNetworks annotations mean nothing.
	q := p.with("podNetworks", nil)
	if err := errors.Join(w.call((*Plugin).Add, q)); err != nil || len(w.sw.ports) != 1 {
		t.Errorf("%v, ports %v", err, w.sw.ports)
	}
	if err := w.call((*Plugin).Del, q); err != nil {
		t.Error(err)
	}
	w.nothing(before, "in the end")
}

// TestFurtherAllOrNone lets each write of such an ADD fail, before and after its effect,
// and the last interface be one that cannot be: then the pod has none.
func TestFurtherAllOrNone(t *testing.T) {
	for _, after := range []bool{false, true} {
		failed := 0
		for n := 0; ; n++ {
			w, p := several(t)
			before := w.snap()
			w.sim.Inject(sim.Fault{Skip: n, After: after, Match: func(o sim.Op) bool { return o.Verb != sim.Announce }})
			err := w.call((*Plugin).Add, p)
			if err == nil {
				break
			}
			failed++
			w.nothing(before, fmt.Sprintf("after an ADD whose write %d failed (after its effect: %v): %v", n, after, err))
			if w.out.Len() != 0 {
				t.Fatalf("printed %q", w.out.String())
			}
		}
		if failed < 25 {
			t.Errorf("only %d failures", failed)
		}
	}
	w, p := several(t)
	before := w.snap()
	err := w.call((*Plugin).Add, w.annotated(p, `[{"network": "red"}, {"network": "blue"}]`)) // a VF more than it has
	if err == nil || !strings.Contains(err.Error(), "interface net2, by annotation sluice.dev/networks") || !strings.Contains(err.Error(), "want one more among its limits") {
		t.Errorf("ADD: %v", err)
	}
	w.nothing(before, "after that")
}

// TestFurtherKilled ends the process of such an ADD or DEL at each place. DEL takes all
// there is, with and without the namespace, and slots that were taken before a record.
func TestFurtherKilled(t *testing.T) {
	for _, verb := range []string{"ADD", "DEL"} {
		kills := 0
		for n := 1; ; n++ {
			w, p := several(t)
			before := w.snap()
			do := func() error { return w.call((*Plugin).Add, p) }
			if verb == "DEL" {
				if err := do(); err != nil {
					t.Fatal(err)
				}
				do = func() error { return w.call((*Plugin).Del, p) }
			}
			crashed, err := w.crash(n, do)
			if err != nil {
				t.Fatal(err)
			}
			w.invariants(fmt.Sprintf("%s killed after %d pieces", verb, n))
			if n%2 == 0 {
				w.mustDeleteNetns(p)
			}
			if err := w.call((*Plugin).Del, p); err != nil {
				t.Fatal(err)
			}
			w.nothing(before, fmt.Sprintf("after %s killed after %d pieces, and DEL", verb, n))
			if !crashed {
				break
			}
			kills++
		}
		if kills < 40 {
			t.Errorf("%s: only %d kills", verb, kills)
		}
	}
}

// TestFurtherSlotsLeft: an ADD that ended between slot and record leaves the slot to GC
// once it is old enough to be no ADD's.
func TestFurtherSlotsLeft(t *testing.T) {
	w, p := several(t)
	before := w.snap()
	if _, _, err := slots.Open(w.dir).Take("red", "c9/net1"); err != nil {
		t.Fatal(err)
	}
	gc := func() {
		if err := w.native().GC(t.Context(), w.args(p.with("cni.dev/valid-attachments", []any{}))); err != nil {
			t.Fatal(err)
		}
	}
	gc()
	if got := w.slots(); len(got) != 1 {
		t.Errorf("a fresh slot: %q", got)
	}
	old := time.Now().Add(-2 * takenAt)
	files, err := filepath.Glob(filepath.Join(w.dir, "networks/red/[0-9]*"))
	if err != nil || len(files) != 1 || os.Chtimes(files[0], old, old) != nil {
		t.Fatalf("slots %q, %v", files, err)
	}
	gc()
	w.nothing(before, "after GC")
}
