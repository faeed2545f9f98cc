package hosttest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

func identityRules() []rule {
	return []rule{
		when("identity/whatever the names", whateverTheNames, SRIOV, Eswitch),
		when("identity/two ports", twoPorts, SRIOV, Eswitch, TwoPorts),
		when("identity/locality", locality, SRIOV, TwoPorts),
	}
}

// whateverTheNames: the uplink and the representors are found among interfaces that
// all have the PF as their parent, with names that would mislead a guess by first
// entry, prefix or number.
func whateverTheNames(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, 2, false)
	before := observePF(t, f, h)
	names := map[int]string{
		before.Uplink.Ifindex:            "slcz",
		before.VFs[0].Rep.Netdev.Ifindex: "0123456789abcde",
		before.VFs[1].Rep.Netdev.Ifindex: "slcz_0",
	}
	was := before.Uplink.Name
	for ifindex, name := range names {
		must(t, f.Machine.Links.SetName(t.Context(), ifindex, name))
	}
	defer func() { // the uplink outlives the rule
		must(t, f.Machine.Links.SetName(t.Context(), before.Uplink.Ifindex, was))
	}()
	after := observePF(t, f, h)
	for ifindex, name := range names {
		rename(&before, ifindex, name)
	}
	if d := cmp.Diff(still(before), still(after)); d != "" {
		t.Errorf("with other names there is another answer (-want +got):\n%s", d)
	}
}

func rename(p *nic.PF, ifindex int, name string) {
	if p.Uplink.Ifindex == ifindex {
		p.Uplink.Name = name
	}
	for i := range p.VFs {
		if p.VFs[i].Rep.Netdev.Ifindex == ifindex {
			p.VFs[i].Rep.Netdev.Name = name
		}
	}
}

// twoPorts: both ports of a card report one switch id and each has a VF 0.
func twoPorts(t *testing.T, f Fixture) {
	owner := map[int]nic.VFID{}
	for _, h := range f.PFs[:2] {
		setMode(t, f, h, nic.Switchdev)
		makeVFs(t, f, h, 2, false)
	}
	s := observe(t, f)
	a, b := s.PF(f.PFs[0]), s.PF(f.PFs[1])
	if a.SwitchID == "" || a.SwitchID != b.SwitchID {
		t.Errorf("switch ids %q and %q: want the card's", a.SwitchID, b.SwitchID)
	}
	if a.Uplink.Ifindex == b.Uplink.Ifindex || a.PortName == b.PortName {
		t.Errorf("uplinks %+v %q and %+v %q", a.Uplink, a.PortName, b.Uplink, b.PortName)
	}
	for _, p := range []*nic.PF{a, b} {
		represented(t, f, p.Handle)
		for _, v := range p.VFs {
			id := nic.VFID{PF: p.Handle, Index: v.Index}
			if other, taken := owner[v.Rep.Netdev.Ifindex]; taken {
				t.Errorf("%s and %s have one representor, %+v", id, other, v.Rep)
			}
			owner[v.Rep.Netdev.Ifindex] = id
		}
	}
}

// locality: what is done to one PF leaves the other alone.
func locality(t *testing.T, f Fixture) {
	other := f.PFs[1]
	makeVFs(t, f, other, 2, true)
	before := observePF(t, f, other)
	h := f.PFs[0]
	type step struct {
		what string
		do   func() error
	}
	steps := []step{
		{"2 VFs", func() error { return f.Machine.PCI.SetVFs(t.Context(), h.Name, 2) }},
		{"autoprobe off", func() error { return f.Machine.PCI.SetAutoprobe(t.Context(), h.Name, false) }},
		{"no VFs", func() error { return f.Machine.PCI.SetVFs(t.Context(), h.Name, 0) }},
	}
	if before.Eswitch != "" {
		for _, m := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
			steps = append(steps, step{
				fmt.Sprintf("mode %s", m), func() error { return f.Machine.Devlink.SetEswitch(t.Context(), h, m) },
			})
		}
	}
	for _, s := range steps {
		must(t, s.do())
		if d := cmp.Diff(still(before), still(observePF(t, f, other))); d != "" {
			t.Errorf("%s of %s changed %s (-before +after):\n%s", s.what, h, other, d)
		}
	}
}

// still leaves out what a neighbour may change: carrier.
func still(p nic.PF) nic.PF {
	s := nic.State{PFs: []nic.PF{p}}.Clone()
	p = s.PFs[0]
	p.Uplink.Carrier = false
	for i := range p.VFs {
		p.VFs[i].Netdev.Carrier, p.VFs[i].Rep.Netdev.Carrier = false, false
	}
	for i := range p.SFs {
		p.SFs[i].Netdev.Carrier, p.SFs[i].Rep.Carrier = false, false
	}
	return p
}
