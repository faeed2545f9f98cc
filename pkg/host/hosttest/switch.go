package hosttest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// The capabilities in which devices with an eswitch may differ, beside PortMAC and
// Watch.
const (
	OwnUplink Capability = "own uplink" // the uplink's port is of the device's own handle
	Pinned    Capability = "pinned"     // representors cannot leave their namespace
	RepMAC    Capability = "rep mac"    // representors take an address
	KeepsMode Capability = "keeps mode" // switchdev mode outlives the last VF
)

func switchCapabilities() []Capability {
	return []Capability{PortMAC, Watch, OwnUplink, Pinned, RepMAC, KeepsMode}
}

// SwitchFixture is two devices with an eswitch, on whatever bus. The suite asks for
// a new one for each rule and expects legacy mode and no VFs.
type SwitchFixture struct {
	// Of this Machine, PFs (two devices), AddNetns, DeleteNetns and Lacks are
	// used. PCI of the machine is not: its functions are of one bus.
	Fixture

	// SetVFs makes n VFs of a device, from none or to none.
	SetVFs func(t *testing.T, h nic.Handle, n int)

	// Uplink gives the ifindex of a device's uplink.
	Uplink func(t *testing.T, h nic.Handle) int

	// Hold makes something of a device in switchdev mode, for which the kernel
	// refuses to change the mode, and gives a part of the words with which it does.
	Hold func(t *testing.T, h nic.Handle) (words string, release func())
}

// RunSwitch runs what the seam promises of devices with an eswitch, whatever their
// bus: modes, representors, and their identity. A machine whose devices are not on
// PCI has no nic.PF, so this is told by devlink and interfaces alone.
func RunSwitch(t *testing.T, open func(t *testing.T) SwitchFixture) {
	t.Run("fixture", func(t *testing.T) { open(t).checkSwitch(t) })
	for _, r := range switchRules() {
		t.Run(r.name, func(t *testing.T) {
			f := open(t)
			_, lacks := f.Lacks[r.of]
			switch {
			case r.of == "", !lacks:
				r.with(t, f)
			default:
				t.Logf("without %s: %s", r.of, f.Lacks[r.of])
				r.without(t, f)
			}
		})
	}
}

// switchRule is one sentence, and where devices may differ the one for those that
// lack the capability; so nothing is skipped.
type switchRule struct {
	name          string
	with, without func(*testing.T, SwitchFixture)
	of            Capability // in which they may differ; "" in nothing
}

func switchRules() []switchRule {
	return []switchRule{
		{"switch/modes", switchModes, nil, ""},
		{"switch/vfs in switchdev mode", switchVFs, nil, ""},
		{"switch/last vf", keepsMode, losesMode, KeepsMode},
		{"switch/unknown", switchUnknown, nil, ""},
		{"switch/held", switchHeld, nil, ""},
		{"switch/context/before", switchCancelledBefore, nil, ""},
		{"switch/context/within", switchCancelledWithin, nil, ""},
		{"switch/identity", switchIdentity, nil, ""},
		{"switch/consistent", switchConsistent, nil, ""},
		{"switch/representor/link", repLink, nil, ""},
		{"switch/representor/mac", repMAC, repNoMAC, RepMAC},
		{"switch/representor/moves", repPinned, repMoves, Pinned},
		{"switch/uplink/port", ownUplink, othersUplink, OwnUplink},
		{"switch/uplink/vf mac", switchVFMAC, nil, ""},
		{"switch/port/mac", switchPortMAC, switchNoPortMAC, PortMAC},
		{"switch/watch", switchWatch, switchUnwatched, Watch},
	}
}

func (f SwitchFixture) checkSwitch(t *testing.T) {
	t.Helper()
	for c, why := range f.Lacks {
		if why == "" || !slices.Contains(switchCapabilities(), c) {
			t.Errorf("lacks %q for the reason %q", c, why)
		}
	}
	if len(f.PFs) != 2 || f.SetVFs == nil || f.Uplink == nil || f.Hold == nil {
		t.Fatalf("devices %v: want two, SetVFs, Uplink and Hold", f.PFs)
	}
	for _, h := range f.PFs {
		if d := f.device(t, h); d.Eswitch != nic.Legacy || d.Driver == "" {
			t.Errorf("%+v: want it in legacy mode and its driver's name", d)
		}
		if reps := f.reps(t, h); len(reps) > 0 {
			t.Errorf("%s has VFs: %+v", h, reps)
		}
		if up := f.uplink(t, h); !up.MAC.IsUnicast() || up.SwitchID == "" {
			t.Errorf("uplink of %s: %+v", h, up)
		}
	}
}

