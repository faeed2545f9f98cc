package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NICPolicy is what is wanted of the NICs of any number of nodes. The controller
// makes of all policies that choose a node the spec of its NodeNIC.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready nodes",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type NICPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NICPolicySpec   `json:"spec"`
	Status NICPolicyStatus `json:"status,omitzero"`
}

// NICPolicyList is what a list of them comes in.
//
// +kubebuilder:object:root=true
type NICPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NICPolicy `json:"items"`
}

// NICPolicySpec says what is wanted of which nodes.
type NICPolicySpec struct {
	// NodeSelector chooses nodes by their labels; {} chooses all. It must be
	// there: a policy that lacks it chooses none by mistake or all by mistake.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector"`

	// Priority decides between policies that say different things of one field of
	// one PF, bond or pool: the higher one is heard. Between equal ones it is a
	// conflict, and neither changes the node.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// MaxUnavailable is how many of the policy's nodes may be in change, drained or
	// degraded at one time: a number, or a share of them such as 10%, rounded up.
	// Left out: 1.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="want a number of nodes from 1 on, or a share from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	NodeNICSpec `json:",inline"`
}

// NICPolicyStatus is what has become of a policy.
type NICPolicyStatus struct {
	// ObservedGeneration is the generation of the spec that the rest is of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Nodes is how many nodes the policy chooses, ReadyNodes how many of them are as
	// their policies want them.
	Nodes      int32 `json:"nodes"`
	ReadyNodes int32 `json:"readyNodes"`

	// NotReady are nodes that are not as wanted, in the order of their names, the
	// first 20 of them.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	NotReady []PolicyNode `json:"notReady,omitempty"`

	// Conflicts are where this policy and another say different things, the first
	// 20 of them.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Conflicts []PolicyConflict `json:"conflicts,omitempty"`

	// Conditions: Ready (all nodes are as wanted), Conflicted, Valid.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PolicyNode is a node that a policy chooses.
type PolicyNode struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// PolicyConflict is one thing of which two policies say different things.
type PolicyConflict struct {
	With    string `json:"with"`    // the other policy
	Field   string `json:"field"`   // pci/0000:03:00.0 numVfs
	Message string `json:"message"` // what both say
	Nodes   int32  `json:"nodes"`   // on how many nodes
}
