package v1alpha1

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What controller-gen makes of the types is what is in the tree.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	copies, crds := t.TempDir(), t.TempDir()
	cmd := exec.Command("go", "tool", "-modfile=lab/tools/go.mod", "controller-gen", "paths=./pkg/api/v1alpha1",
		"object", "output:object:dir="+copies, "crd", "output:crd:dir="+crds)
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	same(t, copies, ".", "zz_generated*.go")
	same(t, crds, "../../../deploy/crds", "*.yaml")
}

// same compares the files of two folders that pattern matches.
func same(t *testing.T, made, kept, pattern string) {
	t.Helper()
	want, have := read(t, made, pattern), read(t, kept, pattern)
	if len(want) == 0 {
		t.Fatalf("nothing was made for %s", kept)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("%s is not what the types say: run make generate (-wanted +there)\n%s", kept, d)
	}
}

func read(t *testing.T, dir, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(p)] = string(raw)
	}
	return out
}
