// Package v1alpha1 is the documents that people write for sluice (group
// sluice.dev). It holds types and no logic: pkg/policy reads and resolves them.
package v1alpha1

// APIVersion and Kind are what a document of this package says of itself.
const (
	APIVersion  = "sluice.dev/v1alpha1"
	KindNodeNIC = "NodeNIC"
)

// NodeNIC is the wanted state of the NICs of one node.
type NodeNIC struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Metadata   Metadata    `json:"metadata"`
	Spec       NodeNICSpec `json:"spec"`
}

// Metadata names the document.
type Metadata struct {
	Name string `json:"name,omitempty"`
}

// NodeNICSpec says what is wanted. PFs that it does not name are left alone.
type NodeNICSpec struct {
	PFs   []PF   `json:"pfs,omitempty"`
	Pools []Pool `json:"pools,omitempty"`
}

// PF is the wanted state of one physical function.
type PF struct {
	// PF names it: PCI address (0000:03:00.0), devlink handle
	// (pci/0000:03:00.0), or the exact name of its uplink netdev.
	PF string `json:"pf"`

	// Eswitch is legacy or switchdev. Left out: as it is.
	Eswitch string `json:"eswitch,omitempty"`

	// NumVFs is the number of VFs. Left out: as it is.
	NumVFs *int `json:"numVfs,omitempty"`

	// VFGroups say more of VFs by ranges that do not overlap.
	VFGroups []VFGroup `json:"vfGroups,omitempty"`
}

// VFGroup is what is wanted of a range of a PF's VFs. What is left out stays as
// it is.
type VFGroup struct {
	// Range is VF indexes such as 0-3,7; left out: all VFs.
	Range string `json:"range,omitempty"`

	// Driver is kernel (the one that the kernel picks) or vfio-pci.
	Driver string `json:"driver,omitempty"`

	// MTU of the VF's netdev and of its representor, in bytes.
	MTU int `json:"mtu,omitempty"`

	// MAC is a policy: "stable" gives each VF an address that follows from the
	// card's serial number, the port and the VF's index, the same after every
	// reboot; "driver" or nothing leaves it to the driver.
	MAC string `json:"mac,omitempty"`
}

// Pool is a set of VFs that pods ask for by name.
type Pool struct {
	// Name of the resource, without prefix.
	Name string `json:"name"`

	// Prefix of the resource; sluice.dev when left out.
	Prefix string `json:"prefix,omitempty"`

	// PFs are named as in PF.PF, each with an optional #RANGE of VF indexes:
	// 0000:03:00.0#0-3,7.
	PFs []string `json:"pfs"`

	// Driver limits the pool to VFs bound so: kernel or vfio-pci. Left out:
	// kernel.
	Driver string `json:"driver,omitempty"`

	// RDMA offers only VFs with an RDMA device, and gives pods its device files.
	RDMA bool `json:"rdma,omitempty"`
}
