package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// bench is a simulated machine with a runner on it.
type bench struct {
	*simulated
	R      *Runner
	events []string
}

func newBench(t *testing.T, c sim.Config) *bench {
	t.Helper()
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return benchOf(t, s)
}

func benchOf(t *testing.T, s *sim.Sim) *bench {
	t.Helper()
	b := &bench{simulated: &simulated{s}}
	b.R = &Runner{
		Machine: s.Machine(),
		Journal: &Journal{Dir: memory(t)},
		Progress: func(e Event) {
			what := e.Step.Action
			if what != nil {
				b.events = append(b.events, fmt.Sprintf("%s %s", e.Kind, what))
			} else {
				b.events = append(b.events, fmt.Sprintf("%s %s", e.Kind, e.Scope))
			}
		},
	}
	return b
}

// memory is a folder for the test where writing through to the disk costs nothing.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "journal")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// dualPort is the card that most tests are about.
func dualPort() sim.Config { return sim.Config{Cards: []sim.Card{{Profile: "mlx5"}}} }

func ptr[T any](v T) *T { return &v }

// port is the handle of a port of a sim's first card.
func port(n int) nic.Handle { return nic.PCI(fmt.Sprintf("0000:03:00.%d", n)) }

// offload wants both ports in switchdev, with two VFs each, tuned.
func offload() nic.Spec {
	var out nic.Spec
	for n := range 2 {
		out.PFs = append(out.PFs, nic.PFSpec{
			Handle: port(n), Eswitch: nic.Switchdev, VFCount: ptr(2),
			VFs: []nic.VFSpec{{MAC: &nic.MAC{2, 0, 0, 0, byte(n), 1}, MTU: 9000, RepMTU: 9000}, {Driver: nic.DriverVFIO}},
		})
	}
	return out
}

func (b *bench) mustBe(t *testing.T, spec nic.Spec, before nic.State, exact bool) {
	t.Helper()
	after := b.observe()
	if bad := append(unmet(spec, after), kept(spec, before, after, exact)...); len(bad) > 0 {
		t.Errorf("the node is not what it should be:\n%s", strings.Join(bad, "\n"))
	}
}

func (b *bench) mustBeAsBefore(t *testing.T, before nic.State, handles ...nic.Handle) {
	t.Helper()
	if bad := unmet(nic.Freeze(before, handles...), b.observe()); len(bad) > 0 {
		t.Errorf("the node is not as before:\n%s", strings.Join(bad, "\n"))
	}
}

func (b *bench) entry(t *testing.T, id ID) Entry {
	t.Helper()
	e, err := b.R.Journal.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRun(t *testing.T) {
	b := newBench(t, dualPort())
	before := b.observe()
	res, err := b.R.Run(t.Context(), offload())
	if err != nil {
		t.Fatal(err)
	}
	if res.Outcome != Reached || res.ID != 1 || res.Journal != nil || len(res.Scopes) != 2 {
		t.Errorf("result %+v, want run 1 with two scopes reached", res)
	}
	b.mustBe(t, offload(), before, true)

	e := b.entry(t, 1)
	if e.Outcome != Reached || e.Kind != KindApply || len(e.Steps) != res.Scopes[0].Steps+res.Scopes[1].Steps {
		t.Errorf("entry %+v, want all steps and its end", e)
	}
	for _, s := range e.Steps {
		if s.State != StepDone {
			t.Errorf("step %q is %s in the journal, want done", s.Step, s.State)
		}
	}
	if d := cmp.Diff(before, e.Before); d != "" {
		t.Errorf("state before in the journal: -was +written:\n%s", d)
	}
	if b.events[0] != "planned pci/0000:03:00.0" || b.events[1] != "planned pci/0000:03:00.1" ||
		!slices.Contains(b.events, "done bind pci/0000:03:00.1 vf 1 to vfio-pci") || !slices.Contains(b.events, "reached pci/0000:03:00.1") {
		t.Errorf("events %q", b.events)
	}
}

// A node that is as it should be is not written to, and neither is the journal.
func TestRunQuiet(t *testing.T) {
	b := newBench(t, dualPort())
	if _, err := b.R.Run(t.Context(), offload()); err != nil {
		t.Fatal(err)
	}
	writes := b.written()
	res, err := b.R.Run(t.Context(), offload())
	if err != nil || res.Outcome != Reached || res.ID != 0 {
		t.Errorf("second run: %+v, %v; want reached without a record", res, err)
	}
	if n := b.written() - writes; n != 0 {
		t.Errorf("%d writes to a satisfied node", n)
	}
	if list, err := b.R.Journal.List(); err != nil || len(list) != 1 {
		t.Errorf("%d runs in the journal (%v), want the first alone", len(list), err)
	}
}

func TestRunRefused(t *testing.T) {
	b := newBench(t, dualPort())
	res, err := b.R.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{
		{Handle: port(0), VFCount: ptr(4)}, {Handle: port(1), VFCount: ptr(500)}}})
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Problems) != 1 || res.Outcome != Refused {
		t.Fatalf("result %+v, %v; want a refusal with one problem", res, err)
	}
	if want := "pci/0000:03:00.1: VF count 500 is over the card's limit; want 0 to 16 (sriov_totalvfs)"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if b.written() != 0 {
		t.Error("the node was written to")
	}
	if list, _ := b.R.Journal.List(); len(list) != 0 {
		t.Errorf("%d runs in the journal, want none", len(list))
	}
}

