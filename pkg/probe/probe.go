// Package probe asks whether a node that has just been changed may stay so: it
// still has its default route, and still reaches what it must reach.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/host"
)

// DefaultWithin is the time that a Probe gives when it says nothing else. A link
// that went down for a change of mode takes seconds to come up, and spanning tree
// on the switch may take longer.
const DefaultWithin = 30 * time.Second

// Probe is what must hold. The zero value asks for nothing.
type Probe struct {
	// DefaultRoute: a node that had one before has one, over an interface that is
	// up and has carrier.
	DefaultRoute bool

	Ping []netip.Addr // answer to an ICMP echo
	Dial []string     // host:port, take a TCP connection: the API server

	Within time.Duration // 0 means DefaultWithin
}

// IsZero says that nothing is asked for.
func (p Probe) IsZero() bool { return !p.DefaultRoute && len(p.Ping) == 0 && len(p.Dial) == 0 }

// Begin notes how things are before a change, and returns what asks after it. The
// question is put again and again until all holds, or Within has passed; the error
// then names each thing that does not hold, and why.
func (p Probe) Begin(ctx context.Context, l host.Links) (func(context.Context) error, error) {
	had := false
	if p.DefaultRoute {
		var err error
		if had, err = routed(ctx, l); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error { return p.hold(ctx, l, had) }, nil
}

func (p Probe) hold(ctx context.Context, l host.Links, had bool) error {
	within := p.Within
	if within <= 0 {
		within = DefaultWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := p.once(ctx, l, had)
		if err == nil {
			return nil
		}
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("not within %s: %w", within, err)
		case <-t.C:
		}
	}
}

// once puts all questions at the same time.
func (p Probe) once(ctx context.Context, l host.Links, had bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var asks []func() error
	if had {
		asks = append(asks, func() error {
			ok, err := routed(ctx, l)
			if err == nil && !ok {
				err = errors.New("the default route is gone, or its interface is down")
			}
			return err
		})
	}
	for _, a := range p.Ping {
		asks = append(asks, func() error { return ping(ctx, a) })
	}
	for _, a := range p.Dial {
		asks = append(asks, func() error { return dial(ctx, a) })
	}
	errs := make([]error, len(asks))
	var wg sync.WaitGroup
	for i, ask := range asks {
		wg.Go(func() { errs[i] = ask() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// routed says whether there is a default route over an interface that works.
func routed(ctx context.Context, l host.Links) (bool, error) {
	uses, err := l.Uses(ctx)
	if err != nil {
		return false, err
	}
	for _, u := range uses {
		if u.What != host.DefaultRoute {
			continue
		}
		if link, err := l.Link(ctx, u.Ifindex); err == nil && link.Up && link.Carrier {
			return true, nil
		}
	}
	return false, nil
}

func dial(ctx context.Context, address string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err // it names the address
	}
	return c.Close()
}
