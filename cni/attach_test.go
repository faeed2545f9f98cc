package cni

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// steps lists the acts that the record has below the attachment.
func (w *world) steps(vf string) string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "attachments", vf+".json"))
	if err != nil {
		w.t.Fatal(err)
	}
	var out strings.Builder
	for i, line := range strings.Split(string(data), "\n") {
		var e record.Entry
		if i == 0 {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			w.t.Fatalf("entry %q: %v", line, err)
		}
		out.WriteString(string(e.Goal) + ": " + e.Step + e.Err)
		if e.Done {
			out.WriteString("done")
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// full asks for everything that a configuration can ask for; the logical port is the
// container's own, as OVN has one of each.
func full(p pod) pod {
	p.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=uid-1;K8S_POD_INFRA_CONTAINER_ID=x"
	return p.with("vlan", 100).with("mtu", 9000).with("mac", "02:00:00:00:00:01").with("ifaceID", "shop_"+p.container)
}

func TestAdd(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := full(w.pod("c1", w.vf(1, 2)))
	result := w.mustAdd(p)
	golden(t, "add.steps", w.steps(p.vf))
	golden(t, "add.result", strings.ReplaceAll(result, w.dir, "DIR")+"\n")

	rep := w.state().PFs[1].VFs[2].Rep.Netdev
	if !rep.Up || rep.MTU != 9000 {
		t.Errorf("representor: %+v", rep)
	}
	port := w.sw.ports[rep.Name]
	want := map[string]string{
		"attached_mac": "02:00:00:00:00:01", "iface-id": "shop_c1", "iface-id-ver": "uid-1", "sandbox": "c1",
		"pod-if-name": "net1", "vf-netdev-name": before.Links[linkOf(before, p.vf)].Name,
		"ip_addresses": "10.56.0.1/16,fd56::1/64",
	}
	if d := cmp.Diff(want, port.ExternalIDs); d != "" {
		t.Errorf("external ids (-want +got):\n%s", d)
	}
	if port.Bridge != "br-int" || port.VLAN != 100 || port.Owner != "c1/net1" {
		t.Errorf("port: %+v", port)
	}
	l, _ := w.inPod(p.netns)
	if l.Name != "net1" || !l.Up || l.MTU != 9000 || l.MAC.String() != "02:00:00:00:00:01" {
		t.Errorf("VF netdev in the pod: %+v", l)
	}
	if vf := w.state().PFs[1].VFs[2]; vf.MAC.String() != "02:00:00:00:00:01" {
		t.Errorf("administrative MAC: %s", vf.MAC)
	}
	owners, err := record.Owners(w.dir, "")
	if err != nil || owners[p.vf] != "pod shop/web-0 (net1 of container c1)" {
		t.Errorf("owners: %v, %v", owners, err)
	}
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

func linkOf(s snapshot, pci string) int {
	for i, l := range s.Links {
		if l.Parent == pci {
			return i
		}
	}
	return -1
}

// TestAddLeastChange asks for nothing: what is not asked for stays as it is.
func TestAddLeastChange(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := w.pod("c1", w.vf(0, 0)).with("ipam", nil)
	w.mustAdd(p)
	golden(t, "add-least.steps", w.steps(p.vf))
	if w.ipam.calls != 0 {
		t.Errorf("%d calls of an IPAM plugin that nobody asked for", w.ipam.calls)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestVersions speaks every version that is announced.
func TestVersions(t *testing.T) {
	for _, v := range Versions() {
		t.Run(v, func(t *testing.T) {
			w := newWorld(t)
			p := w.pod("c1", w.vf(0, 0)).with("cniVersion", v)
			result := w.mustAdd(p)
			var r struct {
				CNIVersion string
				Interfaces []struct {
					Name, Mac, Sandbox, PciID string
					Mtu                       int
				}
				IPs []struct {
					Interface int
					Address   string
				}
			}
			if err := json.Unmarshal([]byte(result), &r); err != nil {
				t.Fatal(err)
			}
			if r.CNIVersion != v || len(r.Interfaces) != 2 || len(r.IPs) != 2 {
				t.Fatalf("result: %s", result)
			}
			if f := r.Interfaces[1]; f.Name != "net1" || f.Sandbox != p.netns || (v == "1.1.0") != (f.PciID == p.vf && f.Mtu == 1500) {
				t.Errorf("interface: %+v", f)
			}
			if f := r.Interfaces[0]; f.Sandbox != "" || f.Name != w.state().PFs[0].VFs[0].Rep.Netdev.Name {
				t.Errorf("representor: %+v", f)
			}
			if r.IPs[0].Interface != 1 {
				t.Errorf("address of interface %d", r.IPs[0].Interface)
			}
			if err := w.check(p, result); v != "0.3.1" && err != nil {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
}

// TestAddAfterOthers keeps what plugins before it in a list have made.
func TestAddAfterOthers(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 0))
	result := w.mustAdd(p.with("prevResult", map[string]any{
		"cniVersion": "1.1.0",
		"interfaces": []any{map[string]any{"name": "eth0", "mac": "02:00:00:00:00:09", "sandbox": p.netns}},
		"ips":        []any{map[string]any{"address": "10.9.0.1/24", "interface": 0}},
		"routes":     []any{map[string]any{"dst": "10.0.0.0/8", "gw": "10.9.0.254"}},
	}))
	golden(t, "add-after-others.result", result+"\n")
	// The route is not ours, so CHECK does not miss it.
	if err := w.check(p, result); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

// TestAddBadInput is what ADD refuses with nothing touched.
func TestAddBadInput(t *testing.T) {
	free := func(w *world) pod { return w.pod("c1", w.vf(0, 0)) }
	for _, c := range []struct {
		name string
		spec string // of the machine, if another than usual
		pod  func(w *world) pod
		code uint
		want string
	}{
		{"PF", "", func(w *world) pod { return w.pod("c1", w.state().PFs[0].Handle.Name) },
			types.ErrInvalidNetworkConfig, `deviceID = "0000:03:00.0": it is a PF: want one of its 4 VFs, for example 0000:03:00.2`},
		{"PF without VFs", "mlx5:cards=1,numvfs=0,mode=switchdev", func(w *world) pod { return w.pod("c1", w.state().PFs[0].Handle.Name) },
			types.ErrInvalidNetworkConfig, `deviceID = "0000:03:00.0": it is a PF, and has no VFs: want a VF`},
		{"no such device", "", func(w *world) pod { return w.pod("c1", "0000:ff:00.7") },
			ErrNode, `deviceID = "0000:ff:00.7": there is no network function of this PCI address: want a VF's (sluice observe lists them)`},
		{"legacy", "mlx5:cards=1,numvfs=2,mode=legacy", free,
			ErrNode, `bridge = "br-int": VF 0000:03:00.2 is on a PF with its eswitch in legacy mode, so it has no representor: want switchdev (eswitch: switchdev in the node's NodeNIC, sluice apply), or no bridge`},
		{"no eswitch", "igb:cards=1,numvfs=2", free,
			ErrNode, `is on a PF without an eswitch: want a NIC that can do switchdev`},
		{"unbound VF", "mlx5:cards=1,numvfs=2,mode=switchdev,autoprobe=off", free,
			ErrNode, `is bound to no driver: want the kernel's network driver on it`},
		{"VF taken by hand", "", func(w *world) pod {
			p := free(w)
			if err := w.sim.AddNetns("/run/netns/other"); err != nil {
				w.t.Fatal(err)
			}
			if err := w.sim.Machine().Links.Move(context.Background(), w.state().PFs[0].VFs[0].Netdev.Ifindex, "/run/netns/other"); err != nil {
				w.t.Fatal(err)
			}
			return p
		}, ErrNode, `has its netdev in another network namespace, and sluice has no record of it`},
		{"VF held", "", func(w *world) pod {
			w.mustAdd(w.pod("other", w.vf(0, 0)))
			return free(w)
		}, types.ErrTryAgainLater, `VF 0000:03:00.2 is held by container other (net1) (attached): want its DEL first`},
		{"no bridge of this name", "", func(w *world) pod { return free(w).with("bridge", "br-none") },
			types.ErrInvalidNetworkConfig, `bridge = "br-none": no such bridge "br-none": there are ["br-int" "br-lab"]`},
		{"no Open vSwitch", "", func(w *world) pod { w.sw.down = true; return free(w) },
			ErrSwitch, ``},
		{"representor in a bridge", "", func(w *world) pod {
			rep := w.state().PFs[0].VFs[0].Rep.Netdev.Name
			w.sw.ports[rep] = samplePort(rep)
			return free(w)
		}, ErrNode, `is a port of bridge br-lab already, and not sluice's: want it free (ovs-vsctl del-port br-lab `},
		{"no namespace", "", func(w *world) pod { p := free(w); p.netns = "/run/netns/none"; return p },
			types.ErrInvalidNetNS, `CNI_NETNS = "/run/netns/none": there is no such network namespace`},
		{"no namespace but a file", "", func(w *world) pod {
			p := free(w)
			p.netns = "/etc/passwd"
			w.sim.AddFile(p.netns)
			return p
		}, types.ErrInvalidNetNS, `/etc/passwd is no network namespace`},
		{"interface there", "", func(w *world) pod {
			p := free(w)
			if _, err := w.sim.AddLink(p.netns, "net1", "veth"); err != nil {
				w.t.Fatal(err)
			}
			return p
		}, types.ErrInvalidEnvironmentVariables, `CNI_IFNAME = "net1": there is an interface of this name in /run/netns/c1 already`},
		{"interface there by another name", "", func(w *world) pod {
			p := free(w)
			i, err := w.sim.AddLink(p.netns, "eth0", "veth")
			if err == nil {
				err = w.sim.AddAltName(p.netns, i, "net1")
			}
			if err != nil {
				w.t.Fatal(err)
			}
			return p
		}, types.ErrInvalidEnvironmentVariables, `there is an interface of this name in /run/netns/c1 already`},
		{"unknown field", "", func(w *world) pod { return free(w).with("brigde", "br-int") },
			types.ErrUnsupportedField, `unknown field brigde = "br-int": want one of`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.spec != "" {
				w = newWorldOf(t, c.spec)
			}
			p := c.pod(w)
			before, writes := w.snap(), w.sim.Writes()
			err := w.add(p)
			var e *types.Error
			if !errors.As(err, &e) {
				t.Fatalf("ADD: %v, want an error for the runtime", err)
			}
			if e.Code != c.code || !strings.Contains(e.Msg, c.want) {
				t.Errorf("ADD: code %d, %s\nwant code %d, %s", e.Code, e.Msg, c.code, c.want)
			}
			w.mustBe(before, "after a refused ADD")
			if n := w.sim.Writes() - writes; n != 0 {
				t.Errorf("%d writes", n)
			}
			if w.out.Len() != 0 {
				t.Errorf("printed %q", w.out.String())
			}
		})
	}
}

// TestAddTakesOver finds what a former owner left of a VF: its namespace is gone
// and no DEL came.
func TestAddTakesOver(t *testing.T) {
	for _, reused := range []bool{false, true} {
		w := newWorld(t)
		before := w.snap()
		old := full(w.pod("old", w.vf(0, 0)))
		w.mustAdd(old)
		if err := w.sim.DeleteNetns(old.netns); err != nil {
			t.Fatal(err)
		}
		p := w.pod("new", old.vf)
		if reused {
			// The path leads to another pod's namespace now.
			if err := w.sim.AddNetns(old.netns); err != nil {
				t.Fatal(err)
			}
		}
		w.mustAdd(p)
		if _, ok := w.ipam.leases["old/net1"]; ok {
			t.Error("the former owner's addresses were not given back")
		}
		// The former owner's DEL comes late, and is nobody's.
		held := w.snap()
		w.mustDel(old)
		w.mustBe(held, "after a late DEL")
		if l, _ := w.inPod(p.netns); l.Name != "net1" || l.MTU != 1500 {
			t.Errorf("VF netdev: %+v", l)
		}
		w.mustDel(p)
		w.mustBe(before, "after DEL")
	}
}

// TestAddTakesOverFromItsDouble meets a namespace that has path and number of the
// former owner's: the VF that is at home says that it is another.
func TestAddTakesOverFromItsDouble(t *testing.T) {
	w := newWorld(t)
	old := w.pod("old", w.vf(0, 0))
	w.mustAdd(old)
	l, ns := w.inPod(old.netns)
	if err := ns.Move(context.Background(), l.Ifindex, ""); err != nil {
		t.Fatal(err)
	}
	p := w.pod("new", old.vf)
	w.mustAdd(p)
	if l, _ := w.inPod(p.netns); l.Name != "net1" {
		t.Errorf("VF netdev: %+v", l)
	}
}

// TestAddTwice refuses a second ADD for what is attached.
func TestAddTwice(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 0))
	w.mustAdd(p)
	held := w.snap()
	err := w.add(p)
	if err == nil || !strings.Contains(err.Error(), "is attached to container c1 (net1) already: want a DEL before another ADD") {
		t.Errorf("ADD: %v", err)
	}
	w.mustBe(held, "after a second ADD")
}

// TestAddClearsOwnPort takes a port with our mark away that no record speaks of.
func TestAddClearsOwnPort(t *testing.T) {
	w := newWorld(t)
	rep := w.state().PFs[0].VFs[0].Rep.Netdev.Name
	stale := samplePort(rep)
	stale.Owner = "gone/net1"
	w.sw.ports[rep] = stale
	p := w.pod("c1", w.vf(0, 0))
	w.mustAdd(p)
	if got := w.sw.ports[rep]; got.Owner != "c1/net1" || got.Bridge != "br-int" {
		t.Errorf("port: %+v", got)
	}
}

// TestSameIndexOfOtherPF plugs the representor of the very PF: both ports of a
// card have a VF 0 and share the switch id.
func TestSameIndexOfOtherPF(t *testing.T) {
	w := newWorld(t)
	st := w.state()
	for pf := range st.PFs {
		p := w.pod("c"+string(rune('0'+pf)), st.PFs[pf].VFs[0].Address)
		w.mustAdd(p)
		rep := st.PFs[pf].VFs[0].Rep.Netdev.Name
		if got := w.sw.ports[rep]; got.Owner != p.container+"/net1" {
			t.Errorf("port of %s: %+v", rep, got)
		}
	}
}

// TestNameTaken brings a VF home whose name went to another interface.
func TestNameTaken(t *testing.T) {
	w := newWorld(t)
	p := w.pod("c1", w.vf(0, 0))
	name := w.state().PFs[0].VFs[0].Netdev.Name
	w.mustAdd(p)
	if _, err := w.sim.AddLink("", name, "dummy"); err != nil {
		t.Fatal(err)
	}
	w.mustDel(p)
	if got := w.state().PFs[0].VFs[0].Netdev.Name; got != TempName(p.vf) {
		t.Errorf("VF netdev is called %s", got)
	}
	if owners, _ := record.Owners(w.dir, ""); len(owners) != 0 {
		t.Errorf("owners: %v", owners)
	}
}

// TestVFMACThroughPF is for drivers without port functions.
func TestVFMACThroughPF(t *testing.T) {
	w := newWorldOf(t, "ice:cards=1,numvfs=2,mode=switchdev")
	before := w.snap()
	p := w.pod("c1", w.vf(0, 1)).with("mac", "02:00:00:00:00:01")
	w.mustAdd(p)
	if got := w.state().PFs[0].VFs[1].MAC; got != (nic.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("administrative MAC: %s", got)
	}
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

// TestKernelWords carries what the kernel said to the runtime.
func TestKernelWords(t *testing.T) {
	w := newWorld(t)
	w.sim.Inject(sim.Fault{Verb: sim.SetMTU, Errno: 22, Ext: "mtu greater than device maximum"})
	err := w.add(w.pod("c1", w.vf(0, 0)).with("mtu", 9000))
	var e *types.Error
	if !errors.As(err, &e) || e.Code != ErrKernel || !strings.Contains(e.Msg, "mtu greater than device maximum") {
		t.Errorf("ADD: %#v", err)
	}
}
