package capability

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// good are facts with which everything is yes.
func good() Facts {
	f := Facts{
		Kernel: Kernel{Release: "6.12.0", Config: "/proc/config.gz", Options: map[string]string{}},
		Switch: Switch{Endpoint: "unix:/db", HWOffload: true, Version: "3.5.0"},
		RDMA:   RDMA{Mode: nic.RDMAExclusive, From: "netns_mode"},
		IOMMU:  IOMMU{Groups: 3},
	}
	for _, name := range Options() {
		f.Kernel.Options[name] = "y"
	}
	for i := range 2 {
		f.PFs = append(f.PFs, PF{
			Handle: nic.PCI(fmt.Sprintf("0000:03:00.%d", i)), Card: "A", Netdev: fmt.Sprintf("p%d", i), Driver: "mlx5_core", Module: "mlx5_core",
			Eswitch: nic.Switchdev, TotalVFs: 8, VFs: 1, RDMA: []string{"mlx5_0"}, TCOffload: "on", Encap: "basic",
		})
	}
	return f
}

func TestGood(t *testing.T) {
	for _, c := range Judge(good()).Capabilities {
		if c.Answer != Yes {
			t.Errorf("%s is %s: %v", c.Name, c.Answer, c.Missing())
		}
	}
}

// One thing is wrong; the capabilities that are no longer yes, and of the first of
// them what the finding and the change have to say.
func TestOneThing(t *testing.T) {
	off := func(names ...string) func(*Facts) {
		return func(f *Facts) {
			for _, n := range names {
				f.Kernel.Options[n] = "n"
			}
		}
	}
	no := false
	for name, tt := range map[string]struct {
		change func(*Facts)
		gone   string
		words  []string
	}{
		"conntrack": {off("NET_TC_SKB_EXT"), "conntrack", []string{"CONFIG_NET_TC_SKB_EXT is not set (/proc/config.gz)", "built with CONFIG_NET_TC_SKB_EXT"}},
		"no MLX5_CLS_ACT": {func(f *Facts) { delete(f.Kernel.Options, "MLX5_CLS_ACT") }, "flows from-wire conntrack geneve vxlan",
			[]string{"CONFIG_MLX5_CLS_ACT is not there"}},
		"geneve":          {off("GENEVE"), "geneve", []string{"CONFIG_GENEVE is not set"}},
		"no bonding":      {off("BONDING"), "vf-lag", []string{"CONFIG_BONDING"}},
		"no SF":           {off("MLX5_SF"), "sfs", []string{"CONFIG_MLX5_SF is not set"}},
		"neither vdpa":    {off("VHOST_VDPA", "VIRTIO_VDPA"), "vdpa", []string{"CONFIG_VHOST_VDPA"}},
		"one vdpa":        {off("VHOST_VDPA"), "", nil},
		"no SR-IOV":       {off("PCI_IOV"), "vfs vdpa vfio", []string{"CONFIG_PCI_IOV"}},
		"no VFs":          {func(f *Facts) { f.PFs[0].TotalVFs, f.PFs[1].TotalVFs = 0, 0 }, "vfs vdpa vfio", []string{"no PF can have VFs", "SRIOV_EN"}},
		"one can":         {func(f *Facts) { f.PFs[0].TotalVFs = 0 }, "", nil},
		"no IOMMU":        {func(f *Facts) { f.IOMMU.Groups, f.IOMMU.Table = 0, "DMAR" }, "vfio", []string{"no IOMMU", "boot with intel_iommu=on"}},
		"shared RDMA":     {func(f *Facts) { f.RDMA.Mode = nic.RDMAShared }, "rdma-exclusive", []string{"netns_mode", "options ib_core netns_mode=0"}},
		"exclusive later": {func(f *Facts) { f.RDMA.Mode, f.RDMA.AtBoot = nic.RDMAShared, nic.RDMAExclusive }, "rdma-exclusive", []string{"on disk already"}},
		"legacy": {func(f *Facts) { f.PFs[0].Eswitch, f.PFs[1].Eswitch = nic.Legacy, nic.Legacy }, "flows from-wire conntrack geneve vxlan",
			[]string{"in legacy mode: pci/0000:03:00.0, pci/0000:03:00.1", "eswitch: switchdev"}},
		"one in legacy":  {func(f *Facts) { f.PFs[1].Eswitch = nic.Legacy }, "", nil},
		"encap":          {func(f *Facts) { f.PFs[1].Encap = "none" }, "geneve vxlan", []string{"pci/0000:03:00.1", "encap-mode basic"}},
		"no tc on wire":  {func(f *Facts) { f.PFs[1].TCOffload = "off" }, "from-wire", []string{"p1", "ethtool -K p1 hw-tc-offload on"}},
		"old":            {func(f *Facts) { f.Kernel.Release = "5.19.1" }, "big-tcp", []string{"IPv6 only"}},
		"very old":       {func(f *Facts) { f.Kernel.Release = "5.15.0-91-generic" }, "big-tcp", []string{"5.15 does not", "6.3"}},
		"new enough":     {func(f *Facts) { f.Kernel.Release = "6.3.0" }, "", nil},
		"strange":        {func(f *Facts) { f.Kernel.Release = "mine" }, "big-tcp", []string{`"mine"`}},
		"other ports":    {func(f *Facts) { f.PFs[1].Card = "B" }, "vf-lag", []string{"no card has two ports"}},
		"another card":   {func(f *Facts) { f.PFs = append(f.PFs, PF{Handle: nic.PCI("0000:09:00.0"), Driver: "igb"}) }, "", nil},
		"switch off":     {func(f *Facts) { f.Switch.HWOffload = false }, "open-vswitch", []string{"hw-offload is not true (unix:/db)", "hw-offload=true"}},
		"skip_hw":        {func(f *Facts) { f.Switch.TCPolicy = "skip_hw" }, "open-vswitch", []string{"skip_hw", "restart"}},
		"skip_sw":        {func(f *Facts) { f.Switch.TCPolicy = "skip_sw" }, "", nil},
		"needs restart":  {func(f *Facts) { f.Switch.Offloading = &no }, "open-vswitch", []string{"does not offload at present (dpif/offload/show)", "restart"}},
		"no switch":      {func(f *Facts) { f.Switch.Error = "no ovsdb-server at x" }, "open-vswitch", []string{"no ovsdb-server at x", "start"}},
		"no daemon":      {func(f *Facts) { f.Switch.DaemonError = "find ovs-vswitchd" }, "open-vswitch", []string{"find ovs-vswitchd"}},
		"no RDMA device": {func(f *Facts) { f.PFs[0].RDMA, f.PFs[1].RDMA = nil, nil }, "rdma rdma-exclusive", []string{"no PF or VF has an RDMA device", "mlx5_ib"}},
		"legacy NIC only": {func(f *Facts) { f.PFs = []PF{{Handle: nic.PCI("0000:09:00.0"), Driver: "igb", TotalVFs: 7}} },
			"switchdev flows from-wire conntrack geneve vxlan vf-lag sfs vdpa rdma rdma-exclusive ipsec", []string{"no PF has an eswitch: pci/0000:09:00.0 igb"}},
		"no NIC": {func(f *Facts) { f.PFs = nil }, "vfs switchdev flows from-wire conntrack geneve vxlan vf-lag sfs vdpa vfio rdma rdma-exclusive ipsec", []string{"no PF can have VFs"}},
		"unknown driver": {func(f *Facts) { f.PFs[0].Driver, f.PFs[1].Driver = "newnic", "newnic" },
			"flows from-wire conntrack geneve vxlan vf-lag sfs vdpa ipsec", []string{"newnic"}},
		"foreign": {func(f *Facts) { f.PFs[0].Foreign, f.PFs[1].Foreign = "taint", "taint" },
			"flows from-wire conntrack geneve vxlan vf-lag sfs vdpa ipsec", []string{"not built with this kernel", "(taint)", "sluice flows"}},
		"foreign and proven": {func(f *Facts) {
			f.PFs[0].Foreign, f.PFs[0].LAG, f.PFs[0].InHW = "taint", nic.LAGActive, InHW{Rules: 3, Conntrack: 1}
			f.PFs[1].Foreign, f.PFs[1].InHW.Tunnels = "taint", 1
		}, "sfs vdpa ipsec", []string{"not built with this kernel"}},
		// The better of two cards counts.
		"another driver": {func(f *Facts) {
			f.PFs = append(f.PFs, PF{Handle: nic.PCI("0000:09:00.0"), Driver: "ice", Eswitch: nic.Legacy})
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := good()
			tt.change(&f)
			var gone []string
			var said string
			for _, c := range Judge(f).Capabilities {
				if c.Answer == Yes {
					continue
				}
				if gone == nil {
					for _, m := range c.Missing() {
						said += m.String() + " -> " + m.Change + "\n"
					}
				}
				gone = append(gone, c.Name)
			}
			if d := cmp.Diff(strings.Fields(tt.gone), gone); len(gone) > 0 && d != "" || len(gone) == 0 && tt.gone != "" {
				t.Errorf("no longer yes: %s\n%s", d, said)
			}
			for _, w := range tt.words {
				if !strings.Contains(said, w) {
					t.Errorf("%q is not said:\n%s", w, said)
				}
			}
		})
	}
}

