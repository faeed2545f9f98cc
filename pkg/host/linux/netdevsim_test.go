package linux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/hosttest"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// What the seam promises of an eswitch, over the lab's NIC and over netdevsim, an
// eswitch that others wrote, on a bus that is not PCI: `lab/gotest --kernel offload
// ./pkg/host/linux -- -test.run Netdevsim`. Its name is without InLab because the
// stock kernel has no netdevsim, and here that is a failure.
func TestSwitchContractWithNetdevsim(t *testing.T) {
	lab(t)
	t.Run("mlx5_core", func(t *testing.T) {
		pfs := labPFs(t, "mlx5_core")
		if len(pfs) < 2 {
			t.Fatal("no card of mlx5_core with two ports is plugged in")
		}
		hosttest.RunSwitch(t, func(t *testing.T) hosttest.SwitchFixture { return labSwitch(t, pfs) })
	})
	t.Run("netdevsim", func(t *testing.T) {
		if out, err := exec.CommandContext(t.Context(), "modprobe", "netdevsim").CombinedOutput(); err != nil {
			t.Fatalf("modprobe netdevsim: %v: %s: it is a module of lab/run --kernel offload", err, out)
		}
		hosttest.RunSwitch(t, netdevsimSwitch)
	})
}

// labSwitch is two ports of the lab's card.
func labSwitch(t *testing.T, pfs []nic.PF) hosttest.SwitchFixture {
	t.Helper()
	f := switchFixture(t, labFixture(t, pfs))
	f.PFs = f.PFs[:2]
	f.SetVFs = func(t *testing.T, h nic.Handle, n int) {
		t.Helper()
		must(t, f.Machine.PCI.SetAutoprobe(t.Context(), h.Name, false))
		must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, n))
	}
	f.Uplink = func(t *testing.T, h nic.Handle) int {
		t.Helper()
		s, err := host.Observe(t.Context(), f.Machine)
		must(t, err)
		return s.PF(h).Uplink.Ifindex
	}
	f.Lacks[hosttest.OwnUplink] = "mlx5's uplink is a port of an instance on the auxiliary bus (en/devlink.c, mlx5e_create_devlink)"
	return f
}

// netdevsimSwitch is two devices of netdevsim with one port, made for one rule.
func netdevsimSwitch(t *testing.T) hosttest.SwitchFixture {
	t.Helper()
	const most = 4 // max_vfs of debugfs, as it is without being set
	m, s := opened(t)
	f := switchFixture(t, hosttest.Fixture{
		Machine: m.Machine, TotalVFs: most,
		AddNetns: s.addNetns, DeleteNetns: s.deleteNetns, AddLink: s.addLink, AddAltName: s.addAltName,
	})
	for _, id := range []string{"1", "2"} {
		must(t, os.WriteFile("/sys/bus/netdevsim/new_device", []byte(id+" 1"), 0))
		t.Cleanup(func() { must(t, os.WriteFile("/sys/bus/netdevsim/del_device", []byte(id), 0)) })
		f.PFs = append(f.PFs, nic.Handle{Bus: "netdevsim", Name: "netdevsim" + id})
	}
	f.SetVFs = func(t *testing.T, h nic.Handle, n int) {
		t.Helper()
		must(t, os.WriteFile("/sys/bus/netdevsim/devices/"+h.Name+"/sriov_numvfs", fmt.Append(nil, n), 0))
	}
	f.Uplink = func(t *testing.T, h nic.Handle) int {
		t.Helper()
		all, err := f.Machine.Devlink.Ports(t.Context())
		must(t, err)
		i := slices.IndexFunc(all, func(p host.DevlinkPort) bool { return p.Handle == h && p.Flavour == host.FlavourPhysical })
		if i < 0 {
			t.Fatalf("no uplink of %s among %+v", h, all)
		}
		return all[i].Ifindex
	}
	f.Lacks[hosttest.PortMAC] = "netdevsim's ports have no functions (netdevsim/dev.c, nsim_dev_devlink_ops)"
	f.Lacks[hosttest.Pinned] = "netdevsim does not set netns_immutable (netdevsim/netdev.c, nsim_setup)"
	f.Lacks[hosttest.KeepsMode] = "netdevsim goes back to legacy mode (netdevsim/dev.c, nsim_drv_configure_vfs)"
	return f
}

