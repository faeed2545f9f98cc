package hosttest

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// nowhere is an address that no machine has a function at.
const nowhere = "0000:fe:1f.7"

func pciRules() []rule {
	return []rule{
		when("pci/functions", functions, SRIOV),
		when("pci/vfs", setVFs, SRIOV),
		when("pci/vfs/many", manyVFs, SRIOV),
		when("pci/vfs/same count", sameCount, SRIOV),
		when("pci/vfs/another count", anotherCount, SRIOV),
		when("pci/vfs/over total", overTotal, SRIOV),
		when("pci/vfs/of a vf", vfsOfVF, SRIOV),
		when("pci/vfs/used up", usedUp, SRIOV, Faults),
		when("pci/nowhere", noFunction),
		when("pci/autoprobe", autoprobe, SRIOV),
		when("pci/bind", bind, SRIOV),
		when("pci/bind/other driver", otherDriver, SRIOV),
		when("pci/bind/vfio", vfio, SRIOV, VFIO),
		unless(VFIO, "pci/bind/no vfio", noVFIO, SRIOV),
		when("pci/bind/anew", bindAnew, SRIOV),
		when("pci/unbind/pf", unbindPF, SRIOV),
		when("pci/address/legacy", legacyMAC, SRIOV),
		when("rdma", rdmaDevices, SRIOV, RDMA),
		unless(RDMA, "rdma/none", noRDMA, SRIOV),
	}
}

func functions(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 2, true)
	all, err := f.Machine.PCI.Functions(t.Context())
	must(t, err)
	if !slices.IsSortedFunc(all, func(a, b host.Function) int { return strings.Compare(a.Address, b.Address) }) {
		t.Error("not in order of address")
	}
	vfs := map[string][]int{}
	for _, o := range all {
		if !nic.IsPCIAddress(o.Address) || len(o.Vendor) != 4 || len(o.Device) != 4 {
			t.Errorf("%q with ids %q %q", o.Address, o.Vendor, o.Device)
		}
		if (o.PF == "") != (o.VFIndex < 0) {
			t.Errorf("%s: PF %q and VF index %d", o.Address, o.PF, o.VFIndex)
		}
		if o.PF != "" {
			vfs[o.PF] = append(vfs[o.PF], o.VFIndex)
		}
	}
	p := function(t, f, f.PFs[0].Name)
	if p.NumVFs != 2 || p.TotalVFs != f.TotalVFs || p.Driver == "" {
		t.Errorf("%+v", p)
	}
	if got := vfs[p.Address]; len(got) != 2 || !slices.Contains(got, 0) || !slices.Contains(got, 1) {
		t.Errorf("VF indexes %v: want 0 and 1", got)
	}
}

func setVFs(t *testing.T, f Fixture) {
	for _, v := range makeVFs(t, f, f.PFs[0], 2, true) {
		if v.Driver == "" || !v.Netdev.Exists() {
			t.Errorf("VF %d: driver %q, netdev %+v right after it was made with autoprobe", v.Index, v.Driver, v.Netdev)
		}
		if v.Away || v.Rep.Exists() {
			t.Errorf("VF %d: away %v, representor %+v in legacy mode", v.Index, v.Away, v.Rep)
		}
	}
	before := read(t, f)
	must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 0))
	after := read(t, f)
	if n := len(before.Functions) - len(after.Functions); n != 2 {
		t.Errorf("%d functions fewer with 2 VFs fewer", n)
	}
	if n := len(before.Links) - len(after.Links); n != 2 {
		t.Errorf("%d netdevs fewer with 2 VFs fewer", n)
	}
}

func manyVFs(t *testing.T, f Fixture) {
	n := f.MostVFs
	if n == 0 {
		n = f.TotalVFs
	}
	seen := map[int]bool{}
	for i, v := range makeVFs(t, f, f.PFs[0], n, true) {
		if v.Index != i || !v.Netdev.Exists() || seen[v.Netdev.Ifindex] {
			t.Errorf("VF %d of %d: %+v", i, n, v)
		}
		seen[v.Netdev.Ifindex] = true
	}
}

