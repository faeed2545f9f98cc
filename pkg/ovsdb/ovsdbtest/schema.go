package ovsdbtest

// column is the type of a column: a set of min to max atoms, or a map.
type column struct {
	atom    string // string, integer, boolean, uuid
	isMap   bool   // keys and values are strings
	min     int
	max     int    // -1: no limit
	ref     string // of uuid: the table of the rows referred to
	limit   int64  // of integer: the largest value; 0 no limit
	mutable bool
}

// table is a table's columns and rules.
type table struct {
	root    bool   // rows stay without anybody referring to them
	index   string // column whose values are unique
	columns map[string]column
}

// schema is the part of the Open_vSwitch schema (ovs-vswitchd.conf.db(5)) that
// the database in the process knows. A test compares it with a real server's.
func schema() map[string]table {
	one := func(atom string) column { return column{atom: atom, min: 1, max: 1, mutable: true} }
	optional := func(atom string) column { return column{atom: atom, max: 1, mutable: true} }
	strings := column{atom: "string", isMap: true, max: -1, mutable: true}
	refs := func(ref string, min int) column {
		return column{atom: "uuid", ref: ref, min: min, max: -1, mutable: true}
	}
	name := column{atom: "string", min: 1, max: 1}
	tag := optional("integer")
	tag.limit = 4095
	return map[string]table{
		"Open_vSwitch": {root: true, columns: map[string]column{
			"bridges": refs("Bridge", 0), "next_cfg": one("integer"), "cur_cfg": one("integer"),
			"other_config": strings, "external_ids": strings, "ovs_version": optional("string"),
		}},
		"Bridge": {index: "name", columns: map[string]column{
			"name": name, "datapath_type": one("string"), "ports": refs("Port", 0),
			"other_config": strings, "external_ids": strings, "fail_mode": optional("string"),
		}},
		"Port": {index: "name", columns: map[string]column{
			"name": name, "interfaces": refs("Interface", 1), "tag": tag,
			"other_config": strings, "external_ids": strings,
		}},
		"Interface": {index: "name", columns: map[string]column{
			"name": name, "type": one("string"), "ofport": optional("integer"),
			"error": optional("string"), "other_config": strings, "external_ids": strings,
			"options": strings, "mtu_request": optional("integer"),
		}},
	}
}
