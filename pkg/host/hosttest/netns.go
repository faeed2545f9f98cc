package hosttest

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func netnsRules() []rule {
	return []rule{
		when("netns/open", openNetns, Namespaces),
		when("netns/move/software", moveSoftware, Namespaces, Software),
		when("netns/move/vf", moveVF, Namespaces, SRIOV),
		when("netns/move/nowhere", moveNowhere, Namespaces, SRIOV),
		when("netns/move/clash", moveClash, Namespaces, SRIOV, Software),
		when("netns/move/under another name", moveRenamed, Namespaces, SRIOV),
		when("netns/unbind inside", unbindInside, Namespaces, SRIOV),
		when("netns/no vfs left", noVFsLeft, Namespaces, SRIOV),
		when("netns/gone", netnsGone, Namespaces, SRIOV),
		when("netns/pair", pair, Namespaces, Software),
		when("netns/netkit", netkit, Namespaces, Software, Netkit),
		unless(Netkit, "netns/no netkit", noNetkit, Namespaces, Software),
		when("netns/gone/clash", netnsGoneClash, Namespaces, SRIOV, Software),
	}
}

func openNetns(t *testing.T, f Fixture) {
	_, err := f.Machine.Netns.Open(t.Context(), "/run/netns/no-such-namespace")
	checkError(t, err, fs.ErrNotExist, "/run/netns/no-such-namespace")
	if f.NotNetns != "" {
		_, err = f.Machine.Netns.Open(t.Context(), f.NotNetns)
		checkError(t, err, nil, f.NotNetns)
		if errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), f.NotNetns) {
			t.Errorf("%v: it is there, it is no namespace", err)
		}
	}
	a, b := f.AddNetns(t), f.AddNetns(t)
	one, again, other := open(t, f, a), open(t, f, a), open(t, f, b)
	if one.ID() == "" || one.ID() != again.ID() || one.ID() == other.ID() {
		t.Errorf("namespaces %s: %q and %q, %s: %q", a, one.ID(), again.ID(), b, other.ID())
	}
	if l, ok := linkNamed(t, one, "lo"); !ok || l.Parent != "" {
		t.Errorf("lo: %+v, %v", l, ok)
	}
	must(t, one.Close())
	if _, err := one.Links(t.Context()); err == nil {
		t.Error("it is closed and can still be read")
	}
	if _, ok := linkNamed(t, again, "lo"); !ok {
		t.Error("closing one handle closed the other")
	}
}

func moveSoftware(t *testing.T, f Fixture) {
	ifindex := f.AddLink(t, "", "slc0")
	ns, l := inside(t, f, ifindex)
	if _, ok := linkNamed(t, f.Machine.Links, "slc0"); ok {
		t.Error("it is still in the host's namespace")
	}
	must(t, ns.Move(t.Context(), l.Ifindex, ""))
	if _, ok := linkNamed(t, f.Machine.Links, "slc0"); !ok {
		t.Error("it did not come back")
	}
}

// moveVF: what a move keeps (name, MAC, MTU), what it drops (up, addresses), and
// how it shows from the host.
func moveVF(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	l := f.Machine.Links
	must(t, l.SetMTU(t.Context(), v.Netdev.Ifindex, v.Netdev.MTU-100))
	must(t, l.SetMAC(t.Context(), v.Netdev.Ifindex, address(3)))
	must(t, l.SetUp(t.Context(), v.Netdev.Ifindex, true))
	must(t, l.AddAddress(t.Context(), v.Netdev.Ifindex, netip.MustParsePrefix("192.0.2.7/32")))

	untouched(t, f, func() { must(t, l.Move(t.Context(), v.Netdev.Ifindex, "")) })
	ns, in := inside(t, f, v.Netdev.Ifindex)
	if in.MTU != v.Netdev.MTU-100 || in.MAC != address(3) || in.Up || in.Parent != v.Address {
		t.Errorf("inside: %+v", in)
	}
	if a, err := ns.Addresses(t.Context(), in.Ifindex); err != nil || len(a) != 0 {
		t.Errorf("addresses %v, %v inside: want none", a, err)
	}
	got := observePF(t, f, h).VFs[0]
	if !got.Away || got.Netdev.Exists() || got.Driver != v.Driver {
		t.Errorf("seen from the host: %+v", got)
	}
	must(t, ns.Move(t.Context(), in.Ifindex, ""))
	got = observePF(t, f, h).VFs[0]
	if got.Away || got.Netdev.Name != v.Netdev.Name || got.Netdev.MAC != address(3) {
		t.Errorf("come back: %+v", got)
	}
}

func moveNowhere(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 1, true)[0]
	refused(t, f, fs.ErrNotExist, "", func() error {
		return f.Machine.Links.Move(t.Context(), v.Netdev.Ifindex, "/run/netns/no-such-namespace")
	})
	if f.NotNetns != "" {
		refused(t, f, nil, "", func() error { return f.Machine.Links.Move(t.Context(), v.Netdev.Ifindex, f.NotNetns) })
	}
}

