package netlink

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestAttrs(t *testing.T) {
	whole := Nest(5, Attr(1, []byte{7}), Attr(0x4002, []byte("abc\x00"))).Serialize()
	var kinds []int
	for k, v := range Attrs(whole) {
		if k != 5 {
			t.Fatalf("type %d, want 5", k)
		}
		for k, v := range Attrs(v) {
			kinds = append(kinds, k)
			if k == 2 && String(v) != "abc" {
				t.Errorf("string %q", String(v))
			}
			if n, ok := Uint(v); k == 1 && (!ok || n != 7) {
				t.Errorf("number %d, %v", n, ok)
			}
		}
	}
	if !slices.Equal(kinds, []int{1, 2}) {
		t.Errorf("attributes %v, want 1 and 2 without flags", kinds)
	}
	for cut := range whole {
		for range Attrs(whole[:cut]) {
			if cut < len(whole) {
				t.Fatalf("an attribute out of %d of %d bytes", cut, len(whole))
			}
		}
	}
}

func FuzzAttrs(f *testing.F) {
	f.Add(Nest(5, Attr(1, []byte{7}), Attr(2, []byte("abc\x00"))).Serialize())
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for _, v := range Attrs(b) {
			n += 4 + len(v)
			Uint(v)
			_ = String(v)
		}
		if n > len(b) {
			t.Errorf("%d bytes of attributes in %d", n, len(b))
		}
	})
}

func TestUintLengths(t *testing.T) {
	if v, ok := Uint([]byte{1, 2, 3}); ok {
		t.Errorf("three bytes gave %d", v)
	}
	if v, ok := Uint(nl.Uint64Attr(1 << 40)); !ok || v != 1<<40 {
		t.Errorf("got %d, %v", v, ok)
	}
}

func TestRefusalCarriesErrno(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = 1 << 30
	_, err = c.Do(unix.RTM_GETLINK, 0, m)
	var refused *Error
	if !errors.As(err, &refused) || refused.Errno != unix.ENODEV || !errors.Is(err, syscall.ENODEV) {
		t.Fatalf("got %v, want ENODEV", err)
	}
	// And the socket still serves.
	out, err := c.Dump(context.Background(), unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC))
	if err != nil || len(out) == 0 {
		t.Fatalf("list after a refusal: %d links, %v", len(out), err)
	}
}

func TestRefusalText(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// A strict list refuses a header with values in it, and says why
	// (rtnl_valid_dump_ifinfo_req).
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = 1
	m.Flags = 1
	_, err = c.Dump(context.Background(), unix.RTM_GETLINK, m)
	var refused *Error
	if !errors.As(err, &refused) || refused.Errno != unix.EINVAL || !strings.Contains(refused.Text, "Invalid values in header") {
		t.Fatalf("got %v, want EINVAL with the kernel's text", err)
	}
}

func TestDumpEndsWithContext(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Dump(ctx, unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC)); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's end", err)
	}
}

func TestDialAt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("entering a network namespace needs root")
	}
	home, err := os.Open(ThreadNetns)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	before, _ := os.Readlink(ThreadNetns)
	var other *os.File
	err = In(int(home.Fd()), func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		other, err = os.Open(ThreadNetns)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c, err := DialAt(int(other.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out, err := c.Dump(context.Background(), unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC))
	if err != nil {
		t.Fatal(err)
	}
	// A new namespace has lo, and whatever tunnel devices the kernel adds; never
	// an interface with another end or a parent.
	for _, m := range out {
		for k := range Attrs(m[unix.SizeofIfInfomsg:]) {
			if k == unix.IFLA_LINK_NETNSID || k == unix.IFLA_PARENT_DEV_NAME {
				t.Errorf("the socket sees a device of another namespace")
			}
		}
	}
	for range 50 {
		if now, _ := os.Readlink(ThreadNetns); now != before {
			t.Fatalf("a thread was left in %s", now)
		}
	}
	if err := In(int(os.Stdin.Fd()), func() error { return nil }); err == nil {
		t.Error("entered something that is no namespace")
	}
}
