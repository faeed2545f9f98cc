package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
	"sluice.dev/sluice/pkg/nic"
)

// inNew gives a machine in a new namespace.
func inNew(t testing.TB) (*Machine, software) {
	t.Helper()
	s := software{home: netnstest.New(t), made: map[string]*os.File{}}
	return openIn(t, s.home, Options{Sys: t.TempDir(), Run: t.TempDir()}), s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, l host.Links, ifindex int) host.Link {
	t.Helper()
	k, err := l.Link(context.Background(), ifindex)
	must(t, err)
	return k
}

// An interface's own alternative name does not stand in the way of its name; that
// of another does.
func TestSetNameWithOwnAltName(t *testing.T) {
	m, s := inNew(t)
	ctx := t.Context()
	a, b := s.addLink(t, "", "a"), s.addLink(t, "", "b")
	s.addAltName(t, "", a, "eth0")
	s.addAltName(t, "", a, "wanted-before-but-too-long")
	must(t, m.Links.SetUp(ctx, a, true))
	must(t, m.Links.SetName(ctx, a, "eth0"))
	k := link(t, m.Links, a)
	if k.Name != "eth0" || !slices.Equal(k.AltNames, []string{"wanted-before-but-too-long"}) || !k.Up {
		t.Errorf("got %+v", k)
	}

	s.addAltName(t, "", b, "x")
	if err := m.Links.SetName(ctx, b, "eth0"); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "b") {
		t.Errorf("renamed to a name in use: %v", err)
	}
	if got := link(t, m.Links, b).AltNames; !slices.Equal(got, []string{"x"}) {
		t.Errorf("alternative names %v, want x", got)
	}
}

// What two interfaces may not share is refused with the object's name and the
// kernel's errno, in the namespace that was named.
func TestErrorsNameTheirObject(t *testing.T) {
	m, s := inNew(t)
	ctx := t.Context()
	a := s.addLink(t, "", "a")
	err := m.Links.SetMTU(ctx, a, 70000)
	var e *host.Error
	if !errors.As(err, &e) || e.Op != "set MTU 70000" || e.Object != "a" || e.Errno != unix.EINVAL || e.Ext == "" {
		t.Errorf("got %#v", e)
	}
	if want := "set MTU 70000 of a: invalid argument: mtu greater than device maximum"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	path := s.addNetns(t)
	ns, err := m.Netns.Open(ctx, path)
	must(t, err)
	defer ns.Close()
	if err := ns.SetUp(ctx, 99, true); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "interface 99 in "+path) {
		t.Errorf("got %v", err)
	}
	if err := m.Links.Move(ctx, 1, path); !errors.Is(err, host.ErrNotSupported) {
		t.Errorf("lo moved: %v", err)
	}
	// Linux 6.13 and 6.14 do not tell; what they would refuse they refuse.
	if err := m.Links.Pinned(ctx, 1); !errors.Is(err, host.ErrNotSupported) && (err != nil || !kernelKeepsQuiet(t)) {
		t.Errorf("lo may move: %v", err)
	}
	must(t, m.Links.Pinned(ctx, a))
	s.addLink(t, path, "a")
	if err := m.Links.Move(ctx, a, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("moved onto a name in use: %v", err)
	}
	if link(t, m.Links, a).Name != "a" {
		t.Error("a refused move renamed it")
	}
}

// An IPv6 address can be used at once: no duplicate address detection, carrier or
// not.
func TestAddressIsUsableAtOnce(t *testing.T) {
	m, s := inNew(t)
	ctx := t.Context()
	a := s.addLink(t, "", "a")
	must(t, m.Links.SetUp(ctx, a, true))
	for _, p := range []string{"2001:db8::7/64", "192.0.2.7/24", "192.0.2.8/32"} {
		must(t, m.Links.AddAddress(ctx, a, netip.MustParsePrefix(p)))
		at := netip.AddrPortFrom(netip.MustParsePrefix(p).Addr(), 0)
		must(t, netlink.In(int(s.home.Fd()), func() error {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			if err != nil {
				return err
			}
			return c.Close()
		}))
	}
	// One address with two lengths: IPv6 knows it, whatever the length.
	if err := m.Links.AddAddress(ctx, a, netip.MustParsePrefix("2001:db8::7/80")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	h := s.handle(t, "")
	k, err := h.LinkByIndex(a)
	must(t, err)
	list, err := h.AddrList(k, unix.AF_INET)
	must(t, err)
	for _, got := range list {
		if ones, _ := got.Mask.Size(); (ones == 24) != got.Broadcast.Equal(net.IPv4(192, 0, 2, 255)) {
			t.Errorf("%s has broadcast address %s", got.IPNet, got.Broadcast)
		}
	}
}

func TestAddressesWithoutIPv6(t *testing.T) {
	m, s := inNew(t)
	a := s.addLink(t, "", "a")
	must(t, netlink.In(int(s.home.Fd()), func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/a/disable_ipv6", []byte("1"), 0)
	}))
	err := m.Links.AddAddress(t.Context(), a, netip.MustParsePrefix("2001:db8::7/64"))
	if err == nil || !strings.Contains(err.Error(), "IPv6 is disabled") {
		t.Errorf("got %v, want the kernel's words", err)
	}
}

