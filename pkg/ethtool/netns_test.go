package ethtool

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
)

// inNew gives a client in a new network namespace with a veth in it.
func inNew(t *testing.T) (c *Client, veth int) {
	t.Helper()
	ns := netnstest.New(t)
	veth, _ = netnstest.Veth(t, ns, "a", "b")
	c, err := New(func() (*netlink.Conn, error) { return netlink.DialAt(int(ns.Fd()), unix.NETLINK_GENERIC) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, veth
}

func is(n uint32) *uint32 { return &n }

func TestChannelsOfVeth(t *testing.T) {
	c, veth := inNew(t)
	if err := c.SetChannels(veth, ChannelsChange{RX: is(2), TX: is(3)}); err != nil {
		t.Fatal(err)
	}
	all, err := c.Channels(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Channels{RX: Count{2, 4}, TX: Count{3, 4}}
	if got := all[veth]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if one, err := c.ChannelsOf(veth); err != nil || one != want {
		t.Errorf("by itself %+v, %v, want %+v", one, err, want)
	}
	err = c.SetChannels(veth, ChannelsChange{RX: is(5)})
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "exceeds maximum") {
		t.Errorf("more than the most: %v", err)
	}
	if err := c.SetChannels(veth, ChannelsChange{Combined: is(1)}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("combined ones of a veth: %v", err)
	}
}

func TestRingsOfVeth(t *testing.T) {
	c, veth := inNew(t)
	if _, err := c.RingsOf(veth); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("rings of a veth: %v", err)
	}
	if err := c.SetRings(veth, RingsChange{RX: is(512)}); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("set rings of a veth: %v", err)
	}
	all, err := c.Rings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := all[veth]; ok {
		t.Errorf("a veth is listed with %+v", r)
	}
}

func TestFeaturesOfVeth(t *testing.T) {
	c, veth := inNew(t)
	const tso = "tx-tcp-segmentation"
	for _, want := range []bool{false, true, true} {
		if err := c.SetFeature(veth, tso, want); err != nil {
			t.Fatal(err)
		}
		all, err := c.Features(t.Context(), tso)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Feature{On: want, Wanted: want}, all[veth]); d != "" {
			t.Errorf("switched %v: want (-), got (+):\n%s", want, d)
		}
	}
	all, err := c.Features(t.Context(), TCOffload)
	if err != nil {
		t.Fatal(err)
	}
	if f := all[veth]; f != (Feature{Fixed: true}) {
		t.Errorf("%s of a veth: %+v", TCOffload, f)
	}
	if err := c.SetFeature(veth, TCOffload, true); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%s of a veth: %v", TCOffload, err)
	}
	// With checksums off there is no segmentation, whoever wants it
	// (netdev_fix_features).
	if err := c.SetFeature(veth, "tx-checksum-ip-generic", false); err != nil {
		t.Fatal(err)
	}
	if err := c.SetFeature(veth, tso, true); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a feature that does not come on: %v", err)
	}
}

func TestNowhere(t *testing.T) {
	c, _ := inNew(t)
	const nowhere = 12345
	_, channels := c.ChannelsOf(nowhere)
	_, rings := c.RingsOf(nowhere)
	_, feature := c.Feature(nowhere, TCOffload)
	for what, err := range map[string]error{
		"channels": channels, "rings": rings, "feature": feature,
		"set channels": c.SetChannels(nowhere, ChannelsChange{RX: is(1)}),
		"set rings":    c.SetRings(nowhere, RingsChange{RX: is(1)}),
		"set feature":  c.SetFeature(nowhere, TCOffload, true),
	} {
		if !errors.Is(err, unix.ENODEV) {
			t.Errorf("%s: %v, want ENODEV", what, err)
		}
	}
	if _, err := c.Feature(nowhere, "hw-time-travel"); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("got %v", err)
	}
	if all, err := c.Features(t.Context(), "hw-time-travel"); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}
