package cni

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// legacy is a pod's configuration for a VF whose PF is in legacy mode, with all that
// such a PF can do.
func legacy(p pod) pod {
	return p.with("bridge", nil).with("mac", "02:00:00:00:00:01").with("mtu", 1400).with("vlan", 100).with("vlanQoS", 3).
		with("spoofchk", "on").with("trust", "on").with("link_state", "enable").with("min_tx_rate", 100).with("max_tx_rate", 5000)
}

// state of the VF at a PCI address.
func (w *world) vfAt(address string) nic.VF {
	w.t.Helper()
	st := w.state()
	_, vf := st.VFAt(address)
	if vf == nil {
		w.t.Fatalf("no VF %s", address)
	}
	return *vf
}

// snapshotWithSettings holds what the VFs are set to besides.
func (w *world) settings() map[string]nic.Settings {
	out := map[string]nic.Settings{}
	for _, pf := range w.state().PFs {
		for _, vf := range pf.VFs {
			out[vf.Address] = vf.Settings
		}
		for _, sf := range pf.SFs {
			out[nic.SFID{PF: pf.Handle, Num: sf.Num}.String()] = sf.Settings
		}
	}
	return out
}

// TestLegacy attaches a VF of a PF in legacy mode: there is no representor and no
// bridge, and what the PF lets the VF do is set and taken back.
func TestLegacy(t *testing.T) {
	w := newWorldOf(t, "mlx5:cards=1,ports=2,vfs=8,numvfs=4")
	before, settings := w.snap(), w.settings()
	p := legacy(w.pod("c1", w.vf(0, 1)))
	w.sw.down = true // it has no part in this
	result := w.mustAdd(p)
	golden(t, "add-legacy.steps", w.steps(p.vf))
	golden(t, "add-legacy.result", strings.ReplaceAll(result, w.dir, "DIR")+"\n")
	got := w.vfAt(p.vf)
	want := nic.Settings{nic.SpoofCheck: "on", nic.Trust: "on", nic.LinkState: "enable", nic.VLAN: "100/3", nic.MinRate: "100", nic.MaxRate: "5000"}
	for name, value := range want {
		if got.Settings[name] != value {
			t.Errorf("%s is %q, want %q", name, got.Settings[name], value)
		}
	}
	if got.MAC.String() != "02:00:00:00:00:01" || !got.Away {
		t.Errorf("VF: %+v", got)
	}
	if l, _ := w.inPod(p.netns); l.Name != "net1" || l.MTU != 1400 || l.MAC.String() != "02:00:00:00:00:01" || !l.Up {
		t.Errorf("in the pod: %+v", l)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := w.status(p); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	// Somebody turns a setting: CHECK says which.
	if err := w.sim.Machine().Settings.SetVF(t.Context(), *w.pf(0), 1, nic.Trust, "off"); err != nil {
		t.Fatal(err)
	}
	var e *types.Error
	if err := w.check(p, result); !errors.As(err, &e) || e.Code != ErrDamage || !strings.Contains(e.Msg, "its trust is off, want on") {
		t.Errorf("CHECK: %v", err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
}

func (w *world) pf(i int) *nic.PF { st := w.state(); return &st.PFs[i] }

// Case B35: each act of an ADD fails, before and after its effect. What was set
// before it is taken back, the administrative MAC too, and DEL after it succeeds.
func TestB35LegacyAddFailsAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newWorldOf(t, "mlx5:cards=1,ports=1,vfs=4,numvfs=2")
			before, settings := w.snap(), w.settings()
			p := legacy(w.pod("c1", w.vf(0, 1)))
			w.sim.Inject(sim.Fault{Skip: n - 1, After: after, Match: func(o sim.Op) bool { return o.Verb != sim.Announce }})
			err := w.add(p)
			if err == nil {
				if n < 14 {
					t.Errorf("an ADD has only %d writes", n-1)
				}
				break
			}
			w.mustBe(before, "after an ADD that failed: "+err.Error())
			w.heal()
			w.mustDel(p)
			if d := cmp.Diff(settings, w.settings()); d != "" {
				t.Fatalf("%v: settings (-before +after):\n%s", err, d)
			}
		}
	}
}

