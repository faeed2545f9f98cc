package rtnl

import (
	"errors"
	"io/fs"
	"net/netip"
	"os/exec"
	"testing"

	"sluice.dev/sluice/pkg/netlink/netnstest"
)

func TestWayTo(t *testing.T) {
	c, ns := inNew(t)
	a, b := netnstest.Veth(t, ns, "a", "b")
	must(t, c.SetUp(a, true))
	must(t, c.SetUp(b, true))
	in := func(line string) {
		t.Helper()
		netnstest.In(t, ns, func() error {
			out, err := exec.Command("sh", "-c", line).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
			return nil
		})
	}
	to := netip.MustParseAddr
	if w, err := c.WayTo(t.Context(), to("192.0.2.7")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no route: %+v, %v", w, err)
	}
	in("ip addr add 192.0.2.1/24 dev a")
	in("ip addr add 2001:db8::1/64 dev a nodad")
	in("ip route add 198.51.100.0/24 via 192.0.2.9")
	in("ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev a")
	in("ip neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev a nud stale")
	for address, want := range map[string]Way{
		"192.0.2.7":    {a, to("192.0.2.7"), ""},
		"198.51.100.1": {a, to("192.0.2.9"), "permanent"},
		"2001:db8::2":  {a, to("2001:db8::2"), "stale"},
	} {
		if got, err := c.WayTo(t.Context(), to(address)); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", address, got, err, want)
		}
	}
}
