package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// An observation that fails is tried again, at growing distances up to a second,
// and what was offered stays. Changes that come meanwhile are looked at at once.
func TestFailedObservationIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		var mu sync.Mutex // of what follows
		var at []time.Duration
		failing := false
		node := card(1)
		set := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		p, err := New(Config{Dir: "/d", Pools: []nic.Pool{pool("a", "")}, Exists: node.Exists,
			Look: looking(func(context.Context) (nic.State, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begun))
				if failing {
					return nic.State{}, errors.New("no")
				}
				return node.State.Clone(), nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		changes := make(chan host.Change)
		ended := make(chan struct{})
		seen, _ := p.first(ctx)
		go func() { defer close(ended); p.follow(ctx, seen, changes) }()

		set(func() { failing = true })
		time.Sleep(10 * time.Second)
		changes <- host.Change{}
		synctest.Wait()
		if devices, _ := p.endpoints[0].offer.get(); len(devices) != 2 {
			t.Errorf("after a failure %v are offered", devices)
		}
		time.Sleep(4 * time.Second)
		set(func() { node.vf(0, 0).Driver, failing = "", false })
		changes <- host.Change{}
		synctest.Wait()
		if devices, _ := p.endpoints[0].offer.get(); devices[0].Healthy() {
			t.Error("a change during failures was not seen at once")
		}
		time.Sleep(time.Hour) // nothing more
		close(changes)
		synctest.Wait()
		cancel()
		<-ended

		ms := func(n ...int) (out []time.Duration) {
			for _, n := range n {
				out = append(out, time.Duration(n)*time.Millisecond)
			}
			return out
		}
		want := ms(0, 10000, 10050, 10150, 10350, 10750, 11550, 12550, 13550, 14000)
		if d := cmp.Diff(want, at); d != "" {
			t.Error(d)
		}
	})
}

func TestBackoff(t *testing.T) {
	b := backoff{first: 50 * time.Millisecond, most: time.Second}
	var got []time.Duration
	for range 7 {
		got = append(got, b.grow())
	}
	b.reset()
	got = append(got, b.grow())
	want := []time.Duration{50e6, 100e6, 200e6, 400e6, 800e6, 1e9, 1e9, 50e6}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Readers of an offer see its last list, and no wake-up is lost between reading
// the list and waiting for the next.
func TestOfferWakesReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffer(nic.Pool{})
		devices := three(4)
		const readers = 10
		done := make(chan int)
		for range readers {
			go func() {
				for {
					got, changed := o.get()
					if len(got) == len(devices) {
						done <- len(got)
						return
					}
					<-changed
				}
			}()
		}
		for i := range devices {
			if !o.set(devices[:i+1]) {
				t.Errorf("list %d is no change", i)
			}
			if o.set(devices[:i+1]) {
				t.Errorf("list %d is a change twice", i)
			}
		}
		for range readers {
			<-done
		}
	})
}

// view is a Sight of a machine that can be followed.
type view struct {
	*host.View
	m host.Machine
}

func viewing(m host.Machine) func(context.Context) (Sight, error) {
	return func(ctx context.Context) (Sight, error) {
		v, err := host.Look(ctx, m)
		return view{v, m}, err
	}
}

func (v view) State() nic.State { return v.View.State }

func (v view) After(ctx context.Context, changes []host.Change) (Sight, bool, error) {
	next, sure, err := v.View.After(ctx, v.m, changes)
	return view{next, v.m}, sure, err
}