func (f SwitchFixture) device(t *testing.T, h nic.Handle) host.DevlinkDevice {
	t.Helper()
	all, err := f.Machine.Devlink.Devices(t.Context())
	must(t, err)
	i := slices.IndexFunc(all, func(d host.DevlinkDevice) bool { return d.Handle == h })
	if i < 0 {
		t.Fatalf("no %s among %+v", h, all)
	}
	return all[i]
}

// ports lists a device's ports of a flavour, by VF index.
func (f SwitchFixture) ports(t *testing.T, h nic.Handle, flavour host.Flavour) []host.DevlinkPort {
	t.Helper()
	all, err := f.Machine.Devlink.Ports(t.Context())
	must(t, err)
	out := slices.DeleteFunc(all, func(p host.DevlinkPort) bool { return p.Handle != h || p.Flavour != flavour })
	slices.SortFunc(out, func(a, b host.DevlinkPort) int { return a.VF - b.VF })
	return out
}

func (f SwitchFixture) reps(t *testing.T, h nic.Handle) []host.DevlinkPort {
	t.Helper()
	return f.ports(t, h, host.FlavourPCIVF)
}

func (f SwitchFixture) uplink(t *testing.T, h nic.Handle) host.Link {
	t.Helper()
	return linkAt(t, f.Machine.Links, f.Uplink(t, h))
}

// set sets the mode, and sees that it is set.
func (f SwitchFixture) set(t *testing.T, h nic.Handle, m nic.Eswitch) {
	t.Helper()
	must(t, f.Machine.Devlink.SetEswitch(t.Context(), h, m))
	if got := f.device(t, h).Eswitch; got != m {
		t.Fatalf("%s is in mode %q right after it was set to %q", h, got, m)
	}
}

// switched is a device in switchdev mode with n VFs.
func (f SwitchFixture) switched(t *testing.T, h nic.Handle, n int) []host.DevlinkPort {
	t.Helper()
	f.SetVFs(t, h, n)
	f.set(t, h, nic.Switchdev)
	return f.wantReps(t, h, n)
}

// wantReps checks that VF 0 to n-1 have one representor each, on ports of the
// device's handle and interfaces of its switch.
func (f SwitchFixture) wantReps(t *testing.T, h nic.Handle, n int) []host.DevlinkPort {
	t.Helper()
	reps, up := f.reps(t, h), f.uplink(t, h)
	if len(reps) != n {
		t.Fatalf("%s has representors %+v: want %d", h, reps, n)
	}
	seen := map[int]bool{up.Ifindex: true}
	for i, p := range reps {
		if p.VF != i || p.External || p.Ifindex == 0 || seen[p.Ifindex] {
			t.Errorf("VF %d of %s: port %+v", i, h, p)
			continue
		}
		seen[p.Ifindex] = true
		l := linkAt(t, f.Machine.Links, p.Ifindex)
		if l.Name != p.Netdev || l.SwitchID != up.SwitchID || !strings.HasSuffix(l.PortName, "vf"+string(rune('0'+i))) {
			t.Errorf("VF %d of %s: representor %+v of port %+v and switch %s", i, h, l, p, up.SwitchID)
		}
		one, err := f.Machine.Devlink.Port(t.Context(), h, p.Index)
		must(t, err)
		if one != p {
			t.Errorf("port by itself %+v, in the list %+v", one, p)
		}
	}
	return reps
}

// switchModes: both ways, twice, and again what is already; the uplink stays.
func switchModes(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	f.SetVFs(t, h, 3)
	up := f.uplink(t, h)
	untouched(t, f.Fixture, func() { f.set(t, h, nic.Legacy) })
	for range 2 {
		f.set(t, h, nic.Switchdev)
		f.wantReps(t, h, 3)
		untouched(t, f.Fixture, func() { f.set(t, h, nic.Switchdev) })
		was := f.reps(t, h)
		f.set(t, h, nic.Legacy)
		f.wantReps(t, h, 0)
		for _, p := range was {
			_, err := f.Machine.Devlink.Port(t.Context(), h, p.Index)
			checkError(t, err, fs.ErrNotExist, h.String())
			_, err = f.Machine.Links.Link(t.Context(), p.Ifindex)
			checkError(t, err, fs.ErrNotExist, "")
		}
	}
	if got := f.uplink(t, h); got.Ifindex != up.Ifindex || got.Name != up.Name || got.MAC != up.MAC || got.SwitchID != up.SwitchID {
		t.Errorf("the uplink was %+v and is %+v", up, got)
	}
}