// switchFixture has what is the kernel's own, whatever the driver. A mode is not
// changed while there are groups of rates (net/devlink/rate.c,
// devlink_rate_nodes_check).
func switchFixture(t *testing.T, of hosttest.Fixture) hosttest.SwitchFixture {
	t.Helper()
	f := hosttest.SwitchFixture{Fixture: of}
	f.Lacks = map[hosttest.Capability]string{}
	if of.Machine.Watch == nil {
		f.Lacks[hosttest.Watch] = "not there yet"
	}
	f.Hold = func(t *testing.T, h nic.Handle) (string, func()) {
		t.Helper()
		c, err := devlink.New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_GENERIC) })
		must(t, err)
		t.Cleanup(func() { c.Close() })
		must(t, c.NewRateNode(h, "group", devlink.RateChange{}))
		gone := false
		release := func() {
			if gone {
				return
			}
			gone = true
			must(t, c.DelRateNode(h, "group"))
		}
		t.Cleanup(release)
		return "Rate node(s) exists", release
	}
	return f
}

// A device that is not on PCI is none of the node's NICs, and disturbs none.
func TestNetdevsimIsNoPF(t *testing.T) {
	lab(t)
	f := netdevsimSwitch(t)
	f.SetVFs(t, f.PFs[0], 2)
	must(t, f.Machine.Devlink.SetEswitch(t.Context(), f.PFs[0], nic.Switchdev))
	devices, err := f.Machine.Devlink.Devices(context.Background())
	must(t, err)
	for _, h := range f.PFs {
		if !slices.ContainsFunc(devices, func(d host.DevlinkDevice) bool { return d.Handle == h && d.Driver == "netdevsim" }) {
			t.Errorf("no %s of netdevsim among %+v", h, devices)
		}
	}
	for _, p := range labPFs(t, "netdevsim") {
		t.Errorf("PF %+v", p)
	}
	for _, p := range labPFs(t, "mlx5_core") {
		if strings.HasPrefix(p.Uplink.Name, "netdevsim") || p.Eswitch != nic.Legacy || len(p.VFs) > 0 {
			t.Errorf("PF %+v beside a netdevsim that has changed", p)
		}
	}
}

// A health reporter that cannot recover is told with its device, and only then
// (netdevsim/health.c).
func TestFailingReporterOfNetdevsim(t *testing.T) {
	lab(t)
	if out, err := exec.CommandContext(t.Context(), "modprobe", "netdevsim").CombinedOutput(); err != nil {
		t.Fatalf("modprobe netdevsim: %v: %s: it is a module of lab/run --kernel offload", err, out)
	}
	m, _ := opened(t)
	must(t, os.WriteFile("/sys/bus/netdevsim/new_device", []byte("7 1"), 0))
	t.Cleanup(func() { must(t, os.WriteFile("/sys/bus/netdevsim/del_device", []byte("7"), 0)) })
	failing := func() []string {
		t.Helper()
		devices, err := m.Devlink.Devices(t.Context())
		must(t, err)
		i := slices.IndexFunc(devices, func(d host.DevlinkDevice) bool { return d.Handle.Name == "netdevsim7" })
		if i < 0 {
			t.Fatalf("no netdevsim7 among %+v", devices)
		}
		return devices[i].Failing
	}
	if got := failing(); len(got) > 0 {
		t.Errorf("%v before anything happened", got)
	}
	const health = "/sys/kernel/debug/netdevsim/netdevsim7/health/"
	must(t, os.WriteFile(health+"fail_recover", []byte("Y"), 0))
	_ = os.WriteFile(health+"break_health", []byte("ill"), 0) // answers that it did not recover
	if got := failing(); !slices.Equal(got, []string{"dummy"}) {
		t.Errorf("%v, want dummy", got)
	}
}