// TestLegacyDrivers takes what each driver can do, and says what it cannot.
func TestLegacyDrivers(t *testing.T) {
	for _, c := range []struct {
		spec       string
		field      string
		value      any
		want, said string
	}{
		{"ice:numvfs=2", "vlanProto", "802.1ad", "100/802.1ad", ""},
		{"igb:numvfs=2", "max_tx_rate", 500, "", ""},
		{"igb:numvfs=2", "min_tx_rate", 500, "", `min_tx_rate = 500: driver igb cannot set it on VF 0000:03:10.0 as the PF is now: want it away`},
		{"igb:numvfs=2", "link_state", "enable", "", `link_state = enable: driver igb cannot set it`},
		{"ixgbe:numvfs=2", "trust", "on", "", ""},
		{"mlx5:numvfs=2", "vlanProto", "802.1ad", "", "protocol not supported"},
	} {
		w := newWorldOf(t, c.spec)
		before, settings := w.snap(), w.settings()
		p := w.pod("c1", w.vf(0, 0)).with("bridge", nil).with("vlan", 100).with(c.field, c.value)
		switch err := w.add(p); {
		case c.said == "" && err != nil:
			t.Errorf("%s, %s: %v", c.spec, c.field, err)
		case c.said != "" && (err == nil || !strings.Contains(err.Error(), c.said)):
			t.Errorf("%s, %s: %v, want %s", c.spec, c.field, err, c.said)
		case c.want != "" && w.vfAt(p.vf).Settings[nic.VLAN] != c.want:
			t.Errorf("%s: VLAN %s, want %s", c.spec, w.vfAt(p.vf).Settings[nic.VLAN], c.want)
		}
		w.mustDel(p)
		w.mustBe(before, c.spec+", "+c.field+": after DEL")
		if d := cmp.Diff(settings, w.settings()); d != "" {
			t.Errorf("%s, %s: settings (-before +after):\n%s", c.spec, c.field, d)
		}
	}
}

// TestModesRefuse says of a field that the mode has nothing for it, and what is right.
func TestModesRefuse(t *testing.T) {
	for field, c := range map[string]struct {
		value any
		want  string
	}{
		"vlanQoS":    {3, "vlanQoS = 3: VF 0000:03:00.2 is on a PF in switchdev mode, which has no such thing: want it away: priorities are for flows"},
		"vlanProto":  {"802.1ad", `vlanProto = "802.1ad": VF 0000:03:00.2 is on a PF in switchdev mode`},
		"spoofchk":   {"on", `spoofchk = "on": VF 0000:03:00.2 is on a PF in switchdev mode`},
		"trust":      {"off", `trust = "off": VF 0000:03:00.2 is on a PF in switchdev mode`},
		"link_state": {"auto", `link_state = "auto": VF 0000:03:00.2 is on a PF in switchdev mode, which has no such thing: want it away: the VF's link follows its representor`},
		"bridge":     {nil, "bridge is missing: VF 0000:03:00.2 is on a PF in switchdev mode: want the name of an Open vSwitch bridge"},
	} {
		w := newWorld(t)
		before := w.snap()
		err := w.add(w.pod("c1", w.vf(0, 0)).with("vlan", 7).with(field, c.value))
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%s: %v\nwant %s", field, err, c.want)
		}
		w.mustBe(before, "after "+field)
	}
}

// TestBandwidth bounds what the VF sends by its rate in the NIC, in both modes;
// runtimeConfig goes before the configuration.
func TestBandwidth(t *testing.T) {
	for _, spec := range []string{"mlx5:numvfs=2,mode=switchdev", "mlx5:numvfs=2"} {
		w := newWorldOf(t, spec)
		before, settings := w.snap(), w.settings()
		p := w.pod("c1", w.vf(0, 0)).with("max_tx_rate", 7).with("min_tx_rate", 5).
			with("runtimeConfig", map[string]any{"bandwidth": map[string]any{"egressRate": 100_000_001, "egressBurst": 8000}})
		if !strings.Contains(spec, "switchdev") {
			p = p.with("bridge", nil)
		}
		result := w.mustAdd(p)
		if set := w.vfAt(p.vf).Settings; set[nic.MaxRate] != "101" || set[nic.MinRate] != "5" {
			t.Errorf("%s: rates %v", spec, set)
		}
		if err := w.check(p, result); err != nil {
			t.Errorf("%s: CHECK: %v", spec, err)
		}
		w.mustDel(p)
		w.mustBe(before, "after DEL")
		if d := cmp.Diff(settings, w.settings()); d != "" {
			t.Errorf("%s: settings (-before +after):\n%s", spec, d)
		}
	}
}

