package proof_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/linux"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/tc"
)

// Two pods on two VFs, their representors in a real Open vSwitch with hardware
// offload on: after the first packets the NIC carries the rest, and the report
// says so.
func TestLabFlowsInHardware(t *testing.T) {
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("runs in the lab only (lab/gotest): needs a NIC with an eswitch, and Open vSwitch")
	}
	ctx := t.Context()
	sh(t, "ovs")
	t.Cleanup(func() { sh(t, "/usr/share/openvswitch/scripts/ovs-ctl stop") })
	m, err := linux.Open(linux.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	pf := twoPods(t, m.Machine)
	reps := []nic.Netdev{pf.VFs[0].Rep.Netdev, pf.VFs[1].Rep.Netdev}

	c, err := ovsdb.Connect(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if s, err := offload.ReadSettings(ctx, c); err != nil || !s.HWOffload || s.Version == "" {
		t.Errorf("settings %+v, %v", s, err)
	}
	sh(t, "ovs-vsctl add-br br0")

	t.Run("plug", func(t *testing.T) {
		for i, rep := range reps {
			p := offload.Port{Bridge: "br0", Representor: rep.Name, Owner: "pod" + string(rune('0'+i)), ExternalIDs: map[string]string{"iface-id": rep.Name}}
			start := time.Now()
			if err := offload.Plug(ctx, c, p); err != nil {
				t.Fatal(err)
			}
			t.Logf("plug %s took %v", rep.Name, time.Since(start).Round(100*time.Microsecond))
			if n, err := offload.Ofport(ctx, c, rep.Name); err != nil || n < 1 {
				t.Errorf("ofport %d, %v", n, err)
			}
			if got, err := offload.Lookup(ctx, c, rep.Name); err != nil || got.String() != p.String() || got.Owner != p.Owner {
				t.Errorf("looked up %+v, %v", got, err)
			}
			p.Owner = "somebody"
			if err := offload.Plug(ctx, c, p); !errors.Is(err, offload.ErrForeign) {
				t.Errorf("by another owner: %v", err)
			}
		}
		err := offload.Plug(ctx, c, offload.Port{Bridge: "br0", Representor: "pf0vf99", Owner: "x"})
		if !errors.Is(err, offload.ErrNotTaken) || !strings.Contains(err.Error(), "No such device") {
			t.Errorf("no such netdev: %v", err)
		}
		if _, err := offload.Lookup(ctx, c, "pf0vf99"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
	})
	if t.Failed() {
		return
	}

	kernel, err := tc.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kernel.Close() })
	r := proof.Reader{Machine: m.Machine, Rules: kernel, Switch: proof.Datapath{}}

	t.Run("traffic", func(t *testing.T) {
		sh(t, "ip netns exec pod0 ping -c 3 -i 0.2 10.0.0.2") // resolves addresses, makes the flows
		before, err := r.Port(ctx, reps[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(sh(t, "ip netns exec pod0 ping -q -c 40 -i 0.05 10.0.0.2"))
		after, err := r.Port(ctx, reps[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		got := after.Since(before)
		t.Logf("%s", got)
		for _, rule := range after.Rules {
			t.Logf("%s; %d packets in hardware, %d in software, ufid %s", rule, rule.Hardware.Packets, rule.Software().Packets, tc.UFID(rule.Cookie))
		}
		t.Logf("counters of %s: %+v, of the host: %+v", reps[0].Name, after.Link, after.Link.Host())
		flows := sh(t, "ovs-appctl dpctl/dump-flows -m --names")
		t.Log(flows)
		if got.Hardware.Packets < 38 {
			t.Errorf("of 40 packets %d in hardware", got.Hardware.Packets)
		}
		if got.HostSaw() > 4 {
			t.Errorf("the host saw %d of 40 packets", got.HostSaw())
		}
		if got.Share == nil || *got.Share < 0.9 {
			t.Errorf("share %v", got.Share)
		}
		if after.InHardware() == 0 {
			t.Error("no rule in hardware")
		}
		for _, rule := range after.Rules {
			if ufid := tc.UFID(rule.Cookie); rule.InHW && !strings.Contains(flows, "ufid:"+ufid) {
				t.Errorf("Open vSwitch knows no flow %s", ufid)
			}
			if rule.InHW && (rule.InHWCount != 1 || rule.Cookie == "") {
				t.Errorf("in_hw_count %d, cookie %q: %s", rule.InHWCount, rule.Cookie, rule)
			}
			if rule.InHW && len(rule.Actions) > 0 && rule.Actions[0].Kind == "mirred" && rule.Actions[0].Dev == "" {
				t.Errorf("redirects to nobody knows where: %s", rule)
			}
		}
	})

	t.Run("by pod", func(t *testing.T) {
		reports, err := r.Netns(ctx, "/run/netns/pod1")
		if err != nil || len(reports) != 1 {
			t.Fatalf("%v %v", reports, err)
		}
		p := reports[0].Port
		if p.Netdev != reps[1].Name || p.PodDev != "eth0" || p.VF == nil || p.VF.Index != 1 || p.Address != pf.VFs[1].Address {
			t.Errorf("%+v", p)
		}
		b, err := json.Marshal(reports[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", b)
	})

	t.Run("unplug", func(t *testing.T) {
		if err := offload.Unplug(ctx, c, reps[0].Name, "pod1"); !errors.Is(err, offload.ErrForeign) {
			t.Errorf("by another owner: %v", err)
		}
		for i, rep := range reps {
			start := time.Now()
			if err := offload.Unplug(ctx, c, rep.Name, "pod"+string(rune('0'+i))); err != nil {
				t.Fatal(err)
			}
			t.Logf("unplug %s took %v", rep.Name, time.Since(start).Round(100*time.Microsecond))
			start = time.Now()
			for {
				report, err := r.Port(ctx, rep.Name)
				if err != nil {
					t.Fatal(err)
				}
				if len(report.Rules) == 0 {
					break
				}
				if time.Since(start) > 20*time.Second {
					t.Fatalf("rules are left: %v", report.Rules)
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("its rules were gone %v later", time.Since(start).Round(time.Millisecond))
		}
		if owned, err := offload.Owned(ctx, c); err != nil || len(owned) != 0 {
			t.Errorf("%v %v", owned, err)
		}
	})
}

// twoPods puts the first PF into switchdev mode with two VFs, each of which is
// eth0 of a network namespace with an address of 10.0.0.0/24.
func twoPods(t *testing.T, m host.Machine) nic.PF {
	t.Helper()
	ctx := t.Context()
	state, err := host.Observe(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for i, pf := range state.PFs {
		if pf.Eswitch != "" && pf.TotalVFs >= 2 && at < 0 {
			at = i
		}
	}
	if at < 0 {
		t.Fatalf("no PF with an eswitch: %+v", state)
	}
	h := state.PFs[at].Handle
	for _, step := range []func() error{
		func() error { return m.PCI.SetVFs(ctx, h.Name, 0) },
		func() error { return m.Devlink.SetEswitch(ctx, h, nic.Switchdev) },
		func() error { return m.PCI.SetVFs(ctx, h.Name, 2) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if state, err = host.Observe(ctx, m); err != nil {
		t.Fatal(err)
	}
	pf := *state.PF(h)
	t.Cleanup(func() {
		for _, pod := range []string{"pod0", "pod1"} {
			sh(t, "ip netns del "+pod)
		}
	})
	for i, vf := range pf.VFs {
		pod := "pod" + string(rune('0'+i))
		sh(t, "ip link set "+vf.Rep.Netdev.Name+" up")
		sh(t, "ip netns add "+pod)
		sh(t, "ip link set "+vf.Netdev.Name+" netns "+pod+" name eth0")
		sh(t, "ip -n "+pod+" addr add 10.0.0."+string(rune('1'+i))+"/24 dev eth0")
		sh(t, "ip -n "+pod+" link set eth0 up")
	}
	return pf
}

// sh runs one program, split at blanks.
func sh(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}