// listen gives the next frame of a protocol that ok accepts from an interface.
func listen(t *testing.T, s software, ifname string, protocol uint16, ok func([]byte) bool) (next func() []byte) {
	t.Helper()
	fd := -1
	must(t, netlink.In(int(s.home.Fd()), func() (err error) {
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(networkOrder(protocol)))
		if err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index, Protocol: networkOrder(protocol)})
	}))
	t.Cleanup(func() { unix.Close(fd) })
	return func() []byte {
		t.Helper()
		for {
			b := make([]byte, 2048)
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				t.Fatalf("no frame: %v", err)
			}
			if ok(b[:n]) {
				return b[:n]
			}
		}
	}
}

func TestAnnounce(t *testing.T) {
	m, s := inNew(t)
	ctx := t.Context()
	a := s.addLink(t, "", "a")
	mac := nic.MAC{2, 0, 0, 0, 0, 7}
	must(t, m.Links.SetMAC(ctx, a, mac))
	if err := m.Links.Announce(ctx, a, netip.MustParseAddr("192.0.2.7")); !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("announced on a link that is down: %v", err)
	}
	must(t, m.Links.SetUp(ctx, a, true))

	arp := listen(t, s, "pa", unix.ETH_P_ARP, func(b []byte) bool { return len(b) >= 42 })
	must(t, m.Links.Announce(ctx, a, netip.MustParseAddr("192.0.2.7")))
	want := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac[:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1},
		mac[:], []byte{192, 0, 2, 7}, make([]byte, 6), []byte{192, 0, 2, 7})
	if d := cmp.Diff(want, arp()[:42]); d != "" {
		t.Errorf("ARP: want (-), got (+):\n%s", d)
	}

	address := netip.MustParseAddr("2001:db8::7")
	isNA := func(b []byte) bool { return len(b) >= 86 && b[20] == unix.IPPROTO_ICMPV6 && b[54] == 136 }
	na := listen(t, s, "pa", unix.ETH_P_IPV6, isNA)
	must(t, m.Links.Announce(ctx, a, address))
	got := na()
	if [6]byte(got) != allNodesMAC || nic.MAC(got[6:]) != mac || got[21] != 255 || netip.AddrFrom16([16]byte(got[22:])) != address ||
		netip.AddrFrom16([16]byte(got[62:])) != address || nic.MAC(got[80:]) != mac {
		t.Errorf("advertisement % x", got)
	}
	if sum := fold(checksum(got[54:], checksum(got[22:54], 32+unix.IPPROTO_ICMPV6))); sum != 0xffff {
		t.Errorf("checksum adds up to %#x", sum)
	}
	for _, bad := range []netip.Addr{{}, netip.MustParseAddr("::"), netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("::ffff:1.2.3.4")} {
		if err := m.Links.Announce(ctx, a, bad); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	// Without carrier it gives up waiting soon, and that is no error.
	h := s.handle(t, "")
	peer, err := h.LinkByName("pa")
	must(t, err)
	must(t, h.LinkSetDown(peer))
	start := time.Now()
	must(t, m.Links.Announce(ctx, a, address))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// The kernel believes the advertisement: a neighbour changes what it knew.
func TestNeighbourLearns(t *testing.T) {
	m, s := inNew(t)
	ctx := t.Context()
	a := s.addLink(t, "", "a")
	mac := nic.MAC{2, 0, 0, 0, 0, 7}
	must(t, m.Links.SetMAC(ctx, a, mac))
	path := s.addNetns(t)
	h := s.handle(t, "")
	peer, err := h.LinkByName("pa")
	must(t, err)
	must(t, m.Links.Move(ctx, peer.Attrs().Index, path))
	ns, err := m.Netns.Open(ctx, path)
	must(t, err)
	defer ns.Close()
	in, err := ns.Links(ctx)
	must(t, err)
	i := slices.IndexFunc(in, func(l host.Link) bool { return l.Name == "pa" })
	must(t, ns.SetUp(ctx, in[i].Ifindex, true))
	must(t, ns.AddAddress(ctx, in[i].Ifindex, netip.MustParsePrefix("192.0.2.1/24")))
	must(t, ns.AddAddress(ctx, in[i].Ifindex, netip.MustParsePrefix("2001:db8::1/64")))
	must(t, m.Links.SetUp(ctx, a, true))

	there := s.handle(t, path)
	for _, address := range []string{"192.0.2.7", "2001:db8::7"} {
		stale := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		must(t, there.NeighSet(&vnl.Neigh{LinkIndex: in[i].Ifindex, State: vnl.NUD_STALE, IP: net.ParseIP(address), HardwareAddr: stale}))
		must(t, m.Links.Announce(ctx, a, netip.MustParseAddr(address)))
		learnt := func() bool {
			list, err := there.NeighList(in[i].Ifindex, 0)
			must(t, err)
			return slices.ContainsFunc(list, func(n vnl.Neigh) bool {
				return n.IP.Equal(net.ParseIP(address)) && slices.Equal(n.HardwareAddr, mac[:])
			})
		}
		for end := time.Now().Add(10 * time.Second); !learnt(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the neighbour still has the old address", address)
			}
		}
	}
}

