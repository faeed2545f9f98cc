package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/linux"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// killAt names the variable that tells this test's binary, run as a plugin, after
// which piece of work it is to be killed.
const killAt = "SLUICE_TEST_KILL_AT"

// TestMain makes a CNI plugin of the test's own binary when a runtime runs it: the
// plugin as it is, but for a kill -9 that meets it at a chosen place.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") == "" {
		os.Exit(m.Run())
	}
	n, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		panic(err)
	}
	on := func(verb func(*Plugin, context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			machine, err := linux.Open(linux.Options{Brief: true})
			if err != nil {
				return err
			}
			return verb(&Plugin{
				Host: machine.Machine, Switch: OpenSwitch, IPAM: Delegate{}, Out: os.Stdout, Limits: DefaultLimits(),
				Trace: func(Span) {
					if n--; n == 0 {
						_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
						select {}
					}
				},
			}, context.Background(), args)
		}
	}
	skel.PluginMainFuncs(skel.CNIFuncs{Add: on((*Plugin).Add), Del: on((*Plugin).Del)}, version.PluginSupports(Versions()...), "")
}

// labNode is the lab's machine with VFs in switchdev mode, a real Open vSwitch and
// the plugins as programs.
type labNode struct {
	t      testing.TB
	m      *linux.Machine
	pfs    []nic.Handle
	dir    string // of records
	leases string
	plugin string // sluice-cni
	path   string // CNI_PATH: host-local
}

const labVFs = 4 // of each PF

// startSwitch starts Open vSwitch, once.
var startSwitch = sync.OnceValue(func() error {
	if out, err := exec.Command("ovs").CombinedOutput(); err != nil {
		return fmt.Errorf("lab/guest/ovs: %w: %s", err, out)
	}
	return nil
})

func newLabNode(t testing.TB) *labNode {
	t.Helper()
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs the lab's NIC and Open vSwitch: make build && lab/gotest ./cni")
	}
	plugin, err := exec.LookPath("sluice-cni")
	if err != nil {
		t.Fatalf("%v: make build comes first", err)
	}
	tools, err := hostLocal()
	if err != nil {
		t.Fatal(err)
	}
	m, err := linux.Open(linux.Options{Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	n := &labNode{t: t, m: m, dir: memoryDir(t)}
	n.leases = filepath.Join(n.dir, "leases")
	n.plugin = n.install(plugin)
	n.path = filepath.Dir(n.install(filepath.Join(tools, "host-local")))
	if err := startSwitch(); err != nil {
		t.Fatal(err)
	}
	n.run("ovs-vsctl", "--may-exist", "add-br", "br-int")
	for _, pf := range n.state().PFs {
		if pf.Driver == "mlx5_core" && pf.TotalVFs >= labVFs {
			n.pfs = append(n.pfs, pf.Handle)
		}
	}
	if len(n.pfs) < 2 {
		t.Fatalf("the lab has no card with two ports: %v", n.pfs)
	}
	n.setVFs(labVFs)
	return n
}

// install copies a program to where programs are on a node: on the machine itself.
// The lab's work tree is a file share, where each page of a program that is run
// is asked for.
func (n *labNode) install(program string) string {
	n.t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		n.t.Fatal(err)
	}
	bin := filepath.Join(n.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		n.t.Fatal(err)
	}
	to := filepath.Join(bin, filepath.Base(program))
	if err := os.WriteFile(to, data, 0o755); err != nil {
		n.t.Fatal(err)
	}
	return to
}

