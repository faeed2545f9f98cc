package netlink_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
)

// setMTU changes lo, about which the kernel tells.
func setMTU(t *testing.T, c *netlink.Conn, mtu uint32) {
	t.Helper()
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = 1
	if _, err := c.Do(unix.RTM_SETLINK, unix.NLM_F_ACK, m, netlink.Attr(unix.IFLA_MTU, nl.Uint32Attr(mtu))); err != nil {
		t.Fatal(err)
	}
}

// mtuIn finds the MTU of lo in a datagram, 0 if it tells none.
func mtuIn(b []byte) (mtu uint32) {
	for kind, m := range netlink.Messages(b) {
		if kind != unix.RTM_NEWLINK || len(m) < unix.SizeofIfInfomsg {
			continue
		}
		for kind, v := range netlink.Attrs(m[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_MTU {
				mtu = binary.NativeEndian.Uint32(v)
			}
		}
	}
	return mtu
}

func listenToLinks(t *testing.T) (*netlink.Monitor, *netlink.Conn) {
	t.Helper()
	ns := netnstest.New(t)
	var m *netlink.Monitor
	netnstest.In(t, ns, func() (err error) {
		m, err = netlink.Listen(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
		return err
	})
	t.Cleanup(func() { m.Close() })
	return m, netnstest.Dial(t, ns, unix.NETLINK_ROUTE)
}

func TestMonitor(t *testing.T) {
	m, c := listenToLinks(t)
	for _, want := range []uint32{1400, 1300} {
		setMTU(t, c, want)
		for {
			b, err := m.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if mtuIn(b) == want {
				break
			}
		}
	}
}

// A context that ends ends the wait, and not the monitor.
func TestMonitorWaitsForContext(t *testing.T) {
	m, c := listenToLinks(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := m.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the context's end", err)
		}
		cancel()
	}
	setMTU(t, c, 1400)
	if b, err := m.Receive(t.Context()); err != nil || len(b) == 0 {
		t.Fatalf("after contexts that ended: %d bytes, %v", len(b), err)
	}
	done := make(chan error)
	go func() { _, err := m.Receive(context.Background()); done <- err }()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed while waiting: %v", err)
	}
}

// What is lost is told once, and whatever changes after that is heard.
func TestMonitorOverrun(t *testing.T) {
	m, c := listenToLinks(t)
	if err := m.SetBuffer(8 << 10); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for i := range 100 {
			setMTU(t, c, uint32(1000+i))
		}
		overruns := 0
		for last := uint32(0); last != 2000; {
			b, err := m.Receive(t.Context())
			switch {
			case errors.Is(err, netlink.ErrOverrun):
				overruns++
				setMTU(t, c, 2000)
			case err != nil:
				t.Fatal(err)
			default:
				last = mtuIn(b)
			}
		}
		if overruns != 1 {
			t.Errorf("round %d: told of lost notifications %d times", round, overruns)
		}
	}
}

func TestListenRefused(t *testing.T) {
	if m, err := netlink.Listen(unix.NETLINK_ROUTE, 1<<20); err == nil {
		m.Close()
		t.Error("joined a group that there is not")
	}
}

func FuzzMessages(f *testing.F) {
	f.Add((&nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: 16}, RawData: []byte{1, 2, 3}}).Serialize())
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for _, m := range netlink.Messages(b) {
			n += unix.SizeofNlMsghdr + len(m)
		}
		if n > len(b) {
			t.Errorf("%d bytes of messages in %d", n, len(b))
		}
	})
}
