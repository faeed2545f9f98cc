package hosttest

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func sfRules() []rule {
	return []rule{
		when("sf/life", sfLife, SRIOV, Eswitch, SFs),
		when("sf/legacy", sfLegacy, SRIOV, Eswitch, SFs),
		when("sf/taken", sfTaken, SRIOV, Eswitch, SFs),
		when("sf/nowhere", sfNowhere, SRIOV, Eswitch, SFs),
		when("sf/address", sfAddress, SRIOV, Eswitch, SFs),
		when("sf/settings", sfSettings, SRIOV, Eswitch, SFs, Settings),
		when("sf/mode", sfMode, SRIOV, Eswitch, SFs),
		when("sf/two ports", sfTwoPorts, SRIOV, Eswitch, SFs, TwoPorts),
		unless(SFs, "sf/not offered", noSFs, SRIOV, Eswitch),
	}
}

func addSF(t *testing.T, f Fixture, h nic.Handle, num int) nic.SF {
	t.Helper()
	must(t, f.Machine.Devlink.AddSF(t.Context(), h, num))
	p := observePF(t, f, h)
	o := p.SF(num)
	if o == nil {
		t.Fatalf("%s has no SF %d right after it was made: %+v", h, num, p.SFs)
	}
	return *o
}

func activate(t *testing.T, f Fixture, h nic.Handle, num int, on bool) nic.SF {
	t.Helper()
	p := observePF(t, f, h)
	must(t, f.Machine.Devlink.SetSFActive(t.Context(), h, p.SF(num).Port, on))
	p = observePF(t, f, h)
	o := *p.SF(num)
	if o.Active != on || o.Attached != on || (o.Device != "") != on || o.Netdev.Exists() != on {
		t.Errorf("right after active was set %v: %+v", on, o)
	}
	return o
}

// sfLife: an SF is made with its representor, inactive; it has a device and a
// netdev while it is active; and is gone without a trace.
func sfLife(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	before := read(t, f)
	o := addSF(t, f, h, 88)
	if o.Active || o.Attached || o.Device != "" || o.Netdev.Exists() || !o.Rep.Exists() || !o.MAC.IsZero() {
		t.Errorf("right after it was made: %+v", o)
	}
	if l := linkAt(t, f.Machine.Links, o.Rep.Ifindex); l.Parent != h.Name || !strings.HasSuffix(l.PortName, "sf88") {
		t.Errorf("representor %+v", l)
	}
	port, err := f.Machine.Devlink.Port(t.Context(), h, o.Port)
	must(t, err)
	if port.Flavour != host.FlavourPCISF || port.SF != 88 || port.Ifindex != o.Rep.Ifindex {
		t.Errorf("port %+v", port)
	}
	if p := observePF(t, f, h); p.MaxSFs != 0 && p.MaxSFs < len(p.SFs) {
		t.Errorf("%d SFs where there is room for %d", len(p.SFs), p.MaxSFs)
	}
	untouched(t, f, func() { must(t, f.Machine.Devlink.SetSFActive(t.Context(), h, o.Port, false)) })
	for range 2 {
		o = activate(t, f, h, 88, true)
		untouched(t, f, func() { must(t, f.Machine.Devlink.SetSFActive(t.Context(), h, o.Port, true)) })
		devices, err := f.Machine.PCI.SFs(t.Context())
		must(t, err)
		i := slices.IndexFunc(devices, func(d host.SFDevice) bool { return d.Name == o.Device })
		if i < 0 || devices[i].PF != h.Name || devices[i].Num != 88 || devices[i].Driver == "" {
			t.Errorf("device %q among %+v", o.Device, devices)
		}
		if l := linkAt(t, f.Machine.Links, o.Netdev.Ifindex); l.Parent != o.Device {
			t.Errorf("netdev %+v: want parent %s", l, o.Device)
		}
		activate(t, f, h, 88, false)
	}
	must(t, f.Machine.Devlink.DelSF(t.Context(), h, o.Port))
	sameSnapshot(t, before, read(t, f))
}

func sfLegacy(t *testing.T, f Fixture) {
	h := f.PFs[0]
	refused(t, f, host.ErrNotSupported, h.String(), func() error {
		err := f.Machine.Devlink.AddSF(t.Context(), h, 1)
		var e *host.Error
		if errors.As(err, &e) && e.Ext == "" {
			t.Errorf("%v: the driver's words are missing", err)
		}
		return err
	})
}

