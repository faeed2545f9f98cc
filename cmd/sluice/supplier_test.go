package main

import (
	"errors"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// A VF that another CNI plugin has put into a pod, of which neither a record of ours nor
// the kubelet says anything, is told as in use, and no agent takes it or its renamed
// representor: what would, waits until the VF is home, and goes on by itself then.
func TestAgentLeavesVFsOfOtherPlugins(t *testing.T) {
	k := newKept(t)
	document := func(vfs int) string {
		return strings.Replace(k.document(vfs, "fast"), "numVfs", "eswitch: switchdev, numVfs", 1)
	}
	k.write(document(4))
	defer k.agent()()
	k.untilVFs(4)
	k.until("the pool", func() bool { return k.healthy("sluice.dev/fast") == 4 })
	const netns, renamed = "/run/netns/web-0", "4d1f9a8b7c_h"
	if err := k.sim.AddNetns(netns); err != nil {
		t.Fatal(err)
	}
	third := func() nic.VF {
		t.Helper()
		state, err := k.node().observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return state.PF(nic.PCI("0000:03:00.0")).VFs[2]
	}
	v := third()
	if err := k.sim.Stranger(func(m host.Machine) error {
		return errors.Join(
			m.Links.SetName(t.Context(), v.Rep.Netdev.Ifindex, renamed),
			m.Links.Move(t.Context(), v.Netdev.Ifindex, netns),
		)
	}); err != nil {
		t.Fatal(err)
	}
	if use := third().InUse(); use != "its netdev is in another network namespace" {
		t.Errorf("in use: %q", use)
	}

	k.write(document(2))
	k.until("the refusal", func() bool { return strings.Contains(k.said(), "another network namespace") })
	if got := third(); k.vfs() != 4 || !got.Away || got.Rep.Netdev.Name != renamed {
		t.Errorf("%d VFs, the pod's: %+v", k.vfs(), got)
	}

	if err := k.sim.DeleteNetns(netns); err != nil {
		t.Fatal(err)
	}
	k.untilVFs(2)
}
