package hosttest

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func contextRules() []rule {
	return []rule{
		when("context/cancelled before", cancelledBefore, SRIOV),
		when("context/cancelled within", cancelledWithin, SRIOV),
	}
}

// cancelledBefore: a call with a context that has ended says so and does nothing.
func cancelledBefore(t *testing.T, f Fixture) {
	v := makeVFs(t, f, f.PFs[0], 1, true)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, pf, i := f.Machine, f.PFs[0].Name, v.Netdev.Ifindex
	calls := []func() error{
		func() error { return m.PCI.SetVFs(ctx, pf, 0) },
		func() error { return m.PCI.SetAutoprobe(ctx, pf, false) },
		func() error { return m.PCI.Unbind(ctx, v.Address) },
		func() error { return m.Links.SetMTU(ctx, i, v.Netdev.MTU-100) },
		func() error { return m.Links.SetMAC(ctx, i, address(1)) },
		func() error { return m.Links.SetName(ctx, i, "slc0") },
		func() error { return m.Links.SetUp(ctx, i, !v.Netdev.Up) },
		func() error { return m.Links.AddAddress(ctx, i, netip.MustParsePrefix("192.0.2.7/32")) },
		func() error { _, err := m.PCI.Functions(ctx); return err },
		func() error { _, err := m.Devlink.Devices(ctx); return err },
		func() error { _, err := m.Devlink.Ports(ctx); return err },
		func() error { _, err := m.Links.Links(ctx); return err },
		func() error { _, err := m.RDMA.Devices(ctx); return err },
		func() error { _, err := host.Observe(ctx, m); return err },
	}
	if _, lacks := f.Lacks[Eswitch]; !lacks {
		calls = append(calls, func() error { return m.Devlink.SetEswitch(ctx, f.PFs[0], nic.Switchdev) })
	}
	for _, do := range calls {
		before := read(t, f)
		err := do()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v: want errors.Is %v", err, context.Canceled)
		}
		sameSnapshot(t, before, read(t, f))
	}
}

// cancelledWithin: whenever the context ends, the PF has none of its VFs or all of
// them, and another call brings it to where it was to go.
func cancelledWithin(t *testing.T, f Fixture) {
	h := f.PFs[0]
	must(t, f.Machine.PCI.SetAutoprobe(t.Context(), h.Name, true))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Machine.PCI.SetVFs(ctx, h.Name, 2) }()
	cancel()
	err := <-done
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want nil or errors.Is %v", err, context.Canceled)
	}
	if n := len(observePF(t, f, h).VFs); n != 0 && n != 2 {
		t.Errorf("%d VFs: want 0 or 2", n)
	}
	for _, v := range makeVFs(t, f, h, 2, true) {
		if !v.Netdev.Exists() {
			t.Errorf("VF %d has no netdev after all: %+v", v.Index, v)
		}
	}
	_, err = f.Machine.Netns.Open(ctx, "/run/netns/no-such-namespace")
	if !errors.Is(err, context.Canceled) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: want either of %v and %v", err, context.Canceled, fs.ErrNotExist)
	}
}
