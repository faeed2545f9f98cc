package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

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
	peek() nic.State // observe for who neither keeps nor changes it
	do(nic.State, plan.Step) error
	clone() machine
	written() int
	foretold() bool // a plan is known to the last step beforehand
}

// nodes is how many random nodes a test looks at, when it takes its time.
func nodes(long int) int {
	switch {
	case slow:
		return long / 100
	case testing.Short():
		return long / 20
	}
	return long
}

func TestLaws(t *testing.T) {
	const shards = 8
	var counts [shards]tally
	t.Run("nodes", func(t *testing.T) {
		for shard := range uint64(shards) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := shard; seed < uint64(nodes(50000)); seed += shards {
					r := rand.New(rand.NewPCG(seed, 1))
					n, spec := acceptable(r, &counts[shard])
					if err := laws(spec, n, &counts[shard]); err != nil {
						t.Fatalf("seed %d: %v\nspec %s\nnode %s", seed, err, asJSON(spec), asJSON(n.st))
					}
				}
			})
		}
	})
	if !t.Failed() {
		farEnough(t, counts[:]...)
	}
}

// farEnough sees to it that the plans were long, and of every kind of step.
func farEnough(t *testing.T, counts ...tally) {
	t.Helper()
	all := tally{Ops: map[plan.Op]int{}}
	for _, c := range counts {
		all.Nodes += c.Nodes
		all.Refused += c.Refused
		all.Steps += c.Steps
		all.Longest = max(all.Longest, c.Longest)
		all.Rollbacks += c.Rollbacks
		for op, n := range c.Ops {
			all.Ops[op] += n
		}
	}
	t.Logf("%+v", all)
	if all.Steps < 5*all.Nodes || all.Longest < 30 || all.Refused > all.Nodes {
		t.Errorf("the plans are too short, or too many refused, to prove anything: %+v", all)
	}
	for _, op := range ops() {
		if all.Ops[op] < all.Nodes/100 {
			t.Errorf("%d nodes, and only %d times %s", all.Nodes, all.Ops[op], op)
		}
	}
}

