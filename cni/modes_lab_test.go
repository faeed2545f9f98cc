package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

// gc is the runtime's GC with these attachments valid.
func (n *labNode) gc(p pod, valid ...pod) error {
	list := []map[string]string{}
	for _, v := range valid {
		list = append(list, map[string]string{"containerID": v.container, "ifname": v.ifname})
	}
	_, err := n.cni("GC", p.with("cni.dev/valid-attachments", list).with("deviceID", nil))
	return err
}

// veth makes p a pod without a VF.
func (p pod) veth() pod { return p.with("deviceID", nil).with("attach", "veth") }

// TestVethInLab has a pod with a VF and one with a veth talk through the switch, and
// sweeps both away: one by GC, with its namespace gone, one by DEL.
func TestVethInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	a, b := n.pod("poda", n.vf(0, 0).Address), n.pod("podb", "").veth()
	if _, err := n.cni("STATUS", b); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	n.must("ADD", a)
	result := n.must("ADD", b)
	var r struct {
		Interfaces []struct{ Name, Mac, PciID string }
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Interfaces) != 2 || len(r.IPs) != 2 ||
		r.Interfaces[0].Name != record.PairName("podb", "net1") || r.Interfaces[1].PciID != "" {
		t.Fatalf("result: %s", result)
	}
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		n.run("ip", "netns", "exec", "poda", "ping", "-c", "3", "-i", "0.2", "-W", "5", address)
	}
	if err := n.check(b, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	n.run("ip", "netns", "del", "poda")
	if err := n.gc(b, b); err != nil {
		t.Fatal(err)
	}
	if owners, err := record.Owners(n.dir, ""); err != nil || len(owners) != 1 {
		t.Errorf("owners after GC: %v, %v", owners, err)
	}
	n.must("DEL", b)
	n.mustBe(before, "after GC and DEL")

	// The kernel takes both ends away with the namespace: a sweep takes the rest.
	c := n.pod("podc", "").veth()
	n.must("ADD", c)
	n.run("ip", "netns", "del", "podc")
	p := &Plugin{Host: n.m.Machine, Switch: OpenSwitch, IPAM: Delegate{}, Limits: DefaultLimits()}
	swept, err := p.Sweep(context.Background(), n.dir, DefaultOVSDB)
	if err != nil || len(swept) != 1 || !strings.Contains(swept[0], "its pod has ended") {
		t.Errorf("swept %v, %v", swept, err)
	}
	n.mustBe(before, "after a sweep")
}

// TestNetkitInLab has a pod with a VF and one with an end of a netkit pair talk through
// the switch; the kernel takes the pair with its namespace, and a sweep the rest.
func TestNetkitInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	a, b := n.pod("poda", n.vf(0, 0).Address), n.pod("podb", "").veth().with("attach", "netkit").with("mac", "02:00:00:00:00:0c")
	n.must("ADD", a)
	result := n.must("ADD", b)
	var r struct {
		Interfaces []struct{ Name, Mac, PciID string }
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Interfaces) != 2 || len(r.IPs) != 2 ||
		r.Interfaces[0].Name != record.PairName("podb", "net1") || r.Interfaces[1].Mac != "02:00:00:00:00:0c" {
		t.Fatalf("result: %s", result)
	}
	if out := n.run("ip", "-d", "link", "show", record.PairName("podb", "net1")); !strings.Contains(out, "netkit") {
		t.Errorf("the host's end: %s", out)
	}
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		n.run("ip", "netns", "exec", "poda", "ping", "-c", "3", "-i", "0.2", "-W", "5", address)
	}
	if err := n.check(b, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	n.must("DEL", a)
	n.run("ip", "netns", "del", "podb")
	p := &Plugin{Host: n.m.Machine, Switch: OpenSwitch, IPAM: Delegate{}, Limits: DefaultLimits()}
	swept, err := p.Sweep(context.Background(), n.dir, DefaultOVSDB)
	if err != nil || len(swept) != 1 || !strings.Contains(swept[0], "its pod has ended") {
		t.Errorf("swept %v, %v", swept, err)
	}
	n.mustBe(before, "after DEL and a sweep")
	c := n.pod("podc", "").veth().with("attach", "netkit")
	n.must("ADD", c)
	n.must("DEL", c)
	n.mustBe(before, "after DEL")
}