func sameCount(t *testing.T, f Fixture) {
	pf := f.PFs[0].Name
	untouched(t, f, func() { must(t, f.Machine.PCI.SetVFs(t.Context(), pf, 0)) })
	makeVFs(t, f, f.PFs[0], 2, true)
	untouched(t, f, func() { must(t, f.Machine.PCI.SetVFs(t.Context(), pf, 2)) })
}

func anotherCount(t *testing.T, f Fixture) {
	pf := f.PFs[0].Name
	makeVFs(t, f, f.PFs[0], 2, true)
	refused(t, f, host.ErrBusy, pf, func() error { return f.Machine.PCI.SetVFs(t.Context(), pf, 1) })
	must(t, f.Machine.PCI.SetVFs(t.Context(), pf, 0))
	makeVFs(t, f, f.PFs[0], 1, true)
}

func overTotal(t *testing.T, f Fixture) {
	pf := f.PFs[0].Name
	refused(t, f, syscall.ERANGE, pf, func() error { return f.Machine.PCI.SetVFs(t.Context(), pf, f.TotalVFs+1) })
	refused(t, f, nil, pf, func() error { return f.Machine.PCI.SetVFs(t.Context(), pf, -1) })
}

func vfsOfVF(t *testing.T, f Fixture) {
	vf := makeVFs(t, f, f.PFs[0], 1, false)[0].Address
	refused(t, f, nil, vf, func() error {
		err := f.Machine.PCI.SetVFs(t.Context(), vf, 1)
		oneOf(t, err, host.ErrNotSupported, fs.ErrNotExist)
		return err
	})
}

func usedUp(t *testing.T, f Fixture) {
	for errno, class := range map[syscall.Errno]error{
		syscall.ENOSPC: host.ErrExhausted, syscall.ENOMEM: host.ErrExhausted, syscall.EBUSY: host.ErrBusy,
	} {
		f.Inject(t, errno)
		refused(t, f, class, f.PFs[0].Name, func() error {
			err := f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 2)
			var e *host.Error
			if errors.As(err, &e) && e.Errno != errno {
				t.Errorf("%v: want errno %v", err, errno)
			}
			return err
		})
	}
	makeVFs(t, f, f.PFs[0], 2, true)
}

func noFunction(t *testing.T, f Fixture) {
	ctx, pci := t.Context(), f.Machine.PCI
	for _, do := range []func() error{
		func() error { return pci.SetVFs(ctx, nowhere, 1) },
		func() error { return pci.SetAutoprobe(ctx, nowhere, true) },
		func() error { return pci.Bind(ctx, nowhere, "") },
		func() error { return pci.Bind(ctx, nowhere, "vfio-pci") },
		func() error { return pci.Unbind(ctx, nowhere) },
	} {
		refused(t, f, fs.ErrNotExist, nowhere, do)
	}
}

func autoprobe(t *testing.T, f Fixture) {
	pf := f.PFs[0].Name
	untouched(t, f, func() { must(t, f.Machine.PCI.SetAutoprobe(t.Context(), pf, true)) })
	must(t, f.Machine.PCI.SetAutoprobe(t.Context(), pf, false))
	if function(t, f, pf).Autoprobe {
		t.Error("autoprobe is still on")
	}
	untouched(t, f, func() { must(t, f.Machine.PCI.SetAutoprobe(t.Context(), pf, false)) })
	for _, v := range makeVFs(t, f, f.PFs[0], 2, false) {
		if v.Driver != "" || v.Netdev.Exists() {
			t.Errorf("VF %d: driver %q, netdev %+v in spite of autoprobe off", v.Index, v.Driver, v.Netdev)
		}
	}
}

