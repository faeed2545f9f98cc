package v1alpha1

// Bond is a bond of the ports of one card. In switchdev mode the card takes it
// into hardware (VF-LAG); the bond, not its ports, is then the uplink.
type Bond struct {
	// Name of the bond's netdev: 1 to 15 characters without /, :, % and space.
	Name string `json:"name"`

	// PFs are its members, named as in PF.PF: two ports of one card or more. Each
	// counts as named by the document, also where it has no entry of its own.
	PFs []string `json:"pfs"`

	// Mode is active-backup, balance-xor or 802.3ad: those that hardware takes.
	Mode string `json:"mode"`

	// Hash is what a flow is told by, with balance-xor and 802.3ad: layer2,
	// layer2+3, layer3+4, encap2+3, encap3+4 or vlan+srcmac. Left out: as it is.
	Hash string `json:"hash,omitempty"`

	// Miimon is how often links are looked at, in ms, 1 to 60000. Left out: 100.
	Miimon *int `json:"miimon,omitempty"`

	// LACPRate is slow or fast, with 802.3ad. Left out: as it is.
	LACPRate string `json:"lacpRate,omitempty"`

	// MTU of the bond and of its members, in bytes without the Ethernet header, 68
	// to 65535: a member has none of its own.
	MTU *int `json:"mtu,omitempty"`

	// Adopt says that somebody else makes the bond (ifupdown, netplan,
	// NetworkManager, systemd-networkd): sluice waits for it and neither makes nor
	// changes it. Hash, miimon, lacpRate and mtu are then left out.
	Adopt bool `json:"adopt,omitempty"`
}
