// Package pci reads and writes PCI functions where the kernel shows them: below
// bus/pci of a sysfs mount (Documentation/ABI/testing/sysfs-bus-pci). The mount
// is a path, so that tests run on trees of files.
//
// Reading is by directory descriptor and reused buffers, because a node has
// hundreds of VFs and is read often: a VF costs one file (uevent), one link and,
// with a driver, one listing. What cannot be read is
// absent, never an error. Writing reports the errno of the write as it is; what
// it means is for pkg/host/linux.
package pci

// Function is one PCI function, in the terms of host.Function, into which it
// converts.
type Function struct {
	Address string
	Vendor  string // four hexadecimal digits
	Device  string // four hexadecimal digits
	Product string // from VPD; "" if not there
	Serial  string // from VPD; "" if not there
	Driver  string // "" when unbound
	NUMA    int    // -1: not said

	PF      string // of a VF: the address of its PF
	VFIndex int    // of a VF: N of virtfnN; -1 for a PF

	TotalVFs  int // of a PF: sriov_totalvfs
	NumVFs    int // of a PF: sriov_numvfs
	Autoprobe bool
	VFVectors int // of a PF: sriov_vf_total_msix, interrupts that its VFs share; 0 not said

	VFDevice  string // of a PF: the device id of its VFs (sriov_vf_device); "" not said
	ACPIIndex int    // of a PF: acpi_index; 0 not said

	Path string // of a PF: the bridges above it, "pci0000:00/0000:00:01.0"; "" not said

	Away       bool   // net/ is there, and empty in the mount's namespace
	IOMMUGroup int    // -1: none
	VFIO       string // the name under vfio-dev/ of one bound to vfio-pci; "" none

	Netdevs []int // ifindexes of its netdevs, in order; only Sys.Function tells
}

// Sys is the PCI functions below a sysfs mount.
type Sys struct {
	root string
	vpd  *vpdCache
}

// New gives the functions below root, usually /sys. With vpd false product and
// serial are left out: on real cards VPD is read four bytes at a time through
// configuration space and takes a tenth of a second or more, once per card and
// process.
func New(root string, vpd bool) *Sys {
	s := &Sys{root: root}
	if vpd {
		s.vpd = &vpdCache{known: map[string]vpdEntry{}}
	}
	return s
}

func (s *Sys) path(elem ...string) string {
	p := s.root + "/bus/pci"
	for _, e := range elem {
		p += "/" + e
	}
	return p
}

func (s *Sys) device(address string, elem ...string) string {
	return s.path(append([]string{"devices", address}, elem...)...)
}
