// Package slots keeps which slots of a node's blocks are taken, and by whom.
//
// A folder for each network holds network.json, what the network is and which block
// of it the node has, and a file for each slot that is taken, NUMBER, in which the
// owner stands. The name of a file makes its owner the only one: it is linked into
// place whole, which fails if there is one. So nothing is locked, nobody is asked,
// and whoever is killed leaves a slot taken by a known owner, or free.
package slots

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
	"time"

	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/network"
)

// ErrFull: all slots of the node's block are taken.
var ErrFull = errors.New("no address is free")

// Store is the folder of a node's networks.
type Store struct{ dir string }

// Open is the store below a state folder; it is made with the first Put.
func Open(stateDir string) Store { return Store{filepath.Join(stateDir, "networks")} }

// Grant is a network as a node has it. Object is the UID of the Kubernetes object that it
// is of; "": it was brought by hand, and is taken away by hand.
type Grant struct {
	Network network.Network `json:"network"`
	Block   int             `json:"block"`
	Object  string          `json:"object,omitempty"`
}

// Lease is a slot and who has it.
type Lease struct {
	Slot  network.Slot
	Owner string
	Taken time.Time
}

const grantFile = "network.json"

// Put writes what the node has of a network. Slots that are taken stay so, also such
// as are not in the block.
func (s Store) Put(g Grant) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return err
	}
	dir, err := s.folder(g.Network.Name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if old, err := os.ReadFile(filepath.Join(dir, grantFile)); err == nil && string(old) == string(raw) {
		return nil
	}
	return disk.Replace(filepath.Join(dir, grantFile), raw, 0o600)
}

// Get reads what the node has of a network; nothing is fs.ErrNotExist.
func (s Store) Get(name string) (Grant, error) {
	var g Grant
	dir, err := s.folder(name)
	if err != nil {
		return g, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, grantFile))
	if errors.Is(err, fs.ErrNotExist) {
		return g, fmt.Errorf("this node has no block of network %q: %w", name, fs.ErrNotExist)
	}
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		return g, fmt.Errorf("network %q of this node: %w", name, err)
	}
	return g, nil
}

// Names are the networks that the node has something of, in order.
func (s Store) Names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // it is being dropped
		}
		if _, err := os.Stat(filepath.Join(s.dir, e.Name(), grantFile)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Drop forgets a network of which no slot is taken; one of which some are stays, and
// the error says whose. Whoever takes a slot at the same time finds no block, or keeps
// the network.
func (s Store) Drop(name string) error {
	dir, err := s.folder(name)
	if err != nil {
		return err
	}
	if err := s.unused(name); err != nil {
		return err
	}
	// A slot is linked into the folder by its path: into one that was moved away none is.
	away := filepath.Join(s.dir, "."+name)
	if err := os.RemoveAll(away); err != nil {
		return err
	}
	switch err := os.Rename(dir, away); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	leases, err := leasesIn(away)
	if err == nil && len(leases) > 0 {
		err = inUse(name, leases)
	}
	if err != nil {
		return errors.Join(err, os.Rename(away, dir))
	}
	return os.RemoveAll(away)
}

func (s Store) unused(name string) error {
	leases, err := s.Leases(name)
	if err == nil && len(leases) > 0 {
		err = inUse(name, leases)
	}
	return err
}

func inUse(name string, leases []Lease) error {
	return fmt.Errorf("network %s: %d addresses are in use, slot %d by %s", name, len(leases), leases[0].Slot, leases[0].Owner)
}

// Take gives owner a slot of the node's block, that which it has if it has one:
// asking twice is asking once. The slot after the one that was given last comes
// first, so one that was just given back rests. ErrFull when there is none;
// fs.ErrNotExist when the node has no block. What was taken is on the disk when Take
// returns. Any number of processes may take at a time, for one owner one.
func (s Store) Take(name, owner string) (Grant, network.Slot, error) {
	g, err := s.Get(name)
	if err != nil {
		return g, 0, err
	}
	if owner == "" {
		return g, 0, errors.New("a slot of nobody: want an owner")
	}
	dir, err := s.folder(name)
	if err != nil {
		return g, 0, err
	}
	leases, err := s.Leases(name)
	if err != nil {
		return g, 0, err
	}
	slots := g.Network.Slots(g.Block)
	for _, l := range leases {
		if l.Owner == owner && slices.Contains(slots, l.Slot) {
			return g, l.Slot, nil
		}
	}
	for _, slot := range after(slots, last(dir)) {
		switch err := claim(dir, slot, owner); {
		case err == nil:
			_ = os.WriteFile(filepath.Join(dir, lastFile), []byte(file(slot)), 0o600)
			return g, slot, nil
		case !errors.Is(err, fs.ErrExist):
			return g, 0, fmt.Errorf("take slot %d of network %s: %w", slot, name, err)
		}
	}
	return g, 0, fmt.Errorf("network %s: %w: all %d of this node are taken", name, ErrFull, len(slots))
}

// Give gives back what owner has of a network; nothing is success.
func (s Store) Give(name, owner string) error {
	leases, err := s.Leases(name)
	if err != nil {
		return err
	}
	dir, err := s.folder(name)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if l.Owner != owner {
			continue
		}
		if err := os.Remove(filepath.Join(dir, file(l.Slot))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return disk.SyncDir(dir)
}

// Leases are the slots of a network that are taken, in order; none if the node has
// nothing of it.
func (s Store) Leases(name string) ([]Lease, error) {
	dir, err := s.folder(name)
	if err != nil {
		return nil, err
	}
	return leasesIn(dir)
}

func leasesIn(dir string) ([]Lease, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Lease
	for _, e := range entries {
		slot, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue // network.json, or what a crash left beside it
		}
		owner, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back since
		}
		if err != nil {
			return nil, err
		}
		l := Lease{Slot: network.Slot(slot), Owner: string(owner)}
		if i, err := e.Info(); err == nil {
			l.Taken = i.ModTime()
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Lease) int { return int(a.Slot) - int(b.Slot) })
	return out, nil
}

func file(s network.Slot) string { return strconv.FormatUint(uint64(s), 10) }

func (s Store) folder(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("%q is no name of a network", name)
	}
	return filepath.Join(s.dir, name), nil
}

// claim links a file in which the owner stands into the slot's place. link(2) is
// atomic and fails with EEXIST.
func claim(dir string, slot network.Slot, owner string) error {
	f, err := os.CreateTemp(dir, ".claim.*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(owner)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), filepath.Join(dir, file(slot)))
	}
	if gone := os.Remove(f.Name()); err == nil {
		err = gone
	}
	if err != nil {
		return err
	}
	return disk.SyncDir(dir)
}

// lastFile says which slot was given last. It is a hint, and may be missing, or empty
// after a power cut.
const lastFile = "last"

func last(dir string) int {
	raw, err := os.ReadFile(filepath.Join(dir, lastFile))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return -1
	}
	return n
}

// after is the slots from the one that follows last on, round the end.
func after(slots []network.Slot, last int) []network.Slot {
	i := slices.IndexFunc(slots, func(s network.Slot) bool { return int(s) > last })
	if i < 0 {
		return slots
	}
	return append(slices.Clone(slots[i:]), slots[:i]...)
}
