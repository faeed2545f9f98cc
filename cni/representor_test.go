package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// freeReps is a node whose representors may leave.
const freeReps = "mlx5:cards=1,ports=2,vfs=8,numvfs=4,mode=switchdev+machine:reps=free"

func asRep(p pod) pod { return p.with("attach", "representor").with("bridge", nil) }

// repIn reads the representor that a pod has.
func (w *world) repIn(netns string) host.Link {
	w.t.Helper()
	l, _ := w.inPod(netns)
	return l
}

// TestRepresentor gives a pod the representor of a VF, which stays where it is.
func TestRepresentor(t *testing.T) {
	w := newWorldOf(t, freeReps)
	before := w.snap()
	vf := w.vfAt(w.vf(0, 1))
	p := asRep(w.pod("c1", vf.Address)).with("mtu", 9000)
	result := w.mustAdd(p)
	golden(t, "add-representor.steps", w.steps(record.RepKey(p.vf)))
	golden(t, "add-representor.result", strings.ReplaceAll(result, w.dir, "DIR")+"\n")
	l := w.repIn(p.netns)
	if l.Name != "net1" || !l.Up || l.MTU != 9000 || l.PortName != "pf0vf1" || l.MAC != vf.Rep.Netdev.MAC {
		t.Errorf("in the pod: %+v", l)
	}
	if now := w.vfAt(p.vf); now.Netdev != vf.Netdev || now.Away || now.Rep.Exists() {
		t.Errorf("VF: %+v, was %+v", now, vf)
	}
	if owners, err := record.Owners(w.dir, ""); err != nil || owners[p.vf] == "" {
		t.Errorf("owners %v, %v", owners, err)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.status(p); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	_, ns := w.inPod(p.netns)
	if err := ns.SetUp(t.Context(), l.Ifindex, false); err != nil {
		t.Fatal(err)
	}
	var e *types.Error
	if err := w.check(p, result); !errors.As(err, &e) || e.Code != ErrDamage || !strings.Contains(e.Msg, "representor net1 in the pod is down") {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.add(asRep(w.pod("c2", p.vf))); err == nil || !strings.Contains(err.Error(), "is held by container c1 (net1)") {
		t.Errorf("another pod: %v", err)
	}
	w.mustDel(p)
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestRepresentorAndVF has the two ends in two pods, taken down in each order; the VF of a
// pod that has its representor in a bridge is no other pod's.
func TestRepresentorAndVF(t *testing.T) {
	for _, order := range []string{"switch first", "guest first", "both namespaces"} {
		w := newWorldOf(t, freeReps)
		before := w.snap()
		sw, guest := asRep(w.pod("switch", w.vf(0, 1))), w.pod("guest", w.vf(0, 1))
		if err := w.add(guest.with("bridge", nil)); err == nil || !strings.Contains(err.Error(), "bridge is missing") {
			t.Fatalf("guest before the switch: %v", err)
		}
		w.mustAdd(sw)
		if err := w.add(guest); err == nil || !strings.Contains(err.Error(), `bridge = "br-int": the representor of VF 0000:03:00.3 is in a pod, with container switch (net1)`) {
			t.Errorf("a bridge: %v", err)
		}
		result := w.mustAdd(guest.with("bridge", nil))
		if l := w.linkIn(guest.netns, "net1"); l.Parent != guest.vf || !l.Carrier {
			t.Errorf("guest: %+v", l)
		}
		if err := w.check(guest.with("bridge", nil), result); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		switch order {
		case "switch first":
			w.mustDel(sw)
			w.mustDel(guest)
		case "guest first":
			w.mustDel(guest)
			w.mustDel(sw)
		default:
			w.mustDeleteNetns(sw)
			w.mustDeleteNetns(guest)
			if swept := w.sweep(); len(swept) != 2 {
				t.Errorf("swept %v", swept)
			}
		}
		w.mustBe(before, order)
		sw, guest = asRep(w.pod("switch2", w.vf(0, 1))), w.pod("guest2", w.vf(0, 1))
		w.mustAdd(guest)
		if err := w.add(sw); err == nil || !strings.Contains(err.Error(), "with its representor in bridge br-int: want its DEL first") {
			t.Errorf("the representor is in a bridge: %v", err)
		}
	}
}

// TestRepresentorPinned is refused before anything is changed where the kernel says that
// it is pinned, and leaves nothing where it says so only when it is to move.
func TestRepresentorPinned(t *testing.T) {
	for spec, words := range map[string]string{
		"": "The interface netns is immutable", "+machine:reps=untold": "has to stay in the host's network namespace: move to netns",
	} {
		w := newWorldOf(t, "mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev"+spec)
		before, writes := w.snap(), w.sim.Writes()
		p := asRep(w.pod("c1", w.vf(0, 1)))
		err := w.add(p)
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig ||
			!strings.Contains(e.Msg, `attach = "representor": enp3s0f0npf0vf1, that of VF`) && !strings.Contains(e.Msg, `attach = "representor": enp3s0npf0vf1, that of VF`) ||
			!strings.Contains(e.Msg, words) || !strings.Contains(e.Msg, "want a bridge of the host's for it") {
			t.Errorf("%q: %v", spec, err)
		}
		if spec == "" && w.sim.Writes() != writes {
			t.Error("something was changed")
		}
		w.mustBe(before, "after a refused ADD")
		w.mustDel(p)
	}
}

// TestRepresentorRefuses says of a field that it has nothing to do with it.
func TestRepresentorRefuses(t *testing.T) {
	for field, c := range map[string]struct {
		value any
		want  string
	}{
		"bridge":      {"br-int", "the representor is in the pod, and in no bridge of the host's: want it away"},
		"network":     {"red", "the pod itself is the switch"},
		"vlan":        {7, "vlan = 7: VLANs are for the switch in the pod"},
		"max_tx_rate": {10, "max_tx_rate = 10: the VF stays as it is"},
		"channels":    {2, "channels = 2: the VF stays as it is"},
		"trust":       {"on", `trust = "on": the VF stays as it is`},
		"deviceID":    {nil, "deviceID is missing"},
	} {
		w := newWorldOf(t, freeReps)
		before := w.snap()
		if err := w.add(asRep(w.pod("c1", w.vf(0, 1))).with("ipam", nil).with(field, c.value)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", field, err, c.want)
		}
		w.mustBe(before, field)
	}
	w := newWorldOf(t, "mlx5:numvfs=2+machine:reps=free")
	if err := w.add(asRep(w.pod("c1", w.vf(0, 1)))); err == nil || !strings.Contains(err.Error(), "has no representor: its PF has its eswitch in legacy mode") {
		t.Errorf("legacy: %v", err)
	}
}

// TestRepresentorOfProgram is of a VF that a program drives: a virtual machine's, say.
func TestRepresentorOfProgram(t *testing.T) {
	w := newWorldOf(t, freeReps)
	p := asRep(w.pod("c1", w.vf(0, 1)))
	w.bind(p.vf, "vfio-pci")
	before := w.snap()
	w.mustAdd(p)
	if l := w.repIn(p.netns); l.PortName != "pf0vf1" {
		t.Errorf("in the pod: %+v", l)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestRepresentorStray finds what is left of one whose record cannot be read: by DEL with
// its namespace, or when the kernel has given it back.
func TestRepresentorStray(t *testing.T) {
	w := newWorldOf(t, freeReps)
	p := asRep(w.pod("c1", w.vf(0, 1)))
	w.mustAdd(p)
	w.damageRecord(record.RepKey(p.vf), "")
	if swept := w.sweep(); len(swept) != 0 {
		t.Errorf("swept %v of a pod that lives", swept)
	}
	if err := w.add(asRep(w.pod("c2", p.vf))); err == nil || !strings.Contains(err.Error(), "want that pod's end") {
		t.Errorf("another pod: %v", err)
	}
	w.mustDel(p)
	if vf := w.vfAt(p.vf); !vf.Rep.Exists() || vf.Rep.Netdev.Name != "sr000003003" {
		t.Errorf("after DEL: %+v", vf.Rep)
	}
	if owners, err := record.Owners(w.dir, ""); err != nil || len(owners) != 0 {
		t.Errorf("owners %v, %v", owners, err)
	}
	w = newWorldOf(t, freeReps)
	w.mustAdd(asRep(w.pod("c1", p.vf)))
	w.damageRecord(record.RepKey(p.vf), "")
	w.mustDeleteNetns(p)
	w.sweep()
	if vf := w.vfAt(p.vf); !vf.Rep.Exists() || vf.InUse() != "" {
		t.Errorf("after the namespace's end: %+v", vf)
	}
	if owners, err := record.Owners(w.dir, ""); err != nil || len(owners) != 0 {
		t.Errorf("owners %v, %v", owners, err)
	}
}

// TestRepresentorUnreachable waits for a namespace that no path leads to any more.
func TestRepresentorUnreachable(t *testing.T) {
	w := newWorldOf(t, freeReps)
	before := w.snap()
	p := asRep(w.pod("c1", w.vf(0, 1)))
	w.mustAdd(p)
	process, err := w.sim.Machine().Netns.Open(t.Context(), p.netns)
	if err != nil {
		t.Fatal(err)
	}
	w.mustDeleteNetns(p)
	if err := w.del(p); err == nil || !strings.Contains(err.Error(), "the representor of VF 0000:03:00.3 is in a network namespace that") {
		t.Errorf("DEL: %v", err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	// A change of mode takes representors away, wherever they are.
	w.mustAdd(asRep(w.pod("c1", w.vf(0, 1))))
	if err := w.sim.Machine().Devlink.SetEswitch(t.Context(), w.state().PFs[0].Handle, nic.Legacy); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	if len(w.ipam.leases) != 0 {
		t.Errorf("leases %v", w.ipam.leases)
	}
}
