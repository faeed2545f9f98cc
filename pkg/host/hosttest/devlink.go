package hosttest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func devlinkRules() []rule {
	return []rule{
		when("devlink/nowhere", noHandle),
		unless(Eswitch, "devlink/no eswitch", noEswitch, SRIOV),
		when("devlink/mode", mode, SRIOV, Eswitch),
		when("devlink/mode/unknown", unknownMode, SRIOV, Eswitch),
		when("devlink/mode/refused", modeRefused, SRIOV, Eswitch, Faults),
		when("devlink/mode/with vfs", modeWithVFs, SRIOV, Eswitch, ModeWithVFs),
		when("devlink/mode/with bound vfs", modeWithBoundVFs, SRIOV, Eswitch, ModeWithVFs),
		unless(ModeWithVFs, "devlink/mode/not with vfs", modeNotWithVFs, SRIOV, Eswitch),
		when("devlink/representors/of new vfs", representorsOfNewVFs, SRIOV, Eswitch),
		when("devlink/representors/many", manyRepresentors, SRIOV, Eswitch),
		when("devlink/representors/pinned", pinned, SRIOV, Eswitch, Namespaces),
		when("devlink/address", portMAC, SRIOV, Eswitch, PortMAC),
		when("devlink/address/none", noPortMAC, SRIOV, Eswitch, PortMAC),
		unless(PortMAC, "devlink/address/not offered", portMACNotOffered, SRIOV, Eswitch),
	}
}

func setMode(t *testing.T, f Fixture, h nic.Handle, m nic.Eswitch) {
	t.Helper()
	must(t, f.Machine.Devlink.SetEswitch(t.Context(), h, m))
	if got := observePF(t, f, h).Eswitch; got != m {
		t.Fatalf("%s is in mode %q right after it was set to %q", h, got, m)
	}
}

func noHandle(t *testing.T, f Fixture) {
	for _, h := range []nic.Handle{nic.PCI(nowhere), {Bus: "auxiliary", Name: "no_such.7"}} {
		refused(t, f, fs.ErrNotExist, h.String(), func() error {
			return f.Machine.Devlink.SetEswitch(t.Context(), h, nic.Switchdev)
		})
		refused(t, f, fs.ErrNotExist, h.String(), func() error {
			return f.Machine.Devlink.SetPortMAC(t.Context(), h, 1, address(1))
		})
	}
}

func noEswitch(t *testing.T, f Fixture) {
	h := f.PFs[0]
	refused(t, f, nil, h.String(), func() error {
		err := f.Machine.Devlink.SetEswitch(t.Context(), h, nic.Switchdev)
		oneOf(t, err, fs.ErrNotExist, host.ErrNotSupported)
		return err
	})
}

func mode(t *testing.T, f Fixture) {
	h := f.PFs[0]
	untouched(t, f, func() { setMode(t, f, h, nic.Legacy) })
	before := observePF(t, f, h)
	setMode(t, f, h, nic.Switchdev)
	after := observePF(t, f, h)
	if after.SwitchID == "" {
		t.Error("no switch id in switchdev mode")
	}
	if after.Uplink.Ifindex != before.Uplink.Ifindex || after.Uplink.Name != before.Uplink.Name {
		t.Errorf("the uplink was %+v and is %+v", before.Uplink, after.Uplink)
	}
	untouched(t, f, func() { setMode(t, f, h, nic.Switchdev) })
	setMode(t, f, h, nic.Legacy)
	if again := observePF(t, f, h).Uplink; again.Ifindex != before.Uplink.Ifindex {
		t.Errorf("the uplink was %+v and is %+v", before.Uplink, again)
	}
}

func unknownMode(t *testing.T, f Fixture) {
	refused(t, f, nil, f.PFs[0].String(), func() error {
		return f.Machine.Devlink.SetEswitch(t.Context(), f.PFs[0], "sideways")
	})
}

func modeRefused(t *testing.T, f Fixture) {
	h := f.PFs[0]
	f.Inject(t, syscall.EBUSY)
	refused(t, f, host.ErrBusy, h.String(), func() error {
		return f.Machine.Devlink.SetEswitch(t.Context(), h, nic.Switchdev)
	})
	setMode(t, f, h, nic.Switchdev)
}

// represented checks that each VF of a PF has a representor, with its netdev, on a
// port of the PF's own handle.
func represented(t *testing.T, f Fixture, h nic.Handle) {
	t.Helper()
	p := observePF(t, f, h)
	ports, err := f.Machine.Devlink.Ports(t.Context())
	must(t, err)
	function := h.Name[len(h.Name)-1] - '0'
	seen := map[int]bool{p.Uplink.Ifindex: true}
	for _, v := range p.VFs {
		if !v.Rep.Exists() || seen[v.Rep.Netdev.Ifindex] {
			t.Errorf("VF %d has representor %+v", v.Index, v.Rep)
			continue
		}
		seen[v.Rep.Netdev.Ifindex] = true
		l := linkAt(t, f.Machine.Links, v.Rep.Netdev.Ifindex)
		want := fmt.Sprintf("pf%dvf%d", function, v.Index)
		if l.PortName != want || l.SwitchID != p.SwitchID || l.Parent != h.Name {
			t.Errorf("VF %d has representor %+v: want port name %s, switch id %s, parent %s", v.Index, l, want, p.SwitchID, h.Name)
		}
		i := slices.IndexFunc(ports, func(o host.DevlinkPort) bool { return o.Handle == h && o.Index == v.Rep.Port })
		if i < 0 {
			t.Errorf("VF %d: no devlink port %s/%d", v.Index, h, v.Rep.Port)
			continue
		}
		o := ports[i]
		if o.Flavour != host.FlavourPCIVF || o.VF != v.Index || o.External || o.Ifindex != l.Ifindex || o.Netdev != l.Name {
			t.Errorf("VF %d: devlink port %+v of representor %+v", v.Index, o, l)
		}
	}
}

