package hosttest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func bondRules() []rule {
	return []rule{
		when("bond/life", bondLife, Bonds),
		when("bond/options", bondOptions, Bonds),
		when("bond/taken", bondTaken, Bonds),
		when("bond/impossible", impossibleBonds, Bonds),
		when("bond/nowhere", bondNowhere, Bonds),
		when("bond/members", bondMembers, Bonds, Software),
		when("bond/members/up", bondMembersUp, Bonds, Software),
		when("bond/members/taken", bondMembersTaken, Bonds, Software),
		when("bond/ports", bondPorts, Bonds, TwoPorts),
		when("bond/await", awaitBond, Bonds, Software),
		when("lag/life", lagLife, SRIOV, Eswitch, Bonds, TwoPorts, LAG),
		when("lag/modes", lagModes, SRIOV, Eswitch, Bonds, TwoPorts, LAG),
		when("lag/other member", lagOtherMember, SRIOV, Eswitch, Bonds, TwoPorts, LAG, Software),
		when("lag/await", awaitLAG, SRIOV, Eswitch, Bonds, TwoPorts, LAG),
		unless(LAG, "lag/not said", noLAG, SRIOV, Bonds),
	}
}

const bondName = "slcbond"

// addBond makes a bond and sees to its end.
func addBond(t *testing.T, f Fixture, b nic.BondSpec) nic.Bond {
	t.Helper()
	must(t, f.Machine.Bonds.AddBond(t.Context(), b))
	t.Cleanup(func() { dropBond(t, f, b.Name) })
	s := observe(t, f)
	got := s.Bond(b.Name)
	if got == nil {
		t.Fatalf("no bond %s right after it was made", b.Name)
	}
	return *got
}

func dropBond(t *testing.T, f Fixture, name string) {
	t.Helper()
	ctx := context.Background() // it serves clean-up too
	all, err := f.Machine.Bonds.Bonds(ctx)
	must(t, err)
	for _, b := range all {
		if b.Name != name {
			continue
		}
		for _, m := range b.Members {
			must(t, f.Machine.Bonds.Release(ctx, b.Ifindex, m))
		}
		must(t, f.Machine.Bonds.DelBond(ctx, name))
	}
}

func bondLife(t *testing.T, f Fixture) {
	before := read(t, f)
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: nic.ActiveBackup})
	if !b.Ours || !b.Up || b.Mode != nic.ActiveBackup || len(b.Members)+len(b.Others) > 0 {
		t.Errorf("right after it was made: %+v", b)
	}
	if l := linkAt(t, f.Machine.Links, b.Ifindex); l.Kind != "bond" || l.Name != bondName {
		t.Errorf("interface %+v", l)
	}
	must(t, f.Machine.Bonds.DelBond(t.Context(), bondName))
	sameSnapshot(t, before, read(t, f))
}

func bondOptions(t *testing.T, f Fixture) {
	for _, want := range []nic.BondSpec{
		{Name: bondName, Mode: nic.BalanceXOR, Hash: "layer3+4", Miimon: 50},
		{Name: bondName, Mode: nic.IEEE8023AD, Hash: "layer2+3", Miimon: 100, LACPRate: "fast"},
		{Name: bondName, Mode: nic.ActiveBackup, Miimon: 200},
	} {
		must(t, f.Machine.Bonds.AddBond(t.Context(), want))
		all, err := f.Machine.Bonds.Bonds(t.Context())
		must(t, err)
		i := slices.IndexFunc(all, func(b host.Bond) bool { return b.Name == bondName })
		if i < 0 {
			t.Fatalf("no bond %s among %+v", bondName, all)
		}
		b := all[i]
		if b.Mode != want.Mode || b.Miimon != want.Miimon || b.LACPRate != want.LACPRate || want.Hash != "" && b.Hash != want.Hash {
			t.Errorf("%+v: want %+v", b, want)
		}
		must(t, f.Machine.Bonds.DelBond(t.Context(), bondName))
	}
}

