package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// The five laws that planner and executor stand on, each over random nodes and
// wishes, with a failure and a crash at every step of every plan.
//
// They are judged by what follows in this file and by the machine, not by
// package plan: unmet compares fields, kept compares what was not named.

// machine is what the laws are tried on.
type machine interface {
	observe() nic.State
	do(nic.State, plan.Step) error
	clone() machine
	written() int
}

// nodes is how many random nodes a test looks at, when it takes its time.
func nodes(long int) int {
	if testing.Short() || slow {
		return long / 10
	}
	return long
}

func TestLaws(t *testing.T) {
	var counts tally
	for seed := range uint64(nodes(5000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		n, spec := acceptable(r, &counts)
		if err := laws(spec, n, &counts); err != nil {
			t.Fatalf("seed %d: %v\nspec %s\nnode %s", seed, err, asJSON(spec), asJSON(n.st))
		}
	}
	t.Logf("%+v", counts)
	if counts.Steps < 3*counts.Nodes || counts.Longest < 15 {
		t.Errorf("the plans are too short to prove anything: %+v", counts)
	}
}

// The same on the simulated machine, through the seam.
func TestLawsOnSim(t *testing.T) {
	var counts tally
	for seed := range uint64(nodes(5000)) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, spec := acceptableOnSim(r, seed, &counts)
		if err := laws(spec, m, &counts); err != nil {
			t.Fatalf("seed %d: %v\nspec %s\nnode %s", seed, err, asJSON(spec), asJSON(m.observe()))
		}
	}
	t.Logf("%+v", counts)
	if counts.Steps < 3*counts.Nodes || counts.Longest < 15 {
		t.Errorf("the plans are too short to prove anything: %+v", counts)
	}
}

// acceptableOnSim draws machine and wish until the wish can be had.
func acceptableOnSim(r *rand.Rand, seed uint64, counts *tally) (*simulated, nic.Spec) {
	for try := uint64(0); ; try++ {
		m := &simulated{sim.Random(seed + try<<32)}
		state := m.observe()
		spec := randomSpec(r, state)
		if len(plan.Check(spec, state)) == 0 && !ambiguous(spec, state) && m.able(spec) {
			counts.Nodes++
			return m, spec
		}
		counts.Refused++
	}
}

// simulated is a machine behind package host.
type simulated struct{ *sim.Sim }

func (m *simulated) observe() nic.State {
	st, err := host.Observe(context.Background(), m.Machine())
	if err != nil {
		panic(err) // no fault is injected into reads
	}
	return st
}

func (m *simulated) do(st nic.State, s plan.Step) error {
	return Do(context.Background(), m.Machine(), st, s)
}

func (m *simulated) clone() machine { return &simulated{m.Clone()} }

// written leaves out what was refused: ice's port functions are asked for an
// address before its VF rows are.
func (m *simulated) written() (n int) {
	for _, op := range m.Log() {
		if op.Err == nil {
			n++
		}
	}
	return n
}

// able says whether the machine has what spec needs and the state does not tell:
// an IOMMU for vfio-pci.
func (m *simulated) able(spec nic.Spec) bool {
	functions, err := m.Machine().PCI.Functions(context.Background())
	if err != nil || len(functions) == 0 {
		return false
	}
	for _, pf := range spec.PFs {
		for _, vf := range pf.VFs {
			if vf.Driver == nic.DriverVFIO && functions[0].IOMMUGroup < 0 {
				return false
			}
		}
	}
	return true
}

type tally struct{ Nodes, Refused, Steps, Longest, Rollbacks int }

// acceptable draws until a wish is not refused. That a refusal is deserved is
// looked at on the way.
func acceptable(r *rand.Rand, counts *tally) (*node, nic.Spec) {
	for {
		n := randomNode(r)
		spec := randomSpec(r, n.st)
		if len(plan.Check(spec, n.st)) == 0 && !ambiguous(spec, n.st) {
			counts.Nodes++
			return n, spec
		}
		counts.Refused++
	}
}

// ambiguous is the one wish whose fate cannot be known beforehand: no
// administrative address and another one for the netdev, with a driver that does
// not tell whether the address of a bound VF was set by the PF or by the VF.
func ambiguous(spec nic.Spec, state nic.State) bool {
	for _, want := range spec.PFs {
		for _, w := range want.VFs {
			if follows(state.PF(want.Handle).Driver) && w.LinkMAC != nil && w.MAC != nil && w.MAC.IsZero() {
				return true
			}
		}
	}
	return false
}

