package sim_test

import (
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/hosttest"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// What is promised of an eswitch on any bus, over the kind of card that changes its
// mode while there are VFs.
func TestSwitchContract(t *testing.T) {
	hosttest.RunSwitch(t, func(t *testing.T) hosttest.SwitchFixture {
		s, err := sim.Parse("mlx5:vfs=8")
		if err != nil {
			t.Fatal(err)
		}
		f := hosttest.SwitchFixture{Fixture: fixture(t, s, nil)}
		f.SetVFs = func(t *testing.T, h nic.Handle, n int) {
			t.Helper()
			if err := s.Machine().PCI.SetVFs(t.Context(), h.Name, n); err != nil {
				t.Fatal(err)
			}
		}
		f.Uplink = func(t *testing.T, h nic.Handle) int {
			t.Helper()
			state, err := host.Observe(t.Context(), s.Machine())
			if err != nil {
				t.Fatal(err)
			}
			return state.PF(h).Uplink.Ifindex
		}
		f.Hold = func(*testing.T, nic.Handle) (string, func()) {
			const words = "Rate node(s) exists."
			s.Inject(sim.Fault{
				Match: func(o sim.Op) bool { return o.Verb == sim.SetEswitch }, Errno: syscall.EBUSY, Ext: words,
			})
			return words, func() {}
		}
		return f
	})
}
