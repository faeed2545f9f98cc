package linux

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// The netdevs of drivers without devlink ports: with a parent, without one, and with
// nothing but a number for a name.
func TestRepresentorsByName(t *testing.T) {
	const pf = "0000:3b:00.1"
	link := func(parent, port string, of nic.SwitchID) host.Link {
		return host.Link{Parent: parent, PortName: port, SwitchID: of}
	}
	uplink := link(pf, "p1", "aa")
	for name, tt := range map[string]struct {
		list []host.Link
		want map[int]bool
	}{
		"parents":          {[]host.Link{uplink, link(pf, "pf1vf0", "aa"), link("0000:3b:00.0", "pf0vf1", "aa")}, map[int]bool{0: true}},
		"numbers":          {[]host.Link{uplink, link(pf, "0", "aa"), link(pf, "2", "aa")}, map[int]bool{0: true, 2: true}},
		"no parents":       {[]host.Link{link("", "pf1vf3", "aa"), link("", "pf0vf1", "aa"), uplink}, map[int]bool{1: false, 3: true}},
		"numbers alone":    {[]host.Link{link("", "4", "aa"), uplink, link("", "5", "bb")}, map[int]bool{4: true}},
		"no switch":        {[]host.Link{link(pf, "p1", ""), link("", "0", "")}, map[int]bool{}},
		"another's uplink": {[]host.Link{link("0000:3b:00.0", "p0", "aa"), link("", "pf1vf0", "aa")}, map[int]bool{}},
	} {
		if d := cmp.Diff(tt.want, representorsByName(tt.list, nic.PCI(pf))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// What fails within something else keeps its own words.
func TestFailWithin(t *testing.T) {
	err := fail("reload", "auxiliary/mlx5_core.sf.2", &netlink.Error{Errno: unix.EIO, Text: "mlx5_core: no"})
	err = fail("activate SF", "pci/0000:03:00.0/32768", err)
	const want = "activate SF of pci/0000:03:00.0/32768: reload of auxiliary/mlx5_core.sf.2: input/output error: mlx5_core: no"
	if !errors.Is(err, unix.EIO) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
