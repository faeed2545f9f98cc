package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/devfile"
	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/ovsdb"
)

// world is a node for tests: a simulated machine, and an Open vSwitch and an IPAM
// plugin that are only as much as the machine needs of them. That the real ones
// do as these is shown by the tests that use them.
type world struct {
	t    testing.TB
	sim  *sim.Sim
	dir  string
	sw   *memSwitch
	ipam *memIPAM

	out   bytes.Buffer
	spans []Span
	// crashAt ends the process, so to speak, after so many pieces of work.
	crashAt int
}

func newWorld(t testing.TB) *world {
	return newWorldOf(t, vfNode)
}

func newWorldOf(t testing.TB, spec string) *world {
	t.Helper()
	s, err := sim.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, sim: s, dir: memoryDir(t)}
	w.sw = &memSwitch{bridges: []string{"br-int", "br-lab"}, ports: map[string]offload.Port{}}
	w.sw.settings = offload.Settings{HWOffload: true, TCPolicy: "none"}
	w.ipam = &memIPAM{leases: map[string]string{}}
	return w
}

// memoryDir is a folder in memory where there is one: thousands of attachments
// are recorded here, and each flushes its record to the disk.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sluice-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// plugin is a new process of the plugin.
func (w *world) plugin() *Plugin {
	w.out.Reset()
	w.spans = nil
	return &Plugin{
		Host: w.sim.Machine(),
		Switch: func(context.Context, string) (Switch, error) {
			if err := w.sw.ready("connect"); err != nil {
				return nil, err
			}
			return w.sw, nil
		},
		IPAM: w.ipam,
		Out:  &w.out,
		Limits: Limits{
			Lock: 5 * time.Second, Run: 5 * time.Second, Undo: 5 * time.Second,
			Return: 5 * time.Millisecond,
		},
		Trace: func(s Span) {
			// A process that ends while it waits for the lock has done nothing.
			if s.Name == "lock" {
				return
			}
			w.spans = append(w.spans, s)
			if len(w.spans) == w.crashAt {
				panic(killed{})
			}
		},
	}
}

// killed is how a process ends that kill -9 met: nothing of its own runs any
// more but what ends with it (locks, open files).
type killed struct{}

// crash runs f as a process that ends after n pieces of work; false when it was
// done before.
func (w *world) crash(n int, f func() error) (crashed bool, err error) {
	w.crashAt = n
	defer func() {
		w.crashAt = 0
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			crashed = true
		}
	}()
	return false, f()
}

// pod is what a runtime knows of a pod's interface.
type pod struct {
	container, ifname, netns, vf string
	conf                         map[string]any
	args                         string
}

func (w *world) pod(name, vf string) pod {
	w.t.Helper()
	netns := "/run/netns/" + name
	if err := w.sim.AddNetns(netns); err != nil {
		w.t.Fatal(err)
	}
	return pod{container: name, ifname: "net1", netns: netns, vf: vf}
}

// with returns p with a configuration changed: nil takes a key away.
func (p pod) with(key string, value any) pod {
	conf := maps.Clone(p.conf)
	if conf == nil {
		conf = map[string]any{}
	}
	conf[key] = value
	p.conf = conf
	return p
}

func (w *world) args(p pod) *skel.CmdArgs {
	w.t.Helper()
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": "offloaded", "type": "sluice-cni",
		"deviceID": p.vf, "bridge": "br-int", "stateDir": w.dir,
		"kubeletDir": w.kubelet(),
		"ipam":       map[string]any{"type": "memory"},
	}
	for k, v := range p.conf {
		if v == nil {
			delete(conf, k)
			continue
		}
		conf[k] = v
	}
	data, err := json.Marshal(conf)
	if err != nil {
		w.t.Fatal(err)
	}
	return &skel.CmdArgs{
		ContainerID: p.container, Netns: p.netns, IfName: p.ifname, Args: p.args,
		Path: "/opt/cni/bin", StdinData: data,
	}
}

func (w *world) add(p pod) error { return w.plugin().Add(context.Background(), w.args(p)) }
func (w *world) del(p pod) error { return w.plugin().Del(context.Background(), w.args(p)) }

func (w *world) check(p pod, result string) error {
	var prev map[string]any
	if err := json.Unmarshal([]byte(result), &prev); err != nil {
		w.t.Fatalf("result %q: %v", result, err)
	}
	return w.plugin().Check(context.Background(), w.args(p.with("prevResult", prev)))
}

// gc is the runtime's GC with these attachments valid.
func (w *world) gc(p pod, valid ...pod) error {
	list := []map[string]string{}
	for _, v := range valid {
		list = append(list, map[string]string{"containerID": v.container, "ifname": v.ifname})
	}
	args := w.args(p.with("cni.dev/valid-attachments", list))
	args.ContainerID, args.Netns, args.IfName = "", "", ""
	return w.plugin().GC(context.Background(), args)
}

