package apply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// The laws for whole runs, with journal and scopes, on nodes that have everything.

// several draws a node with a wish of so many scopes.
func several(r *rand.Rand, counts *tally, scopes int) (*node, nic.Spec) {
	for {
		n, spec := acceptable(r, counts)
		if len(plan.Scopes(plan.Complete(spec, n.st))) >= scopes {
			return n, spec
		}
	}
}

// amiss lists what a run left other than it should have.
func amiss(spec nic.Spec, before, after nic.State) []string {
	return append(unmet(spec, after), kept(spec, before, after, true)...)
}

// scopeWith is the scope that a step belongs to, and the others.
func scopeWith(scopes []nic.Spec, s plan.Step) (in nic.Spec, others []nic.Spec) {
	for _, sc := range scopes {
		named := sc.PF(s.Object()) != nil || s.Object() == plan.NodeRDMA() && sc.RDMA != "" ||
			slices.ContainsFunc(sc.Bonds, func(b nic.BondSpec) bool { return "bond/"+b.Name == s.Object().String() })
		if m := member(s); m != nil {
			named = sc.PF(*m) != nil
		}
		if named {
			in = sc
		} else {
			others = append(others, sc)
		}
	}
	return in, others
}

func member(s plan.Step) *nic.Handle {
	switch a := s.Action.(type) {
	case plan.Enslave:
		return &a.PF
	case plan.Release:
		return &a.PF
	}
	return nil
}

// given is what of spec was asked about the PFs of a scope.
func given(spec, scope nic.Spec) nic.Spec {
	out := nic.Spec{RDMA: scope.RDMA}
	for _, w := range spec.PFs {
		if scope.PF(w.Handle) != nil {
			out.PFs = append(out.PFs, w)
		}
	}
	for _, b := range spec.Bonds {
		if out.PF(b.Members[0]) != nil {
			out.Bonds = append(out.Bonds, b)
		}
	}
	return out
}

// A scope that fails at any step, before or after the step is done, goes back, and
// no other is stopped or changed by it, at the same time or one after another.
func TestScopesStandAlone(t *testing.T) {
	var counts tally
	failures := 0
	for seed := range uint64(nodes(300)) {
		r := rand.New(rand.NewPCG(seed, 5))
		n, spec := several(r, &counts, 2)
		before := n.observe()
		scopes := plan.Scopes(plan.Complete(spec, before))
		whole, runner := newSeam(t, n)
		if res, err := runner.Run(t.Context(), spec); err != nil {
			t.Fatalf("seed %d: %+v, %v", seed, res, err)
		}
		if bad := amiss(spec, before, whole.observe()); len(bad) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(bad, "\n"))
		}
		for i, s := range whole.wrote {
			if i%3 != int(seed%3) {
				continue // a third of the steps of each node is enough
			}
			failures++
			if bad := failsAlone(t, n, spec, scopes, s, r.IntN(2) == 0, r.IntN(2) == 0); len(bad) > 0 {
				t.Fatalf("seed %d, %q failed: %s\nspec %s\nnode %s", seed, s, strings.Join(bad, "\n"), asJSON(spec), asJSON(n.st))
			}
		}
	}
	t.Logf("%d failures on %d nodes", failures, counts.Nodes)
}

func failsAlone(t *testing.T, n *node, spec nic.Spec, scopes []nic.Spec, failing plan.Step, afterwards, parallel bool) (bad []string) {
	before := n.observe()
	m, runner := newSeam(t, n)
	runner.Parallel = parallel
	once := false
	m.fail = func(_ int, s plan.Step, after bool) error {
		if !once && after == afterwards && s.Op() == failing.Op() && s.String() == failing.String() {
			once = true
			return errBitten
		}
		return nil
	}
	res, err := runner.Run(t.Context(), spec)
	if res.Outcome != RolledBack || !errors.Is(err, errBitten) {
		return []string{fmt.Sprintf("result %+v, %v; want rolled back", res, err)}
	}
	after := m.observe()
	failed, others := scopeWith(scopes, failing)
	bad = append(bad, unlikeScope(failed, before, after)...)
	for _, o := range others {
		bad = append(bad, unmet(given(spec, o), after)...)
	}
	return bad
}

// unlikeScope lists what of a scope is not as it was.
func unlikeScope(scope nic.Spec, before, after nic.State) (bad []string) {
	if len(scope.PFs) > 0 {
		bad = unmet(nic.Freeze(before, scope.Handles()...), after)
	}
	if scope.RDMA != "" && before.RDMA != after.RDMA {
		bad = append(bad, fmt.Sprintf("RDMA was %+v and is %+v", before.RDMA, after.RDMA))
	}
	return bad
}

