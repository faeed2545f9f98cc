package probe

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

var update = flag.Bool("update", false, "write the golden files anew")

// tree is a node's files below a folder.
type tree struct {
	t    testing.TB
	root string
}

func newTree(t testing.TB, release string) tree {
	tr := tree{t, t.TempDir()}
	tr.file("/proc/sys/kernel/osrelease", release+"\n")
	return tr
}

func (tr tree) file(name, text string) {
	tr.t.Helper()
	path := tr.root + name
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) link(target, name string) {
	tr.t.Helper()
	path := tr.root + name
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) data(name string) string {
	tr.t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tr.t.Fatal(err)
	}
	return string(b)
}

// mlx5 puts the driver in place, as a module of the kernel's own or of others.
func (tr tree) mlx5(taint string) {
	tr.link("../../../../module/mlx5_core", "/sys/bus/pci/drivers/mlx5_core/module")
	tr.file("/sys/module/mlx5_core/taint", taint+"\n")
	tr.file("/sys/module/mlx5_core/initstate", "live\n")
}

// reader reads the tree, and an Open vSwitch that is not there.
func (tr tree) reader() Reader {
	return Reader{Root: tr.root, Endpoint: "unix:/nowhere/db.sock", RunDir: "/nowhere"}
}

func (tr tree) judge(s nic.State) capability.Report {
	return capability.Judge(tr.reader().Read(tr.t.Context(), s))
}

// card is a card of two ports in switchdev mode with a VF each.
func card() nic.State {
	var s nic.State
	for i := range 2 {
		s.PFs = append(s.PFs, nic.PF{
			Handle: nic.PCI(fmt.Sprintf("0000:3b:00.%d", i)), Serial: "MT2130X00001", Driver: "mlx5_core", Eswitch: nic.Switchdev,
			Uplink: nic.Netdev{Name: fmt.Sprintf("ens1f%dnp%d", i, i), Ifindex: 4 + i}, Settings: nic.Settings{nic.TCOffload: []string{"on", "off"}[i], nic.EncapMode: "basic"},
			TotalVFs: 16, RDMA: []string{fmt.Sprintf("mlx5_%d", i)},
			VFs: []nic.VF{{Address: fmt.Sprintf("0000:3b:00.%d", 2+i), RDMA: []string{fmt.Sprintf("mlx5_%d", 2+i)}}},
		})
	}
	return s
}

func text(r capability.Report) string {
	var b strings.Builder
	for _, c := range r.Capabilities {
		fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Answer)
		for _, f := range c.Findings {
			fmt.Fprintf(&b, "  %s: %s\n", f.Answer, f)
			if f.Change != "" {
				fmt.Fprintf(&b, "    -> %s\n", f.Change)
			}
		}
	}
	return b.String()
}

