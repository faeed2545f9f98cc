package ovsdbtest

import (
	"encoding/json"
	"os"
	"testing"
)

// The database in the process is only worth something while its tables are
// those of the installed Open vSwitch.
func TestSchemaIsTheRealOne(t *testing.T) {
	sameSchema(t, "/usr/share/openvswitch/vswitch.ovsschema", schema())
}

// And that for OVN those of the installed OVN.
func TestNorthboundIsTheRealOne(t *testing.T) {
	sameSchema(t, "/usr/share/ovn/ovn-nb.ovsschema", northbound())
}

func sameSchema(t *testing.T, file string, known map[string]table) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("not compared with the real schema: %v (packages openvswitch-common, ovn-common)", err)
	}
	var real struct {
		Tables map[string]struct {
			IsRoot  bool
			Indexes [][]string
			Columns map[string]struct {
				Type    json.RawMessage
				Mutable *bool
			}
		}
	}
	if err := json.Unmarshal(b, &real); err != nil {
		t.Fatal(err)
	}
	for name, mine := range known {
		theirs, ok := real.Tables[name]
		if !ok || theirs.IsRoot != mine.root {
			t.Errorf("table %s: there %v, root %v", name, ok, theirs.IsRoot)
		}
		if mine.index != "" && (len(theirs.Indexes) != 1 || theirs.Indexes[0][0] != mine.index) {
			t.Errorf("table %s: indexes %v", name, theirs.Indexes)
		}
		for cname, c := range mine.columns {
			r, ok := theirs.Columns[cname]
			if !ok {
				t.Errorf("%s has no column %s", name, cname)
				continue
			}
			want := columnType(t, r.Type)
			want.mutable = r.Mutable == nil || *r.Mutable
			if c != want {
				t.Errorf("%s.%s: %+v, the real one is %+v", name, cname, c, want)
			}
		}
	}
}

// columnType reads a <type> of RFC 7047, 3.2.
func columnType(t *testing.T, b json.RawMessage) column {
	t.Helper()
	out := column{min: 1, max: 1, mutable: true}
	if json.Unmarshal(b, &out.atom) == nil {
		return out
	}
	var full struct {
		Key, Value json.RawMessage
		Min        *int
		Max        any
	}
	if err := json.Unmarshal(b, &full); err != nil {
		t.Fatal(err)
	}
	if full.Min != nil {
		out.min = *full.Min
	}
	switch m := full.Max.(type) {
	case string:
		out.max = -1
	case float64:
		out.max = int(m)
	}
	out.isMap = full.Value != nil
	if json.Unmarshal(full.Key, &out.atom) == nil {
		return out
	}
	var key struct {
		Type       string
		RefTable   string
		RefType    string
		MaxInteger int64
	}
	if err := json.Unmarshal(full.Key, &key); err != nil {
		t.Fatal(err)
	}
	out.atom, out.ref, out.limit = key.Type, key.RefTable, key.MaxInteger
	out.weak = key.RefType == "weak"
	return out
}
