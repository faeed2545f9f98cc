package offload_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

func TestMissing(t *testing.T) {
	all := offload.Wish{HWOffload: true, MaxIdle: 30 * time.Second, FlowLimit: 500000}
	for _, c := range []struct {
		is   offload.Settings
		want offload.Wish
		says []string
	}{
		{offload.Settings{TCPolicy: "none"}, offload.Wish{}, nil},
		{offload.Settings{TCPolicy: "skip_hw"}, offload.Wish{MaxIdle: time.Second}, []string{"other_config:max-idle=1000"}},
		{offload.Settings{TCPolicy: "none"}, all, []string{"other_config:hw-offload=true", "other_config:max-idle=30000", "other_config:flow-limit=500000"}},
		{offload.Settings{TCPolicy: "none", HWOffload: true, MaxIdle: "30000", FlowLimit: "500000"}, all, nil},
		{offload.Settings{TCPolicy: "skip_hw"}, offload.Wish{HWOffload: true}, []string{"other_config:tc-policy removed (it was skip_hw)", "other_config:hw-offload=true"}},
		{offload.Settings{TCPolicy: "skip_sw", HWOffload: true}, offload.Wish{HWOffload: true}, []string{"other_config:tc-policy removed (it was skip_sw), which counts from the next start of ovs-vswitchd"}},
		{offload.Settings{TCPolicy: "none", MaxIdle: "5"}, offload.Wish{MaxIdle: time.Minute}, []string{"other_config:max-idle=60000 (it was 5)"}},
	} {
		var says []string
		for _, change := range c.is.Missing(c.want) {
			says = append(says, change.String())
		}
		if d := cmp.Diff(c.says, says); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
	}
}

func TestKeepSettings(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c, ctx := o.Connect(t), t.Context()
		config := func() ovsdb.Map {
			var rows []ovsdb.OpenVSwitch
			if err := o.Transact(t, ovsdb.Select("Open_vSwitch", ovsdb.All(), ovsdb.OpenVSwitchColumns()...))[0].Decode(&rows); err != nil {
				t.Fatal(err)
			}
			return rows[0].OtherConfig
		}
		before := config()
		o.Transact(t, ovsdb.Mutate("Open_vSwitch", ovsdb.All(), ovsdb.Mutation{Column: "other_config", Mutator: "insert",
			Value: ovsdb.Map{"tc-policy": "skip_hw", "max-idle": "7", "vlan-limit": "2"}}))
		wish := offload.Wish{HWOffload: true, MaxIdle: 20 * time.Second, FlowLimit: 300000}
		wrote, err := offload.KeepSettings(ctx, c, wish)
		if err != nil || len(wrote) != 4 {
			t.Fatalf("%v, %v", wrote, err)
		}
		want := ovsdb.Map{"hw-offload": "true", "max-idle": "20000", "flow-limit": "300000", "vlan-limit": "2"}
		for k, v := range before {
			if _, ours := want[k]; !ours {
				want[k] = v
			}
		}
		if d := cmp.Diff(want, config()); d != "" {
			t.Error(d)
		}
		if s, err := offload.ReadSettings(ctx, c); err != nil || s.Missing(wish) != nil || s.MaxIdle != "20000" {
			t.Errorf("%+v, %v", s, err)
		}
		if wrote, err := offload.KeepSettings(ctx, c, wish); err != nil || wrote != nil {
			t.Errorf("a second time: %v, %v", wrote, err)
		}
		if wrote, err := offload.KeepSettings(ctx, c, offload.Wish{}); err != nil || wrote != nil {
			t.Errorf("nothing wanted: %v, %v", wrote, err)
		}
	})
}
