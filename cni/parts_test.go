package cni

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

// hostLocal builds the IPAM plugin host-local, once, and says where it is. The lab
// has no Go; lab/gotest builds the module's tools for it.
var hostLocal = sync.OnceValues(func() (string, error) {
	if os.Getenv("SLUICE_LAB") != "" {
		return filepath.Abs("../build/test")
	}
	dir := filepath.Join(os.TempDir(), "sluice-test-cni-plugins")
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "host-local"),
		"github.com/containernetworking/plugins/plugins/ipam/host-local").CombinedOutput()
	if err != nil {
		return "", errors.Join(err, errors.New(string(out)))
	}
	return dir, nil
})

// parts is a world whose Open vSwitch and IPAM plugin are real.
type parts struct {
	*world
	ovs    *ovsdbtest.OVS
	path   string // CNI_PATH
	leases string // folder
}

func newParts(t *testing.T, o *ovsdbtest.OVS) *parts {
	t.Helper()
	path, err := hostLocal()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOf(t, "machine:udev=off+mlx5:cards=1,ports=2,vfs=8,numvfs=2,mode=switchdev")
	o.AddBridge(t, "br-int")
	for _, pf := range w.state().PFs {
		for _, vf := range pf.VFs {
			o.AddNetdev(t, vf.Rep.Netdev.Name)
		}
	}
	return &parts{w, o, path, filepath.Join(w.dir, "leases")}
}

func (w *parts) pod(name, vf string) pod {
	return w.world.pod(name, vf).with("ovsdb", w.ovs.Endpoint).with("ipam", map[string]any{
		"type": "host-local", "dataDir": w.leases,
		"ranges": []any{
			[]any{map[string]any{"subnet": "10.56.0.0/30", "gateway": "10.56.0.1"}}, // one address
			[]any{map[string]any{"subnet": "fd56::/64"}},
		},
		"routes": []any{
			map[string]any{"dst": "0.0.0.0/0"},
			map[string]any{"dst": "::/0", "priority": 2048, "mtu": 1400, "advmss": 1340, "table": 254},
		},
	})
}

func (w *parts) call(verb func(*Plugin, context.Context) error) error {
	p := w.plugin()
	p.Switch, p.IPAM = OpenSwitch, Delegate{}
	// Real ones take their time: ovs-vswitchd looks every 8 s for a database that was away.
	p.Limits.Run, p.Limits.Undo = time.Minute, time.Minute
	return verb(p, context.Background())
}

func (w *parts) add(p pod) error {
	args := w.args(p)
	args.Path = w.path
	return w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.Add(ctx, args) })
}

func (w *parts) del(p pod) error {
	args := w.args(p)
	args.Path = w.path
	return w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.Del(ctx, args) })
}

func (w *parts) check(p pod, result string) error {
	var prev any
	if err := json.Unmarshal([]byte(result), &prev); err != nil {
		w.t.Fatal(err)
	}
	args := w.args(p.with("prevResult", prev))
	args.Path = w.path
	return w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.Check(ctx, args) })
}

func (w *parts) leased() []string { return leasesIn(w.t, w.leases) }

// leasesIn lists the addresses that host-local has given away.
func leasesIn(t testing.TB, dataDir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dataDir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		if name := filepath.Base(f); name != "lock" && !strings.HasPrefix(name, "last_reserved") {
			out = append(out, name)
		}
	}
	return out
}

func (w *parts) owned() []offload.Port {
	w.t.Helper()
	owned, err := offload.Owned(context.Background(), w.ovs.Connect(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	return owned
}

// mustBeAsBefore is for when nothing is attached.
func (w *parts) mustBeAsBefore(before snapshot, when string) {
	w.t.Helper()
	w.mustBe(before, when)
	if leased, owned := w.leased(), w.owned(); len(leased) != 0 || len(owned) != 0 {
		w.t.Fatalf("%s: leased %v, owned %v", when, leased, owned)
	}
}

// TestOpenVSwitchAndHostLocal is the whole life of an attachment with both.
func TestOpenVSwitchAndHostLocal(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		w := newParts(t, o)
		before := w.snap()
		p := full(w.pod("c1", w.vf(0, 1)))
		if err := w.add(p); err != nil {
			t.Fatal(err)
		}
		result := w.out.String()
		golden(t, "add-host-local.result", result+"\n")
		if d := cmp.Diff([]string{"10.56.0.2", "fd56::2"}, w.leased()); d != "" {
			t.Errorf("leased: %s", d)
		}
		rep := w.state().PFs[0].VFs[1].Rep.Netdev.Name
		want := []offload.Port{{
			Bridge: "br-int", Representor: rep, VLAN: 100, Owner: "c1/net1", ExternalIDs: map[string]string{
				"attached_mac": "02:00:00:00:00:01", "iface-id": "shop_c1", "iface-id-ver": "uid-1", "sandbox": "c1",
				"pod-if-name": "net1", "vf-netdev-name": before.Links[linkOf(before, p.vf)].Name,
				"ip_addresses": "10.56.0.2/30,fd56::2/64",
			},
		}}
		if d := cmp.Diff(want, w.owned()); d != "" {
			t.Errorf("ports (-want +got):\n%s", d)
		}
		if err := w.check(p, result); err != nil {
			t.Errorf("CHECK: %v", err)
		}

		// The only address is taken: the plugin's own words, and nothing left.
		held := w.snap()
		err := w.add(w.pod("c2", w.vf(1, 1)))
		var e *types.Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, "IPAM plugin host-local: failed to allocate for range 0: no IP addresses available") {
			t.Errorf("ADD: %#v", err)
		}
		w.mustBe(held, "after an ADD without an address")
		if n := len(w.leased()); n != 2 {
			t.Errorf("%d leases", n)
		}

		// The database is away for a while.
		o.StopDatabase(t)
		if err := w.del(p); !errors.As(err, &e) || e.Code != ErrSwitch || !strings.Contains(e.Msg, "is Open vSwitch running?") {
			t.Errorf("DEL: %#v", err)
		}
		if err := w.add(w.pod("c3", w.vf(1, 0))); !errors.As(err, &e) || e.Code != ErrSwitch || !strings.Contains(e.Msg, o.Endpoint) {
			t.Errorf("ADD: %#v", err)
		}
		o.StartDatabase(t)
		for range 2 {
			if err := w.del(p); err != nil {
				t.Errorf("DEL: %v", err)
			}
		}
		w.mustBeAsBefore(before, "after DEL")
	})
}

