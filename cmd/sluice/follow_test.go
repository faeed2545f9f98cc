package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A configuration that wants what the document's pools have is refused whole while the
// agent runs: the last good one stays offered, and the agent mends on.
func TestConflictingConfigurationIsNoHindrance(t *testing.T) {
	k := newKept(t)
	k.config = filepath.Join(k.dir, "config.json")
	write := func(pf string) {
		t.Helper()
		text := `{"resourceList": [{"resourceName": "some", "selectors": {"pfNames": ["` + pf + `"]}}]}`
		if err := os.WriteFile(k.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("enp3s0f1np1#0-3")
	k.write(`{apiVersion: sluice.dev/v1alpha1, kind: NodeNIC, spec: {
	  pfs: [{pf: "0000:03:00.0", numVfs: 4}, {pf: "0000:03:00.1", numVfs: 4}], pools: [{name: fast, pfs: ["0000:03:00.0"]}]}}`)
	end := k.agent()
	defer func() { end() }()
	k.until("both", func() bool { return k.healthy("sluice.dev/fast") == 4 && k.healthy("acme.com/some") == 4 })
	write("enp3s0f0np0#0-1")
	k.until("the refusal", func() bool { return strings.Contains(k.said(), "both want VF 0-1") })
	k.stranger()
	k.untilVFs(4)
	k.until("both again", func() bool { return k.healthy("sluice.dev/fast") == 4 && k.healthy("acme.com/some") == 4 })
	if n := strings.Count(k.said(), "both want VF 0-1"); n > 2 {
		t.Errorf("it is told %d times", n)
	}
	write("enp3s0f1np1#0-1")
	k.until("a good one", func() bool { return k.healthy("acme.com/some") == 2 })
}

// A document that cannot be read, in whatever way, changes nothing, and one that takes
// its place the way a ConfigMap's volume does is taken up.
func TestDocumentThatCannotBeRead(t *testing.T) {
	k := newKept(t)
	volume := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(volume, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(volume, name, "node.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(volume, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(volume, "next"), filepath.Join(volume, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	put("..1", k.document(4, "fast"))
	k.file = filepath.Join(volume, "node.yaml")
	if err := os.Symlink("..data/node.yaml", k.file); err != nil {
		t.Fatal(err)
	}
	end := k.agent()
	defer func() { end() }()
	k.until("the agent is up", func() bool { return k.healthy("sluice.dev/fast") == 4 })

	refused := func() int { return strings.Count(k.said(), "the document is refused") }
	for i, step := range []struct {
		what string
		do   func() error
	}{
		{"gone", func() error { return os.Remove(k.file) }},
		{"a folder", func() error { return os.Mkdir(k.file, 0o700) }},
		{"empty", func() error {
			_ = os.Remove(k.file)
			return os.WriteFile(k.file, nil, 0o600)
		}},
		{"a pipe", func() error {
			_ = os.Remove(k.file)
			return unix.Mkfifo(k.file, 0o600)
		}},
		{"a link into nothing", func() error {
			_ = os.Remove(k.file)
			return os.Symlink("..data/gone.yaml", k.file)
		}},
	} {
		before := refused()
		if err := step.do(); err != nil {
			t.Fatal(step.what, err)
		}
		k.until(step.what+" is reported", func() bool { return refused() > before })
		if k.vfs() != 4 || k.healthy("sluice.dev/fast") != 4 {
			t.Errorf("%d, %s: the node has changed", i, step.what)
		}
	}
	_ = os.Remove(k.file)
	if err := os.Symlink("..data/node.yaml", k.file); err != nil {
		t.Fatal(err)
	}
	put("..2", k.document(5, "fast"))
	k.untilVFs(5)
	put("..3", k.document(6, "fast"))
	k.untilVFs(6)
}
