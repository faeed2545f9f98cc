package cni

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	gocmp "github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host/sim"
)

var (
	sequencesFlag = flag.Int("sequences", 2000, "random sequences that TestRandomSequences does")
	seedFlag      = flag.Uint64("seed", 0, "seed of TestRandomSequences; 0 one by chance")
)

// TestRandomSequences does what a busy node does, in all modes of a switchdev node,
// with failures and kills anywhere, and cleans up in the end: by DEL, or with all
// namespaces gone by GC, or by a sweep. Then nothing is left.
func TestRandomSequences(t *testing.T) {
	sequences := *sequencesFlag
	if testing.Short() {
		sequences = min(sequences, 200)
	}
	seed := cmp.Or(*seedFlag, rand.Uint64())
	t.Logf("seed %d", seed)
	for i := range sequences {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		w := newWorldOf(t, "mlx5:cards=1,ports=2,vfs=4,numvfs=2,numsfs=2,mode=switchdev+machine:reps=free")
		w.bind(w.vf(1, 1), "vfio-pci")
		before, settings := w.snap(), w.settings()
		pods := map[string]pod{}
		var story []string
		for range 5 + rng.IntN(10) {
			story = append(story, w.random(rng, pods))
			w.invariants(strings.Join(story, "; "))
		}
		w.heal()
		when := fmt.Sprintf("seed %d, sequence %d: %s", seed, i, strings.Join(story, "; "))
		if err := w.end(rng, pods); err != nil {
			t.Fatalf("%s: the end: %v", when, err)
		}
		w.mustBe(before, when)
		if d := gocmp.Diff(settings, w.settings()); d != "" {
			t.Fatalf("%s: settings (-before +after):\n%s", when, d)
		}
	}
}

// end takes down whatever is left, in one of the ways.
func (w *world) end(rng *rand.Rand, pods map[string]pod) error {
	var errs []error
	way := rng.IntN(3)
	for _, p := range pods {
		if way == 0 {
			errs = append(errs, w.del(p))
		}
		_ = w.sim.DeleteNetns(p.netns) // it may be gone
	}
	switch {
	case way == 1 || len(pods) == 0:
	case way == 2:
		// What a program drives shows no end of its pod: that is for DEL or GC.
		_, err := w.plugin().Sweep(context.Background(), w.dir, DefaultOVSDB)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, w.gc(w.anyPod()))...)
}

// anyPod is a configuration for commands that are of no pod.
func (w *world) anyPod() pod { return pod{vf: "0000:03:00.2"} }

// random does one thing and says what.
func (w *world) random(rng *rand.Rand, pods map[string]pod) string {
	name := fmt.Sprintf("c%d", rng.IntN(4))
	p, ok := pods[name]
	if !ok {
		vf := [2]int{rng.IntN(2), rng.IntN(2)}
		device := w.vf(vf[0], vf[1])
		if rng.IntN(3) == 0 {
			device = w.sf(vf[0], vf[1])
		}
		p = w.pod(name, device)
		switch rng.IntN(7) {
		case 0:
			p = full(p)
		case 1:
			p = full(p).with("max_tx_rate", 1000).with("min_tx_rate", 10).with("sysctls", someSysctls)
		case 2:
			p = full(p).with("deviceID", nil).with("attach", "veth").with("sysctls", someSysctls)
		case 5:
			p = full(p).with("deviceID", nil).with("attach", "netkit").with("sysctls", someSysctls)
		case 3:
			p = asRep(p)
		case 4:
			p = p.with("bridge", nil) // for a VF whose representor is in a pod
		}
		// Some want a logical port that another has.
		if rng.IntN(4) == 0 && p.conf["ifaceID"] != nil {
			p = p.with("ifaceID", "shop_shared")
		}
		pods[name] = p
	}
	said := func(what string, err error) string {
		if err != nil {
			return fmt.Sprintf("%s of %s (%v)", what, name, err)
		}
		return what + " of " + name
	}
	switch rng.IntN(12) {
	case 0, 1, 2:
		return said("ADD", w.add(p))
	case 3, 4:
		return said("DEL", w.del(p))
	case 5:
		n := 1 + rng.IntN(30)
		_, err := w.crash(n, func() error { return w.add(p) })
		return said(fmt.Sprintf("ADD killed after %d", n), err)
	case 6:
		n := 1 + rng.IntN(25)
		_, err := w.crash(n, func() error { return w.del(p) })
		return said(fmt.Sprintf("DEL killed after %d", n), err)
	case 7:
		w.sim.Inject(sim.Fault{Skip: rng.IntN(20), Errno: syscall.EBUSY, After: rng.IntN(2) == 0})
		return "a write will fail"
	case 8:
		w.sw.down = !w.sw.down
		return fmt.Sprintf("Open vSwitch down: %v", w.sw.down)
	case 9:
		_, err := w.plugin().Sweep(context.Background(), w.dir, DefaultOVSDB)
		return said("a sweep at the time", err)
	case 10:
		var valid []pod
		for _, p := range pods {
			valid = append(valid, p)
		}
		return said("GC with all valid, one", w.gc(p, valid...))
	default:
		if w.sim.DeleteNetns(p.netns) != nil {
			return "nothing"
		}
		if rng.IntN(2) == 0 {
			if err := w.sim.AddNetns(p.netns); err != nil {
				w.t.Fatal(err)
			}
		}
		return "netns gone of " + name
	}
}