func bondTaken(t *testing.T, f Fixture) {
	want := nic.BondSpec{Name: bondName, Mode: nic.ActiveBackup}
	addBond(t, f, want)
	refused(t, f, fs.ErrExist, bondName, func() error { return f.Machine.Bonds.AddBond(t.Context(), want) })
}

func impossibleBonds(t *testing.T, f Fixture) {
	for _, bad := range []nic.BondSpec{
		{Name: "a/b", Mode: nic.ActiveBackup},
		{Name: "", Mode: nic.ActiveBackup},
		{Name: bondName, Mode: "sideways"},
		{Name: bondName, Mode: nic.BalanceXOR, Hash: "sideways"},
		{Name: bondName, Mode: nic.IEEE8023AD, LACPRate: "sideways"},
		{Name: bondName, Mode: nic.ActiveBackup, Miimon: -1},
	} {
		refused(t, f, host.ErrInvalid, bad.Name, func() error { return f.Machine.Bonds.AddBond(t.Context(), bad) })
	}
}

func bondNowhere(t *testing.T, f Fixture) {
	ctx, m := t.Context(), f.Machine.Bonds
	refused(t, f, fs.ErrNotExist, bondName, func() error { return m.DelBond(ctx, bondName) })
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: nic.ActiveBackup})
	for _, do := range []func() error{
		func() error { return m.Enslave(ctx, b.Ifindex, noIfindex) },
		func() error { return m.Enslave(ctx, noIfindex, b.Ifindex) },
		func() error { return m.Release(ctx, b.Ifindex, noIfindex) },
		func() error { return m.Release(ctx, noIfindex, b.Ifindex) },
	} {
		refused(t, f, fs.ErrNotExist, "", do)
	}
}

func membersOf(t *testing.T, f Fixture, ifindex int) []int {
	t.Helper()
	all, err := f.Machine.Bonds.Bonds(t.Context())
	must(t, err)
	for _, b := range all {
		if b.Ifindex == ifindex {
			return b.Members
		}
	}
	t.Fatalf("no bond %d", ifindex)
	return nil
}

func bondMembers(t *testing.T, f Fixture) {
	m := f.Machine.Bonds
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: nic.ActiveBackup, Miimon: 50})
	one, two := f.AddLink(t, "", "slc1"), f.AddLink(t, "", "slc2")
	for _, i := range []int{one, two} {
		enslave := func() { must(t, m.Enslave(t.Context(), b.Ifindex, i)) }
		enslave()
		untouched(t, f, enslave)
		if l := linkAt(t, f.Machine.Links, i); l.Master != b.Ifindex || !l.Up {
			t.Errorf("right after it was put in: %+v", l)
		}
	}
	if got := membersOf(t, f, b.Ifindex); len(got) != 2 || !slices.Contains(got, one) || !slices.Contains(got, two) {
		t.Errorf("members %v: want %d and %d", got, one, two)
	}
	refused(t, f, host.ErrBusy, bondName, func() error { return m.DelBond(t.Context(), bondName) })
	release := func() { must(t, m.Release(t.Context(), b.Ifindex, one)) }
	release()
	untouched(t, f, release)
	if l := linkAt(t, f.Machine.Links, one); l.Master != 0 || !l.Up {
		t.Errorf("right after it was taken out: %+v", l)
	}
	if got := membersOf(t, f, b.Ifindex); !slices.Equal(got, []int{two}) {
		t.Errorf("members %v: want %d", got, two)
	}
}

