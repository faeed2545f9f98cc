package proof_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/pkg/ovsdb/ovsdbtest"
	"sluice.dev/sluice/pkg/tc"
)

func TestParseFlows(t *testing.T) {
	text, err := os.ReadFile("testdata/flows.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := proof.ParseFlows(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []proof.Flow{
		{
			UFID: "9a1d9b0e-5b5a-4b6e-9d8a-000000000001", Port: "pf0vf0", Layer: "tc", Offloaded: "yes",
			Match:   "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),recirc_id(0),in_port(pf0vf0),eth_type(0x0800),ipv4(frag=no)",
			Actions: "pf0vf1", Total: tc.Counter{Packets: 41, Bytes: 3444}, Used: "0.210s",
		},
		{
			UFID: "9a1d9b0e-5b5a-4b6e-9d8a-000000000002", Port: "pf0vf1", Layer: "ovs",
			Match:   "recirc_id(0),in_port(pf0vf1),eth_type(0x0800),tcp_flags(0/0)",
			Actions: "ct(zone=5),recirc(0x1)", Total: tc.Counter{Packets: 3, Bytes: 294}, Used: "1.5s",
		},
		{Port: "br0", Match: "in_port(br0)", Actions: "drop", Used: "never"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !got[1].Goes() || got[0].Goes() {
		t.Error("which one goes on?")
	}
	for _, bad := range []string{"nonsense", "in_port(x), packets:1, bytes:2", "in_port(x), packets:many, bytes:2, actions:drop"} {
		if got, err := proof.ParseFlows(bad); err == nil {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}

// A real ovs-vswitchd that has no datapath in the kernel has no such flows; one
// that does not run is not there.
func TestDatapathOfRealDaemon(t *testing.T) {
	if _, err := (proof.Datapath{RunDir: t.TempDir()}).Flows(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no daemon: %v", err)
	}
	o := ovsdbtest.Daemons(t)
	o.AddBridge(t, "br0")
	if flows, err := (proof.Datapath{RunDir: o.RunDir()}).Flows(t.Context()); err != nil || len(flows) != 0 {
		t.Errorf("%v %v", flows, err)
	}
}

func FuzzParseFlows(f *testing.F) {
	text, err := os.ReadFile("testdata/flows.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, s string) {
		flows, err := proof.ParseFlows(s)
		if err == nil && len(flows) > strings.Count(s, "\n")+1 {
			t.Errorf("%d flows from %q", len(flows), s)
		}
	})
}
