package sim

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// state is all of the machine that outlives a process that uses it, in the form
// that Save writes.
type state struct {
	Version int    `json:"version"`
	Seed    uint64 `json:"seed"`
	Draws   uint64 `json:"draws"` // addresses drawn so far
	Udev    bool   `json:"udev"`  // names by path instead of ethN
	IOMMU   bool   `json:"iommu"`
	Plain   bool   `json:"plain,omitempty"` // no settings are offered
	Reps    Reps   `json:"reps,omitempty"`

	NoNetkit bool          `json:"noNetkit,omitempty"` // the kernel has no CONFIG_NETKIT
	Delay    time.Duration `json:"delay,omitempty"`    // from driver bound to netdev there
	LAGWait  time.Duration `json:"lagWait,omitempty"`  // from bond there to LAG active
	Writes   int           `json:"writes"`
	Boot     string        `json:"boot,omitempty"` // names the present boot
	PFs      []*pf         `json:"pfs"`
	Links    []*link       `json:"links"` // of all namespaces, in the order they were made
	RDMA     []*rdmaDevice `json:"rdma,omitempty"`
	LAGs     []*lag        `json:"lags,omitempty"`
	Netns    []*netns      `json:"netns"`           // the host's first
	NetnsID  int           `json:"netnsID"`         // number given out last
	Pairs    int           `json:"pairs,omitempty"` // made so far
	Files    []string      `json:"files,omitempty"` // paths that are no namespace
	Faults   []Fault       `json:"faults,omitempty"`

	// The mode of the RDMA subsystem, and of its next start; "" none is written.
	RDMAMode   nic.RDMAMode `json:"rdmaMode"`
	RDMAAtBoot nic.RDMAMode `json:"rdmaAtBoot,omitempty"`
}

// stateVersion changes when an older program could not read the file.
const stateVersion = 2

type pf struct {
	Profile   string       `json:"profile"`
	Card      int          `json:"card"`
	Port      int          `json:"port"`  // and PCI function number
	Ports     int          `json:"ports"` // of the card
	Address   string       `json:"address"`
	MAC       nic.MAC      `json:"mac"` // permanent
	Serial    string       `json:"serial,omitempty"`
	SwitchID  nic.SwitchID `json:"switchID,omitempty"`
	NUMA      int          `json:"numa"`
	TotalVFs  int          `json:"totalVFs"`
	Driver    string       `json:"driver,omitempty"`
	Autoprobe bool         `json:"autoprobe"`
	Mode      nic.Eswitch  `json:"mode,omitempty"`
	NoCarrier bool         `json:"noCarrier,omitempty"`
	VFs       []*vf        `json:"vfs,omitempty"`

	InfiniBand bool         `json:"infiniband,omitempty"`
	MaxSFs     int          `json:"maxSFs,omitempty"`
	SFs        []*sf        `json:"sfs,omitempty"` // in the order they were made
	Set        nic.Settings `json:"set,omitempty"` // what is not as it comes

	card *profile // once it was asked for: see Sim.profile
}

type vf struct {
	Driver string       `json:"driver,omitempty"`
	MAC    nic.MAC      `json:"mac,omitzero"` // administrative
	Set    nic.Settings `json:"set,omitempty"`
	Gone   bool         `json:"gone,omitempty"` // from the bus; its vport is still there

	address string // once it was asked for: see Sim.vfAddress
}

// sf is a subfunction. It is attached as soon as it is active.
type sf struct {
	Num    int          `json:"num"`
	Slot   int          `json:"slot"` // place in the device's table, which its port goes by
	Active bool         `json:"active,omitempty"`
	Device int          `json:"device,omitempty"` // N of mlx5_core.sf.N while it is active
	MAC    nic.MAC      `json:"mac,omitzero"`
	Set    nic.Settings `json:"set,omitempty"`
}

// lag is a card whose ports a bond has, so that hardware aggregates them, or will.
type lag struct {
	Card   int       `json:"card"`
	Due    time.Time `json:"due,omitzero"`
	Active bool      `json:"active,omitempty"`
	Failed bool      `json:"failed,omitempty"` // the firmware refused; only a new bond tries again
}

// role says what a link is a netdev of.
type role string

