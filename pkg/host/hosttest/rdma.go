package hosttest

import (
	"io/fs"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// moveRDMA tries the mode that there is, and where it can be changed both.
func moveRDMA(t *testing.T, f Fixture) {
	was := rdmaSystem(t, f)
	name := makeVFs(t, f, f.PFs[0], 1, true)[0].RDMA[0]
	modes := []nic.RDMAMode{was.Mode}
	if !was.Fixed {
		modes = []nic.RDMAMode{nic.RDMAShared, nic.RDMAExclusive, was.Mode}
	}
	for _, m := range modes {
		eventually(t, "the mode can be set", func() bool { return m == was.Mode || !rdmaSystem(t, f).Fixed })
		must(t, f.Machine.RDMA.SetMode(t.Context(), m))
		path := f.AddNetns(t)
		ns := open(t, f, path)
		if m == nic.RDMAShared {
			moveShared(t, f, name, path, ns)
		} else {
			moveExclusive(t, f, name, path, ns)
		}
		must(t, ns.Close())
		f.DeleteNetns(t, path)
		eventually(t, "the host has the device", func() bool { return rdmaOnHost(t, f, name) })
		if v := observePF(t, f, f.PFs[0]).VFs[0]; !slices.Equal(v.RDMA, []string{name}) {
			t.Errorf("the VF has RDMA devices %q, want %s", v.RDMA, name)
		}
		eventually(t, "the namespace is gone", func() bool { return was.Fixed || !rdmaSystem(t, f).Fixed })
	}
}

// rdmaOnHost says whether the host's namespace has a device.
func rdmaOnHost(t *testing.T, f Fixture, name string) bool {
	t.Helper()
	all, err := f.Machine.RDMA.Devices(t.Context())
	must(t, err)
	return slices.ContainsFunc(all, func(d host.RDMADevice) bool { return d.Name == name })
}

func rdmaIn(t *testing.T, ns host.NetnsLinks) []string {
	t.Helper()
	out, err := ns.RDMADevices(t.Context())
	must(t, err)
	return out
}

// moveExclusive: a device is in one namespace, whether its netdev is there or not,
// and comes back on request or, as it is left here, when the namespace ends
// (drivers/infiniband/core/device.c, rdma_dev_change_netns, rdma_dev_exit_net).
func moveExclusive(t *testing.T, f Fixture, name, path string, ns host.NetnsLinks) {
	if got := rdmaIn(t, ns); len(got) > 0 {
		t.Errorf("a new namespace has RDMA devices %q", got)
	}
	give := func() { must(t, f.Machine.RDMA.Move(t.Context(), name, path)) }
	refused(t, f, fs.ErrNotExist, name, func() error { return ns.MoveRDMA(t.Context(), name, "") })
	untouched(t, f, func() { must(t, f.Machine.RDMA.Move(t.Context(), name, "")) })
	for range 2 {
		give()
		if got := rdmaIn(t, ns); rdmaOnHost(t, f, name) || !slices.Equal(got, []string{name}) {
			t.Fatalf("right after the move the host has %s: %v, the namespace has %q", name, rdmaOnHost(t, f, name), got)
		}
		if v := observePF(t, f, f.PFs[0]).VFs[0]; len(v.RDMA) > 0 || !v.Netdev.Exists() {
			t.Errorf("the VF has RDMA devices %q, netdev %+v: want its netdev alone", v.RDMA, v.Netdev)
		}
		refused(t, f, fs.ErrNotExist, name, func() error { return f.Machine.RDMA.Move(t.Context(), name, path) })
		must(t, ns.MoveRDMA(t.Context(), name, ""))
		if got := rdmaIn(t, ns); !rdmaOnHost(t, f, name) || len(got) > 0 {
			t.Fatalf("right after the way back the host has %s: %v, the namespace has %q", name, rdmaOnHost(t, f, name), got)
		}
	}
	give()
}

// moveShared: what all namespaces have, no one is given.
func moveShared(t *testing.T, f Fixture, name, path string, ns host.NetnsLinks) {
	if got := rdmaIn(t, ns); !slices.Contains(got, name) {
		t.Errorf("the namespace has %q, without %s", got, name)
	}
	refused(t, f, host.ErrNotSupported, name, func() error { return f.Machine.RDMA.Move(t.Context(), name, path) })
	refused(t, f, host.ErrNotSupported, name, func() error { return ns.MoveRDMA(t.Context(), name, "") })
}

// moveNoRDMA: a device or a namespace that there is not.
func moveNoRDMA(t *testing.T, f Fixture) {
	const none, nowhere = "no_such_device", "/run/netns/no-such-namespace"
	path := f.AddNetns(t)
	ns := open(t, f, path)
	refused(t, f, fs.ErrNotExist, none, func() error { return f.Machine.RDMA.Move(t.Context(), none, path) })
	refused(t, f, fs.ErrNotExist, none, func() error { return f.Machine.RDMA.Move(t.Context(), none, nowhere) })
	refused(t, f, fs.ErrNotExist, none, func() error { return ns.MoveRDMA(t.Context(), none, "") })
	must(t, ns.Close())
	_, err := ns.RDMADevices(t.Context())
	checkError(t, err, fs.ErrClosed, "")
	checkError(t, ns.MoveRDMA(t.Context(), none, ""), fs.ErrClosed, none)
}
