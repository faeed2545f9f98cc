package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNICStatus is what the agent of the node says of it.
type NodeNICStatus struct {
	// ObservedGeneration is the generation of the spec that the rest is of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// LastGoodGeneration is the newest generation that the node has reached. Where
	// it is behind, the node is as that one wanted it.
	LastGoodGeneration int64 `json:"lastGoodGeneration,omitempty"`

	// Version of the agent.
	Version string `json:"version,omitempty"`

	// Inventory is what is there. Left out: the agent has not looked yet.
	Inventory *Inventory `json:"inventory,omitempty"`

	// Plan is what is done to get from what is to what is wanted, while that goes
	// on, and the last one when it has ended.
	Plan *Plan `json:"plan,omitempty"`

	// Pools are what kubelet is offered.
	//
	// +listType=map
	// +listMapKey=resource
	Pools []PoolStatus `json:"pools,omitempty"`

	// Pods are the interfaces that have had heavy flows since they are there, and where
	// those ran; the first 256, those with flows outside of the NIC first.
	//
	// +listType=map
	// +listMapKey=pod
	// +listMapKey=interface
	// +kubebuilder:validation:MaxItems=256
	Pods []PodOffload `json:"pods,omitempty"`

	// Conditions: Ready, Progressing, Degraded, RebootRequired, DrainRequired,
	// OffloadCapable; and of the controller Resolved and Draining.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Inventory is a summary of the node's NICs.
type Inventory struct {
	PFs int32 `json:"pfs"` // how many of them
	VFs int32 `json:"vfs"` // of all PFs
	SFs int32 `json:"sfs"` // of all PFs

	// RDMA is how network namespaces see RDMA devices: shared or exclusive.
	RDMA string `json:"rdma,omitempty"`

	// Ports are the PFs, by devlink handle.
	//
	// +listType=map
	// +listMapKey=handle
	Ports []Port `json:"ports,omitempty"`

	// Bonds of their uplinks.
	//
	// +listType=map
	// +listMapKey=name
	Bonds []InventoryBond `json:"bonds,omitempty"`

	// Offload is whether networks can be in hardware here: flows, from-wire, conntrack,
	// geneve, vxlan and open-vswitch, as `sluice observe --capabilities` names them.
	//
	// +listType=map
	// +listMapKey=name
	Offload []Capability `json:"offload,omitempty"`
}

// Capability is something that a node is able to do, or not.
type Capability struct {
	Name string `json:"name"`

	// +kubebuilder:validation:Enum=yes;no;unknown
	Answer string `json:"answer"`

	Why string `json:"why,omitempty"` // of an answer that is not yes: what was found
}

// Port is one PF.
type Port struct {
	Handle   string `json:"handle"`           // pci/0000:03:00.0
	Netdev   string `json:"netdev,omitempty"` // of the uplink
	MAC      string `json:"mac,omitempty"`    // of the uplink
	Carrier  bool   `json:"carrier"`          // of the uplink
	Vendor   string `json:"vendor,omitempty"` // PCI id
	Device   string `json:"device,omitempty"` // PCI id
	Product  string `json:"product,omitempty"`
	Serial   string `json:"serial,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Driver   string `json:"driver,omitempty"`
	LinkType string `json:"linkType,omitempty"` // ethernet or infiniband
	NUMA     int32  `json:"numa"`               // -1: not said
	Eswitch  string `json:"eswitch,omitempty"`

	VFs      int32 `json:"vfs"`
	TotalVFs int32 `json:"totalVfs"`
	SFs      int32 `json:"sfs"`

	// Carries says what of the host runs over it: such a PF is touched only by who
	// names it.
	Carries []string `json:"carries,omitempty"`
}

// InventoryBond is a bond of PFs.
type InventoryBond struct {
	Name    string   `json:"name"`
	Members []string `json:"members"` // handles
}

// Plan is the steps from what is to what is wanted.
type Plan struct {
	// Generation of the spec that it leads to; 0 if a stranger's change is mended.
	Generation int64 `json:"generation"`

	// Impact is the worst of its steps: none, link flap, drain or reboot.
	//
	// +kubebuilder:validation:Enum=none;link flap;drain;reboot
	Impact string `json:"impact"`

	// State is waiting (for its turn, or for pods to go), running, done, failed
	// (and what was touched is as before) or broken (failed, and is not).
	//
	// +kubebuilder:validation:Enum=waiting;running;done;failed;broken
	State string `json:"state"`

	// Progress is how many steps are done of how many: 3/12.
	Progress string `json:"progress"`

	// Steps in order, the first 100 of them.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Steps []PlanStep `json:"steps,omitempty"`

	// Holders are who has a device that a step would take away.
	//
	// +listType=atomic
	Holders []Holder `json:"holders,omitempty"`
}

// PlanStep is one step of a plan.
type PlanStep struct {
	Text   string `json:"text"`
	Impact string `json:"impact,omitempty"` // left out: none

	// State is left out before the step begins, then running, done or failed.
	//
	// +kubebuilder:validation:Enum=running;done;failed
	State string `json:"state,omitempty"`

	Error string `json:"error,omitempty"`
}

// Holder is a device and who has it.
type Holder struct {
	Device string `json:"device"` // pci/0000:03:00.0 vf 3

	// Pod as namespace/name; left out if no pod is known to have the device, and
	// then Why says what is known.
	Pod string `json:"pod,omitempty"`
	Why string `json:"why,omitempty"`
}

// PoolStatus is what one pool has.
type PoolStatus struct {
	Resource string `json:"resource"` // sluice.dev/fast
	Devices  int32  `json:"devices"`  // all of the pool
	Healthy  int32  `json:"healthy"`  // that kubelet may give away or has given
	InUse    int32  `json:"inUse"`    // that pods have

	// Holders are the devices that pods have, the first 256 of them.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Holders []Holder `json:"holders,omitempty"`
}

// PodOffload is where the heavy flows from a pod's interface ran when there were some
// last.
type PodOffload struct {
	Pod       string `json:"pod"`               // namespace/name
	UID       string `json:"uid,omitempty"`     // of the pod, as far as the runtime named it
	Interface string `json:"interface"`         // in the pod
	Network   string `json:"network,omitempty"` // the Network whose port it is

	// Runs says where: Hardware (all in the NIC), Partly, or Software (none).
	//
	// +kubebuilder:validation:Enum=Hardware;Partly;Software
	Runs string `json:"runs"`

	// Percent of their packets that the NIC handled, in steps of ten.
	Percent int32 `json:"percent"`

	// Reason that the heaviest of those outside is there, and Change what to change.
	Reason string `json:"reason,omitempty"`
	Change string `json:"change,omitempty"`
}

// Where flows run.
const (
	RunsHardware = "Hardware"
	RunsPartly   = "Partly"
	RunsSoftware = "Software"
)

// InHardware is the condition of a Pod that the controller sets: its heavy flows run in
// the NIC. Its reason is one of Runs...
const InHardware = "sluice.dev/InHardware"

// Types of conditions of a NodeNIC.
const (
	Ready          = "Ready"          // the node is as its spec wants it, and offers its pools
	Progressing    = "Progressing"    // a plan is waiting or being done
	Degraded       = "Degraded"       // the last plan failed, the spec cannot be done here, or a VF has gone
	RebootRequired = "RebootRequired" // what is wanted takes effect with the next boot
	DrainRequired  = "DrainRequired"  // the plan waits for pods to go that hold affected devices
	OffloadCapable = "OffloadCapable" // rules can run in hardware here
)

// Conditions of a NodeNIC that the controller sets.
const (
	Resolved = "Resolved" // the node's policies go together and fit it
	Draining = "Draining" // pods are being asked to leave the node
)

// Reasons of conditions.
const (
	ReasonAsWanted     = "AsWanted"
	ReasonIdle         = "Idle"
	ReasonChanging     = "Changing"
	ReasonWaitsForTurn = "WaitsForTurn"
	ReasonWaitsForPods = "WaitsForPods"
	ReasonRefused      = "Refused"    // nothing was touched
	ReasonRolledBack   = "RolledBack" // it is as before
	ReasonBroken       = "Broken"     // it is neither as wanted nor as before
	ReasonDrifted      = "Drifted"    // a stranger has changed something
	ReasonDeviceGone   = "DeviceGone" // a VF that is wanted went from the bus
	ReasonAtBoot       = "AtBoot"
	ReasonUnknown      = "Unknown"
	ReasonConflict     = "Conflict"
	ReasonNoInventory  = "NoInventory"
	ReasonBlocked      = "Blocked"      // an eviction is refused
	ReasonHeldUp       = "HeldUp"       // nodes wait for one that does not get any further
	ReasonNodeNotReady = "NodeNotReady" // kubelet says so, or nobody
	ReasonNodeAway     = "NodeAway"     // the node has not been heard of for some time
	ReasonNodeBack     = "NodeBack"     // and has been again, but not yet its agent
)

// States of a plan, and of a step.
const (
	PlanWaiting = "waiting"
	PlanRunning = "running"
	PlanDone    = "done"
	PlanFailed  = "failed"
	PlanBroken  = "broken"

	StepRunning = "running"
	StepDone    = "done"
	StepFailed  = "failed"
)

// Types of conditions of a NICPolicy, besides Ready.
const (
	Valid      = "Valid"      // its spec can be read whole
	Conflicted = "Conflicted" // another of equal priority says something else
)

// Annotations by which controller and agent agree about a NodeNIC. Both outlast a
// restart of either.
const (
	// AnnotationGo is the generation of spec that the node may change for now, by
	// plans that need no drain.
	AnnotationGo = Group + "/go"

	// AnnotationDrained is the generation of spec for which the pods have gone that
	// had devices which its plan takes.
	AnnotationDrained = Group + "/drained"

	// AnnotationCordoned is on a Node that the controller has made unschedulable: the
	// generation of its NodeNIC's spec. Who finds it may undo that.
	AnnotationCordoned = Group + "/cordoned"
)
