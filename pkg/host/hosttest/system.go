package hosttest

import (
	"context"
	"io/fs"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func systemRules() []rule {
	return []rule{
		when("pci/function", oneFunction, SRIOV),
		when("devlink/port", onePort, SRIOV, Eswitch),
		when("links/uses", uses, Software, Uses),
		when("rdma/mode/fixed", rdmaFixed, RDMAModes, Namespaces),
		when("rdma/mode/at boot", rdmaAtBoot, RDMAModes),
		when("rdma/mode/impossible", rdmaImpossible, RDMAModes),
		when("rdma/move", moveRDMA, SRIOV, RDMA, RDMAModes, Namespaces),
		when("rdma/move/nothing", moveNoRDMA, Namespaces),
		when("watch", watch, Watch, Software),
		when("watch/ends", watchEnds, Watch),
		when("watch/followed", followed, Watch, SRIOV),
		when("watch/followed SFs", followedSFs, Watch, SFs),
	}
}

// oneFunction: read by itself a function is as in the list.
func oneFunction(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 2, true)[1]
	for _, address := range []string{f.PFs[0].Name, v.Address} {
		got, err := f.Machine.PCI.Function(t.Context(), address)
		must(t, err)
		var netdevs []int
		all, err := f.Machine.Links.Links(t.Context())
		must(t, err)
		for _, l := range all {
			if l.Parent == address {
				netdevs = append(netdevs, l.Ifindex)
			}
		}
		slices.Sort(netdevs)
		want := function(t, f, address)
		want.Netdevs = netdevs
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("in the list and by itself:\n%s", d)
		}
	}
	_, err := f.Machine.PCI.Function(t.Context(), nowhere)
	checkError(t, err, fs.ErrNotExist, nowhere)
}

func onePort(t *testing.T, f Fixture) {
	h := f.PFs[0]
	setMode(t, f, h, nic.Switchdev)
	makeVFs(t, f, h, 2, false)
	all, err := f.Machine.Devlink.Ports(t.Context())
	must(t, err)
	n := 0
	for _, want := range all {
		if want.Handle != h {
			continue
		}
		n++
		got, err := f.Machine.Devlink.Port(t.Context(), h, want.Index)
		must(t, err)
		if got != want {
			t.Errorf("by itself %+v, in the list %+v", got, want)
		}
	}
	if n < 2 { // the PF's own may be of another instance, as mlx5's is
		t.Errorf("%d ports of a PF with 2 VFs", n)
	}
	for _, no := range []nic.Handle{h, nic.PCI(nowhere)} {
		_, err = f.Machine.Devlink.Port(t.Context(), no, 0xfffe0000)
		checkError(t, err, fs.ErrNotExist, no.String())
	}
}

// uses: addresses and default routes are told with the interface that has them; a
// default route of the machine's own stays the best by its priority.
func uses(t *testing.T, f Fixture) {
	l := f.Machine.Links
	i := f.AddLink(t, "", "slc0")
	must(t, l.SetUp(t.Context(), i, true))
	must(t, l.AddAddress(t.Context(), i, netip.MustParsePrefix("192.0.2.7/24")))
	must(t, l.AddRoute(t.Context(), i, host.Route{
		Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Priority: 4000,
	}))
	must(t, l.AddRoute(t.Context(), i, host.Route{
		Dst: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("192.0.2.1"),
	}))
	all, err := l.Uses(t.Context())
	must(t, err)
	var got []string
	for _, u := range all {
		if u.Ifindex == i {
			got = append(got, u.What)
		}
	}
	slices.Sort(got)
	if want := []string{"address 192.0.2.7/24", "the default route"}; !slices.Equal(got, want) {
		t.Errorf("uses %q: want %q", got, want)
	}
	for _, a := range []string{"192.0.2.9", "198.51.100.1"} {
		if to, err := l.RouteTo(t.Context(), netip.MustParseAddr(a)); err != nil || to != i {
			t.Errorf("packets to %s go through %d, %v: want %d", a, to, err, i)
		}
	}
	_, err = l.RouteTo(t.Context(), netip.MustParseAddr("2001:db8:ffff::1"))
	checkError(t, err, fs.ErrNotExist, "2001:db8:ffff::1")
}

