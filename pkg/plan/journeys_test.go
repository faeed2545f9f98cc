package plan

import (
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// The journeys of whole cards: bonds and VF-LAG, SFs, settings, the node.

type journey = struct {
	state nic.State
	spec  nic.Spec
}

// card is both ports of a ConnectX in mode, with n VFs each.
func card(mode nic.Eswitch, n int) nic.State {
	var s nic.State
	for i := range 2 {
		p := pf(handle(i), "mlx5_core", mode, n)
		p.Serial, p.LAG = "MT1", nic.LAGInactive
		p.Uplink.Ifindex = 2 + i
		s.PFs = append(s.PFs, p)
	}
	return s
}

// bonded puts both ports into a bond, in hardware or not.
func bonded(s nic.State, b nic.Bond, lag nic.LAG) nic.State {
	b.Netdev = nic.Netdev{Name: "bond0", Ifindex: 9, MTU: 1500, Up: true}
	b.Members = []nic.Handle{handle(0), handle(1)}
	s.Bonds = []nic.Bond{b}
	for i := range s.PFs {
		s.PFs[i].LAG = lag
	}
	return s
}

func ours() nic.Bond {
	return nic.Bond{Mode: nic.IEEE8023AD, Hash: "layer3+4", Miimon: 100, Ours: true}
}

func theirs() nic.Bond { return nic.Bond{Mode: nic.ActiveBackup, Miimon: 100} }

// both wants the same of both ports, and a bond of them where there is a mode.
func both(want nic.PFSpec, mode nic.BondMode) nic.Spec {
	var out nic.Spec
	for i := range 2 {
		want.Handle = handle(i)
		out.PFs = append(out.PFs, want)
	}
	if mode != "" {
		out.Bonds = []nic.BondSpec{{
			Name: "bond0", Mode: mode, Hash: "layer3+4", Miimon: 100, Members: []nic.Handle{handle(0), handle(1)},
		}}
	}
	return out
}

// set gives a VF of both ports what a driver offers there.
func set(s nic.State, port, vf nic.Settings) nic.State {
	for i := range s.PFs {
		s.PFs[i].Settings = over(nil, port)
		for v := range s.PFs[i].VFs {
			s.PFs[i].VFs[v].Settings = over(nil, vf)
		}
	}
	return s
}

func adopt(s nic.Spec) nic.Spec {
	s.Bonds[0].Adopt, s.Bonds[0].Mode, s.Bonds[0].Hash, s.Bonds[0].Miimon = true, nic.ActiveBackup, "", 0
	return s
}

func only(s nic.State, n int) nic.State {
	s.PFs = slices.Clone(s.PFs[:n])
	return s
}

func lagJourneys() map[string]journey {
	toSwitchdev := nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(2)}
	none := ""
	used := card(nic.Switchdev, 4)
	used.PFs[0].VFs[1].Owner = "default/web"
	return map[string]journey{
		"lag-on-a-fresh-card":    {card(nic.Legacy, 0), both(toSwitchdev, nic.IEEE8023AD)},
		"lag-with-vfs-bound":     {card(nic.Switchdev, 2), both(nic.PFSpec{}, nic.IEEE8023AD)},
		"lag-adopted":            {card(nic.Legacy, 0), adopt(both(toSwitchdev, nic.IEEE8023AD))},
		"lag-adopted-after-boot": {bonded(card(nic.Switchdev, 2), theirs(), nic.LAGInactive), adopt(both(toSwitchdev, nic.IEEE8023AD))},
		"lag-adopted-and-there":  {bonded(card(nic.Switchdev, 2), theirs(), nic.LAGActive), adopt(both(toSwitchdev, nic.IEEE8023AD))},
		"lag-broken":             {bonded(card(nic.Switchdev, 2), ours(), nic.LAGActive), both(nic.PFSpec{Bond: &none}, "")},
		"lag-and-legacy":         {bonded(card(nic.Switchdev, 2), ours(), nic.LAGActive), both(nic.PFSpec{Eswitch: nic.Legacy}, "")},
		"lag-over-steering": {
			set(bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive), nic.Settings{nic.SteeringMode: "dmfs"}, nil),
			both(nic.PFSpec{Settings: nic.Settings{nic.SteeringMode: "smfs"}}, ""),
		},
		"lag-made-anew": {bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive), both(nic.PFSpec{}, nic.BalanceXOR)},
		"lag-mtu": {bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive), func() nic.Spec {
			s := both(nic.PFSpec{}, nic.IEEE8023AD)
			s.Bonds[0].MTU = 9000
			return s
		}()},
		"regroup-with-one-vf-in-use": {only(used, 1), spec(nic.PFSpec{VFs: []nic.VFSpec{
			{Driver: nic.DriverVFIO}, {}, {Driver: nic.DriverVFIO}, {Driver: nic.DriverKernel, MTU: 9000},
		}})},
	}
}

