package why

import (
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// Facts is what was read for one port.
type Facts struct {
	Port    Port
	Flows   []Flow            // whose in_port the port is
	Netdevs map[string]Netdev // of the host, by name
	Switch  Switch
	Ways    map[string]Way // by address of a tunnel's other end

	// Recirculates says that the kernel shares recirculation with tc
	// (CONFIG_NET_TC_SKB_EXT); nil: not known. From is where that was read.
	Recirculates     *bool
	RecirculatesFrom string

	Zones int // conntrack zones that rules of tc use
}

// Port is where the flows come in.
type Port struct {
	Netdev    string    `json:"netdev"`
	Ifindex   int       `json:"ifindex"`
	VF        *nic.VFID `json:"vf,omitempty"`        // whose representor it is
	SF        *nic.SFID `json:"sf,omitempty"`        // whose representor it is
	Address   string    `json:"address,omitempty"`   // of the VF, PCI; of the SF its device
	Pod       string    `json:"pod,omitempty"`       // NAMESPACE/NAME, by our record or the kubelet
	Interface string    `json:"interface,omitempty"` // of the pod
}

// Flow is one flow of the datapath, with the kernel's rule where it has become one.
type Flow struct {
	UFID    string
	Match   string // Open vSwitch's words; "" for a rule that is not its
	Actions string
	Layer   string     // tc or ovs, as Open vSwitch prints it
	Total   tc.Counter // as Open vSwitch counts
	Used    string     // how long ago; "never"
	Rule    *tc.Rule   // in the layer tc
	Offer   *tc.Verdict
}

// Role is what a netdev is to a card.
type Role string

// The roles. A netdev that has none of the others is a stranger to every card.
const (
	RoleRepresentor Role = "representor"
	RoleUplink      Role = "uplink"
	RoleBond        Role = "bond"     // of uplinks
	RoleInternal    Role = "internal" // Open vSwitch's own: the host's end of a bridge
	RoleTunnel      Role = "tunnel"
	RoleStranger    Role = "stranger"
)

// Netdev is one of the host's.
type Netdev struct {
	Name     string
	Kind     string // rtnetlink's: veth, geneve, openvswitch; "" a physical one
	Role     Role
	SwitchID nic.SwitchID // of the card's switch; "" none
	Port     nic.Handle   // of a representor or an uplink: its PF
	Up       bool

	TCOffload string // hw-tc-offload of an uplink: on, off; "" not read

	Bridge     string // of Open vSwitch that has it; "" none
	Priority   string // Interface other_config:hw-offload-priority; "" not set
	LAG        nic.LAG
	Underneath []string // of a bond: its members
}

// Switch is Open vSwitch.
type Switch struct {
	Runs      bool   // ovs-vswitchd answers
	Error     string // why it, or its database, does not
	HWOffload bool   // other_config:hw-offload
	TCPolicy  string // none, skip_sw, skip_hw
	Offloads  *bool  // what the daemon does; nil: it does not say (before 3.7)
}

// Way is how the host gets to the other end of a tunnel.
type Way struct {
	Dev       string // the netdev that the route leaves by; "" there is no route
	Next      string // the next hop, or the other end itself
	Neighbour string // state of the neighbour entry: reachable, stale, ...; "" none
}

// Known says that the neighbour's address can be used.
func (w Way) Known() bool {
	switch w.Neighbour {
	case "", "incomplete", "failed":
		return false
	}
	return true
}
