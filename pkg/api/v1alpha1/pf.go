package v1alpha1

// PF is the wanted state of one physical function, or of all that a selector
// chooses. It has either PF or Select.
//
// +kubebuilder:validation:XValidation:rule="has(self.pf) != has(self.select)",message="want either pf or select"
type PF struct {
	// PF names one: PCI address (0000:03:00.0, hexadecimal digits in lower case),
	// devlink handle (pci/0000:03:00.0), or the exact name of its uplink netdev.
	// A name wins over selectors: they pass over PFs that an entry names.
	//
	// +kubebuilder:validation:Pattern=`^([a-z][a-z0-9_-]*/[!-.0-~]+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[!-$&-.0-9;-~]{1,15})$`
	// +kubebuilder:validation:MaxLength=64
	PF string `json:"pf,omitempty"`

	// Select chooses any number of PFs, each of which gets all of the entry. A PF
	// over which the host itself runs is touched only where it is named.
	Select *Select `json:"select,omitempty"`

	// Optional: it is no error if there is no such PF.
	Optional bool `json:"optional,omitempty"`

	// Eswitch is legacy or switchdev.
	//
	// +kubebuilder:validation:Enum=legacy;switchdev
	Eswitch string `json:"eswitch,omitempty"`

	// InlineMode is how much of a frame's head goes into the send descriptor in
	// switchdev mode: none, link, network or transport.
	//
	// +kubebuilder:validation:Enum=none;link;network;transport
	InlineMode string `json:"inlineMode,omitempty"`

	// EncapMode is none or basic: whether the eswitch can put frames into tunnels.
	//
	// +kubebuilder:validation:Enum=none;basic
	EncapMode string `json:"encapMode,omitempty"`

	// FlowSteering is how rules get into the NIC: dmfs (by firmware), smfs (by the
	// driver) or hmfs (by hardware queues).
	//
	// +kubebuilder:validation:Enum=dmfs;smfs;hmfs
	FlowSteering string `json:"flowSteering,omitempty"`

	// HWTCOffload is the feature hw-tc-offload of the uplink: tc rules may go into
	// hardware.
	HWTCOffload *bool `json:"hwTCOffload,omitempty"`

	// MTU of the uplink, in bytes without the Ethernet header, 68 to 65535.
	//
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU *int `json:"mtu,omitempty"`

	// Link is up or down, of the uplink.
	//
	// +kubebuilder:validation:Enum=up;down
	Link string `json:"link,omitempty"`

	// RoCE says whether the PF has RDMA over Ethernet.
	RoCE *bool `json:"roce,omitempty"`

	// Bond takes the PF out of the bond that it is in. The only value is none:
	// who is in a bond is said under spec.bonds.
	//
	// +kubebuilder:validation:Enum=none
	Bond string `json:"bond,omitempty"`

	NetdevSettings `json:",inline"`

	// NumVFs is the number of VFs, from 0 to what the card has (sriov_totalvfs).
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NumVFs *int `json:"numVfs,omitempty"`

	// VFGroups say more of VFs by ranges that do not overlap.
	//
	// +kubebuilder:validation:MaxItems=64
	VFGroups []VFGroup `json:"vfGroups,omitempty"`

	// SFs are all the SFs wanted, by ranges that do not overlap. An empty list is
	// none; left out: as they are.
	//
	// +kubebuilder:validation:MaxItems=64
	SFs *[]SFGroup `json:"sfs,omitempty"`
}

