package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

const mixedDoc = `apiVersion: sluice.dev/v1alpha1
kind: NodeNIC
spec:
  pfs:
    - {pf: "0000:03:00.0", eswitch: switchdev, numVfs: 4, hwTCOffload: true, vfGroups: [{mac: stable, mtu: 9000}]}
    - {pf: "0000:03:00.1", eswitch: legacy, numVfs: 2, vfGroups: [{mac: stable, trust: true}]}
`

// Power is cut in the middle of a change: the boot brings the last committed state,
// from wherever it was cut off.
func TestBootAfterAPowerCut(t *testing.T) {
	for at := 1; at < 20; at += 3 {
		c := newCLI(t, "mlx5:cards=1,vfs=16")
		c.want(exitReached, "apply", "-f", c.file(mixedDoc))
		before := c.observe()
		c.cutAfter(at, strings.Replace(mixedDoc, "numVfs: 4", "numVfs: 6", 1))
		if runs := c.runs(); runs[len(runs)-1].Outcome != "interrupted" {
			t.Fatalf("cut after write %d: the last run is %s, want interrupted", at, runs[len(runs)-1].Outcome)
		}
		c.reboot()
		c.want(exitReached, "boot")
		if d := cmp.Diff(text(before), text(c.observe())); d != "" {
			t.Errorf("cut after write %d: before and after the boot:\n%s", at, d)
		}
	}
}

// cutAfter begins to apply a document, and ends as a power cut does after some steps.
func (c *cli) cutAfter(steps int, doc string) {
	c.t.Helper()
	o := &options{sim: c.sim, stateDir: c.dir, output: "table"}
	n, err := o.open()
	if err != nil {
		c.t.Fatal(err)
	}
	w, err := n.wish(c.t.Context(), c.file(doc))
	if err != nil {
		c.t.Fatal(err)
	}
	type cut struct{}
	defer func() {
		if r := recover(); r != (cut{}) {
			c.t.Fatalf("no power cut after %d steps: %v", steps, r)
		}
	}()
	r := n.runner(func(e apply.Event) {
		if e.Kind == apply.EventDone {
			if steps--; steps == 0 {
				panic(cut{})
			}
		}
	})
	r.Parallel = false
	_, err = r.Run(c.t.Context(), w.spec)
	c.t.Errorf("the run has ended: %v", err)
}

// text is cards as JSON, less numbers that nobody chooses.
func text(cards []nic.Card) string {
	for i := range cards {
		for j := range cards[i].PFs {
			p := &cards[i].PFs[j]
			for v := range p.VFs {
				vf := &p.VFs[v]
				vf.Netdev.Ifindex, vf.Rep.Netdev.Ifindex, vf.Rep.Netdev.MAC = 0, 0, nic.MAC{}
				vf.RDMA = nil // numbered as they came
			}
			p.RDMA = nil
		}
	}
	raw, err := json.MarshalIndent(cards, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
