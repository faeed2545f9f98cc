package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func settingRules() []rule {
	return []rule{
		when("settings/nowhere", noSettings, SRIOV, Settings),
		when("settings/no such", noSuchSetting, SRIOV, Settings),
		when("settings/pf", pfSettings, SRIOV, Settings),
		when("settings/pf/roce", pfRoCE, SRIOV, Settings),
		when("settings/pf/steering", steering, SRIOV, Settings, Eswitch),
		when("settings/pf/over modes", pfOverModes, SRIOV, Settings, Eswitch),
		when("settings/vf/read", readVF, SRIOV, Settings),
		when("settings/vf/bound", boundVFSettings, SRIOV, Settings),
		when("settings/vf/unbound", unboundVFSettings, SRIOV, Settings),
		when("settings/vf/netdev", netdevSettings, SRIOV, Settings),
		when("settings/vf/end", settingsEnd, SRIOV, Settings),
		when("settings/vf/rate of a link that just came", rateAtOnce, SRIOV, Settings, VFSettings),
		when("settings/vf/impossible", impossibleValues, SRIOV, Settings),
		when("settings/vf/legacy only", legacyOnly, SRIOV, Settings, Eswitch, VFSettings, ModeWithVFs),
		when("settings/vf/over modes", vfOverModes, SRIOV, Settings, Eswitch, VFSettings, ModeWithVFs),
		when("settings/vf/switchdev", switchdevSettings, SRIOV, Settings, Eswitch),
		when("settings/vf/rates", rates, SRIOV, Settings, Eswitch, Rates),
		when("settings/vf/function", functionSettings, SRIOV, Settings, Eswitch, FunctionSettings),
		unless(FunctionSettings, "settings/vf/function/not offered", noFunctionSettings, SRIOV, Settings, Eswitch),
		when("settings/cancelled", cancelledSettings, SRIOV, Settings),
	}
}

// legacyAttributes are what only legacy mode has, of drivers that have a mode.
func legacyAttributes() []nic.Setting {
	return []nic.Setting{nic.Trust, nic.SpoofCheck, nic.LinkState, nic.VLAN}
}

// netdevAttributes belong to the function's own netdev and end with it.
func netdevAttributes() []nic.Setting {
	return []nic.Setting{
		nic.Channels, nic.RxRing, nic.TxRing, nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4,
	}
}

// another is a value that a setting of value now can be given instead; "" where
// there is none to try. VDPA needs modules that a machine may not have.
func another(name nic.Setting, now string, limits nic.Limits) string {
	n, _ := strconv.Atoi(now)
	switch name {
	case nic.EncapMode:
		return other(now, "none", "basic")
	case nic.SteeringMode:
		return other(now, "dmfs", "smfs")
	case nic.TCOffload, nic.RoCE, nic.Trust, nic.SpoofCheck:
		return other(now, "on", "off")
	case nic.AdminLink:
		return other(now, "up", "down")
	case nic.LinkState:
		return other(now, "enable", "disable")
	case nic.VLAN:
		return other(now, "7/3", "9")
	case nic.MaxRate:
		return other(now, "200", "100")
	case nic.MinRate:
		return other(now, "20", "10")
	case nic.EventQueues:
		return other(now, "16", "8")
	case nic.NodeGUID, nic.PortGUID:
		return other(now, "02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:02")
	case nic.LinkMTU:
		return strconv.Itoa(n - 100)
	case nic.Channels:
		if n == 1 && limits[name] == 1 {
			return ""
		}
		return other(now, "1", "2")
	case nic.RxRing, nic.TxRing:
		return other(now, "512", "256") // every driver's steps divide it
	case nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return other(now, strconv.Itoa(limits[name]), strconv.Itoa(n/2))
	}
	return ""
}

func other(now, first, second string) string {
	if now != first {
		return first
	}
	return second
}

// object is one function whose settings are tried.
type object struct {
	name string
	of   func(s nic.State) (nic.Settings, nic.Limits)
	set  func(ctx context.Context, name nic.Setting, value string) error
}

func pfObject(t *testing.T, f Fixture, h nic.Handle) object {
	return object{
		name: h.String(),
		of:   func(s nic.State) (nic.Settings, nic.Limits) { p := s.PF(h); return p.Settings, p.Limits },
		set: func(ctx context.Context, name nic.Setting, value string) error {
			return f.Machine.Settings.SetPF(ctx, observePF(t, f, h), name, value)
		},
	}
}

