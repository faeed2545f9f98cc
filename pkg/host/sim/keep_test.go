package sim_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
)

const pf1 = "0000:03:00.1"

// keptAt is a machine that others work on as well.
func keptAt(t *testing.T, path string) *sim.Sim {
	t.Helper()
	s := parse(t, "mlx5:vfs=4")
	must(t, s.Keep(path, nil))
	return s
}

// None of the changes that several make to one machine at once is lost, and each is
// told to whoever watches elsewhere.
func TestKeepShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine.json")
	watcher := keptAt(t, path)
	c, err := watcher.Machine().Watch.Changes(t.Context())
	must(t, err)
	const each = 150
	var all sync.WaitGroup
	for n := range 4 {
		s := keptAt(t, path)
		all.Go(func() {
			for i := range each {
				if err := s.Machine().PCI.SetAutoprobe(t.Context(), pf0, (n+i)%2 == 0); err != nil {
					t.Error(err)
				}
				if err := s.Machine().Links.SetMTU(t.Context(), observe(t, s).PFs[1].Uplink.Ifindex, 1000+n*each+i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// Autoprobe may be as another has set it, which is no write; an MTU never is.
	observe(t, watcher)
	if got := watcher.Writes(); got < 4*each || got > 8*each {
		t.Errorf("%d writes are in the file, want %d or more", got, 4*each)
	}
	must(t, keptAt(t, path).Machine().PCI.SetVFs(t.Context(), pf1, 2))
	for got := range c {
		if got.Of.Kind == host.OfFunction && got.Of.Function != pf0 && got.Of.Function != pf1 {
			break // a VF
		}
	}
}

// A file that is no machine is an error to whoever reads or writes, and stays as it is;
// one that was removed begins as who is there has it.
func TestKeepDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine.json")
	s := keptAt(t, path)
	m := s.Machine()
	must(t, m.PCI.SetVFs(t.Context(), pf0, 2))
	whole, err := os.ReadFile(path)
	must(t, err)
	for what, text := range map[string]string{
		"empty": "", "half": string(whole[:len(whole)/2]), "null": "null", "list": "[]", "another": `{"version": 99}`, "two": string(whole) + string(whole),
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := m.PCI.Functions(t.Context()); err == nil {
			t.Errorf("%s: read", what)
		}
		if err := m.PCI.SetVFs(t.Context(), pf1, 1); err == nil {
			t.Errorf("%s: written", what)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s: %v, and the file is another", what, err)
		}
		if err := parse(t, "mlx5").Keep(path, nil); err == nil {
			t.Errorf("%s: taken up", what)
		}
	}
	must(t, os.Remove(path))
	must(t, m.PCI.SetVFs(t.Context(), pf1, 1))
	if st := observe(t, keptAt(t, path)); len(st.PFs[0].VFs) != 2 || len(st.PFs[1].VFs) != 1 {
		t.Errorf("%d and %d VFs", len(st.PFs[0].VFs), len(st.PFs[1].VFs))
	}
}
