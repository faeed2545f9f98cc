package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// TestDelay: netdevs come late; a setter returns when they are there, and who
// reads meanwhile sees drivers bound and no netdevs.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parse(t, "mlx5:vfs=125+machine:delay=65s")
		m := s.Machine()
		start := time.Now()
		done := make(chan error)
		go func() { done <- m.PCI.SetVFs(t.Context(), pf0, 125) }()
		synctest.Wait()
		for _, v := range observe(t, s).PFs[0].VFs {
			if v.Driver == "" || v.Netdev.Exists() {
				t.Fatalf("meanwhile: %+v", v)
			}
		}
		must(t, <-done)
		if d := time.Since(start); d != 65*time.Second {
			t.Errorf("it took %v", d)
		}
		for _, v := range observe(t, s).PFs[0].VFs {
			if !v.Netdev.Exists() {
				t.Fatalf("afterwards: %+v", v)
			}
		}
		// Nothing is late any more: setting it again takes no time.
		start = time.Now()
		must(t, m.PCI.SetVFs(t.Context(), pf0, 125))
		if d := time.Since(start); d != 0 {
			t.Errorf("setting what is took %v", d)
		}
	})
}

// TestDelayBounded: netdevs that do not come end in an error, after a time that
// grows with the number of VFs.
func TestDelayBounded(t *testing.T) {
	for _, n := range []int{1, 16} {
		synctest.Test(t, func(t *testing.T) {
			s := parse(t, "mlx5+machine:delay=24h")
			start := time.Now()
			err := s.Machine().PCI.SetVFs(t.Context(), pf0, n)
			if want := 10*time.Second + time.Duration(n)*time.Second; time.Since(start) != want {
				t.Errorf("%d VFs: it gave up after %v: want %v", n, time.Since(start), want)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: want errors.Is %v", err, context.DeadlineExceeded)
			}
		})
	}
}

// TestDelayCancelled: the kernel goes on where the caller does not wait.
func TestDelayCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parse(t, "mlx5:numvfs=2+machine:delay=3s")
		m := s.Machine()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := m.Devlink.SetEswitch(ctx, nic.PCI(pf0), nic.Switchdev)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: want errors.Is %v", err, context.DeadlineExceeded)
		}
		p := observe(t, s).PFs[0]
		if p.Eswitch != nic.Switchdev || p.VFs[0].Rep.Exists() || p.VFs[0].Rep.Port == 0 {
			t.Errorf("mode %s, representor %+v: want switchdev, and a port without its netdev", p.Eswitch, p.VFs[0].Rep)
		}
		start := time.Now()
		must(t, m.Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev))
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("the next call took %v: want the rest of the wait, 2s", d)
		}
		if p = observe(t, s).PFs[0]; !p.VFs[0].Rep.Exists() {
			t.Errorf("representor %+v", p.VFs[0].Rep)
		}
	})
}

// stopped is a clock that moves when somebody waits.
type stopped struct{ now time.Time }

func (c *stopped) Now() time.Time { return c.now }

func (c *stopped) Wait(_ context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return nil
}

func TestSetClock(t *testing.T) {
	s := parse(t, "mlx5")
	c := &stopped{time.Unix(1e9, 0)}
	s.SetClock(c)
	s.SetDelay(time.Hour)
	if err := s.Machine().PCI.SetVFs(t.Context(), pf0, 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if observe(t, s).PFs[0].VFs[0].Netdev.Exists() {
		t.Error("it is there before its time")
	}
	c.now = c.now.Add(time.Hour)
	if !observe(t, s).PFs[0].VFs[0].Netdev.Exists() {
		t.Error("it is not there when it is due")
	}
}

// TestConcurrent is for the race detector, and checks that what many do at once
// leaves one coherent machine.
func TestConcurrent(t *testing.T) {
	s := parse(t, "mlx5:cards=2,numvfs=4+machine:delay=100us")
	m := s.Machine()
	done := make(chan error)
	var functions []string
	for _, p := range observe(t, s).PFs {
		functions = append(functions, p.Handle.Name)
	}
	for _, pf := range functions {
		go func() {
			for i := range 20 {
				if err := errors.Join(
					m.PCI.SetVFs(t.Context(), pf, 0),
					m.Devlink.SetEswitch(t.Context(), nic.PCI(pf), []nic.Eswitch{nic.Legacy, nic.Switchdev}[i%2]),
					m.PCI.SetVFs(t.Context(), pf, 1+i%5),
				); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		go func() {
			for i := range 20 {
				path := fmt.Sprintf("/run/netns/%s-%d", pf, i)
				s.Clone()
				_, err := host.Observe(t.Context(), m)
				if err := errors.Join(err, s.AddNetns(path), s.DeleteNetns(path)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 * len(functions) {
		must(t, <-done)
	}
	for _, p := range observe(t, s).PFs {
		if len(p.VFs) != 5 || p.Eswitch != nic.Switchdev {
			t.Errorf("%s: %d VFs in mode %s", p.Handle, len(p.VFs), p.Eswitch)
		}
		for _, v := range p.VFs {
			if !v.Rep.Exists() || !v.Netdev.Exists() {
				t.Errorf("%s: %+v", p.Handle, v)
			}
		}
	}
	if n := len(s.Log()); n != s.Writes() {
		t.Errorf("%d writes and %d in the log", s.Writes(), n)
	}
}