func vfObject(t *testing.T, f Fixture, h nic.Handle, i int) object {
	return object{
		name: h.String(),
		of: func(s nic.State) (nic.Settings, nic.Limits) {
			v := s.PF(h).VFs[i]
			return v.Settings, v.Limits
		},
		set: func(ctx context.Context, name nic.Setting, value string) error {
			return f.Machine.Settings.SetVF(ctx, observePF(t, f, h), i, name, value)
		},
	}
}

func sfObject(t *testing.T, f Fixture, h nic.Handle, num int) object {
	return object{
		name: h.String(),
		of: func(s nic.State) (nic.Settings, nic.Limits) {
			o := s.PF(h).SF(num)
			return o.Settings, o.Limits
		},
		set: func(ctx context.Context, name nic.Setting, value string) error {
			return f.Machine.Settings.SetSF(ctx, observePF(t, f, h), num, name, value)
		},
	}
}

func (o object) value(t *testing.T, f Fixture, name nic.Setting) (string, bool) {
	t.Helper()
	s, _ := o.of(observe(t, f))
	v, ok := s[name]
	return v, ok
}

// give sets and checks that the next read shows it.
func (o object) give(t *testing.T, f Fixture, name nic.Setting, value string) {
	t.Helper()
	must(t, o.set(t.Context(), name, value))
	if got, _ := o.value(t, f, name); got != value {
		t.Errorf("%s of %s is %q right after it was set to %q", name, o.name, got, value)
	}
}

// try gives each setting that the object offers, less skip, the value that it has,
// which touches nothing, then another, which shows and changes no other setting of
// whatever function, then the first again. It returns which were tried.
func (o object) try(t *testing.T, f Fixture, skip ...nic.Setting) []nic.Setting {
	t.Helper()
	before := observe(t, f)
	offered, limits := o.of(before)
	var tried []nic.Setting
	for _, name := range offered.Names() {
		was := offered[name]
		if slices.Contains(skip, name) {
			continue
		}
		untouched(t, f, func() { must(t, o.set(t.Context(), name, was)) })
		value := another(name, was, limits)
		if value == "" {
			continue
		}
		o.give(t, f, name, value)
		after := observe(t, f)
		got, _ := o.of(after)
		if d := cmp.Diff(offered.With(name, value), got); d != "" {
			t.Errorf("%s of %s: other settings changed with it (-want +got):\n%s", name, o.name, d)
		}
		got[name] = was // the map that after holds
		if d := cmp.Diff(allSettings(before), allSettings(after)); d != "" {
			t.Errorf("%s of %s: settings of others changed with it (-want +got):\n%s", name, o.name, d)
		}
		o.give(t, f, name, was)
		tried = append(tried, name)
	}
	return tried
}

func allSettings(s nic.State) map[string]nic.Settings {
	out := map[string]nic.Settings{}
	for _, p := range s.PFs {
		out[p.Handle.String()] = p.Settings
		for _, v := range p.VFs {
			out[fmt.Sprintf("%s vf %d", p.Handle, v.Index)] = v.Settings
		}
		for _, o := range p.SFs {
			out[fmt.Sprintf("%s sf %d", p.Handle, o.Num)] = o.Settings
		}
	}
	return out
}

func noSettings(t *testing.T, f Fixture) {
	m := f.Machine.Settings
	no := nic.PF{Handle: nic.PCI(nowhere)}
	refused(t, f, fs.ErrNotExist, nowhere, func() error { return m.SetPF(t.Context(), no, nic.TCOffload, "on") })
	refused(t, f, fs.ErrNotExist, nowhere, func() error { return m.SetVF(t.Context(), no, 0, nic.Trust, "on") })
	makeVFs(t, f, f.PFs[0], 1, false)
	p := observePF(t, f, f.PFs[0])
	refused(t, f, fs.ErrNotExist, p.Handle.String(), func() error { return m.SetVF(t.Context(), p, 1, nic.MaxRate, "100") })
	refused(t, f, fs.ErrNotExist, p.Handle.String(), func() error { return m.SetSF(t.Context(), p, 4711, nic.MaxRate, "100") })
}

func noSuchSetting(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 1, true)
	for _, o := range []object{pfObject(t, f, f.PFs[0]), vfObject(t, f, f.PFs[0], 0)} {
		refused(t, f, host.ErrNotSupported, f.PFs[0].String(), func() error { return o.set(t.Context(), "colour", "red") })
	}
	refused(t, f, host.ErrNotSupported, "", func() error { // it is a VF's
		return pfObject(t, f, f.PFs[0]).set(t.Context(), nic.Trust, "on")
	})
	refused(t, f, host.ErrNotSupported, "", func() error { // it is a PF's
		return vfObject(t, f, f.PFs[0], 0).set(t.Context(), nic.EncapMode, "basic")
	})
}