// Whatever step fails, before its effect or after, the port goes back to what it
// was and the other one is done.
func TestRunFailureAtEveryStep(t *testing.T) {
	whole := newBench(t, dualPort())
	if _, err := whole.R.Run(t.Context(), offload()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= whole.Writes(); n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after=%v", n, after), func(t *testing.T) {
				b := newBench(t, dualPort())
				before := b.observe()
				b.Inject(sim.Fault{Write: n, After: after, Errno: syscall.EIO, Ext: "cable bitten"})
				res, err := b.R.Run(t.Context(), offload())
				if res.Outcome != RolledBack || err == nil || !strings.Contains(err.Error(), "cable bitten") {
					t.Fatalf("result %+v, %v; want rolled back with the kernel's words", res, err)
				}
				rolled, reached := 0, 1
				if res.Scopes[1].Outcome == RolledBack {
					rolled, reached = 1, 0
				}
				if res.Scopes[rolled].Outcome != RolledBack || res.Scopes[reached].Outcome != Reached {
					t.Fatalf("scopes %+v, want one rolled back and one reached", res.Scopes)
				}
				b.mustBeAsBefore(t, before, port(rolled))
				if bad := unmet(nic.Spec{PFs: []nic.PFSpec{offload().PFs[reached]}}, b.observe()); len(bad) > 0 {
					t.Errorf("the other port: %q", bad)
				}
				if e := b.entry(t, res.ID); e.Outcome != RolledBack || e.last(port(rolled)) != RolledBack || e.last(port(reached)) != Reached {
					t.Errorf("entry %+v", e)
				}
			})
		}
	}
}

// The same on any machine with any wish.
func TestRunFailureOnAnyMachine(t *testing.T) {
	var counts tally
	failures := 0
	for seed := range uint64(nodes(200)) {
		r := rand.New(rand.NewPCG(seed, 4))
		m, spec := acceptableOnSim(r, seed, &counts)
		before := m.observe()
		whole := benchOf(t, m.Clone())
		if res, err := whole.R.Run(t.Context(), spec); err != nil {
			t.Fatalf("seed %d: %+v, %v", seed, res, err)
		}
		for _, op := range whole.Log() {
			n := op.N
			if op.Err != nil {
				continue // ice's port functions refuse an address anyway
			}
			for _, after := range []bool{false, true} {
				b := benchOf(t, m.Clone())
				b.Inject(sim.Fault{Write: n, After: after})
				res, err := b.R.Run(t.Context(), spec)
				if res.Outcome != RolledBack || err == nil {
					t.Fatalf("seed %d, write %d, after %v: %+v, %v", seed, n, after, res, err)
				}
				failures++
				var bad []string
				for i, s := range res.Scopes {
					want := nic.Spec{PFs: spec.PFs[i : i+1]}
					if s.Outcome == RolledBack {
						want = nic.Freeze(before, s.Scope)
					}
					bad = append(bad, unmet(want, b.observe())...)
				}
				if len(bad) > 0 {
					t.Fatalf("seed %d, write %d, after %v: %s", seed, n, after, strings.Join(bad, "\n"))
				}
			}
		}
	}
	t.Logf("%d failures on %d machines", failures, counts.Nodes)
}

// killed is what the process dies of in tests.
type killed struct{}

// until runs do, and kills it when at counts down to 0: before a step is done and
// before its end is written down, by turns.
func (r *Runner) until(at int, do func() (Result, error)) (res Result, err error, died bool) {
	progress := r.Progress
	defer func() {
		r.Progress = progress
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			died = true
		}
	}()
	r.Progress = func(e Event) {
		if e.Kind == EventStarted || e.Kind == EventDone {
			if at == 0 {
				panic(killed{})
			}
			at--
		}
	}
	res, err = do()
	return res, err, false
}