// switchVFs: VFs that are made in switchdev mode have representors as well.
func switchVFs(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	f.set(t, h, nic.Switchdev)
	f.wantReps(t, h, 0)
	f.SetVFs(t, h, 2)
	must(t, f.Machine.Devlink.SetEswitch(t.Context(), h, nic.Switchdev)) // waits for them
	f.wantReps(t, h, 2)
}

func keepsMode(t *testing.T, f SwitchFixture) { lastVF(t, f, nic.Switchdev) }
func losesMode(t *testing.T, f SwitchFixture) { lastVF(t, f, nic.Legacy) }

func lastVF(t *testing.T, f SwitchFixture, want nic.Eswitch) {
	h := f.PFs[0]
	f.switched(t, h, 2)
	f.SetVFs(t, h, 0)
	if got := f.device(t, h).Eswitch; got != want {
		t.Errorf("mode %q without VFs: want %q", got, want)
	}
	f.wantReps(t, h, 0)
}

// switchUnknown: what is not there, and modes that are none.
func switchUnknown(t *testing.T, f SwitchFixture) {
	h, d := f.PFs[0], f.Machine.Devlink
	for _, no := range []nic.Handle{{Bus: h.Bus, Name: h.Name + "9"}, {Bus: "no_such_bus", Name: h.Name}} {
		refused(t, f.Fixture, fs.ErrNotExist, no.String(), func() error { return d.SetEswitch(t.Context(), no, nic.Switchdev) })
		refused(t, f.Fixture, fs.ErrNotExist, no.String(), func() error { return d.SetPortMAC(t.Context(), no, 1, address(1)) })
		_, err := d.Port(t.Context(), no, 1)
		checkError(t, err, fs.ErrNotExist, no.String())
	}
	for _, m := range []nic.Eswitch{"", "sideways", "switchdev_inactive"} {
		refused(t, f.Fixture, host.ErrInvalid, h.String(), func() error { return d.SetEswitch(t.Context(), h, m) })
	}
	refused(t, f.Fixture, fs.ErrNotExist, h.String(), func() error { return d.SetPortMAC(t.Context(), h, 0xfffe0000, address(1)) })
}

// switchHeld: the kernel's words come with a refusal, and nothing is half done.
func switchHeld(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	f.switched(t, h, 2)
	words, release := f.Hold(t, h)
	refused(t, f.Fixture, host.ErrBusy, h.String(), func() error {
		err := f.Machine.Devlink.SetEswitch(t.Context(), h, nic.Legacy)
		var e *host.Error
		if errors.As(err, &e) && (!strings.Contains(e.Ext, words) || !strings.Contains(err.Error(), words)) {
			t.Errorf("%v: want the words %q", err, words)
		}
		return err
	})
	f.wantReps(t, h, 2)
	release()
	f.set(t, h, nic.Legacy)
}

func switchCancelledBefore(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	rep := f.switched(t, h, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := f.Machine
	for _, do := range []func() error{
		func() error { return m.Devlink.SetEswitch(ctx, h, nic.Legacy) },
		func() error { return m.Devlink.SetEswitch(ctx, h, nic.Switchdev) },
		func() error { return m.Devlink.SetPortMAC(ctx, h, rep.Index, address(1)) },
		func() error { return m.Links.SetMTU(ctx, rep.Ifindex, 1400) },
		func() error { return m.Links.SetName(ctx, rep.Ifindex, "slc0") },
		func() error { _, err := m.Devlink.Port(ctx, h, rep.Index); return err },
	} {
		before := read(t, f.Fixture)
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: want errors.Is %v", err, context.Canceled)
		}
		sameSnapshot(t, before, read(t, f.Fixture))
	}
}