// setVFs makes the VFs of both ports anew.
func (n *labNode) setVFs(count int) {
	n.t.Helper()
	for _, h := range n.pfs[:2] {
		ctx := context.Background()
		if err := errors.Join(
			n.m.PCI.SetVFs(ctx, h.Name, 0), n.m.Devlink.SetEswitch(ctx, h, nic.Switchdev), n.m.PCI.SetVFs(ctx, h.Name, count),
		); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *labNode) state() nic.State {
	n.t.Helper()
	st, err := host.Observe(context.Background(), n.m.Machine)
	if err != nil {
		n.t.Fatal(err)
	}
	return st
}

func (n *labNode) vf(pf, index int) nic.VF {
	st := n.state()
	return st.PF(n.pfs[pf]).VFs[index]
}

// run runs a program that has to succeed.
func (n *labNode) run(name string, args ...string) string {
	n.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (n *labNode) netns(name string) {
	n.t.Helper()
	n.run("ip", "netns", "add", name)
	n.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
}

// pod is a pod that is like full's, with its namespace.
func (n *labNode) pod(name, vf string) pod {
	n.t.Helper()
	n.netns(name)
	return n.podOf(name, vf)
}

// podOf is what a runtime knows of such a pod.
func (n *labNode) podOf(name, vf string) pod {
	p := pod{container: name, ifname: "net1", netns: "/run/netns/" + name, vf: vf}
	p.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name + ";K8S_POD_UID=uid-" + name
	p.conf = map[string]any{
		"mtu": 1400, "vlan": 100, "ifaceID": "shop_" + name,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": n.leases,
			"ranges": []any{[]any{map[string]any{"subnet": "10.56.0.0/24"}}, []any{map[string]any{"subnet": "fd56::/64"}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
		},
	}
	return p
}

// command is a runtime's call of a plugin.
func (n *labNode) command(plugin, verb string, p pod, env ...string) *exec.Cmd {
	n.t.Helper()
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": "offloaded", "type": "sluice-cni", "deviceID": p.vf, "bridge": "br-int", "stateDir": n.dir,
	}
	for k, v := range p.conf {
		conf[k] = v
	}
	data, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	c := exec.Command(plugin)
	c.Stdin = bytes.NewReader(data)
	c.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+p.container, "CNI_NETNS="+p.netns,
		"CNI_IFNAME="+p.ifname, "CNI_ARGS="+p.args, "CNI_PATH="+n.path)
	c.Env = append(c.Env, env...)
	return c
}

// cni runs sluice-cni. The error is what it told the runtime.
func (n *labNode) cni(verb string, p pod) (string, error) {
	n.t.Helper()
	return n.finish(n.command(n.plugin, verb, p))
}

func (n *labNode) finish(c *exec.Cmd) (string, error) { return n.finishAnd(c, func() {}) }

// finishAnd does something else when the command has begun.
func (n *labNode) finishAnd(c *exec.Cmd, begun func()) (string, error) {
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	err := c.Start()
	if err == nil {
		begun()
		err = c.Wait()
	}
	if err == nil {
		return out.String(), nil
	}
	e := new(types.Error)
	if json.Unmarshal(out.Bytes(), e) != nil || e.Code == 0 {
		return "", fmt.Errorf("%w: %s%s", err, &out, &stderr)
	}
	return "", e
}

func (n *labNode) must(verb string, p pod) string {
	n.t.Helper()
	out, err := n.cni(verb, p)
	if err != nil {
		n.t.Fatalf("%s of %s: %v", verb, p.container, err)
	}
	return out
}

func (n *labNode) check(p pod, result string) error {
	var prev any
	if err := json.Unmarshal([]byte(result), &prev); err != nil {
		n.t.Fatal(err)
	}
	_, err := n.cni("CHECK", p.with("prevResult", prev))
	return err
}

func (n *labNode) snap() snapshot {
	n.t.Helper()
	s := snapOf(n.t, n.m.Machine, n.dir)
	c, err := ovsdb.Connect(context.Background(), ovsdb.DefaultEndpoint)
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	owned, err := offload.Owned(context.Background(), c)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Switch, s.Leases = map[string]offload.Port{}, map[string]string{}
	for _, p := range owned {
		s.Switch[p.Representor] = p
	}
	for _, f := range leasesIn(n.t, n.leases) {
		s.Leases[f] = ""
	}
	return s
}

func (n *labNode) mustBe(want snapshot, when string) {
	n.t.Helper()
	if d := cmp.Diff(want, n.snap()); d != "" {
		n.t.Fatalf("%s, the node is not as before (-before +after):\n%s", when, d)
	}
}

// TestPodsInLab is the main job: two pods on VFs of the two ports talk through
// representors and Open vSwitch, and then the node is as it was.
func TestPodsInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	a, b := n.pod("poda", n.vf(0, 0).Address), n.pod("podb", n.vf(0, 3).Address)
	a = a.with("mac", "02:00:00:00:00:0a")
	results := map[string]string{}
	for _, p := range []pod{a, b} {
		results[p.container] = n.must("ADD", p)
	}
	var r struct {
		Interfaces []struct{ Name, Mac, Sandbox, PciID string }
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal([]byte(results["podb"]), &r); err != nil || len(r.IPs) != 2 || len(r.Interfaces) != 2 {
		t.Fatalf("result: %s", results["podb"])
	}
	if got := strings.TrimSpace(n.run("ip", "netns", "exec", "poda", "cat", "/sys/class/net/net1/address")); got != "02:00:00:00:00:0a" {
		t.Errorf("MAC in the pod: %s", got)
	}
	if vf := n.vf(0, 0); vf.MAC.String() != "02:00:00:00:00:0a" || !vf.Away || !vf.Rep.Netdev.Up || vf.Rep.Netdev.MTU != 1400 {
		t.Errorf("VF: %+v", vf)
	}
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		n.run("ip", "netns", "exec", "poda", "ping", "-c", "3", "-i", "0.2", "-W", "5", address)
	}
	if tag := strings.TrimSpace(n.run("ovs-vsctl", "get", "Port", r.Interfaces[0].Name, "tag")); tag != "100" {
		t.Errorf("tag %s", tag)
	}
	if uid := strings.TrimSpace(n.run("ovs-vsctl", "get", "Interface", r.Interfaces[0].Name, "external_ids:iface-id-ver")); uid != `uid-podb` {
		t.Errorf("iface-id-ver %s", uid)
	}
	for _, p := range []pod{a, b} {
		if err := n.check(p, results[p.container]); err != nil {
			t.Errorf("CHECK of %s: %v", p.container, err)
		}
	}
	n.run("ip", "-n", "poda", "link", "set", "net1", "mtu", "1300")
	n.run("ip", "link", "set", n.vf(0, 0).Rep.Netdev.Name, "down")
	if err := n.check(a, results["poda"]); err == nil || !strings.Contains(err.Error(), "its MTU is 1300, want 1400") || !strings.Contains(err.Error(), "is down") {
		t.Errorf("CHECK: %v", err)
	}
	owners, err := record.Owners(n.dir, "")
	if err != nil || owners[a.vf] != "pod shop/poda (net1 of container poda)" {
		t.Errorf("owners %v, %v", owners, err)
	}
	for _, p := range []pod{a, b, a} {
		n.must("DEL", p)
	}
	n.mustBe(before, "after DEL")
}

