package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// plain is a node without settings: a card of two ports in mode, with so many VFs
// bound on each.
func plain(driver string, mode nic.Eswitch, vfs int) *node {
	n := &node{fixed: map[nic.VFID]bool{}, asleep: map[nic.VFID]nic.Settings{}, ownMTU: map[nic.Handle]int{}}
	for i := range 2 {
		n.st.PFs = append(n.st.PFs, nic.PF{
			Handle: port(i), Serial: "card", Driver: driver, TotalVFs: 8, Autoprobe: true, Eswitch: mode,
			Uplink: nic.Netdev{Ifindex: n.draw(), MTU: 1500, Up: true},
		})
	}
	for i := range n.st.PFs {
		if err := n.setVFs(&n.st.PFs[i], vfs); err != nil {
			panic(err) // of a count that there is
		}
	}
	n.reconsiderLAG(false)
	return n
}

func wholeCard(p nic.PFSpec, bonds ...nic.BondSpec) nic.Spec {
	out := nic.Spec{Bonds: bonds}
	for i := range 2 {
		p.Handle = port(i)
		out.PFs = append(out.PFs, p)
	}
	return out
}

// VFs that were just made may be bound late, by a probe that was under way: the
// mode changes when none is bound, whenever that is. The node's rules answer with
// an error to a change over a bound VF, as the case's device does.
func TestB09FlipWithoutBoundVFs(t *testing.T) {
	for _, driver := range []string{"mlx5_core", "ice", "nfp"} {
		for late := range 12 {
			m, runner := newSeam(t, plain(driver, nic.Legacy, 4))
			m.fail = func(write int, s plan.Step, after bool) error {
				id, _ := s.VF()
				for p := range m.n.st.PFs {
					pf := &m.n.st.PFs[p]
					if after && write == late && len(pf.VFs) > 0 && pf.VFs[0].Driver == "" && id != (nic.VFID{PF: pf.Handle}) {
						m.n.bind(pf, &pf.VFs[0], nic.DriverKernel)
					}
				}
				return nil
			}
			spec := wholeCard(nic.PFSpec{Eswitch: nic.Switchdev})
			if res, err := runner.Run(t.Context(), spec); err != nil {
				t.Errorf("%s, bound late after write %d: %+v, %v", driver, late, res, err)
			}
			if bad := unmet(spec, m.observe()); len(bad) > 0 {
				t.Errorf("%s: %q", driver, bad)
			}
		}
	}
}

// VFs that are yet to be made come after the mode where the driver takes it without
// them, and where it does not they are made without drivers: either way the mode
// never changes under a bound VF.
func TestB09ModeAndNewVFs(t *testing.T) {
	for driver, modeFirst := range map[string]bool{"mlx5_core": true, "ice": true, "nfp": false} {
		m, runner := newSeam(t, plain(driver, nic.Legacy, 0))
		if _, err := runner.Run(t.Context(), wholeCard(nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(4)})); err != nil {
			t.Fatalf("%s: %v", driver, err)
		}
		for i := range 2 {
			at := func(op plan.Op) int {
				return slices.IndexFunc(m.wrote, func(s plan.Step) bool { return s.Op() == op && strings.Contains(s.String(), port(i).String()) })
			}
			mode, vfs, unbind, bind := at(plan.OpSetEswitch), at(plan.OpSetVFs), at(plan.OpUnbind), at(plan.OpBind)
			if mode < 0 || vfs < 0 || mode < vfs != modeFirst || unbind >= 0 || bind >= 0 && bind < mode {
				t.Errorf("%s, port %d: the mode first is %v, want %v, and no VF bound before or unbound:\n%s", driver, i, mode < vfs, modeFirst, list(m.wrote))
			}
		}
	}
}

