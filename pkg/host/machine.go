package host

import (
	"context"
	"io"
	"net/netip"

	"sluice.dev/sluice/pkg/nic"
)

// Machine is everything of one machine that sluice may read or change.
type Machine struct {
	PCI     PCI
	Devlink Devlink
	Links   Links // of the host's network namespace
	RDMA    RDMA
	Netns   Netns
}

// PCI is the machine's network-class PCI functions, by address.
type PCI interface {
	// Functions lists all functions of class 02 (network controller), ordered by
	// address, and whatever VFs they have.
	Functions(ctx context.Context) ([]Function, error)

	// SetVFs sets the number of VFs of a PF and returns when all of them, and
	// with autoprobe on their drivers' netdevs, are there. The kernel refuses to
	// go from one count to another unless one is 0 (drivers/pci/iov.c,
	// sriov_numvfs_store: ErrBusy) and a count over sriov_totalvfs (ERANGE).
	SetVFs(ctx context.Context, pf string, n int) error

	// SetAutoprobe says whether new VFs are bound to a driver on their own.
	SetAutoprobe(ctx context.Context, pf string, on bool) error

	// Bind binds an unbound function to driver, or with "" to the one that the
	// kernel picks, and returns when its netdev is there (for a network driver).
	// Being bound to that driver already is success; to another is ErrBusy.
	Bind(ctx context.Context, function, driver string) error

	// Unbind takes the driver from a VF. A PF is refused: sluice never unbinds one.
	Unbind(ctx context.Context, vf string) error
}

// Function is one PCI function.
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

	// Away: a netdev of this function exists in another network namespace (its
	// net/ directory is there, and empty here).
	Away       bool
	IOMMUGroup int // -1: none
}

// Devlink is the machine's devlink instances and their ports.
type Devlink interface {
	// Devices lists the instances. Instances on buses that sluice does not know
	// are listed too.
	Devices(ctx context.Context) ([]DevlinkDevice, error)

	// Ports lists the ports of all instances.
	Ports(ctx context.Context) ([]DevlinkPort, error)

	// SetEswitch sets the mode and returns when the representors of all VFs are
	// there with their netdevs, or gone. A driver's refusal carries its text.
	SetEswitch(ctx context.Context, h nic.Handle, m nic.Eswitch) error

	// SetPortMAC sets hw_addr of a VF's port function; drivers want it before
	// the VF is bound (Documentation/networking/devlink/devlink-port.rst).
	SetPortMAC(ctx context.Context, h nic.Handle, port uint32, mac nic.MAC) error
}

// DevlinkDevice is one devlink instance.
type DevlinkDevice struct {
	Handle  nic.Handle
	Eswitch nic.Eswitch // "" when the driver has no eswitch ops
	Inline  string      // "" when not said
	Encap   string      // "" when not said
	Serial  string      // info: serial_number; "" when not said
	Driver  string
}

// Flavour of a devlink port, as devlink prints it.
type Flavour string

// The flavours that sluice looks at; others are carried as the kernel names them.
const (
	FlavourPhysical Flavour = "physical"
	FlavourPCIPF    Flavour = "pcipf"
	FlavourPCIVF    Flavour = "pcivf"
	FlavourPCISF    Flavour = "pcisf"
)

// DevlinkPort is one port of an instance.
type DevlinkPort struct {
	Handle     nic.Handle
	Index      uint32
	Flavour    Flavour
	Controller uint32
	External   bool // belongs to another host (a DPU's view): never ours
	PF         int  // pfnum; -1 when not said
	VF         int  // vfnum; -1 when not said
	Ifindex    int  // 0: no netdev (yet)
	Netdev     string
	MAC        nic.MAC // port function hw_addr; zero when none or not offered
	HasMAC     bool    // the port function offers hw_addr
}