// TestBadInputInLab gives the real machine what is refused, and looks that nothing
// was touched.
func TestBadInputInLab(t *testing.T) {
	n := newLabNode(t)
	p := n.pod("poda", n.vf(0, 0).Address)
	before := n.snap()
	pf := p
	pf.vf = n.pfs[0].Name
	gone := p
	gone.netns = "/run/netns/none"
	file := p
	file.netns = "/etc/passwd"
	own := p
	own.netns = "/proc/self/ns/net"
	lo := p
	lo.ifname = "lo"
	for want, p := range map[string]pod{
		"it is a PF: want one of its 4 VFs":                     pf,
		`no such bridge "br-none"`:                              p.with("bridge", "br-none"),
		"no ovsdb-server at unix:/run/none":                     p.with("ovsdb", "unix:/run/none"),
		"there is no such network namespace":                    gone,
		"is no network namespace":                               file,
		"it is the host's own network namespace":                own,
		`CNI_IFNAME = "lo": there is an interface of this name`: lo,
		"unknown field vlans = 7":                               p.with("vlans", 7),
		`ipam.type = "none-such": no such plugin in CNI_PATH`:   p.with("ipam", map[string]any{"type": "none-such"}),
	} {
		if _, err := n.cni("ADD", p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ADD: %v\nwant: %s", err, want)
		}
	}
	n.mustBe(before, "after refused ADDs")

	ctx := context.Background()
	other := n.vf(1, 0).Address
	if err := errors.Join(n.m.PCI.SetVFs(ctx, n.pfs[1].Name, 0), n.m.Devlink.SetEswitch(ctx, n.pfs[1], nic.Legacy), n.m.PCI.SetVFs(ctx, n.pfs[1].Name, 1)); err != nil {
		t.Fatal(err)
	}
	p.vf = other
	if _, err := n.cni("ADD", p); err == nil || !strings.Contains(err.Error(), "eswitch in legacy mode") {
		t.Errorf("ADD: %v", err)
	}
}

