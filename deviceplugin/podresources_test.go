package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pods "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/nic"
)

// often asks the kubelet all the time.
func often(p *Plugin) { p.timing.ask = 20 * time.Millisecond }

// What the kubelet had before a restart of plugin and kubelet it has after, whatever
// sits in pods and whatever it looks like from outside: with a netdev gone into a
// pod, with RDMA gone along, and handed to a program without any record of ours.
func TestCapacityOutlivesRestarts(t *testing.T) {
	const r = "sluice.dev/fast"
	p := pool("fast", "")
	p.RDMA = true
	b := startWith(t, card(8), everywhere, often, p)
	o := kubelettest.Options{PodResources: b.beside("p/kubelet.sock")}
	k := b.kubelet(o)
	b.wait(k, r, 16, 16)
	var in []kubelettest.Pod
	for i := range 4 {
		ids, _, err := k.Allocate(t.Context(), r, 2)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, kubelettest.Pod{Namespace: "default", Name: fmt.Sprint("p", i), Devices: map[string][]string{r: ids}})
	}
	k.SetPods(in...)
	if err := k.WaitAsked(2, limit); err != nil {
		t.Fatal(err)
	}
	b.change(func(n *Node) {
		for i, pod := range in {
			for _, id := range pod.Devices[r] {
				_, v := n.State.VFAt(id)
				switch i {
				case 0:
					inPod(v)
				case 1:
					v.Owner, v.Netdev, v.RDMA = "pod default/p1", nic.Netdev{}, nil
				case 2: // nothing tells of it but the kubelet
					v.Netdev, v.RDMA = nic.Netdev{}, nil
				}
			}
		}
	})
	b.wait(k, r, 16, 16)

	// Restarts: of the plugin, of the kubelet, of both.
	for i := range 3 {
		if i != 1 {
			b.stop()
		}
		if i > 0 {
			k.Stop()
			k = b.kubelet(o)
			k.SetPods(in...)
		}
		if i != 1 {
			b.run(everywhere, often, p)
		}
		b.wait(k, r, 16, 16)
	}
	status := b.plugin.Status()[0]
	if h := status.Pods[in[2].Devices[r][0]]; h.String() != "default/p2/main" || len(status.Pods) != 8 {
		t.Errorf("who has what: %v", status.Pods)
	}
	// The pod ends, and what it left is what it is.
	k.SetPods(in[:2]...)
	b.wait(k, r, 16, 14)
}

// Case B31: devices of a pod are a set, which the kubelet lists in any order and in
// any number of parts; so are those of an allocation.
func TestB31DevicesAreASet(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	ids := []string{"0000:10:00.0", "0000:10:00.1", "0000:10:00.5"}
	want := holders{"sluice.dev/a": {}, "sluice.dev/b": {"0000:10:00.6": {"ns", "pod", "two"}}}
	for _, id := range ids {
		want["sluice.dev/a"][id] = Holder{"ns", "pod", "one"}
	}
	var first Grant
	for round := range 100 {
		random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		one := &pods.ContainerResources{Name: "one"}
		for rest := ids; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			one.Devices = append(one.Devices, &pods.ContainerDevices{ResourceName: "sluice.dev/a", DeviceIds: rest[:n]})
			rest = rest[n:]
		}
		two := &pods.ContainerResources{Name: "two", Devices: []*pods.ContainerDevices{{ResourceName: "sluice.dev/b", DeviceIds: []string{"0000:10:00.6"}}}}
		both := []*pods.ContainerResources{one, two}
		if round%2 == 0 {
			slices.Reverse(both)
		}
		got := holdersOf(&pods.ListPodResourcesResponse{PodResources: []*pods.PodResources{{Namespace: "ns", Name: "pod", Containers: both}}})
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		g, err := Allocate(pool("a", ""), card(4), ids)
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			first = g
		}
		if d := cmp.Diff(first, g); d != "" {
			t.Fatalf("the order of %v matters: %s", ids, d)
		}
	}
}