func pfSettings(t *testing.T, f Fixture) {
	o := pfObject(t, f, f.PFs[0])
	tried := o.try(t, f, nic.AdminLink, nic.RoCE)
	for _, want := range []nic.Setting{nic.LinkMTU, nic.GSOMax} {
		if !slices.Contains(tried, want) {
			t.Errorf("no %s among the settings of a PF: %q", want, tried)
		}
	}
	o.give(t, f, nic.AdminLink, "down")
	if p := observePF(t, f, f.PFs[0]); p.Uplink.Up {
		t.Errorf("uplink %+v after its link was set down", p.Uplink)
	}
	o.give(t, f, nic.AdminLink, "up")
}

// pfRoCE takes a reload, which makes the PF's netdev anew: it is not for a PF that
// has VFs, or is in switchdev mode, which would end with it.
func pfRoCE(t *testing.T, f Fixture) {
	h := f.PFs[0]
	o := pfObject(t, f, h)
	was, ok := o.value(t, f, nic.RoCE)
	if !ok {
		t.Skip("the driver does not offer it")
	}
	untouched(t, f, func() { must(t, o.set(t.Context(), nic.RoCE, was)) })
	o.give(t, f, nic.RoCE, another(nic.RoCE, was, nil))
	if p := observePF(t, f, h); p.Driver == "" || !p.Uplink.Exists() {
		t.Errorf("after its reload: %+v", p)
	}
	o.give(t, f, nic.RoCE, was)
	o.give(t, f, nic.AdminLink, "up")
	refuse := func() {
		t.Helper()
		refused(t, f, nil, o.name, func() error {
			err := o.set(t.Context(), nic.RoCE, another(nic.RoCE, was, nil))
			oneOf(t, err, host.ErrNotSupported, host.ErrBusy)
			return err
		})
	}
	makeVFs(t, f, h, 1, false)
	refuse()
	must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, 0))
	if _, lacks := f.Lacks[Eswitch]; !lacks {
		setMode(t, f, h, nic.Switchdev)
		refuse()
	}
}

// steering is the mode's own while it is switchdev (fs_core.c, mlx5_fs_mode_validate).
func steering(t *testing.T, f Fixture) {
	o := pfObject(t, f, f.PFs[0])
	was, ok := o.value(t, f, nic.SteeringMode)
	if !ok {
		t.Skip("the driver does not offer it")
	}
	setMode(t, f, f.PFs[0], nic.Switchdev)
	refused(t, f, host.ErrNotSupported, o.name, func() error {
		return o.set(t.Context(), nic.SteeringMode, another(nic.SteeringMode, was, nil))
	})
}

// pfOverModes: what is of the PF and not of the mode outlives a change of it.
func pfOverModes(t *testing.T, f Fixture) {
	h := f.PFs[0]
	o := pfObject(t, f, h)
	want := nic.Settings{}
	before, limits := o.of(observe(t, f))
	for _, name := range []nic.Setting{nic.EncapMode, nic.LinkMTU, nic.TCOffload, nic.GROMax} {
		if was, ok := before[name]; ok {
			want[name] = another(name, was, limits)
			o.give(t, f, name, want[name])
			defer func() { must(t, o.set(t.Context(), name, was)) }() // the PF outlives the rule
		}
	}
	for _, m := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
		setMode(t, f, h, m)
		got, _ := o.of(observe(t, f))
		maps.DeleteFunc(got, func(name nic.Setting, _ string) bool { _, ok := want[name]; return !ok })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("in mode %s (-want +got):\n%s", m, d)
		}
	}
}

// readVF: one VF read by itself is the same as in the list.
func readVF(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 2, true)
	p := observePF(t, f, f.PFs[0])
	want := p.Clone()
	for i := range p.VFs {
		p.VFs[i].Settings, p.VFs[i].Limits = nil, nil
		must(t, f.Machine.Settings.ReadVF(t.Context(), &p, i))
	}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("-in the list +by itself:\n%s", d)
	}
	for i, vf := range want.VFs {
		s, err := host.ObserveOne(t.Context(), f.Machine, vf.Address)
		must(t, err)
		if d := cmp.Diff(vf, s.PF(p.Handle).VFs[i]); d != "" {
			t.Errorf("VF %d: -in the list +observed alone:\n%s", i, d)
		}
	}
	if err := f.Machine.Settings.ReadVF(t.Context(), &p, 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: want errors.Is %v", err, fs.ErrNotExist)
	}
}

