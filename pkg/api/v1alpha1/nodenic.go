// Package v1alpha1 is the documents that people write for sluice (group
// sluice.dev). It holds types and no logic: pkg/policy reads and resolves them.
//
// A field that is left out leaves the thing as it is, unless its comment says
// otherwise. Where 0 or false means something, the field is a pointer.
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

// NodeNICSpec says what is wanted, and how sluice goes about it. PFs that it
// neither names nor selects are left alone.
type NodeNICSpec struct {
	PFs   []PF   `json:"pfs,omitempty"`
	Bonds []Bond `json:"bonds,omitempty"`
	RDMA  *RDMA  `json:"rdma,omitempty"`
	Pools []Pool `json:"pools,omitempty"`

	// Probe is what must hold after a change for it to stay.
	Probe *Probe `json:"probe,omitempty"`

	// Protect is what no change may cut off.
	Protect *Protect `json:"protect,omitempty"`

	// Drift says what the agent does when a stranger has changed something: mend
	// it, or only report it. Left out: mend.
	Drift string `json:"drift,omitempty"`
}

// RDMA is the wanted state of the node's RDMA subsystem.
type RDMA struct {
	// Netns is shared (each network namespace sees all RDMA devices) or exclusive
	// (only its own). The kernel changes it only while there is no other
	// namespace, so it may need a reboot.
	Netns string `json:"netns,omitempty"`
}

// Pool is a set of VFs that pods ask for by name.
type Pool struct {
	// Name of the resource, without prefix.
	Name string `json:"name"`

	// Prefix of the resource; sluice.dev when left out.
	Prefix string `json:"prefix,omitempty"`

	// PFs are named as in PF.PF, each with an optional #RANGE of VF indexes:
	// 0000:03:00.0#0-3,7. The name of a bond stands for each of its PFs, with the
	// range for each.
	PFs []string `json:"pfs,omitempty"`

	// Select adds the PFs that it chooses, Range says which of their VFs. Left
	// out: all.
	Select *Select `json:"select,omitempty"`
	Range  string  `json:"range,omitempty"`

	// Driver limits the pool to VFs bound so: kernel or vfio-pci. Left out:
	// kernel.
	Driver string `json:"driver,omitempty"`

	// RDMA offers only VFs with an RDMA device, and gives pods its device files.
	RDMA bool `json:"rdma,omitempty"`
}

// Probe is what must hold after a change. If it does not within the timeout, the
// node goes back to what was before.
type Probe struct {
	// Addresses must answer an ICMP echo: IP addresses such as 192.0.2.1 or 2001:db8::1.
	Addresses []string `json:"addresses,omitempty"`

	// Connect must take a TCP connection: addresses with a port, such as
	// 192.0.2.10:6443 or [2001:db8::1]:6443, of the API server for one.
	Connect []string `json:"connect,omitempty"`

	// DefaultRoute: if there was a default route before, there must be one after,
	// over an interface that is up and has carrier.
	DefaultRoute bool `json:"defaultRoute,omitempty"`

	// Timeout is how long they may take, a duration such as 30s or 2m, from 1s to
	// 10m. Left out: 30s.
	Timeout string `json:"timeout,omitempty"`
}

// Protect is what no change may cut off. A PF over which one of its routes goes
// is touched only if the document names it.
type Protect struct {
	// RoutesTo are IP addresses, for example of the API server.
	RoutesTo []string `json:"routesTo,omitempty"`
}
