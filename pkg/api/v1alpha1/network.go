package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Network is a logical network of OVN whose ports are on the VFs of pods. Address
// ranges of two networks may overlap, unless a router joins them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Layer",type=integer,JSONPath=`.spec.layer`
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=`.spec.subnets[*].cidr`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Offloadable",type=string,JSONPath=`.status.conditions[?(@.type=="Offloadable")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="want a name of at most 40 characters: it is part of OVN's names"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="want a name without dots"
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkSpec   `json:"spec"`
	Status NetworkStatus `json:"status,omitzero"`
}

// NetworkList is what a list of them comes in.
//
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Network `json:"items"`
}

// NetworkSpec says what a network is.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.vlan) && has(self.overlay))",message="want vlan or overlay, not both"
// +kubebuilder:validation:XValidation:rule="self.layer != 3 || !has(self.vlan)",message="a VLAN-backed network is one broadcast domain: want layer 2"
// +kubebuilder:validation:XValidation:rule="self.layer != 3 || !has(self.overlay) || !has(self.overlay.vni)",message="of layer 3 each node has a switch with a VNI of its own: want no vni"
// +kubebuilder:validation:XValidation:rule="self.layer != 3 || self.subnets.all(s, !has(s.gateway))",message="of layer 3 the first address of each node's block is the gateway: want no gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.router) || !has(self.vlan)",message="the router of a VLAN-backed network is the physical network's: want no router"
// +kubebuilder:validation:XValidation:rule="!has(self.router) || self.layer == 3 || self.subnets.all(s, has(s.gateway))",message="want a gateway in each subnet for the router to have"
// +kubebuilder:validation:XValidation:rule="has(self.vlan) == has(oldSelf.vlan)",message="a network that is VLAN-backed stays so, and one that is not does: make another"
type NetworkSpec struct {
	// NodeSelector chooses the nodes that have a block of the network; left out or
	// {}: all.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Layer 2: one switch over all nodes. Layer 3: a switch a node, joined by a
	// router.
	//
	// +kubebuilder:validation:Enum=2;3
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a network stays what it is: make another"
	Layer int `json:"layer"`

	// VLAN makes it a VLAN of a physical network, without tunnels.
	VLAN *NetworkVLAN `json:"vlan,omitempty"`

	// Overlay says how it is carried between nodes. Left out, without VLAN: geneve.
	Overlay *NetworkOverlay `json:"overlay,omitempty"`

	// Subnets: one, or one of IPv4 and one of IPv6.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:XValidation:rule="self.filter(s, s.cidr.contains(':')).size() < 2 && self.filter(s, !s.cidr.contains(':')).size() < 2",message="want at most one subnet of each family"
	// +kubebuilder:validation:XValidation:rule="self.map(s, s.cidr) == oldSelf.map(s, s.cidr)",message="addresses of pods follow from the subnets: make another network"
	Subnets []NetworkSubnet `json:"subnets"`

	// PortsPerNode is how many addresses of each family a node's block has. Left
	// out: 32.
	//
	// +kubebuilder:default=32
	// +kubebuilder:validation:Enum=8;16;32;64;128;256
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="addresses of pods follow from it: make another network"
	PortsPerNode int `json:"portsPerNode,omitempty"`

	// MTU of the pods' interfaces. Left out: as they are.
	//
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9978
	MTU *int `json:"mtu,omitempty"`

	// Isolated ports reach gateways and what is behind them, not each other.
	Isolated bool `json:"isolated,omitempty"`

	// PortSecurity drops what a port sends from addresses that are not its own.
	// Left out: true.
	PortSecurity *bool `json:"portSecurity,omitempty"`

	// Router joins this network with all that name the same one. Left out: none; of
	// layer 3 one of its own.
	//
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Router string `json:"router,omitempty"`

	// DNS is what pods are told, and names that the network itself answers.
	DNS *NetworkDNS `json:"dns,omitempty"`

	// DHCP has OVN answer DHCP and DHCPv6 of the ports. Left out: nobody does; the
	// CNI plugin configures pods without it.
	DHCP *NetworkDHCP `json:"dhcp,omitempty"`

	// Firewall is what passes to and from ports. Left out: everything.
	Firewall *NetworkFirewall `json:"firewall,omitempty"`
}

// NetworkVLAN is a VLAN of a physical network.
type NetworkVLAN struct {
	// PhysicalNetwork as in external_ids:ovn-bridge-mappings of the nodes.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	PhysicalNetwork string `json:"physicalNetwork"`

	// ID of the VLAN. Left out: untagged.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	ID *int `json:"id,omitempty"`
}

// NetworkOverlay says how frames go from node to node.
//
// +kubebuilder:validation:XValidation:rule="!has(self.vni) || !has(self.encapsulation) || self.encapsulation != 'vxlan' || self.vni <= 4095",message="OVN's VXLAN has 12 bits for the network: want a vni up to 4095"
type NetworkOverlay struct {
	// Encapsulation: geneve or vxlan. Left out: geneve. Each node must have it in
	// external_ids:ovn-encap-type.
	//
	// +kubebuilder:validation:Enum=geneve;vxlan
	Encapsulation string `json:"encapsulation,omitempty"`

	// VNI that frames carry. Left out: OVN chooses. Two networks have two.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16711680
	VNI *int `json:"vni,omitempty"`
}