func (w *world) sweep() Swept {
	w.t.Helper()
	swept, err := w.plugin().Sweep(context.Background(), w.dir, DefaultOVSDB)
	if err != nil {
		w.t.Fatalf("sweep: %v", err)
	}
	return swept
}

// mustAdd attaches and returns the printed result.
func (w *world) mustAdd(p pod) string {
	w.t.Helper()
	if err := w.add(p); err != nil {
		w.t.Fatalf("ADD: %v", err)
	}
	return w.out.String()
}

func (w *world) mustDel(p pod) {
	w.t.Helper()
	if err := w.del(p); err != nil {
		w.t.Fatalf("DEL: %v", err)
	}
}

// snapshot is all that an attachment may change.
type snapshot struct {
	Functions []host.Function
	SFs       []host.SFDevice
	Ports     []host.DevlinkPort
	Links     []host.Link
	Switch    map[string]offload.Port
	Leases    map[string]string
	Owners    map[string]string
	Files     []string // device files
}

func (w *world) snap() snapshot {
	w.t.Helper()
	s := snapOf(w.t, w.sim.Machine(), w.dir)
	s.Switch, s.Leases = maps.Clone(w.sw.ports), maps.Clone(w.ipam.leases)
	return s
}

// snapOf takes a snapshot of a machine. Ifindexes are left out, which the kernel
// may change when an interface returns to a namespace, and the carrier, which
// comes and goes in its own time.
func snapOf(t testing.TB, m host.Machine, dir string) snapshot {
	t.Helper()
	ctx := context.Background()
	functions, err1 := m.PCI.Functions(ctx)
	sfs, err6 := m.PCI.SFs(ctx)
	ports, err2 := m.Devlink.Ports(ctx)
	links, err3 := m.Links.Links(ctx)
	owners, err4 := record.Owners(dir, "")
	files, err5 := devfile.In(dir).Keys()
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	for i := range ports {
		ports[i].Ifindex = 0
	}
	for i := range links {
		links[i].Ifindex, links[i].Master, links[i].Carrier = 0, 0, false
		// One that was taken and given back is the last.
		links[i].AltNames = append([]string(nil), slices.Sorted(slices.Values(links[i].AltNames))...)
	}
	slices.SortFunc(links, func(a, b host.Link) int { return strings.Compare(a.Name, b.Name) })
	return snapshot{Functions: functions, SFs: sfs, Ports: ports, Links: links, Owners: owners, Files: files}
}

func (w *world) mustBe(want snapshot, when string) {
	w.t.Helper()
	if d := cmp.Diff(want, w.snap()); d != "" {
		w.t.Fatalf("%s, the node is not as before (-before +after):\n%s", when, d)
	}
}

func (w *world) state() nic.State {
	w.t.Helper()
	st, err := host.Observe(context.Background(), w.sim.Machine())
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// vf returns the PCI address of a VF of the node's first PFs.
func (w *world) vf(pf, index int) string { return w.state().PFs[pf].VFs[index].Address }

// inPod reads the only interface of a pod's namespace that has a device.
func (w *world) inPod(netns string) (host.Link, host.NetnsLinks) {
	w.t.Helper()
	ns, err := w.sim.Machine().Netns.Open(context.Background(), netns)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ns.Close() })
	all, err := ns.Links(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range all {
		if l.Parent != "" {
			return l, ns
		}
	}
	return host.Link{}, ns
}

// faults counts the calls of a part and lets chosen ones fail.
type faults struct {
	calls int
	fail  func(n int, call string) error // nil: none fails
}

func (f *faults) called(call string) error {
	f.calls++
	if f.fail == nil {
		return nil
	}
	return f.fail(f.calls, call)
}

// failAt lets the n-th call fail.
func failAt(n int) func(int, string) error {
	return func(i int, call string) error {
		if i == n {
			return fmt.Errorf("%s: %w", call, syscall.EIO)
		}
		return nil
	}
}

// memSwitch is an Open vSwitch of ports and nothing else.
type memSwitch struct {
	faults
	mu      sync.Mutex
	down    bool
	bridges []string
	ports   map[string]offload.Port

	settings offload.Settings
}

func (s *memSwitch) ready(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return fmt.Errorf("%s: %w: %w", call, ovsdb.ErrUnavailable, fs.ErrNotExist) // no socket
	}
	return s.called(call)
}

func (s *memSwitch) CheckBridge(_ context.Context, name string) error {
	if err := s.ready("bridge"); err != nil {
		return err
	}
	if !slices.Contains(s.bridges, name) {
		return fmt.Errorf("%w %q: there are %q", offload.ErrNoBridge, name, s.bridges)
	}
	return nil
}