func unrepresented(t *testing.T, f Fixture, h nic.Handle) {
	t.Helper()
	for _, v := range observePF(t, f, h).VFs {
		if v.Rep.Exists() || v.Rep.Port != 0 {
			t.Errorf("VF %d has representor %+v", v.Index, v.Rep)
		}
	}
}

func modeWithVFs(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 2, false)
	unrepresented(t, f, h)
	for range 2 {
		setMode(t, f, h, nic.Switchdev)
		represented(t, f, h)
		setMode(t, f, h, nic.Legacy)
		unrepresented(t, f, h)
	}
	if n := len(observePF(t, f, h).VFs); n != 2 {
		t.Errorf("%d VFs are left of 2", n)
	}
}

func modeWithBoundVFs(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 2, true)
	for _, m := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
		setMode(t, f, h, m)
		for _, v := range observePF(t, f, h).VFs {
			if v.Driver == "" || !v.Netdev.Exists() {
				t.Errorf("VF %d in mode %s: %+v", v.Index, m, v)
			}
		}
	}
}

func modeNotWithVFs(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 1, false)
	refused(t, f, host.ErrNotSupported, h.String(), func() error {
		err := f.Machine.Devlink.SetEswitch(t.Context(), h, nic.Switchdev)
		var e *host.Error
		if errors.As(err, &e) && e.Ext == "" {
			t.Errorf("%v: the driver's words are missing", err)
		}
		return err
	})
}

func representorsOfNewVFs(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, 2, true)
	represented(t, f, h)
	must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, 0))
	p := observePF(t, f, h)
	if p.Eswitch != nic.Switchdev || len(p.VFs) != 0 {
		t.Errorf("mode %s and %d VFs after the count was set to 0", p.Eswitch, len(p.VFs))
	}
	ports, err := f.Machine.Devlink.Ports(t.Context())
	must(t, err)
	for _, o := range ports {
		if o.Handle == h && o.Flavour == host.FlavourPCIVF {
			t.Errorf("port %+v is left of a VF", o)
		}
	}
}

func manyRepresentors(t *testing.T, f Fixture) {
	h, n := f.PFs[0], f.MostVFs
	if n == 0 {
		n = f.TotalVFs
	}
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, n, false)
	represented(t, f, h)
}

// pinned: representors and, in switchdev mode, the uplink stay where the devlink
// instance is (netns_immutable in mlx5's en_rep.c and en_main.c).
func pinned(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, 1, false)
	path := f.AddNetns(t)
	p := observePF(t, f, h)
	for _, ifindex := range []int{p.VFs[0].Rep.Netdev.Ifindex, p.Uplink.Ifindex} {
		refused(t, f, host.ErrNotSupported, "", func() error { return f.Machine.Links.Move(t.Context(), ifindex, path) })
		if err := f.Machine.Links.Pinned(t.Context(), ifindex); !errors.Is(err, host.ErrNotSupported) {
			t.Errorf("pinned: %v", err)
		}
	}
	if v := p.VFs[0].Netdev; v.Exists() {
		must(t, f.Machine.Links.Pinned(t.Context(), v.Ifindex))
	}
}

// portMAC: hw_addr that is set before the VF is bound is read back, and is what
// the netdev has.
func portMAC(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	v := makeVFs(t, f, h, 2, false)[1]
	getsMAC(t, f, v, func() { must(t, f.Machine.Devlink.SetPortMAC(t.Context(), h, v.Rep.Port, address(1))) })
	losesMAC(t, f)
}

func noPortMAC(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	port := makeVFs(t, f, h, 1, false)[0].Rep.Port
	set := func(port uint32, mac nic.MAC) func() error {
		return func() error { return f.Machine.Devlink.SetPortMAC(t.Context(), h, port, mac) }
	}
	refused(t, f, nil, h.String(), set(port, nic.MAC{1}))
	refused(t, f, fs.ErrNotExist, h.String(), set(0xfffe0000, address(1)))
	ports, err := f.Machine.Devlink.Ports(t.Context())
	must(t, err)
	for _, o := range ports {
		if o.Handle == h && o.Flavour == host.FlavourPhysical {
			refused(t, f, host.ErrNotSupported, h.String(), set(o.Index, address(1)))
		}
	}
}

func portMACNotOffered(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	port := makeVFs(t, f, h, 1, false)[0].Rep.Port
	refused(t, f, host.ErrNotSupported, h.String(), func() error {
		return f.Machine.Devlink.SetPortMAC(t.Context(), h, port, address(1))
	})
}