// Machines of many namespaces are used from many goroutines, and every thread
// stays at home.
func TestThreadsStayAtHome(t *testing.T) {
	m, s := inNew(t)
	ctx := t.Context()
	home, err := identify(netlink.ThreadNetns)
	must(t, err)
	var paths []string
	for range 4 {
		p := s.addNetns(t)
		s.addLink(t, p, "a")
		paths = append(paths, p)
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			path := paths[g%len(paths)]
			for range 10 {
				ns, err := m.Netns.Open(ctx, path)
				if err != nil {
					t.Error(err)
					return
				}
				list, err := ns.Links(ctx)
				if err != nil || len(list) < 3 {
					t.Errorf("%d links, %v", len(list), err)
				}
				if i := slices.IndexFunc(list, func(l host.Link) bool { return l.Name == "a" }); i < 0 {
					t.Error("another namespace's interfaces")
				} else if err := ns.SetUp(ctx, list[i].Ifindex, true); err != nil {
					t.Error(err)
				} else if err := ns.Announce(ctx, list[i].Ifindex, netip.MustParseAddr("192.0.2.1")); err != nil {
					t.Error(err)
				}
				if here, err := identify(netlink.ThreadNetns); err != nil || here != home {
					t.Errorf("a thread is in %v, %v", here, err)
				}
				if err := ns.Close(); err != nil {
					t.Error(err)
				}
				if err := ns.Close(); !errors.Is(err, fs.ErrClosed) {
					t.Errorf("closed twice: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzAddress(f *testing.F) {
	f.Add(append([]byte{unix.AF_INET, 24, 0, 0, 1, 0, 0, 0}, netlink.Attr(unix.IFA_LOCAL, []byte{192, 0, 2, 1}).Serialize()...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, p := parseAddress(b); p.IsValid() && p.Bits() > p.Addr().BitLen() {
			t.Errorf("%v", p)
		}
	})
}

func FuzzRoute(f *testing.F) {
	head := []byte{unix.AF_INET, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0}
	f.Add(slices.Concat(head, netlink.Attr(unix.RTA_DST, []byte{192, 0, 2, 0}).Serialize(), netlink.Attr(unix.RTA_OIF, nl.Uint32Attr(3)).Serialize(),
		netlink.Nest(unix.RTA_METRICS, netlink.Attr(unix.RTAX_MTU, nl.Uint32Attr(1400))).Serialize()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, _, ok := parseRoute(b); ok && !r.Dst.IsValid() {
			t.Errorf("%+v", r)
		}
	})
}

// Older kernels do not tell parents; sysfs does.
func TestParentBySysfs(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(root+"/class/net/eth0", 0o700))
	must(t, os.MkdirAll(root+"/class/net/eth1", 0o700))
	must(t, os.Symlink("../../../0000:03:00.0", root+"/class/net/eth0/device"))
	must(t, os.Symlink("../../../virtio1", root+"/class/net/eth1/device"))
	l := &links{sys: root}
	for name, want := range map[string]string{"eth0": "0000:03:00.0", "eth1": "", "eth2": ""} {
		if got := l.parentBySysfs(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := (&links{}).parentBySysfs("eth0"); got != "" {
		t.Errorf("without a sysfs of its own: %q", got)
	}
}

// One list of a node's interfaces: 2 x 128 VFs with their representors.
func BenchmarkLinks(b *testing.B) {
	m, s := inNew(b)
	h, err := vnl.NewHandleAt(nsHandle(s.home), unix.NETLINK_ROUTE)
	must(b, err)
	defer h.Close()
	for i := range 256 {
		a := vnl.NewLinkAttrs()
		a.Name = fmt.Sprintf("v%d", i)
		must(b, h.LinkAdd(&vnl.Veth{LinkAttrs: a, PeerName: fmt.Sprintf("r%d", i)}))
	}
	b.ReportAllocs()
	for b.Loop() {
		list, err := m.Links.Links(context.Background())
		if err != nil || len(list) < 512 {
			b.Fatalf("%d links, %v", len(list), err)
		}
	}
}

// kernelKeepsQuiet says that the kernel does not tell before a move that it would refuse.
func kernelKeepsQuiet(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	release := unix.ByteSliceToString(u.Release[:])
	return strings.HasPrefix(release, "6.13.") || strings.HasPrefix(release, "6.14.")
}
