package devlink

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

func open(t *testing.T) *Client {
	t.Helper()
	c, err := New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_GENERIC) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A kernel with devlink knows no such device; one without it has none at all.
func TestNoSuchDevice(t *testing.T) {
	c := open(t)
	if _, err := c.Devices(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := c.Ports(context.Background()); err != nil {
		t.Error(err)
	}
	const want = unix.ENODEV
	h := nic.PCI("ffff:00:00.0")
	if _, err := c.Eswitch(h); !errors.Is(err, want) {
		t.Errorf("eswitch: %v, want %v", err, want)
	}
	if _, err := c.Info(h); !errors.Is(err, want) {
		t.Errorf("info: %v, want %v", err, want)
	}
	if _, err := c.Port(h, 1); !errors.Is(err, want) {
		t.Errorf("port: %v, want %v", err, want)
	}
	// Changing wants CAP_NET_ADMIN, and the kernel checks that first.
	for what, err := range map[string]error{
		"set mode":     c.SetEswitchMode(h, nic.Switchdev),
		"set function": c.SetPortFunction(h, 1, FunctionChange{MAC: &nic.MAC{2}}),
	} {
		if !errors.Is(err, want) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if err := c.SetEswitchMode(h, "bridge"); err == nil {
		t.Error("bridge was taken for an eswitch mode")
	}
}