// A card that refuses all the same: the port goes back, and what cannot be put back
// is said by name.
func TestB09RefusedByTheCard(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		b := newBench(t, sim.Config{Cards: []sim.Card{{Profile: "mlx5", Ports: 1, NumVFs: 4}}})
		before := b.observe()
		b.Inject(sim.Fault{Verb: sim.SetEswitch, Errno: syscall.EINVAL, Ext: "Failed setting eswitch to offloads"})
		vf := before.PFs[0].VFs[2]
		if stuck {
			b.Inject(sim.Fault{Verb: sim.Bind, Object: vf.Address, Times: -1, Errno: syscall.ETIMEDOUT})
		}
		res, err := b.R.Run(t.Context(), nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), Eswitch: nic.Switchdev}}})
		says := []string{port(0).String(), "invalid argument", "Failed setting eswitch to offloads"}
		bound := 4
		if stuck {
			says, bound = append(says, fmt.Sprintf("%s vf 2", port(0)), "connection timed out"), 3
		}
		for _, w := range says {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("stuck %v: %v; want %q in it", stuck, err, w)
			}
		}
		if want := map[bool]Outcome{false: RolledBack, true: Failed}[stuck]; res.Outcome != want {
			t.Errorf("stuck %v: %s, want %s", stuck, res.Outcome, want)
		}
		for _, v := range b.observe().PFs[0].VFs {
			if v.Driver != "" {
				bound--
			}
		}
		if bound != 0 {
			t.Errorf("stuck %v: %d VFs fewer are bound than could be", stuck, bound)
		}
	}
}

// Without VFs there is nothing to wait for.
func TestB09FlipWithNoVFs(t *testing.T) {
	m, runner := newSeam(t, plain("mlx5_core", nic.Legacy, 0))
	if _, err := runner.Run(t.Context(), wholeCard(nic.PFSpec{Eswitch: nic.Switchdev})); err != nil {
		t.Fatal(err)
	}
	if got := list(m.wrote); strings.Count(got, "\n") != 2 {
		t.Errorf("steps\n%s, want one a port", got)
	}
}

// The kernel changes no count to another, and nothing is written where the count
// is right already.
func TestB11CountsThroughZero(t *testing.T) {
	for _, driver := range []string{"mlx5_core", "ice", "igb", "nfp"} {
		for from := range 5 {
			for to := range 5 {
				mode := nic.Legacy
				if driver == "igb" {
					mode = ""
				}
				m, runner := newSeam(t, plain(driver, mode, from))
				if _, err := runner.Run(t.Context(), wholeCard(nic.PFSpec{VFCount: &to})); err != nil {
					t.Fatalf("%s from %d to %d: %v", driver, from, to, err)
				}
				counts := slices.DeleteFunc(m.wrote, func(s plan.Step) bool { return s.Op() != plan.OpSetVFs })
				want := 0
				if from != to {
					want = 2 * (min(from, 1) + min(to, 1))
				}
				if len(counts) != want {
					t.Errorf("%s from %d to %d:\n%swant %d changes of the count", driver, from, to, list(counts), want)
				}
			}
		}
	}
}

// A count goes through 0 only when nobody has a VF.
func TestB11NotThroughAVFInUse(t *testing.T) {
	n := plain("mlx5_core", nic.Legacy, 4)
	n.st.PFs[0].VFs[3].Owner = "default/web"
	m, runner := newSeam(t, n)
	_, err := runner.Run(t.Context(), wholeCard(nic.PFSpec{VFCount: ptr(5)}))
	if err == nil || !strings.Contains(err.Error(), "held by default/web") || len(m.wrote) > 0 {
		t.Errorf("%v after %d writes; want refused with the name of who has the VF", err, len(m.wrote))
	}
}

// Each of the kernel's answers leads somewhere else.
func TestB11AnswersOfTheKernel(t *testing.T) {
	seen := map[string]bool{}
	for errno, want := range map[syscall.Errno]struct {
		is   error
		says string
	}{
		syscall.EBUSY:  {host.ErrBusy, "want them removed (0)"},
		syscall.ENOSPC: {host.ErrExhausted, "MSI-X"},
		syscall.ENOMEM: {host.ErrExhausted, "pci=realloc"},
	} {
		b := newBench(t, dualPort())
		b.Inject(sim.Fault{Verb: sim.SetVFs, Errno: errno})
		_, err := b.R.Run(t.Context(), offload())
		if !errors.Is(err, want.is) || !errors.Is(err, errno) || !strings.Contains(err.Error(), want.says) || seen[err.Error()] {
			t.Errorf("%v: %v; want %q", errno, err, want.says)
		}
		seen[err.Error()] = true
	}
}

