package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

// Runs of several PFs, each of another one; back to before the second takes the
// third back too with --all, and leaves it without.
func TestRollbackToAnyState(t *testing.T) {
	doc := func(pf string, n string) string {
		return "apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n  pfs:\n    - {pf: '" + pf + "', numVfs: " + n + "}\n"
	}
	for _, all := range []bool{false, true} {
		c := newCLI(t, "mlx5:cards=2,vfs=8")
		p := [3]string{}
		for i, card := range c.observe() {
			p[i] = card.PFs[0].Handle.String()
		}
		p[2] = c.observe()[0].PFs[1].Handle.String()
		c.want(exitReached, "apply", "-f", c.file(doc(p[0], "1")))
		before := c.observe()
		c.want(exitReached, "apply", "-f", c.file(doc(p[0], "2")))
		c.want(exitReached, "apply", "-f", c.file(doc(p[1], "3")))
		c.want(exitReached, "apply", "-f", c.file(doc(p[1], "4")))
		args := []string{"rollback", "2"}
		if all {
			args = append(args, "--all")
		}
		c.want(exitReached, args...)
		after := c.observe()
		if all {
			counts := func(cards []nic.Card) (out []int) {
				for _, card := range cards {
					for _, pf := range card.PFs {
						out = append(out, len(pf.VFs))
					}
				}
				return out
			}
			if d := cmp.Diff(counts(before), counts(after)); d != "" {
				t.Errorf("VFs after rollback --all:\n%s", d)
			}
		} else if got := [2]int{len(after[0].PFs[0].VFs), len(after[1].PFs[0].VFs)}; got != [2]int{1, 4} {
			t.Errorf("VFs %v after rollback of run 2, want 1 and, of the other card, still 4", got)
		}
	}
}

// A run that needs fewer steps than its plan foresaw says so in the end: ticks and
// count agree.
func TestFewerStepsThanForeseen(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	c.want(exitReached, "apply", "-f", c.file(mixedDoc))
	c.want(exitReached, "apply", "-f", c.file(strings.Replace(mixedDoc, "numVfs: 2", "numVfs: 8", 1)))
	out, _ := c.want(exitReached, "rollback")
	done := strings.Count(out, "\n  ok ")
	_, ending, _ := strings.Cut(out, "run 3: ")
	foreseen := 0
	if _, err := fmt.Sscanf(ending, fmt.Sprintf("reached, %d steps of %%d foreseen", done), &foreseen); err != nil || foreseen <= done {
		t.Errorf("%d steps done, and the end is %q: %v", done, ending, err)
	}
	if !strings.Contains(out, fmt.Sprintf("%d/%d  ", done, foreseen)) {
		t.Errorf("the last tick is not %d/%d:\n%s", done, foreseen, out)
	}
}

// What is reached and cannot be committed for the next boot has an exit status of its
// own: all else is done, and written down.
func TestReachedAndNotCommitted(t *testing.T) {
	c := newCLI(t, "mlx5:cards=1,vfs=16")
	committed := filepath.Join(c.dir, "journal", "committed.json")
	if err := os.MkdirAll(filepath.Join(committed, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do but to commit
		_, stderr := c.want(exitUnwritten, "apply", "-f", c.file(mixedDoc))
		if !strings.Contains(stderr, "reached, and not committed") || !strings.Contains(stderr, "committed.json") {
			t.Errorf("said: %q", stderr)
		}
	}
	if runs := c.runs(); len(runs) != 1 || runs[0].Outcome != apply.Reached {
		t.Errorf("journal: %+v", runs)
	}
	if pf := c.observe()[0].PFs[0]; len(pf.VFs) != 4 {
		t.Errorf("%d VFs, want 4", len(pf.VFs))
	}
	if err := os.RemoveAll(committed); err != nil {
		t.Fatal(err)
	}
	c.want(exitReached, "apply", "-f", c.file(mixedDoc))
	if _, err := os.Stat(committed); err != nil {
		t.Error(err)
	}
}
