package netlink

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// inNew calls f in a new network namespace, and gives a socket there.
func inNew(t *testing.T, f func() error) *Conn {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("entering a network namespace needs root")
	}
	home, err := os.Open(ThreadNetns)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var c *Conn
	err = In(int(home.Fd()), func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if c, err = Dial(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// setMTU changes lo, about which the kernel tells.
func setMTU(t *testing.T, c *Conn, mtu uint32) {
	t.Helper()
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = 1
	if _, err := c.Do(unix.RTM_SETLINK, unix.NLM_F_ACK, m, Attr(unix.IFLA_MTU, nl.Uint32Attr(mtu))); err != nil {
		t.Fatal(err)
	}
}

// mtuIn finds the MTU of lo in a datagram, 0 if it tells none.
func mtuIn(b []byte) (mtu uint32) {
	for kind, m := range Messages(b) {
		if kind != unix.RTM_NEWLINK || len(m) < unix.SizeofIfInfomsg {
			continue
		}
		for kind, v := range Attrs(m[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_MTU {
				mtu = binary.NativeEndian.Uint32(v)
			}
		}
	}
	return mtu
}

func listenToLinks(t *testing.T) (*Monitor, *Conn) {
	t.Helper()
	var m *Monitor
	c := inNew(t, func() (err error) {
		m, err = Listen(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
		return err
	})
	t.Cleanup(func() { m.Close() })
	return m, c
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
			case errors.Is(err, ErrOverrun):
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
	if m, err := Listen(unix.NETLINK_ROUTE, 1<<20); err == nil {
		m.Close()
		t.Error("joined a group that there is not")
	}
}

func FuzzMessages(f *testing.F) {
	f.Add((&nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: 16}, RawData: []byte{1, 2, 3}}).Serialize())
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for _, m := range Messages(b) {
			n += unix.SizeofNlMsghdr + len(m)
		}
		if n > len(b) {
			t.Errorf("%d bytes of messages in %d", n, len(b))
		}
	})
}
