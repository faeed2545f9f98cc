package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// limit bounds each wait. A place that was lost is had again within two seconds, a
// quarter of one as a rule, which benches measure; a busy machine may take longer.
const limit = 30 * time.Second

// bench is a plugin on a machine that a test changes.
type bench struct {
	t       *testing.T
	dir     string
	plugin  *Plugin
	changes chan host.Change
	stop    func() // and wait for the end
	logged  *lines

	mu   sync.Mutex
	node Node
	fail error // of Observe
}

// start runs a plugin until the test ends.
func start(t *testing.T, node Node, tune func(*Plugin), pools ...nic.Pool) *bench {
	t.Helper()
	return startWith(t, node, nil, tune, pools...)
}

// beside are folders of the test's own, below that of the kubelet's socket.
func (b *bench) beside(name string) string { return filepath.Join(b.dir, name) }

// everywhere has all that a node has: the watcher's folder, PodResources, and the
// folders of files.
func everywhere(b *bench, c *Config) {
	c.Registry, c.PodResources = b.beside("r"), b.beside("p/kubelet.sock")
	c.DeviceInfo, c.CDI = b.beside("devinfo"), b.beside("cdi")
}

func startWith(t *testing.T, node Node, configure func(*bench, *Config), tune func(*Plugin), pools ...nic.Pool) *bench {
	t.Helper()
	b := &bench{t: t, dir: shortDir(t), changes: make(chan host.Change, 1), node: node, logged: &lines{}}
	b.run(configure, tune, pools...)
	return b
}

// run runs a plugin, the first or a later one in the same folders.
func (b *bench) run(configure func(*bench, *Config), tune func(*Plugin), pools ...nic.Pool) {
	t, node := b.t, b.node
	t.Helper()
	config := Config{
		Dir: b.dir, Pools: pools,
		Look: func(context.Context) (Sight, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return sight{b.node.State.Clone(), slices.Collect(maps.Values(b.node.RDMA))}, b.fail
		},
		Exists: node.Exists,
		Log:    slog.New(slog.NewTextHandler(b.logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if configure != nil {
		configure(b, &config)
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if tune != nil {
		tune(p)
	}
	b.plugin = p
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx, b.changes) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run did not end")
		}
	})
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			t.Logf("the plugin logged last:\n%s", b.logged.tail(3000))
		}
	})
}

// shortDir is a folder in which sockets' paths are short enough.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// change changes the machine and says so.
func (b *bench) change(f func(*Node)) {
	b.mu.Lock()
	f(&b.node)
	b.mu.Unlock()
	b.changes <- host.Change{What: "a test"}
}