// Select chooses PFs by what they are. A PF is chosen if it fits every field that
// is there; of a list, if it fits one of its values. Values are compared whole:
// what a PF does not tell fits nothing. At least one field must be there.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.device) || has(self.vendor)",message="a device is numbered by its vendor: want vendor too, for example 15b3"
type Select struct {
	// Vendor and Device are PCI ids, four hexadecimal digits in lower case (15b3,
	// "1017"). A device needs its vendor.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4}$`
	Vendor string `json:"vendor,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4}$`
	Device string `json:"device,omitempty"`

	// PFNames are exact names of uplink netdevs.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[!-$&-.0-9;-~]{1,15}$`
	PFNames []string `json:"pfNames,omitempty"`

	// Addresses are PCI addresses, 0000:03:00.0.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`
	Addresses []string `json:"addresses,omitempty"`

	// Handles are devlink handles, pci/0000:03:00.0.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[a-z][a-z0-9_-]*/[!-.0-~]+$`
	Handles []string `json:"handles,omitempty"`

	// LinkType is ethernet or infiniband.
	//
	// +kubebuilder:validation:Enum=ethernet;infiniband
	LinkType string `json:"linkType,omitempty"`

	// NUMA is the node that the card is on, from 0 to 1023 (the kernel has no more).
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	NUMA *int `json:"numa,omitempty"`

	// Driver is the PF's driver by the kernel's name, mlx5_core.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Driver string `json:"driver,omitempty"`

	// ACPIIndex is the number that firmware gives to a built-in PF (acpi_index), 1
	// to 4294967295.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	ACPIIndex *int `json:"acpiIndex,omitempty"`
}

// VFGroup is what is wanted of a range of a PF's VFs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.driver) || self.driver == 'kernel' || !(has(self.channels) || has(self.rxRing) || has(self.txRing) || has(self.gsoMaxSize) || has(self.groMaxSize) || has(self.gsoIPv4MaxSize) || has(self.groIPv4MaxSize))",message="with this driver the VF has no netdev for channels, rings and sizes: want driver kernel, or no such fields"
// +kubebuilder:validation:XValidation:rule="!has(self.driver) || self.driver == 'kernel' || !has(self.vdpa) || self.vdpa == 'none'",message="the kernel's driver makes the vDPA device: want driver kernel, or vdpa none"
type VFGroup struct {
	// Range is VF indexes such as 0-3,7; left out: all VFs.
	//
	// +kubebuilder:validation:Pattern=`^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$`
	// +kubebuilder:validation:MaxLength=256
	Range string `json:"range,omitempty"`

	// Driver is kernel (the one that the kernel picks), vfio-pci or none.
	//
	// +kubebuilder:validation:Enum=kernel;vfio-pci;none
	Driver string `json:"driver,omitempty"`

	FunctionSettings `json:",inline"`

	// GUID is a policy for InfiniBand: "stable" gives each VF a GUID that follows
	// from the card's serial number, the port and the VF's index, for node and
	// port alike; "driver" or nothing leaves it to the driver. Legacy mode.
	//
	// +kubebuilder:validation:Enum=stable;driver
	GUID string `json:"guid,omitempty"`

	// Trust lets the VF change its address and go promiscuous. Legacy mode.
	Trust *bool `json:"trust,omitempty"`

	// SpoofCheck drops frames from another source address than the VF's own.
	// Legacy mode.
	SpoofCheck *bool `json:"spoofCheck,omitempty"`

	// LinkState of the VF: auto (as the uplink's), enable or disable. Legacy mode.
	//
	// +kubebuilder:validation:Enum=auto;enable;disable
	LinkState string `json:"linkState,omitempty"`

	// VLAN is put on and taken off by the NIC. Legacy mode.
	VLAN *VLAN `json:"vlan,omitempty"`

	// VDPA is the vDPA device of the VF and who drives it: none, vhost
	// (/dev/vhost-vdpa-N, for virtual machines) or virtio (a virtio netdev here).
	// Switchdev mode.
	//
	// +kubebuilder:validation:Enum=none;vhost;virtio
	VDPA string `json:"vdpa,omitempty"`
}

