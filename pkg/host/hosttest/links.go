package hosttest

import (
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// subject is an interface of the host's namespace for the rules that hold of any.
type subject struct {
	kind  string
	needs Capability
	make  func(t *testing.T, f Fixture) (ifindex int)
}

func subjects() []subject {
	return []subject{
		{"vf", SRIOV, func(t *testing.T, f Fixture) int {
			return makeVFs(t, f, f.PFs[0], 1, true)[0].Netdev.Ifindex
		}},
		{"software", Software, func(t *testing.T, f Fixture) int { return f.AddLink(t, "", "slc0") }},
	}
}

func linkRules() []rule {
	out := []rule{when("links/nowhere", noLink), when("links/not a pf", notAPF, Software)}
	for _, s := range subjects() {
		add := func(name string, run func(*testing.T, Fixture, int), needs ...Capability) {
			on := func(t *testing.T, f Fixture) { run(t, f, s.make(t, f)) }
			out = append(out, when("links/"+s.kind+"/"+name, on, append(needs, s.needs)...))
		}
		add("read", readLink)
		add("mtu", mtu)
		add("mac", mac)
		add("up", up)
		add("promiscuous", promiscuous)
		add("alternative names", altNames, Software)
		add("name", name)
		add("name/taken", nameTaken, Software)
		add("name/impossible", impossibleNames)
		add("addresses", addresses, Namespaces)
		add("routes", routes, Namespaces)
	}
	return out
}

// noIfindex is one that no namespace has given out yet.
const noIfindex = 1 << 30

func promiscuous(t *testing.T, f Fixture, ifindex int) {
	l := f.Machine.Links
	for _, on := range []bool{true, false, false} {
		must(t, l.SetPromisc(t.Context(), ifindex, on))
		if got := linkAt(t, l, ifindex); got.Promisc != on {
			t.Fatalf("set %v: %+v", on, got)
		}
	}
}

func altNames(t *testing.T, f Fixture, ifindex int) {
	l, other := f.Machine.Links, f.AddLink(t, "", "slc7")
	before := linkAt(t, l, ifindex).AltNames // udev may give some
	for range 2 {
		must(t, l.SetAltName(t.Context(), ifindex, "slcalternative", true))
	}
	checkError(t, l.SetAltName(t.Context(), other, "slcalternative", true), fs.ErrExist, "slc7")
	if got := linkAt(t, l, ifindex).AltNames; !slices.Contains(got, "slcalternative") || len(got) != len(before)+1 {
		t.Errorf("%q, before %q", got, before)
	}
	for range 2 {
		must(t, l.SetAltName(t.Context(), ifindex, "slcalternative", false))
	}
	if got := linkAt(t, l, ifindex).AltNames; len(got) != len(before) {
		t.Errorf("%q, before %q", got, before)
	}
}

func noLink(t *testing.T, f Fixture) {
	ctx, l := t.Context(), f.Machine.Links
	for _, do := range []func() error{
		func() error { return l.SetMTU(ctx, noIfindex, 1400) },
		func() error { return l.SetMAC(ctx, noIfindex, address(1)) },
		func() error { return l.SetUp(ctx, noIfindex, true) },
		func() error { return l.SetName(ctx, noIfindex, "slc9") },
		func() error { return l.SetVFMAC(ctx, noIfindex, 0, address(1)) },
		func() error { return l.AddAddress(ctx, noIfindex, netip.MustParsePrefix("192.0.2.1/24")) },
		func() error {
			return l.AddRoute(ctx, noIfindex, host.Route{Dst: netip.MustParsePrefix("192.0.2.0/24")})
		},
		func() error { return l.Announce(ctx, noIfindex, netip.MustParseAddr("192.0.2.1")) },
		func() error { _, err := l.Link(ctx, noIfindex); return err },
		func() error { _, err := l.Addresses(ctx, noIfindex); return err },
		func() error { _, err := l.Routes(ctx, noIfindex); return err },
	} {
		refused(t, f, fs.ErrNotExist, "", do)
	}
}

// notAPF: what has no VFs takes no address for one.
func notAPF(t *testing.T, f Fixture) {
	ifindex := f.AddLink(t, "", "slc0")
	refused(t, f, nil, "", func() error { return f.Machine.Links.SetVFMAC(t.Context(), ifindex, 0, address(1)) })
}

func readLink(t *testing.T, f Fixture, ifindex int) {
	all, err := f.Machine.Links.Links(t.Context())
	must(t, err)
	for i, l := range all {
		if i > 0 && l.Ifindex <= all[i-1].Ifindex {
			t.Errorf("%s (%d) after %s (%d)", l.Name, l.Ifindex, all[i-1].Name, all[i-1].Ifindex)
		}
	}
	i := slices.IndexFunc(all, func(l host.Link) bool { return l.Ifindex == ifindex })
	if i < 0 {
		t.Fatalf("no interface %d", ifindex)
	}
	one := linkAt(t, f.Machine.Links, ifindex)
	if one.Netdev != all[i].Netdev || one.Parent != all[i].Parent || one.Kind != all[i].Kind {
		t.Errorf("by itself %+v, in the list %+v", one, all[i])
	}
	if one.MTU < 68 || !one.MAC.IsUnicast() {
		t.Errorf("%+v", one)
	}
}

func mtu(t *testing.T, f Fixture, ifindex int) {
	l := f.Machine.Links
	want := linkAt(t, l, ifindex).MTU - 100
	set := func() { must(t, l.SetMTU(t.Context(), ifindex, want)) }
	set()
	if got := linkAt(t, l, ifindex).MTU; got != want {
		t.Errorf("MTU %d: want %d", got, want)
	}
	untouched(t, f, set)
	impossible := []int{-1}
	if linkAt(t, l, ifindex).Parent != "" { // some software interfaces take anything
		impossible = append(impossible, 10, 1<<20)
	}
	for _, bad := range impossible {
		refused(t, f, nil, "", func() error { return l.SetMTU(t.Context(), ifindex, bad) })
	}
}

func mac(t *testing.T, f Fixture, ifindex int) {
	l := f.Machine.Links
	set := func() { must(t, l.SetMAC(t.Context(), ifindex, address(2))) }
	set()
	if got := linkAt(t, l, ifindex).MAC; got != address(2) {
		t.Errorf("address %s: want %s", got, address(2))
	}
	untouched(t, f, set)
	for _, bad := range []nic.MAC{{}, {1, 0, 0, 0, 0, 1}} {
		refused(t, f, nil, "", func() error { return l.SetMAC(t.Context(), ifindex, bad) })
	}
}

func up(t *testing.T, f Fixture, ifindex int) {
	l := f.Machine.Links
	for _, want := range []bool{true, false, true} {
		set := func() { must(t, l.SetUp(t.Context(), ifindex, want)) }
		set()
		if got := linkAt(t, l, ifindex).Up; got != want {
			t.Errorf("up %v: want %v", got, want)
		}
		untouched(t, f, set)
	}
}

func name(t *testing.T, f Fixture, ifindex int) {
	l := f.Machine.Links
	for i, isUp := range []bool{false, true} {
		want := []string{"slc7", "slc8"}[i]
		must(t, l.SetUp(t.Context(), ifindex, isUp))
		set := func() { must(t, l.SetName(t.Context(), ifindex, want)) }
		set()
		if got := linkAt(t, l, ifindex); got.Name != want || got.Up != isUp {
			t.Errorf("%+v: want name %s and up %v", got, want, isUp)
		}
		untouched(t, f, set)
	}
}

func nameTaken(t *testing.T, f Fixture, ifindex int) {
	other := f.AddLink(t, "", "slc1")
	f.AddAltName(t, "", other, "slc-alternative-name")
	f.AddAltName(t, "", other, "slcalt")
	if got := linkAt(t, f.Machine.Links, other).AltNames; !slices.Contains(got, "slcalt") {
		t.Errorf("alternative names %q: want slcalt among them", got)
	}
	for _, taken := range []string{"slc1", "slcalt"} {
		refused(t, f, fs.ErrExist, "", func() error { return f.Machine.Links.SetName(t.Context(), ifindex, taken) })
	}
}

func impossibleNames(t *testing.T, f Fixture, ifindex int) {
	for _, bad := range []string{"", ".", "..", "a/b", "a b", "a:b", "slc%d", strings.Repeat("x", 16)} {
		refused(t, f, nil, "", func() error { return f.Machine.Links.SetName(t.Context(), ifindex, bad) })
	}
}

// inside moves an interface into a namespace of its own, where addresses and
// routes do no harm, and returns it there.
func inside(t *testing.T, f Fixture, ifindex int) (host.NetnsLinks, host.Link) {
	t.Helper()
	path := f.AddNetns(t)
	name := linkAt(t, f.Machine.Links, ifindex).Name
	must(t, f.Machine.Links.Move(t.Context(), ifindex, path))
	ns := open(t, f, path)
	l, ok := linkNamed(t, ns, name)
	if !ok {
		t.Fatalf("no %s in %s right after it was moved there", name, path)
	}
	return ns, l
}

func addresses(t *testing.T, f Fixture, ifindex int) {
	ns, l := inside(t, f, ifindex)
	must(t, ns.SetUp(t.Context(), l.Ifindex, true)) // link local addresses come with it
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("2001:db8::7/64")}
	for _, a := range want {
		add := func() { must(t, ns.AddAddress(t.Context(), l.Ifindex, a)) }
		add()
		untouched(t, f, add)
	}
	got, err := ns.Addresses(t.Context(), l.Ifindex)
	must(t, err)
	if len(got) != 2 || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Errorf("addresses %v: want %v", got, want)
	}
	checkError(t, ns.AddAddress(t.Context(), l.Ifindex, netip.Prefix{}), nil, "")
	sysctl(t, ns, l.Ifindex)
	for _, a := range want {
		must(t, ns.Announce(t.Context(), l.Ifindex, a.Addr()))
	}
}

