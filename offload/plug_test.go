package offload_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

func port(rep, owner string) offload.Port {
	return offload.Port{
		Bridge: "br0", Representor: rep, VLAN: 100, Owner: owner,
		ExternalIDs: map[string]string{"iface-id": "ns_" + rep, "attached-mac": "02:00:00:00:00:01"},
	}
}

// dump is all rows with a name, so that "nothing changed" can be said of them.
func dump(t *testing.T, o *ovsdbtest.OVS) string {
	t.Helper()
	out := o.Transact(t,
		ovsdb.Select("Open_vSwitch", ovsdb.All(), "next_cfg"),
		ovsdb.Select("Bridge", ovsdb.All(), "_uuid", "name", "ports"),
		ovsdb.Select("Port", ovsdb.All(), "_uuid", "name", "interfaces", "tag", "trunks", "vlan_mode", "external_ids"),
		ovsdb.Select("Interface", ovsdb.All(), "_uuid", "name", "external_ids"))
	// A server lists rows in the order of its hash table, which changes with what
	// others write.
	var all []string
	for _, r := range out {
		var rows []map[string]json.RawMessage
		if err := r.Decode(&rows); err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			b, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(b))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func TestPlugLookupUnplug(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c, ctx := o.Connect(t), t.Context()
		o.AddBridge(t, "br0")
		o.AddBridge(t, "br1")
		o.AddNetdev(t, "pf0vf1")
		want := port("pf0vf1", "a")

		if _, err := offload.Lookup(ctx, c, "pf0vf1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before: %v", err)
		}
		if err := offload.Plug(ctx, c, want); err != nil {
			t.Fatal(err)
		}
		got, err := offload.Lookup(ctx, c, "pf0vf1")
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%v %s", err, cmp.Diff(want, got))
		}
		if n, err := offload.Ofport(ctx, c, "pf0vf1"); err != nil || n < 1 {
			t.Errorf("ofport %d, %v", n, err)
		}

		before := dump(t, o)
		if err := offload.Plug(ctx, c, want); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(before, dump(t, o)); d != "" {
			t.Errorf("a port that is there already was written to:\n%s", d)
		}

		moved := want
		moved.Bridge, moved.VLAN = "br1", 0
		moved.ExternalIDs = map[string]string{"iface-id": "other", "attached-mac": "02:00:00:00:00:01"}
		if err := offload.Plug(ctx, c, moved); err != nil {
			t.Fatal(err)
		}
		if got, err = offload.Lookup(ctx, c, "pf0vf1"); err != nil || !cmp.Equal(moved, got) {
			t.Errorf("%v %s", err, cmp.Diff(moved, got))
		}
		owned, err := offload.Owned(ctx, c)
		if err != nil || !cmp.Equal([]offload.Port{moved}, owned) {
			t.Errorf("%v %s", err, cmp.Diff([]offload.Port{moved}, owned))
		}

		before = dump(t, o)
		err = offload.Unplug(ctx, c, "pf0vf1", "b")
		if !errors.Is(err, offload.ErrForeign) || !strings.Contains(err.Error(), `it belongs to "a", we are "b"`) {
			t.Errorf("by another owner: %v", err)
		}
		if d := cmp.Diff(before, dump(t, o)); d != "" {
			t.Errorf("changed by another owner:\n%s", d)
		}
		for range 2 {
			if err := offload.Unplug(ctx, c, "pf0vf1", "a"); err != nil {
				t.Error(err)
			}
		}
		if _, err := offload.Lookup(ctx, c, "pf0vf1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("afterwards: %v", err)
		}
		// The netdev is free: another owner has it at once.
		if err := offload.Plug(ctx, c, port("pf0vf1", "b")); err != nil {
			t.Error(err)
		}
	})
}

