package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// written puts a run into the journal: two steps of which the second fails, a
// scope that went back, and the end, if there is to be one.
func written(t *testing.T, j *Journal, o Outcome) Entry {
	t.Helper()
	if err := os.MkdirAll(j.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	e := Entry{
		Kind:   KindApply,
		Spec:   nic.Spec{PFs: []nic.PFSpec{{Handle: port(0), VFCount: ptr(1), VFs: []nic.VFSpec{{MAC: &nic.MAC{}}}}}},
		Before: nic.State{PFs: []nic.PF{{Handle: port(0), TotalVFs: 4}}},
	}
	w, err := j.begin(&e)
	if err != nil {
		t.Fatal(err)
	}
	made := plan.Step{Action: plan.SetVFs{PF: port(0), To: 1}}
	bound := plan.Step{Action: plan.Bind{VF: nic.VFID{PF: port(0)}, To: nic.DriverKernel}}
	err = errors.Join(
		w.intend(made), w.done(made, nil),
		w.intend(bound), w.done(bound, errors.New("no driver")),
		w.scope(port(0), TurningBack, errors.New("no driver")),
		w.scope(port(0), RolledBack, errors.New("no driver")),
	)
	if o != Interrupted {
		err = errors.Join(err, w.end(o, nil))
	}
	if err := errors.Join(err, w.close()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &Journal{Dir: filepath.Join(memory(t), "deep", "journal")}
		now := time.Now().UTC()
		e := written(t, j, RolledBack)
		got, err := j.Get(1)
		if err != nil {
			t.Fatal(err)
		}
		want := Entry{
			ID: 1, Kind: KindApply, Time: now, Spec: e.Spec, Before: e.Before,
			Steps: []StepRecord{
				{Step: plan.Step{Action: plan.SetVFs{PF: port(0), To: 1}}, Time: now, State: StepDone},
				{Step: plan.Step{Action: plan.Bind{VF: nic.VFID{PF: port(0)}, To: nic.DriverKernel}}, Time: now, State: StepFailed, Error: "no driver"},
			},
			Scopes:  []ScopeRecord{{port(0), TurningBack, "no driver"}, {port(0), RolledBack, "no driver"}},
			Outcome: RolledBack, End: now,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		for path, want := range map[string]fs.FileMode{j.Dir: 0o700, j.path(1): 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: mode %v (%v), want %v", path, info.Mode().Perm(), err, want)
			}
		}
	})
}

func TestJournalOfNothing(t *testing.T) {
	j := &Journal{Dir: filepath.Join(memory(t), "none")}
	list, err := j.List()
	open, err2 := j.Interrupted()
	if len(list) > 0 || open != nil || err != nil || err2 != nil {
		t.Errorf("without a folder: %v, %v, %v, %v", list, err, open, err2)
	}
	if _, err := j.Get(3); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "run 3") {
		t.Errorf("error %v, want one that names run 3 and is fs.ErrNotExist", err)
	}
}