func (w *world) bind(vf, driver string) {
	w.t.Helper()
	m, ctx := w.sim.Machine(), context.Background()
	if err := errors.Join(m.PCI.Unbind(ctx, vf), m.PCI.Bind(ctx, vf, driver)); err != nil {
		w.t.Fatal(err)
	}
}

// Case B37: a VF that a program drives has no netdev. Its representor is wired and its
// administrative MAC set, and the result tells of the interface that it would be; a
// VF that has none for another reason is refused.
func TestB37VFWithoutNetdev(t *testing.T) {
	for name, spec := range map[string]string{"switchdev": "mlx5:numvfs=4,mode=switchdev", "legacy": "ixgbe:numvfs=4"} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, spec)
			p := w.pod("c1", w.vf(0, 1)).with("mac", "02:00:00:00:00:01").with("mtu", 1400)
			if name == "legacy" {
				p = p.with("bridge", nil).with("vlan", 9)
			}
			w.bind(p.vf, "vfio-pci")
			before, settings := w.snap(), w.settings()
			result := w.mustAdd(p)
			golden(t, "add-vfio-"+name+".steps", w.steps(p.vf))
			golden(t, "add-vfio-"+name+".result", strings.ReplaceAll(result, w.dir, "DIR")+"\n")
			vf := w.vfAt(p.vf)
			if vf.MAC.String() != "02:00:00:00:00:01" || vf.Driver != "vfio-pci" {
				t.Errorf("VF: %+v", vf)
			}
			if name == "switchdev" && (!vf.Rep.Netdev.Up || vf.Rep.Netdev.MTU != 1400 || w.sw.ports[vf.Rep.Netdev.Name].ExternalIDs["attached_mac"] != "02:00:00:00:00:01") {
				t.Errorf("representor: %+v, port %+v", vf.Rep, w.sw.ports[vf.Rep.Netdev.Name])
			}
			if name == "legacy" && vf.Settings[nic.VLAN] != "9" {
				t.Errorf("settings: %v", vf.Settings)
			}
			if err := w.check(p, result); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			// The namespace may go first: nothing of the VF was in it.
			w.mustDeleteNetns(p)
			if swept := w.sweep(); len(swept) != 0 {
				t.Errorf("swept %v", swept)
			}
			w.mustDel(p)
			w.mustBe(before, "after DEL")
			if d := cmp.Diff(settings, w.settings()); d != "" {
				t.Errorf("settings (-before +after):\n%s", d)
			}
		})
	}
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 1))
	if err := w.sim.Machine().PCI.Unbind(t.Context(), p.vf); err != nil {
		t.Fatal(err)
	}
	if err := w.add(p); err == nil || !strings.Contains(err.Error(), "is bound to no driver: want the kernel's network driver on it, or vfio-pci for a program") {
		t.Errorf("unbound: %v", err)
	}
}