// Killed anywhere, the next run of the same finishes it, and leaves what an
// undisturbed one leaves.
func TestRunKilledAtEveryStep(t *testing.T) {
	for at := 0; ; at++ {
		b := newBench(t, dualPort())
		before := b.observe()
		_, _, died := b.R.until(at, func() (Result, error) { return b.R.Run(t.Context(), offload()) })
		if !died {
			if at < 36 {
				t.Errorf("only %d places to die at", at)
			}
			break
		}
		open, err := b.R.Journal.Interrupted()
		if err != nil || open == nil || open.ID != 1 {
			t.Fatalf("killed at %d: interrupted run %+v, %v; want run 1", at, open, err)
		}
		res, err := b.R.Run(t.Context(), offload())
		if err != nil || res.Outcome != Reached || res.TookOver != 1 || res.ID != 2 {
			t.Fatalf("killed at %d: second run %+v, %v", at, res, err)
		}
		b.mustBe(t, offload(), before, true)
		if e := b.entry(t, 2); len(e.Clear) > 0 || !cmp.Equal(e.Before, before) {
			t.Errorf("killed at %d: the second run goes by another beginning", at)
		}
		if open, err := b.R.Journal.Interrupted(); open != nil || err != nil {
			t.Errorf("killed at %d: still interrupted: %+v, %v", at, open, err)
		}
	}
}

// The same by Resume, Rollback, and by a run that wants something else.
func TestAfterBeingKilled(t *testing.T) {
	other := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFCount: ptr(1), VFs: []nic.VFSpec{{MTU: 4000}}}}}
	for at := 0; at < 28; at += 3 {
		start := func() (*bench, nic.State) {
			b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 2}}})
			before := b.observe()
			if _, _, died := b.R.until(at, func() (Result, error) { return b.R.Run(t.Context(), offload()) }); !died {
				t.Fatalf("not killed at %d", at)
			}
			return b, before
		}

		b, before := start()
		if res, err := b.R.Resume(t.Context()); err != nil || res.Outcome != Reached {
			t.Errorf("killed at %d, resumed: %+v, %v", at, res, err)
		}
		b.mustBe(t, offload(), before, true)
		if e := b.entry(t, 2); e.Kind != KindResume || e.Of != 1 {
			t.Errorf("entry of the resumption: %s of %s", e.Kind, e.Of)
		}

		b, before = start()
		if res, err := b.R.Rollback(t.Context(), 1); err != nil || res.Outcome != Reached {
			t.Errorf("killed at %d, rolled back: %+v, %v", at, res, err)
		}
		b.mustBeAsBefore(t, before)

		b, before = start()
		res, err := b.R.Run(t.Context(), other)
		if err != nil || res.Outcome != Reached {
			t.Errorf("killed at %d, then another: %+v, %v", at, res, err)
		}
		b.mustBe(t, other, before, false)
		if len(res.Scopes) != 2 || !res.Scopes[1].Left || res.Scopes[1].Outcome != RolledBack {
			t.Errorf("killed at %d, then another: scopes %+v, want the second port taken back", at, res.Scopes)
		}
	}
}

// Killed on the way back, after a failure: the same wish again leaves what it
// always leaves, and Resume ends the way back.
func TestKilledOnTheWayBack(t *testing.T) {
	start := func(write, at int) (b *bench, before nic.State, died bool) {
		b = newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 1}}})
		before = b.observe()
		b.Inject(sim.Fault{Write: b.Writes() + write})
		_, _, died = b.R.until(at, func() (Result, error) { return b.R.Run(t.Context(), offload()) })
		b.Heal()
		return b, before, died
	}
	onTheWay := 0
	for write := 1; write <= 10; write++ {
		for at := range 40 {
			b, before, died := start(write, at)
			if !died {
				break
			}
			open, err := b.R.Journal.Interrupted()
			if err != nil || open == nil {
				t.Fatalf("write %d failed, killed at %d: %v, %v", write, at, open, err)
			}
			if open.last(port(0)) != TurningBack {
				continue
			}
			onTheWay++
			if res, err := b.R.Run(t.Context(), offload()); err != nil {
				t.Errorf("write %d failed, killed at %d: %+v, %v", write, at, res, err)
			}
			b.mustBe(t, offload(), before, false)

			b, before, _ = start(write, at)
			res, err := b.R.Resume(t.Context())
			if res.Outcome != RolledBack || err == nil || res.Scopes[1].Outcome != Reached {
				t.Errorf("write %d failed, killed at %d, resumed: %+v, %v; want the first port back and the second done", write, at, res, err)
			}
			b.mustBeAsBefore(t, before, port(0))
		}
	}
	if onTheWay < 20 {
		t.Errorf("killed on the way back %d times, too few to prove anything", onTheWay)
	}
}

