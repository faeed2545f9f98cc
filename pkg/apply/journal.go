package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// ErrNoSpace is returned when the journal cannot be written because the disk, or
// the quota, is full. A run that cannot be written down is not begun.
var ErrNoSpace = errors.New("no space left for the journal")

// DefaultKeep is how many runs a Journal keeps that says nothing else.
const DefaultKeep = 50

// Journal is a folder with one file a run, NNNNNN.jsonl: a line for what was
// wanted and how things were, for each step before and after it was done, for
// each scope that ended, and for the end. Every line is on the disk before
// anything that follows from it is done. Folder and files are only the owner's.
type Journal struct {
	Dir  string
	Keep int // 0 means DefaultKeep

	// open makes a new file; tests let the disk be full here.
	open func(path string) (file, error)
}

// file is what a run is written to.
type file interface {
	Write([]byte) (int, error)
	Truncate(int64) error
	Sync() error
	Close() error
}

func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
}

const suffix = ".jsonl"

func (j *Journal) path(id ID) string {
	return filepath.Join(j.Dir, fmt.Sprintf("%06d%s", int(id), suffix))
}

// ids lists the numbers of all files, in order. No folder is no runs.
func (j *Journal) ids() ([]ID, error) {
	files, err := os.ReadDir(j.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	var out []ID
	for _, f := range files {
		digits, ok := strings.CutSuffix(f.Name(), suffix)
		if n, err := strconv.Atoi(digits); ok && err == nil && n > 0 && j.path(ID(n)) == filepath.Join(j.Dir, f.Name()) {
			out = append(out, ID(n))
		}
	}
	slices.Sort(out)
	return out, nil
}

// NoRunError says that a run is not in the journal, and which are. It is
// fs.ErrNotExist.
type NoRunError struct {
	ID   ID
	Have []ID // ascending
}

func (e *NoRunError) Error() string {
	if len(e.Have) == 0 {
		return fmt.Sprintf("there is no run %s: the journal has none", e.ID)
	}
	var parts []string
	for i, first := 0, 0; i < len(e.Have); i++ {
		if i+1 < len(e.Have) && e.Have[i+1] == e.Have[i]+1 {
			continue
		}
		part := e.Have[first].String()
		if i > first {
			part += " to " + e.Have[i].String()
		}
		parts, first = append(parts, part), i+1
	}
	return fmt.Sprintf("there is no run %s: want one that the journal has: %s", e.ID, strings.Join(parts, ", "))
}

// Is makes it fs.ErrNotExist.
func (e *NoRunError) Is(target error) bool { return target == fs.ErrNotExist }

func (j *Journal) noRun(id ID) error {
	runs, err := j.List()
	out := &NoRunError{ID: id}
	for _, e := range runs {
		out.Have = append(out.Have, e.ID)
	}
	return errors.Join(out, err)
}

// Find is Get of a run that somebody has named: one that is not there is a
// *NoRunError.
func (j *Journal) Find(id ID) (Entry, error) {
	e, err := j.Get(id)
	if errors.Is(err, fs.ErrNotExist) {
		err = j.noRun(id)
	}
	return e, err
}

// Get returns the run with number id. One that is not there, or that had not
// begun, is fs.ErrNotExist.
func (j *Journal) Get(id ID) (Entry, error) {
	f, err := os.Open(j.path(id))
	if err != nil {
		return Entry{}, fmt.Errorf("run %s of the journal: %w", id, err)
	}
	defer f.Close()
	e, err := readEntry(f)
	if errors.Is(err, errNotBegun) {
		return Entry{}, fmt.Errorf("run %s of the journal: %w (%w)", id, fs.ErrNotExist, err)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("run %s of the journal: %s: %w", id, j.path(id), err)
	}
	e.ID = id // a file that was copied under another name is the run of that name
	return e, nil
}

// List returns all runs, the newest last. A file whose beginning cannot be made
// out is listed with its number and Damage alone.
func (j *Journal) List() ([]Entry, error) {
	ids, err := j.ids()
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, id := range ids {
		e, err := j.Get(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // had not begun, or was pruned meanwhile
		case err != nil:
			e = Entry{ID: id, Outcome: Failed, Damage: err.Error()}
		}
		out = append(out, e)
	}
	return out, nil
}

// Interrupted returns the run that has no end, or nil. Only the newest can be
// it: a run that begins takes over what another left.
func (j *Journal) Interrupted() (*Entry, error) {
	ids, err := j.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(ids) {
		e, err := j.Get(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("%w; remove the file if the node is as it should be", err)
		case e.Outcome == Interrupted:
			return &e, nil
		}
		return nil, nil
	}
	return nil, nil
}

// since is what run id and all later ones named, and how each of it was before the
// first of them that did. A later run that cannot be read is an error: nobody knows
// what it changed.
func (j *Journal) since(id ID) (before nic.State, spec nic.Spec, err error) {
	if _, err := j.Find(id); err != nil {
		return before, spec, err
	}
	ids, err := j.ids()
	if err != nil {
		return before, spec, err
	}
	for _, later := range ids {
		if later < id {
			continue
		}
		e, err := j.Get(later)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it had not begun
		case err != nil:
			return before, spec, err
		}
		for _, pf := range e.Before.PFs {
			if spec.PF(pf.Handle) == nil {
				before.PFs = append(before.PFs, pf)
			}
		}
		for _, b := range e.Before.Bonds {
			if before.Bond(b.Name) == nil && !slices.ContainsFunc(spec.Bonds, func(s nic.BondSpec) bool { return s.Name == b.Name }) {
				before.Bonds = append(before.Bonds, b)
			}
		}
		if spec.RDMA == "" && e.Spec.RDMA != "" {
			before.RDMA = e.Before.RDMA
		}
		spec = union(spec, e.Spec)
	}
	return before, spec, nil
}