// VLAN is a VF's VLAN.
//
// +kubebuilder:validation:XValidation:rule="self.id != 0 || (!has(self.qos) || self.qos == 0) && !has(self.proto)",message="id 0 is no VLAN: want an id from 1 to 4094, or id 0 alone"
type VLAN struct {
	// ID is 1 to 4094; 0 is no VLAN. It must be there.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	ID *int `json:"id"`

	// QoS is the priority, 0 to 7. Left out: 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	QoS int `json:"qos,omitempty"`

	// Proto is 802.1Q or 802.1ad. Left out: 802.1Q.
	//
	// +kubebuilder:validation:Enum="802.1Q";"802.1ad"
	Proto string `json:"proto,omitempty"`
}

// SFGroup is what is wanted of a range of a PF's SFs, which are made and active.
type SFGroup struct {
	// Range is SF numbers (sfnum) such as 1-8, from 0 to 65535. It must be there.
	//
	// +kubebuilder:validation:Pattern=`^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$`
	// +kubebuilder:validation:MaxLength=256
	Range string `json:"range"`

	FunctionSettings `json:",inline"`
}

// FunctionSettings are what VFs and SFs have in common.
type FunctionSettings struct {
	// MAC is a policy: "stable" gives each function an address that follows from
	// the card's serial number, the port and the function's index, the same after
	// every reboot; "driver" or nothing leaves it to the driver.
	//
	// +kubebuilder:validation:Enum=stable;driver
	MAC string `json:"mac,omitempty"`

	// MTU of the netdev and of the representor, in bytes without the Ethernet
	// header, 68 to 65535. Of a VF without a netdev here (vfio-pci, none), of the
	// representor alone.
	//
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU *int `json:"mtu,omitempty"`

	// RoCE says whether the function can have RDMA over Ethernet. Switchdev mode.
	RoCE *bool `json:"roce,omitempty"`

	// EventQueues is how many the function may have (max_io_eqs), 0 to 65535; they
	// bound its channels and take interrupts. Switchdev mode.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	EventQueues *int `json:"eventQueues,omitempty"`

	// MinRate and MaxRate are what the function gets at least and at most of the
	// wire: a number with Mbit or Gbit (500Mbit, 2.5Gbit), in whole Mbit/s; none
	// for no such bound.
	//
	// +kubebuilder:validation:Pattern=`^(none|[0-9]{1,10}Mbit|[0-9]{1,7}(\.[0-9]{1,3})?Gbit)$`
	MinRate string `json:"minRate,omitempty"`
	// +kubebuilder:validation:Pattern=`^(none|[0-9]{1,10}Mbit|[0-9]{1,7}(\.[0-9]{1,3})?Gbit)$`
	MaxRate string `json:"maxRate,omitempty"`

	NetdevSettings `json:",inline"`
}

// NetdevSettings are of a netdev in the host's namespace.
type NetdevSettings struct {
	// Channels is the number of combined channels, 1 to 65535.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Channels *int `json:"channels,omitempty"`

	// RxRing and TxRing are entries, 1 to 1048576.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	RxRing *int `json:"rxRing,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	TxRing *int `json:"txRing,omitempty"`

	// The most that a packet made up of segments may have, in bytes, 1500 to
	// 524280. Over 65536 is BIG TCP. More than the device takes is lowered to what
	// it takes. Of IPv4, from Linux 6.3 on, and before that of both families by
	// the first two.
	// +kubebuilder:validation:Minimum=1500
	// +kubebuilder:validation:Maximum=524280
	GSOMaxSize *int `json:"gsoMaxSize,omitempty"` // sent, IPv6
	// +kubebuilder:validation:Minimum=1500
	// +kubebuilder:validation:Maximum=524280
	GROMaxSize *int `json:"groMaxSize,omitempty"` // received, IPv6
	// +kubebuilder:validation:Minimum=1500
	// +kubebuilder:validation:Maximum=524280
	GSOIPv4MaxSize *int `json:"gsoIPv4MaxSize,omitempty"` // sent, IPv4
	// +kubebuilder:validation:Minimum=1500
	// +kubebuilder:validation:Maximum=524280
	GROIPv4MaxSize *int `json:"groIPv4MaxSize,omitempty"` // received, IPv4
}
