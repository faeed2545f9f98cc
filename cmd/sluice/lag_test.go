package main

import (
	"encoding/json"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/nic"
)

// VF-LAG halves a card's room for offloaded rules: the inventory and the
// capabilities say so while it is so, and why, and not before or after.
func TestB19RoomForRulesUnderVFLAG(t *testing.T) {
	c := newCLI(t, "mlx5:cards=2,vfs=16")
	lag := c.file(`{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {
  pfs: [{pf: "0000:03:00.0", eswitch: switchdev}, {pf: "0000:03:00.1", eswitch: switchdev}, {pf: "0000:13:00.0", eswitch: switchdev}],
  bonds: [{name: bond0, mode: 802.3ad, pfs: ["0000:03:00.0", "0000:03:00.1"]}]}}`)
	const why = "each rule of a VF stands in the tables of all 2 ports"

	told := func() (cards []nic.Card, text string, report capability.Report, table string) {
		t.Helper()
		text, _ = c.want(exitReached, "observe")
		table, _ = c.want(exitReached, "observe", "--capabilities")
		out, _ := c.want(exitReached, "observe", "--capabilities", "-o", "json")
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatal(err)
		}
		return c.observe(), text, report, table
	}

	cards, text, report, table := told()
	if cards[0].Rules != (nic.RuleRoom{}) || report.Facts.PFs[0].Rules != (nic.RuleRoom{}) || strings.Contains(text+table, why) {
		t.Errorf("in legacy mode: %+v\n%s%s", cards[0].Rules, text, table)
	}

	c.want(exitReached, "apply", "-f", lag)
	cards, text, report, table = told()
	if r := cards[0].Rules; r.Percent != 50 || !strings.Contains(r.Why, why) {
		t.Errorf("in VF-LAG the card has %+v, want 50 %% and why", r)
	}
	if want := (nic.RuleRoom{Percent: 100}); cards[1].Rules != want {
		t.Errorf("the other card has %+v, want %+v", cards[1].Rules, want)
	}
	for i, percent := range []int{50, 50, 100, 0} {
		if r := report.Facts.PFs[i].Rules; r.Percent != percent {
			t.Errorf("capabilities of %s: %+v, want %d %%", report.Facts.PFs[i].Handle, r, percent)
		}
	}
	for what, said := range map[string]string{"observe": text, "capabilities": table} {
		if strings.Count(said, "50 %") == 0 || !strings.Contains(said, why) || strings.Contains(said, "100 %") {
			t.Errorf("%s:\n%s", what, said)
		}
	}

	c.want(exitReached, "rollback")
	if _, text, _, table = told(); strings.Contains(text+table, why) {
		t.Errorf("after VF-LAG:\n%s%s", text, table)
	}
}