// ops is every kind of step that there is.
func ops() []plan.Op {
	return []plan.Op{
		plan.OpSetVFs, plan.OpSetAutoprobe, plan.OpSetEswitch, plan.OpSetPF, plan.OpUnbind, plan.OpBind, plan.OpSetVFMAC,
		plan.OpSetVFLinkMAC, plan.OpSetVFMTU, plan.OpSetRepMTU, plan.OpSetVF, plan.OpAddSF, plan.OpDelSF,
		plan.OpSetSFActive, plan.OpSetSFMAC, plan.OpSetSFMTU, plan.OpSetSFRepMTU, plan.OpSetSF, plan.OpAddBond,
		plan.OpDelBond, plan.OpEnslave, plan.OpRelease, plan.OpSetBondMTU, plan.OpAwaitBond, plan.OpAwaitLAG,
		plan.OpSetRDMA, plan.OpSetRDMAAtBoot,
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

// The same with all that a node can have. What a driver offers after a change, and
// how much, nobody knows beforehand; where it refuses a setting for that, the way
// back has been tried.
func TestLawsOnSimWithAll(t *testing.T) {
	var counts tally
	unknown := 0
	for seed := range uint64(nodes(3000)) {
		r := rand.New(rand.NewPCG(seed, 11))
		m := &everything{&simulated{sim.RandomNode(seed)}}
		state := m.observe()
		spec := (&node{st: state, offers: offered(state)}).wish(r)
		if len(plan.Check(spec, state)) > 0 || ambiguous(spec, state) || adopts(spec) || !m.able(spec) {
			counts.Refused++
			continue
		}
		counts.Nodes++
		err := laws(spec, m, &counts)
		for _, refusal := range []error{host.ErrNotSupported, host.ErrInvalid, syscall.EPROTONOSUPPORT, syscall.EPERM} {
			if errors.Is(err, refusal) {
				unknown++
				err = nil
			}
		}
		if err != nil {
			t.Fatalf("seed %d: %v\nspec %s\nnode %s", seed, err, asJSON(spec), asJSON(m.observe()))
		}
	}
	t.Logf("%+v, %d with a refusal by the driver", counts, unknown)
	if counts.Nodes < nodes(3000)/5 || unknown > counts.Nodes/5 {
		t.Errorf("%d accepted, and %d refused by the driver", counts.Nodes, unknown)
	}
}

// everything is a simulated machine on which drivers give settings anew.
type everything struct{ *simulated }

func (m *everything) foretold() bool { return false }

func (m *everything) clone() machine { return &everything{m.simulated.clone().(*simulated)} }

// offered is the settings that there are on a machine.
func offered(st nic.State) map[nic.Setting]bool {
	out := map[nic.Setting]bool{}
	for _, pf := range st.PFs {
		for name := range pf.Settings {
			out[name] = true
		}
		for _, v := range pf.VFs {
			for name := range v.Settings {
				out[name] = true
			}
		}
	}
	return out
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

func (m *simulated) peek() nic.State { return m.observe() }

func (m *simulated) foretold() bool { return true }

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

type tally struct {
	Nodes, Refused, Steps, Longest, Rollbacks int

	Ops map[plan.Op]int // of the steps done
}

// did counts a step.
func (c *tally) did(s plan.Step) {
	if c.Ops == nil {
		c.Ops = map[plan.Op]int{}
	}
	c.Ops[s.Op()]++
}

// acceptable draws until a wish is not refused.
func acceptable(r *rand.Rand, counts *tally) (*node, nic.Spec) {
	for {
		n := randomNode(r)
		spec := n.wish(r)
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

	start, done := m.written(), []plan.Step{}
	for {
		state := m.observe()
		// Resumption: a process that starts here, knowing the beginning from the
		// journal, has the rest of the plan before it.
		rest, err := plan.Unfold(plan.Complete(spec, before), state)
		if err != nil {
			return err
		}
		if got, want := told(m, done, rest.Steps), told(m, whole.Steps); got != want {
			return fmt.Errorf("resumption: after %d steps what was done and the rest are\n%snot\n%s", len(done), got, want)
		}
		// Rollback: from every state that a failure can leave.
		if err := goesBack(completed, before, m.clone(), counts); err != nil {
			return fmt.Errorf("rollback after\n%sof\n%s%w", list(done), list(whole.Steps), err)
		}
		step, more := plan.Next(completed, state)
		if !more {
			break
		}
		if len(done) > 2*len(whole.Steps)+40 {
			return fmt.Errorf("convergence: no end after %d steps", len(done))
		}
		if err := lawful(step, spec, state); err != nil {
			return fmt.Errorf("after\n%s%s: %w", list(done), step, err)
		}
		if err := m.do(state, step); err != nil {
			return fmt.Errorf("convergence: after\n%sof\n%s%s: %w", list(done), list(whole.Steps), step, err)
		}
		done = append(done, step)
		counts.did(step)
	}
	after := m.observe()
	if bad := unmet(spec, after); len(bad) > 0 {
		return fmt.Errorf("convergence: after\n%sstill %s", list(done), strings.Join(bad, "; "))
	}
	if bad := kept(spec, before, after, true); len(bad) > 0 {
		return fmt.Errorf("locality: after\n%s%s", list(done), strings.Join(bad, "; "))
	}
	if n := m.written() - start; n != len(done) {
		return fmt.Errorf("%d writes for %d steps", n, len(done))
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
	if err := converge(plan.Back(before, spec), m); err != nil {
		return err
	}
	if bad := unlike(spec, before, m.peek()); len(bad) > 0 {
		return fmt.Errorf("the node is not as before: %s", strings.Join(bad, "; "))
	}
	return nil
}

// unlike lists what is not as it was before: all of it where spec names nothing.
func unlike(spec nic.Spec, before, after nic.State) []string {
	bad := unmet(nic.Freeze(before, spec.Handles()...), after)
	if len(spec.PFs) == 0 {
		bad = nil // to freeze nothing is to freeze all
	}
	for _, pf := range before.PFs {
		if spec.PF(pf.Handle) == nil {
			k := keeper{old: pf, now: *after.PF(pf.Handle), was: before.BondOf(pf.Handle), letter: true,
				say: func(_ string, d, _ any) { bad = append(bad, fmt.Sprintf("%s was touched: %s", pf.Handle, d)) }}
			k.unnamed()
		}
	}
	bad = append(bad, keptBonds(nic.Spec{}, madeBySluice(before), madeBySluice(after))...)
	if before.RDMA != after.RDMA {
		bad = append(bad, fmt.Sprintf("RDMA was %+v and is %+v", before.RDMA, after.RDMA))
	}
	return bad
}

// madeBySluice leaves out bonds without members: of others, that have come, and of
// ours, which are no loss; and ifindexes of those that were made anew.
func madeBySluice(s nic.State) nic.State {
	var out nic.State
	for _, b := range anew(s).Bonds {
		if len(b.Members)+len(b.Others) > 0 {
			out.Bonds = append(out.Bonds, b)
		}
	}
	return out
}

// converge is the executor's loop around a machine.
func converge(spec nic.Spec, m machine) error {
	var state nic.State
	var done []plan.Step
	err := Converge(context.Background(), Loop[nic.State, plan.Step]{
		Observe: func(context.Context) (nic.State, error) { state = m.peek(); return state, nil },
		Next:    func(state nic.State) (plan.Step, bool) { return plan.Next(spec, state) },
		Do: func(_ context.Context, s plan.Step) error {
			done = append(done, s)
			return m.do(state, s)
		},
		Limit: 400,
	})
	if err != nil {
		return fmt.Errorf("on the way\n%s%w", list(done), err)
	}
	return nil
}

// told is what is compared of a plan: all of it on a machine where all can be
// foretold. Else settings are left out that a driver, or whoever makes a bond, gives
// anew, which is seen only then, and waiting for hardware that needs no time.
func told(m machine, parts ...[]plan.Step) string {
	var b strings.Builder
	for _, s := range slices.Concat(parts...) {
		switch s.Action.(type) {
		case plan.SetPF, plan.SetVF, plan.SetSF, plan.SetVFMTU, plan.AwaitLAG, plan.SetBondMTU:
			if !m.foretold() {
				continue
			}
		}
		b.WriteString("  " + s.String() + "\n")
	}
	return b.String()
}

// lawful: what the host runs over is touched only by name, and VFs are not bound
// before hardware has taken up the bond that is wanted.
func lawful(s plan.Step, spec nic.Spec, state nic.State) error {
	touched := []nic.Handle{s.Object()}
	switch a := s.Action.(type) {
	case plan.Enslave:
		touched = append(touched, a.PF)
		want := spec.BondOf(a.PF)
		for _, v := range state.PF(a.PF).VFs {
			if v.Driver != "" && want != nil && !want.Software {
				return errors.New("order: a port with bound VFs")
			}
		}
	case plan.Release:
		touched = append(touched, a.PF)
	case plan.SetBondMTU:
		if b := state.Bond(a.Bond); b != nil {
			touched = append(touched, b.Members...)
		}
	case plan.Bind:
		want, pf := spec.BondOf(a.VF.PF), state.PF(a.VF.PF)
		if want != nil && !want.Software && hasLAG(pf.Driver) && pf.LAG != nic.LAGActive {
			return errors.New("order: before the LAG is active")
		}
	}
	for _, h := range touched {
		if pf, want := state.PF(h), spec.PF(h); pf != nil && len(pf.Carries) > 0 && (want == nil || !want.Named) {
			return fmt.Errorf("protection: %s carries %s and is not named", h, pf.Carries[0])
		}
	}
	return nil
}

func list(steps []plan.Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("  " + s.String() + "\n")
	}
	return b.String()
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
