package cni

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Want is what an attachment is to be.
type Want struct {
	Goal record.Goal
	VF   string // PCI address, or an SF's device

	// Of an attachment.
	IfName   string
	MAC      nic.MAC      // zero: as it is
	MTU      int          // 0: as it is
	Port     offload.Port // zero: in no bridge
	Settings nic.Settings // of the VF, what is wanted of them

	GUID string // of the VF; "": as it is

	// Of both ends.
	Pair      bool // of software interfaces, VF being the host's end
	PairKind  host.PairKind
	OfRep     bool     // the representor takes the place of the VF's netdev
	Userspace bool     // a program drives the VF: there is no netdev to attach
	IPAM      string   // plugin; "" for none
	RDMA      []string // devices that go where the VF's netdev goes

	Sysctls map[string]string // of an attachment
	Flows   bool              // of an attachment: OVN has them in the switch when it is done

	// Of a detachment.
	Before record.Before
}

// Place is where a VF's netdev is.
type Place int

// The places of a VF's netdev.
const (
	Nowhere   Place = iota // there is none: no VF, or no network driver on it
	AtHome                 // in the host's namespace
	InPod                  // in the attachment's namespace
	Elsewhere              // in a namespace that cannot be reached
)

// State is what was observed of an attachment.
type State struct {
	Pair   bool // VF and Rep are the ends of a pair
	Netkit bool // which is of that kind
	OfRep  bool // VF is the representor
	SF     bool // VF is an SF's netdev
	Place  Place
	VF     nic.Netdev // zero unless AtHome or InPod

	AltNames []string // of the VF's netdev
	Promisc  bool
	AltTaken []string // names that it had before and another interface has now

	RDMA []string // devices of Want.RDMA that are in the attachment's namespace

	// HasAdminMAC: the VF is there with a representor to set its address.
	HasAdminMAC bool
	AdminMAC    nic.MAC

	Rep nic.Netdev // zero: none

	Settings nic.Settings // of the VF, those that can be read and set

	// With a GUID that is wanted: the one in effect ("" not seen), whether the VF has a
	// driver, and whether it was bound in this run.
	GUID           string
	Bound, Rebound bool

	// Port is the representor's port, nil when there is none of this owner.
	Port *offload.Port

	// NameTaken: the name that the VF's netdev had before belongs to another
	// interface of the host now.
	NameTaken bool

	// What the IPAM plugin answered in this run: it cannot be asked what it
	// gave, and giving back twice is no fault (CNI specification, DEL).
	Lease    *Addressing
	Released bool

	Addresses []netip.Prefix // of the VF's netdev in the pod
	Routes    []host.Route   // through it
	Announced bool
	Sysctls   map[string]string // those of Want, of the netdev in the pod
	Told      bool              // the device file was written in this run
	Filed     bool              // there is one, or something of it
	Flows     bool              // OVN has said in this run that they are there
}

// Addressing is what an IPAM plugin wants of an interface.
type Addressing struct {
	Addresses []netip.Prefix
	Routes    []host.Route
}

// Next answers the step that brings s nearer to w, false when there is none
// left. It is pure.
func Next(w Want, s State) (Step, bool) {
	var step Step
	switch attaching := w.Goal == record.Attached; {
	case attaching && w.Pair:
		step = attachPair(w, s)
	case attaching:
		step = attach(w, s)
	case w.Pair:
		step = detachPair(w, s)
	default:
		step = detach(w, s)
	}
	return step, step != nil
}

// TempName is what the netdev of the VF at a PCI address, or of the SF with that device,
// is called on its way between namespaces: unique on the machine, so that neither the
// pod's names nor the host's can clash with it, and never longer than 15 bytes.
func TempName(device string) string { return "sl" + short(device) }

// temp is TempName, or of a representor the like of it.
func (w Want) temp() string {
	if w.OfRep {
		return "sr" + short(w.VF)
	}
	return TempName(w.VF)
}

// short is the digits of a PCI address; the name of an SF's device has no bound, so it
// is "f" and a hash.
func short(device string) string {
	if nic.IsSFDevice(device) {
		sum := sha256.Sum256([]byte(device))
		return "f" + hex.EncodeToString(sum[:6])
	}
	return strings.NewReplacer(":", "", ".", "").Replace(device)
}