func bind(t *testing.T, f Fixture) {
	pci := f.Machine.PCI
	vf := makeVFs(t, f, f.PFs[0], 2, false)[1].Address
	untouched(t, f, func() { must(t, pci.Unbind(t.Context(), vf)) })
	must(t, pci.Bind(t.Context(), vf, ""))
	s := observePF(t, f, f.PFs[0])
	v := s.VFs[1]
	if v.Driver == "" || !v.Netdev.Exists() {
		t.Fatalf("right after bind: %+v", v)
	}
	if other := s.VFs[0]; other.Driver != "" {
		t.Errorf("VF 0 has driver %q, VF 1 was bound", other.Driver)
	}
	untouched(t, f, func() { must(t, pci.Bind(t.Context(), vf, "")) })
	untouched(t, f, func() { must(t, pci.Bind(t.Context(), vf, v.Driver)) })
	must(t, pci.Unbind(t.Context(), vf))
	if v = observePF(t, f, f.PFs[0]).VFs[1]; v.Driver != "" || v.Netdev.Exists() || v.Away {
		t.Errorf("right after unbind: %+v", v)
	}
	must(t, pci.Bind(t.Context(), vf, s.VFs[1].Driver)) // by name this time
	if v = observePF(t, f, f.PFs[0]).VFs[1]; v.Driver != s.VFs[1].Driver || !v.Netdev.Exists() {
		t.Errorf("right after bind by name: %+v", v)
	}
}

func otherDriver(t *testing.T, f Fixture) {
	pci := f.Machine.PCI
	v := makeVFs(t, f, f.PFs[0], 1, true)[0]
	// That it is bound comes before whether there is such a driver.
	refused(t, f, host.ErrBusy, v.Address, func() error { return pci.Bind(t.Context(), v.Address, "vfio-pci") })
	must(t, pci.Unbind(t.Context(), v.Address))
	refused(t, f, fs.ErrNotExist, v.Address, func() error { return pci.Bind(t.Context(), v.Address, "no-such-driver") })
}

func vfio(t *testing.T, f Fixture) {
	pci := f.Machine.PCI
	v := makeVFs(t, f, f.PFs[0], 1, false)[0]
	if v.IOMMUGroup < 0 {
		t.Errorf("vfio is there, and %s has no IOMMU group", v.Address)
	}
	must(t, pci.Bind(t.Context(), v.Address, "vfio-pci"))
	if v = observePF(t, f, f.PFs[0]).VFs[0]; v.Driver != "vfio-pci" || v.Netdev.Exists() {
		t.Errorf("right after bind: %+v", v)
	}
	untouched(t, f, func() { must(t, pci.Bind(t.Context(), v.Address, "vfio-pci")) })
	refused(t, f, host.ErrBusy, v.Address, func() error { return pci.Bind(t.Context(), v.Address, "") })
	must(t, pci.Unbind(t.Context(), v.Address))
	// A driver_override left behind would bring vfio-pci back.
	must(t, pci.Bind(t.Context(), v.Address, ""))
	if v = observePF(t, f, f.PFs[0]).VFs[0]; v.Driver == "vfio-pci" || !v.Netdev.Exists() {
		t.Errorf("bound to the kernel's choice after vfio-pci: %+v", v)
	}
}

func noVFIO(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 1, false)[0]
	refused(t, f, nil, v.Address, func() error { return f.Machine.PCI.Bind(t.Context(), v.Address, "vfio-pci") })
}

func noRDMA(t *testing.T, f Fixture) {
	if v := makeVFs(t, f, f.PFs[0], 1, true)[0]; len(v.RDMA) > 0 {
		t.Errorf("%s has RDMA devices %q, which the fixture denies", v.Address, v.RDMA)
	}
}

