package main

import (
	"context"
	"testing"
	"testing/synctest"

	"sluice.dev/sluice/pkg/host"
)

// What the machine tells and what the kubelet tells come by one channel, also when the
// machine tells nothing more; it ends with its context.
func TestOrHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changes, held := make(chan host.Change), make(chan struct{}, 1)
		out := orHeld(ctx, changes, held)
		go func() { changes <- host.Change{What: "netdev eth0"} }()
		if c := <-out; c.What != "netdev eth0" {
			t.Errorf("heard %q: want the machine's change", c.What)
		}
		held <- struct{}{}
		if c := <-out; c.What != "devices of pods" {
			t.Errorf("heard %q: want the pods'", c.What)
		}
		close(changes)
		held <- struct{}{}
		if c, open := <-out; !open || c.What != "devices of pods" {
			t.Errorf("heard %q, open %v: want the pods' still", c.What, open)
		}
		cancel()
		if _, open := <-out; open {
			t.Error("it goes on after its context")
		}
	})
}