// A trunk goes into the database as it is asked for, is read back as that, and becomes
// another or an access port.
func TestPlugTrunk(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c, ctx := o.Connect(t), t.Context()
		o.AddBridge(t, "br0")
		o.AddNetdev(t, "rep0")
		p := port("rep0", "c1/net1")
		for _, c2 := range []struct {
			native uint16
			trunk  []uint16
		}{{20, []uint16{10, 11, 300}}, {0, []uint16{10}}, {7, []uint16{10}}, {7, nil}, {0, nil}, {0, []uint16{2, 4094}}} {
			p.VLAN, p.Trunk = c2.native, c2.trunk
			if err := offload.Plug(ctx, c, p); err != nil {
				t.Fatal(err)
			}
			got, err := offload.Lookup(ctx, c, "rep0")
			if err != nil {
				t.Fatal(err)
			}
			if got.VLAN != p.VLAN || !slices.Equal(got.Trunk, p.Trunk) {
				t.Errorf("want %s, got %s", p, got)
			}
			before := dump(t, o)
			if err := offload.Plug(ctx, c, p); err != nil || dump(t, o) != before {
				t.Errorf("again: %v, or something was written", err)
			}
		}
	})
}

func TestPlugRefusesWhatIsNotOurs(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c, ctx := o.Connect(t), t.Context()
		o.AddBridge(t, "br0")
		for _, n := range []string{"theirs", "nobodys", "member0", "member1"} {
			o.AddNetdev(t, n)
		}
		o.AddPort(t, "br0", "theirs", ovsdb.Map{offload.OwnerKey: "them"})
		o.AddPort(t, "br0", "nobodys", nil)
		o.Transact(t,
			ovsdb.Insert("Interface", ovsdb.Row{"name": "member0"}, "i0"),
			ovsdb.Insert("Interface", ovsdb.Row{"name": "member1"}, "i1"),
			ovsdb.Insert("Port", ovsdb.Row{"name": "bond0", "interfaces": ovsdb.Set[ovsdb.Named]{"i0", "i1"}}, "p"),
			ovsdb.Mutate("Bridge", ovsdb.Is("name", "br0"), ovsdb.Mutation{Column: "ports", Mutator: "insert", Value: ovsdb.Named("p")}))
		before := dump(t, o)
		for rep, want := range map[string]string{
			"theirs":  `port theirs in bridge br0 is not ours: it belongs to "them", we are "us"`,
			"nobodys": `port nobodys in bridge br0 is not ours: it has no external_ids:sluice-owner`,
			"member1": `interface member1 is in port bond0 already, which is not ours`,
			"br0":     `port br0 in bridge br0 is not ours`,
		} {
			err := offload.Plug(ctx, c, port(rep, "us"))
			if !errors.Is(err, offload.ErrForeign) || !strings.Contains(err.Error(), want) {
				t.Errorf("plug %s: %v", rep, err)
			}
			if err := offload.Unplug(ctx, c, rep, "us"); rep != "member1" && !errors.Is(err, offload.ErrForeign) {
				t.Errorf("unplug %s: %v", rep, err)
			}
		}
		p := port("theirs", "them")
		p.Bridge = "br7"
		err := offload.Plug(ctx, c, p)
		if !errors.Is(err, offload.ErrNoBridge) || !strings.Contains(err.Error(), `"br7" in Open vSwitch: there are br0`) {
			t.Errorf("no bridge: %v", err)
		}
		if d := cmp.Diff(before, dump(t, o)); d != "" {
			t.Error(d)
		}
		// One of nobody can be looked up, and is not among the owned.
		if p, err := offload.Lookup(ctx, c, "nobodys"); err != nil || p.Owner != "" || p.Bridge != "br0" {
			t.Errorf("%+v %v", p, err)
		}
		if owned, err := offload.Owned(ctx, c); err != nil || len(owned) != 1 || owned[0].Owner != "them" {
			t.Errorf("%v %v", owned, err)
		}
	})
}

