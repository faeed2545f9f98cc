package hosttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Capability is something that a machine under test may lack.
type Capability string

// The capabilities. A fixture has each of them or says in Lacks why not.
const (
	SRIOV       Capability = "sriov"         // PFs[0], with two VFs or more
	Eswitch     Capability = "eswitch"       // PFs have a mode
	ModeWithVFs Capability = "mode with vfs" // which can be changed while there are VFs
	PortMAC     Capability = "port mac"      // port functions have hw_addr
	TwoPorts    Capability = "two ports"     // PFs[0] and PFs[1] are ports of one card
	VFIO        Capability = "vfio"          // vfio-pci can be bound to a VF
	RDMA        Capability = "rdma"          // bound VFs have RDMA devices
	Namespaces  Capability = "namespaces"    // AddNetns and DeleteNetns
	Software    Capability = "software"      // AddLink and AddAltName
	Counting    Capability = "counting"      // Writes
	Faults      Capability = "faults"        // Inject

	Settings         Capability = "settings"          // Machine.Settings
	VFSettings       Capability = "vf settings"       // trust, spoof check and VLAN of VFs in legacy mode
	FunctionSettings Capability = "function settings" // RoCE and event queues of VFs in switchdev mode
	Rates            Capability = "rates"             // of VFs, in either mode
	SFs              Capability = "sfs"               // the PFs can have SFs
	Bonds            Capability = "bonds"             // Machine.Bonds
	LAG              Capability = "lag"               // which the hardware takes
	RDMAModes        Capability = "rdma modes"        // the machine has RDMA, in one of two modes
	Watch            Capability = "watch"             // Machine.Watch
	Uses             Capability = "uses"              // Links.Uses and RouteTo
	Netkit           Capability = "netkit"            // the kernel has it (CONFIG_NETKIT)
)

func capabilities() []Capability {
	return []Capability{
		SRIOV, Eswitch, ModeWithVFs, PortMAC, TwoPorts, VFIO, RDMA, Namespaces, Software, Counting, Faults,
		Settings, VFSettings, FunctionSettings, Rates, SFs, Bonds, LAG, RDMAModes, Watch, Uses, Netkit,
	}
}

// Fixture is a machine under test. The suite asks for a new one for each rule and
// expects to find no VFs on the PFs, autoprobe on, legacy mode, their drivers
// bound and their netdevs up.
type Fixture struct {
	Machine host.Machine

	// PFs may be changed at will. Other functions are never touched.
	PFs []nic.Handle

	// TotalVFs is sriov_totalvfs of each. MostVFs is how many the suite makes
	// where it wants many; 0 means TotalVFs.
	TotalVFs int
	MostVFs  int

	// Lacks gives the reason for each capability that is not there.
	Lacks map[Capability]string

	// AddNetns makes a namespace and returns its path; DeleteNetns takes it
	// away. NotNetns is a path of a file that is no namespace.
	AddNetns    func(t *testing.T) (path string)
	DeleteNetns func(t *testing.T, path string)
	NotNetns    string

	// AddLink makes a software interface in the namespace at path, "" the
	// host's, down and able to move. AddAltName gives an interface there
	// another name.
	AddLink    func(t *testing.T, path, name string) (ifindex int)
	AddAltName func(t *testing.T, path string, ifindex int, name string)

	// Writes counts what reached the kernel as a change, for "touches nothing".
	Writes func() int

	// Inject makes the next change of a number of VFs or of a mode fail before it
	// has an effect.
	Inject func(t *testing.T, errno syscall.Errno)
}