func sfTaken(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	addSF(t, f, h, 1)
	refused(t, f, fs.ErrExist, h.String(), func() error { return f.Machine.Devlink.AddSF(t.Context(), h, 1) })
	addSF(t, f, h, 2)
	if p := observePF(t, f, h); len(p.SFs) != 2 || p.SFs[0].Num != 1 || p.SFs[0].Port == p.SFs[1].Port {
		t.Errorf("%+v", p.SFs)
	}
}

func sfNowhere(t *testing.T, f Fixture) {
	ctx, d := t.Context(), f.Machine.Devlink
	no, h := nic.PCI(nowhere), f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	refused(t, f, fs.ErrNotExist, no.String(), func() error { return d.AddSF(ctx, no, 1) })
	refused(t, f, fs.ErrNotExist, h.String(), func() error { return d.DelSF(ctx, h, 0xfffe0000) })
	refused(t, f, fs.ErrNotExist, h.String(), func() error { return d.SetSFActive(ctx, h, 0xfffe0000, true) })
	_, err := d.Port(ctx, h, 0xfffe0000)
	checkError(t, err, fs.ErrNotExist, h.String())
	ports, err := d.Ports(ctx)
	must(t, err)
	for _, o := range ports {
		if o.Handle == h && o.Flavour == host.FlavourPhysical {
			refused(t, f, nil, h.String(), func() error { return d.DelSF(ctx, h, o.Index) })
			refused(t, f, nil, h.String(), func() error { return d.SetSFActive(ctx, h, o.Index, true) })
		}
	}
}

// sfAddress: as of a VF, an SF starts with the address that was set for it.
func sfAddress(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	o := addSF(t, f, h, 5)
	must(t, f.Machine.Devlink.SetPortMAC(t.Context(), h, o.Port, address(5)))
	if o = activate(t, f, h, 5, true); o.MAC != address(5) || o.Netdev.MAC != address(5) {
		t.Errorf("%+v: want address %s", o, address(5))
	}
}

func sfSettings(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	addSF(t, f, h, 5)
	addSF(t, f, h, 6)
	o := sfObject(t, f, h, 5)
	o.try(t, f, nic.MinRate, nic.MaxRate)
	for _, name := range netdevAttributes() {
		if v, ok := o.value(t, f, name); ok {
			t.Errorf("an inactive SF has %s, %q", name, v)
		}
	}
	activate(t, f, h, 5, true)
	if tried := o.try(t, f, nic.MinRate, nic.MaxRate, nic.RoCE, nic.EventQueues); !slices.Contains(tried, nic.GSOMax) {
		t.Errorf("no %s among the settings of an active SF: %q", nic.GSOMax, tried)
	}
	if _, lacks := f.Lacks[Rates]; !lacks {
		o.give(t, f, nic.MaxRate, "100")
	}
	// By itself it is the same as in the list.
	p := observePF(t, f, h)
	want := p.Clone()
	for i := range p.SFs {
		p.SFs[i].Settings, p.SFs[i].Limits = nil, nil
		must(t, f.Machine.Settings.ReadSF(t.Context(), &p, p.SFs[i].Num))
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("-in the list +by itself:\n%s", d)
	}
	if err := f.Machine.Settings.ReadSF(t.Context(), &p, 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: want errors.Is %v", err, fs.ErrNotExist)
	}
}

// sfMode: SFs end with switchdev mode, active or not.
func sfMode(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	before := read(t, f)
	addSF(t, f, h, 1)
	addSF(t, f, h, 2)
	activate(t, f, h, 2, true)
	setMode(t, f, h, nic.Legacy)
	eventually(t, "no device of an SF is left", func() bool {
		devices, err := f.Machine.PCI.SFs(t.Context())
		must(t, err)
		return len(observePF(t, f, h).SFs) == 0 && len(devices) == 0
	})
	setMode(t, f, h, nic.Switchdev)
	after := read(t, f)
	if len(after.Ports) != len(before.Ports) || len(after.Links) != len(before.Links) {
		t.Errorf("ports %+v, links %+v: something is left of SFs", after.Ports, after.Links)
	}
}

// sfTwoPorts: numbers are a PF's own.
func sfTwoPorts(t *testing.T, f Fixture) {
	for _, h := range f.PFs[:2] {
		setMode(t, f, h, nic.Switchdev)
		addSF(t, f, h, 3)
	}
	activate(t, f, f.PFs[1], 3, true)
	if p := observePF(t, f, f.PFs[0]); p.SF(3) == nil || p.SF(3).Active {
		t.Errorf("%+v", p.SFs)
	}
}

func noSFs(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	refused(t, f, host.ErrNotSupported, h.String(), func() error { return f.Machine.Devlink.AddSF(t.Context(), h, 1) })
}