// NetworkSubnet is the addresses of one family.
type NetworkSubnet struct {
	// CIDR: 10.1.0.0/16.
	//
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:Pattern=`^[0-9a-f:.]+/[0-9]+$`
	CIDR string `json:"cidr"`

	// Gateway that pods have as their default route: of a VLAN the physical
	// network's router, else an address of Router. Left out: no default route; of
	// layer 3 it is the first of each block.
	//
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[0-9a-f:.]+$`
	Gateway string `json:"gateway,omitempty"`

	// Exclude are addresses and prefixes that pods never get.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f:.]+(/[0-9]+)?$`
	Exclude []string `json:"exclude,omitempty"`
}

// NetworkDNS is what pods are told of names.
type NetworkDNS struct {
	// Servers go into pods' resolv.conf and DHCP.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=39
	Servers []string `json:"servers,omitempty"`

	// Search are domains that short names are looked up in.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	// +kubebuilder:validation:items:MaxLength=253
	Search []string `json:"search,omitempty"`

	// Records are answered by OVN, whatever server is asked. All DNS traffic of the
	// network then goes through each node's processor.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Records []NetworkRecord `json:"records,omitempty"`
}

// NetworkRecord is a name and its addresses.
type NetworkRecord struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses"`
}

// NetworkDHCP has OVN answer DHCP.
type NetworkDHCP struct {
	// Lease in seconds. Left out: 3600.
	//
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	Lease *int `json:"lease,omitempty"`

	// Options of IPv4 besides addresses, router, MTU and DNS, by OVN's names (the
	// DHCP_Options of ovn-nb(5)), with values as they are written there.
	//
	// +kubebuilder:validation:MaxProperties=32
	Options map[string]string `json:"options,omitempty"`
}

// NetworkFirewall says what passes to and from ports.
type NetworkFirewall struct {
	// Stateful follows connections: what answers passes, and each port takes a
	// conntrack zone of its node, of which a NIC has 255. Left out: both directions
	// have rules, and no connection is followed.
	Stateful bool `json:"stateful,omitempty"`

	// Default of what no rule fits: allow or drop. Left out: drop. ARP, neighbour
	// discovery and DHCP of the network itself pass always.
	//
	// +kubebuilder:validation:Enum=allow;drop
	Default string `json:"default,omitempty"`

	// Rules: the first that fits decides.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []NetworkRule `json:"rules,omitempty"`
}

// NetworkRule lets through or drops.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ports) || (has(self.protocol) && self.protocol in ['tcp', 'udp', 'sctp'])",message="want ports with protocol tcp, udp or sctp alone"
type NetworkRule struct {
	// Direction: in, to the ports, or out, from them.
	//
	// +kubebuilder:validation:Enum=in;out
	Direction string `json:"direction"`

	// Peers are prefixes of the other side. Left out: all.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f:.]+/[0-9]+$`
	Peers []string `json:"peers,omitempty"`

	// Protocol: tcp, udp, sctp or icmp, of either family. Left out: any.
	//
	// +kubebuilder:validation:Enum=tcp;udp;sctp;icmp
	Protocol string `json:"protocol,omitempty"`

	// Ports of the destination: 80, or 8000-8080. Left out: all.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9]+(-[0-9]+)?$`
	Ports []string `json:"ports,omitempty"`

	// Action: allow or drop.
	//
	// +kubebuilder:validation:Enum=allow;drop
	Action string `json:"action"`

	// Log what fits. Such traffic goes through each node's processor.
	Log bool `json:"log,omitempty"`
}

// NetworkStatus is what has become of a network.
type NetworkStatus struct {
	// ObservedGeneration is the generation of the spec that the rest is of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Blocks are which node has which part of the addresses. A block is a node's
	// until the node is deleted.
	//
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=5000
	Blocks []NetworkBlock `json:"blocks,omitempty"`

	// Warnings are wishes that the NICs cannot be given, and what happens instead.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Warnings []string `json:"warnings,omitempty"`

	// Traffic counts the interfaces of pods that have had heavy flows, by where those
	// ran last.
	Traffic *NetworkTraffic `json:"traffic,omitempty"`

	// Conditions: Ready (OVN has been told all of it), Offloadable (nothing in it
	// keeps its traffic out of the NICs).
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkTraffic counts interfaces.
type NetworkTraffic struct {
	Hardware int32 `json:"hardware"` // all in the NIC
	Partly   int32 `json:"partly"`
	Software int32 `json:"software"` // none in the NIC
}

// NetworkBlock is a node's part of a network.
type NetworkBlock struct {
	Node  string `json:"node"`
	Block int    `json:"block"` // counted from 0
}

// Offloadable is a condition of a Network.
const Offloadable = "Offloadable"
