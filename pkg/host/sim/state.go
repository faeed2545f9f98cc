package sim

import (
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// state is all of the machine that outlives a process that uses it, in the form
// that Save writes.
type state struct {
	Version int           `json:"version"`
	Seed    uint64        `json:"seed"`
	Draws   uint64        `json:"draws"` // addresses drawn so far
	Udev    bool          `json:"udev"`  // names by path instead of ethN
	IOMMU   bool          `json:"iommu"`
	Delay   time.Duration `json:"delay,omitempty"` // from driver bound to netdev there
	Writes  int           `json:"writes"`
	PFs     []*pf         `json:"pfs"`
	Links   []*link       `json:"links"` // of all namespaces, in the order they were made
	RDMA    []*rdmaDevice `json:"rdma,omitempty"`
	Netns   []*netns      `json:"netns"`           // the host's first
	NetnsID int           `json:"netnsID"`         // number given out last
	Files   []string      `json:"files,omitempty"` // paths that are no namespace
	Faults  []Fault       `json:"faults,omitempty"`
}

// stateVersion changes when an older program could not read the file.
const stateVersion = 1

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
}

type vf struct {
	Driver string  `json:"driver,omitempty"`
	MAC    nic.MAC `json:"mac,omitzero"` // administrative

	address string // once it was asked for: see Sim.vfAddress
}

// role says what a link is a netdev of.
type role string

const (
	loopback    role = "loopback"
	uplink      role = "uplink"
	vfNetdev    role = "vf"
	representor role = "representor"
	other       role = "other" // a software interface
)

type link struct {
	Netns    int            `json:"netns"`
	Ifindex  int            `json:"ifindex"`
	Name     string         `json:"name"`
	AltNames []string       `json:"altNames,omitempty"`
	Role     role           `json:"role"`
	PF       int            `json:"pf"` // index into PFs; -1 none
	VF       int            `json:"vf"` // -1 none
	Kind     string         `json:"kind,omitempty"`
	MAC      nic.MAC        `json:"mac"`
	MTU      int            `json:"mtu"`
	Up       bool           `json:"up"`
	Addrs    []netip.Prefix `json:"addresses,omitempty"`
	Routes   []host.Route   `json:"routes,omitempty"`

	// Due is when a netdev that comes late is there; no read shows it before.
	Due time.Time `json:"due,omitzero"`
}

type rdmaDevice struct {
	Name  string `json:"name"`
	PF    int    `json:"pf"`
	VF    int    `json:"vf"` // -1: the PF's own
	Verbs int    `json:"verbs"`
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
	st.Files, st.Faults = slices.Clone(st.Files), slices.Clone(st.Faults)
	for _, p := range st.PFs {
		p.VFs = each(p.VFs)
	}
	for _, l := range st.Links {
		l.AltNames, l.Addrs, l.Routes = slices.Clone(l.AltNames), slices.Clone(l.Addrs), slices.Clone(l.Routes)
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
