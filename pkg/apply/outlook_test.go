package apply

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// Preview says what Run then does, and touches nothing, not even the journal.
func TestPreview(t *testing.T) {
	b := newBench(t, dualPort())
	before := b.observe()
	p, takesOver, err := b.R.Preview(t.Context(), offload())
	if err != nil || takesOver != 0 || len(p.Steps) == 0 {
		t.Fatalf("%d steps, takes over %s, %v; want steps of a new run", len(p.Steps), takesOver, err)
	}
	if d := cmp.Diff(before, b.observe()); d != "" {
		t.Errorf("the preview touched the node:\n%s", d)
	}
	if list, err := b.R.Journal.List(); err != nil || len(list) != 0 {
		t.Errorf("journal %v, %v; want none", list, err)
	}
	var done []string
	b.R.Progress = func(e Event) {
		if e.Kind == EventDone {
			done = append(done, e.Step.String())
		}
	}
	if _, err := b.R.Run(t.Context(), offload()); err != nil {
		t.Fatal(err)
	}
	var foreseen []string
	for _, s := range p.Steps {
		foreseen = append(foreseen, s.String())
	}
	if d := cmp.Diff(foreseen, done); d != "" {
		t.Errorf("foreseen and done:\n%s", d)
	}
}

// Of an interrupted run the preview is the rest, and says whose.
func TestPreviewAfterBeingKilled(t *testing.T) {
	b := newBench(t, dualPort())
	whole, _, err := b.R.Preview(t.Context(), offload())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, died := b.R.until(9, func() (Result, error) { return b.R.Run(t.Context(), offload()) }); !died {
		t.Fatal("not killed")
	}
	rest, takesOver, err := b.R.Preview(t.Context(), offload())
	if err != nil || takesOver != 1 {
		t.Fatalf("takes over %s, %v; want run 1", takesOver, err)
	}
	if n := len(whole.Steps) - len(rest.Steps); n < 4 || n > 5 {
		t.Errorf("%d steps less than at first, want the 4 or 5 that were done", n)
	}
}

// Who would take an interrupted run over must not begin when what that one was
// about has been given away since, and would be taken.
func TestTakeOverOfAVFInUse(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 2, Mode: nic.Switchdev}}})
	vfio := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFs: []nic.VFSpec{{Driver: nic.DriverVFIO}, {Driver: nic.DriverVFIO}}}}}
	if _, _, died := b.R.until(6, func() (Result, error) { return b.R.Run(t.Context(), vfio) }); !died {
		t.Fatal("not killed")
	}
	held := true
	b.owned(nic.VFID{PF: port(0), Index: 0}, func() bool { return held })
	state, written := b.observe(), b.Writes()

	mtu := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFs: []nic.VFSpec{{}, {MTU: 4000}}}}}
	res, err := b.R.Run(t.Context(), mtu)
	var refused *RefusedError
	if res.Outcome != Refused || !errors.As(err, &refused) || !strings.Contains(err.Error(), "held by default/web") {
		t.Fatalf("%+v, %v; want it refused because of who holds the VF", res, err)
	}
	if d := cmp.Diff(state, b.observe()); d != "" || b.Writes() != written {
		t.Errorf("it was refused and touched the node: %d writes\n%s", b.Writes()-written, d)
	}
	held = false
	if res, err := b.R.Run(t.Context(), mtu); err != nil || res.TookOver != 1 {
		t.Errorf("when it is free again: %+v, %v; want run 1 taken over", res, err)
	}
}

// What a run was about that another boot cut off is gone with it: nothing is taken
// over, and how things were then is not how they are to be left.
func TestKilledInAnotherBoot(t *testing.T) {
	b := newBench(t, dualPort())
	b.R.Boot = "first"
	if _, _, died := b.R.until(9, func() (Result, error) { return b.R.Run(t.Context(), offload()) }); !died {
		t.Fatal("not killed")
	}
	b.Reboot()
	b.R.Boot = "second"
	before := b.observe()
	res, err := b.R.Run(t.Context(), offload())
	if err != nil || res.Outcome != Reached || res.TookOver != 0 {
		t.Fatalf("%+v, %v; want it reached, with nothing taken over", res, err)
	}
	b.mustBe(t, offload(), before, true)
	if open, err := b.R.Journal.Interrupted(); open != nil || err != nil {
		t.Errorf("still interrupted: %+v, %v", open, err)
	}
	if e := b.entry(t, res.ID); !cmp.Equal(e.Before, before) {
		t.Error("the run goes by how things were in the other boot")
	}
}
