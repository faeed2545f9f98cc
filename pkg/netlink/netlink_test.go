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

// The kernel's own answers: done without a word, refused.
func TestTold(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lo := nl.NewIfInfomsg(unix.AF_UNSPEC)
	lo.Index = 1
	if said, err := c.Told(unix.RTM_GETLINK, 0, lo); err != nil || said != "" {
		t.Errorf("done: %q, %v", said, err)
	}
	lo.Index = 1 << 30
	var refused *Error
	if said, err := c.Told(unix.RTM_GETLINK, 0, lo); !errors.As(err, &refused) || refused.Errno != unix.ENODEV || said != "" {
		t.Errorf("no such link: %q, %v", said, err)
	}
}

// What comes with an acknowledgement, as include/uapi/linux/netlink.h lays it out.
func TestAcknowledgement(t *testing.T) {
	text := Text(1, "a driver's word").Serialize()
	header := []byte{20, 0, 0, 0, 44, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0} // of a request of 20 bytes
	granted, refused := []byte{0, 0, 0, 0}, []byte{0xa1, 0xff, 0xff, 0xff}
	for _, c := range []struct {
		name  string
		flags uint16
		parts [][]byte
		errno syscall.Errno
		text  string
	}{
		{"a warning", unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS, [][]byte{granted, header, text}, 0, "a driver's word"},
		{"not a word", unix.NLM_F_CAPPED, [][]byte{granted, header}, 0, ""},
		{"a refusal, with the request", unix.NLM_F_ACK_TLVS, [][]byte{refused, header, {1, 2, 3, 4}, text}, unix.EOPNOTSUPP, "a driver's word"},
		{"cut short", unix.NLM_F_ACK_TLVS, [][]byte{refused, header}, unix.EOPNOTSUPP, ""},
		{"too short", 0, [][]byte{refused}, unix.EBADMSG, ""},
	} {
		errno, said := acknowledgement(c.flags, slices.Concat(c.parts...))
		if errno != c.errno || said != c.text {
			t.Errorf("%s: %v, %q, want %v, %q", c.name, errno, said, c.errno, c.text)
		}
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
