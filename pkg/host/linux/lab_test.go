package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/hosttest"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// lab skips what takes cards apart, unless these are the lab's.
func lab(t testing.TB) {
	t.Helper()
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs the lab's cards: lab/gotest ./pkg/host/linux")
	}
}

// The whole contract over each kind of card that is plugged in: `lab/gotest
// ./pkg/host/linux` has a card with an eswitch, `lab/gotest --nics igb
// ./pkg/host/linux` one with legacy mode only, `--nics iommu,igb` one for VFIO.
func TestContractInLab(t *testing.T) {
	lab(t)
	// Nobody else loads them in a lab without udev; where there is no IOMMU the
	// contract is that binding to vfio-pci is refused.
	for _, module := range []string{"vfio-pci", "ib_core"} {
		if out, err := exec.CommandContext(t.Context(), "modprobe", module).CombinedOutput(); err != nil {
			t.Logf("modprobe %s: %v: %s", module, err, out)
		}
	}
	found := 0
	for _, driver := range []string{"mlx5_core", "igb"} {
		pfs := labPFs(t, driver)
		if len(pfs) == 0 {
			t.Logf("no PF of %s is plugged in", driver)
			continue
		}
		found++
		t.Run(driver, func(t *testing.T) {
			lacks := labLacks(t, pfs)
			hosttest.Run(t, func(t *testing.T) hosttest.Fixture {
				f := labFixture(t, pfs)
				maps.Copy(f.Lacks, lacks)
				return f
			})
		})
	}
	if found == 0 {
		t.Fatal("the lab has no card of a driver that this test knows")
	}
}

// labPFs lists the PFs of a driver, on the card of the first of them.
func labPFs(t testing.TB, driver string) []nic.PF {
	t.Helper()
	m, err := Open(Options{})
	must(t, err)
	defer m.Close()
	s, err := host.Observe(context.Background(), m.Machine)
	must(t, err)
	var out []nic.PF
	for _, p := range s.PFs {
		if p.Driver == driver && p.TotalVFs >= 2 && (len(out) == 0 || p.Serial == out[0].Serial) {
			out = append(out, p)
		}
	}
	return out
}

// opened is the machine that the test runs on, until its end.
func opened(t *testing.T) (*Machine, software) {
	t.Helper()
	m, err := Open(Options{})
	must(t, err)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	home, err := os.Open(netlink.ThreadNetns)
	must(t, err)
	t.Cleanup(func() { home.Close() })
	return m, software{home: home, made: map[string]*os.File{}}
}

// labFixture brings the PFs to where the contract wants to find them, and back
// there at the end.
func labFixture(t *testing.T, pfs []nic.PF) hosttest.Fixture {
	t.Helper()
	m, s := opened(t)

	f := hosttest.Fixture{
		Machine: m.Machine, TotalVFs: pfs[0].TotalVFs, MostVFs: min(pfs[0].TotalVFs, 16),
		AddNetns: s.addNetns, DeleteNetns: s.deleteNetns, NotNetns: notNetns(t),
		AddLink: s.addLink, AddAltName: s.addAltName,
		Lacks: map[hosttest.Capability]string{hosttest.Counting: "the kernel does not count its writes"},
	}
	for _, p := range pfs {
		f.PFs = append(f.PFs, p.Handle)
	}
	reset(t, m.Machine, f.PFs)
	t.Cleanup(func() { reset(t, m.Machine, f.PFs) })

	if pfs[0].Eswitch == "" {
		why := pfs[0].Driver + " has no eswitch"
		f.Lacks[hosttest.Eswitch], f.Lacks[hosttest.ModeWithVFs], f.Lacks[hosttest.PortMAC] = why, why, why
	}
	if len(pfs) < 2 || pfs[0].Eswitch == "" {
		f.Lacks[hosttest.TwoPorts] = "no card with two ports of one switch is plugged in"
		f.PFs = f.PFs[:1]
	}
	function := slices.IndexFunc(functionsOf(t, m), func(o host.Function) bool { return o.Address == pfs[0].Handle.Name && o.IOMMUGroup >= 0 })
	if function < 0 {
		f.Lacks[hosttest.VFIO] = "the card is behind no IOMMU"
	}
	if devices, err := m.RDMA.Devices(t.Context()); err != nil || !slices.ContainsFunc(devices, func(d host.RDMADevice) bool { return d.Parent == pfs[0].Handle.Name }) {
		f.Lacks[hosttest.RDMA] = "the card has no RDMA devices"
	}
	lackBonds(t, &f)
	lackRDMA(t, &f)
	f.Inject = injector(t, f.PFs[0])
	if f.Inject == nil {
		f.Lacks[hosttest.Faults] = pfs[0].Driver + " cannot be made to fail"
	}
	return f
}

