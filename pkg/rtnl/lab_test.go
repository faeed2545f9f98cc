package rtnl

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink/netnstest"
)

// A bond of two veths, as the kernel tells and takes it.
func TestBondInLab(t *testing.T) {
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs a kernel with bonding: lab/gotest ./pkg/rtnl")
	}
	if out, err := exec.CommandContext(t.Context(), "modprobe", "bonding", "max_bonds=0").CombinedOutput(); err != nil {
		t.Logf("modprobe bonding: %v: %s", err, out)
	}
	c, ns := inNew(t)
	a, pa := netnstest.Veth(t, ns, "a", "pa")
	b, pb := netnstest.Veth(t, ns, "b", "pb")
	for _, i := range []int{pa, pb, a} {
		must(t, c.SetUp(i, true))
	}
	before := get(t, c, a)

	bond, err := c.AddBond("bond0", BondChange{Mode: "active-backup", MIIMon: is(50)})
	must(t, err)
	if got := *get(t, c, bond).Bond; got.Mode != "active-backup" || got.MIIMon != 50 || got.HashBy == "" || got.Active != 0 || got.AD != nil {
		t.Errorf("made %+v", got)
	}
	if _, err := c.AddBond("bond0", BondChange{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("made twice: %v", err)
	}
	must(t, c.Enslave(a, bond))
	must(t, c.Enslave(a, bond)) // it is
	must(t, c.Enslave(b, bond))
	must(t, c.SetUp(bond, true))
	got := get(t, c, a)
	if got.Master != bond || !got.Up || got.Member == nil || !bytes.Equal(got.Member.MAC, before.MAC[:]) {
		t.Errorf("enslaved %+v, member %+v", got, got.Member)
	}
	eventually(t, "the bond has no carrier", func() bool { return get(t, c, bond).Carrier && get(t, c, a).Member.Carrier })
	first := get(t, c, bond).Bond.Active
	if first != a && first != b {
		t.Errorf("member %d is active", first)
	}
	// Failover: the wire of the active member is cut.
	other, wire := b, pa
	if first == b {
		other, wire = a, pb
	}
	must(t, c.SetUp(wire, false))
	eventually(t, "the other member is not active", func() bool { return get(t, c, bond).Bond.Active == other })
	if m := get(t, c, first).Member; m.Active || m.Carrier {
		t.Errorf("the member without wire: %+v", m)
	}
	must(t, c.SetUp(wire, true))
	must(t, c.SetBond(bond, BondChange{HashBy: "layer3+4", MIIMon: is(100)}))
	eventually(t, "cannot be made active", func() bool { return c.SetBond(bond, BondChange{Active: first}) == nil })
	if got := get(t, c, bond).Bond; got.HashBy != "layer3+4" || got.MIIMon != 100 || got.Active != first {
		t.Errorf("changed to %+v", got)
	}
	err = c.SetBond(bond, BondChange{Mode: "802.3ad"})
	if err == nil || !strings.Contains(err.Error(), "slaves") && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		t.Errorf("mode of a bond with members: %v", err)
	}

	must(t, c.Release(a))
	must(t, c.Release(b))
	if got := get(t, c, a); got.Master != 0 || got.Up || got.MAC != before.MAC || got.Member != nil {
		t.Errorf("released %+v", got)
	}
	must(t, c.SetUp(bond, false))
	must(t, c.SetBond(bond, BondChange{Mode: "802.3ad"}))
	must(t, c.SetBond(bond, BondChange{LACPRate: "fast"}))
	must(t, c.Enslave(a, bond))
	must(t, c.SetUp(bond, true))
	eventually(t, "no active aggregator", func() bool {
		ad := get(t, c, bond).Bond.AD
		return ad != nil && ad.Ports == 1 && ad.Aggregator == get(t, c, a).Member.Aggregator
	})
	if got := get(t, c, bond).Bond; got.LACPRate != "fast" || got.AD.Partner.IsUnicast() {
		t.Errorf("%+v, %+v", got, got.AD)
	}
	must(t, c.Delete(bond))
	if got := get(t, c, a); got.Master != 0 {
		t.Errorf("left by its bond: %+v", got)
	}
}