func TestPlugBadInput(t *testing.T) {
	o := ovsdbtest.InProcess(t)
	c := o.Connect(t)
	for _, f := range []func(*offload.Port){
		func(p *offload.Port) { p.Representor = "" },
		func(p *offload.Port) { p.Representor = "sixteen-bytes-it" },
		func(p *offload.Port) { p.Representor = "a/b" },
		func(p *offload.Port) { p.Bridge = "" },
		func(p *offload.Port) { p.Owner = "" },
		func(p *offload.Port) { p.VLAN = 4095 },
	} {
		p := port("pf0vf1", "a")
		f(&p)
		if err := offload.Plug(t.Context(), c, p); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

// A netdev that the switch cannot open: its words, and no row left behind.
func TestPlugOfMissingNetdev(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c, ctx := o.Connect(t), t.Context()
		o.AddBridge(t, "br0")
		err := offload.Plug(ctx, c, port("pf0vf9", "a"))
		if !errors.Is(err, offload.ErrNotTaken) || !strings.Contains(err.Error(), "could not open network device pf0vf9 (No such device)") {
			t.Errorf("got %v", err)
		}
		if _, err := offload.Lookup(ctx, c, "pf0vf9"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}

		// A row of ours from a time when the netdev was not there: taken up now.
		o.AddPort(t, "br0", "pf0vf9", ovsdb.Map{offload.OwnerKey: "a"})
		if _, err := offload.Ofport(ctx, c, "pf0vf9"); !errors.Is(err, offload.ErrNotTaken) {
			t.Errorf("ofport: %v", err)
		}
		o.AddNetdev(t, "pf0vf9")
		if err := offload.Plug(ctx, c, offload.Port{Bridge: "br0", Representor: "pf0vf9", Owner: "a"}); err != nil {
			t.Error(err)
		}
	})
}

// ovs-vswitchd does not run, or is stuck: the call ends with its context, and
// what it had written is gone.
func TestPlugWithoutSwitch(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		o.AddBridge(t, "br0")
		o.AddNetdev(t, "pf0vf1")
		o.AddNetdev(t, "pf0vf2")
		if err := offload.Plug(t.Context(), c, port("pf0vf2", "a")); err != nil {
			t.Fatal(err)
		}
		o.PauseSwitch(t)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		err := offload.Plug(ctx, c, port("pf0vf1", "a"))
		if !errors.Is(err, offload.ErrNotTaken) || !strings.Contains(err.Error(), "is it running?") {
			t.Errorf("got %v", err)
		}
		if _, err := offload.Lookup(t.Context(), c, "pf0vf1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
		start := time.Now()
		if err := offload.Unplug(t.Context(), c, "pf0vf2", "a"); err != nil {
			t.Errorf("unplug: %v", err)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("unplug took %v", d)
		}
		o.ResumeSwitch(t)
		if err := offload.Plug(t.Context(), c, port("pf0vf1", "a")); err != nil {
			t.Errorf("running again: %v", err)
		}
	})
}

// The database goes away in the middle, at each transaction of a plug: the error
// says so, and over a new connection plug and unplug both end well.
func TestDatabaseGoneInTheMiddle(t *testing.T) {
	for nth := 1; nth <= 3; nth++ {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("transaction %d, done %v", nth, done), func(t *testing.T) {
				o := ovsdbtest.InProcess(t)
				o.AddBridge(t, "br0")
				o.AddNetdev(t, "pf0vf1")
				c := o.Connect(t)
				o.DropAt(t, nth, done)
				err := offload.Plug(t.Context(), c, port("pf0vf1", "a"))
				if !errors.Is(err, ovsdb.ErrUnavailable) || !strings.Contains(err.Error(), o.Endpoint) {
					t.Fatalf("got %v", err)
				}
				c = o.Connect(t)
				_, err = offload.Lookup(t.Context(), c, "pf0vf1")
				if written := nth == 3 || nth == 2 && done; written != (err == nil) {
					t.Errorf("written %v, but look up: %v", written, err)
				}
				if err := offload.Plug(t.Context(), c, port("pf0vf1", "a")); err != nil {
					t.Errorf("again: %v", err)
				}
				if err := offload.Unplug(t.Context(), c, "pf0vf1", "a"); err != nil {
					t.Errorf("unplug: %v", err)
				}
			})
		}
	}
}

