package apply

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// rows reads which drivers have a row in plan's table.
func rows(t *testing.T) (out []string) {
	t.Helper()
	b, err := os.ReadFile("../plan/profile.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\tcase "([^"]+)":`).FindAllSubmatch(b, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) < 5 {
		t.Fatalf("rows of profile.go: %q", out)
	}
	return out
}

// Every driver that plan has a row for can be simulated, and so can one that it has
// no row for; and each kind of card goes from legacy mode by VFs to switchdev mode,
// if it has one, and back to where it was.
func TestEveryDriversJourney(t *testing.T) {
	of := map[string]string{} // a simulated kind by its PF's driver
	for _, kind := range []string{"mlx5", "ice", "igb", "ixgbe", "i40e", "generic"} {
		b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: kind}}})
		of[b.observe().PFs[0].Driver] = kind
		t.Run(kind, func(t *testing.T) { driversJourney(t, b) })
	}
	known := rows(t)
	for _, driver := range known {
		if of[driver] == "" {
			t.Errorf("%s has a row and is not simulated", driver)
		}
		delete(of, driver)
	}
	if len(of) == 0 {
		t.Errorf("every simulated driver is among %q: want one without a row", known)
	}
}

func driversJourney(t *testing.T, b *bench) {
	before := b.observe()
	h := before.PFs[0].Handle
	want := func(m nic.Eswitch, vfs int) nic.Spec {
		if before.PFs[0].Eswitch == "" {
			m = ""
		}
		out := nic.PFSpec{Handle: h, Eswitch: m, VFCount: &vfs}
		if vfs > 0 {
			out.VFs = []nic.VFSpec{{MAC: &nic.MAC{2, 0, 0, 0, 0, 1}}, {Driver: nic.DriverVFIO}}
		}
		return nic.Spec{PFs: []nic.PFSpec{out}}
	}
	if before.PFs[0].Eswitch == "" {
		bad := nic.Spec{PFs: []nic.PFSpec{{Handle: h, Eswitch: nic.Switchdev}}}
		if len(plan.Check(bad, before)) == 0 {
			t.Error("switchdev mode is not refused, which this card does not have")
		}
	}
	for _, s := range []nic.Spec{
		want(nic.Legacy, 2), want(nic.Switchdev, 2), want(nic.Switchdev, 3), want(nic.Legacy, 3), want(nic.Legacy, 2),
		want(nic.Switchdev, 3), want(nic.Legacy, 0),
	} {
		was := b.observe()
		res, err := b.R.Run(t.Context(), s)
		if err != nil || res.Outcome != Reached {
			t.Fatalf("%+v: %+v, %v", s.PFs[0], res, err)
		}
		b.mustBe(t, s, was, true)
		p := b.observe().PFs[0]
		reps := slices.ContainsFunc(p.VFs, func(v nic.VF) bool { return v.Rep.Exists() })
		if len(p.VFs) != *s.PFs[0].VFCount || reps != (s.PFs[0].Eswitch == nic.Switchdev && len(p.VFs) > 0) {
			t.Errorf("mode %s: %d VFs, representors %v", p.Eswitch, len(p.VFs), reps)
		}
	}
	b.mustBeAsBefore(t, before, h)
}
