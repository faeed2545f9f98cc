package capability

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// Facts is what was read of a node.
type Facts struct {
	Simulated bool   `json:"simulated,omitempty"` // made up for a simulated machine
	Kernel    Kernel `json:"kernel"`
	Switch    Switch `json:"openVSwitch"`
	RDMA      RDMA   `json:"rdma"`
	IOMMU     IOMMU  `json:"iommu"`
	PFs       []PF   `json:"pfs"`
}

// Kernel is the running kernel: how it was built, and the modules it has.
type Kernel struct {
	Release string `json:"release"` // uname -r

	// Options are those of Options, without "CONFIG_": "y", "m", and "n" for the
	// line "is not set". One that has no line is not in the map: what it depends on
	// is off, or the kernel does not know it.
	Options map[string]string `json:"options,omitempty"`
	Config  string            `json:"config,omitempty"`  // file that they are from; "" if none could be read
	NotRead []string          `json:"notRead,omitempty"` // "FILE: why" of each that was tried before, or of all

	// Modules are those of Modules that the kernel has, from ModulesFrom; "" if the
	// list of its modules could not be read, when only loaded ones are known.
	Modules     map[string]Module `json:"modules,omitempty"`
	ModulesFrom string            `json:"modulesFrom,omitempty"`

	// Symbols are those of Symbols: whether the running kernel has them. Looked for
	// only where there is no configuration.
	Symbols map[string]bool `json:"symbols,omitempty"`
}

// Version is the first two numbers of the release; ok is false when it has none.
func (k Kernel) Version() (major, minor int, ok bool) {
	n, err := fmt.Sscanf(k.Release, "%d.%d", &major, &minor)
	return major, minor, err == nil && n == 2
}

// Module is where a module is: built in, loaded, or loadable (its file is there).
type Module string

// The places, the best first.
const (
	BuiltIn  Module = "built in"
	Loaded   Module = "loaded"
	Loadable Module = "loadable"
)

// Switch is Open vSwitch: its database and the running ovs-vswitchd.
type Switch struct {
	Endpoint string `json:"endpoint"`
	Error    string `json:"error,omitempty"` // why the database could not be read

	// Settings of the database: what is wanted, not what runs.
	HWOffload bool   `json:"hwOffload"`
	TCPolicy  string `json:"tcPolicy,omitempty"` // none, skip_sw or skip_hw
	MaxIdle   string `json:"maxIdle,omitempty"`  // milliseconds; "" is the default, 10000

	// Datapath is what ovs-vswitchd found that the kernel's datapath can, in its own
	// words (dpif/show-dp-features): "CT state": "Yes"; nil before the first bridge.
	Datapath map[string]string `json:"datapath,omitempty"`

	// The daemon: its version, and from 3.7 on whether it offloads at present
	// (dpif/offload/show). DaemonError says why it did not answer.
	Version     string `json:"version,omitempty"`
	Offloading  *bool  `json:"offloading,omitempty"`
	DaemonError string `json:"daemonError,omitempty"`
}

// RDMA is how RDMA devices and network namespaces go together.
type RDMA struct {
	Mode   nic.RDMAMode `json:"mode,omitempty"`   // "" when ib_core is not loaded
	AtBoot nic.RDMAMode `json:"atBoot,omitempty"` // what a setting on disk asks for
	From   string       `json:"from,omitempty"`
}

// IOMMU is what vfio-pci needs.
type IOMMU struct {
	Groups      int      `json:"groups"`                // below sys/kernel/iommu_groups
	Table       string   `json:"table,omitempty"`       // ACPI's: DMAR (Intel), IVRS (AMD); "" the firmware has none
	CommandLine []string `json:"commandLine,omitempty"` // what the kernel was booted with on IOMMUs
}

// PF is what counts of one PF.
type PF struct {
	Handle    nic.Handle  `json:"handle"`
	Card      string      `json:"card"` // serial number, or PCI slot: the same for the ports of one card
	Netdev    string      `json:"netdev,omitempty"`
	Driver    string      `json:"driver,omitempty"`
	Module    string      `json:"module,omitempty"`  // kernel module of the driver
	Foreign   string      `json:"foreign,omitempty"` // file that tells that the driver is not of the kernel's tree; "" it is
	Eswitch   nic.Eswitch `json:"eswitch,omitempty"` // "" no eswitch can be set
	TotalVFs  int         `json:"totalVFs"`
	VFs       int         `json:"vfs"`
	RDMA      []string    `json:"rdma,omitempty"`      // RDMA devices of the PF and its VFs
	Conntrack bool        `json:"conntrack,omitempty"` // the driver counts offloaded connections (mlx5: debugfs ct/)
	TCOffload string      `json:"tcOffload,omitempty"` // hw-tc-offload of the uplink: on, off; "" not read
	Encap     string      `json:"encap,omitempty"`     // encap-mode: none, basic; "" not read
	LAG       nic.LAG     `json:"lag,omitempty"`       // what the driver says of VF-LAG
	InHW      InHW        `json:"inHW"`

	// Rules is the room for offloaded rules of the card; zero in legacy mode.
	Rules nic.RuleRoom `json:"ruleCapacity,omitzero"`
}

// InHW is how many rules on the PF's ports (uplink and representors) the driver has
// taken: what is there needs no options to be believed.
type InHW struct {
	Rules     int `json:"rules"`
	Conntrack int `json:"conntrack"` // of them, with conntrack
	Tunnels   int `json:"tunnels"`   // of them, with a tunnel put on or taken off
}

// PFsOf gives the facts of a node's PFs that its state has. Module, Foreign,
// Conntrack and InHW are left out.
func PFsOf(s nic.State) []PF {
	var out []PF
	rules := map[nic.Handle]nic.RuleRoom{}
	for _, c := range s.Cards() {
		for _, p := range c.PFs {
			rules[p.Handle] = c.Rules
		}
	}
	for _, p := range s.PFs {
		card := p.Serial
		if card == "" {
			card, _, _ = strings.Cut(p.Handle.String(), ".")
		}
		f := PF{
			Handle: p.Handle, Card: card, Netdev: p.Uplink.Name, Driver: p.Driver, Eswitch: p.Eswitch,
			TotalVFs: p.TotalVFs, VFs: len(p.VFs), RDMA: slices.Clone(p.RDMA),
			TCOffload: p.Settings[nic.TCOffload], Encap: p.Settings[nic.EncapMode], LAG: p.LAG,
		}
		if p.Eswitch == nic.Switchdev {
			f.Rules = rules[p.Handle]
		}
		for _, v := range p.VFs {
			f.RDMA = append(f.RDMA, v.RDMA...)
		}
		out = append(out, f)
	}
	return out
}

// Simulate makes up facts for a simulated machine: a kernel with all that offload
// needs, no Open vSwitch. Each says that it is simulated.
func Simulate(s nic.State) Facts {
	const from = "simulated"
	f := Facts{
		Simulated: true,
		Kernel:    Kernel{Release: from, Config: from, Options: map[string]string{}},
		Switch:    Switch{Endpoint: from, Error: "a simulated machine has no Open vSwitch"},
		RDMA:      RDMA{Mode: s.RDMA.Mode, AtBoot: s.RDMA.AtBoot, From: from},
		PFs:       PFsOf(s),
	}
	for _, name := range Options() {
		f.Kernel.Options[name] = "y"
	}
	groups := map[int]bool{}
	for _, p := range s.PFs {
		for _, v := range p.VFs {
			if v.IOMMUGroup >= 0 {
				groups[v.IOMMUGroup] = true
			}
		}
	}
	f.IOMMU.Groups = len(groups)
	return f
}
