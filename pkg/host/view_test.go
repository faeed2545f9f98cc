package host_test

import (
	"context"
	"fmt"
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
				done = append(done, disturb(ctx, r, s))
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

// disturb does something to the machine, refused or not, and says what.
func disturb(ctx context.Context, r *rand.Rand, s *sim.Sim) string {
	m := s.Machine()
	st, err := host.Observe(ctx, m)
	if err != nil || len(st.PFs) == 0 {
		return "nothing"
	}
	pf := st.PFs[r.IntN(len(st.PFs))]
	id := nic.VFID{PF: pf.Handle}
	var vf nic.VF
	if len(pf.VFs) > 0 {
		vf = pf.VFs[r.IntN(len(pf.VFs))]
		id.Index = vf.Index
	}
	var sf nic.SF
	if len(pf.SFs) > 0 {
		sf = pf.SFs[r.IntN(len(pf.SFs))]
	}
	anyLink := func() int {
		all := []int{pf.Uplink.Ifindex, vf.Netdev.Ifindex, vf.Rep.Netdev.Ifindex, sf.Netdev.Ifindex, sf.Rep.Ifindex}
		return all[r.IntN(len(all))]
	}
	ns := fmt.Sprint("/run/netns/pod", r.IntN(3))
	acts := []struct {
		what string
		do   func() error
	}{
		{"unbind", func() error { return m.PCI.Unbind(ctx, vf.Address) }},
		{"bind", func() error { return m.PCI.Bind(ctx, vf.Address, "") }},
		{"bind vfio-pci", func() error { return m.PCI.Bind(ctx, vf.Address, "vfio-pci") }},
		{"VFs", func() error { return m.PCI.SetVFs(ctx, pf.Handle.Name, r.IntN(pf.TotalVFs+1)) }},
		{"no VFs", func() error { return m.PCI.SetVFs(ctx, pf.Handle.Name, 0) }},
		{"vanish", func() error { return s.Vanish(id) }},
		{"switchdev", func() error { return m.Devlink.SetEswitch(ctx, pf.Handle, nic.Switchdev) }},
		{"legacy", func() error { return m.Devlink.SetEswitch(ctx, pf.Handle, nic.Legacy) }},
		{"carrier off", func() error { return s.SetCarrier(pf.Handle, false) }},
		{"carrier on", func() error { return s.SetCarrier(pf.Handle, true) }},
		{"up", func() error { return m.Links.SetUp(ctx, anyLink(), r.IntN(2) == 0) }},
		{"MTU", func() error { return m.Links.SetMTU(ctx, anyLink(), 1000+r.IntN(3000)) }},
		{"name", func() error { return m.Links.SetName(ctx, anyLink(), fmt.Sprint("new", r.IntN(1000))) }},
		{"netns", func() error { return s.AddNetns(ns) }},
		{"no netns", func() error { return s.DeleteNetns(ns) }},
		{"into a pod", func() error { return m.Links.Move(ctx, vf.Netdev.Ifindex, ns) }},
		{"SF into a pod", func() error { return m.Links.Move(ctx, sf.Netdev.Ifindex, ns) }},
		{"another interface", func() error { _, err := s.AddLink("", fmt.Sprint("veth", r.IntN(1000)), "veth"); return err }},
		{"port MAC", func() error { return m.Devlink.SetPortMAC(ctx, pf.Handle, vf.Rep.Port, nic.MAC{2, 0, 0, 0, 0, 9}) }},
		{"VF MAC", func() error {
			return m.Links.SetVFMAC(ctx, pf.Uplink.Ifindex, vf.Index, nic.MAC{2, 0, 0, 0, 0, byte(r.IntN(200))})
		}},
		{"SF", func() error { return m.Devlink.AddSF(ctx, pf.Handle, 1+r.IntN(4)) }},
		{"SF active", func() error { return m.Devlink.SetSFActive(ctx, pf.Handle, sf.Port, r.IntN(3) > 0) }},
		{"no SF", func() error { return m.Devlink.DelSF(ctx, pf.Handle, sf.Port) }},
		{"vDPA", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.VDPA, "vhost") }},
		{"no vDPA", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.VDPA, "none") }},
		{"rate", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.MaxRate, "100") }},
		{"GUID", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.NodeGUID, "00:11:22:33:44:55:66:77") }},
		{"bond", func() error { return m.Bonds.AddBond(ctx, nic.BondSpec{Name: "bond9", Mode: nic.ActiveBackup}) }},
		{"enslave", func() error {
			for _, b := range st.Bonds {
				return m.Bonds.Enslave(ctx, b.Ifindex, pf.Uplink.Ifindex)
			}
			return nil
		}},
		{"release", func() error {
			for _, b := range st.Bonds {
				return m.Bonds.Release(ctx, b.Ifindex, pf.Uplink.Ifindex)
			}
			return nil
		}},
		{"no bond", func() error { return m.Bonds.DelBond(ctx, "bond9") }},
		{"RDMA mode", func() error { return m.RDMA.SetMode(ctx, nic.RDMAExclusive) }},
	}
	a := acts[r.IntN(len(acts))]
	if a.do() != nil {
		return a.what + " (refused)"
	}
	return a.what
}