func boundVFSettings(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 2, true)
	tried := vfObject(t, f, f.PFs[0], 1).try(t, f, nic.MinRate, nic.MaxRate)
	if !slices.Contains(tried, nic.GSOMax) {
		t.Errorf("no %s among the settings of a VF with a netdev: %q", nic.GSOMax, tried)
	}
	for _, name := range legacyAttributes() {
		if _, lacks := f.Lacks[VFSettings]; !lacks && name != nic.LinkState && !slices.Contains(tried, name) {
			t.Errorf("no %s among the settings of a VF: %q", name, tried)
		}
	}
}

func unboundVFSettings(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 2, false)
	o := vfObject(t, f, f.PFs[0], 1)
	o.try(t, f, nic.MinRate, nic.MaxRate)
	got, limits := o.of(observe(t, f))
	for _, name := range netdevAttributes() {
		if _, ok := got[name]; ok || limits[name] != 0 {
			t.Errorf("an unbound VF has %s", name)
		}
		refused(t, f, host.ErrNotSupported, o.name, func() error { return o.set(t.Context(), name, "1024") })
	}
}

// netdevSettings end with the netdev: the next one has the defaults.
func netdevSettings(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 1, true)[0]
	o := vfObject(t, f, f.PFs[0], 0)
	before, limits := o.of(observe(t, f))
	for _, name := range netdevAttributes() {
		if was, ok := before[name]; ok {
			if value := another(name, was, limits); value != "" {
				o.give(t, f, name, value)
			}
		}
	}
	must(t, f.Machine.PCI.Unbind(t.Context(), v.Address))
	must(t, f.Machine.PCI.Bind(t.Context(), v.Address, ""))
	after, _ := o.of(observe(t, f))
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("the netdev was made anew (-before +after):\n%s", d)
	}
}

// settingsEnd: what was set of a VF ends with it.
func settingsEnd(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 2, false)
	o := vfObject(t, f, h, 1)
	before, limits := o.of(observe(t, f))
	for _, name := range before.Names() {
		if value := another(name, before[name], limits); value != "" && name != nic.MinRate {
			o.give(t, f, name, value)
		}
	}
	must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, 0))
	makeVFs(t, f, h, 2, false)
	after, _ := o.of(observe(t, f))
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("VF 1 has something from its former life (-then +now):\n%s", d)
	}
}

// rateAtOnce: a driver that wants a carrier for a rate is waited for.
func rateAtOnce(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 1, false)
	pf, vf := pfObject(t, f, h), vfObject(t, f, h, 0)
	pf.give(t, f, nic.AdminLink, "down")
	pf.give(t, f, nic.AdminLink, "up")
	vf.give(t, f, nic.MaxRate, "200")
}

func impossibleValues(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 1, true)
	s := observe(t, f)
	for _, o := range []object{pfObject(t, f, f.PFs[0]), vfObject(t, f, f.PFs[0], 0)} {
		offered, limits := o.of(s)
		for _, name := range offered.Names() {
			refused(t, f, host.ErrInvalid, o.name, func() error { return o.set(t.Context(), name, "sideways") })
			if most := limits[name]; most > 0 {
				refused(t, f, host.ErrInvalid, o.name, func() error {
					return o.set(t.Context(), name, strconv.Itoa(most+1))
				})
			}
		}
		for name := range limits {
			if _, ok := offered[name]; !ok {
				t.Errorf("%s has a limit of %s and does not offer it", o.name, name)
			}
		}
	}
}

// legacyOnly: switchdev mode leaves to the representor what legacy mode has by VF
// attributes (mlx5/core/esw/legacy.c: EOPNOTSUPP).
func legacyOnly(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 1, false)
	o := vfObject(t, f, h, 0)
	was, limits := o.of(observe(t, f))
	setMode(t, f, h, nic.Switchdev)
	for _, name := range legacyAttributes() {
		if _, ok := was[name]; !ok {
			continue
		}
		if v, ok := o.value(t, f, name); ok {
			t.Errorf("in switchdev mode a VF offers %s, %q", name, v)
		}
		refused(t, f, host.ErrNotSupported, o.name, func() error {
			return o.set(t.Context(), name, another(name, was[name], limits))
		})
	}
}

// vfOverModes: what legacy mode has of a VF is there again with legacy mode.
func vfOverModes(t *testing.T, f Fixture) {
	h := f.PFs[0]
	makeVFs(t, f, h, 1, false)
	o := vfObject(t, f, h, 0)
	was, limits := o.of(observe(t, f))
	want := nic.Settings{}
	for _, name := range legacyAttributes() {
		if v, ok := was[name]; ok {
			want[name] = another(name, v, limits)
			o.give(t, f, name, want[name])
		}
	}
	setMode(t, f, h, nic.Switchdev)
	setMode(t, f, h, nic.Legacy)
	for name, value := range want {
		if got, _ := o.value(t, f, name); got != value {
			t.Errorf("%s is %q after both modes: want %q", name, got, value)
		}
	}
}