// TestDatabaseGoneInMidAdd breaks the connection at each transaction of an ADD,
// carried out or not.
func TestDatabaseGoneInMidAdd(t *testing.T) {
	for _, done := range []bool{false, true} {
		broken := 0
		for nth := 1; ; nth++ {
			o := ovsdbtest.InProcess(t)
			w := newParts(t, o)
			before := w.snap()
			p := full(w.pod("c1", w.vf(0, 1)))
			o.DropAt(t, nth, done)
			err := w.add(p)
			if err == nil {
				break
			}
			broken++
			var e *types.Error
			if !errors.As(err, &e) || e.Code != ErrSwitch {
				t.Fatalf("ADD with transaction %d broken (carried out: %v): %#v", nth, done, err)
			}
			// Open vSwitch was back at once, so the ADD undid itself.
			w.mustBeAsBefore(before, err.Error())
		}
		if broken < 5 {
			t.Errorf("only %d transactions", broken)
		}
	}
}

// TestDatabaseStaysAway leaves an ADD that it met half way to DEL.
func TestDatabaseStaysAway(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	w := newParts(t, o)
	before := w.snap()
	p := full(w.pod("c1", w.vf(0, 1)))
	args := w.args(p)
	args.Path = w.path
	err := w.call(func(plugin *Plugin, ctx context.Context) error {
		plugin.Trace = func(s Span) {
			if strings.HasPrefix(s.Name, "rename VF netdev") && strings.HasSuffix(s.Name, "net1") {
				o.StopDatabase(t)
			}
		}
		return plugin.Add(ctx, args)
	})
	if err == nil || !strings.Contains(err.Error(), "could not be undone, which is left to DEL") {
		t.Fatalf("ADD: %v", err)
	}
	if vf := w.state().PFs[0].VFs[1]; vf.Away {
		t.Error("the VF was not taken home")
	}
	o.StartDatabase(t)
	if n := len(w.owned()); n != 1 {
		t.Errorf("%d ports", n)
	}
	if err := w.del(p); err != nil {
		t.Fatal(err)
	}
	w.mustBeAsBefore(before, "after DEL")
}

// TestForeignPort does not take a representor from whoever has it.
func TestForeignPort(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		w := newParts(t, o)
		before := w.snap()
		o.AddPort(t, "br-int", w.state().PFs[0].VFs[1].Rep.Netdev.Name, ovsdb.Map{"by": "hand"})
		err := w.add(w.pod("c1", w.vf(0, 1)))
		if err == nil || !strings.Contains(err.Error(), "and not sluice's: want it free (ovs-vsctl del-port br-int ") {
			t.Errorf("ADD: %v", err)
		}
		w.mustBeAsBefore(before, "after ADD")
		ports := o.Transact(t, ovsdb.Select("Port", ovsdb.Includes("external_ids", ovsdb.Map{"by": "hand"}), "name"))
		var rows []struct{ Name string }
		if err := ports[0].Decode(&rows); err != nil || len(rows) != 1 {
			t.Errorf("the port: %v, %v", rows, err)
		}
	})
}

// TestIPAMMissing is told before anything is touched.
func TestIPAMMissing(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	w := newParts(t, o)
	before := w.snap()
	err := w.add(w.pod("c1", w.vf(0, 1)).with("ipam", map[string]any{"type": "none-such"}))
	var e *types.Error
	if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || e.Msg != `ipam.type = "none-such": no such plugin in CNI_PATH "`+w.path+`"` {
		t.Errorf("ADD: %#v", err)
	}
	w.mustBeAsBefore(before, "after ADD")
}

// TestGCAndStatusOfRealParts sweeps a real Open vSwitch, and asks a real IPAM plugin.
func TestGCAndStatusOfRealParts(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		w := newParts(t, o)
		before := w.snap()
		p := full(w.pod("c1", w.vf(0, 1)))
		if err := w.add(p); err != nil {
			t.Fatal(err)
		}
		o.StopDatabase(t)
		if err := w.del(p); err == nil {
			t.Fatal("DEL is done without Open vSwitch")
		}
		status := func() error {
			args := w.args(p)
			args.Path = w.path
			return w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.Status(ctx, args) })
		}
		var e *types.Error
		if err := status(); !errors.As(err, &e) || e.Code != types.ErrLimitedConnectivity {
			t.Errorf("STATUS: %v", err)
		}
		o.StartDatabase(t)
		if err := status(); !errors.As(err, &e) || e.Code != types.ErrPluginNotAvailable || !strings.Contains(e.Msg, "hw-offload=true") {
			t.Errorf("STATUS: %v", err)
		}
		args := w.args(p.with("cni.dev/valid-attachments", []any{}))
		args.Path = w.path
		if err := w.call(func(plugin *Plugin, ctx context.Context) error { return plugin.GC(ctx, args) }); err != nil {
			t.Fatal(err)
		}
		w.mustBeAsBefore(before, "after GC")
	})
}