// moveClash: a name that is taken where the interface goes, there or back, be the
// one or the other an alternative one.
func moveClash(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	l := f.Machine.Links
	must(t, l.SetName(t.Context(), v.Netdev.Ifindex, "slc5"))
	path := f.AddNetns(t)
	f.AddAltName(t, path, f.AddLink(t, path, "slc4"), "slc5")
	refused(t, f, fs.ErrExist, "", func() error { return l.Move(t.Context(), v.Netdev.Ifindex, path) })
	must(t, l.SetName(t.Context(), v.Netdev.Ifindex, "slc4"))
	refused(t, f, fs.ErrExist, "", func() error { return l.Move(t.Context(), v.Netdev.Ifindex, path) })

	must(t, l.SetName(t.Context(), v.Netdev.Ifindex, "slc6"))
	must(t, l.Move(t.Context(), v.Netdev.Ifindex, path))
	f.AddLink(t, "", "slc6")
	ns := open(t, f, path)
	in, _ := linkNamed(t, ns, "slc6")
	if in.Ifindex == 0 {
		t.Fatalf("no slc6 in %s", path)
	}
	refused(t, f, fs.ErrExist, "", func() error { return ns.Move(t.Context(), in.Ifindex, "") })
	if _, ok := linkNamed(t, ns, "slc6"); !ok {
		t.Error("a refused move took it out of its namespace")
	}
	must(t, ns.SetName(t.Context(), in.Ifindex, "slc7"))
	f.AddAltName(t, path, in.Ifindex, "slc6")
	refused(t, f, fs.ErrExist, "", func() error { return ns.Move(t.Context(), in.Ifindex, "") })
}

func moveRenamed(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	ns, in := inside(t, f, v.Netdev.Ifindex)
	must(t, ns.SetName(t.Context(), in.Ifindex, "eth0"))
	must(t, ns.SetUp(t.Context(), in.Ifindex, true))
	if got, ok := linkNamed(t, ns, "eth0"); !ok || !got.Up {
		t.Errorf("inside: %+v, %v", got, ok)
	}
	must(t, ns.SetName(t.Context(), in.Ifindex, "slc3"))
	must(t, ns.Move(t.Context(), in.Ifindex, ""))
	if got := observePF(t, f, h).VFs[0]; got.Netdev.Name != "slc3" || got.Netdev.Up {
		t.Errorf("come back: %+v", got)
	}
}

func unbindInside(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	ns, in := inside(t, f, v.Netdev.Ifindex)
	must(t, f.Machine.PCI.Unbind(t.Context(), v.Address))
	if _, ok := linkNamed(t, ns, in.Name); ok {
		t.Error("it is unbound, and its netdev is still in the namespace")
	}
	if got := observePF(t, f, h).VFs[0]; got.Away || got.Driver != "" {
		t.Errorf("%+v", got)
	}
	must(t, f.Machine.PCI.Bind(t.Context(), v.Address, ""))
	if got := observePF(t, f, h).VFs[0]; !got.Netdev.Exists() || got.Away {
		t.Errorf("bound again: %+v", got)
	}
}

func noVFsLeft(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	ns, in := inside(t, f, v.Netdev.Ifindex)
	must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, 0))
	if _, ok := linkNamed(t, ns, in.Name); ok {
		t.Error("there are no VFs, and the netdev of one is still in the namespace")
	}
}

// netnsGone: a namespace that ends gives hardware interfaces back to the host
// (net/core/dev.c, default_device_exit_net).
func netnsGone(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	path := f.AddNetns(t)
	must(t, f.Machine.Links.Move(t.Context(), v.Netdev.Ifindex, path))
	id := open(t, f, path)
	old := id.ID()
	must(t, id.Close())
	f.DeleteNetns(t, path)
	_, err := f.Machine.Netns.Open(t.Context(), path)
	checkError(t, err, fs.ErrNotExist, path)
	var got nic.VF
	eventually(t, "the VF's netdev is back on the host", func() bool {
		got = observePF(t, f, h).VFs[0]
		return got.Netdev.Exists() && !got.Away
	})
	if got.Netdev.Name != v.Netdev.Name {
		t.Errorf("it came back as %s: want %s", got.Netdev.Name, v.Netdev.Name)
	}
	if next := open(t, f, f.AddNetns(t)); next.ID() == old {
		t.Errorf("another namespace has the ID %q of one that is gone", old)
	}
}

func netnsGoneClash(t *testing.T, f Fixture) {
	h := f.PFs[0]
	v := makeVFs(t, f, h, 1, true)[0]
	path := f.AddNetns(t)
	must(t, f.Machine.Links.Move(t.Context(), v.Netdev.Ifindex, path))
	taken := f.AddLink(t, "", v.Netdev.Name)
	f.DeleteNetns(t, path)
	var got nic.VF
	eventually(t, "the VF's netdev is back on the host", func() bool {
		got = observePF(t, f, h).VFs[0]
		return got.Netdev.Exists() && !got.Away
	})
	if !strings.HasPrefix(got.Netdev.Name, "dev") || got.Netdev.Ifindex == taken {
		t.Errorf("it came back as %+v, %s being taken: want devN", got.Netdev, v.Netdev.Name)
	}
	all, err := f.Machine.Links.Links(t.Context())
	must(t, err)
	if n := len(slices.DeleteFunc(all, func(l host.Link) bool { return l.Name != v.Netdev.Name })); n != 1 {
		t.Errorf("%d interfaces are called %s", n, v.Netdev.Name)
	}
}
