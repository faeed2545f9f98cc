package plan

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// refusals are wishes for bonds, SFs and settings that cannot be had, by what is
// wrong with them.
func refusals() map[string]journey {
	out := map[string]journey{}
	maps.Copy(out, bondRefusals())
	maps.Copy(out, settingRefusals())
	maps.Copy(out, sfRefusals())
	return out
}

func bondRefusals() map[string]journey {
	good := func() nic.Spec { return both(nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(2)}, nic.IEEE8023AD) }
	fresh := func() nic.State { return card(nic.Legacy, 0) }
	with := func(change func(*nic.Spec, *nic.State)) journey {
		j := journey{fresh(), good()}
		change(&j.spec, &j.state)
		return j
	}
	bond := func(change func(*nic.BondSpec)) journey {
		return with(func(s *nic.Spec, _ *nic.State) { change(&s.Bonds[0]) })
	}
	none := ""
	return map[string]journey{
		"bond with a bad name":  bond(func(b *nic.BondSpec) { b.Name = "a/b" }),
		"bond with a long name": bond(func(b *nic.BondSpec) { b.Name = "sixteen-letters-" }),
		"bond mode":             bond(func(b *nic.BondSpec) { b.Mode = "balance-rr" }),
		"bond MTU":              bond(func(b *nic.BondSpec) { b.MTU = 20000 }),
		"bond miimon":           bond(func(b *nic.BondSpec) { b.Miimon = -1 }),
		"bond without members":  bond(func(b *nic.BondSpec) { b.Members = nil }),
		"member twice":          bond(func(b *nic.BondSpec) { b.Members[1] = b.Members[0] }),
		"member that is none":   bond(func(b *nic.BondSpec) { b.Members[1] = handle(7) }),
		"half a card":           bond(func(b *nic.BondSpec) { b.Members = b.Members[:1] }),
		"member without entry":  with(func(s *nic.Spec, _ *nic.State) { s.PFs = s.PFs[:1] }),
		"member without netdev": with(func(_ *nic.Spec, st *nic.State) { st.PFs[1].Uplink = nic.Netdev{} }),
		"member of another bond": with(func(_ *nic.Spec, st *nic.State) {
			*st = bonded(*st, theirs(), nic.LAGInactive)
			st.Bonds[0].Name = "team0"
		}),
		"bond of others": with(func(_ *nic.Spec, st *nic.State) { *st = bonded(*st, theirs(), nic.LAGInactive) }),
		"bond of others, adopted in another mode": with(func(s *nic.Spec, st *nic.State) {
			*st = bonded(*st, theirs(), nic.LAGInactive)
			s.Bonds[0].Adopt = true
		}),
		"bond with another member": with(func(_ *nic.Spec, st *nic.State) {
			*st = bonded(*st, ours(), nic.LAGInactive)
			st.Bonds[0].Others = []string{"eth9"}
		}),
		"bond with another port": bond2(func(s *nic.Spec, st *nic.State) {
			st.Bonds[0].Members = append(st.Bonds[0].Members, nic.PCI("0000:13:00.0"))
			st.PFs = append(st.PFs, otherCard())
		}),
		"ports of different cards": with(func(s *nic.Spec, st *nic.State) {
			st.PFs = append(st.PFs, otherCard())
			s.PFs[1].Handle = nic.PCI("0000:13:00.0")
			s.Bonds[0].Members[1] = s.PFs[1].Handle
		}),
		"unequal modes":     with(func(s *nic.Spec, _ *nic.State) { s.PFs[1].Eswitch = nic.Legacy }),
		"unequal VF counts": with(func(s *nic.Spec, _ *nic.State) { s.PFs[1].VFCount = ptr(4) }),
		"unequal RoCE": with(func(_ *nic.Spec, st *nic.State) {
			st.PFs[0].Settings, st.PFs[1].Settings = nic.Settings{nic.RoCE: "on"}, nic.Settings{nic.RoCE: "off"}
		}),
		"bond of InfiniBand":                with(func(_ *nic.Spec, st *nic.State) { st.PFs[0].InfiniBand, st.PFs[1].InfiniBand = true, true }),
		"unequal drivers":                   with(func(_ *nic.Spec, st *nic.State) { st.PFs[1].Driver = "ice" }),
		"LAG in legacy mode":                with(func(s *nic.Spec, _ *nic.State) { s.PFs[0].Eswitch, s.PFs[1].Eswitch = nic.Legacy, nic.Legacy }),
		"LAG that nobody tells of":          with(func(_ *nic.Spec, st *nic.State) { st.PFs[0].LAG = "" }),
		"LAG that ends for an unnamed port": {bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive), spec(nic.PFSpec{Eswitch: nic.Legacy})},
		"LAG left behind":                   {bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive), spec(nic.PFSpec{Bond: &none})},
		"LAG with ports in unequal modes":   {bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive), unequal()},
		"LAG of VFs in use": with(func(s *nic.Spec, st *nic.State) {
			*st = bonded(card(nic.Switchdev, 1), ours(), nic.LAGActive)
			st.PFs[1].VFs[0].Owner = "default/web"
			*s = both(nic.PFSpec{Bond: &none}, "")
		}),
		"MTU of a member": with(func(s *nic.Spec, _ *nic.State) { s.PFs[0].Settings = nic.Settings{nic.LinkMTU: "9000"} }),
		"link of a member that stays": {
			set(bonded(card(nic.Switchdev, 0), theirs(), nic.LAGActive), nic.Settings{nic.AdminLink: "up"}, nil),
			spec(nic.PFSpec{Settings: nic.Settings{nic.AdminLink: "down"}}),
		},
		"RoCE of a member": {
			set(bonded(card(nic.Switchdev, 0), ours(), nic.LAGActive), nic.Settings{nic.RoCE: "on"}, nil),
			both(nic.PFSpec{Settings: nic.Settings{nic.RoCE: "off"}}, ""),
		},
		"RDMA mode":         {nic.State{RDMA: nic.RDMA{Mode: nic.RDMAShared}}, nic.Spec{RDMA: "private"}},
		"RDMA without RDMA": {nic.State{}, nic.Spec{RDMA: nic.RDMAExclusive}},
		"what the host runs over": with(func(_ *nic.Spec, st *nic.State) {
			st.PFs[0].Carries = []string{"address 192.0.2.7/24", "the default route"}
		}),
	}
}