// labLacks tries what a driver or this card may not have, in switchdev mode where
// there is one.
func labLacks(t *testing.T, pfs []nic.PF) map[hosttest.Capability]string {
	t.Helper()
	m, err := Open(Options{})
	must(t, err)
	defer m.Close()
	h, ctx := pfs[0].Handle, t.Context()
	handles := []nic.Handle{h}
	reset(t, m.Machine, handles)
	defer reset(t, m.Machine, handles)
	out := map[hosttest.Capability]string{}
	if pfs[0].Eswitch == "" {
		why := pfs[0].Driver + " has no eswitch"
		for _, c := range []hosttest.Capability{hosttest.FunctionSettings, hosttest.Rates, hosttest.SFs, hosttest.LAG} {
			out[c] = why
		}
		return out
	}
	must(t, m.Devlink.SetEswitch(ctx, h, nic.Switchdev))
	must(t, m.PCI.SetVFs(ctx, h.Name, 1))
	s, err := host.Observe(ctx, m.Machine)
	must(t, err)
	for c, name := range map[hosttest.Capability]nic.Setting{hosttest.FunctionSettings: nic.EventQueues, hosttest.Rates: nic.MaxRate} {
		if _, ok := s.PF(h).VFs[0].Settings[name]; !ok {
			out[c] = fmt.Sprintf("VFs of %s have no %s", h, name)
		}
	}
	if err := m.Devlink.AddSF(ctx, h, 1); errors.Is(err, host.ErrNotSupported) {
		out[hosttest.SFs] = err.Error()
	}
	if s.PF(h).LAG == "" {
		out[hosttest.LAG] = "the driver of " + h.String() + " does not say whether it aggregates"
	}
	return out
}

func functionsOf(t testing.TB, m *Machine) []host.Function {
	t.Helper()
	list, err := m.PCI.Functions(context.Background())
	must(t, err)
	return list
}

// reset takes the PFs back to no VFs, autoprobe, legacy mode, and up.
func reset(t testing.TB, m host.Machine, pfs []nic.Handle) {
	t.Helper()
	ctx := context.Background() // it serves clean-up too
	for _, h := range pfs {
		must(t, m.PCI.SetVFs(ctx, h.Name, 0))
		must(t, m.PCI.SetAutoprobe(ctx, h.Name, true))
	}
	s, err := host.Observe(ctx, m)
	must(t, err)
	for _, h := range pfs {
		p := s.PF(h)
		if p.Eswitch != "" {
			must(t, m.Devlink.SetEswitch(ctx, h, nic.Legacy))
		}
		must(t, m.Links.SetUp(ctx, p.Uplink.Ifindex, true))
	}
}

// injector finds the lab's door to a card, a folder of the PF's address below
// debugfs, and gives what makes its next change fail; nil without such a door.
func injector(t *testing.T, pf nic.Handle) func(*testing.T, syscall.Errno) {
	t.Helper()
	doors, err := filepath.Glob("/sys/kernel/debug/*/" + pf.Name + "/fail")
	must(t, err)
	if len(doors) != 1 {
		return nil
	}
	tell := func(t *testing.T, file, line string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(filepath.Dir(doors[0]), file), []byte(line), 0))
	}
	t.Cleanup(func() { tell(t, "clear", "1") })
	return func(t *testing.T, errno syscall.Errno) {
		t.Helper()
		tell(t, "clear", "1")
		for _, op := range []string{"sriov_enable", "eswitch_set"} {
			tell(t, "fail", op+" "+unix.ErrnoName(errno))
		}
	}
}

