package offload_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
)

func TestAwaitInstalled(t *testing.T) {
	ovsdbtest.Each(t, func(t *testing.T, o *ovsdbtest.OVS) {
		c := o.Connect(t)
		if err := offload.AwaitInstalled(t.Context(), c, "pf0vf1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no port: %v", err)
		}
		o.AddBridge(t, "br-int")
		o.AddNetdev(t, "pf0vf1")
		p := offload.Port{Bridge: "br-int", Representor: "pf0vf1", Owner: "me", ExternalIDs: map[string]string{"iface-id": "sluice.blue.5"}}
		if err := offload.Plug(t.Context(), c, p); err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		err := offload.AwaitInstalled(short, c, "pf0vf1")
		if !errors.Is(err, offload.ErrNotInstalled) || !strings.Contains(err.Error(), `port pf0vf1 (iface-id "sluice.blue.5"): OVN has not installed its flows in time`) {
			t.Errorf("nobody installs: %v", err)
		}
		done := make(chan error)
		go func() { done <- offload.AwaitInstalled(t.Context(), c, "pf0vf1") }()
		select {
		case err := <-done:
			t.Fatalf("back before the flows: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		o.Transact(t, ovsdb.Mutate("Interface", ovsdb.Is("name", "pf0vf1"),
			ovsdb.Mutation{Column: "external_ids", Mutator: "insert", Value: ovsdb.Map{"ovn-installed": "true"}}))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