// TestResourceNameInLab finds the pod's VF in what the kubelet has written.
func TestResourceNameInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	vf := n.vf(0, 3).Address
	kubelet := filepath.Join(n.dir, "kubelet")
	text := fmt.Sprintf(`{"Data":{"PodDeviceEntries":[{"PodUID":"uid-poda","ContainerName":"c","ResourceName":"sluice.dev/fast","DeviceIDs":{"-1":[%q]},"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}`, vf)
	if err := errors.Join(os.MkdirAll(kubelet, 0o700), os.WriteFile(filepath.Join(kubelet, "kubelet_internal_checkpoint"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	ask := func(p pod) pod {
		return p.with("deviceID", nil).with("resourceName", "sluice.dev/fast").with("attach", "any").with("kubeletDir", kubelet)
	}
	a, b := ask(n.pod("poda", "")), ask(n.pod("podb", ""))
	n.must("ADD", a)
	n.must("ADD", b)
	if owners, err := record.Owners(n.dir, ""); err != nil || owners[vf] != "pod shop/poda (net1 of container poda)" || len(owners) != 2 {
		t.Errorf("owners: %v, %v", owners, err)
	}
	n.must("DEL", b)
	n.must("DEL", a)
	n.mustBe(before, "after DEL")
}

// legacyPF puts a port into legacy mode, with VFs.
func (n *labNode) legacyPF(pf int) {
	n.t.Helper()
	ctx, h := context.Background(), n.pfs[pf]
	set := func(m nic.Eswitch) error {
		return errors.Join(n.m.PCI.SetVFs(ctx, h.Name, 0), n.m.Devlink.SetEswitch(ctx, h, m), n.m.PCI.SetVFs(ctx, h.Name, labVFs))
	}
	if err := set(nic.Legacy); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := set(nic.Switchdev); err != nil {
			n.t.Error(err)
		}
	})
}

// legacyPod asks for all that the lab's NIC can do in legacy mode.
func (n *labNode) legacyPod(name, vf string) pod {
	return n.pod(name, vf).with("bridge", nil).with("ifaceID", nil).with("vlanQoS", 3).with("mac", "02:00:00:00:00:0b").
		with("spoofchk", "on").with("trust", "on").with("link_state", "enable").with("min_tx_rate", 10).with("max_tx_rate", 1000)
}

func (n *labNode) settings(pf int) []nic.Settings {
	st := n.state()
	var out []nic.Settings
	for _, vf := range st.PF(n.pfs[pf]).VFs {
		out = append(out, vf.Settings)
	}
	return out
}

// TestLegacyInLab attaches a VF of a port in legacy mode, and leaves it as it was.
func TestLegacyInLab(t *testing.T) {
	n := newLabNode(t)
	n.legacyPF(1)
	before, settings := n.snap(), n.settings(1)
	p := n.legacyPod("poda", n.vf(1, 2).Address)
	result := n.must("ADD", p)
	got := n.vf(1, 2)
	for name, want := range map[nic.Setting]string{
		nic.Trust: "on", nic.SpoofCheck: "on", nic.LinkState: "enable", nic.VLAN: "100/3", nic.MinRate: "10", nic.MaxRate: "1000",
	} {
		if got.Settings[name] != want {
			t.Errorf("%s: %q, want %q", name, got.Settings[name], want)
		}
	}
	if got.MAC.String() != "02:00:00:00:00:0b" || !got.Away {
		t.Errorf("VF: %+v", got)
	}
	if err := n.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if _, err := n.cni("STATUS", p); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	n.must("DEL", p)
	n.mustBe(before, "after DEL")
	if d := cmp.Diff(settings, n.settings(1)); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
	if _, err := n.cni("ADD", p.with("vlanProto", "802.1ad")); err == nil {
		t.Error("the NIC has no 802.1ad for VFs, and ADD succeeds")
	}
	n.mustBe(before, "after a refused ADD")
}

// TestKilledModesInLab has a kill -9 meet ADD and DEL of the other modes at each
// place; DEL and a sweep, by turns, clean up.
func TestKilledModesInLab(t *testing.T) {
	n := newLabNode(t)
	n.legacyPF(1)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self = n.install(self)
	before, settings := n.snap(), n.settings(1)
	stride := 1
	if testing.Short() {
		stride = 4
	}
	for mode, ask := range map[string]func(string, int) pod{
		"veth":   func(name string, _ int) pod { return n.pod(name, "").veth() },
		"legacy": func(name string, at int) pod { return n.legacyPod(name, n.vf(1, at%labVFs).Address) },
	} {
		for _, verb := range []string{"ADD", "DEL"} {
			kills := 0
			for at := 1; ; at += stride {
				p := ask(fmt.Sprintf("%s%s%d", mode[:1], strings.ToLower(verb), at), at)
				if verb == "DEL" {
					n.must("ADD", p)
				}
				_, err := n.finish(n.command(self, verb, p, fmt.Sprintf("%s=%d", killAt, at)))
				killed := err != nil && strings.Contains(err.Error(), "signal: killed")
				if err != nil && !killed {
					t.Fatalf("%s %s killed at %d: %v", mode, verb, at, err)
				}
				n.must("DEL", p)
				when := fmt.Sprintf("after %s %s killed at %d, and DEL", mode, verb, at)
				n.mustBe(before, when)
				if d := cmp.Diff(settings, n.settings(1)); d != "" {
					t.Fatalf("%s: settings (-before +after):\n%s", when, d)
				}
				if !killed {
					break
				}
				kills++
			}
			t.Logf("%s: %d kills of %s", mode, kills, verb)
			if kills < 12/stride {
				t.Errorf("%s: only %d kills of %s", mode, kills, verb)
			}
		}
	}
}
