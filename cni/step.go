package cni

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Step is one act of an attachment: plain data, its String a full sentence about
// it for records, errors and traces.
type Step interface {
	fmt.Stringer
	step()
}

// Dev is a netdev that a step acts on.
type Dev struct {
	Side    Side
	Name    string
	Ifindex int
}

// Side says which end of a VF a netdev is, and where.
type Side int

// The netdevs of an attachment.
const (
	Rep        Side = iota // representor on the host of a VF that a pod is given
	HostVF                 // VF's netdev in the host's namespace
	PodVF                  // VF's netdev in the pod's namespace
	HostEnd                // of a pair, in the host's namespace
	PodEnd                 // of a pair, in the pod's namespace
	HomeRep                // representor that a pod is given, in the host's namespace
	PodRep                 // representor in the pod's namespace
	HostSF                 // SF's netdev in the host's namespace
	PodSF                  // SF's netdev in the pod's namespace
	HostNetkit             // as HostEnd, of netkit
	PodNetkit              // as PodEnd, of netkit
)

func (s Side) inPod() bool {
	switch s {
	case PodVF, PodEnd, PodRep, PodSF, PodNetkit:
		return true
	}
	return false
}

func (d Dev) String() string {
	switch d.Side {
	case Rep, HomeRep:
		return "representor " + d.Name
	case PodRep:
		return "representor " + d.Name + " in the pod"
	case HostVF:
		return "VF netdev " + d.Name
	case HostSF:
		return "SF netdev " + d.Name
	case PodSF:
		return "SF netdev " + d.Name + " in the pod"
	case HostEnd:
		return "veth " + d.Name
	case HostNetkit:
		return "netkit " + d.Name
	case PodNetkit:
		return "netkit " + d.Name + " in the pod"
	case PodEnd:
		return "veth " + d.Name + " in the pod"
	default:
		return "VF netdev " + d.Name + " in the pod"
	}
}

// The steps.
type (
	SetMTU struct {
		Dev Dev
		MTU int
	}
	SetUp struct {
		Dev Dev
		Up  bool
	}
	SetMAC struct {
		Dev Dev
		MAC nic.MAC
	}
	Rename struct {
		Dev Dev
		To  string
	}
	// SetAdminMAC sets the VF's administrative address on the switch's side.
	SetAdminMAC struct {
		VF  string // PCI address, or an SF's device
		MAC nic.MAC
	}
	SetAltName struct {
		Dev  Dev
		Name string
		On   bool
	}
	SetPromisc struct {
		Dev Dev
		On  bool
	}
	// SetSetting sets what the switch's side lets the VF do.
	SetSetting struct {
		VF    string // PCI address, or an SF's device
		Name  nic.Setting
		Value string
	}
	// Move takes the VF's netdev to the pod, or to the host.
	Move struct {
		Dev Dev
		To  Side
	}
	// MoveRDMA takes an RDMA device of the VF to the pod, or to the host.
	MoveRDMA struct {
		Name string
		To   Side
	}
	// AddPair makes a pair, one end on the host and one in the pod; DelPair removes it.
	AddPair struct {
		Kind      host.PairKind
		Host, Pod string
	}
	DelPair struct {
		Kind host.PairKind
		Host string
	}

	// UnbindVF takes the driver from the VF, which is home, and BindVF gives it back: a GUID
	// takes effect when it binds. The VF's netdev and RDMA device are others then.
	UnbindVF struct{ VF string }
	BindVF   struct{ VF, Driver string }

	// Await waits for the kernel to give back the netdev of a VF whose
	// namespace is ending: it is moved to the host's when the last user of the
	// namespace is gone (net/core/dev.c, default_device_exit_net).
	Await struct {
		VF string // PCI address, or an SF's device
	}
	// AwaitFlows waits for OVN to have the port's flows in the switch.
	AwaitFlows struct{ Representor string }

	Plug   struct{ Port offload.Port }
	Unplug struct{ Representor, Owner string }

	// Lease asks the IPAM plugin for addresses, Release gives them back.
	Lease   struct{ Plugin string }
	Release struct{ Plugin string }

	AddAddress struct {
		Dev     Dev
		Address netip.Prefix
	}
	AddRoute struct {
		Dev   Dev
		Route host.Route
	}
	// SetSysctl sets what the kernel does on the pod's interface.
	SetSysctl struct {
		Dev         Dev
		Name, Value string
	}

	// Tell writes the file that programs in the pod read of their device, Untell
	// removes it.
	Tell   struct{ Of string }
	Untell struct{ Of string }

	// Announce tells the neighbours where the addresses are now.
	Announce struct {
		Dev       Dev
		Addresses []netip.Prefix
	}
)

