package host

import (
	"context"
	"io"
	"net/netip"

	"sluice.dev/sluice/pkg/nic"
)

// Machine is everything of one machine that sluice may read or change.
type Machine struct {
	PCI      PCI
	Devlink  Devlink
	Links    Links // of the host's network namespace
	Bonds    Bonds // of the host's network namespace
	Pairs    Pairs
	RDMA     RDMA
	Netns    Netns
	Settings Settings
	Watch    Watch
	GPUs     GPUs

	// Boot names the present boot of the machine (drivers/char/random.c, boot_id): what
	// was begun in another has ended with it. "" not known.
	Boot string

	// Keep is addresses to which the host must not lose its way, the API server's
	// for one: what they are reached over counts as in use by the host (nic.PF.Carries).
	Keep []netip.Addr
}

// GPUs is what NICs are near to or far from.
type GPUs interface {
	// GPUs lists the PCI functions that display or compute (classes 03 and 12),
	// ordered by address.
	GPUs(ctx context.Context) ([]GPU, error)
}

// GPU is one function that displays or computes.
type GPU struct {
	Address string
	NUMA    int    // -1: not said
	Path    string // as of nic.PF
}

// PCI is the machine's network-class PCI functions, by address.
type PCI interface {
	// Functions lists all functions of class 02 (network controller), ordered by
	// address, and whatever VFs they have.
	Functions(ctx context.Context) ([]Function, error)

	// Function reads one function; fs.ErrNotExist if there is none. A VF's
	// VFIndex is answered too.
	Function(ctx context.Context, address string) (Function, error)

	// SFs lists the auxiliary devices of SFs, ordered by name.
	SFs(ctx context.Context) ([]SFDevice, error)

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
	VFVectors int // of a PF: sriov_vf_total_msix, interrupts that its VFs share; 0 not said

	VFDevice  string // of a PF: the device id of its VFs; "" not said
	ACPIIndex int    // of a PF: as of nic.PF

	Path string // of a PF: where it hangs, as of nic.PF

	// Away: a netdev of this function exists in another network namespace (its
	// net/ directory is there, and empty here).
	Away       bool
	IOMMUGroup int    // -1: none
	VFIO       string // as of nic.VF

	// Netdevs is the ifindexes of its netdevs in this namespace, in order. Only
	// PCI.Function tells.
	Netdevs []int
}

// SFDevice is the auxiliary device of an SF that is active.
type SFDevice struct {
	Name   string // mlx5_core.sf.4
	PF     string // PCI address of the PF
	Num    int    // sfnum
	Driver string // "" when unbound
	Away   bool   // as of Function
}

// Devlink is the machine's devlink instances and their ports.
type Devlink interface {
	// Devices lists the instances. Instances on buses that sluice does not know
	// are listed too.
	Devices(ctx context.Context) ([]DevlinkDevice, error)

	// Ports lists the ports of all instances.
	Ports(ctx context.Context) ([]DevlinkPort, error)

	// Port reads one port; fs.ErrNotExist if there is none.
	Port(ctx context.Context, h nic.Handle, index uint32) (DevlinkPort, error)

	// SetEswitch sets the mode and returns when the representors of all VFs are
	// there with their netdevs, or gone. A driver's refusal carries its text.
	SetEswitch(ctx context.Context, h nic.Handle, m nic.Eswitch) error

	// SetPortMAC sets hw_addr of a VF's or SF's port function; drivers want it
	// before the function is bound (Documentation/networking/devlink/devlink-port.rst).
	SetPortMAC(ctx context.Context, h nic.Handle, port uint32, mac nic.MAC) error

	// AddSF makes an SF, inactive, and returns when its representor is there. A
	// number in use is fs.ErrExist, no room ErrExhausted, a PF that is not in
	// switchdev mode ErrNotSupported.
	AddSF(ctx context.Context, h nic.Handle, num int) error

	// DelSF removes an SF by the index of its port; mlx5 wants it inactive and
	// detached (ErrBusy).
	DelSF(ctx context.Context, h nic.Handle, port uint32) error

	// SetSFActive sets the state of an SF's port function, and returns when the
	// SF's device and its netdev are there, or gone.
	SetSFActive(ctx context.Context, h nic.Handle, port uint32, active bool) error
}