// The way back may disturb what the way there does not: here autoprobe, which is
// off while the VFs are made anew.
func TestKilledOnAWayBackThatDisturbsMore(t *testing.T) {
	none := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFCount: ptr(0)}}}
	for at := 2; ; at++ {
		b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 1}}})
		address := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFs: []nic.VFSpec{{MAC: &nic.MAC{2, 0, 0, 0, 0, 1}}}}}}
		if _, err := b.R.Run(t.Context(), address); err != nil {
			t.Fatal(err)
		}
		before := b.observe()
		b.R.Probe = func(context.Context) error { return errors.New("no route") }
		if _, _, died := b.R.until(at, func() (Result, error) { return b.R.Run(t.Context(), none) }); !died {
			if at < 8 {
				t.Errorf("only %d places to die at", at)
			}
			return
		}
		b.R.Probe = nil
		if res, err := b.R.Run(t.Context(), none); err != nil {
			t.Errorf("killed at %d: %+v, %v", at, res, err)
		}
		b.mustBe(t, none, before, false)
	}
}

// Killed in its second port, then another wish killed in its first port: that
// one's second port still has what the first run left of it.
func TestKilledBeforeClearing(t *testing.T) {
	other := offload()
	for n := range other.PFs {
		other.PFs[n] = nic.PFSpec{Handle: port(n), VFs: []nic.VFSpec{{MTU: 4000}}}
	}
	for at := 12; at < 32; at++ {
		for then := range 12 {
			b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 1}}})
			before := b.observe()
			if _, _, died := b.R.until(at, func() (Result, error) { return b.R.Run(t.Context(), offload()) }); !died {
				t.Fatalf("not killed at %d", at)
			}
			b.R.until(then, func() (Result, error) { return b.R.Run(t.Context(), other) })
			if res, err := b.R.Run(t.Context(), other); err != nil {
				t.Errorf("killed at %d and %d: %+v, %v", at, then, res, err)
			}
			b.mustBe(t, other, before, false)
		}
	}
}

// Any number of runs, each wanting something else and killed somewhere, on any
// machine: the last one, left in peace, ends as if it had been the only one.
func TestKilledAgainAndAgain(t *testing.T) {
	for seed := range uint64(nodes(1000)) {
		r := rand.New(rand.NewPCG(seed, 3))
		var counts tally
		m, last := acceptableOnSim(r, seed, &counts)
		b := benchOf(t, m.Sim)
		before := b.observe()
		var story []string
		for range 1 + r.IntN(3) {
			spec := randomSpec(r, before)
			if chance(r, 0.3) {
				spec = last
			}
			do := func() (Result, error) { return b.R.Run(t.Context(), spec) }
			what := "run " + asJSON(spec)
			if chance(r, 0.2) {
				do, what = func() (Result, error) { return b.R.Resume(t.Context()) }, "resume"
			}
			at := r.IntN(30)
			if len(plan.Check(spec, before)) > 0 || !m.able(spec) || ambiguous(spec, before) {
				continue
			}
			if chance(r, 0.3) { // and it fails before, so that it dies on its way back
				b.Inject(sim.Fault{Skip: r.IntN(4)})
			}
			_, _, died := b.R.until(at, do)
			b.Heal()
			story = append(story, fmt.Sprintf("%s, killed at %d: %v", what, at, died))
			if !died {
				if open, err := b.R.Journal.Interrupted(); err != nil || open != nil {
					t.Fatalf("seed %d: %v %v", seed, open, err)
				}
				before = b.observe()
				if len(plan.Check(last, before)) > 0 || ambiguous(last, before) {
					last = nic.Spec{}
				}
			}
		}
		story = append(story, "run "+asJSON(last))
		res, err := b.R.Run(t.Context(), last)
		if err != nil || res.Outcome != Reached {
			t.Fatalf("seed %d: %+v, %v\n%s", seed, res, err, strings.Join(story, "\n"))
		}
		after := b.observe()
		if bad := append(unmet(last, after), kept(last, before, after, false)...); len(bad) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(bad, "\n"), strings.Join(story, "\n"))
		}
	}
}

