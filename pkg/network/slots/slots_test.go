package slots

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/sluice/pkg/network"
)

func blue(ports int, cidr string) network.Network {
	return network.Network{Name: "blue", Layer: 2, Encapsulation: "geneve", Ports: ports,
		Subnets: []network.Subnet{{Prefix: netip.MustParsePrefix(cidr)}}}
}

// memory is a folder that costs no disk, where there is one.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "slots")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func put(t *testing.T, s Store, g Grant) {
	t.Helper()
	if err := s.Put(g); err != nil {
		t.Fatal(err)
	}
}

func TestTakeAndGive(t *testing.T) {
	s := Open(memory(t))
	if _, _, err := s.Take("blue", "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a block: %v", err)
	}
	put(t, s, Grant{Network: blue(4, "10.1.0.0/28"), Block: 0}) // slots 1 to 3
	var got []network.Slot
	take := func(owner string) {
		t.Helper()
		_, slot, err := s.Take("blue", owner)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, slot)
	}
	take("a")
	take("b")
	take("a") // has it
	if err := s.Give("blue", "b"); err != nil {
		t.Fatal(err)
	}
	take("c") // not b's, which rests
	take("d")
	if d := cmp.Diff([]network.Slot{1, 2, 1, 3, 2}, got); d != "" {
		t.Error(d)
	}
	if _, _, err := s.Take("blue", "e"); !errors.Is(err, ErrFull) || err.Error() != "network blue: no address is free: all 3 of this node are taken" {
		t.Errorf("full: %v", err)
	}
	leases, err := s.Leases("blue")
	if d := cmp.Diff([]Lease{{Slot: 1, Owner: "a"}, {Slot: 2, Owner: "d"}, {Slot: 3, Owner: "c"}}, leases, cmpopts.IgnoreFields(Lease{}, "Taken")); d != "" || err != nil {
		t.Error(d, err)
	}
	if err := s.Drop("blue"); err == nil || err.Error() != "network blue: 3 addresses are in use, slot 1 by a" {
		t.Errorf("drop: %v", err)
	}
	for _, owner := range []string{"a", "c", "d", "nobody"} {
		if err := s.Give("blue", owner); err != nil {
			t.Error(err)
		}
	}
	if err := s.Drop("blue"); err != nil {
		t.Error(err)
	}
	if names, err := s.Names(); len(names) > 0 || err != nil {
		t.Errorf("left: %v, %v", names, err)
	}
}

