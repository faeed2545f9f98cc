package sim_test

import (
	"testing"

	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// Property tests are worth what their machines are.
func TestRandomVariety(t *testing.T) {
	plain, full := census(t, sim.Random), census(t, sim.RandomNode)
	for _, want := range []string{
		"pf driver ", "pf driver mlx5_core", "pf driver ice", "pf driver igb", "mode ", "mode legacy", "mode switchdev",
		"autoprobe off", "vf driver ", "vf driver vfio-pci", "vf driver mlx5_core", "vf driver iavf", "vf driver igbvf",
		"away", "mac", "mtu", "rep up",
	} {
		if plain[want] < 10 || full[want] < 10 {
			t.Errorf("%q %d and %d times in 300 machines: want 10 at least", want, plain[want], full[want])
		}
	}
	for _, want := range []string{
		"pf driver generic", "infiniband", "sf active", "sf inactive", "sf away", "carries", "bond ours", "bond of others",
		"bond 802.3ad", "bond balance-xor", "bond active-backup", "bond of 1", "bond of 2", "bond with others",
		"lag active", "lag inactive in a bond", "rdma exclusive", "rdma at boot exclusive", "4 cards",
		"encap-mode none", "steering-mode smfs", "hw-tc-offload on", "roce off", "trust on", "vlan 100/3", "link-state disable",
		"min-rate 10", "max-rate 100", "event-queues 16", "vdpa vhost", "channels 1", "rx-ring 512", "gso-max-size 131072",
		"node-guid 02:00:00:00:00:00:00:07",
	} {
		if full[want] < 5 {
			t.Errorf("%q %d times in 300 machines: want 5 at least", want, full[want])
		}
	}
}

func census(t *testing.T, random func(uint64) *sim.Sim) map[string]int {
	seen := map[string]int{}
	settings := func(s nic.Settings) {
		for name, value := range s {
			seen[string(name)+" "+value]++
		}
	}
	is := func(what string, yes bool) {
		if yes {
			seen[what]++
		}
	}
	for seed := range uint64(300) {
		st := observe(t, random(seed))
		is("4 cards", len(st.Cards()) == 4)
		is("rdma "+string(st.RDMA.Mode), true)
		is("rdma at boot "+string(st.RDMA.AtBoot), true)
		for _, p := range st.PFs {
			seen["pf driver "+p.Driver]++
			seen["mode "+string(p.Eswitch)]++
			is("autoprobe off", !p.Autoprobe)
			is("infiniband", p.InfiniBand)
			is("carries", len(p.Carries) > 0)
			is("lag "+string(p.LAG), true)
			is("lag inactive in a bond", p.LAG == nic.LAGInactive && st.BondOf(p.Handle) != nil)
			settings(p.Settings)
			for _, v := range p.VFs {
				seen["vf driver "+v.Driver]++
				is("away", v.Away)
				is("mac", !v.MAC.IsZero())
				is("mtu", v.Netdev.Exists() && v.Netdev.MTU != 1500)
				is("rep up", v.Rep.Exists() && v.Rep.Netdev.Up)
				settings(v.Settings)
			}
			for _, f := range p.SFs {
				is("sf active", f.Active)
				is("sf inactive", !f.Active)
				is("sf away", f.Away)
				settings(f.Settings)
			}
		}
		for _, b := range st.Bonds {
			is("bond ours", b.Ours)
			is("bond of others", !b.Ours)
			is("bond "+string(b.Mode), true)
			is("bond of 1", len(b.Members) == 1)
			is("bond of 2", len(b.Members) == 2)
			is("bond with others", len(b.Others) > 0)
		}
	}
	return seen
}