// sysctl: what is set of one interface is read back, and is none of the default's.
func sysctl(t *testing.T, ns host.NetnsLinks, ifindex int) {
	const name = "net.ipv4.conf.IFNAME.arp_notify"
	must(t, ns.SetSysctl(t.Context(), ifindex, name, "1"))
	for at, want := range map[int]string{ifindex: "1", host.DefaultSysctl: "0"} {
		if got, err := ns.Sysctl(t.Context(), at, name); err != nil || got != want {
			t.Errorf("%s of %d is %q, want %q: %v", name, at, got, want, err)
		}
	}
	_, err := ns.Sysctl(t.Context(), host.DefaultSysctl, "net.ipv4.conf.IFNAME.no_such_thing")
	checkError(t, err, fs.ErrNotExist, "")
	checkError(t, ns.SetSysctl(t.Context(), ifindex, name, "much"), host.ErrInvalid, "")
}

func routes(t *testing.T, f Fixture, ifindex int) {
	ns, l := inside(t, f, ifindex)
	via := func(dst, gateway string) host.Route {
		r := host.Route{Dst: netip.MustParsePrefix(dst)}
		if gateway != "" {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		return r
	}
	must(t, ns.AddAddress(t.Context(), l.Ifindex, netip.MustParsePrefix("192.0.2.7/24")))
	checkError(t, ns.AddRoute(t.Context(), l.Ifindex, via("0.0.0.0/0", "192.0.2.1")), nil, "") // it is down
	must(t, ns.SetUp(t.Context(), l.Ifindex, true))
	must(t, ns.AddAddress(t.Context(), l.Ifindex, netip.MustParsePrefix("2001:db8::7/64")))
	if got, err := ns.Routes(t.Context(), l.Ifindex); err != nil || len(got) != 0 {
		t.Errorf("routes %v, %v: want none but the kernel's, which are not told", got, err)
	}
	special := via("198.51.100.0/24", "192.0.2.2")
	special.MTU, special.AdvMSS, special.Priority = 1400, 1300, 77
	want := []host.Route{
		via("0.0.0.0/0", "192.0.2.1"), via("::/0", "2001:db8::1"), via("203.0.113.0/24", ""), special,
	}
	for _, r := range want {
		add := func() { must(t, ns.AddRoute(t.Context(), l.Ifindex, r)) }
		add()
		untouched(t, f, add)
	}
	got, err := ns.Routes(t.Context(), l.Ifindex)
	must(t, err)
	for _, r := range want {
		if !slices.Contains(got, r) {
			t.Errorf("no route %+v", r)
		}
	}
	if len(got) != len(want) {
		t.Errorf("routes %+v: want %+v", got, want)
	}
	for _, bad := range []host.Route{
		via("198.51.100.0/25", "10.9.8.7"), // unreachable
		via("203.0.113.0/24", "192.0.2.3"), // another one to there
		{},
	} {
		checkError(t, ns.AddRoute(t.Context(), l.Ifindex, bad), nil, "")
	}
}