func switchdevSettings(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, 2, true)
	pfObject(t, f, h).try(t, f, nic.AdminLink, nic.SteeringMode, nic.RoCE)
	vfObject(t, f, h, 1).try(t, f, nic.MinRate, nic.MaxRate, nic.RoCE, nic.EventQueues)
}

// rates are set in either mode, each without the other; a least rate over the most
// is left open, drivers differ.
func rates(t *testing.T, f Fixture) {
	h := f.PFs[0]
	for _, m := range []nic.Eswitch{nic.Legacy, nic.Switchdev} {
		must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, 0))
		setMode(t, f, h, m)
		makeVFs(t, f, h, 2, false)
		o := vfObject(t, f, h, 1)
		for _, step := range []struct {
			name  nic.Setting
			value string
		}{{nic.MaxRate, "1000"}, {nic.MinRate, "100"}, {nic.MaxRate, "2000"}, {nic.MinRate, "0"}, {nic.MaxRate, "0"}} {
			before, _ := o.of(observe(t, f))
			untouched(t, f, func() { must(t, o.set(t.Context(), step.name, before[step.name])) })
			o.give(t, f, step.name, step.value)
			after, _ := o.of(observe(t, f))
			if d := cmp.Diff(before.With(step.name, step.value), after); d != "" {
				t.Errorf("in mode %s (-want +got):\n%s", m, d)
			}
		}
	}
}

// functionSettings are read whether the VF is bound or not, and set before it is
// (Documentation/networking/devlink/devlink-port.rst). Which class the refusal is of
// is the firmware's choice.
func functionSettings(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 2, false)[1]
	o := vfObject(t, f, h, 1)
	names := []nic.Setting{nic.RoCE, nic.EventQueues}
	for _, name := range names {
		if _, ok := o.value(t, f, name); ok {
			t.Errorf("in legacy mode a VF offers %s", name)
		}
		refused(t, f, host.ErrNotSupported, o.name, func() error {
			return o.set(t.Context(), name, another(name, "on", nil))
		})
	}
	must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, 0))
	setMode(t, f, h, nic.Switchdev)
	v = makeVFs(t, f, h, 2, false)[1]
	if tried := o.try(t, f, nic.MinRate, nic.MaxRate); !slices.Contains(tried, nic.RoCE) || !slices.Contains(tried, nic.EventQueues) {
		t.Errorf("tried %q: want %q among them", tried, names)
	}
	want := nic.Settings{}
	for _, name := range names {
		was, _ := o.value(t, f, name)
		want[name] = another(name, was, nil)
		o.give(t, f, name, want[name])
	}
	must(t, f.Machine.PCI.Bind(t.Context(), v.Address, ""))
	for _, name := range names {
		if got, _ := o.value(t, f, name); got != want[name] {
			t.Errorf("bound it has %s %q: want %q", name, got, want[name])
		}
		untouched(t, f, func() { must(t, o.set(t.Context(), name, want[name])) })
		refused(t, f, nil, o.name, func() error {
			err := o.set(t.Context(), name, another(name, want[name], nil))
			oneOf(t, err, host.ErrBusy, host.ErrInvalid, host.ErrNotSupported)
			return err
		})
	}
}

func noFunctionSettings(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, 1, false)
	o := vfObject(t, f, h, 0)
	for name, value := range map[nic.Setting]string{nic.RoCE: "off", nic.EventQueues: "16"} {
		if _, ok := o.value(t, f, name); ok {
			t.Errorf("a VF offers %s, which the fixture denies", name)
		}
		refused(t, f, host.ErrNotSupported, o.name, func() error { return o.set(t.Context(), name, value) })
	}
}

func cancelledSettings(t *testing.T, f Fixture) {
	makeVFs(t, f, f.PFs[0], 1, true)
	p := observePF(t, f, f.PFs[0])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := f.Machine.Settings
	for _, do := range []func() error{
		func() error { return s.SetPF(ctx, p, nic.LinkMTU, "1400") },
		func() error { return s.SetVF(ctx, p, 0, nic.MaxRate, "100") },
		func() error { return s.Read(ctx, &nic.State{PFs: []nic.PF{p}}) },
		func() error { return s.ReadVF(ctx, &p, 0) },
	} {
		before := read(t, f)
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: want errors.Is %v", err, context.Canceled)
		}
		sameSnapshot(t, before, read(t, f))
	}
}
