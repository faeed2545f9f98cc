package cni

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

// ibNode has VFs of InfiniBand ports.
const ibNode = "mlx5:cards=1,ports=2,vfs=8,numvfs=4,link=infiniband"

const someGUID = "02:00:00:00:00:00:00:2a"

// withGUID is a pod of InfiniBand.
func withGUID(p pod) pod { return p.with("bridge", nil).with("guid", someGUID) }

// effective is the GUID that a VF was bound with.
func (w *world) effective(vf string) string {
	w.t.Helper()
	g, err := w.plugin().guidInEffect(context.Background(), vf)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// TestGUID: the VF has its GUID in effect when it is in the pod, and the one from before,
// in effect too, when it has come home: whoever has it next, on the host or in a pod
// without a wish, has nothing of this one's.
func TestGUID(t *testing.T) {
	w := newWorldOf(t, ibNode)
	vf := w.vf(0, 1)
	was := "02:00:00:00:00:00:00:01"
	pf := w.state().PFs[0]
	for _, name := range []nic.Setting{nic.NodeGUID, nic.PortGUID} {
		if err := w.sim.Machine().Settings.SetVF(t.Context(), pf, 1, name, was); err != nil {
			t.Fatal(err)
		}
	}
	w.bind(vf, "mlx5_core")
	if got := w.effective(vf); got != was {
		t.Fatalf("before: %s", got)
	}
	before, settings := w.snap(), w.settings()
	p := withGUID(w.pod("c1", vf)).with("channels", 4)
	result := w.mustAdd(p)
	if got := w.effective(vf); got != someGUID {
		t.Errorf("GUID in effect %s, want %s", got, someGUID)
	}
	v := w.state().PFs[0].VFs[1]
	if v.Settings[nic.NodeGUID] != someGUID || v.Settings[nic.PortGUID] != someGUID || !v.Away || v.Driver != "mlx5_core" {
		t.Errorf("VF: %+v", v)
	}
	if l, _ := w.inPod(p.netns); l.Name != "net1" || l.Parent != vf || !l.Up {
		t.Errorf("in the pod: %+v", l)
	}
	golden(t, "add-guid.steps", w.steps(vf))
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.sim.Machine().Settings.SetVF(t.Context(), pf, 1, nic.NodeGUID, was); err != nil {
		t.Fatal(err)
	}
	if err := w.check(p, result); err == nil || !strings.Contains(err.Error(), "its node-guid is "+was+", want "+someGUID) {
		t.Errorf("CHECK of a GUID that the PF has changed: %v", err)
	}
	w.mustDel(p)
	if got := w.effective(vf); got != was {
		t.Errorf("after DEL: GUID in effect %s, want %s", got, was)
	}
	w.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}

	// A pod that has the GUID already is bound to nothing anew.
	w.mustAdd(p)
	w.mustDel(p)
	writes := len(w.sim.Log())
	w.mustAdd(p.with("guid", was))
	for _, op := range w.sim.Log()[writes:] {
		if strings.Contains(string(op.Verb), "bind") {
			t.Errorf("%v", op)
		}
	}
	w.mustDel(p)
	w.mustBe(before, "after the last DEL")
}

// TestGUIDAfterPod: the next pod of the VF, after one whose namespace ended without a
// word, has its own GUID, or none that was set for another.
func TestGUIDAfterPod(t *testing.T) {
	w := newWorldOf(t, ibNode)
	vf := w.vf(1, 2)
	before, none := w.snap(), w.effective(vf)
	first := withGUID(w.pod("c1", vf))
	w.mustAdd(first)
	w.mustDeleteNetns(first)
	next := withGUID(w.pod("c2", vf)).with("guid", "02:00:00:00:00:00:00:2b")
	w.mustAdd(next)
	if got := w.effective(vf); got != "02:00:00:00:00:00:00:2b" {
		t.Errorf("the next pod: %s", got)
	}
	w.mustDel(next)
	plain := w.pod("c3", vf).with("bridge", nil)
	w.mustAdd(plain)
	if got := w.effective(vf); got != none {
		t.Errorf("a pod without a wish: %s, want %s", got, none)
	}
	w.mustDel(plain)
	w.mustBe(before, "after all")
}

// TestGUIDWays: who goes before whom, and what no GUID is.
func TestGUIDWays(t *testing.T) {
	const a, b, c, d = "02:00:00:00:00:00:00:0a", "02:00:00:00:00:00:00:0b", "02:00:00:00:00:00:00:0c", "02:00:00:00:00:00:00:0d"
	base := pod{vf: "0000:03:00.3"}.with("guid", a)
	args := base.with("args", map[string]any{"cni": map[string]any{"guid": b}})
	w := newWorldOf(t, ibNode)
	parse := func(p pod) (string, error) {
		in := w.args(p)
		conf, err := ParseConfig(in.StdinData, in.Args)
		return conf.GUID, err
	}
	env, upper := args, args
	env.args, upper.args = "IgnoreUnknown=1;guid="+c, "GUID="+strings.ToUpper(c)
	for want, p := range map[string][]pod{
		a: {base}, b: {args}, c: {env, upper},
		d: {env.with("runtimeConfig", map[string]any{"infinibandGUID": d}), env.with("runtimeConfig", map[string]any{"infinibandGUID": strings.ToUpper(d)})},
	} {
		for _, p := range p {
			if got, err := parse(p); got != want || err != nil {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		}
	}
	for _, no := range []string{
		"", "02", "0200:0000:0000:0001", "02:00:00:00:00:00:00", "02:00:00:00:00:00:00:00:01", "2:0:0:0:0:0:0:1", "02-00-00-00-00-00-00-01",
		"00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff", "FF:FF:FF:FF:FF:FF:FF:FF", "0g:00:00:00:00:00:00:01", "+2:00:00:00:00:00:00:01",
	} {
		bad := pod{vf: "0000:03:00.3"}
		bad.args = "GUID=" + no
		for name, p := range map[string]pod{
			"guid": base.with("guid", no), "args.cni.guid": base.with("args", map[string]any{"cni": map[string]any{"guid": no}}),
			"infinibandGUID": base.with("runtimeConfig", map[string]any{"infinibandGUID": no}), "CNI_ARGS: GUID": bad,
		} {
			if _, err := parse(p); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "want eight octets, neither all 00 nor all ff") {
				t.Errorf("%s = %q: %v", name, no, err)
			}
		}
	}
}