func (b *bench) kubelet(o kubelettest.Options) *kubelettest.Kubelet {
	b.t.Helper()
	if o.Dir == "" {
		o.Dir = b.dir
	}
	k, err := kubelettest.Start(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(k.Stop)
	return k
}

// wait waits until the kubelet has total devices of a pool, healthy of them
// healthy, and a plugin behind them.
func (b *bench) wait(k *kubelettest.Kubelet, resource string, total, healthy int) {
	b.t.Helper()
	err := k.Wait(resource, limit, func(devices []*api.Device, served bool) bool {
		n := 0
		for _, d := range devices {
			if d.Health == api.Healthy {
				n++
			}
		}
		return served && len(devices) == total && n == healthy
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// waitAway waits until of each pool it is so why the kubelet does not have it.
func (b *bench) waitAway(so func(error) bool) {
	b.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		status := b.plugin.Status()
		if !slices.ContainsFunc(status, func(s PoolStatus) bool { return !so(s.Away) }) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("pools are with the kubelet, or not because: %v", status)
		}
	}
}

func (b *bench) sockets() []string {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.dir, "sluice-*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tail is the last n characters.
func (l *lines) tail(n int) string {
	s := l.String()
	return s[max(0, len(s)-n):]
}

func TestRegisterListAllocate(t *testing.T) {
	dpdk := nic.Pool{Name: "dpdk", Driver: nic.DriverVFIO, Select: []nic.Pick{{PF: nic.PCI("0000:03:00.1"), Indexes: nic.Ranges{{First: 0, Last: 1}}}}}
	fast := nic.Pool{Name: "fast", RDMA: true, Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0")}}}
	node := card(4)
	vfio(node.vf(1, 0))
	vfio(node.vf(1, 1))
	node.vf(0, 3).Driver = ""
	b := start(t, node, nil, fast, dpdk)
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, "sluice.dev/fast", 4, 3)
	b.wait(k, "sluice.dev/dpdk", 2, 2)

	var got []string
	for _, d := range append(k.Devices("sluice.dev/fast"), k.Devices("sluice.dev/dpdk")...) {
		got = append(got, fmt.Sprint(d.ID, " ", d.Health, " ", d.Topology.Nodes[0].ID))
	}
	want := []string{
		"0000:10:00.0 Healthy 0", "0000:10:00.1 Healthy 0", "0000:10:00.2 Healthy 0", "0000:10:00.3 Unhealthy 0",
		"0000:10:00.4 Healthy 1", "0000:10:00.5 Healthy 1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	ids, r, err := k.Allocate(t.Context(), "sluice.dev/dpdk", 1)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"0000:10:00.4"}, ids); d != "" {
		t.Error(d)
	}
	if got := r.Envs["PCIDEVICE_SLUICE_DEV_DPDK"]; got != "0000:10:00.4" {
		t.Errorf("environment %v", r.Envs)
	}
	var files []string
	for _, d := range r.Devices {
		files = append(files, d.HostPath+" "+d.ContainerPath+" "+d.Permissions)
	}
	if d := cmp.Diff([]string{"/dev/vfio/vfio /dev/vfio/vfio rw", "/dev/vfio/44 /dev/vfio/44 rw"}, files); d != "" {
		t.Error(d)
	}
	ids, r, err = k.Allocate(t.Context(), "sluice.dev/fast", 3)
	if err != nil || len(ids) != 3 || len(r.Devices) != 7 {
		t.Errorf("fast: %v, %v, %v", ids, r, err)
	}
	if _, _, err := k.Allocate(t.Context(), "sluice.dev/fast", 1); err == nil || !strings.Contains(err.Error(), "Available: 0") {
		t.Errorf("a fourth of fast: %v", err)
	}
}

// TestB21TheKubeletSeesFilesAppear: the plugin starts before the modules of RDMA
// are loaded. What is offered grows with the files, and a pool of NICs without RDMA
// is none the worse and says nothing of it.
func TestB21TheKubeletSeesFilesAppear(t *testing.T) {
	root := t.TempDir()
	node := card(1)
	node.Exists = func(path string) bool {
		_, err := os.Stat(root + path)
		return err == nil
	}
	complete := node.RDMA
	node.RDMA = map[string]host.RDMADevice{}
	own := node.vf(0, 0).RDMA
	node.vf(0, 0).RDMA, node.vf(1, 0).RDMA = nil, nil
	plain := nic.Pool{Name: "plain", Select: []nic.Pick{{PF: nic.PCI("0000:03:00.1")}}}
	b := start(t, node, nil, nic.Pool{Name: "roce", RDMA: true, Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0")}}}, plain)
	var mu sync.Mutex
	var told []string // to the kubelet of the pool's one device
	k := b.kubelet(kubelettest.Options{Changed: func(resource string, devices []*api.Device) {
		mu.Lock()
		defer mu.Unlock()
		if resource == "sluice.dev/roce" {
			told = append(told, devices[0].Health)
		}
	}})
	file := func(path string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(root+path), 0o700), os.WriteFile(root+path, nil, 0o600)); err != nil {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		what    string
		do      func(*Node)
		healthy int
	}{
		{"nothing", func(*Node) {}, 0},
		{"the device", func(n *Node) { n.vf(0, 0).RDMA = own }, 0},
		{"its files in sysfs", func(n *Node) { n.RDMA = complete }, 0},
		{"uverbs", func(*Node) { file("/dev/infiniband/uverbs0") }, 0},
		{"rdma_cm", func(*Node) { file("/dev/infiniband/rdma_cm") }, 0},
		{"umad, the last", func(*Node) { file("/dev/infiniband/umad0") }, 1},
		{"rdma_cm has gone", func(*Node) { os.Remove(root + "/dev/infiniband/rdma_cm") }, 0},
	} {
		b.change(step.do)
		b.wait(k, "sluice.dev/roce", 1, step.healthy)
		b.wait(k, "sluice.dev/plain", 1, 1)
		// The plugin is asked even where the kubelet would not ask it.
		if _, err := k.AllocateThese(t.Context(), "sluice.dev/roce", []string{node.vf(0, 0).Address}); (err == nil) != (step.healthy > 0) {
			t.Errorf("after %s: allocate: %v", step.what, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if d := cmp.Diff([]string{api.Unhealthy, api.Healthy, api.Unhealthy}, told); d != "" {
		t.Error(d)
	}
	for _, line := range strings.Split(b.logged.String(), "\n") {
		if strings.Contains(line, "sluice.dev/plain") && (strings.Contains(line, "RDMA") || strings.Contains(line, "unhealthy")) {
			t.Errorf("of a NIC without RDMA is logged: %s", line)
		}
	}
}

// Allocate looks at the machine as it is, not as it was when it was listed.
func TestAllocateObservesAnew(t *testing.T) {
	told := make(chan error, 8)
	b := startWith(t, card(2), func(_ *bench, c *Config) {
		c.Allocated = func(resource string, took time.Duration, err error) {
			if resource != "sluice.dev/fast" || took <= 0 {
				t.Errorf("told of an allocation of %q that took %s", resource, took)
			}
			told <- err
		}
	}, nil, pool("fast", ""))
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, "sluice.dev/fast", 4, 4)
	b.mu.Lock() // and nobody says that it changed
	b.node.vf(0, 0).Driver = ""
	b.node.State.PFs[1].VFs = nil
	b.mu.Unlock()
	for id, want := range map[string]string{
		"0000:10:00.0": "0000:10:00.0 is unhealthy: bound to no driver",
		"0000:10:00.2": `"0000:10:00.2" is no VF of this pool`,
	} {
		if _, err := k.AllocateThese(t.Context(), "sluice.dev/fast", []string{"0000:10:00.1", id}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
	}
	if _, err := k.AllocateThese(t.Context(), "sluice.dev/fast", []string{"0000:10:00.1"}); err != nil {
		t.Error(err)
	}
	for i := range 3 { // two were refused
		if err := <-told; (err != nil) != (i < 2) {
			t.Errorf("allocation %d: told of %v", i, err)
		}
	}
	b.mu.Lock()
	b.fail = errors.New("netlink is tired")
	b.mu.Unlock()
	if _, err := k.AllocateThese(t.Context(), "sluice.dev/fast", []string{"0000:10:00.1"}); err == nil || !strings.Contains(err.Error(), "observe: netlink is tired") {
		t.Errorf("observation failed: %v", err)
	}
}

func TestListIsPushedOnlyWhenItChanges(t *testing.T) {
	b := start(t, card(2), nil, pool("fast", ""))
	var pushes atomic.Int32
	k := b.kubelet(kubelettest.Options{Changed: func(string, []*api.Device) { pushes.Add(1) }})
	b.wait(k, "sluice.dev/fast", 4, 4)
	b.change(func(n *Node) { inPod(n.vf(0, 0)) })
	b.change(func(n *Node) { n.vf(0, 1).Owner = "pod default/a" })
	b.change(func(n *Node) { n.vf(1, 1).MAC = nic.MAC{2, 0, 0, 0, 0, 1} })
	b.change(func(n *Node) { n.vf(1, 1).Driver = "" })
	b.wait(k, "sluice.dev/fast", 4, 3)
	b.change(func(n *Node) { vfio(n.vf(1, 1)) }) // unhealthy for another reason
	b.change(func(n *Node) { n.State.PFs[0].VFs = n.State.PFs[0].VFs[:1] })
	b.wait(k, "sluice.dev/fast", 3, 2)
	b.change(func(n *Node) { n.vf(1, 1).Driver = "mlx5_core"; n.vf(1, 1).Owner = "x" })
	b.wait(k, "sluice.dev/fast", 3, 3)
	if n := pushes.Load(); n != 4 {
		t.Errorf("%d lists were sent, want 4", n)
	}
	for _, want := range []string{
		`level=WARN msg="device is unhealthy" resource=sluice.dev/fast device=0000:10:00.3 pf=pci/0000:03:00.1 index=1 problem="bound to no driver, want kernel"`,
		`level=INFO msg="device is healthy again" resource=sluice.dev/fast device=0000:10:00.3`,
	} {
		if strings.Count(b.logged.String(), want) != 1 {
			t.Errorf("not logged once: %s", want)
		}
	}
}

// A pool of nothing is a resource of which there is none, not an unknown one.
func TestEmptyPoolRegisters(t *testing.T) {
	ghost := nic.Pool{Name: "ghost", Select: []nic.Pick{{PF: nic.PCI("0000:81:00.0")}}}
	b := start(t, card(1), nil, ghost)
	lists := make(chan int, 10)
	k := b.kubelet(kubelettest.Options{Changed: func(_ string, devices []*api.Device) { lists <- len(devices) }})
	select {
	case n := <-lists:
		if n != 0 {
			t.Errorf("the first list has %d devices", n)
		}
	case <-time.After(limit):
		t.Fatal("no list was sent")
	}
	b.wait(k, "sluice.dev/ghost", 0, 0)
	if k.Registrations("sluice.dev/ghost") != 1 {
		t.Errorf("%d registrations", k.Registrations("sluice.dev/ghost"))
	}
	b.change(func(n *Node) {
		pf := card(2).State.PFs[0]
		pf.Handle = nic.PCI("0000:81:00.0")
		n.State.PFs = append(n.State.PFs, pf)
	})
	b.wait(k, "sluice.dev/ghost", 2, 2)
	if want := "there is no PF pci/0000:81:00.0"; strings.Count(b.logged.String(), want) != 1 {
		t.Errorf("not logged once: %s", want)
	}
}

func TestNoPools(t *testing.T) {
	b := start(t, card(1), nil)
	b.change(func(*Node) {})
	b.stop()
}

// Case B27: whatever takes the place with the kubelet, it is had again within
// two seconds, with the same devices, with new kubelets and old ones.
func TestB27PlaceIsTakenAgain(t *testing.T) {
	const r = "sluice.dev/fast"
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
		"the kubelet is away for a while": func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet {
			k.Kill()
			if !b.waitLog("connection refused") {
				b.t.Fatal("the plugin did not try for the dead kubelet")
			}
			return b.kubelet(o)
		},
		"a second kubelet starts beside the first": func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet {
			return b.kubelet(o)
		},
		"the kubelet's socket alone is a new one": func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet {
			o.Spare = true
			return b.kubelet(o)
		},
		"the folder is made anew": func(b *bench, k *kubelettest.Kubelet, o kubelettest.Options) *kubelettest.Kubelet {
			k.Kill()
			if err := os.RemoveAll(b.dir); err != nil {
				b.t.Fatal(err)
			}
			return b.kubelet(o)
		},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/legacy=%v", name, legacy), func(t *testing.T) {
				t.Parallel()
				b := start(t, card(4), nil, pool("fast", ""))
				o := kubelettest.Options{Legacy: legacy}
				k := b.kubelet(o)
				b.wait(k, r, 8, 8)
				old, n := k.Socket(r), k.Registrations(r)
				b.change(func(n *Node) { inPod(n.vf(0, 0)) })
				begun := time.Now()
				k2 := lose(b, k, o)
				if k2 != k {
					n = 0
				}
				err := k2.Wait(r, limit, func(devices []*api.Device, served bool) bool {
					healthy := !slices.ContainsFunc(devices, func(d *api.Device) bool { return d.Health != api.Healthy })
					return served && healthy && len(devices) == 8 && k2.Socket(r) != old
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("had again after %v", time.Since(begun).Round(time.Millisecond))
				if got := k2.Registrations(r); got != n+1 {
					t.Errorf("registered %d times, want once more than %d", got, n)
				}
				if _, _, err := k2.Allocate(t.Context(), r, 8); err != nil {
					t.Error(err)
				}
				if s := b.sockets(); len(s) != 1 || s[0] != k2.Socket(r) {
					t.Errorf("sockets %v, the kubelet has %s", s, k2.Socket(r))
				}
			})
		}
	}
}

// waitLog waits for text in the log, within the limit.
func (b *bench) waitLog(text string) bool {
	for over := time.Now().Add(limit); time.Now().Before(over); time.Sleep(time.Millisecond) {
		if strings.Contains(b.logged.String(), text) {
			return true
		}
	}
	return false
}

// The plugin may be first: it waits for the folder and for the kubelet.
func TestKubeletComesLater(t *testing.T) {
	b := start(t, card(4), func(p *Plugin) {
		if err := os.Remove(p.config.Dir); err != nil {
			t.Fatal(err)
		}
	}, pool("fast", "0-1"), pool("slow", "2"))
	if !b.waitLog("its socket is not there") {
		t.Fatal("not logged")
	}
	b.waitAway(func(err error) bool { return errors.Is(err, ErrNoKubelet) })
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, "sluice.dev/fast", 4, 4)
	b.wait(k, "sluice.dev/slow", 2, 2)
	b.waitAway(func(err error) bool { return err == nil })
	if n := strings.Count(b.logged.String(), "level=WARN msg=\"not registered"); n > 4 {
		t.Errorf("%d warnings for a kubelet that is away", n)
	}
	k.Stop()
	b.waitAway(func(err error) bool { return errors.Is(err, ErrNoKubelet) })
}

// Case B29: after a boot, VFs are not for pods before their switch is ready. The
// kubelet learns of them at once, so that the node's capacity is known, and that
// they are healthy as soon as they are.
func TestB29NoPodBeforeTheSwitchIsReady(t *testing.T) {
	node := card(4)
	ready := card(4).State
	for port := range 2 {
		node.State.PFs[port].Eswitch = nic.Legacy
		for i := range 4 {
			node.vf(port, i).Rep = nic.Representor{}
		}
	}
	p := pool("fast", "")
	p.Select[0].Eswitch, p.Select[1].Eswitch = nic.Switchdev, nic.Switchdev
	b := start(t, node, nil, p)
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, "sluice.dev/fast", 8, 0)
	if _, _, err := k.Allocate(t.Context(), "sluice.dev/fast", 1); err == nil {
		t.Error("a VF in legacy mode was given")
	}
	b.change(func(n *Node) { n.State.PFs[1] = ready.PFs[1] })
	b.wait(k, "sluice.dev/fast", 8, 4)
	b.change(func(n *Node) { n.State.PFs[0] = ready.PFs[0] })
	b.wait(k, "sluice.dev/fast", 8, 8)
}

// A node that cannot be observed yet is not a node without devices.
func TestNothingIsRegisteredBeforeAnObservation(t *testing.T) {
	b := start(t, card(4), func(p *Plugin) {
		see := p.config.Look
		var calls atomic.Int32
		p.config.Look = func(ctx context.Context) (Sight, error) {
			if calls.Add(1) < 4 {
				return nil, errors.New("devlink is not there yet")
			}
			return see(ctx)
		}
	}, pool("fast", ""))
	var short atomic.Bool
	k := b.kubelet(kubelettest.Options{Changed: func(_ string, devices []*api.Device) {
		if len(devices) != 8 {
			short.Store(true)
		}
	}})
	b.wait(k, "sluice.dev/fast", 8, 8)
	if short.Load() {
		t.Error("a short list was sent")
	}
	if n := strings.Count(b.logged.String(), "devlink is not there yet"); n != 3 {
		t.Errorf("logged %d times, want 3", n)
	}
}

// A kubelet that refuses is asked again and again, and complained of once.
func TestRefusalIsLoggedOnce(t *testing.T) {
	b := start(t, card(1), quick, pool("fast", ""))
	k, err := kubelettest.Start(kubelettest.Options{Dir: b.dir, Refuse: "no device plugins today"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	if err := k.WaitRefusals(20, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	b.waitAway(func(err error) bool { return err != nil && strings.Contains(err.Error(), "no device plugins today") })
	b.stop()
	log := b.logged.String()
	refused := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "no device plugins today") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d warnings, want 1:\n%s", refused, log)
	}
	if s := b.sockets(); len(s) > 0 {
		t.Errorf("%v is left", s)
	}
}

func TestStopRemovesSockets(t *testing.T) {
	b := start(t, card(4), nil, pool("fast", "0-1"), pool("slow", "2"))
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, "sluice.dev/fast", 4, 4)
	b.wait(k, "sluice.dev/slow", 2, 2)
	for _, s := range b.sockets() {
		info, err := os.Stat(s)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", s, info.Mode(), err)
		}
	}
	b.stop()
	if s := b.sockets(); len(s) > 0 {
		t.Errorf("%v is left", s)
	}
	err := k.Wait("sluice.dev/fast", limit, func(_ []*api.Device, served bool) bool { return !served })
	if err != nil {
		t.Error(err)
	}
}

// Sockets that a killed plugin left are removed; those that answer, and files of
// others, are not.
func TestDeadSocketsAreRemoved(t *testing.T) {
	dir := shortDir(t)
	keep := []string{"kubelet_internal_checkpoint", "other.sock", "sluice-live-00000001.sock"}
	if err := os.WriteFile(filepath.Join(dir, keep[0]), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other.sock", "sluice-dead-00000001.sock", "sluice-live-00000001.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		if name == "sluice-live-00000001.sock" {
			t.Cleanup(func() { l.Close() })
			continue
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	p, err := New(Config{Dir: dir, Look: looking(func(context.Context) (nic.State, error) { return nic.State{}, nil })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ctx, nil); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if d := cmp.Diff(keep, got); d != "" {
		t.Error(d)
	}
}

func TestNewRefuses(t *testing.T) {
	observe := looking(func(context.Context) (nic.State, error) { return nic.State{}, nil })
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"long folder": {Config{Dir: "/" + strings.Repeat("d", 70), Look: observe}, "want 107 at most"},
		"no Look":     {Config{Dir: "/d"}, "Look is nil"},
		"bad pool":    {Config{Dir: "/d", Look: observe, Pools: []nic.Pool{{Name: "-"}}}, `name "-"`},
	} {
		if p, err := New(c.config); err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if p, err := New(Config{Look: observe}); err != nil || p.config.Dir != DefaultDir {
		t.Errorf("default folder: %v", err)
	}
}

// quick makes a plugin try again at once.
func quick(p *Plugin) {
	p.timing.settle, p.timing.first, p.timing.most = 0, time.Millisecond, 5*time.Millisecond
}

// A thousand lost connections leave nothing behind. There is no moment of rest
// between the end of one and the next registration, so kubelets that have not
// noticed the end yet are met too; see the package comment.
func TestThousandReconnectsLeaveNothing(t *testing.T) {
	const r = "sluice.dev/fast"
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	b := start(t, card(4), quick, pool("fast", ""))
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, r, 8, 8)
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for i := range rounds {
		n := k.Registrations(r)
		old := k.Socket(r)
		k.BreakStreams(r)
		err := k.Wait(r, 5*time.Second, func(devices []*api.Device, served bool) bool {
			return served && k.Socket(r) != old && k.Registrations(r) > n && len(devices) == 8 && devices[0].Health == api.Healthy
		})
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if n := k.Registrations(r); n < rounds+1 {
		t.Errorf("%d registrations", n)
	}
	settled(t, "goroutines", goroutines, runtime.NumGoroutine)
	settled(t, "open files", files, func() int { return openFiles(t) })
	if s := b.sockets(); len(s) != 1 {
		t.Errorf("sockets %v", s)
	}
}

// settled waits until the count is what it was, or little more.
func settled(t *testing.T, what string, before int, count func() int) {
	t.Helper()
	now := count()
	for over := time.Now().Add(5 * time.Second); now > before+5 && time.Now().Before(over); now = count() {
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%s: %d before, %d after", what, before, now)
	if now > before+5 {
		t.Errorf("%d %s before, %d after", before, what, now)
	}
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(entries)
}

// Fifty restarts, some with a kill, with changes of the machine and allocations
// meanwhile.
func TestRestartsUnderLoad(t *testing.T) {
	const r = "sluice.dev/fast"
	b := start(t, card(4), quick, pool("fast", ""))
	k := b.kubelet(kubelettest.Options{})
	b.wait(k, r, 8, 8)
	goroutines := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; pause(ctx, time.Millisecond); i++ {
			b.change(func(n *Node) { n.vf(1, 3).Driver = []string{"", "mlx5_core"}[i%2] })
		}
		b.change(func(n *Node) { n.vf(1, 3).Driver = "mlx5_core" })
	})
	for i := range 50 {
		err := k.Wait(r, limit, func(devices []*api.Device, served bool) bool {
			return served && len(devices) == 8 && devices[0].Health == api.Healthy
		})
		if err != nil {
			t.Fatalf("restart %d: %v", i, err)
		}
		ids, _, err := k.Allocate(ctx, r, 2)
		if err != nil {
			t.Fatalf("restart %d: %v", i, err)
		}
		if !slices.Equal(ids, []string{"0000:10:00.0", "0000:10:00.1"}) && !slices.Equal(ids, []string{"0000:10:00.4", "0000:10:00.5"}) {
			t.Fatalf("restart %d: got %v, not of one PF", i, ids)
		}
		if i%2 == 0 {
			k.Stop()
		} else {
			k.Kill()
		}
		k = b.kubelet(kubelettest.Options{Legacy: i%3 == 0})
	}
	cancel()
	load.Wait()
	b.wait(k, r, 8, 8)
	settled(t, "goroutines", goroutines+2, runtime.NumGoroutine)
}