// laws holds one node to all five.
func laws(spec nic.Spec, m machine, counts *tally) error {
	before := m.observe()
	completed := plan.Complete(spec, before)
	whole, err := plan.Unfold(completed, before)
	if err != nil {
		return err
	}
	counts.Steps += len(whole.Steps)
	counts.Longest = max(counts.Longest, len(whole.Steps))

	start := m.written()
	for i := 0; ; i++ {
		state := m.observe()
		// Resumption: a process that starts here, knowing the beginning from the
		// journal, has the rest of the plan before it.
		rest, err := plan.Unfold(plan.Complete(spec, before), state)
		if err != nil {
			return err
		}
		if got, want := list(rest.Steps), list(whole.Steps[min(i, len(whole.Steps)):]); got != want {
			return fmt.Errorf("resumption: after %d steps of\n%sthe rest is\n%snot\n%s", i, list(whole.Steps), got, want)
		}
		// Rollback: from every state that a failure can leave.
		if err := goesBack(completed, before, m.clone(), counts); err != nil {
			return fmt.Errorf("rollback after %d steps of\n%s%w", i, list(whole.Steps), err)
		}
		step, more := plan.Next(completed, state)
		if !more {
			break
		}
		if i > len(whole.Steps) {
			return fmt.Errorf("convergence: no end after %d steps", i)
		}
		if err := m.do(state, step); err != nil {
			return fmt.Errorf("convergence: step %d of\n%s%w", i, list(whole.Steps), err)
		}
	}
	after := m.observe()
	if bad := unmet(spec, after); len(bad) > 0 {
		return fmt.Errorf("convergence: after\n%sstill %s", list(whole.Steps), strings.Join(bad, "; "))
	}
	if bad := kept(spec, before, after, true); len(bad) > 0 {
		return fmt.Errorf("locality: after\n%s%s", list(whole.Steps), strings.Join(bad, "; "))
	}
	if n := m.written() - start; n != len(whole.Steps) {
		return fmt.Errorf("%d writes for %d steps", n, len(whole.Steps))
	}
	return quiet(spec, m)
}

// quiet is quiescence: what is as it was wanted causes no write, also when the
// wish comes anew and its beginning is what is there now.
func quiet(spec nic.Spec, m machine) error {
	state, start := m.observe(), m.written()
	if p, err := plan.Unfold(plan.Complete(spec, state), state); err != nil || len(p.Steps) > 0 {
		return fmt.Errorf("quiescence: on a satisfied node there is still\n%s%v", list(p.Steps), err)
	}
	if err := converge(plan.Complete(spec, state), m); err != nil {
		return err
	}
	if n := m.written() - start; n > 0 {
		return fmt.Errorf("quiescence: %d writes to a satisfied node", n)
	}
	return nil
}

// goesBack converges on what was before and compares.
func goesBack(spec nic.Spec, before nic.State, m machine, counts *tally) error {
	counts.Rollbacks++
	back := plan.Back(before, spec)
	if err := converge(back, m); err != nil {
		return err
	}
	after := m.observe()
	if bad := unmet(nic.Freeze(before, spec.Handles()...), after); len(bad) > 0 {
		return fmt.Errorf("the node is not as before: %s", strings.Join(bad, "; "))
	}
	for _, pf := range before.PFs {
		if spec.PF(pf.Handle) == nil && !cmp.Equal(pf, *after.PF(pf.Handle)) {
			return fmt.Errorf("%s was touched: %s", pf.Handle, cmp.Diff(pf, *after.PF(pf.Handle)))
		}
	}
	return nil
}

// converge is the executor's loop around a machine.
func converge(spec nic.Spec, m machine) error {
	var state nic.State
	return Converge(context.Background(), Loop[nic.State, plan.Step]{
		Observe: func(context.Context) (nic.State, error) { state = m.observe(); return state, nil },
		Next:    func(state nic.State) (plan.Step, bool) { return plan.Next(spec, state) },
		Do:      func(_ context.Context, s plan.Step) error { return m.do(state, s) },
		Limit:   200,
	})
}

func list(steps []plan.Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("  " + s.String() + "\n")
	}
	return b.String()
}

// unmet lists what spec names and state does not have.
func unmet(spec nic.Spec, state nic.State) (bad []string) {
	for _, want := range spec.PFs {
		pf := state.PF(want.Handle)
		if pf == nil {
			bad = append(bad, want.Handle.String()+" is not there")
			continue
		}
		not := func(what string, got, want any) {
			bad = append(bad, fmt.Sprintf("%s: %s is %v, want %v", pf.Handle, what, got, want))
		}
		if want.Eswitch != "" && pf.Eswitch != "" && want.Eswitch != pf.Eswitch {
			not("eswitch", pf.Eswitch, want.Eswitch)
		}
		if want.VFCount != nil && *want.VFCount != len(pf.VFs) {
			not("VF count", len(pf.VFs), *want.VFCount)
			continue
		}
		if want.Autoprobe != nil && *want.Autoprobe != pf.Autoprobe {
			not("autoprobe", pf.Autoprobe, *want.Autoprobe)
		}
		for i, w := range want.VFs {
			unmetVF(w, *pf, i, func(what string, got, want any) { not(fmt.Sprintf("vf %d %s", i, what), got, want) })
		}
	}
	return bad
}

