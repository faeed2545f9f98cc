package v1alpha1

// Bond is a bond of the ports of one card. In switchdev mode the card takes it
// into hardware (VF-LAG); the bond, not its ports, is then the uplink.
//
// +kubebuilder:validation:XValidation:rule="!has(self.hash) || self.mode != 'active-backup'",message="active-backup sends through one port and hashes nothing: want no hash, or another mode"
// +kubebuilder:validation:XValidation:rule="!has(self.lacpRate) || self.mode == '802.3ad'",message="this mode speaks no LACP: want no lacpRate, or mode 802.3ad"
// +kubebuilder:validation:XValidation:rule="!has(self.adopt) || !self.adopt || !(has(self.hash) || has(self.miimon) || has(self.lacpRate) || has(self.mtu))",message="somebody else makes this bond: want hash, miimon, lacpRate and mtu set there"
type Bond struct {
	// Name of the bond's netdev: 1 to 15 printable ASCII characters without /, :, % and
	// space.
	//
	// +kubebuilder:validation:Pattern=`^[!-$&-.0-9;-~]{1,15}$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['lo', 'all', 'default', '.', '..'])",message="the kernel keeps this name for itself: want another, for example bond0"
	// +kubebuilder:validation:XValidation:rule="self != 'none'",message="none says of a PF that it is in no bond: want another name, for example bond0"
	Name string `json:"name"`

	// PFs are its members, named as in PF.PF: two ports of one card or more. Each
	// counts as named by the document, also where it has no entry of its own.
	//
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^([a-z][a-z0-9_-]*/[!-.0-~]+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[!-$&-.0-9;-~]{1,15})$`
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a == b))",message="want each PF once"
	PFs []string `json:"pfs"`

	// Mode is active-backup, balance-xor or 802.3ad: those that hardware takes.
	//
	// +kubebuilder:validation:Enum=active-backup;balance-xor;"802.3ad"
	Mode string `json:"mode"`

	// Hash is what a flow is told by, with balance-xor and 802.3ad: layer2,
	// layer2+3, layer3+4, encap2+3, encap3+4 or vlan+srcmac. Left out: as it is.
	//
	// +kubebuilder:validation:Enum=layer2;layer2+3;layer3+4;encap2+3;encap3+4;vlan+srcmac
	Hash string `json:"hash,omitempty"`

	// Miimon is how often links are looked at, in ms, 1 to 60000. Left out: 100.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	Miimon *int `json:"miimon,omitempty"`

	// LACPRate is slow or fast, with 802.3ad. Left out: as it is.
	//
	// +kubebuilder:validation:Enum=slow;fast
	LACPRate string `json:"lacpRate,omitempty"`

	// MTU of the bond and of its members, in bytes without the Ethernet header, 68
	// to 65535: a member has none of its own.
	//
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU *int `json:"mtu,omitempty"`

	// Adopt says that somebody else makes the bond (ifupdown, netplan,
	// NetworkManager, systemd-networkd): sluice waits for it and neither makes nor
	// changes it. Hash, miimon, lacpRate and mtu are then left out.
	Adopt bool `json:"adopt,omitempty"`
}