// Whatever the facts, each answer follows from its findings, and each finding that
// is not yes says what to change, or which capability says it.
func TestFindingsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	for range 5000 {
		f := Facts{
			Kernel: Kernel{Release: pick("6.12.0", "5.10", "x"), Config: pick("", "/proc/config.gz"), Options: map[string]string{}, Modules: map[string]Module{}, ModulesFrom: pick("", "/lib")},
			Switch: Switch{Endpoint: "e", Error: pick("", "away"), HWOffload: r.IntN(2) == 0, TCPolicy: pick("", "skip_hw"), DaemonError: pick("", "away")},
			RDMA:   RDMA{Mode: nic.RDMAMode(pick("", "shared", "exclusive"))},
			IOMMU:  IOMMU{Groups: r.IntN(2), Table: pick("", "DMAR", "IVRS")},
		}
		for _, name := range Options() {
			if v := pick("", "y", "m", "n", "y", "y", "3"); v != "" {
				f.Kernel.Options[name] = v
			}
		}
		for _, name := range Modules() {
			if r.IntN(4) > 0 {
				f.Kernel.Modules[name] = Loadable
			}
		}
		for i := range r.IntN(4) {
			f.PFs = append(f.PFs, PF{
				Handle: nic.PCI(fmt.Sprintf("0000:03:00.%d", i)), Card: pick("A", "B"), Driver: pick("", "mlx5_core", "ice", "igb", "other"),
				Foreign: pick("", "", "", "/sys/module/x/taint"), Eswitch: nic.Eswitch(pick("", "legacy", "switchdev")), TotalVFs: r.IntN(3),
				TCOffload: pick("", "on", "off"), Encap: pick("", "none", "basic"), InHW: InHW{Rules: r.IntN(2)},
			})
		}
		for _, c := range Judge(f).Capabilities {
			if len(c.Findings) == 0 {
				t.Fatalf("%s has no finding: %+v", c.Name, f)
			}
			want := Yes
			for _, found := range c.Findings {
				if found.Answer == No || found.Answer == Unknown && want == Yes {
					want = found.Answer
				}
				if found.What == "" || found.Answer == Yes != (found.Change == "") && !strings.HasPrefix(found.What, "it rests on ") {
					// A value that no Kconfig writes has no remedy.
					if !strings.Contains(found.What, "want y, m or nothing") {
						t.Fatalf("%s: %+v", c.Name, found)
					}
				}
			}
			if c.Answer != want {
				t.Fatalf("%s is %s: %+v", c.Name, c.Answer, c.Findings)
			}
			if n := len(c.Missing()); (n == 0) != (c.Answer == Yes) {
				t.Fatalf("%s is %s and %d are missing", c.Name, c.Answer, n)
			}
			for i, found := range c.Findings {
				if slices.Contains(c.Findings[:i], found) {
					t.Fatalf("%s says twice: %s", c.Name, found)
				}
			}
		}
	}
}

func TestSimulate(t *testing.T) {
	s := nic.State{PFs: []nic.PF{{
		Handle: nic.PCI("0000:03:00.0"), Driver: "mlx5_core", Eswitch: nic.Switchdev, TotalVFs: 4,
		VFs: []nic.VF{{IOMMUGroup: 3}, {IOMMUGroup: -1}},
	}}}
	r := Judge(Simulate(s))
	if !r.Facts.Simulated || r.Get(Flows).Answer != Yes || r.Get(OpenVSwitch).Answer != No || r.Facts.IOMMU.Groups != 1 {
		t.Errorf("report: %+v", r)
	}
	for _, c := range r.Capabilities {
		for _, f := range c.Findings {
			if f.From != "" && f.From != "simulated" {
				t.Errorf("%s: %q claims to be from %s", c.Name, f.What, f.From)
			}
		}
	}
	if r.Get("none of it") != nil {
		t.Error("a capability that does not exist")
	}
}
