package offload_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

func otherConfig(t *testing.T, o *ovsdbtest.OVS) ovsdb.Map {
	t.Helper()
	var rows []ovsdb.OpenVSwitch
	if err := o.Transact(t, ovsdb.Select("Open_vSwitch", ovsdb.All(), ovsdb.OpenVSwitchColumns()...))[0].Decode(&rows); err != nil {
		t.Fatal(err)
	}
	return rows[0].OtherConfig
}

// Case B41: with tc-policy skip_sw, flows with conntrack break. Nothing of ours writes
// one; wanting offload removes the key, whoever wrote it, and says where that counts only
// from the next start; and who does not want offload has it left alone.
func TestB41TCPolicyIsNone(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		set := func(ids ovsdb.Map) {
			o.Transact(t, ovsdb.Update("Open_vSwitch", ovsdb.All(), ovsdb.Row{"other_config": ids}))
		}
		for name, x := range map[string]struct {
			before  ovsdb.Map
			wish    offload.Wish
			after   ovsdb.Map
			restart bool
		}{
			"nothing set":      {ovsdb.Map{}, offload.Wish{HWOffload: true}, ovsdb.Map{"hw-offload": "true"}, false},
			"before offload":   {ovsdb.Map{"tc-policy": "skip_sw", "vlan-limit": "2"}, offload.Wish{HWOffload: true}, ovsdb.Map{"hw-offload": "true", "vlan-limit": "2"}, false},
			"while it runs":    {ovsdb.Map{"hw-offload": "true", "tc-policy": "skip_sw"}, offload.Wish{HWOffload: true}, ovsdb.Map{"hw-offload": "true"}, true},
			"none, in words":   {ovsdb.Map{"hw-offload": "true", "tc-policy": "none"}, offload.Wish{HWOffload: true}, ovsdb.Map{"hw-offload": "true", "tc-policy": "none"}, false},
			"nobody's wish":    {ovsdb.Map{"tc-policy": "skip_sw"}, offload.Wish{FlowLimit: 1000}, ovsdb.Map{"tc-policy": "skip_sw", "flow-limit": "1000"}, false},
			"no wish at all":   {ovsdb.Map{"hw-offload": "true", "tc-policy": "skip_sw"}, offload.Wish{}, ovsdb.Map{"hw-offload": "true", "tc-policy": "skip_sw"}, false},
			"a word of others": {ovsdb.Map{"hw-offload": "true", "tc-policy": "skip-sw"}, offload.Wish{HWOffload: true}, ovsdb.Map{"hw-offload": "true"}, true},
		} {
			set(x.before)
			wrote, err := offload.KeepSettings(t.Context(), c, x.wish)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d := cmp.Diff(x.after, otherConfig(t, o)); d != "" {
				t.Errorf("%s (-want +got): %s", name, d)
			}
			restart := false
			for _, w := range wrote {
				restart = restart || w.Restart
			}
			if restart != x.restart {
				t.Errorf("%s: a restart is asked for: %v in %v", name, restart, wrote)
			}
		}
	})
}

