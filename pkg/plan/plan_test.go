package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

var update = flag.Bool("update", false, "write the golden files anew")

func handle(n int) nic.Handle { return nic.PCI(fmt.Sprintf("0000:03:00.%d", n)) }

func ptr[T any](v T) *T { return &v }

func mac(last byte) nic.MAC { return nic.MAC{2, 0, 0, 0, 0, last} }

// pf is a PF of driver in mode with n VFs, all of which have their kernel driver.
func pf(h nic.Handle, driver string, mode nic.Eswitch, n int) nic.PF {
	p := nic.PF{
		Handle: h, Driver: driver, Eswitch: mode, TotalVFs: 128, Autoprobe: true,
		Uplink: nic.Netdev{Name: "p0", Ifindex: 2, MAC: mac(0xf0), MTU: 1500, Up: true},
	}
	for i := range n {
		v := nic.VF{
			Index: i, Address: fmt.Sprintf("0000:03:01.%d", i), Driver: cmp.Or(profileOf(p).vfDriver, driver),
			Netdev: nic.Netdev{Name: fmt.Sprintf("v%d", i), Ifindex: 10 + i, MAC: mac(0x80 + byte(i)), MTU: 1500},
		}
		if mode == nic.Switchdev {
			v.Rep.Netdev = nic.Netdev{Name: fmt.Sprintf("r%d", i), Ifindex: 50 + i, MTU: 1500}
		}
		p.VFs = append(p.VFs, v)
	}
	return p
}

func one(p nic.PF) nic.State { return nic.State{PFs: []nic.PF{p}} }

func spec(p nic.PFSpec) nic.Spec {
	p.Handle = handle(0)
	return nic.Spec{PFs: []nic.PFSpec{p}}
}

// journeys are the changes that nodes go through, by name of their golden file.
func journeys() map[string]journey {
	out := map[string]journey{}
	maps.Copy(out, lagJourneys())
	maps.Copy(out, settingJourneys())
	to := func(mode nic.Eswitch, n int, vfs ...nic.VFSpec) nic.Spec {
		return spec(nic.PFSpec{Eswitch: mode, VFCount: &n, VFs: vfs})
	}
	tuned := nic.VFSpec{MAC: ptr(mac(1)), MTU: 9000, RepMTU: 9000}
	vfio := nic.VFSpec{Driver: nic.DriverVFIO}
	for _, driver := range []string{"mlx5_core", "ice", "nfp"} {
		fresh := one(pf(handle(0), driver, nic.Legacy, 0))
		legacy := one(pf(handle(0), driver, nic.Legacy, 2))
		offloaded := one(pf(handle(0), driver, nic.Switchdev, 2))
		out[driver+"-to-switchdev"] = journey{fresh, to(nic.Switchdev, 2, tuned, vfio)}
		out[driver+"-legacy-vfs-to-switchdev"] = journey{legacy, spec(nic.PFSpec{Eswitch: nic.Switchdev})}
		out[driver+"-back-to-legacy"] = journey{offloaded, to(nic.Legacy, 0)}
		out[driver+"-back-to-legacy-vfs"] = journey{offloaded, spec(nic.PFSpec{Eswitch: nic.Legacy})}
		out[driver+"-more-vfs"] = journey{offloaded, to("", 4, nic.VFSpec{MTU: 9000})}
		out[driver+"-switchdev-without-vfs"] = journey{fresh, to(nic.Switchdev, 0)}
	}
	out["igb-vfs"] = journey{one(pf(handle(0), "igb", "", 0)), to("", 3)}
	out["igb-vfs-with-macs"] = journey{one(pf(handle(0), "igb", "", 0)),
		to("", 2, nic.VFSpec{MAC: ptr(mac(1))}, nic.VFSpec{MAC: ptr(mac(2)), Driver: nic.DriverNone})}
	out["igb-mac-of-a-bound-vf"] = journey{one(pf(handle(0), "igb", "", 2)), spec(nic.PFSpec{VFs: []nic.VFSpec{{MAC: ptr(mac(1))}}})}
	out["vf-to-vfio"] = journey{one(pf(handle(0), "mlx5_core", nic.Switchdev, 2)),
		spec(nic.PFSpec{VFs: []nic.VFSpec{{}, vfio}})}
	out["mtu-only"] = journey{one(pf(handle(0), "mlx5_core", nic.Switchdev, 2)),
		spec(nic.PFSpec{VFs: []nic.VFSpec{{}, {MTU: 9000, RepMTU: 9000}}})}
	off := pf(handle(0), "mlx5_core", nic.Legacy, 0)
	off.Autoprobe = false
	out["autoprobe-off-stays-off"] = journey{one(off), to(nic.Switchdev, 2, nic.VFSpec{Driver: nic.DriverKernel})}
	out["nothing-to-do"] = journey{one(pf(handle(0), "mlx5_core", nic.Switchdev, 2)), to(nic.Switchdev, 2)}
	two := nic.State{PFs: []nic.PF{pf(handle(0), "mlx5_core", nic.Legacy, 0), pf(handle(1), "mlx5_core", nic.Legacy, 0)}}
	out["both-ports"] = journey{two, nic.Spec{PFs: []nic.PFSpec{
		{Handle: handle(0), Eswitch: nic.Switchdev, VFCount: ptr(1)}, {Handle: handle(1), Eswitch: nic.Switchdev, VFCount: ptr(1)}}}}
	return out
}

