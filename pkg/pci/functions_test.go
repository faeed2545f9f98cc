package pci

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func functions(t testing.TB, s *Sys) []Function {
	t.Helper()
	out, err := s.Functions(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// By itself a function tells its netdevs, also one that has many; what is no
// ifindex is no netdev.
func TestFunctionNetdevs(t *testing.T) {
	tr := newTree(t)
	pf := tr.pf("0000:03:00.0", 16, 2)
	for name, ifindex := range map[string]string{"eth7": "7\n", "eth3": "3\n", "odd": "x\n"} {
		tr.mkdir(pf + "/net/" + name)
		tr.file(pf+"/net/"+name+"/ifindex", ifindex)
	}
	f, ok := New(tr.root, true).Function("0000:03:00.0")
	if d := cmp.Diff([]int{3, 7}, f.Netdevs); d != "" || !ok {
		t.Errorf("netdevs (%v):\n%s", ok, d)
	}
	if f, ok := New(tr.root, true).Function(vfAddress("0000:03:00.0", 1)); !ok || f.Netdevs != nil {
		t.Errorf("a VF whose netdev has no ifindex: %v, %v", f.Netdevs, ok)
	}
}

func TestFunctions(t *testing.T) {
	tr := newTree(t)
	tr.function("0000:00:1f.2", "8086", "2922", "10601", "ahci")
	pf := tr.pf("0000:03:00.0", 16, 2)
	tr.file(pf+"/vpd", string(vpdBytes("ConnectX-6 Dx EN adapter card", "MT2116X09299  ")))
	other := tr.function("0000:05:00.0", "8086", "10C9", "20000", "")
	if err := os.Remove(tr.path(other, "iommu_group")); err != nil {
		t.Fatal(err)
	}
	tr.file(pf+"/sriov_vf_device", "101e\n")
	tr.file(pf+"/acpi_index", "3\n")
	away := "devices/pci0000:00/" + vfAddress("0000:03:00.0", 1) + "/net/v1"
	if err := os.Remove(tr.path(away)); err != nil {
		t.Fatal(err)
	}

	got := functions(t, New(tr.root, true))
	want := []Function{{
		Address: "0000:03:00.0", Vendor: "15b3", Device: "101d", Driver: "mlx5_core", NUMA: 1, VFIndex: -1,
		Product: "ConnectX-6 Dx EN adapter card", Serial: "MT2116X09299",
		TotalVFs: 16, NumVFs: 2, Autoprobe: true, VFVectors: 640, VFDevice: "101e", ACPIIndex: 3, Path: "pci0000:00", IOMMUGroup: 42,
	}, {
		Address: "0000:05:00.0", Vendor: "8086", Device: "10c9", NUMA: 1, VFIndex: -1, Path: "pci0000:00", IOMMUGroup: -1,
	}, {
		Address: "0000:10:00.2", Vendor: "15b3", Device: "101e", Driver: "mlx5_core", NUMA: 1, PF: "0000:03:00.0", IOMMUGroup: 42,
	}, {
		Address: "0000:10:00.3", Vendor: "15b3", Device: "101e", Driver: "mlx5_core", NUMA: 1, PF: "0000:03:00.0", VFIndex: 1,
		IOMMUGroup: 42, Away: true,
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	one := New(tr.root, true)
	for _, w := range want {
		f, ok := one.Function(w.Address)
		f.Netdevs = nil // only by itself; see TestFunctionNetdevs
		if d := cmp.Diff(w, f); d != "" || !ok {
			t.Errorf("in the list and by itself (%v):\n%s", ok, d)
		}
	}
	for _, no := range []string{"0000:00:1f.2", "0000:99:00.0"} {
		if f, ok := one.Function(no); ok {
			t.Errorf("%s is no network function: %+v", no, f)
		}
	}
	for i := range want {
		want[i].Product, want[i].Serial = "", ""
	}
	if d := cmp.Diff(want, functions(t, New(tr.root, false))); d != "" {
		t.Errorf("without VPD: want (-), got (+):\n%s", d)
	}
}

// A function bound to vfio-pci has a device file of its own beside its group's.
func TestVFIODevice(t *testing.T) {
	tr := newTree(t)
	d := tr.function("0000:05:00.0", "15B3", "101E", "20000", "vfio-pci")
	if got := functions(t, New(tr.root, false)); got[0].VFIO != "" {
		t.Errorf("a kernel without such files: %q", got[0].VFIO)
	}
	tr.mkdir(d + "/vfio-dev/vfio3")
	if got := functions(t, New(tr.root, false)); got[0].VFIO != "vfio3" {
		t.Errorf("got %q", got[0].VFIO)
	}
}

func TestNoBusNoFunctions(t *testing.T) {
	if got := functions(t, New(t.TempDir(), true)); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// A VF whose PF has the higher address: the card sits behind a bridge whose bus
// number was given later.
func TestVFBeforeItsPF(t *testing.T) {
	tr := newTree(t)
	tr.pf("0000:43:00.0", 8, 3)
	got := functions(t, New(tr.root, false))
	var have []string
	for _, f := range got {
		have = append(have, f.Address)
		if f.PF != "" && f.Address != vfAddress(f.PF, f.VFIndex) {
			t.Errorf("%s is VF %d", f.Address, f.VFIndex)
		}
	}
	if d := cmp.Diff([]string{"0000:10:00.2", "0000:10:00.3", "0000:10:00.4", "0000:43:00.0"}, have); d != "" {
		t.Error(d)
	}
}

// TestB05OneAttributeAbsent: whatever attribute is missing, empty, nonsense or
// unreadable, that attribute is absent and everything else is there.
func TestB05OneAttributeAbsent(t *testing.T) {
	damage := map[string]func(tr tree, path string){
		"missing": func(tr tree, path string) {
			if err := os.RemoveAll(tr.path(path)); err != nil {
				tr.t.Fatal(err)
			}
		},
		"empty":    func(tr tree, path string) { replace(tr, path, "") },
		"a line":   func(tr tree, path string) { replace(tr, path, "\n") },
		"nonsense": func(tr tree, path string) { replace(tr, path, "\xff no number 99999999999999999999") },
		// A directory in the place of a file: the open succeeds, the read does not.
		"unreadable": func(tr tree, path string) {
			if err := os.RemoveAll(tr.path(path)); err != nil {
				tr.t.Fatal(err)
			}
			tr.mkdir(path)
		},
	}
	for name, do := range damage {
		for _, attr := range []string{"numa_node", "sriov_numvfs", "sriov_totalvfs", "sriov_drivers_autoprobe", "sriov_vf_total_msix", "vpd", "uevent", "iommu_group", "net", "driver"} {
			t.Run(name+" "+attr, func(t *testing.T) {
				tr := newTree(t)
				pf := tr.pf("0000:03:00.0", 4, 1)
				tr.pf("0000:04:00.0", 4, 0)
				tr.file(pf+"/vpd", string(vpdBytes("p", "s")))
				for file, value := range map[string]string{"vendor": "0x15b3\n", "device": "0x101d\n", "class": "0x020000\n"} {
					tr.file(pf+"/"+file, value)
				}
				do(tr, pf+"/"+attr)

				got := functions(t, New(tr.root, true))
				if len(got) < 2 || got[0].Address != "0000:03:00.0" || got[1].Address != "0000:04:00.0" {
					t.Fatalf("got %+v", got)
				}
				want := Function{Address: "0000:03:00.0", Vendor: "15b3", Device: "101d", Product: "p", Serial: "s", Driver: "mlx5_core",
					NUMA: 1, VFIndex: -1, TotalVFs: 4, NumVFs: 1, Autoprobe: true, VFVectors: 640, Path: "pci0000:00", IOMMUGroup: 42}
				switch attr {
				case "numa_node":
					want.NUMA = -1
				case "sriov_numvfs":
					want.NumVFs = 0
				case "sriov_totalvfs":
					want.TotalVFs, want.NumVFs, want.Autoprobe, want.VFVectors = 0, 0, false, 0
				case "sriov_vf_total_msix":
					want.VFVectors = 0
				case "sriov_drivers_autoprobe":
					want.Autoprobe = false
				case "vpd":
					want.Product, want.Serial = "", ""
				case "iommu_group":
					want.IOMMUGroup = -1
				case "net":
					want.Away = name == "unreadable" // an empty directory is what away means
				}
				if d := cmp.Diff(want, got[0]); d != "" {
					t.Errorf("want (-), got (+):\n%s", d)
				}
			})
		}
	}
}

func replace(tr tree, path, value string) {
	if err := os.RemoveAll(tr.path(path)); err != nil {
		tr.t.Fatal(err)
	}
	tr.file(path, value)
}

// A list that cannot become whole is given as far as it goes, and soon.
func TestTornList(t *testing.T) {
	tr := newTree(t)
	pf := tr.pf("0000:03:00.0", 8, 3)
	gone := vfAddress("0000:03:00.0", 1)
	if err := os.Remove(tr.path("bus/pci/devices/" + gone)); err != nil {
		t.Fatal(err)
	}
	got := functions(t, New(tr.root, false))
	if len(got) != 3 || got[1].VFIndex != 0 || got[2].VFIndex != 2 {
		t.Errorf("a VF removed by itself: got %+v", got)
	}
	if err := os.Remove(tr.path("devices/pci0000:00/0000:03:00.0/virtfn1")); err != nil {
		t.Fatal(err)
	}
	got = functions(t, New(tr.root, false))
	if len(got) != 3 || got[1].VFIndex != 0 || got[2].VFIndex != 2 {
		t.Errorf("and its link: got %+v, want the VF after it too", got)
	}
	tr.file(pf+"/sriov_numvfs", "8\n")
	if got := functions(t, New(tr.root, false)); len(got) != 3 {
		t.Errorf("a count ahead of the links: got %+v", got)
	}
}

func TestFunctionsEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(newTree(t).root, false).Functions(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	tr := newTree(t)
	tr.pf("0000:03:00.0", 8, 8)
	s := New(tr.root, true)
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc/self/fd to count descriptors in")
		}
		return len(e)
	}
	before := count()
	for range 20 {
		functions(t, s)
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestWriting(t *testing.T) {
	tr := newTree(t)
	pf := tr.pf("0000:03:00.0", 8, 2)
	vf := vfAddress("0000:03:00.0", 1)
	for _, f := range []string{"bind", "unbind"} {
		tr.file("bus/pci/drivers/mlx5_core/"+f, "")
	}
	tr.file("bus/pci/drivers_probe", "")
	tr.file("devices/pci0000:00/"+vf+"/driver_override", "(null)\n")
	s := New(tr.root, false)
	for _, step := range []struct {
		do   func() error
		file string
		want string
	}{
		{func() error { return s.SetNumVFs("0000:03:00.0", 12) }, pf + "/sriov_numvfs", "12\n"},
		{func() error { return s.SetNumVFs("0000:03:00.0", 0) }, pf + "/sriov_numvfs", "0\n"},
		{func() error { return s.SetAutoprobe("0000:03:00.0", false) }, pf + "/sriov_drivers_autoprobe", "0\n"},
		{func() error { return s.SetAutoprobe("0000:03:00.0", true) }, pf + "/sriov_drivers_autoprobe", "1\n"},
		{func() error { return s.Bind(vf, "mlx5_core") }, "bus/pci/drivers/mlx5_core/bind", vf + "\n"},
		{func() error { return s.Unbind(vf, "mlx5_core") }, "bus/pci/drivers/mlx5_core/unbind", vf + "\n"},
		{func() error { return s.Probe(vf) }, "bus/pci/drivers_probe", vf + "\n"},
	} {
		done := step.do()
		got, err := os.ReadFile(tr.path(step.file))
		if done != nil || err != nil || string(got) != step.want {
			t.Errorf("%s: %q, want %q; %v, %v", step.file, got, step.want, done, err)
		}
	}
	if got := s.Override(vf); got != "" {
		t.Errorf("override %q, want none", got)
	}
	if err := s.SetOverride(vf, "vfio-pci"); err != nil || s.Override(vf) != "vfio-pci" {
		t.Errorf("override %q, %v", s.Override(vf), err)
	}
	if err := s.SetNumVFs(vf, 1); err == nil {
		t.Error("a VF took a VF count")
	}
	if pf, ok := s.PF(vf); !ok || pf != "0000:03:00.0" {
		t.Errorf("PF of %s: %q", vf, pf)
	}
	if _, ok := s.PF("0000:03:00.0"); ok {
		t.Error("a PF has a PF")
	}
	if a, ok := s.VF("0000:03:00.0", 1); !ok || a != vf {
		t.Errorf("VF 1: %q", a)
	}
	if s.Class(vf) != "020000" || s.Driver(vf) != "mlx5_core" || !s.HasDriver("mlx5_core") || s.HasDriver("vfio-pci") {
		t.Errorf("class %q, driver %q", s.Class(vf), s.Driver(vf))
	}
	if s.Userspace(vf) || !s.Netdev(vf) || !s.Exists(vf) || s.Exists("0000:99:00.0") {
		t.Error("what a VF is, is not told")
	}
	tr.mkdir("devices/pci0000:00/" + vf + "/vfio-dev")
	if !s.Userspace(vf) {
		t.Error("a VFIO driver of another name is not known as one")
	}
}

// Signals cut directory listings short. A netdev that is there is seen all the
// same, however many of them arrive.
func TestSignalsDoNotHideNetdevs(t *testing.T) {
	tr := newTree(t)
	tr.pf("0000:03:00.0", 4, 4)
	s := New(tr.root, false)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	defer senders.Wait()
	defer close(stop)
	for range 2 {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default: // SIGURG is what Go sends to preempt, and is harmless
					_ = unix.Kill(unix.Getpid(), unix.SIGURG)
				}
			}
		})
	}
	for range 300 {
		for _, f := range functions(t, s) {
			if f.Away {
				t.Fatalf("%s is away, and has its netdev here", f.Address)
			}
		}
	}
}

// The cost of one reading of a node: two ports of 128 VFs.
func BenchmarkFunctions(b *testing.B) {
	tr := newTree(b)
	tr.pf("0000:03:00.0", 128, 128)
	tr.pf("0000:03:00.1", 128, 128)
	s := New(tr.root, true)
	if n := len(functions(b, s)); n != 258 {
		b.Fatalf("%d functions", n)
	}
	b.ReportAllocs()
	for b.Loop() {
		functions(b, s)
	}
}

// What the same reads cost with nothing around them: the bound of the above.
func BenchmarkPlainReads(b *testing.B) {
	tr := newTree(b)
	tr.pf("0000:03:00.0", 128, 128)
	tr.pf("0000:03:00.1", 128, 128)
	e, err := os.ReadDir(tr.path("bus/pci/devices"))
	if err != nil {
		b.Fatal(err)
	}
	var buf [4096]byte
	for b.Loop() {
		for _, e := range e {
			d, _ := unix.Open(tr.path("bus/pci/devices", e.Name()), unix.O_RDONLY|unix.O_DIRECTORY, 0)
			fd, _ := unix.Openat(d, "uevent", unix.O_RDONLY, 0)
			_, _ = unix.Read(fd, buf[:])
			_ = unix.Close(fd)
			_, _ = unix.Readlinkat(d, "iommu_group", buf[:])
			fd, _ = unix.Openat(d, "net", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			_, _ = unix.ReadDirent(fd, buf[:])
			_ = unix.Close(fd)
			_ = unix.Close(d)
		}
	}
}