// bond2 has a bond of ours in hardware.
func bond2(change func(*nic.Spec, *nic.State)) journey {
	j := journey{bonded(card(nic.Switchdev, 1), ours(), nic.LAGInactive), both(nic.PFSpec{}, nic.IEEE8023AD)}
	change(&j.spec, &j.state)
	return j
}

func otherCard() nic.PF {
	p := pf(nic.PCI("0000:13:00.0"), "mlx5_core", nic.Legacy, 0)
	p.Serial, p.LAG = "MT2", nic.LAGInactive
	return p
}

// unequal takes one port of two to legacy mode, and leaves the other.
func unequal() nic.Spec {
	s := both(nic.PFSpec{}, "")
	s.PFs[0].Eswitch = nic.Legacy
	return s
}

func settingRefusals() map[string]journey {
	out := map[string]journey{}
	one := func(mode nic.Eswitch, driver nic.Driver, name nic.Setting, value string, have nic.Settings) journey {
		s := set(only(card(mode, 1), 1), nil, have)
		return journey{s, spec(nic.PFSpec{VFs: []nic.VFSpec{{Driver: driver, Settings: nic.Settings{name: value}}}})}
	}
	for name, value := range map[nic.Setting]string{
		nic.Trust: "yes", nic.SpoofCheck: "true", nic.LinkState: "up", nic.VLAN: "4095", nic.NodeGUID: "00:00:00:00:00:00:00:00",
		nic.PortGUID: "02:00", nic.MinRate: "-1", nic.MaxRate: "1Gbit", nic.Channels: "0", nic.RxRing: "07",
		nic.TxRing: "many", nic.GSOMax: "0", nic.GROMax: "600000", nic.GSOMaxIPv4: "x", nic.GROMaxIPv4: " 1",
	} {
		out["value of "+string(name)] = one(nic.Legacy, "", name, value, nil)
	}
	out["value of roce"] = one(nic.Switchdev, "", nic.RoCE, "1", nil)
	out["value of event-queues"] = one(nic.Switchdev, "", nic.EventQueues, "70000", nil)
	out["value of vdpa"] = one(nic.Switchdev, "", nic.VDPA, "vfio", nil)
	for name, value := range map[nic.Setting]string{
		nic.Trust: "on", nic.SpoofCheck: "off", nic.LinkState: "auto", nic.VLAN: "7", nic.NodeGUID: "02:00:00:00:00:00:00:01",
	} {
		out[string(name)+" in switchdev mode"] = one(nic.Switchdev, "", name, value, nil)
	}
	for name, value := range map[nic.Setting]string{nic.RoCE: "off", nic.EventQueues: "16", nic.VDPA: "vhost"} {
		out[string(name)+" in legacy mode"] = one(nic.Legacy, "", name, value, nil)
	}
	out["channels without a netdev"] = one(nic.Legacy, nic.DriverVFIO, nic.Channels, "4", nil)
	out["vdpa with vfio-pci"] = one(nic.Switchdev, nic.DriverVFIO, nic.VDPA, "virtio", nil)
	out["trust that is not offered"] = one(nic.Legacy, "", nic.Trust, "on", nil)
	out["max-rate under the min-rate there is"] = one(nic.Legacy, "", nic.MaxRate, "100", nic.Settings{nic.MinRate: "200", nic.MaxRate: "0"})
	tooMany := one(nic.Legacy, "", nic.Channels, "64", nic.Settings{nic.Channels: "4"})
	tooMany.state.PFs[0].VFs[0].Limits = nic.Limits{nic.Channels: 8}
	out["too many channels"] = tooMany
	for name, value := range map[nic.Setting]string{
		nic.InlineMode: "l2", nic.EncapMode: "on", nic.SteeringMode: "sw", nic.TCOffload: "1", nic.LinkMTU: "67",
		nic.AdminLink: "on", nic.Trust: "on", "colour": "red",
	} {
		out["of a PF, "+string(name)] = journey{only(card(nic.Switchdev, 0), 1), spec(nic.PFSpec{Settings: nic.Settings{name: value}})}
	}
	return out
}