func TestRunProbe(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 1}}})
	before := b.observe()
	noRoute := errors.New("no route to the API server")
	b.R.Probe = func(context.Context) error { return noRoute }
	res, err := b.R.Run(t.Context(), offload())
	if res.Outcome != RolledBack || !errors.Is(err, noRoute) || res.Probe != noRoute {
		t.Fatalf("result %+v, %v; want rolled back for the probe", res, err)
	}
	if want := "probe: no route to the API server\nafter going back still: no route to the API server"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	res.Scopes = res.Scopes[:1]
	if got, want := asJSON(res), `{"id":1,"outcome":"rolled back","scopes":[{"scope":"pci/0000:03:00.0","outcome":"rolled back",`+
		`"steps":14,"error":"probe: no route to the API server"}],"probe":"no route to the API server","still":"no route to the API server"}`; got != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	b.mustBeAsBefore(t, before)
}

// A run that is told to stop goes back, and is not stopped on the way.
func TestRunCancelled(t *testing.T) {
	b := newBench(t, dualPort())
	before := b.observe()
	ctx, cancel := context.WithCancel(t.Context())
	progress, n := b.R.Progress, 0
	b.R.Progress = func(e Event) {
		if n++; n == 12 {
			cancel()
		}
		progress(e)
	}
	res, err := b.R.Run(ctx, offload())
	if res.Outcome != RolledBack || !errors.Is(err, context.Canceled) {
		t.Fatalf("result %+v, %v; want rolled back", res, err)
	}
	b.mustBeAsBefore(t, before)
}

// A VF that goes from the bus, at any step and before or after it, ends the run, and
// the way back makes all VFs anew, with what they had. The next run reaches what was
// wanted.
func TestVFVanishesAtEveryStep(t *testing.T) {
	spec := nic.Spec{PFs: offload().PFs[:1]}
	for _, vfs := range []int{0, 2} {
		for at := 0; ; at++ {
			b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: vfs}}})
			before := b.observe()
			n, vanished := 0, false
			b.R.Progress = func(e Event) {
				if e.Kind != EventStarted && e.Kind != EventDone {
					return
				}
				if n++; n > at && !vanished { // later, if there is none yet
					vanished = b.Vanish(nic.VFID{PF: port(0), Index: 0}) == nil
				}
			}
			res, err := b.R.Run(t.Context(), spec)
			if !vanished {
				if at < 10 {
					t.Errorf("%d VFs: %d places, want more", vfs, at)
				}
				break
			}
			if res.Outcome != RolledBack || !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%d VFs, at %d: %+v, %v; want rolled back", vfs, at, res, err)
			}
			b.mustBeAsBefore(t, before, port(0))
			b.R.Progress = nil
			if res, err := b.R.Run(t.Context(), spec); res.Outcome != Reached {
				t.Fatalf("%d VFs, at %d, once more: %+v, %v", vfs, at, res, err)
			}
			b.mustBe(t, spec, before, true)
		}
	}
}

// A VF that had gone before is made anew with what its neighbours had; not by who
// wants nothing of VFs, and not while a neighbour is in use.
func TestVFThatHadGone(t *testing.T) {
	broken := func() (*bench, nic.State) {
		b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 3}}})
		if _, err := b.R.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFs: []nic.VFSpec{2: {MTU: 4000}}}}}); err != nil {
			t.Fatal(err)
		}
		before := b.observe()
		if err := b.Vanish(nic.VFID{PF: port(0), Index: 1}); err != nil {
			t.Fatal(err)
		}
		return b, before
	}
	count := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFCount: ptr(3)}}}

	b, before := broken()
	if res, err := b.R.Run(t.Context(), count); err != nil || res.Outcome != Reached {
		t.Fatalf("%+v, %v", res, err)
	}
	after := b.observe()
	for i, v := range after.PFs[0].VFs {
		if had := before.PFs[0].VFs[i]; v.Gone || v.Driver != had.Driver || v.Netdev.MTU != had.Netdev.MTU {
			t.Errorf("VF %d is %+v, and was %+v", i, v, had)
		}
	}

	b, _ = broken()
	if res, err := b.R.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), Settings: nic.Settings{nic.TCOffload: "on"}}}}); err != nil || res.Scopes[0].Steps != 1 {
		t.Errorf("who wants nothing of VFs: %+v, %v; want one step", res, err)
	}

	b, _ = broken()
	used := func(ctx context.Context) (nic.State, error) {
		s := b.observe()
		s.PFs[0].VFs[0].Owner = "default/a"
		return s, nil
	}
	b.R.Observe = used
	var refused *RefusedError
	if _, err := b.R.Run(t.Context(), count); !errors.As(err, &refused) || !strings.Contains(err.Error(), "vf 0: is in use") {
		t.Errorf("a neighbour is in use: %v, want refused", err)
	}
	b.R.Spare = true
	if res, err := b.R.Run(t.Context(), count); err != nil || len(res.Scopes) != 1 || res.Scopes[0].Steps != 0 {
		t.Errorf("a neighbour is in use and to be spared: %+v, %v; want nothing done", res, err)
	}
}

