package deviceplugin

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
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
			Observe: func(context.Context) (nic.State, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begun))
				if failing {
					return nic.State{}, errors.New("no")
				}
				return node.State.Clone(), nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		changes := make(chan host.Change)
		ended := make(chan struct{})
		p.look(ctx)
		go func() { defer close(ended); p.follow(ctx, changes) }()

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