// bindAnew: a netdev that is made again is another one, with the default MTU.
func bindAnew(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 1, true)[0]
	mtu := v.Netdev.MTU
	must(t, f.Machine.Links.SetMTU(t.Context(), v.Netdev.Ifindex, mtu-100))
	must(t, f.Machine.PCI.Unbind(t.Context(), v.Address))
	must(t, f.Machine.PCI.Bind(t.Context(), v.Address, ""))
	after := observePF(t, f, f.PFs[0]).VFs[0]
	if after.Netdev.Ifindex == v.Netdev.Ifindex || after.Netdev.MTU != mtu {
		t.Errorf("before %+v, after %+v: want another ifindex and MTU %d", v.Netdev, after.Netdev, mtu)
	}
}

func unbindPF(t *testing.T, f Fixture) {
	pf := f.PFs[0].Name
	refused(t, f, host.ErrNotSupported, pf, func() error { return f.Machine.PCI.Unbind(t.Context(), pf) })
}

// legacyMAC: an administrative address is read back, is what the netdev has once
// its driver binds, and ends with the VFs.
func legacyMAC(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 2, false)[1]
	if !v.MAC.IsZero() {
		t.Errorf("a new VF has the administrative address %s", v.MAC)
	}
	uplink := observePF(t, f, h).Uplink.Ifindex
	getsMAC(t, f, v, func() { must(t, f.Machine.Links.SetVFMAC(t.Context(), uplink, 1, address(1))) })
	for _, bad := range []struct {
		vf  int
		mac nic.MAC
	}{{2, address(1)}, {-1, address(1)}, {0, nic.MAC{1}}} {
		refused(t, f, nil, "", func() error { return f.Machine.Links.SetVFMAC(t.Context(), uplink, bad.vf, bad.mac) })
	}
	losesMAC(t, f)
}

// getsMAC: set gives v, the second of two VFs, which is not bound, address(1), which
// is read back, and what its netdev has.
func getsMAC(t *testing.T, f Fixture, v nic.VF, set func()) {
	t.Helper()
	set()
	if got := observePF(t, f, f.PFs[0]).VFs; got[1].MAC != address(1) || !got[0].MAC.IsZero() {
		t.Errorf("VF 0 has %s, VF 1 %s: want none and %s", got[0].MAC, got[1].MAC, address(1))
	}
	untouched(t, f, set)
	must(t, f.Machine.PCI.Bind(t.Context(), v.Address, ""))
	if got := observePF(t, f, f.PFs[0]).VFs[1].Netdev.MAC; got != address(1) {
		t.Errorf("bound with %s: want %s", got, address(1))
	}
}

// losesMAC: VFs that are made anew have no address of earlier ones.
func losesMAC(t *testing.T, f Fixture) {
	t.Helper()
	must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 0))
	if got := makeVFs(t, f, f.PFs[0], 2, false)[1].MAC; !got.IsZero() {
		t.Errorf("VF 1 has %s from its former life", got)
	}
}

func rdmaDevices(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 2, false)[1]
	if len(v.RDMA) > 0 {
		t.Errorf("an unbound VF has RDMA devices %q", v.RDMA)
	}
	must(t, f.Machine.PCI.Bind(t.Context(), v.Address, ""))
	if got := observePF(t, f, f.PFs[0]).VFs; len(got[1].RDMA) != 1 || len(got[0].RDMA) != 0 {
		t.Fatalf("VF 0 has RDMA devices %q, VF 1, the bound one, %q", got[0].RDMA, got[1].RDMA)
	}
	all, err := f.Machine.RDMA.Devices(t.Context())
	must(t, err)
	for _, d := range all {
		if d.Parent == v.Address && !slices.ContainsFunc(d.Files, func(s string) bool { return strings.HasPrefix(s, "/dev/infiniband/uverbs") }) {
			t.Errorf("%+v has no uverbs file", d)
		}
	}
	must(t, f.Machine.PCI.Unbind(t.Context(), v.Address))
	if got := observePF(t, f, f.PFs[0]).VFs[1].RDMA; len(got) > 0 {
		t.Errorf("right after unbind it has RDMA devices %q", got)
	}
}
