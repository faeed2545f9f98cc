package ovsdb

// The tables of the Open_vSwitch database that sluice touches, each with the
// columns that it reads (ovs-vswitchd.conf.db(5)). The lists of columns are what
// to select.

// Names of tables.
const (
	TableOpenVSwitch = "Open_vSwitch"
	TableBridge      = "Bridge"
	TablePort        = "Port"
	TableInterface   = "Interface"
)

// OpenVSwitch is the one row of the root table.
type OpenVSwitch struct {
	NextCfg     int         `json:"next_cfg"` // bumped by whoever changes something
	CurCfg      int         `json:"cur_cfg"`  // next_cfg that ovs-vswitchd has worked off
	OtherConfig Map         `json:"other_config"`
	OVSVersion  Set[string] `json:"ovs_version"`
}

// OpenVSwitchColumns are the columns of OpenVSwitch.
func OpenVSwitchColumns() []string {
	return []string{"next_cfg", "cur_cfg", "other_config", "ovs_version"}
}

// Bridge is a bridge, without the ports.
type Bridge struct {
	UUID UUID   `json:"_uuid"`
	Name string `json:"name"`
}

// BridgeColumns are the columns of Bridge.
func BridgeColumns() []string { return []string{"_uuid", "name"} }

// Port is a port of a bridge; the database keeps its name unique.
type Port struct {
	UUID        UUID        `json:"_uuid"`
	Name        string      `json:"name"`
	Interfaces  Set[UUID]   `json:"interfaces"` // more than one: an OVS bond
	Tag         Set[int]    `json:"tag"`        // access VLAN; of a trunk the native one
	Trunks      Set[int]    `json:"trunks"`     // VLANs that pass with their tags
	VLANMode    Set[string] `json:"vlan_mode"`  // none: by tag and trunks
	ExternalIDs Map         `json:"external_ids"`
}

// PortColumns are the columns of Port.
func PortColumns() []string {
	return []string{"_uuid", "name", "interfaces", "tag", "trunks", "vlan_mode", "external_ids"}
}

// Interface is a netdev in a port; the database keeps its name unique.
type Interface struct {
	UUID        UUID        `json:"_uuid"`
	Name        string      `json:"name"`
	Ofport      Set[int]    `json:"ofport"` // by ovs-vswitchd: none yet, -1 failed, else the number
	Error       Set[string] `json:"error"`  // by ovs-vswitchd: why ofport is -1
	ExternalIDs Map         `json:"external_ids"`
}

// InterfaceColumns are the columns of Interface.
func InterfaceColumns() []string {
	return []string{"_uuid", "name", "ofport", "error", "external_ids"}
}