// DevlinkDevice is one devlink instance.
type DevlinkDevice struct {
	Handle  nic.Handle
	Eswitch nic.Eswitch // "" when the driver has no eswitch ops
	Inline  string      // "" when not said
	Encap   string      // "" when not said
	Serial  string      // info: serial_number; "" when not said
	Driver  string
	MaxSFs  int // resource max_local_SFs (mlx5); 0 when not said

	// Failing is the health reporters of the device and of its ports that are in
	// state error, by name.
	Failing []string

	Firmware string // info: fw.version, running; "" when not said
	PSID     string // info: fw.psid, the card's variant; "" when not said
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
	SF         int  // sfnum; -1 when not said
	Active     bool // port function state
	Attached   bool // port function opstate
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

	// SetAltName gives an interface an alternative name, or takes it. A name in use is
	// fs.ErrExist.
	SetAltName(ctx context.Context, ifindex int, name string, on bool) error

	// SetPromisc sets Link.Promisc; off takes both of its flags back.
	SetPromisc(ctx context.Context, ifindex int, on bool) error

	// SetVFMAC sets a VF's administrative address through its PF's netdev:
	// legacy mode's way.
	SetVFMAC(ctx context.Context, pfIfindex, vf int, mac nic.MAC) error

	// Move puts the interface into the namespace at path, "" meaning the host's,
	// keeping its name; fs.ErrExist if there is one of that name. Representors
	// and switchdev uplinks are pinned to theirs: ErrNotSupported. The ifindex
	// may change; find the interface again by name.
	Move(ctx context.Context, ifindex int, path string) error

	// Pinned says, changing nothing, whether Move would refuse an interface for good:
	// ErrNotSupported, with the kernel's words if it has any. Linux 6.13 and 6.14 do
	// not tell before the move; nil there.
	Pinned(ctx context.Context, ifindex int) error

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

	// Uses lists what runs over interfaces: each address that is not link local and
	// each default route, by the interface that has it.
	Uses(ctx context.Context) ([]Use, error)

	// RouteTo says through which interface packets to a go; fs.ErrNotExist when
	// there is no route.
	RouteTo(ctx context.Context, a netip.Addr) (ifindex int, err error)

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

// DefaultRoute is how Use calls a default route.
const DefaultRoute = "the default route"

// Use is one thing that runs over an interface, in words: "address 192.0.2.7/24",
// DefaultRoute.
type Use struct {
	Ifindex int
	What    string
}

// Link is one interface.
type Link struct {
	nic.Netdev
	// Parent is the device that it is a port of: the PCI address of a function, or
	// the name of an SF's auxiliary device; "" none.
	Parent     string
	InfiniBand bool   // its link layer is InfiniBand
	Lower      int    // ifindex of what it is built on (IFLA_LINK of a VLAN, say); 0 none
	PortName   string // phys_port_name; "" when absent, empty or unreadable
	SwitchID   nic.SwitchID
	Kind       string          // rtnetlink's kind; "" for a physical one
	Master     int             // ifindex of bridge, bond or OVS; 0 none
	AltNames   []string        // alternative names
	Promisc    bool            // somebody wants all packets, or all multicast ones (IFF_PROMISC, IFF_ALLMULTI)
	VFMACs     map[int]nic.MAC // of a PF: administrative addresses by VF index
}

// Bonds is the bonds of a network namespace.
type Bonds interface {
	// Bonds lists them, ordered by name.
	Bonds(ctx context.Context) ([]Bond, error)

	// AddBond makes one, up and without members, marked as ours. A name in use is
	// fs.ErrExist.
	AddBond(ctx context.Context, b nic.BondSpec) error

	// DelBond removes one that is ours; another is ErrNotSupported, one that has
	// members ErrBusy.
	DelBond(ctx context.Context, name string) error

	// Enslave puts an interface into a bond, down first as the kernel wants
	// (bond_enslave), and returns when it is a member. One that is in another
	// master is ErrBusy. What the driver says against offloading is no refusal.
	Enslave(ctx context.Context, bond, member int) error

	// Release takes an interface out of a bond, and returns when it is out.
	// Whether it is up afterwards is as it was while it was a member.
	Release(ctx context.Context, bond, member int) error

	// LAG says for PFs by PCI address whether hardware aggregates; those whose
	// driver does not say are not in it (mlx5/core/lag/debugfs.c).
	LAG(ctx context.Context) (map[string]nic.LAG, error)

	// AwaitBond returns when there is a bond of that name that has all the members
	// (ifindexes); fs.ErrNotExist when it has not come within the bound.
	AwaitBond(ctx context.Context, name string, members []int) error

	// AwaitLAG returns when hardware aggregates the ports at the PCI addresses. It
	// says what is seen instead when that has not come within the bound
	// (ErrNotActive).
	AwaitLAG(ctx context.Context, pfs []string) error
}

// Bond is one bond with the ifindexes of its members.
type Bond struct {
	Link
	Mode     nic.BondMode
	Hash     string
	Miimon   int
	LACPRate string
	Ours     bool
	Members  []int
	Active   int // ifindex of the active member; 0 none or not of that mode
}

// Settings is what functions have beyond what other parts of the machine set
// (nic.Setting).
type Settings interface {
	// Read fills in Settings, Limits and VDPA of all functions in s, by lists of the
	// whole machine. What a function does not offer as it is now, is absent.
	Read(ctx context.Context, s *nic.State) error

	// ReadVF fills in those of one VF, whatever the number of VFs.
	ReadVF(ctx context.Context, pf *nic.PF, vf int) error

	// ReadSF fills in those of one SF, by its number.
	ReadSF(ctx context.Context, pf *nic.PF, num int) error

	// SetPF, SetVF and SetSF set one. A setting that the object does not have, or
	// not as it is now, is ErrNotSupported; a value that is none, or over the
	// limit, ErrInvalid.
	SetPF(ctx context.Context, pf nic.PF, name nic.Setting, value string) error
	SetVF(ctx context.Context, pf nic.PF, vf int, name nic.Setting, value string) error
	SetSF(ctx context.Context, pf nic.PF, num int, name nic.Setting, value string) error
}

// Watch tells that something has changed, whoever did it.
type Watch interface {
	// Changes sends whenever an interface, address, route, devlink object or
	// device has changed; several changes of one thing close together may be one. The
	// channel is closed when ctx ends. Lost messages count as a change of anything;
	// whoever reads slowly loses none.
	Changes(ctx context.Context) (<-chan Change, error)
}

// Change is one change.
type Change struct {
	What string // in words, for logs: "netdev eth3", "devlink pci/0000:03:00.0"
	Of   Thing
}

// RDMA is the machine's RDMA devices.
type RDMA interface {
	Devices(ctx context.Context) ([]RDMADevice, error)

	// System reads the mode, whether it can be changed now, and what a setting on
	// disk asks for.
	System(ctx context.Context) (nic.RDMA, error)

	// SetMode changes the mode; ErrBusy while other network namespaces exist.
	SetMode(ctx context.Context, m nic.RDMAMode) error

	// SetModeAtBoot writes what the next boot is to bring (netns_mode of ib_core);
	// "" takes back what it has written.
	SetModeAtBoot(ctx context.Context, m nic.RDMAMode) error

	// Move gives a device of the host's network namespace, by name, to the one at
	// path. That is for exclusive mode: in shared mode, and of drivers that cannot
	// (soft RoCE), it is ErrNotSupported (drivers/infiniband/core/device.c,
	// ib_device_set_netns_put). A device that is not there, or no such path, is
	// fs.ErrNotExist. A namespace that ends gives its devices back
	// (rdma_dev_exit_net); before that the way back is NetnsLinks.MoveRDMA.
	Move(ctx context.Context, name, path string) error
}

// RDMADevice is one RDMA device and the files through which programs use it.
type RDMADevice struct {
	Name     string     `json:"name"`
	Parent   string     `json:"parent,omitempty"`   // PCI address or auxiliary device; "" for soft devices
	Netdev   string     `json:"netdev,omitempty"`   // for soft devices: the netdev they sit on
	Files    []string   `json:"files,omitempty"`    // /dev/infiniband/uverbsN and the like, without rdma_cm
	NodeGUID string     `json:"nodeGUID,omitempty"` // eight octets, colon-separated; "" when not said
	Ports    []RDMAPort `json:"ports,omitempty"`
}

// RDMAPort is one port of an RDMA device.
type RDMAPort struct {
	Number    int    `json:"number"`
	LinkLayer string `json:"linkLayer,omitempty"` // InfiniBand, Ethernet
	State     string `json:"state,omitempty"`     // ACTIVE, DOWN, ...
	Netdev    string `json:"netdev,omitempty"`    // "" none in this namespace
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

	// Sysctl reads a setting of an interface (SysctlPath), or of DefaultSysctl;
	// fs.ErrNotExist if there is none of this name.
	Sysctl(ctx context.Context, ifindex int, name string) (string, error)

	// SetSysctl sets one. It ends with the interface's stay in the namespace.
	SetSysctl(ctx context.Context, ifindex int, name, value string) error

	// RDMADevices lists by name, in order, the RDMA devices that the namespace
	// sees: in exclusive mode those that it was given, in shared mode all.
	RDMADevices(ctx context.Context) ([]string, error)

	// MoveRDMA is RDMA.Move from here, "" meaning to the host's. The kernel takes
	// the request only from the namespace that the device is in.
	MoveRDMA(ctx context.Context, name, path string) error
}