func unmetVF(w nic.VFSpec, pf nic.PF, i int, not func(string, any, any)) {
	if i >= len(pf.VFs) {
		not("VF", "not there", "there")
		return
	}
	v := pf.VFs[i]
	if w.Driver != "" && w.Driver != nic.DriverOf(v.Driver) {
		not("driver", v.Driver, w.Driver)
	}
	// A bound VF of such a driver has an address of its own in the row.
	if w.MAC != nil && *w.MAC != v.MAC && !(w.MAC.IsZero() && v.Driver != "" && follows(pf.Driver)) {
		not("MAC", v.MAC, *w.MAC)
	}
	if v.Away {
		return
	}
	imposed := follows(pf.Driver) && !v.MAC.IsZero() && w.MAC != nil && !w.MAC.IsZero()
	if w.LinkMAC != nil && *w.LinkMAC != v.Netdev.MAC && !(imposed && v.Netdev.MAC == v.MAC) {
		not("netdev MAC", v.Netdev.MAC, *w.LinkMAC)
	}
	if w.MTU != 0 && w.MTU != v.Netdev.MTU {
		not("MTU", v.Netdev.MTU, w.MTU)
	}
	if w.RepMTU != 0 && w.RepMTU != v.Rep.Netdev.MTU {
		not("representor MTU", v.Rep.Netdev.MTU, w.RepMTU)
	}
}

// kept lists what spec does not name and is not as it was. To the letter means
// that what has no need to be touched is the very same, down to its ifindex; else
// it may have gone and come back.
func kept(spec nic.Spec, before, after nic.State, toTheLetter bool) (bad []string) {
	for _, old := range before.PFs {
		now, want := *after.PF(old.Handle), spec.PF(old.Handle)
		if want == nil {
			if d := cmp.Diff(old, now); d != "" && toTheLetter {
				bad = append(bad, fmt.Sprintf("%s is not named and was touched:\n%s", old.Handle, d))
			}
			bad = append(bad, unmet(nic.Freeze(before, old.Handle), after)...)
			continue
		}
		not := func(what string, got, want any) {
			bad = append(bad, fmt.Sprintf("%s: %s was %v and is %v", old.Handle, what, want, got))
		}
		if want.Eswitch == "" && now.Eswitch != old.Eswitch {
			not("eswitch", now.Eswitch, old.Eswitch)
		}
		if want.Autoprobe == nil && now.Autoprobe != old.Autoprobe {
			not("autoprobe", now.Autoprobe, old.Autoprobe)
		}
		if want.VFCount == nil && len(now.VFs) != len(old.VFs) {
			not("VF count", len(now.VFs), len(old.VFs))
			continue
		}
		for i := range now.VFs {
			say := func(what string, got, want any) { not(fmt.Sprintf("vf %d %s", i, what), got, want) }
			if len(now.VFs) == len(old.VFs) {
				keptVF(*want, old, now, i, toTheLetter, say)
			} else if w := want.VF(i); w.Driver == "" && (nic.DriverOf(now.VFs[i].Driver) == nic.DriverKernel) != now.Autoprobe {
				say("driver of a new VF with autoprobe "+fmt.Sprint(now.Autoprobe), now.VFs[i].Driver, "the kernel's way")
			}
		}
	}
	return bad
}

func keptVF(want nic.PFSpec, oldPF, nowPF nic.PF, i int, toTheLetter bool, not func(string, any, any)) {
	w, old, now := want.VF(i), oldPF.VFs[i], nowPF.VFs[i]
	flips := oldPF.Eswitch != nowPF.Eswitch
	if old.InUse() != "" {
		old.Rep, now.Rep = nic.Representor{}, nic.Representor{} // its MTU may be wished for
		if !cmp.Equal(old, now) {
			not("in use", now, old)
		}
		return
	}
	if toTheLetter && !flips && w.IsZero() && !cmp.Equal(old, now) {
		not("not named", now, old)
	}
	if w.Driver == "" && now.Driver != old.Driver {
		not("driver", now.Driver, old.Driver)
	}
	took := old.MAC.IsZero() && now.Driver != "" && follows(nowPF.Driver) // by its driver
	if w.MAC == nil && w.LinkMAC == nil && now.MAC != old.MAC && !took {
		not("MAC", now.MAC, old.MAC)
	}
	if !old.Netdev.Exists() || !now.Netdev.Exists() {
		return
	}
	imposed := follows(nowPF.Driver) && now.Netdev.MAC == now.MAC
	if w.LinkMAC == nil && (w.MAC == nil || *w.MAC == old.MAC) && now.Netdev.MAC != old.Netdev.MAC && !imposed {
		not("netdev MAC", now.Netdev.MAC, old.Netdev.MAC)
	}
	if w.MTU == 0 && now.Netdev.MTU != old.Netdev.MTU {
		not("MTU", now.Netdev.MTU, old.Netdev.MTU)
	}
	if w.RepMTU == 0 && !flips && now.Rep.Netdev.MTU != old.Rep.Netdev.MTU {
		not("representor MTU", now.Rep.Netdev.MTU, old.Rep.Netdev.MTU)
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
