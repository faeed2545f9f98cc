package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/nic"
)

// cli runs commands on a simulated machine of its own.
type cli struct {
	t   *testing.T
	sim string
	dir string
}

func newCLI(t *testing.T, sim string) *cli { return &cli{t: t, sim: sim, dir: t.TempDir()} }

// run answers the exit status and what was printed.
func (c *cli) run(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	return runHere(c.t, append([]string{"--sim", c.sim, "--state-dir", c.dir}, args...)...)
}

// runHere runs a command on the machine itself.
func runHere(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	files := make([]*os.File, 2)
	for i := range files {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	code = run(context.Background(), args, files[0], files[1])
	var text [2]string
	for i, f := range files {
		raw, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		text[i] = string(raw)
	}
	return code, text[0], text[1]
}

// want runs a command that has to end with code.
func (c *cli) want(code int, args ...string) (stdout, stderr string) {
	c.t.Helper()
	got, stdout, stderr := c.run(args...)
	if got != code {
		c.t.Fatalf("sluice %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	return stdout, stderr
}

func (c *cli) file(text string) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "node.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *cli) observe() []nic.Card {
	c.t.Helper()
	out, _ := c.want(exitReached, "observe", "-o", "json")
	var v struct{ Cards []nic.Card }
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		c.t.Fatal(err)
	}
	return v.Cards
}

func (c *cli) runs() []apply.Entry {
	c.t.Helper()
	out, _ := c.want(exitReached, "journal", "-o", "json")
	var v struct{ Runs []apply.Entry }
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		c.t.Fatal(err)
	}
	return v.Runs
}

const example = "../../docs/examples/node.yaml"

// The whole way on one machine: plan, apply, nothing more to do, rollback.
func TestThereAndBack(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	before, _ := c.want(exitReached, "observe", "-o", "json")

	plan, _ := c.want(exitReached, "plan", "-f", example)
	if after, _ := c.want(exitReached, "observe", "-o", "json"); after != before {
		t.Error("planning changed the machine")
	}
	if !strings.Contains(plan, "34 steps, impact: link flap") {
		t.Errorf("plan:\n%s", plan)
	}

	done, _ := c.want(exitReached, "apply", "-f", example)
	for line := range strings.Lines(plan) {
		_, step, isStep := strings.Cut(strings.TrimSpace(line), "  ")
		if !isStep {
			continue
		}
		step, _, _ = strings.Cut(step, "  (")
		if !strings.Contains(done, strings.TrimSpace(step)) {
			t.Errorf("apply did not tick off %q", step)
		}
	}
	pfs := c.observe()[0].PFs
	if len(pfs) != 2 || pfs[0].Eswitch != nic.Switchdev || len(pfs[0].VFs) != 8 || pfs[0].VFs[7].Driver != "vfio-pci" || pfs[0].VFs[0].Netdev.MTU != 9000 {
		t.Errorf("after apply: %+v", pfs)
	}

	for _, cmd := range []string{"plan", "apply"} {
		if out, _ := c.want(exitReached, cmd, "-f", example); out != "nothing to do: the node is as wanted\n" {
			t.Errorf("second %s: %s", cmd, out)
		}
	}
	c.want(exitReached, "rollback")
	if after, _ := c.want(exitReached, "observe", "-o", "json"); after != before {
		t.Errorf("after rollback:\n%s\nwant\n%s", after, before)
	}
}

// A step that fails ends with status 3, the kernel's words, and the machine as
// it was before.
func TestFailureRollsBack(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16+fail:verb=set eswitch mode,errno=EBUSY,text=E-Switch is busy")
	before := c.observe()
	_, stderr := c.want(exitRolledBack, "apply", "-f", example)
	for _, w := range []string{"pci/0000:03:00.0: rolled back", "E-Switch is busy"} {
		if !strings.Contains(stderr, w) {
			t.Errorf("stderr lacks %q: %s", w, stderr)
		}
	}
	after := c.observe()
	if got, want := after[0].PFs[0], before[0].PFs[0]; got.Eswitch != want.Eswitch || len(got.VFs) != len(want.VFs) || got.Autoprobe != want.Autoprobe {
		t.Errorf("the PF that failed is %+v, want %+v", got, want)
	}
	if runs := c.runs(); len(runs) != 1 || runs[0].Outcome != apply.RolledBack {
		t.Errorf("journal: %+v", runs)
	}
}

func vfs(c *cli) [2]int {
	pfs := c.observe()[0].PFs
	return [2]int{len(pfs[0].VFs), len(pfs[1].VFs)}
}

