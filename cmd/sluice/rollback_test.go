package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