// Many at once, of which two want each representor: one of them has it, the
// other is told who, and no row is there twice.
func TestPlugRace(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		o.AddBridge(t, "br0")
		const reps = 6
		for i := range reps {
			o.AddNetdev(t, fmt.Sprint("pf0vf", i))
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		won := map[string]string{}
		for i := range reps {
			for _, owner := range []string{"a", "b"} {
				c := o.Connect(t)
				all.Go(func() {
					rep := fmt.Sprint("pf0vf", i)
					err := offload.Plug(t.Context(), c, port(rep, owner))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && won[rep] == "":
						won[rep] = owner
					case err == nil:
						t.Errorf("%s: both %s and %s have it", rep, won[rep], owner)
					case !errors.Is(err, offload.ErrForeign):
						t.Errorf("%s of %s: %v", rep, owner, err)
					}
				})
			}
		}
		all.Wait()
		c := o.Connect(t)
		owned, err := offload.Owned(t.Context(), c)
		if err != nil || len(owned) != reps {
			t.Fatalf("%v %v", owned, err)
		}
		for _, p := range owned {
			if p.Owner != won[p.Representor] {
				t.Errorf("%s: %s won, %s is in the row", p.Representor, won[p.Representor], p.Owner)
			}
		}
		for _, p := range owned {
			all.Go(func() {
				if err := offload.Unplug(t.Context(), c, p.Representor, p.Owner); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if owned, err := offload.Owned(t.Context(), c); err != nil || len(owned) != 0 {
			t.Errorf("%v %v", owned, err)
		}
	})
}

func TestSettings(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		s, err := offload.ReadSettings(t.Context(), c)
		if err != nil || s.HWOffload || s.TCPolicy != "none" || s.Version == "" {
			t.Errorf("%+v %v", s, err)
		}
		o.Transact(t, ovsdb.Update("Open_vSwitch", ovsdb.All(), ovsdb.Row{"other_config": ovsdb.Map{"hw-offload": "true", "tc-policy": "skip_hw"}}))
		s, err = offload.ReadSettings(t.Context(), c)
		if err != nil || !s.HWOffload || s.TCPolicy != "skip_hw" {
			t.Errorf("%+v %v", s, err)
		}
	})
}

// The ports of a full node are there while a plug and an unplug are timed.
func BenchmarkPlugUnplug(b *testing.B) {
	for name, start := range map[string]func(testing.TB) *ovsdbtest.OVS{
		"process": ovsdbtest.InProcess, "real": ovsdbtest.Daemons,
	} {
		for _, ports := range []int{0, 128} {
			b.Run(fmt.Sprintf("%s/%d", name, ports), func(b *testing.B) {
				o := start(b)
				o.AddBridge(b, "br0")
				for i := range ports {
					rep := fmt.Sprint("pf1vf", i)
					o.AddNetdev(b, rep)
					o.AddPort(b, "br0", rep, ovsdb.Map{offload.OwnerKey: "x"})
				}
				o.AddNetdev(b, "pf0vf0")
				for b.Loop() {
					// As the CNI does it: a connection for each call.
					for _, f := range []func(*ovsdb.Client) error{
						func(c *ovsdb.Client) error { return offload.Plug(b.Context(), c, port("pf0vf0", "a")) },
						func(c *ovsdb.Client) error { return offload.Unplug(b.Context(), c, "pf0vf0", "a") },
					} {
						c, err := ovsdb.Connect(b.Context(), o.Endpoint)
						if err != nil {
							b.Fatal(err)
						}
						if err := f(c); err != nil {
							b.Fatal(err)
						}
						_ = c.Close()
					}
				}
			})
		}
	}
}