// Cut off anywhere, a file says nothing wrong: either the run had not begun, or
// what is left of it was so, and it has no end.
func TestJournalCutOff(t *testing.T) {
	j := &Journal{Dir: memory(t)}
	written(t, j, RolledBack)
	whole, err := os.ReadFile(j.path(1))
	if err != nil {
		t.Fatal(err)
	}
	full, err := j.Get(1)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	for n := range len(whole) {
		if err := os.WriteFile(j.path(1), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := j.Get(1)
		open, oerr := j.Interrupted()
		if n < first {
			if !errors.Is(err, fs.ErrNotExist) || open != nil || oerr != nil {
				t.Fatalf("%d bytes: %v, open %v, %v; want a run that had not begun", n, err, open, oerr)
			}
			continue
		}
		if err != nil || oerr != nil || open == nil || e.Outcome != Interrupted || e.Damage != "" {
			t.Fatalf("%d bytes: %+v, %v, %v; want an interrupted run", n, e, err, oerr)
		}
		if len(e.Steps) > len(full.Steps) || len(e.Scopes) > len(full.Scopes) || !cmp.Equal(e.Before, full.Before) {
			t.Fatalf("%d bytes: %+v", n, e)
		}
	}
	// A file of a run that had not begun does not hold its number.
	if err := os.WriteFile(j.path(1), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := written(t, j, Reached); e.ID != 2 {
		t.Errorf("the next run is %s, want 2", e.ID)
	}
	if list, err := j.List(); err != nil || len(list) != 1 || list[0].ID != 2 {
		t.Errorf("list %v, %v; want run 2 alone", list, err)
	}
}

func TestJournalDamaged(t *testing.T) {
	j := &Journal{Dir: memory(t)}
	written(t, j, Reached)
	whole, err := os.ReadFile(j.path(1))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	damage := func(line int, with string) {
		t.Helper()
		all := append([][]byte{}, lines...)
		all[line-1] = []byte(with + "\n")
		if err := os.WriteFile(j.path(1), bytes.Join(all, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		line       int
		with, says string
	}{
		{3, "\x00\x00\x00", "line 3: "},
		{3, `{"record":"done"}`, `line 3: record "done" without a step`},
		{3, `{"record":"intend"}`, `line 3: no such record: "intend"`},
		{2, `{"record":"done","step":{"op":"set-autoprobe","object":"pci/a","from":"off","to":"on"}}`, "line 2: record \"done\" of a step that was not intended"},
		{6, `{"record":"scope","outcome":"reached"}`, `line 6: record "scope" without a scope`},
		{6, `{"record":"scope","scope":"pci/a","outcome":"done"}`, `line 6: a scope is not "done"`},
		{8, `{"record":"end","outcome":"refused"}`, `line 8: a run does not end with "refused"`},
	}
	for _, tt := range tests {
		damage(tt.line, tt.with)
		e, err := j.Get(1)
		want := Reached // its last line says so, and is whole
		if tt.line == len(lines)-1 {
			want = Interrupted
		}
		if err != nil || !strings.HasPrefix(e.Damage, tt.says) || e.Outcome != want {
			t.Errorf("%q: %+v, %v; want damage %q and outcome %q", tt.with, e, err, tt.says, want)
		}
	}
	// Cut off after the damage nothing says that it had ended.
	damage(3, "\x00")
	if err := os.Truncate(j.path(1), int64(len(bytes.Join(lines[:2], nil))+2+len(lines[3]))); err != nil {
		t.Fatal(err)
	}
	if e, err := j.Get(1); err != nil || e.Outcome != Interrupted {
		t.Errorf("damaged and cut off: %+v, %v; want no end", e, err)
	}
	damage(1, `{"record":"begin"}`)
	if _, err := j.Get(1); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), j.path(1)) {
		t.Errorf("error %v, want one that names the file", err)
	}
	if list, err := j.List(); err != nil || len(list) != 1 || list[0].Damage == "" {
		t.Errorf("list %+v, %v; want the run with its damage", list, err)
	}
	if open, err := j.Interrupted(); err == nil {
		t.Errorf("open %v; want an error, as nobody knows how the node was", open)
	}
}

func TestJournalPrune(t *testing.T) {
	ids := func(j *Journal) string {
		list, err := j.ids()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list)
	}
	j := &Journal{Dir: memory(t), Keep: 3}
	for _, o := range []Outcome{Reached, Reached, RolledBack, RolledBack, Failed} {
		written(t, j, o)
	}
	if err := j.prune(); err != nil {
		t.Fatal(err)
	}
	if got := ids(j); got != "[2 3 4 5]" {
		t.Errorf("kept %s, want the last three and 2, the last that was reached", got)
	}
	written(t, j, Reached)
	if err := j.prune(); err != nil {
		t.Fatal(err)
	}
	if got := ids(j); got != "[4 5 6]" {
		t.Errorf("kept %s, want the last three", got)
	}
	if err := os.WriteFile(filepath.Join(j.Dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := written(t, j, Reached); e.ID != 7 {
		t.Errorf("the next run is %s, want 7", e.ID)
	}
}

func TestParseID(t *testing.T) {
	if id, err := ParseID("12"); id != 12 || err != nil {
		t.Errorf("12 is read as %s, %v", id, err)
	}
	for _, s := range []string{"", "0", "-1", "x", "1.5", "000001.jsonl"} {
		if id, err := ParseID(s); err == nil {
			t.Errorf("%q is read as %s", s, id)
		}
	}
}

func FuzzReadEntry(f *testing.F) {
	j := &Journal{Dir: f.TempDir()}
	begin := `{"record":"begin","time":"2026-01-02T03:04:05Z","id":1,"kind":"apply","spec":{"pfs":[{"handle":"pci/0000:03:00.0","vfCount":1}]},"before":{"pfs":[{"handle":"pci/0000:03:00.0","totalVFs":4}]}}` + "\n"
	step := `"step":{"op":"set-vfs","object":"pci/0000:03:00.0","from":"0","to":"1"}`
	f.Add(begin)
	f.Add(begin + `{"record":"intent",` + step + "}\n" + `{"record":"done",` + step + "}\n" + `{"record":"end","outcome":"reached"}` + "\n")
	f.Add(begin + `{"record":"intent",` + step + "}\n" + `{"record":"failed","error":"no",` + step + "}\n" +
		`{"record":"scope","scope":"pci/0000:03:00.0","outcome":"turning back"}` + "\n" + `{"record":"end"`)
	f.Add("")
	f.Add("\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := readEntry(strings.NewReader(text))
		if err != nil {
			return
		}
		if e.ID < 1 || e.Outcome == "" || e.Outcome == Refused {
			t.Fatalf("%q is read as run %s with outcome %q", text, e.ID, e.Outcome)
		}
		for _, s := range e.Steps {
			_ = s.Step.String()
		}
		for _, pf := range e.Spec.PFs {
			e.last(pf.Handle)
		}
		_, _ = plan.Unfold(plan.Complete(nic.Spec{}, e.Before), e.Before)
		// What was read can be begun anew.
		w, err := j.begin(&e)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.close(), os.Remove(j.path(e.ID))); err != nil {
			t.Fatal(err)
		}
	})
}
