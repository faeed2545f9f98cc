package offload

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/ovsdb"
)

var update = flag.Bool("update", false, "write the golden files")

var wanted = Port{
	Bridge: "br0", Representor: "pf0vf1", VLAN: 100, Owner: "attachment-1",
	ExternalIDs: map[string]string{"iface-id": "ns_pod", "iface-id-ver": "uid-1", "sandbox": "c1"},
}

// observed is wanted as rows, changed by f.
func observed(f func(*rows)) rows {
	bridges := []ovsdb.Bridge{{UUID: "b0", Name: "br0"}, {UUID: "b1", Name: "br1"}}
	r := rows{
		bridges: bridges,
		port: &ovsdb.Port{
			UUID: "p1", Name: "pf0vf1", Interfaces: ovsdb.Set[ovsdb.UUID]{"i1"}, Tag: ovsdb.Set[int]{100},
			ExternalIDs: ovsdb.Map{OwnerKey: "attachment-1", "other": "x"},
		},
		iface: &ovsdb.Interface{
			UUID: "i1", Name: "pf0vf1", Ofport: ovsdb.Set[int]{3},
			ExternalIDs: ovsdb.Map{"iface-id": "ns_pod", "iface-id-ver": "uid-1", "sandbox": "c1", "ovn-installed": "true"},
		},
		bridge: &bridges[0],
	}
	if f != nil {
		f(&r)
	}
	return r
}

func trunk(native uint16, vlans ...uint16) Port {
	p := wanted
	p.VLAN, p.Trunk = native, vlans
	return p
}

func TestPortSaysItsVLANs(t *testing.T) {
	if got := trunk(20, 1, 10, 11, 12, 4094).String(); got != "pf0vf1 in bridge br0 vlan 20 trunk 1,10-12,4094" {
		t.Error(got)
	}
	for _, bad := range []Port{trunk(0, []uint16{}...), trunk(0, 0, 5), trunk(0, 5, 4095), trunk(0, 7, 5)} {
		if bad.Trunk == nil {
			bad.Trunk = []uint16{}
		}
		if err := bad.check(); err == nil {
			t.Errorf("%v is taken", bad.Trunk)
		}
	}
}

func TestPlugOps(t *testing.T) {
	for name, c := range map[string]struct {
		want Port
		rows rows
	}{
		"insert": {wanted, observed(func(r *rows) { r.port, r.iface, r.bridge = nil, nil, nil })},
		"insert-without-vlan": {Port{Bridge: "br1", Representor: "pf0vf1", Owner: "o"},
			observed(func(r *rows) { r.port, r.iface, r.bridge = nil, nil, nil })},
		"already":      {wanted, observed(nil)},
		"other-vlan":   {wanted, observed(func(r *rows) { r.port.Tag = ovsdb.Set[int]{5} })},
		"no-vlan":      {func() Port { p := wanted; p.VLAN = 0; return p }(), observed(nil)},
		"insert-trunk": {trunk(20, 10, 11, 12, 4094), observed(func(r *rows) { r.port, r.iface, r.bridge = nil, nil, nil })},
		"to-trunk":     {trunk(0, 10, 11), observed(nil)},
		"trunk-already": {trunk(20, 10, 11), observed(func(r *rows) {
			r.port.Tag, r.port.Trunks, r.port.VLANMode = ovsdb.Set[int]{20}, ovsdb.Set[int]{10, 11}, ovsdb.Set[string]{"native-untagged"}
		})},
		"trunk-to-access": {wanted, observed(func(r *rows) {
			r.port.Trunks, r.port.VLANMode = ovsdb.Set[int]{10, 11}, ovsdb.Set[string]{"native-untagged"}
		})},
		"other-bridge": {wanted, observed(func(r *rows) { r.bridge = &r.bridges[1] })},
		"other-ids":    {wanted, observed(func(r *rows) { r.iface.ExternalIDs = ovsdb.Map{"iface-id-ver": "uid-0", "sandbox": "c1"} })},
	} {
		t.Run(name, func(t *testing.T) {
			ops, err := plugOps(c.want, c.rows)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, ops)
		})
	}
	golden(t, "unplug", unplugOps(observed(nil)))
}

func golden(t *testing.T, name string, ops []ovsdb.Op) {
	t.Helper()
	var b strings.Builder
	for _, o := range ops {
		b.WriteString(o.String() + "\n")
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("%s (-update writes it anew):\n%s", file, d)
	}
}

func TestPlugOpsRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		want Port
		rows rows
		is   error
		text string
	}{
		"another owner": {wanted, observed(func(r *rows) { r.port.ExternalIDs[OwnerKey] = "attachment-2" }), ErrForeign,
			`port pf0vf1 in bridge br0 is not ours: it belongs to "attachment-2", we are "attachment-1"`},
		"nobody": {wanted, observed(func(r *rows) { delete(r.port.ExternalIDs, OwnerKey) }), ErrForeign,
			`port pf0vf1 in bridge br0 is not ours: it has no external_ids:sluice-owner`},
		"empty mark": {wanted, observed(func(r *rows) { r.port.ExternalIDs[OwnerKey] = "" }), ErrForeign,
			`port pf0vf1 in bridge br0 is not ours: it belongs to "", we are "attachment-1"`},
		"member of a bond": {wanted, observed(func(r *rows) { r.port, r.bridge, r.holder = nil, nil, "bond0" }), ErrForeign,
			`interface pf0vf1 is in port bond0 already, which is not ours`},
		"no such bridge": {wanted, observed(func(r *rows) { r.bridges = r.bridges[1:] }), ErrNoBridge,
			`no such bridge "br0" in Open vSwitch: there are br1`},
		"no bridge at all": {wanted, observed(func(r *rows) { r.bridges = nil }), ErrNoBridge,
			`no such bridge "br0" in Open vSwitch: there is none`},
		"changed between reads": {wanted, observed(func(r *rows) { r.port, r.bridge = nil, nil }), errStale, "stale"},
	} {
		ops, err := plugOps(c.want, c.rows)
		if !errors.Is(err, c.is) || err.Error() != c.text || ops != nil {
			t.Errorf("%s: got %v\n and %v", name, ops, err)
		}
	}
}
