// Package netnstest gives tests network namespaces of their own, and waits for what a
// monitor hears.
package netnstest

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// New makes a network namespace that is there until the test's end, or skips the
// test where that is not allowed.
func New(t testing.TB) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	home, err := os.Open(netlink.ThreadNetns)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var ns *os.File
	err = netlink.In(int(home.Fd()), func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = os.Open(netlink.ThreadNetns)
		return err
	})
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// In calls f in a namespace.
func In(t testing.TB, ns *os.File, f func() error) {
	t.Helper()
	if err := netlink.In(int(ns.Fd()), f); err != nil {
		t.Fatal(err)
	}
}

// Dial opens a socket in a namespace until the test's end.
func Dial(t testing.TB, ns *os.File, protocol int) *netlink.Conn {
	t.Helper()
	c, err := netlink.DialAt(int(ns.Fd()), protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Veth makes a veth pair with 4 queues each in a namespace, both ends down, and
// returns the ifindexes.
func Veth(t testing.TB, ns *os.File, name, peer string) (a, b int) {
	t.Helper()
	c := Dial(t, ns, unix.NETLINK_ROUTE)
	queues := func() []*nl.RtAttr {
		return []*nl.RtAttr{
			netlink.Attr(unix.IFLA_NUM_TX_QUEUES, nl.Uint32Attr(4)), netlink.Attr(unix.IFLA_NUM_RX_QUEUES, nl.Uint32Attr(4)),
		}
	}
	const peerInfo = 1 // VETH_INFO_PEER: a header, and attributes
	other := netlink.Attr(peerInfo, nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize())
	for _, attr := range append(queues(), netlink.Text(unix.IFLA_IFNAME, peer)) {
		other.AddChild(attr)
	}
	data := []nl.NetlinkRequestData{
		nl.NewIfInfomsg(unix.AF_UNSPEC), netlink.Text(unix.IFLA_IFNAME, name),
		netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "veth"), netlink.Nest(unix.IFLA_INFO_DATA, other)),
	}
	for _, attr := range queues() {
		data = append(data, attr)
	}
	if _, err := c.Do(unix.RTM_NEWLINK, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...); err != nil {
		t.Fatalf("make %s and %s: %v", name, peer, err)
	}
	return ifindex(t, c, name), ifindex(t, c, peer)
}

// Hear waits, a minute at the most, until next gives an event that is wanted; what says
// which.
func Hear[E any](t testing.TB, what string, next func(context.Context) ([]E, error), wanted func(E) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		list, err := next(ctx)
		if err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if slices.ContainsFunc(list, wanted) {
			return
		}
	}
}

func ifindex(t testing.TB, c *netlink.Conn, name string) int {
	t.Helper()
	out, err := c.Do(unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC), netlink.Text(unix.IFLA_IFNAME, name))
	if err != nil || len(out) != 1 {
		t.Fatalf("look up %s: %d answers, %v", name, len(out), err)
	}
	return int(nl.DeserializeIfInfomsg(out[0]).Index)
}
