package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// A member without an entry gets one; one with an entry keeps what it says. Both
// count as named, also where a selector has chosen them.
func TestBonds(t *testing.T) {
	p0, p1 := nic.PCI("0000:03:00.0"), nic.PCI("0000:03:00.1")
	bond0, out := "bond0", ""
	for name, c := range map[string]struct {
		text string
		want nic.Spec
	}{
		"no entries": {
			"  bonds: [{name: bond0, pfs: [ens1f1, '0000:03:00.0'], mode: active-backup}]\n",
			nic.Spec{
				PFs:   []nic.PFSpec{{Handle: p0, Named: true, Bond: &bond0}, {Handle: p1, Named: true, Bond: &bond0}},
				Bonds: []nic.BondSpec{{Name: "bond0", Mode: nic.ActiveBackup, Miimon: 100, Members: []nic.Handle{p0, p1}}},
			},
		},
		"all of it": {
			`
  pfs: [{select: {vendor: 15b3, device: "1017"}, eswitch: switchdev}, {pf: ens2f0, bond: none}]
  bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: 802.3ad, hash: layer3+4, miimon: 50, lacpRate: fast, mtu: 9216}]
`,
			nic.Spec{
				PFs: []nic.PFSpec{
					{Handle: p0, Named: true, Eswitch: nic.Switchdev, Bond: &bond0},
					{Handle: p1, Named: true, Eswitch: nic.Switchdev, Bond: &bond0},
					{Handle: nic.PCI("0000:41:00.0"), Named: true, Bond: &out},
				},
				Bonds: []nic.BondSpec{{
					Name: "bond0", Mode: nic.IEEE8023AD, Hash: "layer3+4", Miimon: 50, LACPRate: "fast", MTU: 9216, Members: []nic.Handle{p0, p1},
				}},
			},
		},
		"adopted": {
			"  bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: balance-xor, adopt: true}]\n",
			nic.Spec{
				PFs:   []nic.PFSpec{{Handle: p0, Named: true, Bond: &bond0}, {Handle: p1, Named: true, Bond: &bond0}},
				Bonds: []nic.BondSpec{{Name: "bond0", Mode: nic.BalanceXOR, Adopt: true, Members: []nic.Handle{p0, p1}}},
			},
		},
	} {
		if d := cmp.Diff(c.want, resolved(t, c.text, node())); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// The ports of a bond are of one card, by serial number and not by slot, and one
// document does not want them in two modes. Nothing has been touched then.
func TestB19BondOfOneCard(t *testing.T) {
	bond := "  bonds: [{name: bond0, pfs: [ens1f0, ens2f0], mode: active-backup}]\n"
	want := "spec.bonds[0].pfs: these are ports of different cards: pci/0000:03:00.0 on the card with serial number MT1, " +
		"pci/0000:41:00.0 on the card with serial number MT2: want ports of one card"
	if d := cmp.Diff(want, refused(t, bond, node())); d != "" {
		t.Error(d)
	}

	// Two slots of one card: a card may have a PCI function group for each socket.
	state := node()
	state.PFs[2].Serial = "MT1"
	resolved(t, bond, state)

	// Without serial numbers the slot decides.
	state = node()
	for i := range state.PFs {
		state.PFs[i].Serial = ""
	}
	resolved(t, "  bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: active-backup}]\n", state)
	if got := refused(t, bond, state); !strings.Contains(got, "pci/0000:41:00.0 on the card without a serial number") {
		t.Error(got)
	}

	unequal := `
  pfs: [{pf: ens1f0, eswitch: switchdev}, {pf: ens1f1, eswitch: legacy}]
  bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: active-backup}]
`
	want = "spec.bonds[0].pfs: pci/0000:03:00.0 is to be in switchdev mode by spec.pfs[0], and pci/0000:03:00.1 in legacy by spec.pfs[1]: want one mode for all ports of a bond"
	if d := cmp.Diff(want, refused(t, unequal, node())); d != "" {
		t.Error(d)
	}
}
