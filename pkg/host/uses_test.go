package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
)

// What the host runs over a VLAN on a bond, and over an Open vSwitch bridge, runs
// over the ports below.
func TestWhatAPortCarries(t *testing.T) {
	var l lists
	l.pfAt(0, 1)
	l.pfAt(1, 0)
	p0, p1 := l.link(card+"0", "p0", "p0"), l.link(card+"1", "p1", "p1")
	vf := l.link(vfAt(0, 0), "v0", "")
	bond := l.link("", "bond0", "")
	vlan := l.link("", "bond0.7", "")
	datapath, bridge, other := l.link("", "ovs-system", ""), l.link("", "br-ex", ""), l.link("", "dummy0", "")
	at := func(ifindex int) *host.Link { return &l.links[ifindex-10] }
	at(p0).Master = bond
	at(vlan).Lower = bond
	at(p1).Master = datapath
	at(datapath).Kind, at(bridge).Kind = "openvswitch", "openvswitch"
	l.uses = []host.Use{
		{Ifindex: vlan, What: "address 192.0.2.7/24"}, {Ifindex: vlan, What: host.DefaultRoute},
		{Ifindex: bridge, What: "address 198.51.100.7/24"}, {Ifindex: other, What: "address 203.0.113.7/24"},
		{Ifindex: vf, What: "address 192.0.2.99/24"},
	}
	got := observe(t, l)
	want := map[string][]string{
		card + "0": {"address 192.0.2.7/24", "the default route", "address 192.0.2.99/24 (vf 0)"},
		card + "1": {"address 198.51.100.7/24"},
	}
	for _, p := range got.PFs {
		if d := cmp.Diff(want[p.Handle.Name], p.Carries); d != "" {
			t.Errorf("%s carries\n%s", p.Handle, d)
		}
	}
}