// bondMembersUp: what is up goes in, and keeps an address and MTU of its own for
// the time after.
func bondMembersUp(t *testing.T, f Fixture) {
	m := f.Machine.Bonds
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: nic.BalanceXOR})
	one, two := f.AddLink(t, "", "slc1"), f.AddLink(t, "", "slc2")
	for _, i := range []int{one, two} {
		must(t, f.Machine.Links.SetMTU(t.Context(), i, 1400))
		must(t, f.Machine.Links.SetUp(t.Context(), i, true))
	}
	before := linkAt(t, f.Machine.Links, two)
	for _, i := range []int{one, two} {
		must(t, m.Enslave(t.Context(), b.Ifindex, i))
	}
	if inside := linkAt(t, f.Machine.Links, two); inside.MAC != linkAt(t, f.Machine.Links, b.Ifindex).MAC || !inside.Up {
		t.Errorf("as a member it is %+v: want it up and with the bond's address", inside)
	}
	must(t, m.Release(t.Context(), b.Ifindex, two))
	if after := linkAt(t, f.Machine.Links, two); after.MAC != before.MAC || after.MTU != before.MTU || !after.Up {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func bondMembersTaken(t *testing.T, f Fixture) {
	m := f.Machine.Bonds
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: nic.ActiveBackup})
	c := addBond(t, f, nic.BondSpec{Name: bondName + "2", Mode: nic.ActiveBackup})
	i := f.AddLink(t, "", "slc1")
	must(t, m.Enslave(t.Context(), b.Ifindex, i))
	refused(t, f, host.ErrBusy, "", func() error { return m.Enslave(t.Context(), c.Ifindex, i) })
	untouched(t, f, func() { must(t, m.Release(t.Context(), c.Ifindex, i)) })
}

// enslavePorts puts both ports of the card into a new bond.
func enslavePorts(t *testing.T, f Fixture, mode nic.BondMode) nic.Bond {
	t.Helper()
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: mode, Miimon: 100})
	for _, h := range f.PFs[:2] {
		must(t, f.Machine.Bonds.Enslave(t.Context(), b.Ifindex, observePF(t, f, h).Uplink.Ifindex))
	}
	s := observe(t, f)
	return *s.Bond(bondName)
}

func bondPorts(t *testing.T, f Fixture) {
	b := enslavePorts(t, f, nic.ActiveBackup)
	if !slices.Equal(b.Members, f.PFs[:2]) || len(b.Others) > 0 {
		t.Errorf("members %v and %v: want %v", b.Members, b.Others, f.PFs[:2])
	}
	uplinks := []string{observePF(t, f, f.PFs[0]).Uplink.Name, observePF(t, f, f.PFs[1]).Uplink.Name}
	eventually(t, "one of the ports is the active one", func() bool {
		s := observe(t, f)
		return slices.Contains(uplinks, s.Bond(bondName).Active)
	})
	s := observe(t, f)
	if s.BondOf(f.PFs[1]) == nil {
		t.Errorf("%s is in no bond", f.PFs[1])
	}
}

// awaitBond: a bond is waited for that somebody makes meanwhile.
func awaitBond(t *testing.T, f Fixture) {
	i := f.AddLink(t, "", "slc1")
	done := make(chan error)
	go func() { done <- f.Machine.Bonds.AwaitBond(t.Context(), bondName, []int{i}) }()
	b := addBond(t, f, nic.BondSpec{Name: bondName, Mode: nic.ActiveBackup})
	must(t, f.Machine.Bonds.Enslave(t.Context(), b.Ifindex, i))
	must(t, <-done)
	must(t, f.Machine.Bonds.AwaitBond(t.Context(), bondName, []int{i}))

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.Machine.Bonds.AwaitBond(ctx, bondName+"2", nil); err == nil ||
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: want errors.Is one of %v and %v", err, context.DeadlineExceeded, fs.ErrNotExist)
	}
}

// bothIn brings both ports into a mode, with VFs that are not bound.
func bothIn(t *testing.T, f Fixture, m nic.Eswitch) {
	t.Helper()
	for _, h := range f.PFs[:2] {
		setMode(t, f, h, m)
		makeVFs(t, f, h, 2, false)
	}
}

func portAddresses(f Fixture) []string { return []string{f.PFs[0].Name, f.PFs[1].Name} }

func checkLAG(t *testing.T, f Fixture, want nic.LAG) {
	t.Helper()
	eventually(t, "LAG is "+string(want), func() bool {
		return observePF(t, f, f.PFs[0]).LAG == want && observePF(t, f, f.PFs[1]).LAG == want
	})
}

