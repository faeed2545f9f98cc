package network

import (
	"fmt"
	"net/netip"
	"strings"
)

// Network is a logical network, whole and checked.
type Network struct {
	Name string `json:"name"` // a DNS label, unique

	// Layer 2: one switch, one broadcast domain over all nodes. Layer 3: a switch a
	// node, its block the subnet, joined by a router.
	Layer int `json:"layer"`

	// VLAN makes the network one of the physical network's; nil: an overlay.
	VLAN *VLAN `json:"vlan,omitempty"`

	// Encapsulation of an overlay, geneve or vxlan; "" with VLAN. VNI is asked of
	// OVN as the switch's tunnel key; 0: OVN chooses.
	Encapsulation string `json:"encapsulation,omitempty"`
	VNI           int    `json:"vni,omitempty"`

	Subnets []Subnet `json:"subnets"` // one, or one of each family
	Ports   int      `json:"ports"`   // of a block: a power of two

	MTU      int    `json:"mtu,omitempty"`      // of the pods' interfaces; 0: as they are
	Isolated bool   `json:"isolated,omitempty"` // ports reach gateways, not each other
	Loose    bool   `json:"loose,omitempty"`    // ports may send from any address
	Router   string `json:"router,omitempty"`   // that joins networks of the same; "": none, or of layer 3 its own

	DNS      DNS       `json:"dns,omitzero"`
	DHCP     *DHCP     `json:"dhcp,omitempty"`
	Firewall *Firewall `json:"firewall,omitempty"`
}

// VLAN is a VLAN of a physical network.
type VLAN struct {
	Physical string `json:"physical"` // as in ovn-bridge-mappings of the nodes
	ID       int    `json:"id"`       // 1 to 4094; 0: untagged
}

// Subnet is the addresses of one family.
type Subnet struct {
	Prefix  netip.Prefix   `json:"prefix"`            // masked
	Gateway netip.Addr     `json:"gateway,omitzero"`  // within Prefix; none with layer 3
	Exclude []netip.Prefix `json:"exclude,omitempty"` // never given out; within Prefix
}

// DNS is what pods are told, and what is answered in the network itself.
type DNS struct {
	Servers []netip.Addr            `json:"servers,omitempty"`
	Search  []string                `json:"search,omitempty"`
	Records map[string][]netip.Addr `json:"records,omitempty"` // names in lower case
}

// DHCP has OVN answer requests of the ports.
type DHCP struct {
	Lease   int               `json:"lease"`             // seconds
	Options map[string]string `json:"options,omitempty"` // of IPv4, by OVN's names, as they are
}

// Firewall is what passes to and from the ports.
type Firewall struct {
	Stateful bool   `json:"stateful,omitempty"` // by connection; else each direction by its own rules
	Default  string `json:"default"`            // allow or drop
	Rules    []Rule `json:"rules,omitempty"`    // the first that fits decides
}

// Rule lets through or drops.
type Rule struct {
	Direction string         `json:"direction"`          // in: to the ports, out: from them
	Peers     []netip.Prefix `json:"peers,omitempty"`    // the other side; none: all
	Protocol  string         `json:"protocol,omitempty"` // tcp, udp, sctp, icmp (of either family); "": any
	Ports     []PortRange    `json:"ports,omitempty"`    // destination ports; none: all
	Action    string         `json:"action"`             // allow or drop
	Log       bool           `json:"log,omitempty"`
}

// PortRange is First to Last.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (n Network) String() string {
	words := []string{fmt.Sprintf("network %s, layer %d", n.Name, n.Layer)}
	if n.VLAN != nil {
		words = append(words, fmt.Sprintf("VLAN %d of %s", n.VLAN.ID, n.VLAN.Physical))
	} else {
		words = append(words, n.Encapsulation)
	}
	for _, s := range n.Subnets {
		words = append(words, s.Prefix.String())
	}
	return strings.Join(words, ", ")
}
