package nic

import (
	"maps"
	"slices"
)

// Eswitch is the mode of a PF's embedded switch. "" means that the device has
// none that can be set (no devlink instance, or the driver does not offer it).
type Eswitch string

// The modes that sluice sets (DEVLINK_ATTR_ESWITCH_MODE).
const (
	Legacy    Eswitch = "legacy"
	Switchdev Eswitch = "switchdev"
)

// State is what was observed of a node's NICs: all PFs, by handle.
type State struct {
	PFs   []PF   `json:"pfs"`
	Bonds []Bond `json:"bonds,omitempty"` // ordered by name
	RDMA  RDMA   `json:"rdma,omitzero"`
}

// RDMAMode says whether a network namespace sees all RDMA devices of the machine
// or only its own (RDMA_NLDEV_SYS_ATTR_NETNS_MODE). "" without RDMA.
type RDMAMode string

// The modes.
const (
	RDMAShared    RDMAMode = "shared"
	RDMAExclusive RDMAMode = "exclusive"
)

// RDMA is what the node's RDMA subsystem says of itself.
type RDMA struct {
	Mode RDMAMode `json:"mode,omitempty"`

	// AtBoot is the mode that a setting on disk asks for with the next boot
	// (netns_mode of ib_core), "" when none does.
	AtBoot RDMAMode `json:"atBoot,omitempty"`

	// Fixed: other network namespaces exist, so the kernel refuses to change Mode
	// (drivers/infiniband/core/device.c, rdma_compatdev_set: EBUSY).
	Fixed bool `json:"fixed,omitempty"`
}

// PF is one physical function, which on ConnectX-class cards is one port.
type PF struct {
	Handle Handle `json:"handle"`
	Vendor string `json:"vendor"` // PCI id, four hexadecimal digits
	Device string `json:"device"` // PCI id, four hexadecimal digits
	// VFDevice is the PCI id that its VFs have; "" while there is none.
	VFDevice string `json:"vfDevice,omitempty"`
	Product  string `json:"product,omitempty"`
	Serial   string `json:"serial,omitempty"` // of the card, from VPD or devlink info
	Driver   string `json:"driver,omitempty"`
	NUMA     int    `json:"numa"` // -1: the platform does not say

	Firmware string `json:"firmware,omitempty"` // the running one
	PSID     string `json:"psid,omitempty"`     // the card's variant, by which firmware is chosen

	// ACPIIndex is the number that firmware gives to a built-in function
	// (acpi_index); 0 not said.
	ACPIIndex int `json:"acpiIndex,omitempty"`

	// Failing is the devlink health reporters that are in state error, by name.
	Failing []string `json:"failing,omitempty"`

	// Path is where the function hangs: the host bridge and the PCI bridges down to
	// it, as sysfs has them: "pci0000:00/0000:00:01.0/0000:01:00.0". "" not said.
	Path string `json:"path,omitempty"`

	// Eswitch and what hangs on it. A SwitchID does not mean switchdev mode.
	Eswitch  Eswitch  `json:"eswitch,omitempty"`
	SwitchID SwitchID `json:"switchID,omitempty"`
	PortName string   `json:"portName,omitempty"` // phys_port_name, p0

	// Uplink is the PF's own netdev; in switchdev mode it is the uplink
	// representor and, with current drivers, keeps name and ifindex. Zero when
	// the PF has no driver or its netdev lies in another namespace.
	Uplink Netdev `json:"uplink"`

	TotalVFs  int      `json:"totalVFs"`            // sriov_totalvfs; 0: no SR-IOV
	VFVectors int      `json:"vfVectors,omitempty"` // MSI-X vectors that the VFs share (sriov_vf_total_msix); 0 not said
	MaxSFs    int      `json:"maxSFs,omitempty"`    // SFs that the device has room for; 0 not said
	Autoprobe bool     `json:"autoprobe"`           // sriov_drivers_autoprobe
	RDMA      []string `json:"rdma,omitempty"`
	VFs       []VF     `json:"vfs,omitempty"` // index i is VF i
	SFs       []SF     `json:"sfs,omitempty"` // ordered by number

	Settings Settings `json:"settings,omitempty"`
	Limits   Limits   `json:"limits,omitempty"`

	// InfiniBand: the port's link layer is InfiniBand, not Ethernet.
	InfiniBand bool `json:"infiniband,omitempty"`

	// LAG is what the driver says of VF-LAG.
	LAG LAG `json:"lag,omitempty"`

	// Carries says what of the host runs over the uplink, or over what is built on
	// it: "the default route", "address 192.0.2.7/24". Such a PF is touched only
	// by who names it.
	Carries []string `json:"carries,omitempty"`
}