// TestVhost leaves the netdev of a VF whose vDPA device a program drives on the host.
func TestVhost(t *testing.T) {
	w := newWorldOf(t, "mlx5:numvfs=4,mode=switchdev")
	vdpa := func(value string) error {
		return w.sim.Machine().Settings.SetVF(t.Context(), *w.pf(0), 1, nic.VDPA, value)
	}
	if err := vdpa("vhost"); err != nil {
		t.Fatal(err)
	}
	before := w.snap()
	p := w.pod("c1", w.vf(0, 1)).with("mac", "02:00:00:00:00:01")
	result := w.mustAdd(p)
	if l, _ := w.inPod(p.netns); l.Name != "" {
		t.Errorf("in the pod: %+v", l)
	}
	if vf := w.vfAt(p.vf); vf.MAC.String() != "02:00:00:00:00:01" || len(w.sw.ports) != 1 {
		t.Errorf("VF %+v, ports %v", vf, w.sw.ports)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	if err := vdpa("virtio"); err != nil {
		t.Fatal(err)
	}
	if err := w.add(p); err == nil || !strings.Contains(err.Error(), "has a vDPA device that virtio drives on the host: want vhost, for a program, or none") {
		t.Errorf("virtio: %v", err)
	}
}

// TestQueuesAndSizes sets those of the VF's netdev before it moves, and takes them back.
func TestQueuesAndSizes(t *testing.T) {
	w := newWorld(t)
	before, settings := w.snap(), w.settings()
	p := w.pod("c1", w.vf(0, 1)).with("channels", 4).with("rxRing", 2048).with("txRing", 512).with("gsoMaxSize", 100000).with("groMaxSize", 90000).
		with("gsoIPv4MaxSize", 80000).with("groIPv4MaxSize", 70000)
	result := w.mustAdd(p)
	steps := w.steps(p.vf)
	at := strings.Index(steps, "move VF netdev")
	for _, want := range []string{"set channels 4 of", "set rx-ring 2048 of", "set tx-ring 512 of", "set gso-max-size 100000 of", "set gro-max-size 90000 of",
		"set gso-ipv4-max-size 80000 of", "set gro-ipv4-max-size 70000 of"} {
		if i := strings.Index(steps, want); i < 0 || i > at {
			t.Errorf("%s: not before the move in\n%s", want, steps)
		}
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
	if err := w.add(p.with("channels", 4000)); err == nil || !strings.Contains(err.Error(), "channels = 4000: VF 0000:03:00.3 takes at most 11") {
		t.Errorf("too many channels: %v", err)
	}
	if err := w.add(p.with("deviceID", nil).with("attach", "veth")); err == nil || !strings.Contains(err.Error(), "channels = 4: the pod has no VF") {
		t.Errorf("veth: %v", err)
	}
}

// TestKilledInAnyMode ends ADD and DEL of every mode after each piece of work, with
// the DEL and the sweep that follow.
func TestKilledInAnyMode(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		ask  func(*world, pod) pod
	}{
		"netkit": {vfNode, func(_ *world, p pod) pod { return full(p).with("deviceID", nil).with("attach", "netkit") }},
		"legacy": {"mlx5:cards=1,ports=1,vfs=4,numvfs=2", func(_ *world, p pod) pod { return legacy(p) }},
		"vfio": {"mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev", func(w *world, p pod) pod {
			w.bind(p.vf, "vfio-pci")
			return full(p).with("max_tx_rate", 100)
		}},
		"veth": {"mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev", func(_ *world, p pod) pod {
			return full(p).with("deviceID", nil).with("attach", "veth")
		}},
		"representor": {"mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev+machine:reps=free", func(_ *world, p pod) pod {
			return asRep(p).with("mtu", 9000)
		}},
		"sysctls": {"mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev", func(_ *world, p pod) pod {
			return full(p).with("sysctls", someSysctls)
		}},
		"rates": {"mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev", func(_ *world, p pod) pod {
			return full(p).with("max_tx_rate", 100)
		}},
	} {
		for _, verb := range []string{"ADD", "DEL"} {
			kills := 0
			for n := 1; ; n++ {
				w := newWorldOf(t, c.spec)
				p := w.pod("c1", w.vf(0, 1))
				p = c.ask(w, p)
				before, settings := w.snap(), w.settings()
				do := w.add
				if verb == "DEL" {
					w.mustAdd(p)
					do = w.del
				}
				crashed, err := w.crash(n, func() error { return do(p) })
				if err != nil {
					t.Fatal(err)
				}
				if n%2 == 0 {
					w.sweep()
				}
				w.mustDel(p)
				when := name + ": " + verb + " killed"
				w.mustBe(before, when)
				if d := cmp.Diff(settings, w.settings()); d != "" {
					t.Fatalf("%s: settings (-before +after):\n%s", when, d)
				}
				if !crashed {
					break
				}
				kills++
			}
			if kills < 12 {
				t.Errorf("%s: %s: only %d kills", name, verb, kills)
			}
		}
	}
}
