package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, content := range []string{"a long first content", "short", ""} {
		if err := Replace(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("%q, %v: want %q", got, err, content)
		}
	}
	// Permissions are those asked for, whatever the file had and the umask takes.
	if err := Replace(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o666 {
		t.Errorf("mode %v, %v: want 0666", info.Mode(), err)
	}
	mustHold(t, dir, "a.json")
}

// Who has the old file open goes on reading that.
func TestReplaceLeavesReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Replace(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Replace(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if n, _ := f.Read(got); string(got[:n]) != "old" {
		t.Errorf("read %q", got[:n])
	}
}

func TestReplaceRefused(t *testing.T) {
	dir := t.TempDir()
	if err := Replace(filepath.Join(dir, "none", "a"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no folder: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "folder", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "folder"), nil, 0o600); err == nil {
		t.Error("replaced a folder")
	}
	mustHold(t, dir, "folder")
}

func TestSyncDirRefused(t *testing.T) {
	if err := SyncDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// mustHold checks that nothing lies in dir but name.
func mustHold(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s holds %v: want %s alone", dir, entries, name)
	}
}
