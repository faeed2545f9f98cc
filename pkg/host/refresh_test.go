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
		part host.Part // of what is done
		do   func() error
	}{
		{"nothing", host.VFWhole, func() error { return nil }},
		{"MTU", host.VFNetdev, func() error { return m.Links.SetMTU(ctx, vf.Netdev.Ifindex, 4000) }},
		{"representor's MTU", host.VFRep, func() error { return m.Links.SetMTU(ctx, vf.Rep.Netdev.Ifindex, 4000) }},
		{"rate", host.VFSettings, func() error { return m.Settings.SetVF(ctx, pf, 1, nic.MaxRate, "500") }},
		{"channels", host.VFSettings, func() error { return m.Settings.SetVF(ctx, pf, 1, nic.Channels, "2") }},
		{"unbound", host.VFWhole, func() error { return m.PCI.Unbind(ctx, vf.Address) }},
		{"MAC", host.VFMAC, func() error { return m.Devlink.SetPortMAC(ctx, id.PF, vf.Rep.Port, nic.MAC{2, 0, 0, 0, 0, 7}) }},
		{"bound", host.VFWhole, func() error { return m.PCI.Bind(ctx, vf.Address, "") }},
		{"unbound again", host.VFWhole, func() error { return m.PCI.Unbind(ctx, vf.Address) }},
		{"to a program", host.VFWhole, func() error { return m.PCI.Bind(ctx, vf.Address, "vfio-pci") }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		now, err := host.Observe(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Refresh(ctx, m, &old, id, step.part); err != nil {
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
		if err := host.Refresh(t.Context(), s.Machine(), &st, id, host.VFWhole); !errors.Is(err, host.ErrNotSupported) {
			t.Errorf("%s: %v, want not supported", id, err)
		}
	}
}