func settingJourneys() map[string]journey {
	sf := func(s nic.State) nic.State {
		s.PFs[0].SFs = []nic.SF{{Num: 4, Port: 32772, Active: true, Attached: true,
			Netdev: nic.Netdev{Name: "s4", Ifindex: 80, MTU: 1500}, Rep: nic.Netdev{Name: "pf0sf4", Ifindex: 81, MTU: 9000},
			Settings: nic.Settings{nic.RoCE: "on"}}}
		return only(s, 1)
	}
	vf := nic.Settings{nic.VLAN: "0", nic.Trust: "off", nic.MinRate: "200", nic.MaxRate: "1000", nic.SpoofCheck: "on"}
	function := nic.Settings{nic.RoCE: "on", nic.EventQueues: "32", nic.Channels: "4"}
	rdma := func(r nic.RDMA) nic.State { return nic.State{RDMA: r} }
	return map[string]journey{
		"sfs-made": {only(card(nic.Legacy, 0), 1), spec(nic.PFSpec{Eswitch: nic.Switchdev, SFs: &[]nic.SFSpec{
			{Num: 1, MAC: ptr(mac(1)), MTU: 9000, RepMTU: 9000, Settings: nic.Settings{nic.RoCE: "off", nic.MaxRate: "100"}}, {Num: 2},
		}})},
		"sfs-removed":   {sf(card(nic.Switchdev, 1)), spec(nic.PFSpec{SFs: &[]nic.SFSpec{}})},
		"sf-changed":    {sf(card(nic.Switchdev, 1)), spec(nic.PFSpec{SFs: &[]nic.SFSpec{{Num: 4, MAC: ptr(mac(1)), Settings: nic.Settings{nic.RoCE: "off"}}}})},
		"sfs-to-legacy": {sf(card(nic.Switchdev, 1)), spec(nic.PFSpec{Eswitch: nic.Legacy})},
		"steering-in-switchdev": {
			set(sf(card(nic.Switchdev, 1)), nic.Settings{nic.SteeringMode: "dmfs", nic.Channels: "8"}, nic.Settings{nic.RoCE: "off", nic.MaxRate: "100"}),
			spec(nic.PFSpec{Settings: nic.Settings{nic.SteeringMode: "smfs"}}),
		},
		"roce-of-the-pf": {
			set(only(card(nic.Switchdev, 1), 1), nic.Settings{nic.RoCE: "on", nic.LinkMTU: "9000", nic.AdminLink: "up"}, nil),
			spec(nic.PFSpec{Settings: nic.Settings{nic.RoCE: "off"}}),
		},
		"legacy-vlan-trust-rates": {
			set(only(card(nic.Legacy, 1), 1), nil, vf),
			spec(nic.PFSpec{VFs: []nic.VFSpec{{Settings: nic.Settings{
				nic.VLAN: "7/3", nic.Trust: "on", nic.MinRate: "50", nic.MaxRate: "100",
			}}}}),
		},
		"functions-of-vfs": {
			set(only(card(nic.Switchdev, 1), 1), nil, function),
			spec(nic.PFSpec{VFs: []nic.VFSpec{{Settings: nic.Settings{nic.RoCE: "off", nic.EventQueues: "16", nic.Channels: "8"}}}}),
		},
		"rdma-now":     {rdma(nic.RDMA{Mode: nic.RDMAShared}), nic.Spec{RDMA: nic.RDMAExclusive}},
		"rdma-at-boot": {rdma(nic.RDMA{Mode: nic.RDMAShared, Fixed: true}), nic.Spec{RDMA: nic.RDMAExclusive}},
		"rdma-stays":   {rdma(nic.RDMA{Mode: nic.RDMAShared, AtBoot: nic.RDMAExclusive}), nic.Spec{RDMA: nic.RDMAShared}},
	}
}