func counts(a, b int) string {
	return fmt.Sprintf("apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n  pfs:\n"+
		"  - {pf: '0000:03:00.0', numVfs: %d}\n  - {pf: '0000:03:00.1', numVfs: %d}\n", a, b)
}

// Without a number the last change is taken back, and no other: also that of one
// PF in a run that failed for another.
func TestRollbackOfHalfARun(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16+fail:object=0000:03:00.1,verb=set sriov_numvfs,skip=1")
	c.want(exitReached, "apply", "-f", c.file(counts(2, 2)))
	c.want(exitRolledBack, "apply", "-f", c.file(counts(4, 4)))
	if got := vfs(c); got != [2]int{4, 2} {
		t.Fatalf("VFs after a run that failed for one PF: %v", got)
	}
	c.want(exitReached, "rollback")
	if got := vfs(c); got != [2]int{2, 2} {
		t.Errorf("VFs after the rollback: %v, want those before the last run", got)
	}
}

// A run that was cut off is the last change; one that another took over is not.
func TestRollbackOfInterrupted(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", c.file(counts(2, 2)))
	c.want(exitReached, "apply", "-f", c.file(counts(4, 4)))
	path := filepath.Join(c.dir, "journal", "000002.jsonl")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(raw), "\n")
	if err := os.WriteFile(path, []byte(strings.Join(lines[:3], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	c.want(exitReached, "rollback")
	if got := vfs(c); got != [2]int{2, 2} {
		t.Fatalf("VFs after the rollback of an interrupted run: %v, want those before it", got)
	}
	runs := c.runs()
	if last := runs[len(runs)-1]; last.Kind != apply.KindRollback || last.Of != 2 {
		t.Errorf("last run: %s of %s", last.Kind, last.Of)
	}
	// Take the rollback's own record away: nobody took the interrupted run over then.
	if err := os.Remove(filepath.Join(c.dir, "journal", "000003.jsonl")); err != nil {
		t.Fatal(err)
	}
	c.want(exitReached, "apply", "-f", c.file(counts(6, 6)))
	c.want(exitReached, "rollback")
	if runs = c.runs(); runs[len(runs)-1].Of != 3 {
		t.Errorf("what was rolled back is run %s, want 3, which took over run 2", runs[len(runs)-1].Of)
	}
	if got := vfs(c); got != [2]int{2, 2} {
		t.Errorf("VFs after the rollback of the run that took over: %v, want those before both", got)
	}
}

// Who only looks does not write what it found when it began to look.
func TestLookingSavesNothing(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", example)
	path := filepath.Join(c.dir, "machine.json")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	c.observe()
	c.want(exitReached, "plan", "-f", example)
	c.want(exitRefused, "rollback", "7")
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the machine was saved anew")
	}
}

// What is refused ends with status 1, names what is wrong, and touches nothing:
// not the machine, not the journal.
func TestRefusals(t *testing.T) {
	head := "apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n  pfs:\n"
	for name, tt := range map[string]struct {
		doc  string
		want []string
	}{
		"unknown field":    {head + "  - {pf: '0000:03:00.0', numvf: 3}\n", []string{`spec.pfs[0].numvf: there is no such field`}},
		"unknown PF":       {head + "  - {pf: '0000:99:00.0'}\n", []string{"0000:99:00.0", "pci/0000:03:00.0"}},
		"count over limit": {head + "  - {pf: '0000:03:00.0', numVfs: 17}\n", []string{"numVfs", "17", "0 to 16"}},
		"PF twice":         {head + "  - {pf: '0000:03:00.0'}\n  - {pf: 'pci/0000:03:00.0'}\n", []string{"spec.pfs[1]", "spec.pfs[0]"}},
		"range outside":    {head + "  - {pf: '0000:03:00.0', numVfs: 2, vfGroups: [{range: 1-2, mtu: 9000}]}\n", []string{`"1-2"`, "there are 2"}},
		"MTU":              {head + "  - {pf: '0000:03:00.0', numVfs: 2, vfGroups: [{mtu: 20}]}\n", []string{"20", "68"}},
		"no document":      {"", []string{"empty", "NodeNIC"}},
		"two documents":    {head + "  - {pf: '0000:03:00.0', numVfs: 2}\n---\n" + head + "  - {pf: '0000:03:00.1', numVfs: 2}\n", []string{"document 2"}},
		"pool's name":      {head + "  - {pf: '0000:03:00.0', numVfs: 2}\n  pools: [{name: fa st, pfs: ['0000:03:00.0']}]\n", []string{"spec.pools", `"fa st"`}},
		"pool's PF":        {head + "  - {pf: '0000:03:00.0', numVfs: 2}\n  pools: [{name: fast, pfs: [p9]}]\n", []string{"spec.pools[0].pfs[0]", `"p9"`}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCLI(t, "mlx5:cards=1,vfs=16")
			before := c.observe()
			for _, cmd := range []string{"plan", "apply", "agent"} {
				_, stderr := c.want(exitRefused, cmd, "-f", c.file(tt.doc))
				for _, w := range tt.want {
					if !strings.Contains(stderr, w) {
						t.Errorf("%s: stderr lacks %q: %s", cmd, w, stderr)
					}
				}
			}
			if len(c.runs()) != 0 || len(c.observe()[0].PFs[0].VFs) != len(before[0].PFs[0].VFs) {
				t.Error("something was touched")
			}
		})
	}
}