// TestGUIDRefused: what has no GUID gets none.
func TestGUIDRefused(t *testing.T) {
	ib, ethernet := newWorldOf(t, ibNode), newWorldOf(t, "mlx5:cards=1,ports=2,vfs=8,numvfs=4,numsfs=1,mode=switchdev")
	for name, c := range map[string]struct {
		w    *world
		ask  func(w *world) pod
		code uint
		want string
	}{
		"Ethernet": {ethernet, func(w *world) pod { return w.pod("c1", w.vf(0, 1)).with("guid", someGUID) }, types.ErrInvalidNetworkConfig, "is on a port of Ethernet, which has no GUIDs"},
		"an SF":    {ethernet, func(w *world) pod { return w.pod("c2", w.sf(0, 0)).with("guid", someGUID) }, types.ErrInvalidNetworkConfig, "SF mlx5_core.sf.2 is on a port of Ethernet"},
		"a pair": {ethernet, func(w *world) pod {
			return w.pod("c3", "").with("deviceID", nil).with("attach", "veth").with("guid", someGUID)
		}, types.ErrInvalidNetworkConfig, "guid = " + someGUID + ": the pod has no VF"},
		"a representor": {ethernet, func(w *world) pod { return asRep(w.pod("c4", w.vf(0, 1))).with("guid", someGUID) }, types.ErrInvalidNetworkConfig, "the VF stays as it is"},
		"a MAC":         {ib, func(w *world) pod { return withGUID(w.pod("c5", w.vf(0, 1))).with("mac", "02:00:00:00:00:01") }, types.ErrInvalidNetworkConfig, "is on a port of InfiniBand, which has no MAC addresses: want guid"},
		"half of it": {ib, func(w *world) pod {
			if err := w.sim.Machine().Settings.SetVF(context.Background(), w.state().PFs[0], 2, nic.NodeGUID, someGUID); err != nil {
				t.Fatal(err)
			}
			return withGUID(w.pod("c6", w.vf(0, 2)))
		}, types.ErrInvalidNetworkConfig, "has it as node GUID already, and port GUID 00:"},
	} {
		p := c.ask(c.w)
		before := c.w.snap()
		err := c.w.add(p)
		var e *types.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%s: %v, want code %d and %q", name, err, c.code, c.want)
		}
		c.w.mustBe(before, name)
	}
}

// TestGUIDUserspace: a program's own driver takes the GUID, so nothing is bound anew.
func TestGUIDUserspace(t *testing.T) {
	w := newWorldOf(t, ibNode)
	w.bind(w.vf(0, 1), "vfio-pci")
	before, settings := w.snap(), w.settings()
	p := withGUID(w.pod("c1", w.vf(0, 1)))
	w.mustAdd(p)
	if v := w.state().PFs[0].VFs[1]; v.Settings[nic.NodeGUID] != someGUID || v.Settings[nic.PortGUID] != someGUID || v.Driver != "vfio-pci" {
		t.Errorf("VF: %+v", v)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
}

// TestGUIDRenamesRDMA: in exclusive mode the VF's RDMA device goes along, also where
// binding anew has given it another name, which lower ones that are free do.
func TestGUIDRenamesRDMA(t *testing.T) {
	w := newWorldOf(t, ibNode+"+machine:rdma=exclusive")
	lower, vf := w.vf(0, 0), w.vf(1, 3)
	if err := w.sim.Machine().PCI.Unbind(t.Context(), lower); err != nil {
		t.Fatal(err)
	}
	was := w.rdmaOf(vf)
	p := withGUID(w.pod("c1", vf))
	w.mustAdd(p)
	r, err := record.In(w.dir).Load(vf)
	if err != nil {
		t.Fatal(err)
	}
	if in := w.rdmaIn(p); len(in) != 1 || slices.Equal(in, was) || !slices.Equal(in, r.RDMA) {
		t.Errorf("in the pod %q, recorded %q, before %q", in, r.RDMA, was)
	}
	w.mustDel(p)
	if back := w.rdmaOf(vf); len(back) != 1 || w.effective(vf) != "00:00:00:00:00:00:00:00" {
		t.Errorf("at home %q with GUID %s", back, w.effective(vf))
	}
	w.mustDeleteNetns(p)
}

// TestGUIDKilledUnbound: an ADD that ends while the VF has no driver leaves it without for
// no longer than the next sweep.
func TestGUIDKilledUnbound(t *testing.T) {
	w := newWorldOf(t, ibNode)
	before := w.snap()
	p := withGUID(w.pod("c1", w.vf(0, 1)))
	for n := 1; ; n++ {
		crashed, err := w.crash(n, func() error { return w.add(p) })
		if err != nil {
			t.Fatal(err)
		}
		if !crashed {
			t.Fatal("the VF was never unbound")
		}
		if w.state().PFs[0].VFs[1].Driver == "" {
			break
		}
		w.mustDel(p)
	}
	// The node's agent starts, and finds the ADD cut off.
	if swept := w.sweep(); len(swept) != 1 {
		t.Errorf("swept %q", swept)
	}
	w.mustBe(before, "after the sweep")
}
