package sim_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

func parse(t testing.TB, spec string) *sim.Sim {
	t.Helper()
	s, err := sim.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func observe(t testing.TB, s *sim.Sim) *nic.State {
	t.Helper()
	st, err := host.Observe(t.Context(), s.Machine())
	must(t, err)
	return &st
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const pf0 = "0000:03:00.0"

func TestFaultBefore(t *testing.T) {
	s := parse(t, "mlx5")
	s.Inject(sim.Fault{Verb: sim.SetEswitch, Errno: syscall.EBUSY, Ext: "mlx5_core: Can't change mode, E-Switch is busy"})
	must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, 2)) // is none of its business
	err := s.Machine().Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev)
	const want = "set eswitch mode switchdev of pci/0000:03:00.0: device or resource busy: mlx5_core: Can't change mode, E-Switch is busy"
	if !errors.Is(err, host.ErrBusy) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if m := observe(t, s).PFs[0].Eswitch; m != nic.Legacy {
		t.Errorf("mode %s in spite of it", m)
	}
	must(t, s.Machine().Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev)) // it is used up
	if n := s.Writes(); n != 3 {
		t.Errorf("%d writes: %v", n, s.Log())
	}
}

func TestFaultAfter(t *testing.T) {
	s := parse(t, "mlx5")
	s.Inject(sim.Fault{After: true})
	if err := s.Machine().PCI.SetVFs(t.Context(), pf0, 2); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v: want EIO", err)
	}
	if n := len(observe(t, s).PFs[0].VFs); n != 2 {
		t.Errorf("%d VFs: want the 2 that were made before it failed", n)
	}
}

func TestFaultChosen(t *testing.T) {
	on := func(verb sim.Verb) func(sim.Op) bool { return func(o sim.Op) bool { return o.Verb == verb } }
	for _, c := range []struct {
		name  string
		fault sim.Fault
		want  []int // the writes, counted from 1, that fail
	}{
		{"next", sim.Fault{}, []int{1}},
		{"by number", sim.Fault{Write: 3}, []int{3}},
		{"by object", sim.Fault{Object: pf1}, []int{2}},
		{"by verb and object", sim.Fault{Verb: sim.SetAutoprobe, Object: pf1, Skip: 1}, []int{4}},
		{"by function", sim.Fault{Match: on(sim.SetAutoprobe), Times: -1}, []int{1, 2, 3, 4, 5, 6}},
		{"skip two, fail three", sim.Fault{Skip: 2, Times: 3}, []int{3, 4, 5}},
		{"never", sim.Fault{Verb: sim.Move}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, "mlx5")
			s.Inject(c.fault)
			for range 3 {
				for _, pf := range []string{pf0, pf1} {
					on := observe(t, s).PF(nic.PCI(pf)).Autoprobe
					err := s.Machine().PCI.SetAutoprobe(t.Context(), pf, !on)
					if err != nil && !errors.Is(err, syscall.EIO) {
						t.Error(err)
					}
				}
			}
			var failed []int
			for _, o := range s.Log() {
				if o.Err != nil {
					failed = append(failed, o.N)
				}
			}
			if !slices.Equal(failed, c.want) {
				t.Errorf("writes %v failed: want %v\n%v", failed, c.want, s.Log())
			}
		})
	}
}

// TestCrash: the process ends before or after an effect; nothing answers until
// the next one starts, which finds the machine as it was left, as does one that
// loads it from a file.
func TestCrash(t *testing.T) {
	for _, after := range []bool{false, true} {
		s := parse(t, "mlx5")
		m := s.Machine()
		s.Inject(sim.Fault{Verb: sim.SetVFs, After: after, Crash: true})
		for range 2 {
			if err := m.PCI.SetVFs(t.Context(), pf0, 2); !errors.Is(err, sim.ErrCrashed) {
				t.Errorf("%v: want %v", err, sim.ErrCrashed)
			}
			if _, err := host.Observe(t.Context(), m); !errors.Is(err, sim.ErrCrashed) {
				t.Errorf("%v: want %v", err, sim.ErrCrashed)
			}
		}
		path := t.TempDir() + "/machine.json"
		must(t, s.Save(path))
		s.Restart()
		want := 0
		if after {
			want = 2
		}
		for _, next := range []*sim.Sim{s, parse(t, "@"+path), s.Clone()} {
			if n := len(observe(t, next).PFs[0].VFs); n != want {
				t.Errorf("after its effect %v: %d VFs are left, want %d", after, n, want)
			}
			must(t, next.Machine().PCI.SetVFs(t.Context(), pf0, 2))
		}
	}
}

// What a fault let pass and how often it struck goes with a saved machine, so that
// it strikes where it is to when each change is a process of its own.
func TestFaultOverProcesses(t *testing.T) {
	path := t.TempDir() + "/machine.json"
	s := parse(t, "mlx5+fail:skip=1,times=2")
	var failed []bool
	for i := range 5 {
		err := s.Machine().PCI.SetAutoprobe(t.Context(), pf0, !observe(t, s).PFs[0].Autoprobe)
		failed = append(failed, err != nil)
		must(t, s.Save(path))
		s = parse(t, "@"+path)
		if n := s.Writes(); n != i+1 {
			t.Errorf("%d writes after %d", n, i+1)
		}
	}
	if want := []bool{false, true, true, false, false}; !slices.Equal(failed, want) {
		t.Errorf("failed %v: want %v", failed, want)
	}
}

func TestHeal(t *testing.T) {
	s := parse(t, "mlx5")
	s.Inject(sim.Fault{Times: -1})
	if err := s.Machine().PCI.SetVFs(t.Context(), pf0, 2); err == nil {
		t.Error("no error")
	}
	s.Heal()
	must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, 2))
}

func TestLog(t *testing.T) {
	s := parse(t, "mlx5")
	m := s.Machine()
	must(t, s.AddNetns("/run/netns/a"))
	must(t, m.PCI.SetVFs(t.Context(), pf0, 1))
	must(t, m.PCI.SetVFs(t.Context(), pf0, 1)) // nothing to do
	v := observe(t, s).PFs[0].VFs[0]
	must(t, m.Links.Move(t.Context(), v.Netdev.Ifindex, "/run/netns/a"))
	ns, err := m.Netns.Open(t.Context(), "/run/netns/a")
	must(t, err)
	must(t, ns.SetUp(t.Context(), v.Netdev.Ifindex, true))
	must(t, ns.Close())
	if err := m.PCI.SetVFs(t.Context(), pf0, 3); err == nil {
		t.Error("no error")
	}
	want := []string{
		"1: set sriov_numvfs 1 of 0000:03:00.0",
		"2: move to netns /run/netns/a of enp3s0f0v0",
		"3: set state up of enp3s0f0v0 in /run/netns/a",
		"4: set sriov_numvfs 3 of 0000:03:00.0 (set sriov_numvfs 3 of 0000:03:00.0: device or resource busy)",
	}
	var got []string
	for _, o := range s.Log() {
		got = append(got, o.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
