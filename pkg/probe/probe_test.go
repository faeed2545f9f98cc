package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// links has one interface with a default route, perhaps.
type links struct {
	setters
	routed, carrier bool
}

type setters = host.Links

func (l *links) Uses(context.Context) ([]host.Use, error) {
	if !l.routed {
		return []host.Use{{Ifindex: 2, What: "address 192.0.2.7/24"}}, nil
	}
	return []host.Use{{Ifindex: 2, What: host.DefaultRoute}}, nil
}

func (l *links) Link(context.Context, int) (host.Link, error) {
	return host.Link{Netdev: nic.Netdev{Name: "p0", Ifindex: 2, Up: true, Carrier: l.carrier}}, nil
}

func TestDefaultRoute(t *testing.T) {
	for name, c := range map[string]struct {
		before, after links
		fails         bool
	}{
		"stays":         {links{routed: true, carrier: true}, links{routed: true, carrier: true}, false},
		"goes":          {links{routed: true, carrier: true}, links{}, true},
		"loses carrier": {links{routed: true, carrier: true}, links{routed: true}, true},
		"never was":     {links{}, links{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := c.before
			ask, err := Probe{DefaultRoute: true, Within: time.Millisecond}.Begin(t.Context(), &l)
			if err != nil {
				t.Fatal(err)
			}
			l = c.after
			err = ask(t.Context())
			if c.fails != (err != nil) {
				t.Errorf("error %v, want one: %v", err, c.fails)
			}
			if err != nil && !strings.Contains(err.Error(), "default route") {
				t.Errorf("%q does not say what is gone", err)
			}
		})
	}
}

// It is asked again until it holds.
func TestHoldsLater(t *testing.T) {
	asked := 0
	late := &lateLinks{links: &links{routed: true, carrier: true}, until: 3, asked: &asked}
	ask, err := Probe{DefaultRoute: true, Within: time.Minute}.Begin(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	asked = 0
	late.down = true
	if err := ask(t.Context()); err != nil || asked < 3 {
		t.Errorf("after %d questions: %v; want it to hold at the third", asked, err)
	}
}

type lateLinks struct {
	*links
	down  bool
	until int
	asked *int
}

func (l *lateLinks) Uses(ctx context.Context) ([]host.Use, error) {
	*l.asked++
	if l.down && *l.asked < l.until {
		return nil, nil
	}
	return l.links.Uses(ctx)
}

func TestDial(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := server.Addr().String()
	ask, err := Probe{Dial: []string{address}, Within: time.Second}.Begin(t.Context(), &links{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context()); err != nil {
		t.Errorf("a server that is there: %v", err)
	}
	server.Close()
	if err := ask(t.Context()); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("a server that is gone: %v, want an error that names %s", err, address)
	}
}

func TestPing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a raw socket")
	}
	for _, a := range []string{"127.0.0.1", "::1"} {
		if err := ping(t.Context(), netip.MustParseAddr(a)); err != nil {
			t.Errorf("the host itself at %s: %v", a, err)
		}
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := ping(ctx, netip.MustParseAddr("127.0.0.1")); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("a ping that has no time left: %v, want an error that names the address", err)
	}
}

// Whoever ends the run ends the question.
func TestEndsWithContext(t *testing.T) {
	ask, err := Probe{Dial: []string{"127.0.0.1:1"}, Within: time.Hour}.Begin(t.Context(), &links{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the refusal of the connection", err)
	}
}
