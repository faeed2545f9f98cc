package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/devfile"
	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// sfNode has VFs and SFs.
const sfNode = "mlx5:cards=1,ports=2,vfs=8,numvfs=4,numsfs=3,mode=switchdev"

// sf is the device of an SF of the node's first PFs.
func (w *world) sf(pf, index int) string { return w.state().PFs[pf].SFs[index].Device }

// fullSF asks for all that an SF can have.
func fullSF(p pod) pod {
	return full(p).with("max_tx_rate", 1000).with("min_tx_rate", 10).with("channels", 4).with("gsoMaxSize", 131072).with("sysctls", someSysctls)
}

// TestSF attaches an SF with all that it can have, and leaves it as it was.
func TestSF(t *testing.T) {
	w := newWorldOf(t, sfNode)
	before, settings := w.snap(), w.settings()
	sf := w.state().PFs[1].SFs[2]
	p := fullSF(w.pod("c1", sf.Device))
	result := w.mustAdd(p)
	l, ns := w.inPod(p.netns)
	if l.Name != "net1" || l.Parent != sf.Device || !l.Up || l.MTU != 9000 || l.MAC.String() != "02:00:00:00:00:01" {
		t.Errorf("in the pod: %+v", l)
	}
	if addresses, err := ns.Addresses(t.Context(), l.Ifindex); err != nil || len(addresses) != 2 {
		t.Errorf("addresses %v, %v", addresses, err)
	}
	got := w.state().PFs[1].SFs[2]
	if !got.Away || got.MAC.String() != "02:00:00:00:00:01" || !got.Rep.Up || got.Rep.MTU != 9000 ||
		got.Settings[nic.MaxRate] != "1000" || got.Settings[nic.MinRate] != "10" {
		t.Errorf("SF: %+v", got)
	}
	port := w.sw.ports[sf.Rep.Name]
	if port.Bridge != "br-int" || port.VLAN != 100 || port.Owner != "c1/net1" || port.ExternalIDs[idVFNetdev] != sf.Netdev.Name {
		t.Errorf("port: %+v", port)
	}
	var r struct {
		Interfaces []struct{ Name, Sandbox, PciID string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Interfaces) != 2 || r.Interfaces[0].Name != sf.Rep.Name ||
		r.Interfaces[1].Name != "net1" || r.Interfaces[1].Sandbox != p.netns || r.Interfaces[1].PciID != "" {
		t.Errorf("result: %s", result)
	}
	if owners, err := record.Owners(w.dir, ""); err != nil || owners[sf.Device] != "pod shop/web-0 (net1 of container c1)" {
		t.Errorf("owners: %v, %v", owners, err)
	}
	file, err := devfile.In(w.dir).Read(sf.Device)
	want := devfile.File{
		Version: 1, Container: "c1", Network: "offloaded", Interface: "net1", Attached: "netdev", Device: sf.Device, PF: "0000:03:00.1",
		Index: 3, SF: true, Driver: "mlx5_core", NUMA: w.state().PFs[1].NUMA, MAC: "02:00:00:00:00:01", MTU: 9000,
		Addresses: []string{"10.56.0.1/16", "fd56::1/64"}, RDMA: sf.RDMA, Queues: &devfile.Queues{Channels: 4, RxRing: 1024, TxRing: 1024},
		Switch: &devfile.Switch{Mode: "switchdev", ID: string(w.state().PFs[1].SwitchID), Representor: sf.Rep.Name, Bridge: "br-int", VLAN: 100, Port: "shop_c1"},
	}
	if d := cmp.Diff(want, file); err != nil || d != "" {
		t.Errorf("device file (%v, -want +got):\n%s", err, d)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := ns.SetMTU(t.Context(), l.Ifindex, 1400); err != nil {
		t.Fatal(err)
	}
	if err := w.check(p, result); err == nil || !strings.Contains(err.Error(), "SF "+sf.Device+" of") || !strings.Contains(err.Error(), "SF netdev net1 in the pod: its MTU is 1400") {
		t.Errorf("CHECK: %v", err)
	}
	// What the pod did to it is not its next owner's.
	for _, err := range []error{
		ns.SetPromisc(t.Context(), l.Ifindex, true), ns.SetAltName(t.Context(), l.Ifindex, "mine", true), ns.SetName(t.Context(), l.Ifindex, "other0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.gc(p, p); err != nil {
		t.Errorf("GC: %v", err)
	}
	if l, _ := w.inPod(p.netns); l.Parent != sf.Device {
		t.Error("GC has taken an attachment that is valid")
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
}

// TestSFRefused: what an SF does not have, or a device that is none.
func TestSFRefused(t *testing.T) {
	w := newWorldOf(t, sfNode)
	m, ctx := w.sim.Machine(), context.Background()
	before := w.snap()
	for name, c := range map[string]struct {
		ask  func(p pod) pod
		code uint
		want string
	}{
		"no bridge": {func(p pod) pod { return p.with("bridge", nil) }, types.ErrInvalidNetworkConfig, "bridge is missing: SF mlx5_core.sf."},
		"QoS":       {func(p pod) pod { return p.with("vlan", 7).with("vlanQoS", 3) }, types.ErrInvalidNetworkConfig, "vlanQoS = 3: SF mlx5_core.sf."},
		"outer VLAN": {func(p pod) pod { return p.with("vlan", 7).with("vlanProto", "802.1ad") }, types.ErrInvalidNetworkConfig,
			`vlanProto = "802.1ad": SF mlx5_core.sf.`},
		"trust":      {func(p pod) pod { return p.with("trust", "on") }, types.ErrInvalidNetworkConfig, `trust = "on": SF mlx5_core.sf.`},
		"spoofchk":   {func(p pod) pod { return p.with("spoofchk", "off") }, types.ErrInvalidNetworkConfig, `spoofchk = "off": SF mlx5_core.sf.`},
		"link_state": {func(p pod) pod { return p.with("link_state", "auto") }, types.ErrInvalidNetworkConfig, `link_state = "auto": SF mlx5_core.sf.`},
		"channels":   {func(p pod) pod { return p.with("channels", 99) }, types.ErrInvalidNetworkConfig, "channels = 99: SF mlx5_core.sf."},
		"no such SF": {func(p pod) pod { return p.with("deviceID", "mlx5_core.sf.99") }, ErrNode, `deviceID = "mlx5_core.sf.99": there is no auxiliary device`},
		"no name":    {func(p pod) pod { return p.with("deviceID", "../mlx5_core.sf.2") }, types.ErrInvalidNetworkConfig, "or the auxiliary device of an SF"},
		"another auxiliary device": {func(p pod) pod { return p.with("deviceID", "mlx5_core.eth.2") }, types.ErrInvalidNetworkConfig,
			"want the PCI address of a VF"},
	} {
		err := w.add(c.ask(w.pod("c-"+strings.ReplaceAll(name, " ", ""), w.sf(0, 0))))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%s: %v, want code %d and %q", name, err, c.code, c.want)
		}
		w.mustBe(before, name)
	}
	pf := w.state().PFs[0]
	if err := m.Devlink.SetSFActive(ctx, pf.Handle, pf.SFs[0].Port, false); err != nil {
		t.Fatal(err)
	}
	if err := w.add(w.pod("inactive", pf.SFs[0].Device)); err == nil || !strings.Contains(err.Error(), "want that of an SF which is active") {
		t.Errorf("inactive: %v", err)
	}
}

// TestSFHeld: an SF is one pod's, and goes to the next when that has ended, by ADD, GC
// or a sweep, with no namespace left.
func TestSFHeld(t *testing.T) {
	w := newWorldOf(t, sfNode)
	before := w.snap()
	p := fullSF(w.pod("c1", w.sf(0, 1)))
	next := w.pod("c2", p.vf)
	w.mustAdd(p)
	if err := w.add(next); err == nil || !strings.Contains(err.Error(), "SF "+p.vf+" is held by pod shop/web-0") {
		t.Errorf("ADD of a second: %v", err)
	}
	w.mustDeleteNetns(p)
	w.mustAdd(next)
	w.mustDel(p) // late: it is another's by now
	if l := w.linkIn(next.netns, "net1"); l.Parent != p.vf {
		t.Error("a late DEL takes the SF from its next owner")
	}
	w.mustDeleteNetns(next)
	if swept := w.sweep(); len(swept) != 1 || !strings.Contains(swept[0], "SF "+p.vf+" of container c2 (net1) is taken down: its pod has ended") {
		t.Errorf("swept %q", swept)
	}
	w.mustBe(before, "after the sweep")

	last := fullSF(w.pod("c3", p.vf))
	w.mustAdd(last)
	if err := w.gc(last); err != nil {
		t.Fatal(err)
	}
	w.mustBe(before, "after GC")
}

// TestSFUnreachable has a process hold a namespace that no path leads to.
func TestSFUnreachable(t *testing.T) {
	w := newWorldOf(t, sfNode)
	before := w.snap()
	p := fullSF(w.pod("c1", w.sf(0, 1)))
	w.mustAdd(p)
	process, err := w.sim.Machine().Netns.Open(t.Context(), p.netns)
	if err != nil {
		t.Fatal(err)
	}
	w.mustDeleteNetns(p)
	if err := w.del(p); err == nil || !strings.Contains(err.Error(), "the netdev of SF "+p.vf+" is in a network namespace") {
		t.Errorf("DEL: %v", err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestNamesake: an SF is removed under its pod and another made, which has its device's
// name. That is not touched by the DEL, and goes to whoever asks for it.
func TestNamesake(t *testing.T) {
	w := newWorldOf(t, sfNode)
	m, ctx := w.sim.Machine(), context.Background()
	p := fullSF(w.pod("c1", w.sf(0, 1)))
	w.mustAdd(p)
	pf := w.state().PFs[0]
	for _, err := range []error{
		m.Devlink.SetSFActive(ctx, pf.Handle, pf.SFs[1].Port, false), m.Devlink.DelSF(ctx, pf.Handle, pf.SFs[1].Port), m.Devlink.AddSF(ctx, pf.Handle, 77),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	pf = w.state().PFs[0]
	if err := m.Devlink.SetSFActive(ctx, pf.Handle, pf.SF(77).Port, true); err != nil {
		t.Fatal(err)
	}
	pf = w.state().PFs[0]
	if pf.SF(77).Device != p.vf {
		t.Fatalf("the new SF is %s, want the old name %s", pf.SF(77).Device, p.vf)
	}
	w.sw.ports[pf.SF(77).Rep.Name] = samplePort(pf.SF(77).Rep.Name)
	had := w.state().PFs[0].SF(77)
	next := w.pod("c2", p.vf)
	if err := w.add(next); err == nil || !strings.Contains(err.Error(), "is a port of bridge br-lab already") {
		t.Errorf("ADD of the namesake: %v", err)
	}
	if d := cmp.Diff(had, w.state().PFs[0].SF(77)); d != "" {
		t.Errorf("the namesake (-before +after):\n%s", d)
	}
	delete(w.sw.ports, had.Rep.Name)
	w.mustDel(p)
	if len(w.sw.ports) != 0 || len(w.ipam.leases) != 0 {
		t.Errorf("left: ports %v, leases %v", w.sw.ports, w.ipam.leases)
	}
	before := w.snap()
	w.mustAdd(next)
	w.mustDel(next)
	w.mustBe(before, "after the namesake's DEL")
}

// TestSFSalvaged: the record of an SF that cannot be read is made anew.
func TestSFSalvaged(t *testing.T) {
	w := newWorldOf(t, sfNode)
	before := w.snap()
	p := w.pod("c1", w.sf(1, 0)).with("vlan", 7)
	w.mustAdd(p)
	w.damageRecord(p.vf, "")
	if err := w.add(w.pod("c2", p.vf)); err == nil || !strings.Contains(err.Error(), "take down what container c1 (net1) left of SF "+p.vf) {
		t.Errorf("ADD of another: %v", err)
	}
	w.mustDel(p)
	after := w.snap()
	if len(after.Switch) != 0 || len(after.Owners) != 0 || !slices.EqualFunc(before.Links, after.Links, func(a, b host.Link) bool { return a.Name == b.Name && a.MAC == b.MAC }) {
		t.Errorf("after DEL (-before +after):\n%s", cmp.Diff(before, after))
	}
}

// TestSFOfResource: the pod's SF is found by its resource, and another pod's refused.
func TestSFOfResource(t *testing.T) {
	w := newWorldOf(t, sfNode)
	before := w.snap()
	mine, other := w.sf(0, 1), w.sf(0, 2)
	w.allocate("sluice.dev/fast", map[string]map[string][]string{"uid-1": {"c": {mine}}, "uid-2": {"c": {other}}})
	ask := func(p pod) pod { return full(p).with("resourceName", "sluice.dev/fast") }
	p := ask(w.pod("c1", "")).with("deviceID", nil)
	w.mustAdd(p)
	if l, _ := w.inPod(p.netns); l.Parent != mine {
		t.Errorf("in the pod: %+v, want %s", l, mine)
	}
	w.mustDel(p)
	if err := w.add(full(w.pod("c2", other))); err == nil || !strings.Contains(err.Error(), "the kubelet has given it to another pod") {
		t.Errorf("another pod's: %v", err)
	}
	r := full(w.pod("c3", "")).with("deviceID", nil).with("runtimeConfig", map[string]any{"deviceID": mine})
	w.mustAdd(r)
	w.mustDel(r)
	w.mustBe(before, "after all")
}

// TestSFRDMA: in exclusive mode the SF's RDMA device goes along, and comes back.
func TestSFRDMA(t *testing.T) {
	w := newWorldOf(t, sfNode+"+machine:rdma=exclusive")
	before := w.snap()
	rdma := w.state().PFs[0].SFs[1].RDMA
	p := fullSF(w.pod("c1", w.sf(0, 1)))
	w.mustAdd(p)
	if got := w.rdmaIn(p); len(rdma) != 1 || !slices.Equal(got, rdma) {
		t.Errorf("in the pod %q, want %q", got, rdma)
	}
	w.mustDel(p)
	if got := w.state().PFs[0].SFs[1].RDMA; !slices.Equal(got, rdma) {
		t.Errorf("at home %q, want %q", got, rdma)
	}
	w.mustBe(before, "after DEL")
}

// TestSFRepresentor gives a pod the representor of an SF, and another the SF itself.
func TestSFRepresentor(t *testing.T) {
	w := newWorldOf(t, sfNode+"+machine:reps=free")
	before := w.snap()
	rep := asRep(w.pod("switch", w.sf(0, 1)))
	w.mustAdd(rep)
	if l := w.repIn(rep.netns); !strings.HasSuffix(l.PortName, "sf2") || l.Name != "net1" {
		t.Errorf("in the pod: %+v", l)
	}
	p := w.pod("c1", rep.vf).with("bridge", nil)
	w.mustAdd(p)
	if l, _ := w.inPod(p.netns); l.Parent != p.vf {
		t.Errorf("in the other: %+v", l)
	}
	w.mustDel(rep)
	w.mustDel(p)
	w.mustBe(before, "after both DELs")

	w.mustAdd(rep)
	w.damageRecord(record.RepKey(rep.vf), "{")
	w.mustDel(rep)
	if f := w.state().PFs[0].SFs[1]; !f.Rep.Exists() {
		t.Errorf("after DEL of a damaged record: %+v", f)
	}
}

// TestSFTemporaryName: it fits, and no two devices have one.
func TestSFTemporaryName(t *testing.T) {
	seen := map[string]string{}
	for i := range 20000 {
		for _, device := range []string{fmt.Sprintf("mlx5_core.sf.%d", i), fmt.Sprintf("ice.sf.%d", i)} {
			name := TempName(device)
			if len(name) > 15 || !isIfName(name) || seen[name] != "" {
				t.Fatalf("%s: %q (%s)", device, name, seen[name])
			}
			seen[name] = device
		}
	}
}
