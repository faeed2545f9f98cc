package cni

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	gocmp "github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

var sequencesInLab = flag.Int("sequences-in-lab", 40, "random sequences that TestRandomSequencesInLab does")

// TestRandomSequencesInLab does what TestRandomSequences does to a real kernel, a NIC's
// driver, Open vSwitch and IPAM plugin: commands by the plugin's program, some of them
// killed, at a piece of work or at any time; namespaces deleted under it; ovs-vswitchd
// and ovsdb-server that hang or are stopped for a while; sweeps, also in another boot.
// After each sequence pods end in one of the ways, and an audit finds nothing of them.
func TestRandomSequencesInLab(t *testing.T) {
	n := newLabNode(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sequences, seed := *sequencesInLab, cmp.Or(*seedFlag, rand.Uint64())
	if testing.Short() {
		// In a whole test run always the same: chance is for those who look at it.
		sequences, seed = min(sequences, 5), cmp.Or(*seedFlag, 1)
	}
	t.Logf("seed %d", seed)
	r := &labRandom{labNode: n, self: n.install(self), typical: time.Second, did: map[string]int{}}
	for pf := range 2 {
		r.vfs = append(r.vfs, n.vf(pf, 0).Address, n.vf(pf, 1).Address)
	}
	before := r.audit()
	begin := time.Now()
	for i := range sequences {
		r.rng, r.pods, r.story = rand.New(rand.NewPCG(seed, uint64(i))), map[string]*labPod{}, nil
		r.when = fmt.Sprintf("seed %d, sequence %d", seed, i)
		for range 2 + r.rng.IntN(3) {
			r.one()
		}
		r.end()
		r.when += ": " + strings.Join(r.story, "; ")
		if d := gocmp.Diff(before, r.audit()); d != "" {
			t.Fatalf("%s: the node is not as before (-before +after):\n%s", r.when, d)
		}
		if (i+1)%20 == 0 {
			t.Logf("%d sequences, %s", i+1, time.Since(begin).Round(time.Second))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.did)) {
		t.Logf("%5d %s", r.did[what], what)
	}
	t.Logf("%d sequences, after each of which nothing was left (seed %d, %s)", sequences, seed, time.Since(begin).Round(time.Second))
	if r.did["ADD"] < sequences/4 || r.did["ADD killed"]+r.did["DEL killed"] < sequences/20 {
		t.Errorf("of %d sequences too few have done anything: %v", sequences, r.did)
	}
}

// labRandom is one run.
type labRandom struct {
	*labNode
	self    string // the plugin that kills itself
	rng     *rand.Rand
	vfs     []string      // addresses
	typical time.Duration // of an ADD, to kill within
	down    bool          // Open vSwitch
	pods    map[string]*labPod
	story   []string
	when    string
	did     map[string]int
}

// labPod is a pod of a sequence.
type labPod struct {
	pod
	result string // of the ADD that nothing has come after; "" none
	there  bool   // its namespace
}

// left is all that pods could leave behind.
type left struct {
	Node       snapshot
	Settings   []nic.Settings // of VFs, by address in the order of the PFs
	Bridge     []string       // ports of the bridge
	Interfaces []string       // rows of Open vSwitch
	Records    []string
	Namespaces []string
}

func (r *labRandom) audit() left {
	r.t.Helper()
	out := left{Node: r.snap()}
	for i, l := range out.Node.Links {
		if l.Kind == "openvswitch" {
			// ovs-vswitchd gives its own interfaces the smallest MTU of a bridge's ports
			// when it starts, and does not take it back with the last of them.
			out.Node.Links[i].MTU = 0
		}
	}
	st := r.state()
	for _, h := range r.pfs[:2] {
		for _, vf := range st.PF(h).VFs {
			if vf.Away {
				r.t.Errorf("%s: VF %s is away", r.when, vf.Address)
			}
			out.Settings = append(out.Settings, vf.Settings)
		}
	}
	out.Bridge = strings.Fields(r.run("ovs-vsctl", "list-ports", "br-int"))
	out.Interfaces = strings.Fields(r.run("ovs-vsctl", "--columns=name", "--bare", "list", "Interface"))
	slices.Sort(out.Interfaces) // after a start of ovsdb-server the order is another
	records, err := filepath.Glob(filepath.Join(r.dir, "attachments", "*.json*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range records {
		if !strings.HasSuffix(f, ".tmp") { // what a kill leaves of a write, for the next to write over
			out.Records = append(out.Records, filepath.Base(f))
		}
	}
	names, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	for _, name := range names {
		out.Namespaces = append(out.Namespaces, name.Name())
	}
	return out
}

func (r *labRandom) fatal(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s: %s: %s", r.when, strings.Join(r.story, "; "), fmt.Sprintf(format, args...))
}

func (r *labRandom) says(what string, format string, args ...any) {
	r.did[what]++
	r.story = append(r.story, fmt.Sprintf(format, args...))
}

// one does one thing.
func (r *labRandom) one() {
	p := r.somePod()
	switch r.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
		r.add(p)
	case 7, 8:
		r.call("DEL", p)
	case 9, 10:
		r.killedAtPiece("ADD", p, 1+r.rng.IntN(45))
	case 11:
		r.killedAtPiece("DEL", p, 1+r.rng.IntN(30))
	case 12, 13:
		r.killedInTime([]string{"ADD", "ADD", "DEL"}[r.rng.IntN(3)], p)
	case 14:
		r.check(p)
	case 15:
		r.hangs(p)
	case 16:
		if r.rng.IntN(3) == 0 { // it takes seconds
			r.turn(!r.down)
			return
		}
		r.add(p)
	case 17:
		r.gcAll(p)
	case 18:
		r.sweep("sweep", r.m.Boot)
	default:
		if r.rng.IntN(4) == 0 {
			r.reboot()
			return
		}
		r.noNetns(p)
		if r.rng.IntN(2) == 0 {
			r.netnsFor(p)
		}
	}
}

// somePod is one of a few, of which some want the same VF.
func (r *labRandom) somePod() *labPod {
	name := fmt.Sprintf("c%d", r.rng.IntN(3))
	if p, ok := r.pods[name]; ok {
		return p
	}
	p := &labPod{pod: r.podOf(name, r.vfs[r.rng.IntN(len(r.vfs))])}
	switch r.rng.IntN(6) {
	case 0:
		p.pod = p.veth()
	case 1:
		p.pod = p.veth().with("attach", "netkit")
	case 2:
		p.pod = p.with("mac", "02:00:00:00:00:0a")
	case 3:
		p.pod = p.with("mac", "02:00:00:00:00:0b").with("max_tx_rate", 1000)
	}
	if r.rng.IntN(4) == 0 {
		p.pod = p.with("ifaceID", "shop_shared") // a logical port that another may have
	}
	r.netnsFor(p)
	r.pods[name] = p
	return p
}

func (r *labRandom) netnsFor(p *labPod) {
	r.run("ip", "netns", "add", p.container)
	p.there = true
}

func (r *labRandom) noNetns(p *labPod) {
	if !p.there {
		return
	}
	r.run("ip", "netns", "del", p.container)
	p.there, p.result = false, ""
	r.says("namespace deleted", "namespace of %s deleted", p.container)
}

// call runs a verb of the released plugin. What it fails with has to be an error of CNI.
func (r *labRandom) call(verb string, p *labPod) error {
	out, err := r.cni(verb, p.pod)
	p.result = ""
	var e *types.Error
	switch {
	case err == nil:
		r.says(verb, "%s of %s", verb, p.container)
		if verb == "ADD" {
			p.result = out
		}
	case errors.As(err, &e) && e.Code != 0 && e.Msg != "":
		r.says(verb+" refused", "%s of %s (%v)", verb, p.container, err)
	default:
		r.fatal("%s of %s: an error without a code: %v", verb, p.container, err)
	}
	return err
}

func (r *labRandom) add(p *labPod) {
	if !p.there {
		r.netnsFor(p)
	}
	begin := time.Now()
	if r.call("ADD", p) == nil {
		r.typical = time.Since(begin)
	}
}

// killed is how a command ended that a kill -9 was to meet.
func (r *labRandom) killed(verb string, p *labPod, err error, where string) {
	p.result = ""
	var exit *exec.ExitError
	var e *types.Error
	switch {
	case err == nil:
		r.says(verb+" done before its kill", "%s of %s done before a kill %s", verb, p.container, where)
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		progress := "no record"
		if rec, err := record.In(r.dir).Load(p.vf); err == nil {
			progress = rec.Progress()
		}
		r.says(verb+" killed", "%s of %s killed %s (%s)", verb, p.container, where, progress)
	case errors.As(err, &e) && e.Code != 0:
		r.says(verb+" refused", "%s of %s, to be killed %s (%v)", verb, p.container, where, err)
	default:
		r.fatal("%s of %s, to be killed %s: %v", verb, p.container, where, err)
	}
}

func (r *labRandom) killedAtPiece(verb string, p *labPod, at int) {
	_, err := r.finish(r.command(r.self, verb, p.pod, fmt.Sprintf("%s=%d", killAt, at)))
	r.killed(verb, p, err, fmt.Sprintf("after piece %d", at))
}

func (r *labRandom) killedInTime(verb string, p *labPod) {
	after := time.Duration(r.rng.Int64N(int64(r.typical) + 1))
	c := r.command(r.plugin, verb, p.pod)
	_, err := r.finishAnd(c, func() { time.AfterFunc(after, func() { _ = c.Process.Kill() }) })
	r.killed(verb, p, err, fmt.Sprintf("after %s", after.Round(time.Millisecond)))
}

// check is the runtime's; of an attachment that nobody has touched it must find nothing.
func (r *labRandom) check(p *labPod) {
	if p.result == "" {
		return
	}
	err := r.labNode.check(p.pod, p.result)
	if err != nil && !r.down {
		r.fatal("CHECK of %s: %v", p.container, err)
	}
	r.says("CHECK", "CHECK of %s (%v)", p.container, err)
}

// hangs has a daemon of Open vSwitch stand still for a moment, while an ADD or DEL runs.
func (r *labRandom) hangs(p *labPod) {
	daemon := []string{"ovs-vswitchd", "ovsdb-server"}[r.rng.IntN(2)]
	verb := []string{"ADD", "DEL"}[r.rng.IntN(2)]
	if r.down {
		return
	}
	text, err := os.ReadFile("/run/openvswitch/" + daemon + ".pid")
	if err != nil {
		r.fatal("%v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		r.fatal("%s.pid: %v", daemon, err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		r.fatal("stop %s: %v", daemon, err)
	}
	goes := time.AfterFunc(2*r.typical, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	err = r.call(verb, p)
	if goes.Stop() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	r.says(verb+" while "+daemon+" hangs", "%s hung (%v)", daemon, err)
}

// turn stops Open vSwitch and starts it.
func (r *labRandom) turn(down bool) {
	if r.down == down {
		return
	}
	r.down = down
	if down {
		r.run("/usr/share/openvswitch/scripts/ovs-ctl", "stop")
		r.says("Open vSwitch stopped", "Open vSwitch stopped")
		return
	}
	r.run("ovs")
	r.says("Open vSwitch started", "Open vSwitch started")
}

func (r *labRandom) gcAll(p *labPod) {
	var valid []pod
	for _, name := range slices.Sorted(maps.Keys(r.pods)) {
		valid = append(valid, r.pods[name].pod)
	}
	r.says("GC", "GC with all valid (%v)", r.gc(p.pod, valid...))
	if !r.down {
		return
	}
	for _, p := range r.pods { // what was half done is finished by then, or not
		p.result = ""
	}
}

// sweep is the agent's, which is no program of its own.
func (r *labRandom) sweep(what, boot string) {
	m := r.m.Machine
	m.Boot = boot
	p := &Plugin{Host: m, Switch: OpenSwitch, IPAM: Delegate{}, Limits: DefaultLimits()}
	swept, err := p.Sweep(context.Background(), r.dir, DefaultOVSDB)
	if err != nil && !r.down {
		r.fatal("%s: %v", what, err)
	}
	r.says(what, "%s: %q (%v)", what, swept, err)
}

// reboot is what of one can be had without one: all namespaces are gone, and records are
// of another boot.
func (r *labRandom) reboot() {
	for _, name := range slices.Sorted(maps.Keys(r.pods)) {
		r.noNetns(r.pods[name])
	}
	r.turn(false)
	r.sweep("sweep in another boot", "00000000-0000-0000-0000-000000000000")
}

// end takes down whatever is left, in one of the ways.
func (r *labRandom) end() {
	r.turn(false)
	way := r.rng.IntN(3)
	names := slices.Sorted(maps.Keys(r.pods))
	if len(names) == 0 {
		return
	}
	for _, name := range names {
		if way == 0 {
			p := r.pods[name]
			if err := r.call("DEL", p); err != nil {
				r.fatal("the last DEL of %s: %v", name, err)
			}
		}
		r.noNetns(r.pods[name])
	}
	if way == 1 {
		r.sweep("sweep", r.m.Boot)
	}
	if way != 0 {
		if err := r.gc(r.pods[names[0]].pod); err != nil {
			r.fatal("the last GC: %v", err)
		}
		r.says("GC of all", "GC of all")
	}
}