// What a node costs to read: both ports of a card in switchdev mode, with as many
// VFs bound as they have. `lab/gotest --nics NIC:vfs=128 ./pkg/host/linux --
// -test.run NONE -test.bench InLab`.
func BenchmarkObserveInLab(b *testing.B) {
	lab(b)
	pfs := labPFs(b, "mlx5_core")
	if len(pfs) < 2 {
		b.Skip("no card with two ports is plugged in")
	}
	m, err := Open(Options{})
	must(b, err)
	defer m.Close()
	ctx := context.Background()
	handles := []nic.Handle{pfs[0].Handle, pfs[1].Handle}
	reset(b, m.Machine, handles)
	defer reset(b, m.Machine, handles)
	for _, p := range pfs[:2] {
		must(b, m.Devlink.SetEswitch(ctx, p.Handle, nic.Switchdev))
		must(b, m.PCI.SetVFs(ctx, p.Handle.Name, p.TotalVFs))
	}
	reading := func(name string, read func() (int, error)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n, err = read()
				must(b, err)
			}
			b.ReportMetric(float64(n), "things")
		})
	}
	reading("observe", func() (int, error) {
		s, err := host.Observe(ctx, m.Machine)
		return len(s.PFs), err
	})
	reading("functions", func() (int, error) { l, err := m.PCI.Functions(ctx); return len(l), err })
	reading("devices", func() (int, error) { l, err := m.Devlink.Devices(ctx); return len(l), err })
	reading("ports", func() (int, error) { l, err := m.Devlink.Ports(ctx); return len(l), err })
	reading("links", func() (int, error) { l, err := m.Links.Links(ctx); return len(l), err })
	reading("link", func() (int, error) { _, err := m.Links.Link(ctx, pfs[0].Uplink.Ifindex); return 1, err })
	reading("bonds", func() (int, error) { l, err := m.Bonds.Bonds(ctx); return len(l), err })
	reading("uses", func() (int, error) { l, err := m.Links.Uses(ctx); return len(l), err })
	reading("rdma", func() (int, error) { l, err := m.RDMA.Devices(ctx); return len(l), err })
	state, err := host.Observe(ctx, m.Machine)
	must(b, err)
	reading("settings", func() (int, error) { return len(state.PFs), m.Settings.Read(ctx, &state) })
	pf := state.PF(pfs[0].Handle)
	reading("settings of a vf", func() (int, error) { return 1, m.Settings.ReadVF(ctx, pf, 0) })
}

// VF netdevs that come late are waited for.
func TestLateNetdevsInLab(t *testing.T) {
	lab(t)
	pfs := labPFs(t, "mlx5_core")
	if len(pfs) == 0 {
		t.Skip("no card that can be told to be late is plugged in")
	}
	f := labFixture(t, pfs)
	late, err := filepath.Glob("/sys/kernel/debug/*/" + f.PFs[0].Name + "/vf_late_ms")
	must(t, err)
	if len(late) != 1 {
		t.Skip("no card that can be told to be late is plugged in")
	}
	must(t, os.WriteFile(late[0], []byte("700"), 0))
	defer func() { must(t, os.WriteFile(late[0], []byte("0"), 0)) }()
	must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 4))
	s, err := host.Observe(t.Context(), f.Machine)
	must(t, err)
	for _, v := range s.PF(f.PFs[0]).VFs {
		if !v.Netdev.Exists() {
			t.Errorf("VF %d has no netdev right after it was made", v.Index)
		}
	}
	must(t, f.Machine.PCI.Unbind(t.Context(), s.PF(f.PFs[0]).VFs[0].Address))
	must(t, f.Machine.PCI.Bind(t.Context(), s.PF(f.PFs[0]).VFs[0].Address, ""))
	s, err = host.Observe(t.Context(), f.Machine)
	must(t, err)
	if v := s.PF(f.PFs[0]).VFs[0]; !v.Netdev.Exists() {
		t.Errorf("right after bind: %+v", v)
	}
	// A context that ends while waiting ends the wait, and leaves all VFs.
	must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 0))
	must(t, os.WriteFile(late[0], []byte("3000"), 0))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := f.Machine.PCI.SetVFs(ctx, f.PFs[0].Name, 4); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	s, err = host.Observe(t.Context(), f.Machine)
	must(t, err)
	if n := len(s.PF(f.PFs[0]).VFs); n != 4 {
		t.Errorf("%d VFs, want all 4", n)
	}
}
