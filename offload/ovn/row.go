package ovn

import (
	"sluice.dev/sluice/pkg/ovsdb"
)

// Keys in external_ids of a row that is ours.
const (
	OwnerKey = "sluice-owner" // what it is; no two of a table have the same
	GroupKey = "sluice-group" // the network or router that it belongs to
	NodeKey  = "sluice-node"  // of a port: the node that has its block
)

// Database is the one that northd reads.
const Database = "OVN_Northbound"

// Tables of it.
const (
	tableSwitch     = "Logical_Switch"
	tablePort       = "Logical_Switch_Port"
	tableRouter     = "Logical_Router"
	tableRouterPort = "Logical_Router_Port"
	tableACL        = "ACL"
	tableGroup      = "Port_Group"
	tableSet        = "Address_Set"
	tableDHCP       = "DHCP_Options"
	tableDNS        = "DNS"
	tableGlobal     = "NB_Global"
)

// Row is a row that is wanted.
type Row struct {
	Table string
	Key   string // external_ids:sluice-owner
	Group string // external_ids:sluice-group
	Node  string // external_ids:sluice-node; "" for none

	// Columns by name: string, bool, int, ovsdb.Map, ovsdb.Set[string] or
	// ovsdb.Set[int]. What is not here is left as it is, or to the database.
	Columns map[string]any

	// Refs are columns that hold references, with the keys of the rows of ours that
	// they refer to. Others that the column holds stay.
	Refs map[string][]string
}

// table is what Plan needs to know of one.
type table struct {
	root   bool              // a row stays without anybody referring to it
	named  bool              // has a name
	refs   map[string]string // column of references -> table of the rows referred to
	single map[string]bool   // of them, those that hold at most one
	maps   []string          // columns that are maps and wholly ours
	sets   []string          // sets of strings
	ints   []string          // optional integers
	plain  []string          // one value each
}

// schema is the part of the northbound's that sluice writes (ovn-nb(5)).
func schema() map[string]table {
	return map[string]table{
		tableSwitch: {root: true, named: true, maps: []string{"other_config"}, plain: []string{"name"},
			refs: map[string]string{"ports": tablePort, "dns_records": tableDNS}},
		tablePort: {named: true, maps: []string{"options"}, sets: []string{"addresses", "port_security"}, ints: []string{"tag"},
			plain: []string{"name", "type"}, refs: map[string]string{"dhcpv4_options": tableDHCP, "dhcpv6_options": tableDHCP},
			single: map[string]bool{"dhcpv4_options": true, "dhcpv6_options": true}},
		tableRouter: {root: true, named: true, maps: []string{"options"}, plain: []string{"name"},
			refs: map[string]string{"ports": tableRouterPort}},
		tableRouterPort: {named: true, maps: []string{"ipv6_ra_configs"}, sets: []string{"networks"}, plain: []string{"name", "mac"}},
		tableACL:        {plain: []string{"direction", "priority", "match", "action", "log"}},
		tableGroup: {root: true, named: true, plain: []string{"name"},
			refs: map[string]string{"ports": tablePort, "acls": tableACL}},
		tableSet:  {root: true, named: true, sets: []string{"addresses"}, plain: []string{"name"}},
		tableDHCP: {root: true, maps: []string{"options"}, plain: []string{"cidr"}},
		tableDNS:  {root: true, maps: []string{"records"}},
	}
}

// order is that in which a transaction names its rows: what is referred to may come
// later.
func order() []string {
	return []string{tableRouter, tableRouterPort, tableSwitch, tableDHCP, tableDNS, tablePort, tableSet, tableGroup, tableACL}
}

// columns of a table that are read, besides _uuid and external_ids.
func (t table) columns() []string {
	out := append([]string{"_uuid", "external_ids"}, t.plain...)
	out = append(append(append(out, t.maps...), t.sets...), t.ints...)
	for c := range t.refs {
		out = append(out, c)
	}
	return out
}

// ids are the marks of a row.
func (r Row) ids() ovsdb.Map {
	m := ovsdb.Map{OwnerKey: r.Key, GroupKey: r.Group}
	if r.Node != "" {
		m[NodeKey] = r.Node
	}
	return m
}

// name is what the row is called, "" if it has no name.
func (r Row) name() string {
	s, _ := r.Columns["name"].(string)
	return s
}