func TestJourneys(t *testing.T) {
	for name, j := range journeys() {
		t.Run(name, func(t *testing.T) {
			if problems := Check(j.spec, j.state); len(problems) > 0 {
				t.Fatalf("refused: %v", problems)
			}
			p, err := Unfold(Complete(j.spec, j.state), j.state)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, p.String())
			for _, s := range p.Steps {
				var back Step
				b, err := json.Marshal(s)
				if err := errors.Join(err, json.Unmarshal(b, &back)); err != nil || back != s {
					t.Errorf("%s is read back as %#v, want %#v (%v)", b, back, s, err)
				}
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Every golden file belongs to a journey.
func TestNoStrayGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	known := journeys()
	for _, f := range files {
		if _, ok := known[strings.TrimSuffix(filepath.Base(f), ".golden")]; !ok {
			t.Errorf("%s belongs to no test", f)
		}
	}
}

func TestNextLeavesUnknownPFs(t *testing.T) {
	s, more := Next(spec(nic.PFSpec{VFCount: ptr(1)}), nic.State{})
	if more {
		t.Errorf("step %q for a PF that is not there", s)
	}
	if _, err := Unfold(spec(nic.PFSpec{VFCount: ptr(1)}), nic.State{}); err == nil {
		t.Error("unfolding for a PF that is not there is no error")
	}
}

// A pod's VF is left alone even when its fields are named.
func TestAwayNetdevIsLeftAlone(t *testing.T) {
	p := pf(handle(0), "mlx5_core", nic.Switchdev, 1)
	p.VFs[0].Netdev, p.VFs[0].Away = nic.Netdev{}, true
	want := spec(nic.PFSpec{VFs: []nic.VFSpec{{MTU: 9000, LinkMAC: ptr(mac(9)), Driver: nic.DriverKernel}}})
	if s, more := Next(want, one(p)); more {
		t.Errorf("step %q for a netdev in another namespace", s)
	}
}

// On igb the row of a bound VF shows what the VF chose itself: to clear it would
// go round in a circle.
func TestRowThatFollowsTheVF(t *testing.T) {
	for driver, want := range map[string]string{
		"igb":       "",
		"mlx5_core": "unbind pci/0000:03:00.0 vf 0",
	} {
		p := pf(handle(0), driver, "", 1)
		p.VFs[0].MAC = p.VFs[0].Netdev.MAC
		s, more := Next(spec(nic.PFSpec{VFs: []nic.VFSpec{{MAC: &nic.MAC{}}}}), one(p))
		got := ""
		if more {
			got = s.String()
		}
		if got != want {
			t.Errorf("%s: step %q, want %q", driver, got, want)
		}
	}
}

func TestComplete(t *testing.T) {
	on := true
	two := pf(handle(0), "mlx5_core", nic.Switchdev, 2)
	two.VFs[1].MAC = mac(7)
	tests := map[string]struct {
		state nic.PF
		spec  nic.PFSpec
		want  nic.PFSpec
	}{
		"nothing is added where nothing is disturbed": {
			state: two,
			spec:  nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(2), VFs: []nic.VFSpec{{MTU: 9000}}},
			want:  nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(2), VFs: []nic.VFSpec{{MTU: 9000}}},
		},
		"one VF that gets another address": {
			state: two,
			spec:  nic.PFSpec{VFs: []nic.VFSpec{{}, {MAC: ptr(mac(5))}}},
			want:  nic.PFSpec{VFs: []nic.VFSpec{{}, {Driver: nic.DriverKernel, MAC: ptr(mac(5)), MTU: 1500}}},
		},
		"one VF that gets another driver": {
			state: two,
			spec:  nic.PFSpec{VFs: []nic.VFSpec{{}, {Driver: nic.DriverVFIO}}},
			want:  nic.PFSpec{VFs: []nic.VFSpec{{}, {Driver: nic.DriverVFIO, MAC: ptr(mac(7))}}},
		},
		"all VFs of a mode change": {
			state: two,
			spec:  nic.PFSpec{Eswitch: nic.Legacy},
			want: nic.PFSpec{Eswitch: nic.Legacy, VFs: []nic.VFSpec{
				{Driver: nic.DriverKernel, LinkMAC: ptr(mac(0x80)), MTU: 1500},
				{Driver: nic.DriverKernel, MAC: ptr(mac(7)), LinkMAC: ptr(mac(0x81)), MTU: 1500},
			}},
		},
		"another count makes new VFs": {
			state: two,
			spec:  nic.PFSpec{VFCount: ptr(3)},
			want:  nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(3), Autoprobe: &on},
		},
		"new VFs that cannot be bound at once get the kernel's driver after": {
			state: two,
			spec:  nic.PFSpec{VFCount: ptr(3), VFs: []nic.VFSpec{{Driver: nic.DriverVFIO}}},
			want: nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(3), Autoprobe: &on, VFs: []nic.VFSpec{
				{Driver: nic.DriverVFIO}, {Driver: nic.DriverKernel}, {Driver: nic.DriverKernel},
			}},
		},
		"ice makes VFs anew for the mode": {
			state: pf(handle(0), "ice", nic.Legacy, 1),
			spec:  nic.PFSpec{Eswitch: nic.Switchdev},
			want: nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(1), Autoprobe: &on, VFs: []nic.VFSpec{
				{Driver: nic.DriverKernel, LinkMAC: ptr(mac(0x80)), MTU: 1500},
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			state := one(tt.state)
			tt.want.Handle = handle(0)
			given, before := spec(tt.spec), state.Clone()
			got := Complete(given, state)
			if d := gocmp.Diff(nic.Spec{PFs: []nic.PFSpec{tt.want}}, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if d := gocmp.Diff(got, Complete(got, state)); d != "" {
				t.Errorf("completing twice: -once +twice:\n%s", d)
			}
			if d := gocmp.Diff(spec(tt.spec), given); d != "" {
				t.Errorf("the spec given was changed:\n%s", d)
			}
			if d := gocmp.Diff(before, state); d != "" {
				t.Errorf("the state given was changed:\n%s", d)
			}
		})
	}
}