// TestFiftyAtOnce attaches fifty pods at once and takes them down at once.
func TestFiftyAtOnce(t *testing.T) {
	w := newWorldOf(t, "mlx5:cards=1,ports=2,vfs=32,numvfs=25,mode=switchdev")
	before, settings := w.snap(), w.settings()
	var pods []pod
	for i := range 50 {
		p := full(w.pod(fmt.Sprintf("c%d", i), w.vf(i%2, i/2))).with("mac", fmt.Sprintf("02:00:00:00:00:%02x", i)).with("max_tx_rate", 10+i)
		if i%5 == 4 {
			p = full(w.pod(fmt.Sprintf("v%d", i), "")).with("deviceID", nil).with("attach", "veth").with("mac", nil)
		}
		pods = append(pods, p)
	}
	all := func(verb string, do func(*Plugin, *skel.CmdArgs) error) {
		errs := make([]error, len(pods))
		var wg sync.WaitGroup
		for i, p := range pods {
			plugin, args := w.plugin(), w.args(p)
			plugin.Trace, plugin.Out = nil, io.Discard
			plugin.Limits = DefaultLimits()
			wg.Go(func() { errs[i] = do(plugin, args) })
		}
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("%s of %s: %v", verb, pods[i].container, err)
			}
		}
	}
	ctx := context.Background()
	all("ADD", func(p *Plugin, args *skel.CmdArgs) error { return p.Add(ctx, args) })
	if len(w.sw.ports) != 50 || len(w.ipam.leases) != 50 {
		t.Errorf("%d ports, %d leases", len(w.sw.ports), len(w.ipam.leases))
	}
	for _, p := range pods {
		if l := w.linkIn(p.netns, "net1"); !l.Up || p.vf != "" && l.Parent != p.vf {
			t.Errorf("%s: %+v", p.container, l)
		}
	}
	all("DEL", func(p *Plugin, args *skel.CmdArgs) error { return p.Del(ctx, args) })
	w.mustBe(before, "after fifty ADDs and DELs")
	if d := gocmp.Diff(settings, w.settings()); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
}

// FuzzPlugin calls the plugin with anything that a runtime could give it. Each error
// has a code, a refused ADD leaves nothing, and after DEL the node is as before.
func FuzzPlugin(f *testing.F) {
	conf := func(more string) []byte {
		return []byte(`{"cniVersion":"1.1.0","name":"n","type":"sluice-cni","ipam":{"type":"memory"},"stateDir":"DIR"` + more + `}`)
	}
	const device, bridge = `,"deviceID":"0000:03:00.3"`, `,"bridge":"br-int"`
	f.Add(conf(device+bridge), podArgs, "c1", "net1", "/run/netns/pod")
	f.Add(conf(device+bridge+`,"runtimeConfig":{"mac":"02:00:00:00:00:01","bandwidth":{"egressRate":1000000}}`), "", "c1", "eth0", "/run/netns/pod")
	f.Add(conf(`,"attach":"veth","mtu":1400,"vlan":9`+bridge), "", "c1", "net1", "/run/netns/pod")
	f.Add(conf(`,"attach":"any","resourceName":"a/b"`+bridge), "K8S_POD_UID=u", "c1", "net1", "/run/netns/pod")
	f.Add(conf(device+`,"trust":"on","vlanQoS":3,"vlan":7`), "", "c1", "net1", "")
	f.Add(conf(`,"attach":"veth","podNetworks":["blue"],"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"sluice.dev/networks":"[{\"network\":\"blue\"}]"}}`+bridge), "", "c1", "eth0", "/run/netns/pod")
	f.Add(conf(device+`,"attach":"representor"`), "", "c1", "net1", "/run/netns/pod")
	f.Add([]byte(`{"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"}]}`), "=;", "", "..", "/etc/passwd")
	f.Add(conf(`,"attach":"veth"`+bridge), "", "c1", "ne\x00\xceXt1", "/run/netns/pod")
	f.Add(conf(device+bridge), "", "c\xce1", "net1", "/run/netns/pod")
	f.Fuzz(func(t *testing.T, conf []byte, env, container, ifname, netns string) {
		w := newWorldOf(t, "mlx5:cards=1,ports=1,vfs=4,numvfs=2,mode=switchdev")
		w.pod("pod", "")
		before := w.snap()
		// Records go where the test may write, whatever is asked for.
		if strings.Contains(string(conf), "stateDir") && !strings.Contains(string(conf), `"stateDir":"DIR"`) {
			return
		}
		text := strings.ReplaceAll(string(conf), `"DIR"`, fmt.Sprintf("%q", w.dir))
		if !strings.Contains(text, w.dir) {
			return
		}
		args := &skel.CmdArgs{ContainerID: container, IfName: ifname, Netns: netns, Args: env, Path: "/opt/cni/bin", StdinData: []byte(text)}
		ctx := context.Background()
		verb := func(name string, err error) {
			var e *types.Error
			if err != nil && (!errors.As(err, &e) || e.Code == 0 || e.Msg == "") {
				t.Fatalf("%s: an error without a code: %v", name, err)
			}
		}
		err := w.plugin().Add(ctx, args)
		verb("ADD", err)
		if err != nil {
			w.mustBe(before, "after a refused ADD: "+err.Error())
		}
		verb("CHECK", w.plugin().Check(ctx, args))
		verb("STATUS", w.plugin().Status(ctx, args))
		verb("GC", w.plugin().GC(ctx, args))
		delErr := w.plugin().Del(ctx, args)
		verb("DEL", delErr)
		if delErr == nil {
			w.mustBe(before, "after DEL")
		} else if err == nil {
			t.Fatalf("ADD, and then DEL: %v", delErr)
		}
	})
}
