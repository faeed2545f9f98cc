package nic

import "testing"

func TestDistance(t *testing.T) {
	const root, other = "pci0000:00", "pci0000:80"
	for _, c := range []struct {
		a, b   string
		na, nb int
		want   Near
	}{
		// Both below the downstream ports of one switch: root port, upstream port.
		{root + "/0000:00:01.0/0000:01:00.0/0000:02:01.0", root + "/0000:00:01.0/0000:01:00.0/0000:02:02.0", 0, 0, SameSwitch},
		// Functions of one device behind a root port, or devices behind an old bridge.
		{root + "/0000:00:01.0", root + "/0000:00:01.0", 0, 0, SameRootPort},
		{root + "/0000:00:01.0", root + "/0000:00:02.0", 0, 0, SameHostBridge},
		{root, root + "/0000:00:02.0", -1, -1, SameHostBridge},
		// The platform says otherwise (sub-NUMA clustering).
		{root + "/0000:00:01.0", root + "/0000:00:02.0", 0, 1, Far},
		{root + "/0000:00:01.0", other + "/0000:80:01.0", 1, 1, SameNUMA},
		{root + "/0000:00:01.0", other + "/0000:80:01.0", 0, 1, Far},
		{root, other, -1, -1, Far},
		{"", "", 0, 0, SameNUMA},
		{"", "", -1, -1, Far},
		// Names that only begin alike are different bridges.
		{root + "/0000:00:01.0", root + "/0000:00:01.1", 0, 0, SameHostBridge},
	} {
		if got := Distance(c.a, c.b, c.na, c.nb); got != c.want {
			t.Errorf("%s and %s, nodes %d and %d: %s, want %s", c.a, c.b, c.na, c.nb, got, c.want)
		}
		if got := Distance(c.b, c.a, c.nb, c.na); got != c.want {
			t.Errorf("%s and %s are not as near as the other way round: %s", c.b, c.a, got)
		}
	}
}