// attach puts the switch's side first, so that the VF finds its port ready, and
// everything that needs the VF down before it goes up in the pod.
func attach(w Want, s State) Step {
	rep, vf := s.rep(), s.vf()
	home, pod := s.Place == AtHome && !w.Userspace, s.Place == InPod
	netdev := home || pod
	switch {
	case w.plugged() && w.MTU != 0 && s.Rep.MTU != w.MTU:
		return SetMTU{rep, w.MTU}
	case w.plugged() && !s.Rep.Up:
		return SetUp{rep, true}
	case home && s.VF.Up:
		return SetUp{vf, false}
	case !w.MAC.IsZero() && s.HasAdminMAC && s.AdminMAC != w.MAC:
		return SetAdminMAC{w.VF, w.MAC}
	case differing(w.Settings, s.Settings) != "":
		name := differing(w.Settings, s.Settings)
		return SetSetting{w.VF, name, w.Settings[name]}
	case unbound(w, s):
		return BindVF{w.VF, w.Before.Driver}
	case home && w.Before.GUID != "" && s.GUID != w.GUID && !s.Rebound:
		return UnbindVF{w.VF}
	case netdev && !w.MAC.IsZero() && s.VF.MAC != w.MAC:
		return SetMAC{vf, w.MAC}
	case netdev && w.MTU != 0 && s.VF.MTU != w.MTU:
		return SetMTU{vf, w.MTU}
	case w.plugged() && (s.Port == nil || !samePort(*s.Port, w.port(s.Lease))):
		return Plug{w.port(s.Lease)}
	case home && len(s.AltNames) > 0:
		// They would go along, and be in the way of the pod's names.
		return SetAltName{vf, s.AltNames[0], false}
	case home && s.VF.Name != w.temp():
		return Rename{vf, w.temp()}
	case home:
		return Move{vf, PodVF}
	case pod && firstLacking(w.RDMA, s.RDMA) != "":
		return MoveRDMA{firstLacking(w.RDMA, s.RDMA), PodVF}
	case pod && s.VF.Name != w.IfName:
		return Rename{vf, w.IfName}
	case pod && untuned(w.Sysctls, s.Sysctls) != "":
		name := untuned(w.Sysctls, s.Sysctls)
		return SetSysctl{vf, name, w.Sysctls[name]}
	case pod && !s.VF.Up:
		return SetUp{vf, true}
	case w.IPAM != "" && s.Lease == nil:
		return Lease{w.IPAM}
	}
	if !w.Userspace { // whoever drives the VF gives it its addresses
		if step := address(vf, s); step != nil {
			return step
		}
	}
	if w.Flows && !s.Flows {
		return AwaitFlows{s.Rep.Name}
	}
	if !s.Told {
		return Tell{w.what()}
	}
	return nil
}

// unbound says that the VF lacks the driver that was taken from it for a GUID.
func unbound(w Want, s State) bool { return w.Before.GUID != "" && !s.Bound && s.Place == Nowhere }

// what the attachment is of, in words.
func (w Want) what() string {
	if w.OfRep {
		return "the representor of " + record.Name(w.VF)
	}
	return record.Name(w.VF)
}

// plugged says that the attachment has a port in a bridge.
func (w Want) plugged() bool { return w.Port.Bridge != "" }

// differing is the first setting, by name, that is to be changed; "" when there is
// none. One that cannot be read now cannot be set either. Rates come in the order that
// never has the least one over the most (rtnetlink.c, do_setvfinfo).
func differing(want, have nic.Settings) nic.Setting {
	differs := func(name nic.Setting) bool {
		is, can := have[name]
		return can && is != want[name]
	}
	for _, name := range want.Names() {
		if !differs(name) {
			continue
		}
		most, _ := strconv.Atoi(want[name])
		least, _ := strconv.Atoi(have[nic.MinRate])
		if _, both := want[nic.MinRate]; name == nic.MaxRate && both && most != 0 && most < least {
			return nic.MinRate
		}
		return name
	}
	return ""
}

// address configures what the IPAM plugin gave: addresses before the routes
// that need them, and the news of it last.
func address(vf Dev, s State) Step {
	if s.Lease == nil {
		return nil
	}
	for _, a := range s.Lease.Addresses {
		if !slices.Contains(s.Addresses, a) {
			return AddAddress{vf, a}
		}
	}
	for _, r := range s.Lease.Routes {
		if !slices.ContainsFunc(s.Routes, func(have host.Route) bool { return sameRoute(have, r) }) {
			return AddRoute{vf, r}
		}
	}
	if len(s.Lease.Addresses) > 0 && !s.Announced {
		return Announce{vf, s.Lease.Addresses}
	}
	return nil
}

// firstLacking is the first of want that is not in have; "" when none lacks.
func firstLacking(want, have []string) string {
	for _, name := range want {
		if !slices.Contains(have, name) {
			return name
		}
	}
	return ""
}

