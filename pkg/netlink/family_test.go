package netlink

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

var errMissing = errors.New("no such family")

func open(t *testing.T, name string) *Family {
	t.Helper()
	f, err := NewFamily(name, 1, errMissing, func() (*Conn, error) { return Dial(unix.NETLINK_GENERIC) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// nlctrl, the family that tells of families, is in every kernel.
func TestFamily(t *testing.T) {
	f := open(t, "nlctrl")
	all, err := f.Dump(context.Background(), unix.CTRL_CMD_GETFAMILY)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d families, %v", len(all), err)
	}
	one, err := f.Get(unix.CTRL_CMD_GETFAMILY, Text(unix.CTRL_ATTR_FAMILY_NAME, "nlctrl"))
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := parseFamily(one); id != unix.GENL_ID_CTRL {
		t.Errorf("nlctrl is family %d", id)
	}
	name := func(m []byte) (name string) {
		for kind, v := range Attrs(m) {
			if kind == unix.CTRL_ATTR_FAMILY_NAME {
				name = String(v)
			}
		}
		return name
	}
	names, err := List(context.Background(), f, unix.CTRL_CMD_GETFAMILY, name, func(s string) bool { return s == "nlctrl" })
	if err != nil || len(names) != 1 {
		t.Errorf("of %d families these are nlctrl: %q, %v", len(all), names, err)
	}
	out, err := f.Set(unix.CTRL_CMD_GETFAMILY, Text(unix.CTRL_ATTR_FAMILY_NAME, "nlctrl"))
	if err != nil || len(out) != 1 {
		t.Errorf("%d answers, %v", len(out), err)
	}
	if _, err := f.Get(unix.CTRL_CMD_GETFAMILY, Text(unix.CTRL_ATTR_FAMILY_NAME, "no-such")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
	if n, err := f.Group("notify"); err != nil || n == 0 {
		t.Errorf("group %d, %v", n, err)
	}
	if _, err := f.Group("no-such"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
}

func TestMissingFamily(t *testing.T) {
	f := open(t, "no-such")
	if out, err := f.Dump(context.Background(), 1); err != nil || len(out) != 0 {
		t.Errorf("listed %d, %v", len(out), err)
	}
	_, get := f.Get(1)
	_, set := f.Set(1)
	_, group := f.Group("x")
	for _, err := range []error{get, set, group} {
		if !errors.Is(err, errMissing) {
			t.Errorf("got %v", err)
		}
	}
}