// check says what is amiss with the fixture itself, which would make the suite
// worth less than it looks.
func (f Fixture) check(t *testing.T) {
	t.Helper()
	given := map[Capability]bool{
		SRIOV: len(f.PFs) > 0 && f.TotalVFs >= 2, TwoPorts: len(f.PFs) > 1,
		Namespaces: f.AddNetns != nil && f.DeleteNetns != nil, Software: f.AddLink != nil && f.AddAltName != nil,
		Counting: f.Writes != nil, Faults: f.Inject != nil,
		Settings: f.Machine.Settings != nil, Bonds: f.Machine.Bonds != nil, Watch: f.Machine.Watch != nil,
	}
	for _, c := range capabilities() {
		reason, lacks := f.Lacks[c]
		has, checked := given[c]
		switch {
		case lacks && reason == "":
			t.Errorf("the fixture lacks %q and does not say why", c)
		case lacks && checked && has:
			t.Errorf("the fixture lacks %q (%s), and yet provides it", c, reason)
		case !lacks && checked && !has:
			t.Errorf("the fixture has %q and does not provide it", c)
		}
	}
	for c := range f.Lacks {
		if !slices.Contains(capabilities(), c) {
			t.Errorf("no capability %q", c)
		}
	}
	s := observe(t, f)
	for _, h := range f.PFs {
		p := s.PF(h)
		if p == nil {
			t.Fatalf("the machine has no %s", h)
		}
		if p.TotalVFs != f.TotalVFs {
			t.Errorf("%s has %d VFs, the fixture says %d", h, p.TotalVFs, f.TotalVFs)
		}
		if _, lacks := f.Lacks[Eswitch]; lacks != (p.Eswitch == "") {
			t.Errorf("%s has eswitch mode %q, the fixture says lacking: %v", h, p.Eswitch, lacks)
		}
		if len(p.VFs) > 0 || p.Eswitch == nic.Switchdev || p.Driver == "" || !p.Autoprobe || !p.Uplink.Up {
			t.Errorf("%s is not as the suite wants to find it: %d VFs, mode %q, driver %q, autoprobe %v, up %v",
				h, len(p.VFs), p.Eswitch, p.Driver, p.Autoprobe, p.Uplink.Up)
		}
	}
}

// rule is one sentence of the contract.
type rule struct {
	name    string
	needs   []Capability
	run     func(t *testing.T, f Fixture)
	without Capability // what the rule shows not to be there; "" none
}

// when is a rule for machines that have all of needs.
func when(name string, run func(*testing.T, Fixture), needs ...Capability) rule {
	return rule{name: name, run: run, needs: needs}
}

// unless is a rule for machines that lack without: how that shows.
func unless(without Capability, name string, run func(*testing.T, Fixture), needs ...Capability) rule {
	return rule{name: name, run: run, needs: needs, without: without}
}

func rules() []rule {
	return slices.Concat(
		pciRules(), devlinkRules(), linkRules(), netnsRules(), identityRules(), contextRules(),
		settingRules(), sfRules(), bondRules(), systemRules(),
	)
}

// Run runs the whole contract. open makes a fresh fixture for each rule and cleans
// up by itself. It logs how many rules held and which were skipped and why.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	t.Run("fixture", func(t *testing.T) { open(t).check(t) })
	held, skipped := 0, map[string]int{}
	for _, r := range rules() {
		ran := false
		passed := t.Run(r.name, func(t *testing.T) {
			f := open(t)
			for _, c := range r.needs {
				if why, lacks := f.Lacks[c]; lacks {
					skipped[fmt.Sprintf("no %s: %s", c, why)]++
					t.Skipf("no %s: %s", c, why)
				}
			}
			if _, lacks := f.Lacks[r.without]; r.without != "" && !lacks {
				return // the rules that need it are run instead
			}
			ran = true
			r.run(t, f)
		})
		if ran && passed {
			held++
		}
	}
	report(t, held, skipped)
}

func report(t *testing.T, held int, skipped map[string]int) {
	n := 0
	var why []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		n += skipped[reason]
		why = append(why, fmt.Sprintf("%d (%s)", skipped[reason], reason))
	}
	t.Logf("contract: %d rules held, %d skipped: %s", held, n, strings.Join(why, ", "))
}
