package vdpa

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// The kernel's vDPA devices in user space are the only ones that need no card.
func TestParentsInLab(t *testing.T) {
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs a kernel with VDUSE: lab/gotest ./pkg/vdpa")
	}
	if out, err := exec.CommandContext(t.Context(), "modprobe", "vduse").CombinedOutput(); err != nil {
		t.Skipf("modprobe vduse: %v: %s", err, out)
	}
	c, err := New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_GENERIC) })
	must(t, err)
	defer c.Close()
	list, err := c.Parents(t.Context())
	must(t, err)
	if !slices.ContainsFunc(list, func(p Parent) bool { return p.Handle == nic.Handle{Name: "vduse"} }) {
		t.Errorf("no vduse among %+v", list)
	}
	if devices, err := c.Devices(t.Context()); err != nil || len(devices) != 0 {
		t.Errorf("%+v, %v", devices, err)
	}
	if err := c.Del("none"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("deleted nothing: %v", err)
	}
	if err := c.Add("x", nic.PCI("ffff:00:00.0"), Config{}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("made on nothing: %v", err)
	}
}
