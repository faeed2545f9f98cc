package uevent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
)

const vf = "bind@/devices/pci0000:00/0000:00:01.0/0000:03:00.2\x00ACTION=bind\x00" +
	"DEVPATH=/devices/pci0000:00/0000:00:01.0/0000:03:00.2\x00SUBSYSTEM=pci\x00DRIVER=mlx5_core\x00PCI_CLASS=20000\x00" +
	"PCI_ID=15B3:101E\x00PCI_SLOT_NAME=0000:03:00.2\x00MODALIAS=pci:v=15B3\x00SEQNUM=4711\x00"

func TestParse(t *testing.T) {
	e, ok := parse([]byte(vf))
	want := Event{
		Action: Bind, Path: "/devices/pci0000:00/0000:00:01.0/0000:03:00.2", Subsystem: "pci",
		Env: map[string]string{"DRIVER": "mlx5_core", "PCI_CLASS": "20000", "PCI_ID": "15B3:101E",
			"PCI_SLOT_NAME": "0000:03:00.2", "MODALIAS": "pci:v=15B3"},
	}
	if d := cmp.Diff(want, e); d != "" || !ok || e.Name() != "0000:03:00.2" {
		t.Errorf("%v %q, want (-), got (+):\n%s", ok, e.Name(), d)
	}
	// udev's own form, and what is none.
	for _, in := range []string{"libudev\x00\xfe\xed\xca\xfe", "", "add", "@/devices/x\x00", "add@x\x00"} {
		if e, ok := parse([]byte(in)); ok {
			t.Errorf("%q gave %+v", in, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(vf))
	f.Add([]byte("add@/a\x00=\x00=="))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parse(b); ok && (e.Action == "" || e.Path[0] != '/') {
			t.Errorf("%+v", e)
		}
	})
}

func listen(t *testing.T, ns *os.File) *Monitor {
	t.Helper()
	var m *Monitor
	netnstest.In(t, ns, func() (err error) {
		m, err = Listen()
		return err
	})
	t.Cleanup(func() { m.Close() })
	return m
}

// next waits for an event of an interface, and passes over all others.
func next(t *testing.T, m *Monitor, action Action, name string) Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		e, err := m.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for %s of %s: %v", action, name, err)
		}
		if e.Subsystem == "net" && e.Action == action && e.Env["INTERFACE"] == name {
			return e
		}
	}
}

// Interfaces are told of in their own namespace.
func TestMonitor(t *testing.T) {
	ns, other := netnstest.New(t), netnstest.New(t)
	m, elsewhere := listen(t, ns), listen(t, other)
	netnstest.Veth(t, ns, "uea", "ueb")
	if e := next(t, m, Add, "uea"); e.Name() != "uea" || e.Env["IFINDEX"] == "" {
		t.Errorf("%+v", e)
	}
	netnstest.Veth(t, other, "uec", "ued")
	for {
		e, err := elsewhere.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if name := e.Env["INTERFACE"]; name == "uea" || name == "ueb" {
			t.Errorf("told of another namespace's interface: %+v", e)
		} else if name == "uec" {
			break
		}
	}
}

func TestOverrun(t *testing.T) {
	ns := netnstest.New(t)
	m := listen(t, ns)
	if err := m.m.SetBuffer(4096); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		netnstest.Veth(t, ns, fmt.Sprintf("v%d", i), fmt.Sprintf("w%d", i))
	}
	for {
		_, err := m.Next(t.Context())
		if errors.Is(err, netlink.ErrOverrun) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.m.SetBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	netnstest.Veth(t, ns, "after", "later")
	next(t, m, Add, "after")
}
