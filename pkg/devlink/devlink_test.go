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
	if _, err := c.Params(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := c.Rates(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := c.Reporters(context.Background()); err != nil {
		t.Error(err)
	}
	const want = unix.ENODEV
	if m, err := c.Listen(); err == nil {
		m.Close()
	} else if !errors.Is(err, want) {
		t.Errorf("listen: %v", err)
	}
	if _, err := c.Rate(nic.PCI("ffff:00:00.0"), RateOf{Port: 1}); !errors.Is(err, want) {
		t.Errorf("rate: %v, want %v", err, want)
	}
	if _, err := c.Param(nic.PCI("ffff:00:00.0"), "x"); !errors.Is(err, want) {
		t.Errorf("param: %v, want %v", err, want)
	}
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
	_, sf := c.AddSF(h, 0, 88)
	for what, err := range map[string]error{
		"set mode":     c.SetEswitchMode(h, nic.Switchdev),
		"set inline":   c.SetInlineMode(h, "none"),
		"set encap":    c.SetEncapMode(h, "basic"),
		"set param":    c.SetParam(h, "enable_roce", DriverInit, Value{Type: Bool}),
		"add port":     sf,
		"delete port":  c.DelPort(h, 1),
		"set rate":     c.SetRate(h, RateOf{Port: 1}, RateChange{}),
		"new rate":     c.NewRateNode(h, "gold", RateChange{}),
		"delete rate":  c.DelRateNode(h, "gold"),
		"reload":       c.Reload(h),
		"set function": c.SetPortFunction(h, 1, FunctionChange{MAC: &nic.MAC{2}}),
	} {
		if !errors.Is(err, want) && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	for what, err := range map[string]error{
		"eswitch mode":       c.SetEswitchMode(h, "bridge"),
		"inline mode":        c.SetInlineMode(h, "bridge"),
		"encap mode":         c.SetEncapMode(h, "bridge"),
		"configuration mode": c.SetParam(h, "x", "bridge", Value{Type: Bool}),
	} {
		if err == nil || errors.Is(err, want) || errors.Is(err, unix.EPERM) {
			t.Errorf("bridge was taken for an %s: %v", what, err)
		}
	}
}
