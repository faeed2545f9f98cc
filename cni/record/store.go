package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/disk"
)

// Store is the records of one state directory.
type Store struct {
	dir string
}

// In returns the records below stateDir. Nothing is read or made.
func In(stateDir string) Store { return Store{filepath.Join(stateDir, "attachments")} }

// StateDir is the directory that the records are below.
func (s Store) StateDir() string { return filepath.Dir(s.dir) }

// Entries that a failing release, tried for ever, adds are dropped when the file
// has grown to this many bytes.
const maxFile = 64 << 10

// Load reads the record of the VF at a PCI address, or of another key (Record.Key);
// fs.ErrNotExist when nobody holds it. A file that cannot be understood is an error that names it.
func (s Store) Load(key string) (*Record, error) {
	data, err := os.ReadFile(s.file(key))
	if err != nil {
		return nil, err
	}
	r, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("attachment record %s: %w", s.file(key), err)
	}
	if r.Key() != key {
		return nil, fmt.Errorf("attachment record %s: it is of VF %q", s.file(key), r.Key())
	}
	return r, nil
}

func parse(data []byte) (*Record, error) {
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	r := new(Record)
	if err := json.Unmarshal(first, r); err != nil {
		return nil, err
	}
	if r.Version != Version {
		return nil, fmt.Errorf("its version is %d: want %d", r.Version, Version)
	}
	// Entries are not flushed: a power cut may leave half a one at the end.
	for len(rest) > 0 && r.Last == (Entry{}) {
		cut := bytes.LastIndexByte(rest, '\n') + 1
		var e Entry
		if json.Unmarshal(rest[cut:], &e) == nil {
			r.Last = e
		}
		rest = rest[:max(cut-1, 0)]
	}
	return r, nil
}

// Save writes r anew, without entries, and returns when it is on the disk.
func (s Store) Save(r *Record) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	r.Version, r.Last = Version, Entry{}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// The lock on the VF is held, so one temporary name for each VF will do, and
	// what a crash leaves is written over; disk.Replace would leave one each time.
	tmp := s.file(r.Key()) + ".tmp"
	if err := writeFile(tmp, data); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.file(r.Key())); err != nil {
		return err
	}
	return disk.SyncDir(s.dir)
}

func writeFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Append writes an entry below r. It survives the process; not a power cut, after
// which nothing is left of an attachment that an entry could tell about.
func (s Store) Append(r *Record, e Entry) error {
	if info, err := os.Stat(s.file(r.Key())); err == nil && info.Size() > maxFile {
		if err := s.Save(r); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(s.file(r.Key()), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// The newline comes first, so that half a line never spoils the next one.
	if _, err := f.Write(append([]byte("\n"), data...)); err != nil {
		return err
	}
	r.Last = e
	return nil
}

// Remove forgets the VF's record, for good on return. None there is success.
func (s Store) Remove(vf string) error {
	if err := os.Remove(s.file(vf)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return disk.SyncDir(s.dir)
}

// Find lists the records of one interface of one container, in order of PCI
// address. Records that cannot be read are passed over: nobody knows whose they
// are.
func (s Store) Find(container, ifname string) ([]*Record, error) {
	return s.find(func(r *Record) bool { return r.IsOf(container, ifname) })
}

// FindWith is Find, and the records of the interfaces that came with that one.
func (s Store) FindWith(container, ifname string) ([]*Record, error) {
	return s.find(func(r *Record) bool { return r.GoesWith(container, ifname) })
}

func (s Store) find(is func(*Record) bool) ([]*Record, error) {
	vfs, err := s.vfs()
	if err != nil {
		return nil, err
	}
	var out []*Record
	for _, vf := range vfs {
		if r, err := s.Load(vf); err == nil && is(r) {
			out = append(out, r)
		}
	}
	return out, nil
}

// Found is a record file: what it holds, or why it cannot be read.
type Found struct {
	VF     string  // Record.Key
	Record *Record // nil with Err
	Err    error
}

// All lists all records, in order of PCI address. One that went meanwhile is left
// out.
func (s Store) All() ([]Found, error) {
	vfs, err := s.vfs()
	if err != nil {
		return nil, err
	}
	var out []Found
	for _, vf := range vfs {
		r, err := s.Load(vf)
		if !errors.Is(err, fs.ErrNotExist) {
			out = append(out, Found{vf, r, err})
		}
	}
	return out, nil
}

// Writable says whether a record could be made now, by making a file and removing it.
func (s Store) Writable() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, ".try-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// SetAside takes a record that cannot be read out of the way, for people to look at:
// ADDRESS.json.damaged, which the next one replaces. Nobody holds the VF then.
func (s Store) SetAside(vf string) error {
	if err := os.Rename(s.file(vf), s.file(vf)+".damaged"); err != nil {
		return err
	}
	return disk.SyncDir(s.dir)
}

// Owners says for each held VF, by PCI address, who holds it in the present boot of the
// machine (host.Machine.Boot; "" not known). A record that cannot be read is an owner
// all the same: its VF is not free. No directory means that nothing is held.
func Owners(stateDir, boot string) (map[string]string, error) {
	s := In(stateDir)
	vfs, err := s.vfs()
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(vfs))
	for _, key := range vfs {
		vf, _ := strings.CutSuffix(key, repSuffix)
		if owner := s.Owner(vf, boot); owner != "" {
			out[vf] = owner
		}
	}
	return out, nil
}

// Owner says who holds a VF in the present boot, or else its representor, "" for nobody:
// a record of another one outlived its pod. A record that cannot be read holds it too:
// nobody knows for whom.
func (s Store) Owner(vf, boot string) string {
	if owner := s.owner(vf, boot); owner != "" {
		return owner
	}
	return s.owner(RepKey(vf), boot)
}

func (s Store) owner(key, boot string) string {
	switch r, err := s.Load(key); {
	case err == nil && r.Outlived(boot):
		return ""
	case err == nil:
		return r.Holder()
	case errors.Is(err, fs.ErrNotExist):
		return ""
	default:
		return "an unreadable record: " + err.Error()
	}
}

// vfs lists the VFs that have a record.
func (s Store) vfs() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if vf, ok := strings.CutSuffix(e.Name(), ".json"); ok && isKey(vf) {
			out = append(out, vf)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (s Store) file(vf string) string { return filepath.Join(s.dir, vf+".json") }