// variety is twenty nodes with wishes that together have every kind of step, and
// each at least ten.
func variety(t *testing.T) (nodes []*node, specs []nic.Spec) {
	t.Helper()
	seen := map[plan.Op]bool{}
	var counts tally
	for seed := uint64(0); len(nodes) < 20; seed++ {
		if seed == 100000 {
			t.Fatalf("%d varied plans, with %v", len(nodes), seen)
		}
		n, spec := acceptable(rand.New(rand.NewPCG(seed, 6)), &counts)
		p, err := plan.Unfold(plan.Complete(spec, n.st), n.st)
		if err != nil {
			t.Fatal(err)
		}
		fresh := 0
		for _, s := range p.Steps {
			if !seen[s.Op()] {
				fresh++
			}
		}
		if len(p.Steps) < 10 || fresh == 0 && len(seen) < len(ops()) {
			continue
		}
		for _, s := range p.Steps {
			seen[s.Op()] = true
		}
		nodes, specs = append(nodes, n), append(specs, spec)
	}
	for _, op := range ops() {
		if !seen[op] {
			t.Errorf("no %s among the plans", op)
		}
	}
	return nodes, specs
}

// stage is a machine with a runner on it, from the beginning.
type stage func() (func() nic.State, *Runner)

func (n *node) stage(t *testing.T) stage {
	return func() (func() nic.State, *Runner) {
		m, r := newSeam(t, n)
		return m.observe, r
	}
}

// Killed anywhere, of twenty varied plans, the run is finished by the next one, or
// by Resume, or taken back by Rollback, as if nothing had happened.
func TestKilledAtEveryStep(t *testing.T) {
	machines, specs := variety(t)
	deaths := 0
	for i, n := range machines {
		deaths += killedEverywhere(t, i, n.stage(t), specs[i])
	}
	t.Logf("%d deaths", deaths)
}

// The same on the simulated machine.
func TestKilledAtEveryStepOnSim(t *testing.T) {
	deaths, plans := 0, 0
	for seed := uint64(0); plans < 20; seed++ {
		s := sim.RandomNode(seed)
		state := (&simulated{s}).observe()
		spec := (&node{st: state, offers: offered(state)}).wish(rand.New(rand.NewPCG(seed, 12)))
		if len(plan.Check(spec, state)) > 0 || ambiguous(spec, state) || adopts(spec) {
			continue
		}
		start := func() (func() nic.State, *Runner) {
			b := benchOf(t, s.Clone())
			b.R.Progress = nil
			return b.observe, b.R
		}
		_, whole := start()
		if res, err := whole.Run(t.Context(), spec); err != nil || len(res.Scopes) == 0 || res.Scopes[0].Steps < 8 {
			continue // the driver offers something not, or it is too short
		}
		deaths += killedEverywhere(t, plans, start, spec)
		plans++
	}
	t.Logf("%d deaths", deaths)
}

// killedEverywhere kills a run at each place there is, or with less time at some,
// and counts them.
func killedEverywhere(t *testing.T, i int, start stage, spec nic.Spec) (deaths int) {
	t.Helper()
	for at := 0; at < 1000; at++ {
		if (testing.Short() || slow) && at%7 != i%7 {
			continue
		}
		bad, died := killedAt(t, start, spec, at)
		if !died {
			return deaths
		}
		deaths++
		if len(bad) > 0 {
			t.Fatalf("plan %d killed at %d: %s\nspec %s", i, at, strings.Join(bad, "\n"), asJSON(spec))
		}
	}
	t.Fatalf("plan %d has no end", i)
	return deaths
}

func killedAt(t *testing.T, start stage, spec nic.Spec, at int) (bad []string, died bool) {
	for name, next := range map[string]func(*Runner) (Result, error){
		"run again": func(r *Runner) (Result, error) { return r.Run(t.Context(), spec) },
		"resumed":   func(r *Runner) (Result, error) { return r.Resume(t.Context()) },
		"rolled back": func(r *Runner) (Result, error) {
			return r.Rollback(t.Context(), 1)
		},
	} {
		observe, runner := start()
		before := observe()
		_, _, died = runner.until(at, func() (Result, error) { return runner.Run(t.Context(), spec) })
		if !died {
			return nil, false
		}
		res, err := next(runner)
		after := observe()
		switch {
		case err != nil || res.Outcome != Reached || res.TookOver != 1:
			bad = append(bad, fmt.Sprintf("%s: %+v, %v", name, res, err))
		case name == "rolled back":
			for _, s := range unlike(plan.Complete(spec, before), before, after) {
				bad = append(bad, name+": "+s)
			}
		default:
			for _, s := range append(unmet(spec, after), kept(spec, before, after, false)...) {
				bad = append(bad, name+": "+s)
			}
		}
		if open, err := runner.Journal.Interrupted(); open != nil || err != nil {
			bad = append(bad, fmt.Sprintf("%s: still interrupted: %v, %v", name, open, err))
		}
	}
	return bad, true
}

