package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// Every example is read, and resolved on each machine that it may be tried on,
// with its pools.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("found %d examples: %v", len(files), err)
	}
	for _, file := range files {
		for _, machine := range []string{
			"mlx5:cards=1,vfs=16",
			"mlx5:cards=2,vfs=8,numvfs=8,mode=switchdev",
			"mlx5:cards=1,vfs=16,numvfs=3+igb:cards=1,vfs=7",
		} {
			t.Run(filepath.Base(file)+"/"+machine, func(t *testing.T) {
				state := observe(t, machine)
				spec := resolve(t, file, state)
				if len(spec.PFs) == 0 {
					t.Error("it wants nothing")
				}
				for _, p := range spec.PFs {
					if state.PF(p.Handle) == nil {
						t.Errorf("%s is not there", p.Handle)
					}
				}
			})
		}
	}
}

// A document that is resolved again on the machine that it was made for wants the
// same: what is derived does not hang on what was before.
func TestResolveIsStable(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		before := resolve(t, file, observe(t, "mlx5:cards=1,vfs=16"))
		after := resolve(t, file, observe(t, "mlx5:cards=1,vfs=16,numvfs=16,mode=switchdev"))
		for _, p := range before.PFs {
			q := after.PF(p.Handle)
			if q == nil {
				t.Errorf("%s: %s is not there any more", file, p.Handle)
				continue
			}
			for i := range p.VFs {
				a, b := p.VF(i), q.VF(i)
				if (a.MAC == nil) != (b.MAC == nil) || a.MAC != nil && *a.MAC != *b.MAC {
					t.Errorf("%s: VF %d of %s: address %v, and %v later", file, i, p.Handle, a.MAC, b.MAC)
				}
			}
		}
	}
}

func observe(t *testing.T, machine string) nic.State {
	t.Helper()
	s, err := sim.Parse(machine)
	if err != nil {
		t.Fatal(err)
	}
	state, err := host.Observe(t.Context(), s.Machine())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func resolve(t *testing.T, file string, state nic.State) nic.Spec {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := policy.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := policy.Resolve(doc, state)
	if err != nil {
		t.Fatal(err)
	}
	pools, err := policy.Pools(doc, state, spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		if !slices.ContainsFunc(p.Select, func(s nic.Pick) bool { return state.PF(s.PF) != nil }) {
			t.Errorf("pool %s has no PF of this machine", p)
		}
	}
	return spec
}

// Each example has lines that say what it is for.
func TestExamplesAreExplained(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(raw), "# ") {
			t.Errorf("%s does not begin with what it is for", file)
		}
	}
}
