package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// node is one PF of which somebody changes the number of VFs.
type node struct {
	vfs     int
	looks   int
	mends   int
	broken  bool // mending fails, and changes the node on its way back
	changes chan host.Change
	log     bytes.Buffer
}

func handle() nic.Handle { return nic.PCI("0000:03:00.0") }

func (n *node) observe(context.Context) (nic.State, error) {
	n.looks++
	pf := nic.PF{Handle: handle(), Driver: "mlx5_core", Eswitch: nic.Legacy, TotalVFs: 8, Autoprobe: true}
	for i := range n.vfs {
		pf.VFs = append(pf.VFs, nic.VF{Index: i, Driver: "mlx5_core"})
	}
	return nic.State{PFs: []nic.PF{pf}}, nil
}

func (n *node) guard(mend bool) *Guard {
	want := 4
	g := &Guard{
		Changes: n.changes, Observe: n.observe,
		Want: func(nic.State) (nic.Spec, error) {
			return nic.Spec{PFs: []nic.PFSpec{{Handle: handle(), VFCount: &want}, {Handle: nic.PCI("0000:99:00.0")}}}, nil
		},
		Log: slog.New(slog.NewTextHandler(&n.log, nil)),
	}
	if mend {
		g.Mend = func(context.Context, nic.Spec) error {
			n.mends++
			if n.broken {
				n.changes <- host.Change{What: "our own way back"}
				return errors.New("no")
			}
			n.vfs = want
			return nil
		}
	}
	return g
}

// run lets a guard run for d, and change happen in it after a moment.
func (n *node) run(t *testing.T, g *Guard, d time.Duration, change func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	go func() {
		time.Sleep(time.Second)
		change()
	}()
	g.Run(ctx)
	synctest.Wait()
}

func TestGuardMends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 4, changes: make(chan host.Change, 64)}
		seen := time.Duration(0)
		start := time.Now()
		g := n.guard(true)
		mend := g.Mend
		var told []int
		g.Drift = func(steps int, _ bool) { told = append(told, steps) }
		g.Mend = func(ctx context.Context, s nic.Spec) error {
			seen = time.Since(start) - time.Second
			return mend(ctx, s)
		}
		n.run(t, g, time.Minute, func() {
			n.vfs = 0
			n.changes <- host.Change{What: "device 0000:03:00.0"}
		})
		if n.vfs != 4 || n.mends != 1 {
			t.Errorf("%d VFs after %d mendings, want 4 after 1", n.vfs, n.mends)
		}
		if !slices.Equal(told, []int{1, 0}) {
			t.Errorf("told of %d steps: want 1, and 0 when it is mended", told)
		}
		if seen > time.Second {
			t.Errorf("seen after %s, want within a second", seen)
		}
		if !strings.Contains(n.log.String(), "make 4 VFs of pci/0000:03:00.0") || !strings.Contains(n.log.String(), "device 0000:03:00.0") {
			t.Errorf("the log does not say what was missing and what had changed:\n%s", &n.log)
		}
	})
}

func TestGuardReportsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 4, changes: make(chan host.Change, 64)}
		g, steps, news := n.guard(false), 0, 0
		g.Drift = func(now int, isNews bool) {
			if steps = now; isNews {
				news++
			}
		}
		n.run(t, g, time.Hour, func() {
			n.vfs = 0
			n.changes <- host.Change{What: "x"}
		})
		if steps != 1 || news != 1 {
			t.Errorf("told of %d steps, %d times as news: want 1, once", steps, news)
		}
		if n.vfs != 0 || strings.Count(n.log.String(), "not as wanted") != 1 {
			t.Errorf("%d VFs, and the log says\n%s\nwant no VFs and one line", n.vfs, &n.log)
		}
	})
}

// Without changes the node is left alone.
func TestGuardRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 4, changes: make(chan host.Change, 64)}
		n.run(t, n.guard(true), 24*time.Hour, func() {})
		if max := int(24*time.Hour/Every) + 1; n.looks > max || n.mends != 0 {
			t.Errorf("%d looks and %d mendings in a day, want at most %d and none", n.looks, n.mends, max)
		}
	})
}

// Changes that do not end are looked at while they go on, and not each by itself.
func TestGuardGathersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 4, changes: make(chan host.Change)}
		n.run(t, n.guard(true), 12*time.Second, func() {
			for range 1000 {
				n.changes <- host.Change{What: "netdev eth0"}
				time.Sleep(10 * time.Millisecond)
			}
		})
		if n.looks < 15 || n.looks > 25 {
			t.Errorf("%d looks at ten seconds of changes, want about 20", n.looks)
		}
	})
}

// What cannot be mended is tried less and less often, although each try changes
// the node.
func TestGuardBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 0, broken: true, changes: make(chan host.Change, 64)}
		n.run(t, n.guard(true), time.Hour, func() { n.changes <- host.Change{What: "x"} })
		if n.mends < 5 || n.mends > 25 {
			t.Errorf("%d mendings in an hour, want 5 to 25", n.mends)
		}
	})
}

// While somebody else changes the node it is left alone, and looked at when that
// has ended.
func TestGuardWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 4, changes: make(chan host.Change, 64)}
		g := n.guard(true)
		at := time.Now()
		g.Busy = func() bool { return time.Since(at) < 10*time.Second }
		n.run(t, g, 5*time.Second, func() {
			n.vfs = 2
			n.changes <- host.Change{What: "x"}
		})
		if n.mends != 0 || strings.Contains(n.log.String(), "not as wanted") {
			t.Errorf("%d mendings while another is at work\n%s", n.mends, &n.log)
		}
		n.run(t, g, time.Minute, func() { n.changes <- host.Change{What: "x"} })
		if n.vfs != 4 || n.mends != 1 {
			t.Errorf("%d VFs after %d mendings, want 4 after 1", n.vfs, n.mends)
		}
	})
}

// A machine that tells of no changes is looked at by the clock.
func TestGuardWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{vfs: 0}
		g := n.guard(true)
		g.Every = 2 * time.Second
		n.run(t, g, 10*time.Second, func() {})
		if n.mends != 1 || n.looks < 4 {
			t.Errorf("%d mendings and %d looks in ten seconds, want 1 and 4", n.mends, n.looks)
		}
	})
}
