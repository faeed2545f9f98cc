package hosttest

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host"
)

// pair makes and removes pairs, and lets a namespace end that has one's other end.
func pair(t *testing.T, f Fixture) { pairOf(t, f, host.Veth) }

// netkit is the same of the other kind, which a kernel may not have.
func netkit(t *testing.T, f Fixture) { pairOf(t, f, host.Netkit) }

// noNetkit: there is neither end then.
func noNetkit(t *testing.T, f Fixture) {
	err := f.Machine.Pairs.AddPair(t.Context(), host.Netkit, "slv0", "eth0", f.AddNetns(t))
	checkError(t, err, host.ErrNotSupported, "slv0")
	if _, ok := linkNamed(t, f.Machine.Links, "slv0"); ok {
		t.Error("half a pair is there")
	}
}

func pairOf(t *testing.T, f Fixture, kind host.PairKind) {
	ctx, p := t.Context(), f.Machine.Pairs
	path := f.AddNetns(t)
	must(t, p.AddPair(ctx, kind, "slv0", "eth0", path))
	ns := open(t, f, path)
	here, ok := linkNamed(t, f.Machine.Links, "slv0")
	there, also := linkNamed(t, ns, "eth0")
	if !ok || !also || here.Kind != string(kind) || there.Kind != string(kind) || here.Up || there.Up || here.Parent != "" || here.MAC == there.MAC {
		t.Fatalf("ends %+v (%v) and %+v (%v)", here, ok, there, also)
	}
	must(t, f.Machine.Links.SetUp(ctx, here.Ifindex, true))
	must(t, ns.SetUp(ctx, there.Ifindex, true))
	must(t, ns.SetMTU(ctx, there.Ifindex, 1400))

	checkError(t, p.AddPair(ctx, kind, "slv0", "eth1", path), fs.ErrExist, "slv0")
	checkError(t, p.AddPair(ctx, kind, "slv1", "eth0", path), fs.ErrExist, "slv1")
	if _, ok := linkNamed(t, f.Machine.Links, "slv1"); ok {
		t.Error("half a pair is there")
	}
	checkError(t, p.AddPair(ctx, kind, "slv1", "eth1", "/run/netns/no-such-namespace"), fs.ErrNotExist, "slv1")
	if err := p.AddPair(ctx, kind, "slv/1", "eth1", path); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an impossible name: %v", err)
	}

	must(t, p.DelPair(ctx, "slv0"))
	must(t, p.DelPair(ctx, "slv0"))
	if l, ok := linkNamed(t, ns, "eth0"); ok {
		t.Errorf("left in the namespace: %+v", l)
	}
	checkError(t, p.DelPair(ctx, "lo"), host.ErrNotSupported, "lo")

	must(t, p.AddPair(ctx, kind, "slv0", "eth0", path))
	must(t, ns.Close())
	f.DeleteNetns(t, path)
	eventually(t, "the pair is gone with the namespace", func() bool {
		_, ok := linkNamed(t, f.Machine.Links, "slv0")
		return !ok
	})
}