// begin opens the record of a new run, and gives e its number. When it fails
// nothing of the run is in the journal.
func (j *Journal) begin(e *Entry) (*writer, error) {
	ids, err := j.ids()
	if err != nil {
		return nil, err
	}
	e.ID = 1
	if len(ids) > 0 {
		e.ID = ids[len(ids)-1] + 1
	}
	create := j.open
	if create == nil {
		create = createFile
	}
	f, err := create(j.path(e.ID))
	if err != nil {
		return nil, spaceError(fmt.Errorf("begin run %s: %w", e.ID, err))
	}
	w := &writer{f: f}
	err = w.write(record{
		Record: recordBegin, ID: e.ID, Kind: e.Kind, Of: e.Of, Spec: &e.Spec, Before: &e.Before, Clear: e.Clear, Boot: e.Boot,
	})
	if err == nil {
		err = disk.SyncDir(j.Dir)
	}
	if err != nil {
		f.Close()
		os.Remove(j.path(e.ID)) // best effort: a file without a whole first line is no run
		return nil, spaceError(fmt.Errorf("begin run %s: %w", e.ID, err))
	}
	return w, nil
}

func spaceError(err error) error {
	if errors.Is(err, ErrNoSpace) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// prune removes the oldest runs over the number to keep, but never the last one
// that reached what was wanted: it says how the node came to be as it is.
func (j *Journal) prune() error {
	keep := j.Keep
	if keep <= 0 {
		keep = DefaultKeep
	}
	ids, err := j.ids()
	if err != nil || len(ids) <= keep {
		return err
	}
	last := ID(0)
	for _, id := range slices.Backward(ids) {
		if e, err := j.Get(id); err == nil && e.Outcome == Reached {
			last = id
			break
		}
	}
	for _, id := range ids[:len(ids)-keep] {
		if id == last {
			continue
		}
		if err := os.Remove(j.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prune the journal: %w", err)
		}
	}
	return nil
}

// writer is the record of a run at work. Its methods may be called by several
// scopes at once.
type writer struct {
	mu     sync.Mutex
	f      file
	size   int64 // of all whole lines
	broken error // what was written cannot be mended
}

func (w *writer) write(r record) error {
	r.Time = time.Now().UTC()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	if n, err := w.f.Write(append(b, '\n')); err != nil {
		// A piece of a line would hide all lines after it.
		if n > 0 {
			w.broken = spaceError(w.f.Truncate(w.size))
		}
		return spaceError(err)
	}
	w.size += int64(len(b)) + 1
	return spaceError(w.f.Sync())
}

func (w *writer) intend(s plan.Step) error { return w.write(record{Record: recordIntent, Step: &s}) }

func (w *writer) done(s plan.Step, err error) error {
	r := record{Record: recordDone, Step: &s}
	if err != nil {
		r.Record, r.Error = recordFailed, err.Error()
	}
	return w.write(r)
}

func (w *writer) scope(h nic.Handle, o Outcome, err error) error {
	return w.write(record{Record: recordScope, Scope: &h, Outcome: o, Error: text(err)})
}

func (w *writer) end(o Outcome, err error) error {
	return w.write(record{Record: recordEnd, Outcome: o, Error: text(err)})
}

func (w *writer) close() error { return w.f.Close() }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