func sfRefusals() map[string]journey {
	multicast := nic.MAC{1, 0, 0, 0, 0, 1}
	sfs := func(mode nic.Eswitch, f ...nic.SFSpec) journey {
		return journey{only(card(mode, 0), 1), spec(nic.PFSpec{SFs: &f})}
	}
	return map[string]journey{
		"SFs in legacy mode": sfs(nic.Legacy, nic.SFSpec{Num: 1}),
		"SF number":          sfs(nic.Switchdev, nic.SFSpec{Num: -1}),
		"SF twice":           sfs(nic.Switchdev, nic.SFSpec{Num: 1}, nic.SFSpec{Num: 1}),
		"SF MAC":             sfs(nic.Switchdev, nic.SFSpec{Num: 1, MAC: &multicast}),
		"SF MTU":             sfs(nic.Switchdev, nic.SFSpec{Num: 1, MTU: 1, RepMTU: 10000}),
		"trust of an SF":     sfs(nic.Switchdev, nic.SFSpec{Num: 1, Settings: nic.Settings{nic.Trust: "on"}}),
		"rates of an SF":     sfs(nic.Switchdev, nic.SFSpec{Num: 1, Settings: nic.Settings{nic.MinRate: "2", nic.MaxRate: "1"}}),
	}
}

// Each is refused with the object, the wrong value, and what would work.
func TestRefusals(t *testing.T) {
	var b strings.Builder
	all := refusals()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s\n", name)
		problems := Check(all[name].spec, all[name].state)
		for _, p := range problems {
			fmt.Fprintf(&b, "    %s\n", p.Error())
		}
		if len(problems) == 0 {
			t.Errorf("%s: not refused", name)
		}
		// What goes through Complete first is refused in the same words.
		if d := gocmp.Diff(problems, Check(Complete(all[name].spec, all[name].state), all[name].state)); d != "" {
			t.Errorf("%s: completed it is refused otherwise:\n%s", name, d)
		}
	}
	const file = "testdata/refusals.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
