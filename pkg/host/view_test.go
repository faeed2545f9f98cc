package host_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// Where a view that was followed is sure, it is what a whole look sees, after whatever
// has been done to whatever machine, in many steps on end.
func TestFollowedViewIsObserve(t *testing.T) {
	const machines, steps = 60, 40
	sure, unsure := 0, 0
	for seed := range uint64(machines) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := sim.RandomNode(seed)
			m := s.Machine()
			changes, err := m.Watch.Changes(ctx)
			if err != nil {
				t.Fatal(err)
			}
			v, err := host.Look(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(seed, 0xf0110))
			var done []string
			for range steps {
				done = append(done, s.Disturb(ctx, r))
				if r.IntN(3) == 0 {
					continue // several changes together
				}
				told := drained(changes)
				if len(told) == 0 {
					continue
				}
				next, ok, err := v.After(ctx, m, told)
				if err != nil {
					t.Fatalf("machine %d, after %q: %v", seed, done, err)
				}
				whole, err := host.Look(ctx, m)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					v, unsure = whole, unsure+1
					continue
				}
				v, sure = next, sure+1
				if d := cmp.Diff(listed(whole.State), listed(v.State), cmpopts.EquateEmpty()); d != "" {
					t.Fatalf("machine %d, after %q:\n%s", seed, done, d)
				}
				if d := cmp.Diff(whole.RDMA(), v.RDMA()); d != "" {
					t.Fatalf("machine %d, after %q: RDMA devices:\n%s", seed, done, d)
				}
			}
		})
	}
	t.Logf("%d times sure, %d times not", sure, unsure)
	if sure < machines || unsure < machines {
		t.Errorf("%d times sure, %d times not: want both often", sure, unsure)
	}
}

// listed is a state without what View.After leaves as it was.
func listed(s nic.State) nic.State {
	s = s.Clone()
	s.RDMA = nic.RDMA{}
	for i := range s.PFs {
		p := &s.PFs[i]
		p.Settings, p.Limits, p.Carries, p.LAG = nil, nil, nil, ""
		if len(p.VFs)+len(p.SFs) == 0 {
			p.Eswitch = "" // no ports tell of it
		}
		for j := range p.VFs {
			v := &p.VFs[j]
			use := v.Settings[nic.VDPA]
			if v.Settings, v.Limits = nil, nil; use != "" && use != "none" { // that there could be one is a setting
				v.Settings = nic.Settings{nic.VDPA: use}
			}
		}
		for j := range p.SFs {
			p.SFs[j].Settings, p.SFs[j].Limits = nil, nil
		}
	}
	for i := range s.Bonds {
		s.Bonds[i].Active = ""
	}
	return s
}

// drained is what has been told so far.
func drained(changes <-chan host.Change) (out []host.Change) {
	for {
		synctest.Wait()
		select {
		case c := <-changes:
			out = append(out, c)
		default:
			return out
		}
	}
}