const (
	loopback    role = "loopback"
	uplink      role = "uplink"
	vfNetdev    role = "vf"
	representor role = "representor" // of a VF
	sfNetdev    role = "sf"
	sfRep       role = "sf representor"
	bonded      role = "bond"
	other       role = "other" // a software interface
)

type link struct {
	Netns    int               `json:"netns"`
	Ifindex  int               `json:"ifindex"`
	Name     string            `json:"name"`
	AltNames []string          `json:"altNames,omitempty"`
	Role     role              `json:"role"`
	PF       int               `json:"pf"` // index into PFs; -1 none
	VF       int               `json:"vf"` // -1 none
	SF       int               `json:"sf"` // number; -1 none
	Kind     string            `json:"kind,omitempty"`
	MAC      nic.MAC           `json:"mac"`
	MTU      int               `json:"mtu"`
	Up       bool              `json:"up"`
	Promisc  bool              `json:"promisc,omitempty"`
	Addrs    []netip.Prefix    `json:"addresses,omitempty"`
	Routes   []host.Route      `json:"routes,omitempty"`
	Set      nic.Settings      `json:"set,omitempty"`
	Sysctls  map[string]string `json:"sysctls,omitempty"`
	Bond     *bond             `json:"bond,omitempty"`   // of a bond
	Master   int               `json:"master,omitempty"` // ifindex of the bond that it is in
	Pair     int               `json:"pair,omitempty"`   // number of the pair that it is an end of

	// What a member of a bond was before and will be after.
	OwnMAC nic.MAC `json:"ownMAC,omitzero"`
	OwnMTU int     `json:"ownMTU,omitempty"`

	// Due is when a netdev that comes late is there; no read shows it before.
	Due time.Time `json:"due,omitzero"`
}

// id names the function that a link is of.
func (l *link) id() functionID { return functionID{l.PF, l.VF, l.SF} }

type bond struct {
	Mode     nic.BondMode `json:"mode"`
	Hash     string       `json:"hash"`
	Miimon   int          `json:"miimon,omitempty"`
	LACPRate string       `json:"lacpRate,omitempty"`
	Ours     bool         `json:"ours,omitempty"`
	Active   int          `json:"active,omitempty"` // ifindex
	Drawn    bool         `json:"drawn,omitempty"`  // its address is by chance, until it has a member
}

type rdmaDevice struct {
	Name  string `json:"name"`
	PF    int    `json:"pf"`
	VF    int    `json:"vf"`            // -1: none
	SF    int    `json:"sf"`            // number; -1 none
	LAG   bool   `json:"lag,omitempty"` // for both ports of the card
	Verbs int    `json:"verbs"`
	Netns int    `json:"netns,omitempty"` // in exclusive mode: where it is
	GUID  string `json:"guid,omitempty"`  // of a VF of InfiniBand: the node GUID that it was bound with; "" none
}

// netns is a network namespace. Its number never changes, its path ends with
// DeleteNetns although an open handle may keep it alive.
type netns struct {
	ID   int    `json:"id"`
	Path string `json:"path,omitempty"` // "" the host's
	Last int    `json:"last"`           // ifindex given out last
}

// hostNS is the number of the host's namespace.
const hostNS = 0

// clone copies all that can change.
func (st state) clone() state {
	st.PFs, st.Links, st.RDMA, st.Netns = each(st.PFs), each(st.Links), each(st.RDMA), each(st.Netns)
	st.LAGs = each(st.LAGs)
	st.Files, st.Faults = slices.Clone(st.Files), slices.Clone(st.Faults)
	for _, p := range st.PFs {
		p.VFs, p.SFs, p.Set = each(p.VFs), each(p.SFs), maps.Clone(p.Set)
		for _, v := range p.VFs {
			v.Set = maps.Clone(v.Set)
		}
		for _, f := range p.SFs {
			f.Set = maps.Clone(f.Set)
		}
	}
	for _, l := range st.Links {
		l.AltNames, l.Addrs, l.Routes = slices.Clone(l.AltNames), slices.Clone(l.Addrs), slices.Clone(l.Routes)
		l.Set = maps.Clone(l.Set)
		if l.Bond != nil {
			b := *l.Bond
			l.Bond = &b
		}
	}
	return st
}

// each copies what the pointers of a list point to.
func each[T any](list []*T) []*T {
	out := make([]*T, len(list))
	for i, p := range list {
		v := *p
		out[i] = &v
	}
	return out
}