// switchCancelledWithin: whenever the context ends, the mode is one of two, and
// another call ends where that one was to end.
func switchCancelledWithin(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	f.SetVFs(t, h, 3)
	for range 5 {
		for _, m := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- f.Machine.Devlink.SetEswitch(ctx, h, m) }()
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%v: want nil or errors.Is %v", err, context.Canceled)
			}
			if got := f.device(t, h).Eswitch; got != nic.Switchdev && got != nic.Legacy {
				t.Errorf("mode %q", got)
			}
			f.set(t, h, m)
			f.wantReps(t, h, map[nic.Eswitch]int{nic.Switchdev: 3}[m])
		}
	}
}

// switchIdentity: both devices have a VF 0, and their interfaces names that would
// mislead; handle and index tell them apart.
func switchIdentity(t *testing.T, f SwitchFixture) {
	a, b := f.PFs[0], f.PFs[1]
	was := map[nic.Handle][]host.DevlinkPort{a: f.switched(t, a, 2), b: f.switched(t, b, 2)}
	for i, h := range f.PFs {
		for j, p := range was[h] {
			// As if it were the other's, and the other VF's.
			must(t, f.Machine.Links.SetName(t.Context(), p.Ifindex, "slc"+string(rune('1'-i))+"vf"+string(rune('1'-j))))
		}
	}
	for i, h := range f.PFs {
		for j, p := range f.wantReps(t, h, 2) {
			want := was[h][j]
			if want.Netdev = "slc" + string(rune('1'-i)) + "vf" + string(rune('1'-j)); p != want {
				t.Errorf("with other names there is another answer: %+v, want %+v", p, want)
			}
		}
	}
	if was[a][0].Ifindex == was[b][0].Ifindex {
		t.Errorf("%s and %s have one representor", a, b)
	}
	f.set(t, a, nic.Legacy)
	f.wantReps(t, b, 2) // what is done to one leaves the other alone
}

// switchConsistent: while one device changes, lists come without an error, without
// doubles, and with all of the other device.
func switchConsistent(t *testing.T, f SwitchFixture) {
	a, b := f.PFs[0], f.PFs[1]
	f.SetVFs(t, a, 3)
	want := f.switched(t, b, 2)
	var lists atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil {
			f.consistent(t, b, want)
			lists.Add(1)
		}
	})
	for lists.Load() < 20 && !t.Failed() {
		f.set(t, a, nic.Switchdev)
		f.set(t, a, nic.Legacy)
	}
	cancel()
	reader.Wait()
}