// A kubelet that has lost its list is met anew, once, and then ever more seldom.
func TestKubeletThatLostTheList(t *testing.T) {
	const r = "sluice.dev/fast"
	b := startWith(t, card(2), everywhere, often, pool("fast", ""))
	k := b.kubelet(kubelettest.Options{PodResources: b.beside("p/kubelet.sock")})
	b.wait(k, r, 4, 4)
	if err := k.WaitAsked(10, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := k.Registrations(r); n != 1 {
		t.Errorf("registered %d times while both agree", n)
	}
	old := k.Socket(r)
	k.Blind(true)
	err := k.Wait(r, limit, func(devices []*api.Device, served bool) bool {
		return served && k.Socket(r) != old && len(devices) == 4
	})
	if err != nil {
		t.Fatal(err)
	}
	k.Blind(false)
	if err := k.WaitAsked(10, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	n := k.Registrations(r)
	if err := k.WaitAsked(20, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if k.Registrations(r) != n {
		t.Error("registered again although both agree")
	}
}

// names lists a folder; one that is not there is empty.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// age makes files of a folder as old as they must be before they are removed.
func age(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-2 * fresh)
	for _, name := range names(t, dir) {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// Device information is there when an allocation is answered, stays under a running
// pod through restarts, whatever the pool is then, and goes when no pod has it.
func TestDeviceInformation(t *testing.T) {
	const r = "sluice.dev/fast"
	b := startWith(t, card(2), everywhere, often, pool("fast", ""))
	dir := b.beside("devinfo")
	o := kubelettest.Options{PodResources: b.beside("p/kubelet.sock")}
	k := b.kubelet(o)
	b.wait(k, r, 4, 4)
	ids, _, err := k.Allocate(t.Context(), r, 2)
	if err != nil {
		t.Fatal(err)
	}
	mine := []string{"sluice.dev-fast-0000:10:00.0-device.json", "sluice.dev-fast-0000:10:00.1-device.json"}
	if d := cmp.Diff(mine, names(t, dir)); d != "" {
		t.Fatal(d)
	}
	text, err := os.ReadFile(filepath.Join(dir, mine[1]))
	want := `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:10:00.1","pf-pci-address":"0000:03:00.0","representor-device":"rep1"}}`
	if string(text) != want || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	// The kubelet has not listed the pod yet, and a stranger's file is a stranger's.
	stranger := filepath.Join(dir, "other.io-x-0000:99:00.0-device.json")
	if err := os.WriteFile(stranger, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := func() {
		t.Helper()
		if err := k.WaitAsked(3, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	asked()
	if n := len(names(t, dir)); n != 3 {
		t.Errorf("%v before the pod is listed", names(t, dir))
	}
	k.SetPods(kubelettest.Pod{Namespace: "a", Name: "b", Devices: map[string][]string{r: ids}})
	asked() // an answer under way was of before
	age(t, dir)
	asked()
	b.stop()
	b.run(everywhere, often, pool("other", "0")) // and without the pod's pool
	asked()
	if n := len(names(t, dir)); n != 3 {
		t.Errorf("%v under a running pod", names(t, dir))
	}
	k.SetPods()
	asked()
	asked()
	if d := cmp.Diff([]string{filepath.Base(stranger)}, names(t, dir)); d != "" {
		t.Errorf("after the pod: %s", d)
	}
	// Nobody to ask: nothing is removed.
	b.stop()
	k.Stop()
	if err := os.WriteFile(filepath.Join(dir, mine[0]), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, dir)
	b.plugin.ask(t.Context())
	if n := len(names(t, dir)); n != 2 {
		t.Errorf("%v is left while the kubelet is away", names(t, dir))
	}
}

// CDI specs: one file and one kind for each pool, current, and gone with the pool.
func TestCDI(t *testing.T) {
	rdma := pool("rdma.1", "0")
	rdma.RDMA, rdma.CDI = true, true
	dpdk := nic.Pool{Prefix: "example.com", Name: "dpdk", CDI: true, Driver: nic.DriverVFIO, Select: ports("1")}
	node := card(2)
	vfio(node.vf(0, 1))
	vfio(node.vf(1, 1))
	node.Exists = func(path string) bool { return path != "/dev/vfio/41" } // of no IOMMU
	b := startWith(t, node, everywhere, often, rdma, dpdk)
	dir := b.beside("cdi")
	k := b.kubelet(kubelettest.Options{PodResources: b.beside("p/kubelet.sock")})
	b.wait(k, "sluice.dev/rdma.1", 2, 2)
	b.wait(k, "example.com/dpdk", 2, 2)
	if d := cmp.Diff([]string{"sluice-example.com_dpdk.json", "sluice-sluice.dev_rdma.1.json"}, names(t, dir)); d != "" {
		t.Fatal(d)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sluice-example.com_dpdk.json"))
	want := `{
  "cdiVersion": "0.5.0",
  "kind": "example.com/pool-dpdk",
  "devices": [
    {
      "name": "0000:10:00.1",
      "containerEdits": {
        "deviceNodes": [
          {
            "path": "/dev/vfio/vfio",
            "permissions": "rw"
          },
          {
            "path": "/dev/vfio/41",
            "hostPath": "/dev/vfio/noiommu-41",
            "permissions": "rw"
          }
        ]
      }
    },
`
	if err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("%v:\n%s", err, text)
	}
	r, err := k.AllocateThese(t.Context(), "sluice.dev/rdma.1", []string{"0000:10:00.0", "0000:10:00.2"})
	if err != nil || len(r.Devices) != 0 || len(r.CdiDevices) != 2 || r.CdiDevices[1].Name != "sluice.dev/pool-rdma_1=0000:10:00.2" {
		t.Errorf("allocated %v, %v", r, err)
	}
	if got := r.Envs["PCIDEVICE_SLUICE_DEV_RDMA_1"]; got != "0000:10:00.0,0000:10:00.2" {
		t.Errorf("environment %v", r.Envs)
	}
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "sluice-sluice.dev_rdma.1.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	// An RDMA device comes back with another number, and nobody has told of it.
	b.mu.Lock()
	files(b.node, "mlx5_2", "/dev/infiniband/umad7", "/dev/infiniband/uverbs7")
	b.mu.Unlock()
	if _, err := k.AllocateThese(t.Context(), "sluice.dev/rdma.1", []string{"0000:10:00.0"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(), "/dev/infiniband/uverbs7") || strings.Contains(read(), "/dev/infiniband/uverbs0") {
		t.Errorf("not current when the allocation is answered:\n%s", read())
	}
	// In a pod in exclusive mode it is not to be seen, and its container may be
	// started again.
	b.change(func(n *Node) { inPod(n.vf(0, 0)); n.vf(1, 0).Driver = "" })
	b.wait(k, "sluice.dev/rdma.1", 2, 1)
	if !strings.Contains(read(), "/dev/infiniband/uverbs7") || strings.Contains(read(), "0000:10:00.2") {
		t.Errorf("of a device in a pod, and of one without driver:\n%s", read())
	}
	k.SetPods(kubelettest.Pod{Namespace: "a", Name: "b", Devices: map[string][]string{"sluice.dev/rdma.1": {"0000:10:00.0"}}})
	if err := b.plugin.SetPools([]nic.Pool{pool("plain", "0")}); err != nil {
		t.Fatal(err)
	}
	asked := func() {
		t.Helper()
		if err := k.WaitAsked(3, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	asked() // an answer under way was of before
	age(t, dir)
	asked()
	if d := cmp.Diff([]string{"sluice-sluice.dev_rdma.1.json"}, names(t, dir)); d != "" {
		t.Errorf("without the pools, one of which a pod is of: %s", d)
	}
	k.SetPods()
	asked()
	asked()
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("%v is left", got)
	}
}

// Files are replaced whole: whoever reads meanwhile reads one or the other.
func TestReplaceIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	texts := []string{strings.Repeat("a", 100_000), strings.Repeat("b", 70_000)}
	if err := replace(path, []byte(texts[0])); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 500 {
			if err := replace(path, []byte(texts[i%2])); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) != texts[0] && string(text) != texts[1] {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	}
	if err := replace(filepath.Join(path, "y"), nil); err == nil {
		t.Error("wrote below a file")
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("%v is left", got)
	}
}

// Who waits for pods to go hears of it, and of nothing else that the kubelet says.
func TestHeldIsTold(t *testing.T) {
	const r = "sluice.dev/fast"
	told := make(chan struct{}, 100)
	telling := func(b *bench, c *Config) {
		everywhere(b, c)
		c.Held = func() { told <- struct{}{} }
	}
	b := startWith(t, card(4), telling, often, pool("fast", ""))
	k := b.kubelet(kubelettest.Options{PodResources: b.beside("p/kubelet.sock")})
	b.wait(k, r, 8, 8)
	hear := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(limit):
			t.Fatalf("not told: %s", what)
		}
	}
	hear("the kubelet's first word")
	pod := kubelettest.Pod{Namespace: "default", Name: "a", Devices: map[string][]string{r: {"0000:10:00.0"}}}
	k.SetPods(pod)
	hear("a pod has a device")
	if err := k.WaitAsked(5, limit); err != nil {
		t.Fatal(err)
	}
	k.SetPods()
	hear("it has gone")
	if len(told) > 0 {
		t.Errorf("told %d times more", len(told))
	}
}

// The VFs of a pool that is renamed while pods have some are offered under the new name
// at once, but for those that pods have under the old one; these follow when their pods
// are gone. It is so from the plugin's start on.
func TestRenamedPool(t *testing.T) {
	b := startWith(t, card(4), everywhere, often, pool("new", ""))
	k := b.kubelet(kubelettest.Options{PodResources: b.beside("p/kubelet.sock")})
	one, two := b.node.vf(0, 0).Address, b.node.vf(0, 3).Address
	k.SetPods(
		kubelettest.Pod{Namespace: "default", Name: "a", Devices: map[string][]string{"sluice.dev/old": {one}}},
		kubelettest.Pod{Namespace: "default", Name: "b", Devices: map[string][]string{"intel.com/vfs": {two}}},
	)
	b.wait(k, "sluice.dev/new", 8, 6)
	if _, err := k.AllocateThese(t.Context(), "sluice.dev/new", []string{one}); err == nil || !strings.Contains(err.Error(), one+" is unhealthy: a pod has it as sluice.dev/old") {
		t.Errorf("allocate of a pod's VF: %v", err)
	}
	k.SetPods(
		kubelettest.Pod{Namespace: "default", Name: "b", Devices: map[string][]string{"intel.com/vfs": {two}, "sluice.dev/new": {one}}},
	)
	b.wait(k, "sluice.dev/new", 8, 7)
	k.SetPods()
	b.wait(k, "sluice.dev/new", 8, 8)
}