// rdmaFixed: while there are other network namespaces the mode stays
// (drivers/infiniband/core/device.c, rdma_compatdev_set).
func rdmaFixed(t *testing.T, f Fixture) {
	was := rdmaSystem(t, f)
	if was.Mode != nic.RDMAShared && was.Mode != nic.RDMAExclusive {
		t.Fatalf("%+v", was)
	}
	want := nic.RDMAExclusive
	if was.Mode == want {
		want = nic.RDMAShared
	}
	path := f.AddNetns(t)
	if !rdmaSystem(t, f).Fixed {
		t.Error("not fixed although there is another namespace")
	}
	refused(t, f, host.ErrBusy, "", func() error { return f.Machine.RDMA.SetMode(t.Context(), want) })
	untouched(t, f, func() { must(t, f.Machine.RDMA.SetMode(t.Context(), was.Mode)) })
	f.DeleteNetns(t, path)
	if was.Fixed {
		return // others' namespaces
	}
	eventually(t, "the mode can be changed again", func() bool { return !rdmaSystem(t, f).Fixed })
	for _, m := range []nic.RDMAMode{want, was.Mode} {
		must(t, f.Machine.RDMA.SetMode(t.Context(), m))
		if got := rdmaSystem(t, f).Mode; got != m {
			t.Errorf("mode %q right after it was set to %q", got, m)
		}
	}
}

func rdmaSystem(t *testing.T, f Fixture) nic.RDMA {
	t.Helper()
	s, err := f.Machine.RDMA.System(t.Context())
	must(t, err)
	return s
}

func rdmaAtBoot(t *testing.T, f Fixture) {
	was := rdmaSystem(t, f)
	modes := []nic.RDMAMode{nic.RDMAExclusive, nic.RDMAShared}
	if was.AtBoot == "" {
		modes = append(modes, "") // there was none, and there is none again
	}
	for _, m := range modes {
		set := func() { must(t, f.Machine.RDMA.SetModeAtBoot(t.Context(), m)) }
		set()
		if got := rdmaSystem(t, f); got.AtBoot != m || got.Mode != was.Mode {
			t.Errorf("%+v right after %q was set for the next boot", got, m)
		}
		untouched(t, f, set)
	}
}

func rdmaImpossible(t *testing.T, f Fixture) {
	refused(t, f, host.ErrInvalid, "", func() error { return f.Machine.RDMA.SetMode(t.Context(), "sideways") })
	refused(t, f, host.ErrInvalid, "", func() error { return f.Machine.RDMA.SetModeAtBoot(t.Context(), "sideways") })
}

// changed waits for word of a change, and takes what else is there.
func changed(t *testing.T, what string, c <-chan host.Change) {
	t.Helper()
	select {
	case got, ok := <-c:
		if !ok || got.What == "" {
			t.Errorf("%s: told %+v, channel open %v", what, got, ok)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing was told within 30 s", what)
	}
	quiet(c)
}

// quiet takes what is told until nothing more comes for a while.
func quiet(c <-chan host.Change) {
	for {
		select {
		case _, ok := <-c:
			if !ok {
				return
			}
		case <-time.After(100 * time.Millisecond):
			return
		}
	}
}

func watch(t *testing.T, f Fixture) {
	c, err := f.Machine.Watch.Changes(t.Context())
	must(t, err)
	quiet(c)
	i := f.AddLink(t, "", "slc0")
	changed(t, "a new interface", c)
	must(t, f.Machine.Links.SetUp(t.Context(), i, true))
	changed(t, "an interface up", c)
	must(t, f.Machine.Links.AddAddress(t.Context(), i, netip.MustParsePrefix("192.0.2.7/24")))
	changed(t, "an address", c)
	if _, lacks := f.Lacks[SRIOV]; !lacks {
		must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 1))
		changed(t, "a VF", c)
	}
	if _, lacks := f.Lacks[Eswitch]; !lacks {
		must(t, f.Machine.PCI.SetVFs(t.Context(), f.PFs[0].Name, 0))
		changed(t, "no VF", c)
		setMode(t, f, f.PFs[0], nic.Switchdev)
		changed(t, "a mode", c)
	}
}

// watchEnds: the channel is closed with the context.
func watchEnds(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := f.Machine.Watch.Changes(ctx)
	must(t, err)
	cancel()
	for end := time.After(30 * time.Second); ; {
		select {
		case _, ok := <-c:
			if !ok {
				return
			}
		case <-end:
			t.Fatal("the channel is open 30 s after the context has ended")
		}
	}
}
