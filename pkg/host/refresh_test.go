package host_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// What Refresh reads of a VF is what Observe reads of it, after whatever has been
// done to the VF.
func TestRefreshIsObserve(t *testing.T) {
	s, err := sim.New(sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 3, Mode: nic.Switchdev}}})
	if err != nil {
		t.Fatal(err)
	}
	m, ctx := s.Machine(), t.Context()
	old, err := host.Observe(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	id := nic.VFID{PF: old.PFs[0].Handle, Index: 1}
	vf := old.PFs[0].VFs[1]
	pf := old.PFs[0]
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"MTU", func() error { return m.Links.SetMTU(ctx, vf.Netdev.Ifindex, 4000) }},
		{"representor's MTU", func() error { return m.Links.SetMTU(ctx, vf.Rep.Netdev.Ifindex, 4000) }},
		{"rate", func() error { return m.Settings.SetVF(ctx, pf, 1, nic.MaxRate, "500") }},
		{"channels", func() error { return m.Settings.SetVF(ctx, pf, 1, nic.Channels, "2") }},
		{"unbound", func() error { return m.PCI.Unbind(ctx, vf.Address) }},
		{"MAC", func() error { return m.Devlink.SetPortMAC(ctx, id.PF, vf.Rep.Port, nic.MAC{2, 0, 0, 0, 0, 7}) }},
		{"bound", func() error { return m.PCI.Bind(ctx, vf.Address, "") }},
		{"unbound again", func() error { return m.PCI.Unbind(ctx, vf.Address) }},
		{"to a program", func() error { return m.PCI.Bind(ctx, vf.Address, "vfio-pci") }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		now, err := host.Observe(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Refresh(ctx, m, &old, id); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		want, got := now.PFs[0].VFs[1], old.PFs[0].VFs[1]
		want.RDMA, got.RDMA = nil, nil // left to Observe
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: observed and refreshed:\n%s", step.what, d)
		}
	}
}

// In legacy mode, and of what is not there, only Observe knows.
func TestRefreshKnowsItsLimits(t *testing.T) {
	s, err := sim.New(sim.Config{Cards: []sim.Card{{Profile: "mlx5", NumVFs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := host.Observe(t.Context(), s.Machine())
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []int{0, 1, -1} {
		id := nic.VFID{PF: st.PFs[0].Handle, Index: index}
		if err := host.Refresh(t.Context(), s.Machine(), &st, id); !errors.Is(err, host.ErrNotSupported) {
			t.Errorf("%s: %v, want not supported", id, err)
		}
	}
}
