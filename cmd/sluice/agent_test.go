package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// kept is a simulated node with an agent, and whoever else works on it.
type kept struct {
	t    *testing.T
	sim  *sim.Sim
	dir  string
	file string // the agent's document

	health string // address of its probes, "" none
	config string // and its configuration of the SR-IOV network device plugin, "" none

	k    *kubelettest.Kubelet
	kdir string

	mu  sync.Mutex // of log
	log bytes.Buffer
}

func newKept(t *testing.T) *kept {
	t.Helper()
	s, err := sim.Parse("mlx5:cards=1,vfs=16")
	if err != nil {
		t.Fatal(err)
	}
	// The path of a socket is short.
	kdir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(kdir) })
	k, err := kubelettest.Start(kubelettest.Options{Dir: kdir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	dir := t.TempDir()
	return &kept{t: t, sim: s, dir: dir, file: dir + "/node.yaml", k: k, kdir: kdir}
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Write(p)
}

func (k *kept) said() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.String()
}

func (k *kept) node() *node {
	return &node{machine: k.sim.Machine(), dir: k.dir, close: func() error { return nil }}
}

// agent runs one until end is called.
func (k *kept) agent() (end func()) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	a := &agentRun{meters: newMeters(), health: k.health,
		node: k.node(), file: k.file, kubelet: k.kdir, every: 300 * time.Millisecond, read: 20 * time.Millisecond,
		log: slog.New(slog.NewTextHandler(k, nil)),
	}
	if k.config != "" {
		a.sriov = &sriovConfig{file: k.config, prefix: "acme.com", log: a.log}
	}
	var run sync.WaitGroup
	run.Go(func() {
		if err := a.run(ctx); err != nil {
			k.t.Error(err)
		}
	})
	return func() { cancel(); run.Wait() }
}

func (k *kept) document(vfs int, pool string) string {
	return fmt.Sprintf(`{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {
  pfs: [{pf: "0000:03:00.0", numVfs: %d}], pools: [{name: %s, pfs: ["0000:03:00.0"]}]}}`, vfs, pool)
}

func (k *kept) write(text string) {
	k.t.Helper()
	if err := os.WriteFile(k.file, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// other is sluice apply of another document, beside the agent.
func (k *kept) other(vfs int) apply.Result {
	k.t.Helper()
	n := k.node()
	w, err := n.wishOf(k.t.Context(), "other.yaml", []byte(k.document(vfs, "none")))
	if err != nil {
		k.t.Fatal(err)
	}
	result, err := n.runner(nil).Run(k.t.Context(), w.spec)
	if err != nil {
		k.t.Fatal(err)
	}
	return result
}

// stranger takes all VFs away.
func (k *kept) stranger() {
	k.t.Helper()
	if err := k.sim.Stranger(func(m host.Machine) error { return m.PCI.SetVFs(k.t.Context(), "0000:03:00.0", 0) }); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kept) vfs() int {
	k.t.Helper()
	state, err := k.node().observe(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	return len(state.PF(nic.PCI("0000:03:00.0")).VFs)
}

// until waits for something that is to come, generously.
func (k *kept) until(what string, ok func() bool) {
	k.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			k.t.Fatalf("%s: has not come\n%s", what, k.said())
		}
	}
}

func (k *kept) untilVFs(n int) {
	k.t.Helper()
	k.until(fmt.Sprintf("%d VFs", n), func() bool { return k.vfs() == n })
}

// healthy is how many healthy devices of a resource kubelet has.
func (k *kept) healthy(resource string) int {
	n := 0
	for _, d := range k.k.Devices(resource) {
		if d.Health == "Healthy" {
			n++
		}
	}
	return n
}

// An agent follows its document; one that is wrong is reported, and the last good
// one stays in force.
func TestAgentFollowsItsDocument(t *testing.T) {
	k := newKept(t)
	k.write(k.document(4, "fast"))
	end := k.agent()
	defer func() { end() }()
	k.untilVFs(4)

	for what, text := range map[string]string{
		"no YAML":      "{",
		"no such PF":   strings.Replace(k.document(6, "fast"), "0000:03:00.0", "0000:99:00.0", 1),
		"too many VFs": k.document(17, "fast"),
	} {
		before := strings.Count(k.said(), "the document is refused")
		k.write(text)
		k.until(what+" is reported", func() bool { return strings.Count(k.said(), "the document is refused") > before })
		k.stranger()
		k.untilVFs(4)
	}

	k.write(k.document(6, "more"))
	k.untilVFs(6)
	k.until("the new document's pool", func() bool { return k.healthy("sluice.dev/more") == 6 })
	k.until("the end of the old one's", func() bool { return k.healthy("sluice.dev/fast") == 0 })
}

// What others apply beside an agent is wanted from then on, also by an agent that
// starts again, until the document is another.
func TestAgentKeepsWhatOthersCommit(t *testing.T) {
	k := newKept(t)
	k.write(k.document(4, "fast"))
	end := k.agent()
	k.untilVFs(4)

	var result apply.Result
	k.until("another run", func() bool { // the agent's first one may be at its end
		if _, busy := k.node().journal().Running(); busy {
			return false
		}
		result = k.other(2)
		return true
	})
	k.stranger()
	k.untilVFs(2)
	runs, err := k.node().journal().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range runs {
		if e.ID > result.ID && *e.Spec.PF(nic.PCI("0000:03:00.0")).VFCount != 2 {
			t.Errorf("run %s wants %d VFs, want 2: what the other run has reached", e.ID, *e.Spec.PF(nic.PCI("0000:03:00.0")).VFCount)
		}
	}
	end()

	end = k.agent()
	defer func() { end() }()
	k.until("the agent is up", func() bool { return strings.Contains(k.said(), "other runs have committed more") })
	k.stranger()
	k.untilVFs(2)

	k.write(k.document(5, "fast"))
	k.untilVFs(5)
	k.stranger()
	k.untilVFs(5)
}