// A VF or SF in use is never taken, unless whoever had it is said to have gone.
func TestInUse(t *testing.T) {
	refused, drained := 0, 0
	for seed := range uint64(nodes(4000)) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := randomNode(r)
		use(r, n)
		spec := n.wish(r)
		problems := plan.Check(spec, n.st)
		if len(problems) == 0 || slices.ContainsFunc(problems, func(p plan.Problem) bool { return !strings.HasPrefix(p.Wrong, "is in use") }) {
			continue
		}
		refused++
		m, runner := newSeam(t, n)
		res, err := runner.Run(t.Context(), spec)
		var no *RefusedError
		if res.Outcome != Refused || !errors.As(err, &no) || len(m.wrote) > 0 {
			t.Fatalf("seed %d: %+v, %v and %d writes; want refused", seed, res, err, len(m.wrote))
		}
		// Its record may be there still.
		m.n.drained, runner.Drained = true, true
		unused := n.observe()
		free(&unused)
		if len(plan.Check(spec, unused)) > 0 || ambiguous(spec, unused) {
			continue
		}
		drained++
		before := m.observe()
		free(&before)
		if res, err = runner.Run(t.Context(), spec); err != nil {
			t.Fatalf("seed %d, drained: %+v, %v", seed, res, err)
		}
		if bad := unmet(spec, m.observe()); len(bad) > 0 {
			t.Fatalf("seed %d, drained: %s", seed, strings.Join(bad, "\n"))
		}
	}
	t.Logf("%d refused, %d drained", refused, drained)
	if refused < nodes(4000)/50 || drained < nodes(4000)/100 {
		t.Errorf("only %d refused and %d drained", refused, drained)
	}
}

// use gives VFs and SFs away.
func use(r *rand.Rand, n *node) {
	for p := range n.st.PFs {
		pf := &n.st.PFs[p]
		for v := range pf.VFs {
			if pf.VFs[v].Driver != "" && chance(r, 0.3) {
				pf.VFs[v].Owner = "default/pod"
			}
		}
		for f := range pf.SFs {
			if pf.SFs[f].Active && chance(r, 0.3) {
				pf.SFs[f].Owner = "default/pod"
			}
		}
	}
}

// A PF that the host runs over is touched by who names it and by nobody else,
// also not by way of its bond.
func TestProtection(t *testing.T) {
	refused := 0
	for seed := range uint64(nodes(4000)) {
		r := rand.New(rand.NewPCG(seed, 8))
		n := randomNode(r)
		for i := range n.st.PFs {
			n.st.PFs[i].Carries = []string{"the default route"}
		}
		spec := n.wish(r)
		m, runner := newSeam(t, n)
		before := n.observe()
		runner.Drained, m.n.drained = true, true
		res, _ := runner.Run(t.Context(), spec)
		if res.Outcome == Refused {
			refused++
			if len(m.wrote) > 0 {
				t.Fatalf("seed %d: refused, after %d writes", seed, len(m.wrote))
			}
			continue
		}
		for i, s := range m.wrote {
			if err := lawful(s, spec, before); err != nil && strings.HasPrefix(err.Error(), "protection") {
				t.Fatalf("seed %d, write %d %q: %v", seed, i, s, err)
			}
		}
	}
	if refused < nodes(4000)/10 {
		t.Errorf("only %d refused", refused)
	}
}

// adopts: what others make does not go away with what wanted it.
func adopts(spec nic.Spec) bool {
	return slices.ContainsFunc(spec.Bonds, func(b nic.BondSpec) bool { return b.Adopt })
}

