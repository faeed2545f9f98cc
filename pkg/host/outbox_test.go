package host_test

import (
	"context"
	"testing"
	"testing/synctest"

	"sluice.dev/sluice/pkg/host"
)

// A reader who is slow is told of each thing once, in order, and when there are too
// many, of anything; nothing that comes after he has read is lost.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		box, c := host.NewOutbox(), make(chan host.Change)
		netdev := func(i int) host.Change {
			return host.Change{Of: host.Thing{Kind: host.OfInterface, Ifindex: i}}
		}
		for range 3 {
			box.Put(netdev(1))
			box.Put(netdev(2))
		}
		go box.Send(ctx, c)
		for _, want := range []int{1, 2} {
			if got := <-c; got != netdev(want) {
				t.Errorf("told of %+v, want %d", got, want)
			}
		}
		box.Put(netdev(1))
		if got := <-c; got != netdev(1) {
			t.Errorf("told of %+v", got)
		}
		for i := range 5000 {
			box.Put(netdev(i))
		}
		told, all := 0, false
		for {
			synctest.Wait()
			select {
			case got := <-c:
				told++
				all = all || got.Of == host.Thing{}
				continue
			default:
			}
			break
		}
		if !all || told > 2000 {
			t.Errorf("of 5000 things told %d times, of anything: %v", told, all)
		}
	})
}
