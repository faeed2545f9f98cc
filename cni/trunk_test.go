package cni

import (
	"slices"
	"strings"
	"testing"
)

// A trunk is VLANs and ranges of them, beside a native VLAN; the port is made with them,
// CHECK finds one that somebody has changed, and DEL leaves nothing.
func TestTrunk(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := w.pod("c1", w.vf(0, 1)).with("vlan", 20).with("trunk", []any{
		map[string]any{"minID": 100, "maxID": 102}, map[string]any{"id": 10}, map[string]any{"id": 101},
	})
	result := w.mustAdd(p)
	rep := w.state().PFs[0].VFs[1].Rep.Netdev.Name
	port := w.sw.ports[rep]
	if port.VLAN != 20 || !slices.Equal(port.Trunk, []uint16{10, 100, 101, 102}) {
		t.Fatalf("plugged as %s", port)
	}
	if err := w.check(p, result); err != nil {
		t.Fatal(err)
	}
	changed := port
	changed.Trunk = []uint16{10}
	w.sw.ports[rep] = changed
	if err := w.check(p, result); err == nil || !strings.Contains(err.Error(), `its trunk has the VLANs "10", want "10,100-102"`) {
		t.Errorf("a port that somebody has changed: %v", err)
	}
	w.sw.ports[rep] = port
	w.mustDel(p)
	w.mustBe(before, "after DEL")
}

func TestTrunkRefuses(t *testing.T) {
	w := newWorld(t)
	before := w.snap()
	p := w.pod("c1", w.vf(0, 1))
	one := func(m map[string]any) []any { return []any{m} }
	good := one(map[string]any{"id": 5})
	for name, c := range map[string]struct {
		p    pod
		want string
	}{
		"empty":          {p.with("trunk", []any{}), "want a list of VLANs, 1 to 4094"},
		"a number":       {p.with("trunk", 5), "want a list of VLANs, 1 to 4094"},
		"numbers":        {p.with("trunk", []any{5}), "want a list of VLANs, 1 to 4094"},
		"0":              {p.with("trunk", one(map[string]any{"id": 0})), "want a list of VLANs, 1 to 4094"},
		"4095":           {p.with("trunk", one(map[string]any{"minID": 4000, "maxID": 4095})), "want a list of VLANs, 1 to 4094"},
		"no end":         {p.with("trunk", one(map[string]any{"minID": 4})), "want a list of VLANs, 1 to 4094"},
		"backwards":      {p.with("trunk", one(map[string]any{"minID": 4, "maxID": 3})), "want a list of VLANs, 1 to 4094"},
		"both":           {p.with("trunk", one(map[string]any{"id": 4, "maxID": 5})), "want a list of VLANs, 1 to 4094"},
		"another":        {p.with("trunk", one(map[string]any{"vlan": 4})), "want a list of VLANs, 1 to 4094"},
		"without bridge": {p.with("trunk", good).with("bridge", nil), "trunk = 5: there is no bridge"},
		"of a Network":   {p.with("trunk", good).with("bridge", nil).with("network", "blue").with("ipam", nil), `trunk beside network = "blue"`},
		"representor":    {p.with("trunk", good).with("bridge", nil).with("attach", "representor"), "trunk = 5: VLANs are for the switch in the pod"},
	} {
		if err := w.add(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	w.mustBe(before, "after ADDs that were refused")
}