func (f SwitchFixture) consistent(t *testing.T, other nic.Handle, want []host.DevlinkPort) {
	ports, err := f.Machine.Devlink.Ports(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	type id struct {
		h nic.Handle
		n uint32
	}
	seen := map[id]bool{}
	var of []host.DevlinkPort
	for _, p := range ports {
		if seen[id{p.Handle, p.Index}] {
			t.Errorf("%s/%d is there twice", p.Handle, p.Index)
		}
		seen[id{p.Handle, p.Index}] = true
		if p.Handle == other && p.Flavour == host.FlavourPCIVF {
			of = append(of, p)
		}
	}
	slices.SortFunc(of, func(a, b host.DevlinkPort) int { return a.VF - b.VF })
	if d := cmp.Diff(want, of); d != "" {
		t.Errorf("ports of %s, which nobody changes (-want +got):\n%s", other, d)
	}
	if _, err := f.Machine.Links.Links(t.Context()); err != nil {
		t.Error(err)
	}
}

// repLink: a representor is an interface as others are.
func repLink(t *testing.T, f SwitchFixture) {
	for _, do := range []func(*testing.T, Fixture, int){readLink, mtu, up, name, impossibleNames} {
		f.SetVFs(t, f.PFs[0], 0)
		do(t, f.Fixture, f.switched(t, f.PFs[0], 2)[1].Ifindex)
	}
}

func repMAC(t *testing.T, f SwitchFixture) {
	mac(t, f.Fixture, f.switched(t, f.PFs[0], 1)[0].Ifindex)
}

func repNoMAC(t *testing.T, f SwitchFixture) {
	i := f.switched(t, f.PFs[0], 1)[0].Ifindex
	refused(t, f.Fixture, host.ErrNotSupported, "", func() error { return f.Machine.Links.SetMAC(t.Context(), i, address(2)) })
}

func repPinned(t *testing.T, f SwitchFixture) {
	i := f.switched(t, f.PFs[0], 1)[0].Ifindex
	path := f.AddNetns(t)
	refused(t, f.Fixture, host.ErrNotSupported, "", func() error { return f.Machine.Links.Move(t.Context(), i, path) })
}

// repMoves: one that may leave keeps its port, which then has no interface of this
// namespace, and comes back to it.
func repMoves(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	was := f.switched(t, h, 2)[0]
	ns, in := inside(t, f.Fixture, was.Ifindex)
	if got := f.reps(t, h); len(got) != 2 || got[0].Index != was.Index || got[0].Ifindex != 0 || got[0].Netdev != "" {
		t.Errorf("while the interface is elsewhere: %+v", got)
	}
	must(t, ns.Move(t.Context(), in.Ifindex, ""))
	if got := f.wantReps(t, h, 2)[0]; got.Netdev != was.Netdev || got.Index != was.Index {
		t.Errorf("come back as %+v, was %+v", got, was)
	}
}

// ownUplink: a device's port of flavour physical is its uplink, in both modes.
func ownUplink(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	for _, m := range []nic.Eswitch{nic.Legacy, nic.Switchdev} {
		f.set(t, h, m)
		p, up := f.ports(t, h, host.FlavourPhysical), f.uplink(t, h)
		if len(p) != 1 || p[0].Ifindex != up.Ifindex || p[0].Netdev != up.Name {
			t.Errorf("ports %+v: want one of %+v", p, up)
		}
	}
}

// othersUplink: it is found by its parent, which is the device.
func othersUplink(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	if p := f.ports(t, h, host.FlavourPhysical); len(p) > 0 {
		t.Errorf("ports %+v, which the fixture denies", p)
	}
	if up := f.uplink(t, h); up.Parent != h.Name {
		t.Errorf("uplink %+v: want parent %s", up, h.Name)
	}
}

// switchVFMAC: legacy mode's way to an address of a VF.
func switchVFMAC(t *testing.T, f SwitchFixture) {
	f.SetVFs(t, f.PFs[0], 2)
	i := f.uplink(t, f.PFs[0]).Ifindex
	l := f.Machine.Links
	set := func() { must(t, l.SetVFMAC(t.Context(), i, 1, address(1))) }
	set()
	all, err := l.Links(t.Context())
	must(t, err)
	at := slices.IndexFunc(all, func(o host.Link) bool { return o.Ifindex == i })
	if got := all[at].VFMACs; got[1] != address(1) || !got[0].IsZero() {
		t.Errorf("addresses of VFs %v: want none and %s", got, address(1))
	}
	untouched(t, f.Fixture, set)
	refused(t, f.Fixture, fs.ErrNotExist, "", func() error { return l.SetVFMAC(t.Context(), i, 7, address(1)) })
}

func switchPortMAC(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	rep := f.switched(t, h, 2)[1]
	set := func() { must(t, f.Machine.Devlink.SetPortMAC(t.Context(), h, rep.Index, address(1))) }
	set()
	if got := f.wantReps(t, h, 2); got[1].MAC != address(1) || !got[1].HasMAC || !got[0].MAC.IsZero() {
		t.Errorf("ports %+v: want %s of the second alone", got, address(1))
	}
	untouched(t, f.Fixture, set)
}

func switchNoPortMAC(t *testing.T, f SwitchFixture) {
	h := f.PFs[0]
	rep := f.switched(t, h, 2)[1]
	if rep.HasMAC {
		t.Errorf("%+v offers hw_addr, which the fixture denies", rep)
	}
	refused(t, f.Fixture, host.ErrNotSupported, h.String(), func() error {
		err := f.Machine.Devlink.SetPortMAC(t.Context(), h, rep.Index, address(1))
		var e *host.Error
		if errors.As(err, &e) && e.Ext == "" {
			t.Errorf("%v: the kernel's words are missing", err)
		}
		return err
	})
}

// switchWatch: a change of mode is told, whatever the bus.
func switchWatch(t *testing.T, f SwitchFixture) {
	f.SetVFs(t, f.PFs[0], 1)
	c, err := f.Machine.Watch.Changes(t.Context())
	must(t, err)
	for _, m := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
		quiet(c)
		f.set(t, f.PFs[0], m)
		changed(t, "mode "+string(m), c)
	}
}

func switchUnwatched(t *testing.T, f SwitchFixture) {
	if f.Machine.Watch != nil {
		t.Error("the machine can be watched, which the fixture denies")
	}
}