// What is refused once on the way back is put back all the same.
func TestRefusedOnceOnTheWayBack(t *testing.T) {
	whole := newBench(t, dualPort())
	first := whole.Writes()
	spec := nic.Spec{PFs: offload().PFs[:1]}
	if _, err := whole.R.Run(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	last := whole.Writes()
	for n := last + 1; ; n++ {
		b := newBench(t, dualPort())
		before := b.observe()
		b.Inject(sim.Fault{Write: last})
		b.Inject(sim.Fault{Write: n, Errno: syscall.EBUSY})
		res, err := b.R.Run(t.Context(), spec)
		if b.Writes() < n {
			if n < last+3 {
				t.Errorf("%d writes there, %d in all: want some on the way back", last-first, b.Writes()-first)
			}
			return
		}
		if res.Outcome != RolledBack || err == nil {
			t.Fatalf("write %d of %d refused once: %+v, %v; want rolled back", n, b.Writes(), res, err)
		}
		b.mustBeAsBefore(t, before, port(0))
	}
}

// What cannot be put back does not keep the rest from being put back.
func TestRollbackThatFails(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 4}}})
	before := b.observe()
	spec := nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), Eswitch: nic.Switchdev}}}
	b.Inject(sim.Fault{Verb: sim.Bind, Object: before.PFs[0].VFs[1].Address, Times: -1, Errno: syscall.ENOMEM})
	res, err := b.R.Run(t.Context(), spec)
	if res.Outcome != Failed || err == nil {
		t.Fatalf("result %+v, %v; want failed", res, err)
	}
	for _, word := range []string{"pci/0000:03:00.0: not rolled back", "bind pci/0000:03:00.0 vf 1", "cannot allocate memory"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	back := nic.Freeze(before, port(0))
	if bad := unmet(back, b.observe()); len(bad) == 0 {
		t.Error("the VF is bound although binding fails")
	}
	back.PFs[0].VFs[1] = nic.VFSpec{}
	if bad := unmet(back, b.observe()); len(bad) > 0 {
		t.Errorf("the rest is not as before: %q", bad)
	}
	if e := b.entry(t, res.ID); e.Outcome != Failed {
		t.Errorf("outcome %q in the journal, want failed", e.Outcome)
	}

	// Healed, the same run can be taken back by its number.
	b.Heal()
	if res, err := b.R.Rollback(t.Context(), res.ID); err != nil || res.Outcome != Reached {
		t.Fatalf("rollback: %+v, %v", res, err)
	}
	b.mustBeAsBefore(t, before)
}

func TestRollback(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 3}}})
	before := b.observe()
	if _, err := b.R.Run(t.Context(), offload()); err != nil {
		t.Fatal(err)
	}
	reached := b.observe()
	res, err := b.R.Rollback(t.Context(), 1)
	if err != nil || res.Outcome != Reached || res.ID != 2 {
		t.Fatalf("rollback: %+v, %v", res, err)
	}
	b.mustBeAsBefore(t, before)
	if e := b.entry(t, 2); e.Kind != KindRollback || e.Of != 1 {
		t.Errorf("entry %s of %s, want rollback of 1", e.Kind, e.Of)
	}
	if _, err := b.R.Rollback(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	b.mustBeAsBefore(t, reached)

	if res, err := b.R.Rollback(t.Context(), 17); res.Outcome != Refused || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rollback of a run that is not there: %+v, %v", res, err)
	}
	if res, err := b.R.Resume(t.Context()); res.Outcome != Refused || !errors.Is(err, ErrNothing) {
		t.Errorf("resumption of nothing: %+v, %v", res, err)
	}
}

// owned makes the bench say that a VF is held by somebody from a moment on.
func (b *bench) owned(id nic.VFID, held func() bool) {
	b.R.Observe = func(ctx context.Context) (nic.State, error) {
		st, err := host.Observe(ctx, b.R.Machine)
		if pf := st.PF(id.PF); err == nil && held() && id.Index < len(pf.VFs) {
			pf.VFs[id.Index].Owner = "default/web"
		}
		return st, err
	}
}