// Whenever after boot the bond comes, VFs are bound when hardware has taken it, and
// not before.
func TestB15VFsAfterTheBond(t *testing.T) {
	bond := nic.BondSpec{Name: "bond0", Mode: nic.ActiveBackup, Members: []nic.Handle{port(0), port(1)}, Adopt: true}
	spec := wholeCard(nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(2)}, bond)
	for _, from := range []struct {
		mode nic.Eswitch
		vfs  int
	}{{nic.Legacy, 0}, {nic.Switchdev, 2}} { // a boot; VFs that were bound before
		for comes := -1; comes < 16; comes++ {
			for _, prompt := range []bool{false, true} {
				n := plain("mlx5_core", from.mode, from.vfs)
				n.prompt = prompt
				n.strangers = []nic.Bond{{Netdev: nic.Netdev{Name: "bond0", MTU: 1500}, Mode: nic.ActiveBackup, Members: bond.Members}}
				m, runner := newSeam(t, n)
				arrive := func() {
					for _, h := range bond.Members {
						if m.n.bondOf(h) == nil {
							if err := m.n.stranger("bond0", h); err != nil {
								t.Error(err)
							}
						}
					}
				}
				if comes < 0 {
					arrive()
				}
				m.fail = func(write int, s plan.Step, after bool) error {
					switch {
					case after && write == comes:
						arrive()
					case !after:
						return lawful(s, spec, m.n.st)
					}
					return nil
				}
				if res, err := runner.Run(t.Context(), spec); err != nil {
					t.Errorf("from %v: the bond comes after write %d: %+v, %v\n%s", from, comes, res, err, list(m.wrote))
				}
				after := m.observe()
				for i, pf := range after.PFs {
					if pf.LAG != nic.LAGActive || nic.DriverOf(pf.VFs[0].Driver) != nic.DriverKernel || nic.DriverOf(pf.VFs[1].Driver) != nic.DriverKernel {
						t.Errorf("from %v: the bond comes after write %d: port %d has LAG %s and VFs %q and %q", from, comes, i, pf.LAG, pf.VFs[0].Driver, pf.VFs[1].Driver)
					}
				}
			}
		}
	}
}

// The order that the case asks for, step by step.
func TestB15Order(t *testing.T) {
	bond := nic.BondSpec{Name: "bond0", Mode: nic.IEEE8023AD, Members: []nic.Handle{port(0), port(1)}}
	m, runner := newSeam(t, plain("mlx5_core", nic.Legacy, 0))
	if _, err := runner.Run(t.Context(), wholeCard(nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(1)}, bond)); err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, op := range []plan.Op{plan.OpSetEswitch, plan.OpEnslave, plan.OpAwaitLAG, plan.OpBind} {
		first := slices.IndexFunc(m.wrote, func(s plan.Step) bool { return s.Op() == op })
		if first <= last {
			t.Errorf("%s at %d, the kind before it ended at %d:\n%s", op, first, last, list(m.wrote))
		}
		for i, s := range m.wrote {
			if s.Op() == op {
				last = i
			}
		}
	}
}

// What hardware never aggregates is refused, with the ports by name, and nothing
// is touched.
func TestB19UnequalPortsRefused(t *testing.T) {
	bond := nic.BondSpec{Name: "bond0", Mode: nic.IEEE8023AD, Members: []nic.Handle{port(0), port(1)}}
	good := func() nic.Spec {
		return wholeCard(nic.PFSpec{Eswitch: nic.Switchdev, VFCount: ptr(2)}, bond)
	}
	for name, tt := range map[string]struct {
		change func(*nic.Spec, *node)
		says   []string
	}{
		"unequal modes": {func(s *nic.Spec, _ *node) { s.PFs[1].Eswitch = nic.Legacy }, []string{"switchdev mode", port(1).String() + " in legacy"}},
		"another card":  {func(_ *nic.Spec, n *node) { n.st.PFs[1].Serial = "other" }, []string{"different cards", port(0).String(), port(1).String()}},
		"VF counts":     {func(s *nic.Spec, _ *node) { s.PFs[1].VFCount = ptr(3) }, []string{"2 VFs", "3"}},
		"both legacy": {func(s *nic.Spec, _ *node) { s.PFs[0].Eswitch, s.PFs[1].Eswitch = nic.Legacy, nic.Legacy },
			[]string{"eswitch mode switchdev"}},
	} {
		n, spec := plain("mlx5_core", nic.Legacy, 0), good()
		tt.change(&spec, n)
		m, runner := newSeam(t, n)
		res, err := runner.Run(t.Context(), spec)
		if res.Outcome != Refused || len(m.wrote) > 0 {
			t.Errorf("%s: %+v after %d writes, want refused", name, res, len(m.wrote))
			continue
		}
		for _, w := range tt.says {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("%s: %v; want %q in it", name, err, w)
			}
		}
	}
}
