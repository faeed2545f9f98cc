package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNIC is the wanted state of the NICs of one node, and what has become of it.
// Read from a file it has no status.
//
// In Kubernetes it is named as the node and cluster-scoped: the controller writes
// its spec, and the node's agent its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Policies",type=string,JSONPath=`.status.conditions[?(@.type=="Resolved")].reason`
// +kubebuilder:printcolumn:name="PFs",type=integer,JSONPath=`.status.inventory.pfs`
// +kubebuilder:printcolumn:name="VFs",type=integer,JSONPath=`.status.inventory.vfs`
// +kubebuilder:printcolumn:name="Steps",type=string,JSONPath=`.status.plan.progress`
// +kubebuilder:printcolumn:name="Impact",type=string,JSONPath=`.status.plan.impact`
// +kubebuilder:printcolumn:name="Offload",type=string,JSONPath=`.status.conditions[?(@.type=="OffloadCapable")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type NodeNIC struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeNICSpec   `json:"spec,omitempty"`
	Status NodeNICStatus `json:"status,omitzero"`
}

// NodeNICList is what a list of them comes in.
//
// +kubebuilder:object:root=true
type NodeNICList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeNIC `json:"items"`
}

// NodeNICSpec says what is wanted, and how sluice goes about it. PFs that it
// neither names nor selects are left alone.
type NodeNICSpec struct {
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.pf) || self.exists_one(f, has(f.pf) && f.pf == e.pf))",message="want one entry for each PF"
	PFs []PF `json:"pfs,omitempty"`
	// +kubebuilder:validation:MaxItems=16
	Bonds []Bond `json:"bonds,omitempty"`
	RDMA  *RDMA  `json:"rdma,omitempty"`
	// +kubebuilder:validation:MaxItems=256
	Pools []Pool `json:"pools,omitempty"`

	// Probe is what must hold after a change for it to stay.
	Probe *Probe `json:"probe,omitempty"`

	// Protect is what no change may cut off.
	Protect *Protect `json:"protect,omitempty"`

	// OpenVSwitch is what the agent keeps of Open vSwitch's settings.
	OpenVSwitch *OpenVSwitch `json:"openVSwitch,omitempty"`

	// Drift says what the agent does when a stranger has changed something: mend
	// it, or only report it. Left out: mend.
	//
	// +kubebuilder:validation:Enum=mend;report
	Drift string `json:"drift,omitempty"`
}

// RDMA is the wanted state of the node's RDMA subsystem.
type RDMA struct {
	// Netns is shared (each network namespace sees all RDMA devices) or exclusive
	// (only its own). The kernel changes it only while there is no other
	// namespace, so it may need a reboot.
	//
	// +kubebuilder:validation:Enum=shared;exclusive
	Netns string `json:"netns,omitempty"`
}

// OpenVSwitch is what offload needs of Open vSwitch's settings (other_config of its
// database). What is left out stays as it is, and nothing is set back. Open vSwitch is
// not restarted: where a setting counts only from its next start the agent says so.
type OpenVSwitch struct {
	// HWOffload has flows handed to the NIC: hw-offload true, and tc-policy none.
	HWOffload bool `json:"hwOffload,omitempty"`

	// MaxIdle is how long a flow may rest before Open vSwitch takes it back (max-idle):
	// a duration of whole milliseconds from 500ms to 1h.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('500ms') && duration(self) <= duration('1h')",message="want a duration from 500ms to 1h, for example 30s"
	MaxIdle string `json:"maxIdle,omitempty"`

	// FlowLimit is how many flows its datapath may hold (flow-limit).
	//
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=10000000
	FlowLimit int `json:"flowLimit,omitempty"`
}

// Probe is what must hold after a change. If it does not within the timeout, the
// node goes back to what was before.
type Probe struct {
	// Addresses must answer an ICMP echo: IP addresses such as 192.0.2.1 or 2001:db8::1.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="want an IP address without prefix length or zone, for example 192.0.2.1 or 2001:db8::1"
	Addresses []string `json:"addresses,omitempty"`

	// Connect must take a TCP connection: addresses with a port, such as
	// 192.0.2.10:6443 or [2001:db8::1]:6443, of the API server for one.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=53
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9.]+:[0-9]{1,5}$|^\\\\[[0-9a-fA-F:.]+\\\\]:[0-9]{1,5}$')",message="want an IP address and a port, for example 192.0.2.10:6443 or [2001:db8::1]:6443"
	Connect []string `json:"connect,omitempty"`

	// DefaultRoute: if there was a default route before, there must be one after,
	// over an interface that is up and has carrier.
	DefaultRoute bool `json:"defaultRoute,omitempty"`

	// Timeout is how long they may take, a duration such as 30s or 2m, from 1s to
	// 10m. Left out: 30s.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="want a duration from 1s to 10m, for example 30s"
	Timeout string `json:"timeout,omitempty"`
}

// Protect is what no change may cut off. A PF over which one of its routes goes
// is touched only if the document names it.
type Protect struct {
	// RoutesTo are IP addresses, for example of the API server.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="want an IP address without prefix length or zone, for example 192.0.2.10"
	RoutesTo []string `json:"routesTo,omitempty"`
}
