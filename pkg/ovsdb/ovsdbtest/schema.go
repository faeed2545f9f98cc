package ovsdbtest

// column is the type of a column: a set of min to max atoms, or a map.
type column struct {
	atom    string // string, integer, boolean, uuid
	isMap   bool   // keys and values are strings
	min     int
	max     int    // -1: no limit
	ref     string // of uuid: the table of the rows referred to
	weak    bool   // of a reference: it goes when the row does, which it does not keep
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
			"trunks":    {atom: "integer", max: 4096, limit: 4095, mutable: true},
			"vlan_mode": optional("string"), "other_config": strings, "external_ids": strings,
		}},
		"Interface": {index: "name", columns: map[string]column{
			"name": name, "type": one("string"), "ofport": optional("integer"),
			"error": optional("string"), "other_config": strings, "external_ids": strings,
			"options": strings, "mtu_request": optional("integer"),
		}},
	}
}

// northbound is the part of the OVN_Northbound schema (ovn-nb(5)) that it knows.
func northbound() map[string]table {
	text := column{atom: "string", min: 1, max: 1, mutable: true}
	flag := column{atom: "boolean", min: 1, max: 1, mutable: true}
	texts := column{atom: "string", max: -1, mutable: true}
	pairs := column{atom: "string", isMap: true, max: -1, mutable: true}
	refs := func(ref string, weak bool, most int) column {
		return column{atom: "uuid", ref: ref, weak: weak, max: most, mutable: true}
	}
	return map[string]table{
		"NB_Global": {root: true, columns: map[string]column{
			"name": text, "options": pairs, "external_ids": pairs,
		}},
		"Logical_Switch": {root: true, columns: map[string]column{
			"name": text, "ports": refs("Logical_Switch_Port", false, -1), "acls": refs("ACL", false, -1),
			"dns_records": refs("DNS", true, -1), "other_config": pairs, "external_ids": pairs,
		}},
		"Logical_Switch_Port": {index: "name", columns: map[string]column{
			"name": text, "type": text, "options": pairs, "addresses": texts, "port_security": texts,
			"tag":            {atom: "integer", max: 1, limit: 4095, mutable: true},
			"up":             {atom: "boolean", max: 1, mutable: true},
			"dhcpv4_options": refs("DHCP_Options", true, 1), "dhcpv6_options": refs("DHCP_Options", true, 1),
			"external_ids": pairs,
		}},
		"Logical_Router": {root: true, columns: map[string]column{
			"name": text, "ports": refs("Logical_Router_Port", false, -1), "options": pairs, "external_ids": pairs,
		}},
		"Logical_Router_Port": {index: "name", columns: map[string]column{
			"name": text, "mac": text, "networks": texts, "ipv6_ra_configs": pairs, "options": pairs, "external_ids": pairs,
		}},
		"ACL": {columns: map[string]column{
			"priority":  {atom: "integer", min: 1, max: 1, limit: 32767, mutable: true},
			"direction": text, "match": text, "action": text, "log": flag, "external_ids": pairs,
		}},
		"Port_Group": {root: true, index: "name", columns: map[string]column{
			"name": text, "ports": refs("Logical_Switch_Port", true, -1), "acls": refs("ACL", false, -1), "external_ids": pairs,
		}},
		"Address_Set":  {root: true, index: "name", columns: map[string]column{"name": text, "addresses": texts, "external_ids": pairs}},
		"DHCP_Options": {root: true, columns: map[string]column{"cidr": text, "options": pairs, "external_ids": pairs}},
		"DNS":          {root: true, columns: map[string]column{"records": pairs, "external_ids": pairs}},
	}
}