// detach takes the VF out first: once the pod cannot use its addresses, they
// may go to another. Its RDMA devices come before its netdev: whoever looks when
// the netdev appears on the host finds the VF whole. The port goes before the addresses for the case that the
// VF's namespace cannot be reached, and is waited for last.
func detach(w Want, s State) Step {
	rep, vf, was := s.rep(), s.vf(), w.Before
	home, pod := s.Place == AtHome && !w.Userspace, s.Place == InPod
	// The kernel gives a VF back under the name that it had in its pod. Where another has
	// the one from before by now, it must not stay so, as eth0 on the host: the temporary
	// name is nobody else's.
	name := was.Name
	if s.NameTaken {
		name = w.temp()
	}
	misnamed := was.Name != "" && s.VF.Name != name
	mac := !was.MAC.IsZero() && s.VF.MAC != was.MAC
	mtu := was.MTU != 0 && s.VF.MTU != was.MTU
	remade := mac || mtu
	switch {
	case len(s.RDMA) > 0:
		return MoveRDMA{s.RDMA[0], HostVF}
	case pod && s.VF.Up:
		return SetUp{vf, false}
	case pod && len(s.AltNames) > 0:
		return SetAltName{vf, s.AltNames[0], false}
	case pod && s.VF.Name != w.temp():
		return Rename{vf, w.temp()}
	case pod:
		return Move{vf, HostVF}
	case home && s.VF.Up && (remade || misnamed):
		return SetUp{vf, false}
	case s.HasAdminMAC && s.AdminMAC != was.AdminMAC:
		return SetAdminMAC{w.VF, was.AdminMAC}
	case differing(was.Settings, s.Settings) != "":
		name := differing(was.Settings, s.Settings)
		return SetSetting{w.VF, name, was.Settings[name]}
	case unbound(w, s):
		return BindVF{w.VF, was.Driver}
	case home && was.GUID != "" && s.GUID != "" && s.GUID != was.GUID && !s.Rebound:
		return UnbindVF{w.VF}
	case home && mac:
		return SetMAC{vf, was.MAC}
	case home && mtu:
		return SetMTU{vf, was.MTU}
	case home && s.Promisc && !was.Promisc:
		return SetPromisc{vf, false}
	case home && firstLacking(s.AltNames, was.AltNames) != "":
		return SetAltName{vf, firstLacking(s.AltNames, was.AltNames), false}
	case home && misnamed:
		return Rename{vf, name}
	case home && firstLacking(was.AltNames, slices.Concat(s.AltNames, s.AltTaken)) != "":
		return SetAltName{vf, firstLacking(was.AltNames, slices.Concat(s.AltNames, s.AltTaken)), true}
	case home && s.VF.Up != was.Up:
		return SetUp{vf, was.Up}
	case s.Filed:
		return Untell{w.what()}
	case s.Port != nil:
		return Unplug{s.Port.Representor, s.Port.Owner}
	case w.IPAM != "" && !s.Released:
		return Release{w.IPAM}
	case s.Rep.Exists() && was.RepMTU != 0 && s.Rep.MTU != was.RepMTU:
		return SetMTU{rep, was.RepMTU}
	case s.Rep.Exists() && s.Rep.Up != was.RepUp:
		return SetUp{rep, was.RepUp}
	case s.Place == Elsewhere && !w.Userspace:
		return Await{w.VF}
	}
	return nil
}

func (s State) rep() Dev {
	side := Rep
	switch {
	case s.Pair && s.Netkit:
		side = HostNetkit
	case s.Pair:
		side = HostEnd
	}
	return Dev{side, s.Rep.Name, s.Rep.Ifindex}
}

func (s State) vf() Dev {
	side := HostVF
	switch {
	case s.Pair && s.Netkit:
		side = PodNetkit
	case s.Pair:
		side = PodEnd
	case s.OfRep && s.Place == InPod:
		side = PodRep
	case s.OfRep:
		side = HomeRep
	case s.SF && s.Place == InPod:
		side = PodSF
	case s.SF:
		side = HostSF
	case s.Place == InPod:
		side = PodVF
	}
	return Dev{side, s.VF.Name, s.VF.Ifindex}
}

// port is the wanted port, with the addresses as soon as they are known.
func (w Want) port(lease *Addressing) offload.Port {
	p := w.Port
	if lease == nil || len(lease.Addresses) == 0 {
		return p
	}
	words := make([]string, len(lease.Addresses))
	for i, a := range lease.Addresses {
		words[i] = a.String()
	}
	p.ExternalIDs = maps.Clone(p.ExternalIDs)
	p.ExternalIDs[idAddresses] = strings.Join(words, ",")
	return p
}

// samePort says whether a port is as wanted. External ids that others add
// (ovn-controller writes ovn-installed) do not count.
func samePort(have, want offload.Port) bool {
	if have.Bridge != want.Bridge || have.Representor != want.Representor ||
		have.VLAN != want.VLAN || !slices.Equal(have.Trunk, want.Trunk) || have.Owner != want.Owner {
		return false
	}
	for k, v := range want.ExternalIDs {
		if have.ExternalIDs[k] != v {
			return false
		}
	}
	return true
}

// sameRoute says whether a route is as wanted: what is not wished for is the
// kernel's to pick, and its picks are told as 0 (host.Route).
func sameRoute(have, want host.Route) bool {
	const mainTable, ip6Priority = 254, 1024 // RT_TABLE_MAIN, IP6_RT_PRIO_USER
	if want.Table == mainTable {
		want.Table = 0
	}
	if want.Dst.Addr().Is6() && want.Priority == ip6Priority {
		want.Priority = 0
	}
	want.Priority = cmp.Or(want.Priority, have.Priority)
	want.Table = cmp.Or(want.Table, have.Table)
	want.MTU = cmp.Or(want.MTU, have.MTU)
	want.AdvMSS = cmp.Or(want.AdvMSS, have.AdvMSS)
	return have == want
}
