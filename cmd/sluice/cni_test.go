package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// Whoever has the old plugin open goes on with it, what killed runs left goes, and
// others' plugins stay.
func TestCNIComesAndGoes(t *testing.T) {
	from, dir := filepath.Join(t.TempDir(), "plugin"), filepath.Join(t.TempDir(), "cni", "bin")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(from, "the first")
	if err := installCNI(from, dir); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(filepath.Join(dir, cniName))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	write(filepath.Join(dir, "bridge"), "another's")
	write(filepath.Join(dir, ".sluice-cni.123"), "half")
	write(from, "the second")
	if err := installCNI(from, dir); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{"bridge", cniName}; !slices.Equal(got, want) {
		t.Errorf("%q: want %q", got, want)
	}
	info, err := os.Stat(filepath.Join(dir, cniName))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v: want it 0755", info.Mode(), err)
	}
	if got := readFile(t, filepath.Join(dir, cniName)); got != "the second" {
		t.Errorf("%q", got)
	}
	was := make([]byte, 20)
	if n, err := old.Read(was); err != nil || string(was[:n]) != "the first" {
		t.Errorf("who had it open reads %q, %v", was[:n], err)
	}

	write(filepath.Join(dir, ".sluice-cni.456"), "half")
	for range 2 { // the second time there is nothing to do
		if err := uninstallCNI(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := names(t, dir), []string{"bridge"}; !slices.Equal(got, want) {
		t.Errorf("%q: want %q", got, want)
	}
}

// A simulated machine has no folder of plugins: that of the real one is not touched.
func TestCNIIsOfTheRealMachine(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, cniName), []byte("real"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"install-cni", "uninstall-cni"} {
		_, said := newCLI(t, "mlx5:cards=1").want(exitUsage, command, "--dir", dir)
		if !strings.Contains(said, "a simulated machine has no container runtime") {
			t.Errorf("%s: %s", command, said)
		}
	}
	if got := readFile(t, filepath.Join(dir, cniName)); got != "real" {
		t.Errorf("%q", got)
	}
}

// Who is in no cluster and names none is told what is missing.
func TestWithoutAnAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, said := newCLI(t, "mlx5:cards=1").want(exitRefused, "agent", "--node", "n1")
	_, _, also := runHere(t, "controller")
	for _, text := range []string{said, also} {
		if text != "sluice: how to reach the API server: this runs in no pod, where Kubernetes would say it: want --kubeconfig FILE\n" {
			t.Errorf("%q", text)
		}
	}
	_, said = newCLI(t, "mlx5:cards=1").want(exitRefused, "agent", "--node", "n1", "--kubeconfig", "/nowhere")
	if !strings.Contains(said, "--kubeconfig /nowhere: ") {
		t.Errorf("%q", said)
	}
}

// A plugin that cannot be read leaves the one that is there.
func TestCNIStaysWhereThereIsNoOther(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, cniName), []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := installCNI(filepath.Join(dir, "none"), dir)
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("%v", err)
	}
	if got := readFile(t, filepath.Join(dir, cniName)); got != "old" {
		t.Errorf("%q", got)
	}
}