// A VF that is given away in the midst of a run is not taken, neither on the way
// there nor on the way back, and is no obstacle to the way back.
func TestVFGivenAwayMeanwhile(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 3, Mode: nic.Switchdev}}})
	before := b.observe()
	given := false
	b.owned(nic.VFID{PF: port(0), Index: 1}, func() bool { return given })
	progress := b.R.Progress
	b.R.Progress = func(e Event) {
		if e.Kind == EventDone {
			given = true
		}
		progress(e)
	}
	mtu := nic.VFSpec{MTU: 9000}
	res, err := b.R.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFs: []nic.VFSpec{mtu, mtu, mtu}}}})
	if res.Outcome != RolledBack || !errors.Is(err, host.ErrBusy) || !strings.Contains(err.Error(), "held by default/web") {
		t.Fatalf("result %+v, %v; want rolled back, as the VF is in use", res, err)
	}
	b.mustBeAsBefore(t, before)
	for _, op := range b.Log() {
		if op.Object == before.PFs[0].VFs[1].Netdev.Name {
			t.Errorf("the VF in use was touched: %s", op)
		}
	}
}

// What a run has changed and given away stays as its holder got it.
func TestVFGivenAwayChanged(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 3, Mode: nic.Switchdev}}})
	before := b.observe()
	given := nic.VFID{PF: port(0), Index: 1}
	changed := false
	b.owned(given, func() bool { return changed })
	b.R.Progress = func(e Event) {
		if e.Kind == EventDone && e.Step.Action == (plan.SetVFMTU{VF: given, From: 1500, To: 9000}) {
			changed = true
		}
	}
	b.Inject(sim.Fault{Object: before.PFs[0].VFs[2].Netdev.Name})
	mtu := nic.VFSpec{MTU: 9000}
	res, err := b.R.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFs: []nic.VFSpec{mtu, mtu, mtu}}}})
	if res.Outcome != RolledBack {
		t.Fatalf("result %+v, %v; want rolled back", res, err)
	}
	want := nic.Freeze(before, port(0))
	want.PFs[0].VFs[1].MTU = 9000
	if bad := unmet(want, b.observe()); len(bad) > 0 {
		t.Errorf("after the way back: %q", bad)
	}
}

func TestPFThatGoesAway(t *testing.T) {
	b := newBench(t, dualPort())
	calls := 0
	b.R.Observe = func(ctx context.Context) (nic.State, error) {
		st, err := host.Observe(ctx, b.R.Machine)
		if calls++; calls > 5 {
			st.PFs = st.PFs[1:]
		}
		return st, err
	}
	res, err := b.R.Run(t.Context(), offload())
	if res.Outcome != Failed || !errors.Is(err, fs.ErrNotExist) || res.Scopes[1].Outcome != Reached {
		t.Fatalf("result %+v, %v; want the first failed and the second reached", res, err)
	}
	if !strings.Contains(err.Error(), "pci/0000:03:00.0 has gone") {
		t.Errorf("error %q does not say that the PF has gone", err)
	}
}

// Runs exclude each other, and the refusal names who is at work.
func TestRunsExcludeEachOther(t *testing.T) {
	b := newBench(t, dualPort())
	if _, running := b.R.Journal.Running(); running {
		t.Error("running before anything was started")
	}
	tried := false
	b.R.Progress = func(Event) {
		if tried {
			return
		}
		tried = true
		other := &Runner{Machine: b.R.Machine, Journal: &Journal{Dir: b.R.Journal.Dir}}
		res, err := other.Run(t.Context(), offload())
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getpid() || res.Outcome != Refused {
			t.Errorf("second run: %+v, %v; want a refusal that names process %d", res, err, os.Getpid())
		}
		if pid, running := b.R.Journal.Running(); !running || pid != os.Getpid() {
			t.Errorf("running: %d, %v; want this process", pid, running)
		}
	}
	if _, err := b.R.Run(t.Context(), offload()); err != nil {
		t.Fatal(err)
	}
	if !tried {
		t.Error("the second run was never tried")
	}
}