// Killed again and again, wanting now this and now that, also on the way back from
// a failure: the last run that is let live leaves what it would have left.
func TestKilledOverAndOver(t *testing.T) {
	for seed := range uint64(nodes(2000)) {
		r := rand.New(rand.NewPCG(seed, 9))
		var counts tally
		n, last := acceptable(r, &counts)
		for adopts(last) {
			n, last = acceptable(r, &counts)
		}
		m, runner := newSeam(t, n)
		before := m.observe()
		var story []string
		for range 1 + r.IntN(3) {
			spec := n.wish(r)
			if chance(r, 0.3) {
				spec = last
			}
			if len(plan.Check(spec, before)) > 0 || ambiguous(spec, before) || adopts(spec) {
				continue
			}
			do, what := func() (Result, error) { return runner.Run(t.Context(), spec) }, "run "+asJSON(spec)
			if chance(r, 0.2) {
				do, what = func() (Result, error) { return runner.Resume(t.Context()) }, "resume"
			}
			if chance(r, 0.3) {
				m.failAt(len(m.wrote)+r.IntN(4), chance(r, 0.5))
			}
			at := r.IntN(30)
			_, _, died := runner.until(at, do)
			m.fail = nil
			story = append(story, fmt.Sprintf("%s, killed at %d: %v", what, at, died))
			if !died {
				before = m.observe()
				if len(plan.Check(last, before)) > 0 || ambiguous(last, before) {
					last = nic.Spec{}
				}
			}
		}
		res, err := runner.Run(t.Context(), last)
		after := m.observe()
		bad := append(unmet(last, after), kept(last, before, after, false)...)
		if err != nil || res.Outcome != Reached || len(bad) > 0 {
			t.Fatalf("seed %d: %+v, %v\n%s\n%s\nlast %s\nnode %s", seed, res, err, strings.Join(bad, "\n"), strings.Join(story, "\n"), asJSON(last), asJSON(before))
		}
	}
}

// A probe that says no takes back all scopes, whatever they had reached.
func TestProbeTakesAllBack(t *testing.T) {
	no := errors.New("no route to the API server")
	for seed := range uint64(nodes(1000)) {
		r := rand.New(rand.NewPCG(seed, 10))
		var counts tally
		n, spec := acceptable(r, &counts)
		before := n.observe()
		m, runner := newSeam(t, n)
		runner.Parallel = chance(r, 0.5)
		runner.Probe = func(context.Context) error { return no }
		res, err := runner.Run(t.Context(), spec)
		if len(m.wrote) == 0 {
			continue
		}
		bad := unlike(plan.Complete(spec, before), before, m.observe())
		if res.Outcome != RolledBack || !errors.Is(err, no) || len(bad) > 0 {
			t.Fatalf("seed %d: %+v, %v\n%s\nspec %s\nnode %s", seed, res, err, strings.Join(bad, "\n"), asJSON(spec), asJSON(before))
		}
	}
}

// A bond that a run has made which was killed, and the next one was killed clearing
// it away: the third knows of it still.
func TestBondOfTwoRunsAgo(t *testing.T) {
	bond := nic.BondSpec{Name: "bond0", Mode: nic.ActiveBackup, Members: []nic.Handle{port(0), port(1)}}
	first := wholeCard(nic.PFSpec{Eswitch: nic.Switchdev}, bond)
	second := wholeCard(nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(1)})
	for at := 4; at < 14; at++ {
		for then := range 12 {
			m, runner := newSeam(t, plain("mlx5_core", nic.Legacy, 0))
			before := m.observe()
			runner.until(at, func() (Result, error) { return runner.Run(t.Context(), first) })
			if open, err := runner.Journal.Interrupted(); open == nil || err != nil {
				continue // it had an end
			}
			runner.until(then, func() (Result, error) { return runner.Run(t.Context(), second) })
			if _, err := runner.Run(t.Context(), second); err != nil {
				t.Errorf("killed at %d and %d: %v", at, then, err)
			}
			if bad := append(unmet(second, m.observe()), kept(second, before, m.observe(), false)...); len(bad) > 0 {
				t.Errorf("killed at %d and %d: %q", at, then, bad)
			}
		}
	}
}

// A rollback that is killed and resumed goes back to no mode of the next boot, where
// there was none.
func TestRollbackOfRDMAKilled(t *testing.T) {
	for at := range 8 {
		n := plain("mlx5_core", nic.Legacy, 0)
		n.st.RDMA = nic.RDMA{Mode: nic.RDMAShared}
		m, runner := newSeam(t, n)
		if _, err := runner.Run(t.Context(), nic.Spec{RDMA: nic.RDMAExclusive}); err != nil {
			t.Fatal(err)
		}
		_, _, died := runner.until(at, func() (Result, error) { return runner.Rollback(t.Context(), 1) })
		if died {
			if _, err := runner.Resume(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := m.observe().RDMA; got != n.st.RDMA {
			t.Errorf("killed at %d: %+v, want %+v", at, got, n.st.RDMA)
		}
	}
}