// What a change names is listed while a look at the machine goes on and on.
func TestChangesAreListedWithoutALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := sim.Parse("mlx5:cards=1,vfs=4,numvfs=4,mode=switchdev")
		if err != nil {
			t.Fatal(err)
		}
		m, first := s.Machine(), true
		state, err := host.Observe(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		pf := state.PFs[0]
		look := func(ctx context.Context) (Sight, error) {
			if !first {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			first = false
			return viewing(m)(ctx)
		}
		p, err := New(Config{Dir: "/d", Exists: func(string) bool { return true }, Look: look, Pools: []nic.Pool{
			{Name: "a", RDMA: true, Carrier: true, Select: []nic.Pick{{PF: pf.Handle, Indexes: nic.Ranges{{First: 0, Last: 3}}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		changes, err := m.Watch.Changes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		seen, _ := p.first(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); p.follow(ctx, seen, changes) }()
		must := func(err error) {
			if err != nil {
				t.Helper()
				t.Fatal(err)
			}
		}
		must(s.AddNetns("/run/netns/pod"))
		vf := func(i int) string { return pf.VFs[i].Address }
		for _, step := range []struct {
			what    string
			do      func() error
			listed  int
			healthy int
		}{
			{"nothing", func() error { return nil }, 4, 4},
			{"driver gone", func() error { return m.PCI.Unbind(ctx, vf(0)) }, 4, 3},
			{"another driver", func() error { return m.PCI.Bind(ctx, vf(0), "vfio-pci") }, 4, 3},
			{"unbound again", func() error { return m.PCI.Unbind(ctx, vf(0)) }, 4, 3},
			{"driver back, with netdev and RDMA device", func() error { return m.PCI.Bind(ctx, vf(0), "") }, 4, 4},
			{"into a pod", func() error { return m.Links.Move(ctx, pf.VFs[1].Netdev.Ifindex, "/run/netns/pod") }, 4, 4},
			{"pod gone", func() error { return s.DeleteNetns("/run/netns/pod") }, 4, 4},
			{"no carrier", func() error { return s.SetCarrier(pf.Handle, false) }, 4, 0},
			{"carrier", func() error { return s.SetCarrier(pf.Handle, true) }, 4, 4},
			{"a VF vanishes", func() error { return s.Vanish(nic.VFID{PF: pf.Handle, Index: 2}) }, 3, 3},
			{"no VFs", func() error { return m.PCI.SetVFs(ctx, pf.Handle.Name, 0) }, 0, 0},
		} {
			must(step.do())
			time.Sleep(100 * time.Millisecond)
			devices, _ := p.endpoints[0].offer.get()
			healthy := 0
			for _, d := range devices {
				if d.Healthy() {
					healthy++
				}
			}
			if len(devices) != step.listed || healthy != step.healthy {
				t.Errorf("%s: %v: want %d, %d of them healthy", step.what, devices, step.listed, step.healthy)
			}
		}
		cancel()
		<-ended
	})
}

// Whatever happens to a machine, and however slow looks at it are, the lists are in the
// end those of a whole look; and what changes tell is listed without one.
func TestFollowedListsAreThoseOfALook(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, r := sim.RandomNode(seed), rand.New(rand.NewPCG(seed, 1))
			m := s.Machine()
			var pools []nic.Pool
			state, err := host.Observe(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			for i, pf := range state.PFs {
				pick := []nic.Pick{{PF: pf.Handle, Indexes: nic.Ranges{{First: 0, Last: 99}}}}
				pools = append(pools, nic.Pool{Name: fmt.Sprint("vf", i), Select: pick, RDMA: i%2 == 0, Carrier: i%3 == 0, Driver: nic.DriverAny},
					nic.Pool{Name: fmt.Sprint("sf", i), Kind: nic.PoolOfSFs, Select: pick},
					nic.Pool{Name: fmt.Sprint("hca", i), Kind: nic.PoolOfHCAs, RDMA: true, Select: pick})
			}
			looks := 0
			ages := rand.New(rand.NewPCG(seed, 2)) // of the goroutine that looks
			slow := func(ctx context.Context) (Sight, error) {
				looks++
				sight, err := viewing(m)(ctx)
				pause(ctx, time.Duration(ages.IntN(2000))*time.Millisecond) // what it has seen grows old
				return sight, err
			}
			there := func(string) bool { return true }
			p, err := New(Config{Dir: "/d", Pools: pools, Exists: there, Look: slow})
			if err != nil {
				t.Fatal(err)
			}
			changes, err := m.Watch.Changes(ctx)
			if err != nil {
				t.Fatal(err)
			}
			seen, _ := p.first(ctx)
			ended := make(chan struct{})
			go func() { defer close(ended); p.follow(ctx, seen, changes) }()
			for range 30 {
				s.Disturb(ctx, r)
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			}
			time.Sleep(time.Minute)
			sight, err := viewing(m)(ctx)
			if err != nil {
				t.Fatal(err)
			}
			now := Node{Exists: there}
			now.see(sight)
			for i, pool := range pools {
				want, _ := List(pool, now)
				if got, _ := p.endpoints[i].offer.get(); !cmp.Equal(want, got, cmpopts.EquateEmpty()) {
					t.Errorf("machine %d, pool %s:\n%s", seed, pool, cmp.Diff(want, got))
				}
			}
			before := looks
			time.Sleep(time.Hour)
			if looks != before {
				t.Errorf("machine %d: %d looks at a machine at rest", seed, looks-before)
			}
			cancel()
			<-ended
		})
	}
}
