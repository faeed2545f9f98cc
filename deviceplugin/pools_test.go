package deviceplugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/nic"
)

// Pools come, grow, change and go while others are offered: these keep their
// socket, their one registration and their stream, over which nothing is sent.
func TestSetPools(t *testing.T) {
	b := start(t, card(8), nil, pool("stays", "0-1"), pool("grows", "2"))
	var toStays atomic.Int32
	k := b.kubelet(kubelettest.Options{Changed: func(resource string, _ []*api.Device) {
		if resource == "sluice.dev/stays" {
			toStays.Add(1)
		}
	}})
	b.wait(k, "sluice.dev/stays", 4, 4)
	b.wait(k, "sluice.dev/grows", 2, 2)
	stays, grows := k.Socket("sluice.dev/stays"), k.Socket("sluice.dev/grows")
	set := func(pools ...nic.Pool) {
		t.Helper()
		if err := b.plugin.SetPools(pools); err != nil {
			t.Fatal(err)
		}
	}
	set(pool("stays", "0-1"), pool("grows", "2-4"), pool("comes", "5"))
	b.wait(k, "sluice.dev/grows", 6, 6)
	b.wait(k, "sluice.dev/comes", 2, 2)

	// The same resource with another wish: on the same stream, and at allocation.
	rdma := pool("grows", "2-4")
	rdma.RDMA = true
	set(pool("stays", "0-1"), rdma, pool("comes", "5"))
	b.change(func(n *Node) { n.vf(0, 2).RDMA = nil })
	b.wait(k, "sluice.dev/grows", 6, 5)
	if r, err := k.AllocateThese(t.Context(), "sluice.dev/grows", []string{b.node.vf(0, 3).Address}); err != nil || len(r.Devices) != 3 {
		t.Errorf("allocate of the changed pool: %v, %v", r, err)
	}

	// One goes: first its devices, then its socket.
	set(pool("stays", "0-1"), rdma)
	if err := k.Wait("sluice.dev/comes", limit, func(devices []*api.Device, served bool) bool { return len(devices) == 0 && !served }); err != nil {
		t.Error(err)
	}
	// And comes again, with another list.
	set(pool("comes", "5-7"), pool("stays", "0-1"), rdma)
	b.wait(k, "sluice.dev/comes", 6, 6)

	// What is wrong changes nothing.
	if err := b.plugin.SetPools([]nic.Pool{pool("stays", "0-1"), pool("other", "1")}); err == nil || !strings.Contains(err.Error(), "both want VF 1 of") {
		t.Errorf("an overlap: %v", err)
	}
	b.wait(k, "sluice.dev/comes", 6, 6)
	if got := []string{k.Socket("sluice.dev/stays"), k.Socket("sluice.dev/grows")}; !slices.Equal(got, []string{stays, grows}) {
		t.Errorf("sockets were %s, %s and are %v", stays, grows, got)
	}
	if n, m := k.Registrations("sluice.dev/stays"), k.Registrations("sluice.dev/grows"); n != 1 || m != 1 {
		t.Errorf("registered %d and %d times, want once", n, m)
	}
	if n := toStays.Load(); n != 1 {
		t.Errorf("the pool that stays sent %d lists, want 1", n)
	}
	if s := b.sockets(); len(s) != 3 {
		t.Errorf("sockets %v", s)
	}
	got := b.plugin.Status()
	if len(got) != 3 || got[0].Resource != "sluice.dev/comes" || len(got[2].Devices) != 6 {
		t.Errorf("status %v", got)
	}
}

// Pools that come before there is a kubelet, and in any number of calls.
func TestSetPoolsEarlyAndOften(t *testing.T) {
	b := start(t, card(8), quick)
	for i := range 200 {
		pools := []nic.Pool{pool("a", "0-1"), pool("b", "2")}
		if err := b.plugin.SetPools(pools[:1+i%2]); err != nil {
			t.Fatal(err)
		}
	}
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, "sluice.dev/a", 4, 4)
	b.wait(k, "sluice.dev/b", 2, 2)
	before := runtime.NumGoroutine()
	for i := range 200 {
		pools := []nic.Pool{pool("a", "0-1"), pool("b", "2")}
		if err := b.plugin.SetPools(pools[:1+i%2]); err != nil {
			t.Fatal(err)
		}
	}
	b.wait(k, "sluice.dev/a", 4, 4)
	b.wait(k, "sluice.dev/b", 2, 2)
	if n := k.Registrations("sluice.dev/a"); n != 1 {
		t.Errorf("registered %d times", n)
	}
	settled(t, "goroutines", before, runtime.NumGoroutine)
}