func TestBackAndSpare(t *testing.T) {
	p := pf(handle(0), "ice", nic.Legacy, 2)
	p.VFs[0].MAC = mac(7) // set after the VF had chosen its own
	back := Back(one(p), nic.Freeze(one(p)))
	if m := back.PFs[0].VFs[0].LinkMAC; m != nil {
		t.Errorf("netdev MAC %s beside another administrative one, which ice refuses", m)
	}
	if back.PFs[0].VFs[1].LinkMAC == nil {
		t.Error("the netdev MAC that a VF chose itself is not kept")
	}
	p.VFs[1].Owner = "default/a"
	spared := Spare(back, one(p))
	if d := gocmp.Diff(nic.VFSpec{}, spared.PFs[0].VFs[1]); d != "" {
		t.Errorf("a VF in use is not spared:\n%s", d)
	}
	if back.PFs[0].VFs[1].Driver == "" {
		t.Error("Spare changed what it was given")
	}
}

// The kernel makes all VFs or none, so one that has gone takes the others with it: not
// for who wants nothing of it, and not while one is in use.
func TestGoneVF(t *testing.T) {
	p := pf(handle(0), "mlx5_core", nic.Switchdev, 3)
	p.VFs[1] = nic.VF{Index: 1, Gone: true}
	count := spec(nic.PFSpec{VFCount: ptr(3)})
	plan := func(s nic.Spec, p nic.PF) []string {
		t.Helper()
		out, err := Unfold(Complete(s, one(p)), one(p))
		if err != nil {
			t.Fatal(err)
		}
		var steps []string
		for _, s := range out.Steps {
			steps = append(steps, s.String())
		}
		return steps
	}
	got := plan(count, p)
	if len(got) < 2 || got[0] != "remove all VFs of pci/0000:03:00.0" || !slices.Contains(got, "make 3 VFs of pci/0000:03:00.0") {
		t.Errorf("the count is wanted: %q, want all made anew", got)
	}
	for name, s := range map[string]nic.PFSpec{"its neighbour": {VFs: []nic.VFSpec{{MTU: 1500}}}, "as it is": Back(one(p), count).PFs[0]} {
		if got := plan(spec(s), p); len(got) > 0 {
			t.Errorf("%s is wanted: %q, want nothing", name, got)
		}
	}
	p.VFs[2].Owner = "default/a"
	if got := Check(count, one(p)); len(got) != 1 || got[0].Object != "pci/0000:03:00.0 vf 2" {
		t.Errorf("a neighbour is in use: %q, want refused", got)
	}
	if got := plan(Spare(count, one(p)), p); len(got) > 0 {
		t.Errorf("a neighbour is spared: %q, want nothing", got)
	}
}

