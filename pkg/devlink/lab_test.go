package devlink

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink/netnstest"
	"sluice.dev/sluice/pkg/nic"
)

// inLab gives a client and a PF of the lab's card, in legacy mode and without VFs.
func inLab(t *testing.T) (*Client, nic.Handle) {
	t.Helper()
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs the lab's card: lab/gotest ./pkg/devlink")
	}
	c := open(t)
	devices, err := c.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range devices {
		if e, err := c.Eswitch(h); err == nil && h.Bus == "pci" && e.Mode == nic.Legacy {
			return c, h
		}
	}
	t.Skipf("none of %v has an eswitch in legacy mode", devices)
	return nil, nic.Handle{}
}

// Each parameter is set to what it is, and one to something else and back.
func TestParamsInLab(t *testing.T) {
	c, h := inLab(t)
	all, err := c.Params(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range all {
		if p.Handle != h {
			continue
		}
		n++
		for mode, v := range p.Values {
			if err := c.SetParam(h, p.Name, mode, v); err != nil {
				t.Errorf("%s to what it is, %s: %v", p.Name, v, err)
			}
		}
		if one, err := c.Param(h, p.Name); err != nil || one.Type != p.Type || len(one.Values) != len(p.Values) {
			t.Errorf("by itself %+v, %v, in the list %+v", one, err, p)
		}
	}
	if n < 3 {
		t.Errorf("%d parameters of %s among %+v", n, h, all)
	}
	const name = "flow_steering_mode"
	was, err := c.Param(h, name)
	if err != nil {
		t.Fatal(err)
	}
	want := Value{Type: String, Text: "dmfs"}
	if was.Values[Runtime] == want {
		want.Text = "smfs"
	}
	for _, v := range []Value{want, was.Values[Runtime]} {
		if err := c.SetParam(h, name, Runtime, v); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Param(h, name); err != nil || got.Values[Runtime] != v {
			t.Errorf("%+v, %v, want %v", got, err, v)
		}
	}
	if err := c.SetParam(h, name, Runtime, Value{Type: String, Text: "sideways"}); err == nil {
		t.Error("steered sideways")
	}
	if _, err := c.Param(h, "colour"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a parameter that there is not: %v", err)
	}
}

func TestDeviceInLab(t *testing.T) {
	c, h := inLab(t)
	i, err := c.Info(h)
	if err != nil || i.Firmware == "" || i.PSID == "" || i.Driver == "" {
		t.Errorf("%+v, %v", i, err)
	}
	all, err := c.Reporters(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(r Reporter) bool { return r.Handle == h && r.Name == "fw" && r.State == "healthy" }) {
		t.Errorf("%+v, %v", all, err)
	}
	for _, encap := range []string{"none", "basic"} {
		if err := c.SetEncapMode(h, encap); err != nil {
			t.Error(err)
		}
		if e, err := c.Eswitch(h); err != nil || e.Encap != encap {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if err := c.SetInlineMode(h, "network"); err == nil {
		t.Error("the card has an inline mode")
	}
}

// A parameter that is set is told, and a reload by the ports that come with it.
func TestMonitorInLab(t *testing.T) {
	c, h := inLab(t)
	m, err := c.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := c.SetParam(h, "enable_roce", DriverInit, Value{Type: Bool, Number: 1}); err != nil {
		t.Fatal(err)
	}
	netnstest.Hear(t, "a parameter", m.Next, func(e Event) bool { return e.Handle == h && e.Subject == OfParam && !e.Gone })
	if err := c.Reload(h); err != nil {
		t.Fatal(err)
	}
	netnstest.Hear(t, "a port", m.Next, func(e Event) bool { return e.Subject == OfPort && e.Port != nil && !e.Gone })
}

// The card says for how many SFs it has room.
func TestResourcesInLab(t *testing.T) {
	c, h := inLab(t)
	if r, err := c.Resources(h); err != nil || r["max_local_SFs"] == 0 || len(r) < 2 {
		t.Errorf("%v, %v: want max_local_SFs and max_external_SFs", r, err)
	}
}
