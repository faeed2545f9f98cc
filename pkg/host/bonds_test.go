package host_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// TestB17PFsBehindABond: from a bond, which is what a bridge has as its port, to the
// PFs whose uplinks are in it; the PFs are there all the same, each with its VFs. A
// bond of other interfaces is shown without any.
func TestB17PFsBehindABond(t *testing.T) {
	var l lists
	var bond, other host.Bond
	bond.Name, bond.Ifindex, bond.Mode = "bond0", 99, nic.IEEE8023AD
	other.Name, other.Ifindex, other.Mode = "bond1", 98, nic.ActiveBackup
	for _, fn := range []int{1, 0} {
		l.pfAt(fn, 1)
		pf := fmt.Sprintf("%s%d", card, fn)
		l.link(pf, fmt.Sprintf("rep%d", fn), fmt.Sprintf("pf%dvf0", fn))
		uplink := l.link(pf, fmt.Sprintf("up%d", fn), fmt.Sprintf("p%d", fn))
		l.links[len(l.links)-1].Master = bond.Ifindex
		bond.Members = append(bond.Members, uplink)
	}
	bond.Members = append(bond.Members, l.link("0000:00:03.0", "eno1", ""))
	other.Members = []int{l.link("0000:00:03.1", "eno2", "")}
	l.bonds = []host.Bond{other, bond}
	l.links = append(l.links, bond.Link, other.Link)
	s := observe(t, l)
	want := []nic.Bond{{
		Netdev: bond.Netdev, Mode: bond.Mode, Others: []string{"eno1"},
		Members: []nic.Handle{nic.PCI(card + "0"), nic.PCI(card + "1")},
	}, {Netdev: other.Netdev, Mode: other.Mode, Others: []string{"eno2"}}}
	if d := cmp.Diff(want, s.Bonds); d != "" {
		t.Error(d)
	}
	for _, h := range want[0].Members {
		if p := s.PF(h); p == nil || !p.Uplink.Exists() || len(p.VFs) != 1 || !p.VFs[0].Rep.Exists() {
			t.Errorf("%s: %+v", h, p)
		}
	}
}

// TestB17UsesBehindABridge: what the host runs over a bridge that has the bond as its
// port runs over every PF behind the bond.
func TestB17UsesBehindABridge(t *testing.T) {
	var l lists
	l.pfAt(0, 0)
	l.pfAt(1, 0)
	members := []int{l.link(card+"0", "up0", "p0"), l.link(card+"1", "up1", "p1")}
	bond, datapath, bridge := l.link("", "bond0", ""), l.link("", "ovs-system", ""), l.link("", "br-ex", "")
	at := func(ifindex int) *host.Link { return &l.links[ifindex-10] }
	for _, m := range members {
		at(m).Master = bond
	}
	at(bond).Master = datapath
	at(datapath).Kind, at(bridge).Kind = "openvswitch", "openvswitch"
	l.uses = []host.Use{{Ifindex: bridge, What: host.DefaultRoute}}
	for _, p := range observe(t, l).PFs {
		if d := cmp.Diff([]string{host.DefaultRoute}, p.Carries); d != "" {
			t.Errorf("%s carries\n%s", p.Handle, d)
		}
	}
}