// Who goes back leaves an SF in use as it is, also one that there was not before,
// but for its representor.
func TestSpareSFs(t *testing.T) {
	p := pf(handle(0), "mlx5_core", nic.Switchdev, 0)
	p.SFs = []nic.SF{{Num: 3, Active: true, MAC: mac(3), Rep: nic.Netdev{Ifindex: 7, MTU: 9000}}}
	back := Back(one(p), nic.Freeze(one(p)))
	p.SFs[0].Owner, p.SFs[0].MAC, p.SFs[0].Rep.MTU = "default/a", mac(4), 1500
	p.SFs = append(p.SFs, nic.SF{Num: 5, Active: true, Owner: "default/b"}, nic.SF{Num: 6})
	want := []string{"set representor MTU of pci/0000:03:00.0 sf 3 to 9000", "remove pci/0000:03:00.0 sf 6"}
	var got []string
	for state := one(p); ; {
		s, more := Next(Spare(back, state), state)
		if !more {
			break
		}
		got, state = append(got, s.String()), s.Predict(state)
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestImpact(t *testing.T) {
	bound := pf(handle(0), "mlx5_core", nic.Legacy, 2)
	bound.VFs[0].Netdev.Up = true
	used := pf(handle(0), "mlx5_core", nic.Legacy, 2)
	used.VFs[1].Owner = "default/a"
	sfs := pf(handle(0), "mlx5_core", nic.Switchdev, 0)
	sfs.SFs = []nic.SF{
		{Num: 3, Active: true, Owner: "default/a", Rep: nic.Netdev{Ifindex: 7, Up: true}},
		{Num: 4, Active: true, Netdev: nic.Netdev{Ifindex: 8}},
	}
	id := func(i int) nic.VFID { return nic.VFID{PF: handle(0), Index: i} }
	sf := func(i int) nic.SFID { return nic.SFID{PF: handle(0), Num: i} }
	tests := []struct {
		pf   nic.PF
		step Action
		want Impact
	}{
		{pf(handle(0), "mlx5_core", nic.Legacy, 0), SetVFs{handle(0), 0, 2}, None},
		{bound, SetVFs{handle(0), 2, 0}, LinkFlap},
		{used, SetVFs{handle(0), 2, 0}, Drain},
		{bound, SetEswitch{handle(0), nic.Legacy, nic.Switchdev}, LinkFlap},
		{used, SetEswitch{handle(0), nic.Legacy, nic.Switchdev}, Drain},
		{bound, SetAutoprobe{handle(0), false}, None},
		{used, Unbind{id(0), "mlx5_core"}, LinkFlap},
		{used, Unbind{id(1), "mlx5_core"}, Drain},
		{bound, SetVFMTU{id(0), 1500, 9000}, LinkFlap},
		{bound, SetVFMTU{id(1), 1500, 9000}, None},
		{used, SetVFMTU{id(1), 1500, 9000}, Drain},
		{used, SetRepMTU{id(1), 1500, 9000}, None},
		{used, SetVF{id(1), nic.Trust, "off", "on"}, Drain},
		{used, SetPF{handle(0), nic.RoCE, "on", "off"}, Drain},
		{bound, SetPF{handle(0), nic.RoCE, "on", "off"}, LinkFlap},
		{bound, SetPF{handle(0), nic.TCOffload, "on", "off"}, None},
		{sfs, SetEswitch{handle(0), nic.Switchdev, nic.Legacy}, Drain},
		{sfs, SetSFActive{sf(3), false}, Drain},
		{sfs, SetSFMAC{sf(3), mac(1), mac(2)}, Drain},
		{sfs, SetSFMTU{sf(3), 1500, 9000}, Drain},
		{sfs, SetSF{sf(3), nic.MaxRate, "0", "100"}, Drain},
		{sfs, DelSF{sf(3)}, Drain},
		{sfs, SetSFRepMTU{sf(3), 1500, 9000}, LinkFlap},
		{sfs, SetSFActive{sf(4), false}, LinkFlap},
		{sfs, AddSF{sf(5)}, None},
	}
	for _, tt := range tests {
		if got := (Step{tt.step}).Impact(one(tt.pf)); got != tt.want {
			t.Errorf("%s: impact %s, want %s", tt.step, got, tt.want)
		}
	}
	if got := (Plan{Impacts: []Impact{None, Drain, LinkFlap}}).Impact(); got != Drain {
		t.Errorf("impact of the plan is %s, want the highest, drain", got)
	}
}

func TestStepJSON(t *testing.T) {
	id := nic.VFID{PF: handle(1), Index: 3}
	tests := []struct {
		action Action
		want   string
	}{
		{SetVFs{handle(0), 0, 8}, `{"op":"set-vfs","object":"pci/0000:03:00.0","from":"0","to":"8"}`},
		{SetAutoprobe{handle(0), true}, `{"op":"set-autoprobe","object":"pci/0000:03:00.0","from":"off","to":"on"}`},
		{SetEswitch{handle(0), nic.Legacy, nic.Switchdev}, `{"op":"set-eswitch","object":"pci/0000:03:00.0","from":"legacy","to":"switchdev"}`},
		{Unbind{id, "mlx5_core"}, `{"op":"unbind","object":"pci/0000:03:00.1","vf":3,"from":"mlx5_core","to":"none"}`},
		{Bind{id, nic.DriverVFIO}, `{"op":"bind","object":"pci/0000:03:00.1","vf":3,"from":"none","to":"vfio-pci"}`},
		{SetVFMAC{id, nic.MAC{}, mac(1)}, `{"op":"set-vf-mac","object":"pci/0000:03:00.1","vf":3,"from":"00:00:00:00:00:00","to":"02:00:00:00:00:01"}`},
		{SetVFLinkMAC{id, nic.MAC{}, mac(1)}, `{"op":"set-vf-link-mac","object":"pci/0000:03:00.1","vf":3,"to":"02:00:00:00:00:01"}`},
		{SetVFMTU{id, 1500, 9000}, `{"op":"set-vf-mtu","object":"pci/0000:03:00.1","vf":3,"from":"1500","to":"9000"}`},
		{SetRepMTU{id, 1500, 9000}, `{"op":"set-rep-mtu","object":"pci/0000:03:00.1","vf":3,"from":"1500","to":"9000"}`},
	}
	for _, tt := range tests {
		got, err := json.Marshal(Step{tt.action})
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != tt.want {
			t.Errorf("JSON %s, want %s", got, tt.want)
		}
		var back Step
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if back != (Step{tt.action}) {
			t.Errorf("read back as %#v, want %#v", back, tt.action)
		}
	}
}

func TestPlanJSON(t *testing.T) {
	state := one(pf(handle(0), "mlx5_core", nic.Legacy, 0))
	p, err := Unfold(spec(nic.PFSpec{VFCount: ptr(2)}), state)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"impact":"none","steps":[{"op":"set-vfs","object":"pci/0000:03:00.0","from":"0","to":"2","text":"make 2 VFs of pci/0000:03:00.0","impact":"none"}]}`
	if string(got) != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	if got, _ := json.Marshal(Plan{}); string(got) != `{"impact":"none","steps":[]}` {
		t.Errorf("JSON of the empty plan is %s", got)
	}
}

func FuzzStepJSON(f *testing.F) {
	f.Add(`{"op":"set-vfs","object":"pci/0000:03:00.0","from":"0","to":"8"}`)
	f.Add(`{"op":"bind","object":"pci/0000:03:00.1","vf":3,"from":"none","to":"vfio-pci"}`)
	f.Add(`{"op":"set-vf-mac","object":"pci/0000:03:00.1","vf":3,"to":"02:00:00:00:00:01"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		var s Step
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", text, err)
		}
		var again Step
		if err := json.Unmarshal(b, &again); err != nil || again != s {
			t.Fatalf("%q was read as %#v, written as %s and read as %#v (%v)", text, s, b, again, err)
		}
	})
}