// Links is the interfaces of one network namespace, by ifindex.
type Links interface {
	// Links lists all interfaces.
	Links(ctx context.Context) ([]Link, error)

	// Link reads one interface; fs.ErrNotExist if the namespace has none of this
	// ifindex. Its cost does not grow with the number of interfaces, and VFMACs
	// may be absent.
	Link(ctx context.Context, ifindex int) (Link, error)

	SetMTU(ctx context.Context, ifindex, mtu int) error
	SetMAC(ctx context.Context, ifindex int, mac nic.MAC) error
	SetUp(ctx context.Context, ifindex int, up bool) error

	// SetName renames, down first where the kernel wants that (before 6.2 an
	// interface that is up is EBUSY) and up again after. A name in use, also as
	// an alternative name of another interface, is fs.ErrExist.
	SetName(ctx context.Context, ifindex int, name string) error

	// SetVFMAC sets a VF's administrative address through its PF's netdev:
	// legacy mode's way.
	SetVFMAC(ctx context.Context, pfIfindex, vf int, mac nic.MAC) error

	// Move puts the interface into the namespace at path, "" meaning the host's,
	// keeping its name; fs.ErrExist if there is one of that name. Representors
	// and switchdev uplinks are pinned to theirs: ErrNotSupported. The ifindex
	// may change; find the interface again by name.
	Move(ctx context.Context, ifindex int, path string) error

	// Addresses lists an interface's addresses with their prefix lengths, link
	// local ones left out.
	Addresses(ctx context.Context, ifindex int) ([]netip.Prefix, error)

	// AddAddress adds an address; one that is there already is success.
	AddAddress(ctx context.Context, ifindex int, a netip.Prefix) error

	// Routes lists the unicast routes through an interface that somebody asked
	// for: not those that the kernel adds with an address.
	Routes(ctx context.Context, ifindex int) ([]Route, error)

	// AddRoute adds a route through the interface; one that is there already is
	// success.
	AddRoute(ctx context.Context, ifindex int, r Route) error

	// Announce tells the neighbours of an address: gratuitous ARP, or an
	// unsolicited neighbour advertisement.
	Announce(ctx context.Context, ifindex int, a netip.Addr) error
}

// Route is one route of an interface. An invalid Gateway means on-link. Of the
// rest 0 means what the kernel picks: the main table, no MTU or MSS of the
// route's own, priority 0 for IPv4 and 1024 for IPv6.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr
	MTU      int // bytes
	AdvMSS   int // bytes
	Priority int // metric
	Table    int
}

// Link is one interface.
type Link struct {
	nic.Netdev
	Parent   string // PCI address of the function that it is a port of; "" none
	PortName string // phys_port_name; "" when absent, empty or unreadable
	SwitchID nic.SwitchID
	Kind     string          // rtnetlink's kind; "" for a physical one
	Master   int             // ifindex of bridge, bond or OVS; 0 none
	AltNames []string        // alternative names
	VFMACs   map[int]nic.MAC // of a PF: administrative addresses by VF index
}

// RDMA is the machine's RDMA devices.
type RDMA interface {
	Devices(ctx context.Context) ([]RDMADevice, error)
}

// RDMADevice is one RDMA device and the files through which programs use it.
type RDMADevice struct {
	Name   string
	Parent string   // PCI address; "" for soft devices
	Netdev string   // for soft devices: the netdev they sit on
	Files  []string // /dev/infiniband/uverbsN and the like, without rdma_cm
}

// Netns opens other network namespaces.
type Netns interface {
	// Open gives the interfaces of the namespace at path. No such path is
	// fs.ErrNotExist; a path that is no network namespace is an error that says so.
	Open(ctx context.Context, path string) (NetnsLinks, error)
}

// NetnsLinks is Links of another namespace, to be closed after use.
type NetnsLinks interface {
	Links
	io.Closer

	// ID names the namespace itself, whatever path leads to it. No other one has
	// had or will have it, so a path that is used again for a new namespace
	// answers to another ID, also after a boot.
	ID() string
}