// The reports of one node with different kernels: the options are those that the
// kernels have.
func TestKernels(t *testing.T) {
	for release, want := range map[string]map[string]capability.Answer{
		// Debian's leave NET_TC_SKB_EXT out. 6.1 builds mlx5 with rules all the same.
		"6.1.0-50-amd64": {
			capability.Switchdev: capability.Yes, capability.Flows: capability.Yes, capability.Conntrack: capability.No,
			capability.VDPA: capability.No, capability.BigTCP: capability.No, capability.Geneve: capability.Yes,
		},
		"6.12.117+deb13-amd64": {
			capability.Switchdev: capability.Yes, capability.Flows: capability.No, capability.Conntrack: capability.No,
			capability.VFLAG: capability.Yes, capability.SFs: capability.No, capability.BigTCP: capability.Yes, capability.VFIO: capability.Yes,
		},
		"7.2.13+deb14-amd64": {
			capability.Flows: capability.No, capability.Conntrack: capability.No, capability.IPsec: capability.No,
		},
		// The lab's has what offload needs, and no mlx5 of its own.
		"7.2.13-sluice": {capability.Conntrack: capability.Unknown, capability.Flows: capability.Unknown, capability.VFIO: capability.Yes},
	} {
		t.Run(release, func(t *testing.T) {
			tr := newTree(t, release)
			switch release {
			case "7.2.13-sluice":
				tr.file("/proc/config.gz", packed(t, tr.data("config-"+release)))
				tr.mlx5("O")
			case "6.12.117+deb13-amd64":
				tr.file("/lib/modules/"+release+"/modules.dep", tr.data("modules.dep-"+release))
				fallthrough
			default:
				tr.file("/boot/config-"+release, tr.data("config-"+release))
				tr.mlx5("")
			}
			tr.file("/sys/kernel/iommu_groups/0/type", "DMA\n")
			tr.file("/sys/module/ib_core/parameters/netns_mode", "Y\n")
			r := tr.judge(card())
			for name, answer := range want {
				if got := r.Get(name).Answer; got != answer {
					t.Errorf("%s is %s, want %s", name, got, answer)
				}
			}
			golden := filepath.Join("testdata", release+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(text(r)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(tr.data(release+".golden"), text(r)); d != "" {
				t.Error(d)
			}
		})
	}
}

func packed(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const on = "CONFIG_NET_TC_SKB_EXT=y\n"

func lacking(c *capability.Capability, part string) *capability.Finding {
	for _, f := range c.Findings {
		if strings.Contains(f.String(), part) {
			return &f
		}
	}
	return nil
}

// TestWhereTheOptionsAreRead: the kernel's own word first, then the files of the
// running release, never those of another; what was tried in vain is told.
func TestWhereTheOptionsAreRead(t *testing.T) {
	const release = "6.12.0-1-amd64"
	for name, tt := range map[string]struct {
		files   map[string]string
		config  string
		notRead int
	}{
		"the kernel's":       {map[string]string{"/proc/config.gz": packed(t, on), "/boot/config-" + release: "CONFIG_X=y\n"}, "/proc/config.gz", 0},
		"in boot":            {map[string]string{"/boot/config-" + release: on}, "/boot/config-" + release, 1},
		"beside the modules": {map[string]string{"/lib/modules/" + release + "/config": on}, "/lib/modules/" + release + "/config", 2},
		"of the headers":     {map[string]string{"/lib/modules/" + release + "/build/.config": on}, "/lib/modules/" + release + "/build/.config", 3},
		"of another release": {map[string]string{"/boot/config-6.1.0-1-amd64": on}, "", 4},
		"none":               {nil, "", 4},
		"cut short":          {map[string]string{"/proc/config.gz": packed(t, on)[:12], "/boot/config-" + release: on}, "/boot/config-" + release, 1},
		"not packed":         {map[string]string{"/proc/config.gz": on, "/boot/config-" + release: on}, "/boot/config-" + release, 1},
		"no configuration":   {map[string]string{"/boot/config-" + release: "x\n", "/lib/modules/" + release + "/config": on}, "/lib/modules/" + release + "/config", 2},
		"empty":              {map[string]string{"/boot/config-" + release: ""}, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, release)
			for file, text := range tt.files {
				tr.file(file, text)
			}
			k := tr.reader().Kernel()
			if k.Config != tt.config || len(k.NotRead) != tt.notRead {
				t.Errorf("read from %q, not from %q; want %q and %d", k.Config, k.NotRead, tt.config, tt.notRead)
			}
			if tt.config != "" && k.Options["NET_TC_SKB_EXT"] != "y" {
				t.Errorf("options: %v", k.Options)
			}
			if tt.config == "" && k.Options != nil {
				t.Errorf("options without a file: %v", k.Options)
			}
		})
	}
}

// TestWithoutConfiguration: what the kernel has is seen by its modules and its
// symbols; what leaves no trace is unknown, and says where it was looked for.
func TestWithoutConfiguration(t *testing.T) {
	const release = "6.12.117+deb13-amd64"
	for name, tt := range map[string]struct {
		symbols string
		want    capability.Answer
		from    string
	}{
		"has the symbol": {"0000000000000000 T tc_skb_ext_tc_enable\n", capability.Yes, "/proc/kallsyms"},
		"of a module":    {"0000000000000000 T x\n0000000000000000 t tc_skb_ext_tc_enable\t[y]\n", capability.Yes, "/proc/kallsyms"},
		"has it not":     {"0000000000000000 T tc_skb_ext_tc\n", capability.No, "/proc/kallsyms"},
		"shows none":     {"", capability.Unknown, "/boot/config-" + release + ": not there"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, release)
			tr.file("/lib/modules/"+release+"/modules.dep", tr.data("modules.dep-"+release))
			tr.file("/proc/modules", "cls_flower 49152 1 - Live 0x0000000000000000\n")
			tr.file("/proc/kallsyms", tt.symbols)
			tr.mlx5("")
			r := tr.judge(card())
			f := lacking(r.Get(capability.Conntrack), "CONFIG_NET_TC_SKB_EXT")
			if f == nil || f.Answer != tt.want || !strings.Contains(f.From, tt.from) {
				t.Errorf("finding: %+v, want %s from %s", f, tt.want, tt.from)
			}
			if tt.want == capability.Unknown && f.Change == "" {
				t.Error("nothing to change")
			}
			if f := lacking(r.Get(capability.Flows), "module cls_flower is loaded"); f == nil {
				t.Errorf("a loaded module is not seen: %v", r.Get(capability.Flows).Findings)
			}
		})
	}
}

