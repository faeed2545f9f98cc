package v1alpha1

// Pool is a set of devices that pods ask for by name. It has at least one of PFs,
// Select and Filter.
//
// +kubebuilder:validation:XValidation:rule="has(self.pfs) || has(self.select) || has(self.filter)",message="want at least one of pfs, select and filter"
// +kubebuilder:validation:XValidation:rule="!has(self.range) || has(self.select)",message="range is of what select chooses: want it behind the PF in pfs, or select too"
// +kubebuilder:validation:XValidation:rule="!has(self.share) || (has(self.type) && self.type == 'hca')",message="want share with type hca alone"
type Pool struct {
	// Name of the resource, without prefix.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	Name string `json:"name"`

	// Prefix of the resource; sluice.dev when left out.
	//
	// +kubebuilder:validation:MaxLength=244
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('kubernetes.io')",message="names under kubernetes.io are Kubernetes' own: want another domain, for example sluice.dev"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('requests.')",message="requests. stands for quotas: want a prefix that does not begin with it"
	Prefix string `json:"prefix,omitempty"`

	// Type of the devices: vf, sf, or hca, the RDMA device of a PF itself, which
	// pods share. Left out: vf.
	//
	// +kubebuilder:validation:Enum=vf;sf;hca
	Type string `json:"type,omitempty"`

	// PFs are named as in PF.PF, each with an optional #RANGE of VF indexes (SF
	// numbers): 0000:03:00.0#0-3,7. The name of a bond stands for each of its PFs,
	// with the range for each.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	PFs []string `json:"pfs,omitempty"`

	// Select adds the PFs that it chooses, Range says which of their VFs or SFs.
	// Left out: all.
	Select *Select `json:"select,omitempty"`
	Range  string  `json:"range,omitempty"`

	// Optional: it is no error if a PF that PFs names is not there, or if Select
	// chooses none. So one policy can be of nodes with different cards.
	Optional bool `json:"optional,omitempty"`

	// Filter is what each device must be besides. Without PFs and Select it is
	// asked of those of every PF.
	Filter *Filter `json:"filter,omitempty"`

	// Driver that the VFs must be bound to before pods get them: kernel, vfio-pci
	// or any. Left out: kernel, or any with filter.drivers.
	//
	// +kubebuilder:validation:Enum=kernel;vfio-pci;any
	Driver string `json:"driver,omitempty"`

	// RDMA offers only devices with an RDMA device, and gives pods its device
	// files. An hca has it always.
	RDMA bool `json:"rdma,omitempty"`

	// VDPA offers only VFs with a vDPA device that is driven so: vhost, whose file
	// pods get, or virtio.
	//
	// +kubebuilder:validation:Enum=vhost;virtio
	VDPA string `json:"vdpa,omitempty"`

	// VhostNet gives pods /dev/vhost-net and /dev/net/tun.
	VhostNet bool `json:"vhostNet,omitempty"`

	// Share is how many pods at a time may use each hca, 1 to 1000.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Share *int `json:"share,omitempty"`

	// Carrier: devices are healthy only while the uplink, or the bond that it is
	// in, has carrier.
	Carrier bool `json:"carrier,omitempty"`

	// ExcludeTopology keeps NUMA nodes from the kubelet.
	ExcludeTopology bool `json:"excludeTopology,omitempty"`

	// Prefer says which devices go together in one pod: packed on as few PFs as
	// will do, spread over as many, or gpu: PFs near a GPU first, one after the
	// other. Left out: packed.
	//
	// +kubebuilder:validation:Enum=packed;spread;gpu
	Prefer string `json:"prefer,omitempty"`

	// CDI gives devices to containers by their CDI names, in place of paths.
	CDI bool `json:"cdi,omitempty"`
}

// Filter is what each device of a pool must be: it fits every field that is there,
// and of a list one of its values, compared whole. What a device does not tell
// fits nothing. At least one field must be there.
//
// +kubebuilder:validation:MinProperties=1
type Filter struct {
	// Vendors and Devices are PCI ids, four hexadecimal digits in lower case.
	// Devices are the VFs' own ids ("1018", where the PF has "1017"); of SFs and
	// HCAs the PF's.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4}$`
	Vendors []string `json:"vendors,omitempty"`
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4}$`
	Devices []string `json:"devices,omitempty"`

	// Drivers that a VF is bound to, by the kernel's name: mlx5_core, vfio-pci. Two
	// pools may share VFs out by them.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_-]+$`
	Drivers []string `json:"drivers,omitempty"`

	// Addresses are PCI addresses of VFs, or names of SFs' auxiliary devices
	// (mlx5_core.sf.4).
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+)$`
	Addresses []string `json:"addresses,omitempty"`

	// LinkType is ethernet or infiniband.
	//
	// +kubebuilder:validation:Enum=ethernet;infiniband
	LinkType string `json:"linkType,omitempty"`

	// NUMA nodes of the card, each from 0 to 1023.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=1023
	NUMA []int `json:"numa,omitempty"`

	// ACPIIndexes are the numbers that firmware gives to built-in PFs
	// (acpi_index), 1 or more.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=4294967295
	ACPIIndexes []int `json:"acpiIndexes,omitempty"`
}