func (s *memSwitch) Lookup(_ context.Context, rep string) (offload.Port, error) {
	if err := s.ready("lookup"); err != nil {
		return offload.Port{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.ports[rep]
	if !ok {
		return offload.Port{}, fs.ErrNotExist
	}
	return p, nil
}

func (s *memSwitch) Plug(_ context.Context, p offload.Port) error {
	if err := s.ready("plug"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.ports[p.Representor]; ok && have.Owner != p.Owner {
		return fmt.Errorf("plug %s: %w", p.Representor, fs.ErrExist)
	}
	for rep, have := range s.ports {
		if id := p.ExternalIDs[idIface]; id != "" && rep != p.Representor && have.ExternalIDs[idIface] == id {
			return fmt.Errorf("plug %s: iface-id %q: interface %s %w already", p.Representor, id, rep, offload.ErrSamePort)
		}
	}
	s.ports[p.Representor] = p
	return nil
}

// Installed says at once that the flows are there, unless the switch is told to fail.
func (s *memSwitch) Installed(_ context.Context, rep string) error {
	if err := s.ready("installed"); err != nil {
		return err
	}
	if _, ok := s.ports[rep]; !ok {
		return fs.ErrNotExist
	}
	return nil
}

func (s *memSwitch) Unplug(_ context.Context, rep, owner string) error {
	if err := s.ready("unplug"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[rep].Owner == owner {
		delete(s.ports, rep)
	}
	return nil
}

func (s *memSwitch) Holders(_ context.Context, id string) ([]offload.Port, error) {
	if err := s.ready("holders"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []offload.Port
	for _, rep := range slices.Sorted(maps.Keys(s.ports)) {
		if s.ports[rep].ExternalIDs[idIface] == id {
			out = append(out, s.ports[rep])
		}
	}
	return out, nil
}

func (s *memSwitch) Owned(context.Context) ([]offload.Port, error) {
	if err := s.ready("owned"); err != nil {
		return nil, err
	}
	var out []offload.Port
	for _, rep := range slices.Sorted(maps.Keys(s.ports)) {
		if s.ports[rep].Owner != "" {
			out = append(out, s.ports[rep])
		}
	}
	return out, nil
}

func (s *memSwitch) Settings(context.Context) (offload.Settings, error) {
	return s.settings, s.ready("settings")
}

func (s *memSwitch) Close() error { return nil }

// memIPAM gives an address of each family and a default route.
type memIPAM struct {
	faults
	mu     sync.Mutex
	leases map[string]string
	given  int
	only   int // 4 or 6: the one family that it gives
}

func (m *memIPAM) Find(Call) error { return nil }

func (m *memIPAM) Add(_ context.Context, c Call) (*current.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.called("ipam add"); err != nil {
		return nil, err
	}
	m.given++
	m.leases[c.Container+"/"+c.IfName] = c.Netns
	n4, n6 := net.CIDRMask(16, 32), net.CIDRMask(64, 128)
	gw := net.IPv4(10, 56, 255, 254)
	r := &current.Result{
		CNIVersion: "1.1.0",
		IPs: []*current.IPConfig{
			{Address: net.IPNet{IP: net.IPv4(10, 56, byte(m.given>>8), byte(m.given)), Mask: n4}, Gateway: gw},
			{Address: net.IPNet{IP: net.ParseIP(fmt.Sprintf("fd56::%x", m.given)), Mask: n6}},
		},
		Routes: []*types.Route{
			{Dst: net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}},
			{Dst: net.IPNet{IP: net.ParseIP("fd57::"), Mask: n6}, GW: net.ParseIP("fd56::ffff"), Priority: 512},
		},
	}
	switch m.only {
	case 4:
		r.IPs, r.Routes = r.IPs[:1], r.Routes[:1]
	case 6:
		r.IPs, r.Routes = r.IPs[1:], r.Routes[1:]
	}
	return r, nil
}

func (m *memIPAM) Del(_ context.Context, c Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.called("ipam del"); err != nil {
		return err
	}
	delete(m.leases, c.Container+"/"+c.IfName)
	return nil
}

func (m *memIPAM) Check(_ context.Context, c Call) error {
	if err := m.called("ipam check"); err != nil {
		return err
	}
	if m.leases[c.Container+"/"+c.IfName] == "" {
		return fmt.Errorf("no lease of %s", c.Container)
	}
	return nil
}

func (m *memIPAM) GC(_ context.Context, c Call) error {
	if err := m.called("ipam gc"); err != nil {
		return err
	}
	valid, err := validAttachments("", c.Config)
	if err != nil {
		return err
	}
	maps.DeleteFunc(m.leases, func(token, _ string) bool {
		return !slices.ContainsFunc(valid, func(a types.GCAttachment) bool { return a.ContainerID+"/"+a.IfName == token })
	})
	return nil
}

func (m *memIPAM) Status(context.Context, Call) error { return m.called("ipam status") }

// samplePort is a port that somebody made by hand.
func samplePort(rep string) offload.Port {
	return offload.Port{Bridge: "br-lab", Representor: rep, ExternalIDs: map[string]string{}}
}

func (w *world) damageRecord(vf, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "attachments", vf+".json"), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}
