package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
)

// linkIn reads an interface of a pod's namespace by name.
func (w *world) linkIn(netns, name string) host.Link {
	w.t.Helper()
	ns, err := w.sim.Machine().Netns.Open(w.t.Context(), netns)
	if err != nil {
		w.t.Fatal(err)
	}
	defer ns.Close()
	all, err := ns.Links(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range all {
		if l.Name == name {
			return l
		}
	}
	return host.Link{}
}

// TestVeth gives a pod without a VF the end of a pair, in the same bridge as VFs are.
func TestVeth(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := full(w.pod("c1", "")).with("deviceID", nil).with("attach", "veth")
	result := w.mustAdd(p)
	name := record.PairName("c1", "net1")
	golden(t, "add-veth.steps", w.steps(name))
	golden(t, "add-veth.result", strings.ReplaceAll(result, w.dir, "DIR")+"\n")
	if l := w.linkIn(p.netns, "net1"); l.Kind != "veth" || !l.Up || l.MTU != 9000 || l.MAC.String() != "02:00:00:00:00:01" {
		t.Errorf("in the pod: %+v", l)
	}
	port := w.sw.ports[name]
	if port.Bridge != "br-int" || port.VLAN != 100 || port.Owner != "c1/net1" ||
		port.ExternalIDs["attached_mac"] != "02:00:00:00:00:01" || port.ExternalIDs["iface-id"] != "shop_c1" {
		t.Errorf("port: %+v", port)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.sim.Machine().Pairs.DelPair(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	var e *types.Error
	if err := w.check(p, result); !errors.As(err, &e) || e.Code != ErrDamage || !strings.Contains(e.Msg, "its netdev is not in the pod's network namespace") {
		t.Errorf("CHECK: %v", err)
	}
	w.mustDel(p)
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestNetkit gives a pod the end of a pair of netkit. Whatever ends it, nothing is left.
func TestNetkit(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := full(w.pod("c1", "")).with("deviceID", nil).with("attach", "netkit").with("sysctls", someSysctls)
	result := w.mustAdd(p)
	name := record.PairName("c1", "net1")
	if steps := w.steps(name); !strings.Contains(steps, "make pair of netkit "+name+" and net1 in the pod") ||
		!strings.Contains(steps, "set netkit net1 in the pod up") {
		t.Errorf("steps:\n%s", steps)
	}
	if l := w.linkIn(p.netns, "net1"); l.Kind != "netkit" || !l.Up || l.MTU != 9000 || l.MAC.String() != "02:00:00:00:00:01" {
		t.Errorf("in the pod: %+v", l)
	}
	if port := w.sw.ports[name]; port.Bridge != "br-int" || port.Owner != "c1/net1" {
		t.Errorf("port: %+v", port)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")

	w.mustAdd(p)
	w.mustDeleteNetns(p)
	if swept := w.sweep(); len(swept) != 1 || !strings.Contains(swept[0], "its pod has ended") {
		t.Errorf("swept: %v", swept)
	}
	w.mustBe(before, "after a sweep")

	// A pair of which there is no record, as a lost record leaves it.
	p = w.pod("c2", "").with("deviceID", nil).with("attach", "netkit")
	w.mustAdd(p)
	if err := record.In(w.dir).Remove(record.PairName("c2", "net1")); err != nil {
		t.Fatal(err)
	}
	w.sweep()
	if w.linkIn(p.netns, "net1").Name != "" || len(w.sw.ports) != 0 {
		t.Errorf("after a sweep: ports %v", w.sw.ports)
	}
	for field, value := range map[string]any{"deviceID": w.vf(0, 1), "resourceName": "sluice.dev/fast", "max_tx_rate": 10, "bridge": nil} {
		err := w.add(w.pod("c-"+field, "").with("deviceID", nil).with("attach", "netkit").with(field, value))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Msg, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestNoNetkit: a kernel without it refuses, in words that say what to do, and nothing
// is left.
func TestNoNetkit(t *testing.T) {
	w := newWorldOf(t, vfNode+"+machine:netkit=off")
	before := w.snap()
	err := w.add(w.pod("c1", "").with("deviceID", nil).with("attach", "netkit"))
	var e *types.Error
	if !errors.As(err, &e) || e.Code != ErrNode || !strings.Contains(e.Msg, "this kernel has no netkit") || !strings.Contains(e.Msg, "CONFIG_NETKIT (Linux 6.7), or attach veth") {
		t.Errorf("ADD: %v", err)
	}
	w.mustBe(before, "after the ADD")
}

// TestStatusOfPairs: pods that have no VF need no NIC.
func TestStatusOfPairs(t *testing.T) {
	w := newWorldOf(t, "igb:cards=1,vfs=2")
	for _, attach := range []string{"veth", "netkit"} {
		args := w.args(w.pod(attach, "").with("deviceID", nil).with("attach", attach))
		if err := w.plugin().Status(t.Context(), args); err != nil {
			t.Errorf("%s: %v", attach, err)
		}
	}
	if err := w.plugin().Status(t.Context(), w.args(w.pod("vf", "").with("deviceID", nil))); err == nil {
		t.Error("VFs: no NIC of the node is in switchdev mode, and STATUS says nothing")
	}
}

// TestVethPlain keeps the address that the kernel drew, and CHECK knows it.
func TestVethPlain(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := w.pod("c1", "").with("deviceID", nil).with("attach", "veth").with("ipam", nil)
	result := w.mustAdd(p)
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if port := w.sw.ports[record.PairName("c1", "net1")]; port.ExternalIDs["attached_mac"] != w.linkIn(p.netns, "net1").MAC.String() {
		t.Errorf("port %+v, %+v", port, w.linkIn(p.netns, "net1"))
	}
	// The namespace ends, and the kernel takes both ends: a sweep takes the rest.
	w.mustDeleteNetns(p)
	if swept := w.sweep(); len(swept) != 1 || !strings.Contains(swept[0], "its pod has ended") {
		t.Errorf("swept: %v", swept)
	}
	w.mustBe(before, "after a sweep")
}

// TestAttachAny gives each pod its VF, and a pod that the kubelet gave none a pair's end.
func TestAttachAny(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	without := w.pod("c2", "").uid("u2").with("attach", "any").with("ipam", nil)
	w.mustAdd(without) // before the kubelet has allocated anything
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"u1": {"web": {w.vf(0, 1)}}})
	with, third := w.pod("c1", "").uid("u1").with("attach", "any").with("ipam", nil), w.pod("c3", "").uid("u3").with("attach", "any").with("ipam", nil)
	w.mustAdd(with)
	w.mustAdd(third)
	if w.attached(with) != w.vf(0, 1) || w.linkIn(without.netns, "net1").Kind != "veth" || w.linkIn(third.netns, "net1").Kind != "veth" {
		t.Errorf("attached %q, %+v", w.attached(with), w.linkIn(without.netns, "net1"))
	}
	if err := w.gc(with, with, third); err != nil {
		t.Fatal(err)
	}
	if w.linkIn(without.netns, "net1").Name != "" || len(w.sw.ports) != 2 {
		t.Errorf("after GC: ports %v", w.sw.ports)
	}
	w.mustDel(with)
	w.mustDel(third)
	w.mustBe(before, "after DELs")
	if err := w.add(third.with("max_tx_rate", 10)); err == nil || !strings.Contains(err.Error(), "max_tx_rate = 10: the pod has no VF, and a pair of software interfaces nothing of that: want it away") {
		t.Errorf("a rate: %v", err)
	}
	if err := w.add(third.with("trust", "on")); err == nil || !strings.Contains(err.Error(), `trust = "on": the pod has no VF`) {
		t.Errorf("trust: %v", err)
	}
}

// TestStrayPairs removes pairs of ours without a record, and no others.
func TestStrayPairs(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", "")
	name := record.PairName("lost", "eth0")
	m, ctx := w.sim.Machine(), t.Context()
	if err := errors.Join(m.Pairs.AddPair(ctx, host.Veth, "veth1a2b3c4d", "eth9", p.netns), m.Pairs.AddPair(ctx, host.Veth, name, "eth8", p.netns)); err != nil {
		t.Fatal(err)
	}
	w.sw.ports[name] = offload.Port{Bridge: "br-int", Representor: name, Owner: "lost/eth0"}
	if swept := w.sweep(); len(swept) != 2 {
		t.Errorf("swept: %v", swept)
	}
	if w.linkIn(p.netns, "eth8").Name != "" || w.linkIn(p.netns, "eth9").Name == "" || len(w.sw.ports) != 0 {
		t.Errorf("left: %v", w.sw.ports)
	}
}

// TestDamagedRecordOfPair is case B47 for a pair.
func TestDamagedRecordOfPair(t *testing.T) {
	for verb, do := range map[string]func(*world, pod) error{
		"DEL":           (*world).del,
		"DEL, no netns": func(w *world, p pod) error { w.mustDeleteNetns(p); p.netns = ""; return w.del(p) },
		"sweep":         func(w *world, p pod) error { w.mustDeleteNetns(p); w.sweep(); return nil },
		"DEL, unplugged": func(w *world, p pod) error {
			clear(w.sw.ports)
			return w.del(p)
		},
	} {
		w := newWorld(t)
		before := w.snap()
		p := w.pod("c1", "").with("deviceID", nil).with("attach", "veth").with("ipam", nil)
		w.mustAdd(p)
		w.damageRecord(record.PairName("c1", "net1"), "")
		if err := do(w, p); err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		w.mustBe(before, "after "+verb)
	}
}
