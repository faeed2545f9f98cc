package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// TestPath walks one card through what sluice does to it.
func TestPath(t *testing.T) {
	ctx := t.Context()
	s, err := Parse("mlx5:vfs=8")
	if err != nil {
		t.Fatal(err)
	}
	m := s.Machine()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := nic.PCI("0000:03:00.1")
	must(m.PCI.SetAutoprobe(ctx, h.Name, false))
	must(m.PCI.SetVFs(ctx, h.Name, 4))
	must(m.Devlink.SetEswitch(ctx, h, nic.Switchdev))
	st, err := host.Observe(ctx, m)
	must(err)
	p := st.PF(h)
	if p.Eswitch != nic.Switchdev || len(p.VFs) != 4 || !p.VFs[2].Rep.Exists() {
		t.Fatalf("%+v", p)
	}
	mac := nic.MAC{2, 0, 0, 0, 0, 7}
	must(m.Devlink.SetPortMAC(ctx, h, p.VFs[2].Rep.Port, mac))
	must(m.PCI.Bind(ctx, p.VFs[2].Address, ""))
	st, err = host.Observe(ctx, m)
	must(err)
	if got := st.PF(h).VFs[2]; got.MAC != mac || got.Netdev.MAC != mac || got.Netdev.Name != "enp3s0f1v2" {
		t.Errorf("%+v", got)
	}
	if got := s.Writes(); got != 5 {
		t.Errorf("%d writes: %v", got, s.Log())
	}
}

// TestRandom checks that machines by chance are machines: they can be saved,
// read back and observed, and are the same for the same seed.
func TestRandom(t *testing.T) {
	for name, random := range map[string]func(uint64) *Sim{"Random": Random, "RandomNode": RandomNode} {
		t.Run(name, func(t *testing.T) { testRandom(t, random) })
	}
}

func testRandom(t *testing.T, random func(uint64) *Sim) {
	for seed := range uint64(500) {
		s := random(seed)
		if err := s.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		a, err := host.Observe(t.Context(), s.Machine())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b, err := host.Observe(t.Context(), random(seed).Clone().Machine())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Fatalf("seed %d: two machines: %s", seed, d)
		}
		if len(a.PFs) < 1 || len(a.PFs) > 8 || s.Writes() != 0 {
			t.Errorf("seed %d: %d PFs, %d writes", seed, len(a.PFs), s.Writes())
		}
	}
}