// VF is one virtual function.
type VF struct {
	Index   int    `json:"index"`
	Address string `json:"address"` // PCI
	Driver  string `json:"driver,omitempty"`

	// Gone: the PF counts it and the bus does not have it, nor an address for it
	// (it was removed, or broke). It comes back only with all VFs of the PF made
	// anew.
	Gone bool `json:"gone,omitempty"`

	// MAC is the administrative address: the port function's hw_addr in
	// switchdev mode, the VF row of the PF's netdev in legacy mode. A driver
	// reads it when it binds, so a later change shows in Netdev.MAC only after
	// the next bind. Zero: none set, the driver picks one.
	MAC MAC `json:"mac,omitzero"`

	// Netdev is the VF's own interface, zero when there is none in the host's
	// namespace. Away says that there is one in another namespace: a pod's.
	Netdev Netdev `json:"netdev,omitzero"`
	Away   bool   `json:"away,omitempty"`

	// Owner says who holds the VF by sluice's own record ("" nobody).
	Owner string `json:"owner,omitempty"`

	// Drained is why it would be in use, had not somebody said that whoever used it is
	// gone: taking it is still what a drain is for.
	Drained string `json:"-"`

	// Netns is the path of the namespace that the netdev is in, where somebody has
	// looked for it; "" the host's, or not known.
	Netns string `json:"netns,omitempty"`

	// Rep is the representor, zero in legacy mode.
	Rep Representor `json:"rep,omitzero"`

	RDMA       []string `json:"rdma,omitempty"`
	IOMMUGroup int      `json:"iommuGroup"` // -1: none

	// VFIO is its device file for iommufd, below /dev/vfio/devices: vfio3. "" where
	// it is not bound to vfio-pci, or the kernel has none (before Linux 6.6).
	VFIO string `json:"vfio,omitempty"`

	// VDPA is its vDPA device; the setting of that name says who drives it.
	VDPA VDPADevice `json:"vdpa,omitzero"`

	// Failing is as of nic.PF, of the VF's own devlink instance.
	Failing []string `json:"failing,omitempty"`

	Settings Settings `json:"settings,omitempty"`
	Limits   Limits   `json:"limits,omitempty"`
}

// VDPADevice is a vDPA device; zero for none.
type VDPADevice struct {
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"` // of one that vhost drives: /dev/vhost-vdpa-0
}

// InUse says why a VF must not be taken away from whoever has it; "" if it is
// free.
func (v VF) InUse() string { return inUse(v.Owner, v.Away) }

func inUse(owner string, away bool) string {
	switch {
	case owner != "":
		return "held by " + owner
	case away:
		return "its netdev is in another network namespace"
	}
	return ""
}

// Netdev is a network interface as the host's namespace sees it.
type Netdev struct {
	Name    string `json:"name"`
	Ifindex int    `json:"ifindex"`
	MAC     MAC    `json:"mac"`
	MTU     int    `json:"mtu"` // bytes, without the Ethernet header
	Up      bool   `json:"up"`
	Carrier bool   `json:"carrier"`
}

// Exists says whether there is such an interface.
func (n Netdev) Exists() bool { return n.Ifindex != 0 }

// Representor is the switch's side of a VF: a devlink port of its PF's handle
// and the netdev on it.
type Representor struct {
	Port   uint32 `json:"port"` // devlink port index
	Netdev Netdev `json:"netdev"`
}

// Exists says whether the representor is there with its netdev.
func (r Representor) Exists() bool { return r.Netdev.Exists() }

// PF returns the PF with handle h, or nil.
func (s *State) PF(h Handle) *PF {
	for i := range s.PFs {
		if s.PFs[i].Handle == h {
			return &s.PFs[i]
		}
	}
	return nil
}

// VFAt returns the VF at a PCI address with its identity, or nil.
func (s *State) VFAt(address string) (VFID, *VF) {
	for i := range s.PFs {
		for j := range s.PFs[i].VFs {
			if s.PFs[i].VFs[j].Address == address {
				return VFID{PF: s.PFs[i].Handle, Index: j}, &s.PFs[i].VFs[j]
			}
		}
	}
	return VFID{}, nil
}

// Clone returns a deep copy.
func (s State) Clone() State {
	out := State{PFs: slices.Clone(s.PFs), Bonds: slices.Clone(s.Bonds), RDMA: s.RDMA}
	for i := range out.PFs {
		out.PFs[i] = out.PFs[i].Clone()
	}
	for i := range out.Bonds {
		b := &out.Bonds[i]
		b.Members, b.Others = slices.Clone(b.Members), slices.Clone(b.Others)
	}
	return out
}

// Clone returns a deep copy.
func (p PF) Clone() PF {
	p.RDMA, p.Carries, p.Failing = slices.Clone(p.RDMA), slices.Clone(p.Carries), slices.Clone(p.Failing)
	p.Settings, p.Limits = maps.Clone(p.Settings), maps.Clone(p.Limits)
	p.VFs, p.SFs = slices.Clone(p.VFs), slices.Clone(p.SFs)
	for i := range p.VFs {
		v := &p.VFs[i]
		v.RDMA, v.Failing = slices.Clone(v.RDMA), slices.Clone(v.Failing)
		v.Settings, v.Limits = maps.Clone(v.Settings), maps.Clone(v.Limits)
	}
	for i := range p.SFs {
		f := &p.SFs[i]
		f.RDMA, f.Failing = slices.Clone(f.RDMA), slices.Clone(f.Failing)
		f.Settings, f.Limits = maps.Clone(f.Settings), maps.Clone(f.Limits)
	}
	return p
}