// An eswitch mode for a card that has none is refused before anything is done.
func TestNoEswitch(t *testing.T) {
	c := newCLI(t, "igb")
	doc := "apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n  pfs:\n  - {pf: " + c.observe()[0].PFs[0].Handle.Name + ", eswitch: switchdev, numVfs: 2}\n"
	_, stderr := c.want(exitRefused, "apply", "-f", c.file(doc))
	if !strings.Contains(stderr, "switchdev") || len(c.runs()) != 0 {
		t.Errorf("stderr: %s", stderr)
	}
}

// A simulated machine says that its answers are made up; the report is an answer,
// whatever is in it, so the exit status is 0.
func TestCapabilities(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16,mode=switchdev,numvfs=1")
	out, _ := c.want(exitReached, "observe", "--capabilities", "-o", "json")
	var r capability.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if flows := r.Get(capability.Flows); !r.Facts.Simulated || flows == nil || flows.Answer != capability.Yes || flows.Findings[1].From != "simulated" {
		t.Errorf("report: %s", out)
	}
	table, _ := c.want(exitReached, "observe", "--capabilities")
	for _, w := range []string{"simulated: no kernel", "flows           yes", "open-vswitch    no ", "    no: a simulated machine has no Open vSwitch", "        -> "} {
		if !strings.Contains(table, w) {
			t.Errorf("the table lacks %q:\n%s", w, table)
		}
	}
	if out, _ := newCLI(t, "igb").want(exitReached, "observe", "--capabilities", "-o", "yaml"); !strings.Contains(out, "no PF has an eswitch") {
		t.Errorf("a NIC without an eswitch: %s", out)
	}
}

func TestUsage(t *testing.T) {
	c := newCLI(t, "mlx5")
	for _, args := range [][]string{
		{"observe", "-o", "xml"},
		{"apply"},
		{"apply", "-f", example, "--resume"},
		{"observe", "--nonsense"},
		{"flows", "--port", "a", "--netns", "b"},
		{"agent", "-f", example, "--every", "0s"},
		{"plan"},
		{"agent"},
		{"bogus"},
		{"observe", "more"},
		{"journal", "1", "2"},
	} {
		c.want(exitUsage, args...)
	}
	for _, args := range [][]string{
		{"apply", "--resume"},      // nothing was interrupted
		{"rollback"},               // nothing to roll back
		{"rollback", "7"},          // no such run
		{"rollback", "last"},       // no number
		{"journal", "7"},           // no such run
		{"plan", "-f", "/nowhere"}, // no such file
	} {
		c.want(exitRefused, args...)
	}
	if code := run(context.Background(), []string{"--sim", "cx9", "observe"}, os.Stdout, os.Stderr); code != exitRefused {
		t.Errorf("unknown simulated machine: exit status %d", code)
	}
}

// Programs read a list of none as a list.
// A document that is given as an argument is told where it goes.
func TestDocumentAsArgument(t *testing.T) {
	for _, cmd := range []string{"plan", "apply", "agent"} {
		c := newCLI(t, "mlx5")
		if _, err := c.want(exitUsage, cmd, "node.yaml"); !strings.Contains(err, "-f node.yaml") {
			t.Errorf("%s node.yaml: %s", cmd, err)
		}
	}
}

func TestEmptyLists(t *testing.T) {
	out, _ := newCLI(t, "mlx5").want(exitReached, "journal", "-o", "json")
	if strings.Join(strings.Fields(out), "") != `{"runs":[]}` {
		t.Errorf("an empty journal is %s", out)
	}
}

// A machine without NICs is shown as that.
func TestEmptyTable(t *testing.T) {
	var b strings.Builder
	cardTable(&b, nil, nic.State{})
	if !strings.Contains(b.String(), "no network cards") {
		t.Error(b.String())
	}
}

// A document that was given once is state, and only its owner's.
func TestStateIsPrivate(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", example)
	n := 0
	err := filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == c.dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n++
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s is %o, want %o", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || n < 3 {
		t.Errorf("%d files below the state folder: %v", n, err)
	}
}