// TestKernelRefusesInLab undoes an ADD that the kernel refused half way, and tells
// why in its words.
func TestKernelRefusesInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	_, err := n.cni("ADD", n.pod("poda", n.vf(0, 1).Address).with("mtu", 20000))
	var e *types.Error
	if !errors.As(err, &e) || e.Code != ErrKernel || !strings.Contains(e.Msg, "mtu greater than device maximum") {
		t.Errorf("ADD: %v", err)
	}
	n.mustBe(before, "after ADD")
}

// TestNetnsGoneInLab brings VFs home that the kernel took back by itself.
func TestNetnsGoneInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	for _, netns := range []string{"/run/netns/poda", ""} {
		p := n.pod("poda", n.vf(0, 2).Address).with("mac", "02:00:00:00:00:0a")
		n.must("ADD", p)
		n.run("ip", "netns", "del", "poda")
		p.netns = netns
		n.must("DEL", p)
		n.mustBe(before, fmt.Sprintf("after DEL with CNI_NETNS %q of a namespace that is gone", netns))
	}
	// A path that is a file now, and one that another namespace is at.
	p := n.pod("poda", n.vf(0, 2).Address)
	n.must("ADD", p)
	n.run("ip", "netns", "del", "poda")
	if err := os.WriteFile(p.netns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.must("DEL", p)
	n.mustBe(before, "after DEL with a file for a namespace")
	if err := os.Remove(p.netns); err != nil {
		t.Fatal(err)
	}
	p = n.pod("poda", p.vf)
	n.must("ADD", p)
	n.run("ip", "netns", "del", "poda")
	n.run("ip", "netns", "add", "poda")
	n.run("ip", "-n", "poda", "link", "add", p.ifname, "type", "veth", "peer", "name", "peer")
	n.must("DEL", p)
	n.mustBe(before, "after DEL with another namespace at the path")
	if out := n.run("ip", "-n", "poda", "-o", "link"); !strings.Contains(out, p.ifname+"@peer") {
		t.Errorf("the other namespace: %s", out)
	}
}

// TestKilledInLab has a real kill -9 meet ADD at each place, then DEL clean up; and
// DEL likewise.
func TestKilledInLab(t *testing.T) {
	n := newLabNode(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self = n.install(self)
	before := n.snap()
	// Each place takes seconds under emulation.
	stride, least := 1, 30
	if testing.Short() {
		stride, least = 4, 8
	}
	for _, verb := range []string{"ADD", "DEL"} {
		kills := 0
		for at := 1; ; at += stride {
			p := n.pod(fmt.Sprintf("%s%d", strings.ToLower(verb), at), n.vf(0, at%labVFs).Address)
			p = p.with("mac", "02:00:00:00:00:0a")
			if verb == "DEL" {
				n.must("ADD", p)
			}
			_, err := n.finish(n.command(self, verb, p, fmt.Sprintf("%s=%d", killAt, at)))
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
				t.Fatalf("%s to be killed after %d pieces of work: %v", verb, at, err)
			}
			progress := "no record"
			if r, err := record.In(n.dir).Load(p.vf); err == nil {
				progress = r.Progress()
			}
			if at%2 == 0 {
				n.run("ip", "netns", "del", p.container)
			}
			n.must("DEL", p)
			n.mustBe(before, fmt.Sprintf("after a kill of %s at piece %d (%s) and DEL", verb, at, progress))
			if err == nil {
				break
			}
			kills++
		}
		t.Logf("%s was killed at %d places", verb, kills)
		if kills < least {
			t.Errorf("%s was killed at %d places only", verb, kills)
		}
	}
}