// big is a dual-port card with every VF tuned: the longest plan there is.
func big() (nic.Spec, nic.State) {
	var (
		state nic.State
		want  nic.Spec
	)
	for n := range 2 {
		state.PFs = append(state.PFs, pf(handle(n), "mlx5_core", nic.Legacy, 128))
		p := nic.PFSpec{Handle: handle(n), Eswitch: nic.Switchdev, VFCount: ptr(128)}
		for i := range 128 {
			p.VFs = append(p.VFs, nic.VFSpec{
				Driver: nic.DriverKernel, MAC: &nic.MAC{2, 0, 0, 1, byte(n), byte(i)},
				LinkMAC: &nic.MAC{2, 0, 0, 2, byte(n), byte(i)}, MTU: 9000, RepMTU: 9000,
			})
		}
		want.PFs = append(want.PFs, p)
	}
	return want, state
}

func BenchmarkUnfold(b *testing.B) {
	want, state := big()
	steps := 0
	for b.Loop() {
		p, err := Unfold(Complete(want, state), state)
		if err != nil {
			b.Fatal(err)
		}
		steps = len(p.Steps)
	}
	b.ReportMetric(float64(steps), "steps")
}

// BenchmarkNext is the dearest answer, that there is nothing left to do.
func BenchmarkNext(b *testing.B) { benchmarkNext(b, nil) }

// BenchmarkNextTuned is the same with settings of every VF.
func BenchmarkNextTuned(b *testing.B) {
	benchmarkNext(b, nic.Settings{nic.RoCE: "off", nic.MaxRate: "1000", nic.Channels: "8", nic.RxRing: "512"})
}

func benchmarkNext(b *testing.B, tuned nic.Settings) {
	want, state := big()
	for p := range want.PFs {
		for v := range want.PFs[p].VFs {
			want.PFs[p].VFs[v].Settings = tuned
		}
	}
	want = Complete(want, state)
	p, err := Unfold(want, state)
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range p.Steps {
		state = s.Predict(state)
	}
	for b.Loop() {
		if s, more := Next(want, state); more {
			b.Fatalf("still %s", s)
		}
	}
}