// The plugin watcher's folder is the way where there is no Register: found, lost in
// each way and found again, and nothing is left.
func TestB27FoundByTheWatcher(t *testing.T) {
	const r = "sluice.dev/fast"
	watcher := func(b *bench, c *Config) {
		everywhere(b, c)
		c.Way = ByWatcher
		if err := os.MkdirAll(c.Registry, 0o700); err != nil {
			b.t.Fatal(err)
		}
	}
	for name, lose := range map[string]func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet{
		"our socket is removed": func(b *bench, k *kubelettest.Kubelet, _ kubelettest.Options) *kubelettest.Kubelet {
			if err := os.Remove(k.Socket(r)); err != nil {
				b.t.Fatal(err)
			}
			return k
		},
		"the stream breaks": func(b *bench, k *kubelettest.Kubelet, _ kubelettest.Options) *kubelettest.Kubelet {
			k.BreakStreams(r)
			return k
		},
		"the kubelet is restarted": func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet {
			k.Stop()
			return b.kubelet(o)
		},
		"the kubelet is killed and started": func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet {
			k.Kill()
			return b.kubelet(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startWith(t, card(4), watcher, nil, pool("fast", ""))
			o := kubelettest.Options{Registry: b.beside("r")}
			k := b.kubelet(o)
			b.wait(k, r, 8, 8)
			old := k.Socket(r)
			if filepath.Dir(old) != b.beside("r") {
				t.Errorf("found at %s", old)
			}
			// A kubelet that has started anew may find the old socket before the plugin
			// has given it up.
			before := k
			k = lose(b, k, o)
			err := k.Wait(r, limit, func(devices []*api.Device, served bool) bool {
				return served && len(devices) == 8 && devices[0].Health == api.Healthy && (k != before || k.Socket(r) != old)
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := k.Allocate(t.Context(), r, 8); err != nil {
				t.Error(err)
			}
			b.stop()
			if left, err := os.ReadDir(b.beside("r")); err != nil || len(left) > 0 {
				t.Errorf("%v, %v is left", left, err)
			}
		})
	}
}

// Which way a pool goes: never both.
func TestWay(t *testing.T) {
	dir := shortDir(t)
	here := filepath.Join(dir, "here")
	if err := os.Mkdir(here, 0o700); err != nil {
		t.Fatal(err)
	}
	kubelet, none, gone := identity{inode: 1}, identity{}, filepath.Join(dir, "gone")
	for _, c := range []struct {
		dir, registry string
		only          Way
		kubelet       identity
		want          Way
	}{
		{here, here, "", kubelet, ByRegister},
		{here, here, "", none, ""}, // a kubelet that starts has both
		{gone, here, "", none, ByWatcher},
		{gone, gone, "", none, ""},
		{gone, "", "", none, ""},
		{here, here, ByWatcher, kubelet, ByWatcher},
		{gone, here, ByRegister, none, ""},
		{here, "", ByRegister, kubelet, ByRegister},
	} {
		if got := (meeting{c.dir, c.registry, c.only}).way(c.kubelet); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// Whoever asks Status is told when it answers something else: of a pool that goes, and
// of one that has come and lists nothing.
func TestOtherPoolsAreTold(t *testing.T) {
	told := 0
	p, err := New(Config{Dir: "/d", Look: func(context.Context) (Sight, error) { return nil, errors.New("no machine") }, Listed: func() { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		pools []nic.Pool
		told  int
	}{
		{nil, 0},
		{[]nic.Pool{pool("a", "0")}, 1},
		{[]nic.Pool{pool("a", "0")}, 1},
		{[]nic.Pool{pool("a", "0-1")}, 2},
		{nil, 3},
	} {
		if err := p.SetPools(step.pools); err != nil {
			t.Fatal(err)
		}
		if told != step.told {
			t.Errorf("step %d: told %d times: want %d", i, told, step.told)
		}
		if n := len(p.Status()); n != len(step.pools) {
			t.Errorf("step %d: %d pools: want %d", i, n, len(step.pools))
		}
	}
}
