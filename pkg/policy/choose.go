package policy

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// The link types that a selector can ask for.
const (
	linkEthernet   = "ethernet"
	linkInfiniBand = "infiniband"
)

// choose returns the PFs that fit s, in the order of state. Values are compared
// whole, and what a PF does not tell fits nothing.
func choose(s v1alpha1.Select, state nic.State) []*nic.PF {
	var out []*nic.PF
	for i := range state.PFs {
		if fits(s, &state.PFs[i]) {
			out = append(out, &state.PFs[i])
		}
	}
	return out
}

func fits(s v1alpha1.Select, pf *nic.PF) bool {
	link := linkEthernet
	if pf.InfiniBand {
		link = linkInfiniBand
	}
	address := ""
	if pf.Handle.Bus == "pci" {
		address = pf.Handle.Name
	}
	return one(s.Vendor, pf.Vendor) && one(s.Device, pf.Device) && one(s.Driver, pf.Driver) && one(s.LinkType, link) &&
		anyOf(s.PFNames, pf.Uplink.Name) && anyOf(s.Addresses, address) && anyOf(s.Handles, pf.Handle.String()) &&
		(s.NUMA == nil || *s.NUMA == pf.NUMA) && (s.ACPIIndex == nil || *s.ACPIIndex == pf.ACPIIndex)
}

// one says whether has is what is wanted; "" wants nothing.
func one(want, has string) bool { return want == "" || want == has }

// anyOf says whether has is one of what is wanted; nothing told is none of them.
func anyOf(want []string, has string) bool {
	return len(want) == 0 || has != "" && slices.Contains(want, has)
}

// choice checks the form of a selector, and says whether it can be applied: one
// that is wrong somewhere chooses nothing rather than too much.
func (f *form) choice(path string, s v1alpha1.Select) bool {
	before := len(f.problems)
	if s.Vendor == "" && s.Device == "" && s.Driver == "" && s.LinkType == "" && s.NUMA == nil && s.ACPIIndex == nil &&
		len(s.PFNames) == 0 && len(s.Addresses) == 0 && len(s.Handles) == 0 {
		f.fail(path, "it is empty, which would choose every PF: want at least one of vendor, device, pfNames, addresses, handles, linkType, numa, driver, acpiIndex")
	}
	f.pciID(path+".vendor", s.Vendor)
	f.pciID(path+".device", s.Device)
	if s.Device != "" && s.Vendor == "" {
		f.fail(path+".device", "%q without a vendor, which numbers its own devices: want vendor too, for example 15b3", s.Device)
	}
	f.word(path+".linkType", s.LinkType, linkEthernet, linkInfiniBand)
	if s.NUMA != nil && *s.NUMA < 0 {
		f.fail(path+".numa", "%d: want the number of a NUMA node, 0 or more", *s.NUMA)
	}
	if s.ACPIIndex != nil && *s.ACPIIndex < 1 {
		f.fail(path+".acpiIndex", "%d: want the number that firmware gives to a built-in PF, 1 or more", *s.ACPIIndex)
	}
	// A list that came out empty is a list of nothing, and not a wish left out.
	f.filled(path+".pfNames", s.PFNames == nil, len(s.PFNames))
	f.filled(path+".addresses", s.Addresses == nil, len(s.Addresses))
	f.filled(path+".handles", s.Handles == nil, len(s.Handles))
	for i, name := range s.PFNames {
		if !isNetdevName(name) {
			f.fail(fmt.Sprintf("%s.pfNames[%d]", path, i), "%q: want the name of an uplink netdev, for example ens1f0np0", name)
		}
	}
	for i, a := range s.Addresses {
		if !nic.IsPCIAddress(a) {
			f.fail(fmt.Sprintf("%s.addresses[%d]", path, i), "%v", notPCI(a))
		}
	}
	for i, h := range s.Handles {
		at := fmt.Sprintf("%s.handles[%d]", path, i)
		if _, err := nic.ParseHandle(h); err != nil || !strings.Contains(h, "/") {
			f.fail(at, "%q: want a devlink handle, bus/name, for example pci/0000:03:00.0", h)
		} else if err := checkAddress(h); err != nil {
			f.fail(at, "%v", err)
		}
	}
	return len(f.problems) == before
}

// filled refuses a list that is there and empty: left out it would be any.
func (f *form) filled(path string, left bool, n int) {
	if !left && n == 0 {
		f.fail(path, "it is an empty list, which nothing fits: want at least one value, or the field left out")
	}
}

func notPCI(address string) error {
	if err := checkAddress(address); err != nil && !strings.Contains(address, "/") {
		return err
	}
	return fmt.Errorf("%q is no PCI address: want domain:bus:device.function, for example 0000:03:00.0", address)
}

func (f *form) pciID(path, id string) {
	if id != "" && (len(id) != 4 || strings.Trim(id, "0123456789abcdef") != "") {
		f.fail(path, "%q is no PCI id: want four hexadecimal digits in lower case, for example 15b3", id)
	}
}

// isNetdevName is dev_valid_name of net/core/dev.c, and refuses the % that asks
// the kernel for a number.
func isNetdevName(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > 15 {
		return false
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c == 0x7f || c == '/' || c == ':' || c == '%' {
			return false
		}
	}
	return true
}
