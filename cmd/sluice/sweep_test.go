package main

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/cni"
	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/pkg/nic"
)

// TestAgentSweeps starts an agent on a node where an ADD was cut off when the VF was
// half renamed. The VF is as it was; what its Open vSwitch had of it, which is away,
// stays recorded.
func TestAgentSweeps(t *testing.T) {
	k := newKept(t)
	k.write(k.document(4, "fast"))
	ctx, m := t.Context(), k.sim.Machine()
	h := nic.Handle{Bus: "pci", Name: "0000:03:00.0"}
	if err := m.PCI.SetVFs(ctx, h.Name, 4); err != nil {
		t.Fatal(err)
	}
	st, err := k.node().observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	vf := st.PF(h).VFs[1]
	store := record.In(k.dir)
	r := &record.Record{
		Container: "c1", IfName: "net1", Netns: "/run/netns/c1", NetnsID: "4:1", VF: vf.Address, PF: h, Index: 1,
		Representor: "rep1", Bridge: "br-int", OVSDB: "unix:" + t.TempDir() + "/db.sock", Config: []byte("{}"),
		Before: record.Before{Name: vf.Netdev.Name, MAC: vf.Netdev.MAC, MTU: vf.Netdev.MTU},
	}
	if err := store.Save(r); err != nil {
		t.Fatal(err)
	}
	if err := store.Append(r, record.Entry{Time: time.Now(), Goal: record.Attached, Step: "rename"}); err != nil {
		t.Fatal(err)
	}
	if err := m.Links.SetName(ctx, vf.Netdev.Ifindex, cni.TempName(vf.Address)); err != nil {
		t.Fatal(err)
	}
	defer k.agent()()
	k.until("the sweep is done", func() bool { return strings.Contains(k.said(), "could not all be taken down") })
	k.untilVFs(4)
	k.until("the pool", func() bool { return k.healthy("sluice.dev/fast") == 4 })
	if said := k.said(); !strings.Contains(said, "unplug representor") || !strings.Contains(said, "no ovsdb-server") {
		t.Errorf("said: %s", said)
	}
	l, err := m.Links.Link(ctx, vf.Netdev.Ifindex)
	if err != nil || l.Name != vf.Netdev.Name {
		t.Errorf("VF netdev %+v, %v; want name %s", l, err, vf.Netdev.Name)
	}
	if owner := store.Owner(vf.Address, ""); owner == "" {
		t.Error("nobody holds the VF, and its port may be there")
	}
}