// At the same time as one after another: one port fails alone.
func TestRunParallel(t *testing.T) {
	b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5"}, {Profile: "mlx5"}}})
	before := b.observe()
	b.R.Parallel = true
	spec := offload()
	for n := range 2 {
		p := spec.PFs[n]
		p.Handle = nic.PCI(fmt.Sprintf("0000:13:00.%d", n))
		spec.PFs = append(spec.PFs, p)
	}
	b.Inject(sim.Fault{Verb: sim.SetEswitch, Object: spec.PFs[2].Handle.String(), Errno: syscall.EBUSY, Ext: "Can't change mode, E-Switch is busy"})
	res, err := b.R.Run(t.Context(), spec)
	if res.Outcome != RolledBack || !errors.Is(err, host.ErrBusy) {
		t.Fatalf("result %+v, %v", res, err)
	}
	b.mustBeAsBefore(t, before, spec.PFs[2].Handle)
	spec.PFs = slices.Delete(spec.PFs, 2, 3)
	if bad := unmet(spec, b.observe()); len(bad) > 0 {
		t.Errorf("the other ports: %q", bad)
	}
	if e := b.entry(t, res.ID); e.Damage != "" || e.Outcome != RolledBack {
		t.Errorf("entry: outcome %q, damage %q", e.Outcome, e.Damage)
	}
}

// fullFile is a file on a disk that is full after so many bytes.
type fullFile struct {
	*os.File
	left *int
}

func (f fullFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:min(len(b), *f.left)])
	*f.left -= n
	if err == nil && n < len(b) {
		err = &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return n, err
}

func (b *bench) fullAfter(n int) {
	b.R.Journal.open = func(path string) (file, error) {
		f, err := createFile(path)
		if err != nil {
			return nil, err
		}
		return fullFile{f.(*os.File), &n}, nil
	}
}

// A disk that is full before the beginning is written: nothing is touched. Full
// later: the node goes back, written down or not.
func TestRunDiskFull(t *testing.T) {
	whole := newBench(t, dualPort())
	if _, err := whole.R.Run(t.Context(), offload()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(whole.R.Journal.path(1))
	if err != nil {
		t.Fatal(err)
	}
	refused, back := 0, 0
	for n := 0; n < int(info.Size()); n += 97 {
		b := newBench(t, dualPort())
		before := b.observe()
		b.fullAfter(n)
		res, err := b.R.Run(t.Context(), offload())
		if !errors.Is(err, ErrNoSpace) {
			t.Fatalf("full after %d bytes: %+v, %v; want ErrNoSpace", n, res, err)
		}
		switch res.Outcome {
		case Refused:
			refused++
			if b.written() != 0 {
				t.Errorf("full after %d bytes: refused, and the node was written to", n)
			}
			if list, err := b.R.Journal.List(); err != nil || len(list) != 0 {
				t.Errorf("full after %d bytes: refused, and the journal has %d runs (%v)", n, len(list), err)
			}
		case RolledBack:
			back++
			for _, s := range res.Scopes {
				if s.Outcome == RolledBack {
					b.mustBeAsBefore(t, before, s.Scope)
				}
			}
			if res.Journal == nil {
				t.Errorf("full after %d bytes: no word of what was not written down", n)
			}
			if e := b.entry(t, 1); e.Damage != "" {
				t.Errorf("full after %d bytes: damaged: %s", n, e.Damage)
			}
		default:
			t.Errorf("full after %d bytes: %s", n, res.Outcome)
		}
	}
	if refused == 0 || back == 0 {
		t.Errorf("refused %d times, rolled back %d times: want both", refused, back)
	}
}

func TestDoWithoutObject(t *testing.T) {
	s, err := sim.New(dualPort())
	if err != nil {
		t.Fatal(err)
	}
	st, err := host.Observe(t.Context(), s.Machine())
	if err != nil {
		t.Fatal(err)
	}
	vf := nic.VFID{PF: port(0), Index: 3}
	tests := []struct {
		step plan.Step
		want error
	}{
		{plan.Step{Action: plan.Unbind{VF: vf}}, fs.ErrNotExist},
		{plan.Step{Action: plan.SetVFs{PF: port(7), To: 1}}, fs.ErrNotExist},
		{plan.Step{Action: plan.SetVFs{PF: nic.Handle{Bus: "netdevsim", Name: "netdevsim1"}, To: 1}}, fs.ErrNotExist},
	}
	for _, tt := range tests {
		if err := Do(t.Context(), s.Machine(), st, tt.step); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.step, err, tt.want)
		}
	}
	if err := Do(t.Context(), s.Machine(), st, plan.Step{}); err == nil {
		t.Error("no step is done without error")
	}
	if s.Writes() != 0 {
		t.Error("the machine was written to")
	}
}