// Files are the owner's alone, and a name that leads elsewhere is none.
func TestFolder(t *testing.T) {
	dir := memory(t)
	s := Open(dir)
	put(t, s, Grant{Network: blue(4, "10.1.0.0/28"), Block: 0})
	if _, _, err := s.Take("blue", "a"); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(filepath.Join(dir, "networks"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err == nil && i.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, i.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", "a/b", ".hidden"} {
		if _, err := s.Get(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

// As many at once as there are slots: each gets one, no two the same.
func TestTakeAtOnce(t *testing.T) {
	s := Open(memory(t))
	put(t, s, Grant{Network: blue(64, "10.1.0.0/24"), Block: 1})
	var all sync.WaitGroup
	got := make([]network.Slot, 64)
	for i := range got {
		all.Go(func() {
			var err error
			if _, got[i], err = s.Take("blue", fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(got)
	if len(slices.Compact(got)) != 64 {
		t.Errorf("a slot was given twice: %v", got)
	}
}

// world is a cluster: what the controller has written, the nodes with their disks,
// and who lives.
type world struct {
	t      *testing.T
	r      *rand.Rand
	dir    string
	net    network.Network
	claims []network.Claim
	member map[string]bool   // nodes that the cluster has
	lives  map[string]lease  // pods that run, by owner
	unsure map[string]string // owners whose ADD was cut off, by node
	pods   int
}

type lease struct {
	node string
	slot network.Slot
}

// More nodes than the network has blocks.
var nodes = []string{"a", "b", "c", "d", "e", "f"}

func (w *world) store(node string) Store { return Open(filepath.Join(w.dir, node)) }

// assign is a turn of the controller; it may end before it has written anything.
func (w *world) assign() {
	var members []string
	for _, n := range nodes {
		if w.member[n] {
			members = append(members, n)
		}
	}
	out, _ := w.net.Assign(w.claims, members)
	if w.r.IntN(4) == 0 {
		return
	}
	w.claims = out
	for owner, l := range w.lives {
		switch {
		case w.bound(l.node, l.slot):
		case w.member[l.node]:
			w.t.Fatalf("%s lives on a node of the cluster, and its slot %d was taken from it", owner, l.slot)
		default:
			delete(w.lives, owner) // OVN unbinds its port
		}
	}
}

// grant is a turn of a node's agent.
func (w *world) grant(node string) {
	for _, c := range w.claims {
		if c.Node == node && w.member[node] {
			put(w.t, w.store(node), Grant{Network: w.net, Block: c.Block})
		}
	}
}

// bound says whether OVN lets the node have the slot: its port asks for the chassis
// that the claims name (requested-chassis).
func (w *world) bound(node string, s network.Slot) bool {
	return slices.Contains(w.claims, network.Claim{Node: node, Block: w.net.Block(s)})
}

func (w *world) take(node string) {
	w.pods++
	owner := fmt.Sprintf("%s/%d", node, w.pods)
	_, slot, err := w.store(node).Take(w.net.Name, owner)
	switch {
	case errors.Is(err, ErrFull) || errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		w.t.Fatal(err)
	case !w.bound(node, slot):
		// The port never comes up: ADD fails, and gives back.
		if err := w.store(node).Give(w.net.Name, owner); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	for other, l := range w.lives {
		if l.slot == slot {
			w.t.Fatalf("slot %d of %s is given to %s too", slot, other, owner)
		}
	}
	if !slices.Contains(w.net.Slots(w.net.Block(slot)), slot) {
		w.t.Fatalf("slot %d is not for pods", slot)
	}
	w.lives[owner] = lease{node, slot}
}

// crash is a Take that ends in its middle: before the file is in place, or after.
func (w *world) crash(node string) {
	g, err := w.store(node).Get(w.net.Name)
	if err != nil {
		return
	}
	dir, _ := w.store(node).folder(w.net.Name)
	w.pods++
	owner := fmt.Sprintf("%s/%d", node, w.pods)
	temp := filepath.Join(dir, fmt.Sprintf(".claim.%d", w.pods))
	if err := os.WriteFile(temp, []byte(owner), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if w.r.IntN(2) == 0 {
		slots := g.Network.Slots(g.Block)
		_ = os.Link(temp, filepath.Join(dir, file(slots[w.r.IntN(len(slots))]))) // there may be one
	}
	w.unsure[owner] = node
}

// undo is the runtime's DEL after an ADD that was cut off.
func (w *world) undo() {
	for owner, node := range w.unsure {
		if err := w.store(node).Give(w.net.Name, owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
		delete(w.unsure, owner)
	}
}

func (w *world) give() {
	if len(w.lives) == 0 {
		return
	}
	owner := slices.Min(slices.Collect(maps.Keys(w.lives)))
	l := w.lives[owner]
	delete(w.lives, owner)
	if err := w.store(l.node).Give(w.net.Name, owner); err != nil {
		w.t.Fatal(err)
	}
}

// lose takes a node out of the cluster: its pods are gone, its disk may come back.
func (w *world) lose(node string) {
	w.member[node] = false
	for owner, l := range w.lives {
		if l.node == node {
			delete(w.lives, owner)
		}
	}
	if w.r.IntN(2) == 0 {
		_ = os.RemoveAll(filepath.Join(w.dir, node))
	}
}

// Ten thousand cluster lives: whatever order nodes come and go in, are lost with
// their disks or come back with old ones, and wherever ADDs and the controller are
// cut off, no two pods have one slot, what lives stays taken, and in the end all can
// be had again.
func TestNoSlotTwice(t *testing.T) {
	lives := 10000
	if testing.Short() {
		lives = 500
	}
	dir := memory(t)
	for seed := range lives {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		w := &world{t: t, r: r, dir: filepath.Join(dir, fmt.Sprint(seed)), net: blue(4, "10.1.0.0/28"),
			member: map[string]bool{}, lives: map[string]lease{}, unsure: map[string]string{}}
		if seed%3 == 0 {
			w.net = blue(4, "fd00::/124")
		}
		for _, node := range nodes[:4] {
			w.member[node] = true
		}
		w.assign()
		for _, node := range nodes {
			w.grant(node)
		}
		for range 32 {
			node := nodes[r.IntN(len(nodes))]
			switch r.IntN(14) {
			case 0:
				w.lose(node)
			case 1:
				w.member[node] = true
			case 2, 3, 4:
				w.assign()
			case 5, 6:
				w.grant(node)
			case 7:
				w.crash(node)
			case 8:
				w.undo()
			case 9:
				w.give()
			default:
				w.take(node)
			}
		}
		w.whole()
		_ = os.RemoveAll(w.dir)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// whole compares the disks with who lives, then ends all and wants each node's block
// whole again.
func (w *world) whole() {
	w.undo()
	for owner, l := range w.lives {
		leases, err := w.store(l.node).Leases(w.net.Name)
		if err != nil || !slices.ContainsFunc(leases, func(h Lease) bool { return h.Slot == l.slot && h.Owner == owner }) {
			w.t.Fatalf("%s lives with slot %d, and node %s has %v (%v)", owner, l.slot, l.node, leases, err)
		}
	}
	for len(w.lives) > 0 {
		w.give()
	}
	for _, n := range nodes {
		g, err := w.store(n).Get(w.net.Name)
		if err != nil {
			continue
		}
		for i := range g.Network.Slots(g.Block) {
			if _, _, err := w.store(n).Take(w.net.Name, fmt.Sprint("last", i)); err != nil && !w.lost(n) {
				w.t.Fatalf("node %s, %d of its block taken: %v", n, i, err)
			}
		}
	}
}

// lost says that a node has leases of pods that died with it, which the sweep of
// orphans gives back, not the allocator.
func (w *world) lost(node string) bool {
	leases, _ := w.store(node).Leases(w.net.Name)
	return slices.ContainsFunc(leases, func(l Lease) bool { return len(l.Owner) > 2 && l.Owner[:2] == node+"/" })
}
