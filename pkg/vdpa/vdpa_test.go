package vdpa

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

func message(attrs ...*nl.RtAttr) (out []byte) {
	for _, a := range attrs {
		out = append(out, a.Serialize()...)
	}
	return out
}

func vf() []byte {
	return message(append(of(nic.PCI("0000:03:00.2")), netlink.Attr(3, nl.Uint64Attr(1<<1)), netlink.Attr(15, nl.Uint32Attr(65)),
		netlink.Attr(16, nl.Uint64Attr(0)))...)
}

func device() []byte {
	return message(append(of(nic.PCI("0000:03:00.2")), netlink.Text(4, "vdpa0"), netlink.Attr(5, nl.Uint32Attr(1)), netlink.Attr(6, nl.Uint32Attr(0x15b3)),
		netlink.Attr(7, nl.Uint32Attr(33)), netlink.Attr(8, nl.Uint16Attr(256)))...)
}

func TestParse(t *testing.T) {
	if d := cmp.Diff(Parent{Handle: nic.PCI("0000:03:00.2"), Net: true, MaxVQs: 65}, parseParent(vf())); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	software := message(netlink.Text(2, "vduse"), netlink.Attr(3, nl.Uint64Attr(1<<2)))
	if d := cmp.Diff(Parent{Handle: nic.Handle{Name: "vduse"}}, parseParent(software)); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if d := cmp.Diff(Device{Name: "vdpa0", Parent: nic.PCI("0000:03:00.2"), Net: true, MaxVQs: 33}, parseDevice(device())); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	kinds := []int{}
	for k := range netlink.Attrs(message(Config{MAC: nic.MAC{2}, MTU: 1500, MaxVQP: 16}.attrs()...)) {
		kinds = append(kinds, k)
	}
	if d := cmp.Diff([]int{10, 13, 12}, kinds); d != "" {
		t.Error(d)
	}
	if n := len(Config{}.attrs()); n != 0 {
		t.Errorf("no configuration has %d attributes", n)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(vf())
	f.Add(device())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, d := parseParent(b), parseDevice(b); p.Handle != d.Parent {
			t.Errorf("%v and %v", p.Handle, d.Parent)
		}
	})
}

// A kernel without vDPA has no devices of it, and says so.
func TestNone(t *testing.T) {
	c, err := New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_GENERIC) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if list, err := c.Devices(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := c.Parents(context.Background()); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"add":    c.Add("sluice-test", nic.PCI("ffff:00:00.0"), Config{}),
		"delete": c.Del("sluice-test"),
	} {
		// Where there is vDPA, who may do it is looked at before what.
		if !errors.Is(err, ErrNoFamily) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// files is a tree of files in a sysfs's place, where nobody answers to a write.
func files(t *testing.T) Sys {
	t.Helper()
	s := Sys{t.TempDir()}
	for _, dir := range []string{"drivers/" + Vhost, "drivers/" + Virtio, "devices/a/vhost-vdpa-3", "devices/b/virtio0/net/eth7", "devices/c[1]"} {
		must(t, os.MkdirAll(s.Root+"/bus/vdpa/"+dir, 0o700))
	}
	for _, file := range []string{"drivers/" + Vhost + "/bind", "drivers/" + Virtio + "/unbind",
		"devices/a/driver_override", "devices/b/driver_override", "devices/c[1]/driver_override"} {
		must(t, os.WriteFile(s.Root+"/bus/vdpa/"+file, nil, 0o600))
	}
	must(t, os.Symlink("../../drivers/"+Vhost, s.device("a")+"/driver"))
	must(t, os.Symlink("../../drivers/"+Virtio, s.device("b")+"/driver"))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s Sys) has(t *testing.T, file, want string) {
	t.Helper()
	b, err := os.ReadFile(s.Root + "/bus/vdpa/" + file)
	must(t, err)
	if string(b) != want {
		t.Errorf("%s has %q, want %q", file, b, want)
	}
}

func TestSys(t *testing.T) {
	s := files(t)
	if s.Driver("a") != Vhost || s.Driver("c[1]") != "" || s.Driver("x") != "" {
		t.Errorf("drivers %q, %q, %q", s.Driver("a"), s.Driver("c[1]"), s.Driver("x"))
	}
	if s.File("a") != "vhost-vdpa-3" || s.File("b") != "" || s.Netdev("b") != "eth7" || s.Netdev("a") != "" {
		t.Errorf("%q, %q, %q, %q", s.File("a"), s.File("b"), s.Netdev("b"), s.Netdev("a"))
	}
	must(t, s.Bind("a", Vhost)) // it is
	s.has(t, "drivers/"+Vhost+"/bind", "")
	must(t, s.Bind("b", Vhost))
	s.has(t, "drivers/"+Virtio+"/unbind", "b")
	s.has(t, "devices/b/driver_override", Vhost)
	s.has(t, "drivers/"+Vhost+"/bind", "b")
	must(t, s.Bind("c[1]", Vhost))
	must(t, s.Unbind("c[1]"))
	for _, err := range []error{s.Bind("x", Vhost), s.Bind("a", "vfio")} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
}
