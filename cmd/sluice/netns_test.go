package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// namespaces is named ones, with the parents of the netdevs in each.
type namespaces map[string][]string

func (n namespaces) Open(_ context.Context, path string) (host.NetnsLinks, error) {
	parents, ok := n[path]
	if !ok {
		return nil, os.ErrNotExist
	}
	return inside{parents: parents}, nil
}

type inside struct {
	host.NetnsLinks
	parents []string
}

func (i inside) Links(context.Context) ([]host.Link, error) {
	out := []host.Link{{}} // lo has no parent
	for _, p := range i.parents {
		out = append(out, host.Link{Parent: p})
	}
	return out, nil
}

func (inside) Close() error { return nil }

func TestWhereNetdevsAre(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"blue", "broken", "green"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{dir: t.TempDir(), machine: host.Machine{Netns: namespaces{
		filepath.Join(dir, "blue"):  {"0000:03:00.3", "mlx5_core.sf.4"},
		filepath.Join(dir, "green"): {"0000:99:00.0"},
	}}}
	if err := record.In(n.dir).Save(&record.Record{Container: "c", IfName: "eth0", VF: "0000:03:00.2", Netns: "/run/netns/pod"}); err != nil {
		t.Fatal(err)
	}
	s := nic.State{PFs: []nic.PF{{
		VFs: []nic.VF{
			{Address: "0000:03:00.2", Away: true},
			{Address: "0000:03:00.3", Away: true},
			{Address: "0000:03:00.4", Away: true}, // in one without a name
			{Address: "0000:03:00.5"},             // here
		},
		SFs: []nic.SF{{Num: 1, Device: "mlx5_core.sf.4", Away: true}},
	}}}
	n.whereabouts(t.Context(), &s, dir)
	want := []string{"/run/netns/pod", filepath.Join(dir, "blue"), "", ""}
	for i, v := range s.PFs[0].VFs {
		if v.Netns != want[i] {
			t.Errorf("vf %d is in %q, want %q", i, v.Netns, want[i])
		}
	}
	if got := s.PFs[0].SFs[0].Netns; got != want[1] {
		t.Errorf("the SF is in %q, want %q", got, want[1])
	}
}