// lagLife: a bond of exactly the card's ports, both in switchdev mode, is taken by
// the hardware, and ends with the bond (mlx5/core/lag/lag.c). VFs can be bound then.
func lagLife(t *testing.T, f Fixture) {
	bothIn(t, f, nic.Switchdev)
	checkLAG(t, f, nic.LAGInactive)
	for _, mode := range []nic.BondMode{nic.ActiveBackup, nic.BalanceXOR} {
		b := enslavePorts(t, f, mode)
		must(t, f.Machine.Bonds.AwaitLAG(t.Context(), portAddresses(f)))
		if p := observePF(t, f, f.PFs[1]); p.LAG != nic.LAGActive {
			t.Errorf("right after it was waited for: %q", p.LAG)
		}
		for _, h := range f.PFs[:2] {
			must(t, f.Machine.PCI.Bind(t.Context(), observePF(t, f, h).VFs[0].Address, ""))
			represented(t, f, h)
		}
		if _, lacks := f.Lacks[RDMA]; !lacks {
			lagRDMA(t, f)
		}
		for _, h := range f.PFs[:2] {
			must(t, f.Machine.PCI.Unbind(t.Context(), observePF(t, f, h).VFs[0].Address))
		}
		must(t, f.Machine.Bonds.Release(t.Context(), b.Ifindex, observePF(t, f, f.PFs[1]).Uplink.Ifindex))
		checkLAG(t, f, nic.LAGInactive)
		dropBond(t, f, bondName)
	}
}

// lagRDMA: one RDMA device stands for both PFs; VFs keep theirs
// (drivers/infiniband/hw/mlx5/main.c).
func lagRDMA(t *testing.T, f Fixture) {
	t.Helper()
	a, b := observePF(t, f, f.PFs[0]), observePF(t, f, f.PFs[1])
	of := slices.Concat(a.RDMA, b.RDMA)
	slices.Sort(of)
	if len(slices.Compact(of)) != 1 || len(a.VFs[0].RDMA) != 1 || len(b.VFs[0].RDMA) != 1 {
		t.Errorf("RDMA devices of PFs %q %q, of VFs %q %q", a.RDMA, b.RDMA, a.VFs[0].RDMA, b.VFs[0].RDMA)
	}
}

// lagModes: unequal modes end it, equal ones bring it back by themselves.
func lagModes(t *testing.T, f Fixture) {
	bothIn(t, f, nic.Switchdev)
	enslavePorts(t, f, nic.BalanceXOR)
	must(t, f.Machine.Bonds.AwaitLAG(t.Context(), portAddresses(f)))
	must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[1].Name, 0))
	setMode(t, f, f.PFs[1], nic.Legacy)
	checkLAG(t, f, nic.LAGInactive)
	setMode(t, f, f.PFs[1], nic.Switchdev)
	checkLAG(t, f, nic.LAGActive)
}

// lagOtherMember: with anything else in the bond hardware does not take it.
func lagOtherMember(t *testing.T, f Fixture) {
	bothIn(t, f, nic.Switchdev)
	b := enslavePorts(t, f, nic.BalanceXOR)
	must(t, f.Machine.Bonds.AwaitLAG(t.Context(), portAddresses(f)))
	must(t, f.Machine.Bonds.Enslave(t.Context(), b.Ifindex, f.AddLink(t, "", "slc1")))
	checkLAG(t, f, nic.LAGInactive)
	s := observe(t, f)
	if got := s.Bond(bondName).Others; !slices.Equal(got, []string{"slc1"}) {
		t.Errorf("other members %q: want slc1", got)
	}
}

// awaitLAG: what does not come is said to be not active, within a bound.
func awaitLAG(t *testing.T, f Fixture) {
	bothIn(t, f, nic.Switchdev)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := f.Machine.Bonds.AwaitLAG(ctx, portAddresses(f))
	if err == nil || !errors.Is(err, host.ErrNotActive) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: want errors.Is one of %v and %v", err, host.ErrNotActive, context.DeadlineExceeded)
	}
}

func noLAG(t *testing.T, f Fixture) {
	if p := observePF(t, f, f.PFs[0]); p.LAG != "" {
		t.Errorf("LAG %q, which the fixture denies", p.LAG)
	}
}
