package rdma

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
)

func attrs(list ...*nl.RtAttr) (out []byte) {
	for _, a := range list {
		out = append(out, a.Serialize()...)
	}
	return out
}

func u8(kind int, v uint8) *nl.RtAttr   { return netlink.Attr(kind, nl.Uint8Attr(v)) }
func u32(kind int, v uint32) *nl.RtAttr { return netlink.Attr(kind, nl.Uint32Attr(v)) }
func u64(kind int, v uint64) *nl.RtAttr { return netlink.Attr(kind, nl.Uint64Attr(v)) }

func device() []byte {
	return attrs(u32(1, 3), netlink.Text(2, "mlx5_2"), u32(3, 1), u64(4, 0x1425321c36), netlink.Text(5, "22.41.1000"),
		u64(6, 0x0200000000000001), u64(7, 0x0c42a10300aabbcc), u8(14, 1), netlink.Text(67, "roce"), u8(99, 1))
}

func port() []byte {
	return attrs(u32(1, 3), netlink.Text(2, "mlx5_2"), u32(3, 1), u8(12, 4), u8(13, 5), u32(50, 7), netlink.Text(51, "eth4"))
}

func TestParse(t *testing.T) {
	want := Device{Index: 3, Name: "mlx5_2", Ports: 1, NodeGUID: 0x0200000000000001, SysImageGUID: 0x0c42a10300aabbcc,
		Protocol: "roce", Firmware: "22.41.1000"}
	if d := cmp.Diff(want, parseDevice(device())); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if d := cmp.Diff(Port{Number: 1, State: "ACTIVE", Ifindex: 7, Netdev: "eth4"}, parsePort(port())); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if p := parsePort(attrs(u32(3, 2), u8(12, 77))); p != (Port{Number: 2}) {
		t.Errorf("a state to come: %+v", p)
	}
	if got := GUID(0x0c42a10300aabbcc); got != "0c:42:a1:03:00:aa:bb:cc" {
		t.Error(got)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(device())
	f.Add(port())
	f.Fuzz(func(t *testing.T, b []byte) {
		if d := parseDevice(b); len(d.Name) > len(b) {
			t.Errorf("%+v", d)
		}
		parsePort(b)
	})
}

// A kernel without RDMA has no devices, and says so.
func TestNone(t *testing.T) {
	c := New(func() (*netlink.Conn, error) { return nil, unix.EPROTONOSUPPORT })
	if list, err := c.Devices(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	_, shared := c.Shared()
	_, ports := c.Ports(context.Background(), 1)
	for _, err := range []error{shared, ports, c.SetShared(true), c.SetNetns(1, 0)} {
		if !errors.Is(err, ErrNone) || !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("got %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A soft device on a veth, as the kernel tells it.
func TestSoftDeviceInLab(t *testing.T) {
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs a kernel with soft RoCE: lab/gotest ./pkg/rdma")
	}
	run := func(words ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", words, err, out)
		}
	}
	run("modprobe", "rdma_rxe")
	home, err := os.Open(netlink.ThreadNetns)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	c := New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_RDMA) })
	defer c.Close()
	veth, _ := netnstest.Veth(t, home, "ra", "rb")
	run("ip", "link", "set", "ra", "up")
	run("ip", "link", "set", "rb", "up")
	run("rdma", "link", "add", "soft0", "type", "rxe", "netdev", "ra")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "ra").Run() }) // and the soft device with it

	list, err := c.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(d Device) bool { return d.Name == "soft0" })
	if i < 0 {
		t.Fatalf("no soft0 among %+v", list)
	}
	d := list[i]
	if d.Ports != 1 || d.Protocol != "roce" || d.NodeGUID == 0 {
		t.Errorf("%+v", d)
	}
	ports, err := c.Ports(t.Context(), d.Index)
	if err != nil || len(ports) != 1 || ports[0] != (Port{Number: 1, State: "ACTIVE", Ifindex: veth, Netdev: "ra"}) {
		t.Errorf("%+v, %v", ports, err)
	}
	if _, err := c.Ports(t.Context(), 4711); !errors.Is(err, unix.EINVAL) {
		t.Errorf("ports of nothing: %v", err)
	}
	shared, err := c.Shared()
	if err != nil {
		t.Fatal(err)
	}
	ns := netnstest.New(t)
	if err := c.SetShared(!shared); !errors.Is(err, unix.EBUSY) {
		t.Errorf("changed beside another namespace: %v", err)
	}
	if err := c.SetNetns(d.Index, int(ns.Fd())); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a soft device moved: %v", err)
	}
}
