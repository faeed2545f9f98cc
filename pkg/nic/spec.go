package nic

import (
	"maps"
	"slices"
)

// Spec is the wanted state of the PFs that it names, fully resolved: handles
// instead of names, one entry a VF instead of ranges, addresses instead of
// policies. What it does not name is left as it is.
type Spec struct {
	PFs   []PFSpec   `json:"pfs"`
	Bonds []BondSpec `json:"bonds,omitempty"`

	// RDMA is the mode wanted of the node's RDMA subsystem; "" as it is. RDMAAtBoot
	// is what a setting on disk is to ask for then, "" for none, where it is
	// another: only who goes back to what was before wishes for it.
	RDMA       RDMAMode  `json:"rdma,omitempty"`
	RDMAAtBoot *RDMAMode `json:"rdmaAtBoot,omitempty"`
}

// PFSpec is the wanted state of one PF. A zero field is left as it is.
type PFSpec struct {
	Handle    Handle  `json:"handle"`
	Eswitch   Eswitch `json:"eswitch,omitempty"`
	VFCount   *int    `json:"vfCount,omitempty"`
	Autoprobe *bool   `json:"autoprobe,omitempty"`

	// Named: whoever wrote the wish named this PF, and did not choose it by what
	// it is like. Only then is one touched over which the host itself runs.
	Named bool `json:"named,omitempty"`

	// Bond is the bond that the uplink is to be a member of, "" of none; nil as
	// it is.
	Bond *string `json:"bond,omitempty"`

	Settings Settings `json:"settings,omitempty"`

	// SFs are all the SFs wanted, ordered by number; nil as they are.
	SFs *[]SFSpec `json:"sfs,omitempty"`

	// VFs[i] is wanted of VF i. It may be shorter than the count (the rest is
	// left as it is), never longer.
	VFs []VFSpec `json:"vfs,omitempty"`
}

// VFSpec is the wanted state of one VF. A zero field is left as it is.
type VFSpec struct {
	Driver  Driver `json:"driver,omitempty"`
	MAC     *MAC   `json:"mac,omitempty"`     // administrative; zero address: none set
	LinkMAC *MAC   `json:"linkMAC,omitempty"` // of the netdev itself, where a driver chose it
	MTU     int    `json:"mtu,omitempty"`     // of the netdev, bytes
	RepMTU  int    `json:"repMTU,omitempty"`  // of the representor, bytes

	Settings Settings `json:"settings,omitempty"`

	// Gone: if the VF has gone, so be it; making it anew would take the others.
	Gone bool `json:"gone,omitempty"`
}

// IsZero says that nothing is wanted.
func (v VFSpec) IsZero() bool {
	return v.Driver == "" && v.MAC == nil && v.LinkMAC == nil && v.MTU == 0 && v.RepMTU == 0 && len(v.Settings) == 0
}

// Driver says what a VF is to be bound to.
type Driver string

// The drivers that can be wished for. Kernel is whichever network driver the
// kernel picks by itself.
const (
	DriverNone   Driver = "none"
	DriverKernel Driver = "kernel"
	DriverVFIO   Driver = "vfio-pci"
)

// DriverOf classes the name of a bound driver ("" for none).
func DriverOf(bound string) Driver {
	switch bound {
	case "":
		return DriverNone
	case string(DriverVFIO):
		return DriverVFIO
	}
	return DriverKernel
}

// VF returns what is wanted of VF i; the zero VFSpec beyond the list.
func (p PFSpec) VF(i int) VFSpec {
	if i < len(p.VFs) {
		return p.VFs[i]
	}
	return VFSpec{}
}

// PF returns the entry for h, or nil.
func (s *Spec) PF(h Handle) *PFSpec {
	for i := range s.PFs {
		if s.PFs[i].Handle == h {
			return &s.PFs[i]
		}
	}
	return nil
}

// Handles lists the PFs that s names, in order.
func (s Spec) Handles() []Handle {
	out := make([]Handle, len(s.PFs))
	for i, p := range s.PFs {
		out[i] = p.Handle
	}
	return out
}

// Freeze returns the Spec that the named PFs of s satisfy now and nothing else
// does: converging on it is rollback. PFs that are not in s are passed over.
// With no handles it freezes all.
func Freeze(s State, handles ...Handle) Spec {
	var out Spec
	for _, p := range s.PFs {
		if len(handles) == 0 || slices.Contains(handles, p.Handle) {
			out.PFs = append(out.PFs, freezePF(p, s.BondOf(p.Handle)))
		}
	}
	for _, b := range s.Bonds {
		if f := freezeBond(s, b, handles); len(f.Members) > 0 {
			out.Bonds = append(out.Bonds, f)
		}
	}
	if len(handles) == 0 {
		out.RDMA = s.RDMA.Mode
	}
	return out
}

func freezePF(p PF, bond *Bond) PFSpec {
	n, auto := len(p.VFs), p.Autoprobe
	f := PFSpec{Handle: p.Handle, Named: true, Eswitch: p.Eswitch, Settings: maps.Clone(p.Settings)}
	if p.TotalVFs > 0 {
		f.VFCount, f.Autoprobe = &n, &auto
	}
	if p.Uplink.Exists() {
		name := ""
		if bond != nil {
			name = bond.Name
			// A bond says so for its members.
			delete(f.Settings, AdminLink)
			delete(f.Settings, LinkMTU)
		}
		f.Bond = &name
	}
	if p.Eswitch == Switchdev {
		sfs := []SFSpec{}
		for _, sf := range p.SFs {
			sfs = append(sfs, freezeSF(sf))
		}
		f.SFs = &sfs
	}
	for _, v := range p.VFs {
		f.VFs = append(f.VFs, freezeVF(v))
	}
	return f
}

func freezeVF(v VF) VFSpec {
	if v.Gone {
		return VFSpec{Gone: true}
	}
	mac := v.MAC
	f := VFSpec{Driver: DriverOf(v.Driver), MAC: &mac, RepMTU: v.Rep.Netdev.MTU, Settings: maps.Clone(v.Settings)}
	if v.Netdev.Exists() {
		link := v.Netdev.MAC
		f.LinkMAC, f.MTU = &link, v.Netdev.MTU
	}
	return f
}

func freezeSF(s SF) SFSpec {
	f := SFSpec{Num: s.Num, MTU: s.Netdev.MTU, RepMTU: s.Rep.MTU, Settings: maps.Clone(s.Settings), Inactive: !s.Active}
	if !s.MAC.IsZero() {
		mac := s.MAC
		f.MAC = &mac
	}
	return f
}

// freezeBond has those of the named PFs as members that are.
func freezeBond(s State, b Bond, handles []Handle) BondSpec {
	f := BondSpec{Name: b.Name, Mode: b.Mode, Hash: b.Hash, Miimon: b.Miimon, LACPRate: b.LACPRate, MTU: b.MTU, Exact: true}
	for _, h := range b.Members {
		if len(handles) == 0 || slices.Contains(handles, h) {
			f.Members = append(f.Members, h)
		}
		if pf := s.PF(h); pf != nil && pf.LAG != LAGActive {
			f.Software = true
		}
	}
	return f
}
