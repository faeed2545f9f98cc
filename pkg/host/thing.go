package host

import "sluice.dev/sluice/pkg/nic"

// Thing is what a change is of: one of what Observe reads in lists. It is
// comparable; the zero value is anything.
type Thing struct {
	Kind     Kind
	Ifindex  int        // of an interface in the host's namespace
	Function string     // PCI address
	Handle   nic.Handle // of a devlink instance
	Port     uint32     // index of its port
}

// Kind says which of the lists a Thing is in.
type Kind string

// The kinds.
const (
	OfAnything  Kind = ""
	OfInterface Kind = "interface" // Ifindex
	OfFunction  Kind = "function"  // Function
	OfPart      Kind = "part"      // Function: of something that its driver has made
	OfDevlink   Kind = "devlink"   // Handle: it came or went
	OfPort      Kind = "port"      // Handle and Port
	OfHealth    Kind = "health"    // Handle: a health reporter of it
	OfSFs       Kind = "SFs"       // auxiliary devices of SFs
	OfRDMA      Kind = "RDMA"      // RDMA devices and their files
	OfVDPA      Kind = "vDPA"      // Function: a vDPA device of it
	OfFiles     Kind = "files"     // device files that are no function's own
	OfUses      Kind = "uses"      // addresses, routes, parameters, rates: in no list by name
)