// Case B45: a logical port has one interface. Of two that want it, also at once, one has
// it and the other is told which; a late end of the one that lost takes nothing from the
// one that won; and what OVN said of another logical port is not taken for news of this.
func TestB45OneInterfaceALogicalPort(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c, ctx := o.Connect(t), t.Context()
		o.AddBridge(t, "br-int")
		reps := []string{"pf0vf0", "pf0vf1", "pf0vf2", "pf0vf3"}
		for _, rep := range reps {
			o.AddNetdev(t, rep)
		}
		of := func(rep, owner, id, version string) offload.Port {
			return offload.Port{Bridge: "br-int", Representor: rep, Owner: owner,
				ExternalIDs: map[string]string{"iface-id": id, "iface-id-ver": version}}
		}
		for turn := range 5 {
			var all sync.WaitGroup
			errs := make([]error, len(reps))
			for i, rep := range reps {
				own := o.Connect(t)
				all.Go(func() { errs[i] = offload.Plug(ctx, own, of(rep, rep+"/net1", "shop_web", "u1")) })
			}
			all.Wait()
			won := -1
			for i, err := range errs {
				switch {
				case err == nil && won >= 0:
					t.Fatalf("turn %d: both %s and %s have the logical port", turn, reps[won], reps[i])
				case err == nil:
					won = i
				case !errors.Is(err, offload.ErrSamePort) || !strings.Contains(err.Error(), `iface-id "shop_web": interface pf0vf`):
					t.Errorf("turn %d: %s: %v", turn, reps[i], err)
				}
			}
			if won < 0 {
				t.Fatalf("turn %d: nobody has it: %v", turn, errs)
			}
			for i, rep := range reps {
				if i != won {
					if err := offload.Unplug(ctx, c, rep, rep+"/net1"); err != nil {
						t.Error(err)
					}
				}
			}
			have, err := offload.Holders(ctx, c, "shop_web")
			if err != nil || len(have) != 1 || have[0].Representor != reps[won] || have[0].ExternalIDs["iface-id-ver"] != "u1" {
				t.Fatalf("turn %d: %+v, %v; %s won", turn, have, err, reps[won])
			}
			if err := offload.Unplug(ctx, c, reps[won], reps[won]+"/net1"); err != nil {
				t.Fatal(err)
			}
		}

		// Somebody else's interface has it just as well.
		o.AddPort(t, "br-int", "pf0vf3", nil)
		o.Transact(t, ovsdb.Update("Interface", ovsdb.Is("name", "pf0vf3"), ovsdb.Row{"external_ids": ovsdb.Map{"iface-id": "shop_db"}}))
		if err := offload.Plug(ctx, c, of("pf0vf0", "a/net1", "shop_db", "u1")); !errors.Is(err, offload.ErrSamePort) || !strings.Contains(err.Error(), "interface pf0vf3") {
			t.Errorf("of somebody else: %v", err)
		}

		// What OVN has installed for one logical port, or generation, says nothing of the next.
		for _, next := range []offload.Port{of("pf0vf0", "a/net1", "two", "u1"), of("pf0vf0", "a/net1", "two", "u2")} {
			if err := offload.Plug(ctx, c, of("pf0vf0", "a/net1", "one", "u1")); err != nil {
				t.Fatal(err)
			}
			if next.ExternalIDs["iface-id-ver"] == "u2" {
				if err := offload.Plug(ctx, c, of("pf0vf0", "a/net1", "two", "u1")); err != nil {
					t.Fatal(err)
				}
			}
			o.Transact(t, ovsdb.Mutate("Interface", ovsdb.Is("name", "pf0vf0"), ovsdb.Mutation{Column: "external_ids", Mutator: "insert",
				Value: ovsdb.Map{"ovn-installed": "true", "ovn-installed-ts": "1"}}))
			if err := offload.AwaitInstalled(ctx, c, "pf0vf0"); err != nil {
				t.Fatal(err)
			}
			if err := offload.Plug(ctx, c, next); err != nil {
				t.Fatal(err)
			}
			short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
			err := offload.AwaitInstalled(short, c, "pf0vf0")
			stop()
			if !errors.Is(err, offload.ErrNotInstalled) {
				t.Errorf("%v: the flows of the logical port before pass for its own: %v", next.ExternalIDs, err)
			}
		}
	})
}

// Case B49: ovsdb-server goes away and comes back, again and again, while connections are
// open and a transaction waits. What was open says at once that it is spent, whoever
// connects anew sees what the database has then, and nothing stays open.
func TestB49AfterEachRestart(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		o.AddBridge(t, "br0")
		o.AddNetdev(t, "pf0vf0")
		files := func() int {
			all, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		var before int
		for turn := range 8 {
			owner := string(rune('a'+turn)) + "/net1"
			var open []*ovsdb.Client
			for range 4 {
				c, err := ovsdb.Connect(t.Context(), o.Endpoint)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, c)
			}
			if err := offload.Plug(t.Context(), open[0], port("pf0vf0", owner)); err != nil {
				t.Fatal(err)
			}
			waiting := make(chan error, 1)
			go func() { waiting <- offload.AwaitInstalled(t.Context(), open[1], "pf0vf0") }()
			o.StopDatabase(t)
			if err := <-waiting; !errors.Is(err, ovsdb.ErrUnavailable) {
				t.Errorf("turn %d: who waits: %v", turn, err)
			}
			if _, err := ovsdb.Connect(t.Context(), o.Endpoint); !errors.Is(err, ovsdb.ErrUnavailable) {
				t.Errorf("turn %d: while it is away: %v", turn, err)
			}
			o.StartDatabase(t)
			for _, c := range open {
				if _, err := offload.Owned(t.Context(), c); !errors.Is(err, ovsdb.ErrUnavailable) {
					t.Errorf("turn %d: a connection of before: %v", turn, err)
				}
				_ = c.Close()
			}
			c, err := ovsdb.Connect(t.Context(), o.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			owned, err := offload.Owned(t.Context(), c)
			if d := cmp.Diff([]offload.Port{port("pf0vf0", owner)}, owned); d != "" || err != nil {
				t.Errorf("turn %d: %v %s", turn, err, d)
			}
			if err := offload.Unplug(t.Context(), c, "pf0vf0", owner); err != nil {
				t.Errorf("turn %d: %v", turn, err)
			}
			_ = c.Close()
			if turn == 1 {
				before = files()
			}
		}
		// The end of a connection at the other side, which here may be the same process,
		// takes a moment.
		for end := time.Now().Add(30 * time.Second); files() > before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d files are open, and were %d six restarts before", files(), before)
			}
		}
	})
}
