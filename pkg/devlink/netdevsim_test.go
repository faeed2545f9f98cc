package devlink

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
	"sluice.dev/sluice/pkg/nic"
)

// netdevsim makes a device of netdevsim with two VFs, in legacy mode.
func netdevsim(t *testing.T) (*Client, nic.Handle) {
	t.Helper()
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("needs a kernel with netdevsim: lab/gotest --kernel offload ./pkg/devlink")
	}
	if out, err := exec.CommandContext(t.Context(), "modprobe", "netdevsim").CombinedOutput(); err != nil {
		t.Fatalf("modprobe netdevsim: %v: %s: it is a module of lab/run --kernel offload", err, out)
	}
	write := func(path, what string) {
		t.Helper()
		if err := os.WriteFile("/sys/bus/netdevsim/"+path, []byte(what), 0); err != nil {
			t.Fatal(err)
		}
	}
	write("new_device", "5 1")
	t.Cleanup(func() { write("del_device", "5") })
	write("devices/netdevsim5/sriov_numvfs", "2")
	return open(t), nic.Handle{Bus: "netdevsim", Name: "netdevsim5"}
}

// Each type and mode of parameter that netdevsim has: max_macs and test1 are kept
// for the next reload, test2 is in force at once (netdevsim/dev.c,
// nsim_devlink_params).
func TestParamsOfNetdevsim(t *testing.T) {
	c, h := netdevsim(t)
	for _, want := range []Param{
		{Handle: h, Name: "max_macs", Generic: true, Type: U32, Values: map[Mode]Value{DriverInit: {Type: U32, Number: 16}}},
		{Handle: h, Name: "test1", Type: Bool, Values: map[Mode]Value{DriverInit: {Type: Bool}}},
	} {
		was, err := c.Param(h, want.Name)
		if err != nil || was.Type != want.Type || was.Generic != want.Generic || len(was.Values) != 1 {
			t.Fatalf("%+v, %v: want one like %+v", was, err, want)
		}
		v := want.Values[DriverInit]
		for _, n := range []uint64{v.Number, 1} {
			v.Number = n
			if err := c.SetParam(h, want.Name, DriverInit, v); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Param(h, want.Name); err != nil || got.Values[DriverInit] != v {
				t.Errorf("%+v, %v: want %v", got, err, v)
			}
		}
		wrong := Value{Type: U8, Number: 1}
		if err := c.SetParam(h, want.Name, DriverInit, wrong); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s as a number of 8 bits: %v", want.Name, err)
		}
		if err := c.SetParam(h, want.Name, Permanent, v); err == nil {
			t.Errorf("%s for good, which is not offered", want.Name)
		}
	}
	if err := c.Reload(h); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Param(h, "max_macs"); err != nil || got.Values[DriverInit].Number != 1 {
		t.Errorf("after the reload %+v, %v: want what was set", got, err)
	}
	all, err := c.Params(t.Context())
	if n := len(slices.DeleteFunc(all, func(p Param) bool { return p.Handle != h })); err != nil || n < 2 {
		t.Errorf("%d parameters in the list, %v", n, err)
	}
}

// Rates of VFs and groups, and the words with which they are refused
// (netdevsim/dev.c, nsim_rate_bytes_to_units; net/devlink/rate.c).
func TestRatesOfNetdevsim(t *testing.T) {
	c, h := netdevsim(t)
	const mbit = 125_000
	vf := RateOf{Port: 128}
	if _, err := c.Rate(h, vf); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a rate in legacy mode: %v", err)
	}
	if err := c.SetEswitchMode(h, nic.Switchdev); err != nil {
		t.Fatal(err)
	}
	number := func(n uint64) *uint64 { return &n }
	set := func(of RateOf, change RateChange, want Rate) {
		t.Helper()
		if err := c.SetRate(h, of, change); err != nil {
			t.Errorf("%+v: %v", change, err)
		}
		want.Handle, want.Of = h, of
		if got, err := c.Rate(h, of); err != nil || got != want {
			t.Errorf("got %+v, %v: want %+v", got, err, want)
		}
	}
	if err := c.NewRateNode(h, "gold", RateChange{Max: number(1000 * mbit)}); err != nil {
		t.Fatal(err)
	}
	group := "gold"
	set(vf, RateChange{Max: number(100 * mbit)}, Rate{Max: 100 * mbit})
	set(vf, RateChange{Share: number(10 * mbit)}, Rate{Max: 100 * mbit, Share: 10 * mbit})
	set(vf, RateChange{Parent: &group}, Rate{Max: 100 * mbit, Share: 10 * mbit, Parent: group})
	set(RateOf{Node: group}, RateChange{Max: number(2000 * mbit)}, Rate{Max: 2000 * mbit})

	for words, do := range map[string]func() error{
		"TX rate value not in link speed units of 1Mbps": func() error { return c.SetRate(h, vf, RateChange{Max: number(1)}) },
		"exceed link maximum speed":                      func() error { return c.SetRate(h, vf, RateChange{Max: number(6000 * mbit)}) },
		"Rate node(s) exists":                            func() error { return c.SetEswitchMode(h, nic.Legacy) },
	} {
		err := do()
		var refused *netlink.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Text, words) {
			t.Errorf("%v: want the words %q", err, words)
		}
	}
	if err := c.NewRateNode(h, group, RateChange{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the same group again: %v", err)
	}
	if err := c.DelRateNode(h, group); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a group with a member: %v", err)
	}
	none := ""
	set(vf, RateChange{Parent: &none}, Rate{Max: 100 * mbit, Share: 10 * mbit})
	if err := c.DelRateNode(h, group); err != nil {
		t.Error(err)
	}
	if err := c.SetEswitchMode(h, nic.Legacy); err != nil {
		t.Error(err)
	}
}

// A health reporter that is broken is told, and recovers (netdevsim/health.c).
func TestHealthOfNetdevsim(t *testing.T) {
	c, h := netdevsim(t)
	read := func() Reporter {
		all, err := c.Reporters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(r Reporter) bool { return r.Handle == h && r.Name == "dummy" })
		if i < 0 {
			t.Fatalf("no reporter dummy among %+v", all)
		}
		return all[i]
	}
	if got := read(); got.State != "healthy" || got.Errors != 0 {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile("/sys/kernel/debug/netdevsim/"+h.Name+"/health/break_health", []byte("ill"), 0); err != nil {
		t.Fatal(err)
	}
	if got := read(); got.State != "healthy" || got.Errors != 1 || got.Recoveries != 1 {
		t.Errorf("%+v: want one error and one recovery", got)
	}
}

// A change of mode is told by the ports that come and go.
func TestMonitorOfNetdevsim(t *testing.T) {
	c, h := netdevsim(t)
	m, err := c.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, mode := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
		if err := c.SetEswitchMode(h, mode); err != nil {
			t.Fatal(err)
		}
		missing := map[uint32]bool{128: true, 129: true}
		netnstest.Hear(t, fmt.Sprintf("both ports, in %s mode", mode), m.Next, func(e Event) bool {
			if e.Handle == h && e.Subject == OfPort && e.Port != nil && e.Gone == (mode == nic.Legacy) {
				delete(missing, *e.Port)
			}
			return len(missing) == 0
		})
	}
}