// A module that the configuration promises and that is not installed (a kernel
// without its extra modules) cannot be loaded.
func TestModuleNotInstalled(t *testing.T) {
	const release = "6.12.117+deb13-amd64"
	tr := newTree(t, release)
	tr.file("/boot/config-"+release, tr.data("config-"+release))
	dep := strings.Replace(tr.data("modules.dep-"+release), "kernel/net/sched/act_ct.ko.xz:", "kernel/net/sched/act_cu.ko.xz:", 1)
	tr.file("/lib/modules/"+release+"/modules.dep", dep)
	r := tr.judge(card())
	f := lacking(r.Get(capability.Conntrack), "no module act_ct")
	if f == nil || f.Answer != capability.No || !strings.Contains(f.Change, release) {
		t.Errorf("finding: %+v", f)
	}
	// Loaded by hand it is there.
	tr.file("/proc/modules", "act_ct 32768 0 - Live 0x0000000000000000\n")
	r = tr.judge(card())
	if f := lacking(r.Get(capability.Conntrack), "no module act_ct"); f != nil {
		t.Errorf("a loaded module is missed: %+v", f)
	}
}

// A driver that was built outside the kernel has options of its own.
func TestForeignDriver(t *testing.T) {
	const release = "6.12.117+deb13-amd64"
	tr := newTree(t, release)
	tr.file("/boot/config-"+release, tr.data("config-"+release))
	tr.mlx5("OE")
	r := tr.judge(card())
	if c := r.Get(capability.Flows); c.Answer != capability.Unknown || lacking(c, "mlx5_core") == nil {
		t.Errorf("flows: %+v", c)
	}
	if c := r.Get(capability.Conntrack); c.Answer != capability.No {
		t.Errorf("conntrack is %s: the kernel itself lacks NET_TC_SKB_EXT", c.Answer)
	}
	// With the kernel's part in place, connections that the driver counts are proof.
	tr.file("/proc/config.gz", packed(t, tr.data("config-7.2.13-sluice")))
	if f := lacking(capability.Judge(tr.reader().Read(t.Context(), card())).Get(capability.Conntrack), "counts offloaded"); f != nil {
		t.Errorf("nothing counts: %+v", f)
	}
	tr.file("/sys/kernel/debug/mlx5/0000:3b:00.0/ct/offloaded", "0\n")
	r = tr.judge(card())
	if f := lacking(r.Get(capability.Conntrack), "counts offloaded"); f == nil || f.Answer != capability.Yes {
		t.Errorf("conntrack: %+v", r.Get(capability.Conntrack))
	}
}

// rules answers with what is on a netdev.
type rules map[int][]tc.Rule

