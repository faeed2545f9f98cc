package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

func sample(vf string) *Record {
	return &Record{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Container: "0123456789abcdef", IfName: "net1",
		Netns: "/run/netns/a", NetnsID: "4:4026532000", Pod: Pod{"shop", "web-0", "uid"},
		VF: vf, PF: nic.PCI("0000:03:00.0"), Index: 1, Representor: "pf0vf1", Bridge: "br-int", OVSDB: "unix:/s",
		Config: json.RawMessage(`{"name":"n"}`), Args: "A=b",
		Before: Before{Name: "vf1", AdminMAC: nic.MAC{2, 1}, MAC: nic.MAC{2, 2}, MTU: 1500, Up: true, RepMTU: 1400, RepUp: true},
	}
}

const vf = "0000:03:00.3"

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	s := In(filepath.Join(dir, "state"))
	if _, err := s.Load(vf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	want := sample(vf)
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(vf)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for path, mode := range map[string]fs.FileMode{"state/attachments": fs.ModeDir | 0o700, "state/attachments/" + vf + ".json": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	for range 2 {
		if err := s.Remove(vf); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if _, err := s.Load(vf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

func TestProgress(t *testing.T) {
	s := In(t.TempDir())
	r := sample(vf)
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		e        Entry
		want     string
		attached bool
	}{
		{Entry{}, "not begun", false},
		{Entry{Goal: Attached, Step: "move"}, `to be attached, at "move"`, false},
		{Entry{Goal: Attached, Step: "move", Err: "no"}, `to be attached, stopped at "move": no`, false},
		{Entry{Goal: Attached, Done: true}, "attached", true},
		{Entry{Goal: Detached, Step: "move"}, `to be detached, at "move"`, false},
		{Entry{Goal: Detached, Done: true}, "detached", false},
	} {
		if c.e.Goal != "" {
			if err := s.Append(r, c.e); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Load(vf)
		if err != nil || got.Progress() != c.want || got.Attached() != c.attached {
			t.Errorf("%v: %s, attached %v, %v", c.e, got.Progress(), got.Attached(), err)
		}
	}
	if got, want := r.Holder(), "pod shop/web-0 (net1 of container 0123456789ab)"; got != want {
		t.Errorf("holder %q, want %q", got, want)
	}
}

// TestHalfEntry is what a power cut may leave of an entry, at each length: the
// record is whole, and entries go on below.
func TestHalfEntry(t *testing.T) {
	s := In(t.TempDir())
	r := sample(vf)
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(r, Entry{Goal: Attached, Step: "one"}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(s.file(vf))
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n')
	for n := first; n < len(whole); n++ {
		if err := os.WriteFile(s.file(vf), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.Load(vf)
		if err != nil || got.Container != r.Container {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		if err := s.Append(got, Entry{Goal: Attached, Step: "two"}); err != nil {
			t.Fatal(err)
		}
		if got, err = s.Load(vf); err != nil || got.Last.Step != "two" {
			t.Fatalf("cut to %d bytes, then one more: %+v, %v", n, got.Last, err)
		}
	}
	// What is cut within the record itself is said to be.
	for n := range first {
		if err := os.WriteFile(s.file(vf), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(vf); err == nil || !strings.Contains(err.Error(), s.file(vf)) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	s := In(t.TempDir())
	r := sample(vf)
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(s.file(vf))
	if err != nil {
		t.Fatal(err)
	}
	for old, change := range map[string][2]string{
		`"version":1`:         {`"version":2`, "its version is 2: want 1"},
		`"vf":"0000:03:00.3"`: {`"vf":"0000:03:00.4"`, `it is of VF "0000:03:00.4"`},
		`"index":1`:           {`"index":"1"`, "cannot unmarshal"},
	} {
		if err := os.WriteFile(s.file(vf), []byte(strings.Replace(string(good), old, change[0], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(vf); err == nil || !strings.Contains(err.Error(), change[1]) {
			t.Errorf("%s: %v", change[0], err)
		}
	}
}

// TestFileIsBounded retries a release that fails, for long.
func TestFileIsBounded(t *testing.T) {
	s := In(t.TempDir())
	r := sample(vf)
	r.Config = json.RawMessage(`"` + strings.Repeat("x", maxFile) + `"`) // larger by itself than the bound
	for config, times := range map[string]int{string(r.Config): 20, `{}`: 2000} {
		r.Config = json.RawMessage(config)
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
		for i := range times {
			if err := s.Append(r, Entry{Goal: Detached, Step: "unplug", Err: fmt.Sprint("try ", i)}); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(s.file(vf))
		if err != nil || info.Size() > 2*maxFile+1024 {
			t.Errorf("%d bytes, %v", info.Size(), err)
		}
		got, err := s.Load(vf)
		if err != nil || got.Last.Err != fmt.Sprint("try ", times-1) || !cmp.Equal(got.Before, r.Before) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestFindAndOwners(t *testing.T) {
	dir := t.TempDir()
	if owners, err := Owners(dir, ""); err != nil || len(owners) != 0 {
		t.Errorf("no directory: %v, %v", owners, err)
	}
	s := In(dir)
	for _, a := range []string{"0000:03:00.5", "0000:03:00.4", "0000:03:00.3"} {
		r := sample(a)
		if a == "0000:03:00.4" {
			r.Container, r.Pod = "c2", Pod{}
		}
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"0000:03:00.6.json": "", "0000:03:00.7.json.tmp": "{", "0000:03:00.7.lock": "", "notes.json": "{}",
	} {
		if err := os.WriteFile(filepath.Join(dir, "attachments", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := s.Find("0123456789abcdef", "net1")
	if err != nil || len(found) != 2 || found[0].VF != "0000:03:00.3" || found[1].VF != "0000:03:00.5" {
		t.Errorf("found %v, %v", found, err)
	}
	owners, err := Owners(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := owners["0000:03:00.6"]; !strings.HasPrefix(got, "an unreadable record: ") {
		t.Errorf("unreadable: %q", got)
	}
	delete(owners, "0000:03:00.6")
	pod := "pod shop/web-0 (net1 of container 0123456789ab)"
	if d := cmp.Diff(map[string]string{"0000:03:00.3": pod, "0000:03:00.4": "container c2 (net1)", "0000:03:00.5": pod}, owners); d != "" {
		t.Errorf("owners (-want +got):\n%s", d)
	}
}

// TestLock lets one at a time work on a VF, and others on others.
func TestLock(t *testing.T) {
	s := In(t.TempDir())
	ctx := context.Background()
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			unlock, err := s.Lock(ctx, vf)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			inside.Add(-1)
			unlock()
		})
	}
	wg.Wait()

	unlock, err := s.Lock(ctx, vf)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	other, err := s.Lock(ctx, "0000:03:00.4")
	if err != nil {
		t.Fatal(err)
	}
	other()
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(short, vf); !errors.Is(err, ErrLocked) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), vf) {
		t.Errorf("locked: %v", err)
	}
}

// TestSaveWhereNothingCanBe is told before anything is done.
func TestSaveWhereNothingCanBe(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "attachments"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := In(dir)
	if err := s.Save(sample(vf)); err == nil {
		t.Error("saved in a file")
	}
	if _, err := s.Lock(context.Background(), vf); err == nil {
		t.Error("locked in a file")
	}
}

func FuzzParse(f *testing.F) {
	data, err := json.Marshal(sample(vf))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(append(data, "\n{\"goal\":\"attached\"}\n\nx"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err == nil {
			_, _, _ = r.Holder(), r.Progress(), r.Token()
		}
	})
}

// BenchmarkRecord is the part of the disk in an attachment's life.
func BenchmarkRecord(b *testing.B) {
	s := In(b.TempDir())
	for b.Loop() {
		r := sample(vf)
		if err := s.Save(r); err != nil {
			b.Fatal(err)
		}
		for i := range 15 {
			if err := s.Append(r, Entry{Goal: Attached, Step: "a step of an attachment", Done: i == 14}); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Remove(vf); err != nil {
			b.Fatal(err)
		}
	}
}