// TestKilledFromOutsideInLab kills the released plugin, at the moment that its
// record shows each intent.
func TestKilledFromOutsideInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	vf := n.vf(0, 1).Address
	seen := map[string]bool{}
	stride := 1
	if testing.Short() {
		stride = 4
	}
	for entries := 1; entries <= 18; entries += stride {
		p := n.pod(fmt.Sprintf("out%d", entries), vf)
		c := n.command(n.plugin, "ADD", p)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		file, end := filepath.Join(n.dir, "attachments", vf+".json"), time.Now().Add(time.Minute)
	watch:
		for time.Now().Before(end) {
			select {
			case <-done:
				break watch
			default:
			}
			if data, err := os.ReadFile(file); err == nil && bytes.Count(data, []byte("\n")) >= entries {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				<-done
				break
			}
		}
		if r, err := record.In(n.dir).Load(vf); err == nil {
			seen[r.Last.Step] = true
		}
		n.must("DEL", p)
		n.mustBe(before, fmt.Sprintf("after a kill at entry %d and DEL", entries))
	}
	t.Logf("killed at %d steps", len(seen))
	if len(seen) < 8/stride {
		t.Errorf("killed at few steps only: %v", seen)
	}
}

// TestOpenVSwitchGoneInLab takes Open vSwitch away in the middle of an ADD, and from
// under a DEL; when it is back, DEL finishes.
func TestOpenVSwitchGoneInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	stop := func() { n.run("/usr/share/openvswitch/scripts/ovs-ctl", "stop") }
	start := func() { n.run("ovs") }
	for _, at := range []string{"check bridge", "set VF netdev net1 in the pod up"} {
		p := n.pod("gone"+fmt.Sprint(len(at)), n.vf(0, 1).Address)
		plugin := &Plugin{
			Host: n.m.Machine, Switch: OpenSwitch, IPAM: Delegate{}, Out: new(bytes.Buffer), Limits: DefaultLimits(),
			Trace: func(s Span) {
				if s.Name == at {
					stop()
				}
			},
		}
		data, err := json.Marshal(p.with("name", "offloaded").with("cniVersion", "1.1.0").with("deviceID", p.vf).
			with("bridge", "br-int").with("stateDir", n.dir).conf)
		if err != nil {
			t.Fatal(err)
		}
		err = plugin.Add(t.Context(), &skel.CmdArgs{
			ContainerID: p.container, Netns: p.netns, IfName: p.ifname, Args: p.args, Path: n.path, StdinData: data,
		})
		var e *types.Error
		if !errors.As(err, &e) || e.Code != ErrSwitch {
			t.Errorf("ADD without Open vSwitch after %q: %v", at, err)
		}
		if vf := n.vf(0, 1); vf.Away {
			t.Errorf("the VF is still away")
		}
		if _, err := n.cni("DEL", p); err == nil || !strings.Contains(err.Error(), "is Open vSwitch running?") {
			t.Errorf("DEL: %v", err)
		}
		start()
		n.must("DEL", p)
		n.mustBe(before, "after DEL")
	}
}

// TestConcurrentInLab gives one VF to one of several processes.
func TestConcurrentInLab(t *testing.T) {
	n := newLabNode(t)
	before := n.snap()
	vf := n.vf(1, 2).Address
	var pods []pod
	var commands []*exec.Cmd
	for i := range 6 {
		pods = append(pods, n.pod(fmt.Sprintf("many%d", i), vf))
		commands = append(commands, n.command(n.plugin, "ADD", pods[i]))
	}
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, c := range commands {
		wg.Go(func() { _, errs[i] = n.finish(c) })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		var e *types.Error
		if err == nil {
			won++
		} else if !errors.As(err, &e) || e.Code != types.ErrTryAgainLater {
			t.Errorf("%s: %v", pods[i].container, err)
		}
	}
	if won != 1 {
		t.Errorf("%d have the VF", won)
	}
	for _, p := range pods {
		n.must("DEL", p)
	}
	n.mustBe(before, "after all")
}