func (r rules) Ingress(_ context.Context, ifindex int) ([]tc.Rule, error) {
	if list, ok := r[ifindex]; ok {
		return list, nil
	}
	return nil, fs.ErrNotExist
}

// TestRulesInHardware: what the NIC has taken needs no options to be believed, and
// a rule that it has not taken proves nothing.
func TestRulesInHardware(t *testing.T) {
	const release = "7.2.13-sluice"
	tr := newTree(t, release)
	tr.file("/proc/config.gz", packed(t, tr.data("config-"+release)))
	tr.mlx5("OE")
	s := card()
	s.PFs[0].VFs[0].Rep.Netdev.Ifindex = 20
	s.PFs[1].VFs[0].Rep.Netdev.Ifindex = 21
	plain := tc.Rule{InHW: true, Kind: "flower", Actions: []tc.Action{{Kind: "mirred"}}}
	ct := tc.Rule{InHW: true, Kind: "flower", Match: []tc.Param{{Name: "ct_state", Value: "+trk+est"}}}
	encap := tc.Rule{InHW: true, Kind: "flower", Actions: []tc.Action{{Kind: "tunnel_key"}, {Kind: "mirred"}}}
	refused := ct
	refused.InHW = false
	for name, tt := range map[string]struct {
		rules                    rules
		flows, conntrack, geneve capability.Answer
	}{
		"none":        {rules{20: nil}, capability.Unknown, capability.Unknown, capability.Unknown},
		"plain":       {rules{20: {plain, refused}}, capability.Yes, capability.Unknown, capability.Unknown},
		"conntrack":   {rules{21: {ct}}, capability.Yes, capability.Yes, capability.Unknown},
		"tunnel":      {rules{4: {encap}}, capability.Yes, capability.Unknown, capability.Yes},
		"all refused": {rules{20: {refused}}, capability.Unknown, capability.Unknown, capability.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			reader := tr.reader()
			reader.Rules = tt.rules
			r := capability.Judge(reader.Read(t.Context(), s))
			got := []capability.Answer{r.Get(capability.Flows).Answer, r.Get(capability.Conntrack).Answer, r.Get(capability.Geneve).Answer}
			if d := cmp.Diff([]capability.Answer{tt.flows, tt.conntrack, tt.geneve}, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A driver that passes for built in, and is not among what the kernel was built
// with, came from elsewhere.
func TestDriverThatIsNotBuiltIn(t *testing.T) {
	const release = "6.12.0"
	for builtin, want := range map[string]string{
		"kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko\n": "",
		"kernel/drivers/net/ethernet/intel/igb/igb.ko\n":                "/lib/modules/" + release + "/modules.builtin",
	} {
		tr := newTree(t, release)
		tr.link("../../../../module/mlx5_core", "/sys/bus/pci/drivers/mlx5_core/module")
		tr.file("/sys/module/mlx5_core/drivers/pci:mlx5_core", "")
		tr.file("/lib/modules/"+release+"/modules.builtin", builtin)
		if p := tr.reader().Read(t.Context(), card()).PFs[0]; p.Foreign != want || p.Module != "mlx5_core" {
			t.Errorf("%q: %+v", builtin, p)
		}
	}
}

func TestIOMMUAndRDMA(t *testing.T) {
	tr := newTree(t, "6.12.0")
	tr.file("/proc/cmdline", "root=/dev/vda intel_iommu=off quiet iommu=pt\n")
	tr.file("/sys/firmware/acpi/tables/DMAR", "")
	tr.file("/sys/module/ib_core/parameters/netns_mode", "N\n")
	got := tr.reader().Read(t.Context(), nic.State{})
	if d := cmp.Diff(capability.IOMMU{Table: "DMAR", CommandLine: []string{"intel_iommu=off", "iommu=pt"}}, got.IOMMU); d != "" {
		t.Error(d)
	}
	if got.RDMA.Mode != "exclusive" {
		t.Errorf("RDMA: %+v", got.RDMA)
	}
	r := capability.Judge(got)
	if f := lacking(r.Get(capability.VFIO), "intel_iommu=off"); f == nil || f.Change != "boot with intel_iommu=on" {
		t.Errorf("vfio: %+v", r.Get(capability.VFIO))
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(on))
	f.Add([]byte("# CONFIG_MLX5_SF is not set\nCONFIG_LOCALVERSION=\"CONFIG_VDPA=y\"\r\nCONFIG_VDPA=m\n"))
	f.Add([]byte("#\n\nCONFIG_\nCONFIG_=\n# CONFIG_ is not set\n=y\n"))
	known := map[string]bool{}
	for _, name := range capability.Options() {
		known[name] = true
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := parseConfig(b)
		if (err == nil) != bytes.Contains(b, []byte("CONFIG_")) && err == nil {
			t.Fatalf("%q: taken without an option", b)
		}
		for name, value := range out {
			if !known[name] {
				t.Fatalf("%q: %s was not asked for", b, name)
			}
			if value == "n" && !bytes.Contains(b, []byte("CONFIG_"+name+" is not set")) && !bytes.Contains(b, []byte("CONFIG_"+name+"=n")) {
				t.Fatalf("%q: %s=n from nowhere", b, name)
			}
		}
	})
}

func FuzzModules(f *testing.F) {
	f.Add([]byte("kernel/net/sched/cls_flower.ko.xz: a.ko\n"), ":")
	f.Add([]byte("cls-flower 1 0 - Live 0x0 (OE)\n"), " ")
	f.Add([]byte("kernel/lib/x.ko\n\n/\n.ko\n"), "")
	f.Fuzz(func(t *testing.T, b []byte, sep string) {
		for name := range parseModules(b, sep) {
			if name == "" || strings.ContainsAny(name, "-/\n") {
				t.Fatalf("%q: module %q", b, name)
			}
		}
	})
}

func FuzzSymbols(f *testing.F) {
	f.Add([]byte("0 T tc_skb_ext_tc_enable\n"))
	f.Add([]byte("0 T\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := parseSymbols(bytes.NewReader(b))
		if err == nil && out["tc_skb_ext_tc_enable"] && !bytes.Contains(b, []byte("tc_skb_ext_tc_enable")) {
			t.Fatalf("%q: a symbol from nowhere", b)
		}
	})
}

func FuzzSwitchTexts(f *testing.F) {
	f.Add("ovs-vswitchd (Open vSwitch) 3.5.0\n")
	f.Add("Globally enabled: true\nDatapaths:\n")
	f.Add("globally enabled:false")
	f.Fuzz(func(t *testing.T, s string) {
		if v := parseVersion(s); v != "" && !strings.Contains(s, v) {
			t.Fatalf("%q: version %q", s, v)
		}
		if on := parseOffloading(s); on != nil && *on != strings.Contains(s, "true") && *on {
			t.Fatalf("%q: on", s)
		}
	})
}

func TestSwitchTexts(t *testing.T) {
	if got := parseVersion("ovs-vswitchd (Open vSwitch) 4.0.0-dirty\nDPDK 1\n"); got != "4.0.0-dirty" {
		t.Errorf("version %q", got)
	}
	if got := parseOffloading("Globally enabled: true\nDatapaths:\nsystem@ovs-system\n"); got == nil || !*got {
		t.Errorf("offloading: %v", got)
	}
	if got := parseOffloading("Globally enabled: false\n"); got == nil || *got {
		t.Errorf("offloading: %v", got)
	}
	want := map[string]string{"Recirc": "Yes", "CT state": "No", "Max VLAN headers": "2"}
	if d := cmp.Diff(want, parseFeatures("Recirc: Yes\nCT state: No\n\nMax VLAN headers: 2\nnothing\n")); d != "" {
		t.Error(d)
	}
	if got := parseFeatures(""); got != nil {
		t.Errorf("features of nothing: %v", got)
	}
	if got := parseOffloading("nothing of the kind\n"); got != nil {
		t.Errorf("offloading: %v", *got)
	}
}