func (SetMTU) step()      {}
func (SetUp) step()       {}
func (SetMAC) step()      {}
func (Rename) step()      {}
func (SetAdminMAC) step() {}
func (SetAltName) step()  {}
func (SetPromisc) step()  {}
func (SetSetting) step()  {}
func (Move) step()        {}
func (MoveRDMA) step()    {}
func (AddPair) step()     {}
func (DelPair) step()     {}
func (Await) step()       {}
func (UnbindVF) step()    {}
func (BindVF) step()      {}
func (AwaitFlows) step()  {}
func (Plug) step()        {}
func (Unplug) step()      {}
func (Lease) step()       {}
func (Release) step()     {}
func (AddAddress) step()  {}
func (AddRoute) step()    {}
func (Announce) step()    {}
func (SetSysctl) step()   {}
func (Tell) step()        {}
func (Untell) step()      {}

func (s SetMTU) String() string { return fmt.Sprintf("set MTU %d of %s", s.MTU, s.Dev) }
func (s SetMAC) String() string { return fmt.Sprintf("set MAC %s of %s", s.MAC, s.Dev) }
func (s Rename) String() string { return fmt.Sprintf("rename %s to %s", s.Dev, s.To) }

func (s SetUp) String() string {
	if s.Up {
		return fmt.Sprintf("set %s up", s.Dev)
	}
	return fmt.Sprintf("set %s down", s.Dev)
}

func (s SetAdminMAC) String() string {
	if s.MAC.IsZero() {
		return "clear administrative MAC of " + record.Name(s.VF)
	}
	return fmt.Sprintf("set administrative MAC %s of %s", s.MAC, record.Name(s.VF))
}

func (s SetAltName) String() string {
	if s.On {
		return fmt.Sprintf("give %s the alternative name %s", s.Dev, s.Name)
	}
	return fmt.Sprintf("take the alternative name %s from %s", s.Name, s.Dev)
}

func (s SetPromisc) String() string { return fmt.Sprintf("set %s promiscuous: %v", s.Dev, s.On) }

func (s SetSetting) String() string {
	return fmt.Sprintf("set %s %s of %s", s.Name, s.Value, record.Name(s.VF))
}

func (s Move) String() string {
	if s.To == PodVF {
		return fmt.Sprintf("move %s to the pod", s.Dev)
	}
	return fmt.Sprintf("move %s to the host", s.Dev)
}

func (s MoveRDMA) String() string {
	if s.To == PodVF {
		return fmt.Sprintf("move RDMA device %s to the pod", s.Name)
	}
	return fmt.Sprintf("move RDMA device %s to the host", s.Name)
}

func (s AddPair) String() string {
	return fmt.Sprintf("make pair of %s %s and %s in the pod", s.Kind, s.Host, s.Pod)
}

func (s DelPair) String() string { return fmt.Sprintf("remove pair of %s %s", s.Kind, s.Host) }

func (s UnbindVF) String() string { return "unbind " + record.Name(s.VF) }

func (s BindVF) String() string {
	return fmt.Sprintf("bind %s to %s", record.Name(s.VF), s.Driver)
}

func (s Await) String() string {
	return "wait until the kernel gives the netdev of " + record.Name(s.VF) + " back"
}

func (s AwaitFlows) String() string {
	return "wait for OVN's flows of representor " + s.Representor
}

func (s Plug) String() string {
	p := fmt.Sprintf("plug representor %s into bridge %s", s.Port.Representor, s.Port.Bridge)
	if s.Port.VLAN != 0 {
		p += fmt.Sprintf(" vlan %d", s.Port.VLAN)
	}
	if s.Port.Trunk != nil {
		p += " trunk " + offload.Ranges(s.Port.Trunk)
	}
	if ips := s.Port.ExternalIDs[idAddresses]; ips != "" {
		p += " for " + ips
	}
	return p
}

func (s Unplug) String() string {
	return fmt.Sprintf("unplug representor %s of %s", s.Representor, s.Owner)
}

func (s SetSysctl) String() string {
	return fmt.Sprintf("set %s %s of %s", s.Name, s.Value, s.Dev)
}

func (s Tell) String() string   { return "write the device file of " + s.Of }
func (s Untell) String() string { return "remove the device file of " + s.Of }

func (s Lease) String() string   { return "get addresses from IPAM plugin " + s.Plugin }
func (s Release) String() string { return "give addresses back to IPAM plugin " + s.Plugin }

func (s AddAddress) String() string { return fmt.Sprintf("add address %s to %s", s.Address, s.Dev) }

func (s AddRoute) String() string {
	r := s.Route
	var b strings.Builder
	fmt.Fprintf(&b, "add route %s", r.Dst)
	if r.Gateway.IsValid() {
		fmt.Fprintf(&b, " via %s", r.Gateway)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"mtu", r.MTU}, {"advmss", r.AdvMSS}, {"priority", r.Priority}, {"table", r.Table}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s %d", f.name, f.value)
		}
	}
	fmt.Fprintf(&b, " to %s", s.Dev)
	return b.String()
}

func (s Announce) String() string {
	words := make([]string, len(s.Addresses))
	for i, a := range s.Addresses {
		words[i] = a.Addr().String()
	}
	return fmt.Sprintf("announce %s from %s", strings.Join(words, ", "), s.Dev)
}
