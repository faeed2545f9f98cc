package hosttest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func observe(t *testing.T, f Fixture) nic.State {
	t.Helper()
	s, err := host.Observe(t.Context(), f.Machine)
	must(t, err)
	return s
}

func observePF(t *testing.T, f Fixture, h nic.Handle) nic.PF {
	t.Helper()
	s := observe(t, f)
	p := s.PF(h)
	if p == nil {
		t.Fatalf("no %s", h)
	}
	return *p
}

func function(t *testing.T, f Fixture, address string) host.Function {
	t.Helper()
	all, err := f.Machine.PCI.Functions(t.Context())
	must(t, err)
	i := slices.IndexFunc(all, func(o host.Function) bool { return o.Address == address })
	if i < 0 {
		t.Fatalf("no function %s", address)
	}
	return all[i]
}

// snapshot is all that can be read of a machine. Carrier is left out, it comes
// and goes by itself.
type snapshot struct {
	Functions []host.Function
	Devices   []host.DevlinkDevice
	Ports     []host.DevlinkPort
	Links     []host.Link
	RDMA      []host.RDMADevice
	SFs       []host.SFDevice
	Uses      []host.Use
	State     nic.State // with bonds, RDMA mode and settings
}

func read(t *testing.T, f Fixture) snapshot {
	t.Helper()
	var s snapshot
	var err error
	s.Functions, err = f.Machine.PCI.Functions(t.Context())
	must(t, err)
	s.Devices, err = f.Machine.Devlink.Devices(t.Context())
	must(t, err)
	s.Ports, err = f.Machine.Devlink.Ports(t.Context())
	must(t, err)
	s.Links, err = f.Machine.Links.Links(t.Context())
	must(t, err)
	for i := range s.Links {
		s.Links[i].Carrier = false
	}
	s.RDMA, err = f.Machine.RDMA.Devices(t.Context())
	must(t, err)
	s.SFs, err = f.Machine.PCI.SFs(t.Context())
	must(t, err)
	s.Uses, err = f.Machine.Links.Uses(t.Context())
	must(t, err)
	s.State = observe(t, f)
	for i, p := range s.State.PFs {
		s.State.PFs[i] = still(p)
	}
	for i := range s.State.Bonds {
		s.State.Bonds[i].Carrier = false
	}
	return s
}

// untouched checks that do changes nothing that can be read and, where writes are
// counted, writes nothing.
func untouched(t *testing.T, f Fixture, do func()) {
	t.Helper()
	before, writes := read(t, f), 0
	if f.Writes != nil {
		writes = f.Writes()
	}
	do()
	if f.Writes != nil {
		if n := f.Writes() - writes; n != 0 {
			t.Errorf("%d writes where there was nothing to do", n)
		}
	}
	if d := cmp.Diff(before, read(t, f)); d != "" {
		t.Errorf("something changed (-before +after):\n%s", d)
	}
}

// refused checks that do fails as class (nil: in any way), that its error tells
// operation and object, and that nothing changed.
func refused(t *testing.T, f Fixture, class error, object string, do func() error) {
	t.Helper()
	before := read(t, f)
	err := do()
	checkError(t, err, class, object)
	if d := cmp.Diff(before, read(t, f)); d != "" {
		t.Errorf("something changed in spite of %v (-before +after):\n%s", err, d)
	}
}

func checkError(t *testing.T, err, class error, object string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	var e *host.Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("%v: want a *host.Error, got a %T", err, err)
	case e.Op == "" || e.Object == "" || e.Errno == 0 && e.Err == nil:
		t.Errorf("%v: an operation, object or cause is missing in %#v", err, e)
	case !strings.Contains(e.Object, object):
		t.Errorf("%v: it is not about %s", err, object)
	}
	if class != nil && !errors.Is(err, class) {
		t.Errorf("%v: want errors.Is %v", err, class)
	}
}

// oneOf is refused for a class that the contract leaves open.
func oneOf(t *testing.T, err error, classes ...error) {
	t.Helper()
	if !slices.ContainsFunc(classes, func(c error) bool { return errors.Is(err, c) }) {
		t.Errorf("%v: want errors.Is one of %v", err, classes)
	}
}

// eventually polls for what others than the setter bring about (a namespace's end
// is cleaned up by a kernel worker), for a bounded time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// makeVFs makes n VFs of a PF, bound or not, and returns them.
func makeVFs(t *testing.T, f Fixture, h nic.Handle, n int, bound bool) []nic.VF {
	t.Helper()
	must(t, f.Machine.PCI.SetAutoprobe(t.Context(), h.Name, bound))
	must(t, f.Machine.PCI.SetVFs(t.Context(), h.Name, n))
	vfs := observePF(t, f, h).VFs
	if len(vfs) != n {
		t.Fatalf("%s has %d VFs right after %d were made", h, len(vfs), n)
	}
	return vfs
}

func address(n byte) nic.MAC { return nic.MAC{0x02, 0x5e, 0, 0, 1, n} }

// linkNamed finds an interface of a namespace.
func linkNamed(t *testing.T, l host.Links, name string) (host.Link, bool) {
	t.Helper()
	all, err := l.Links(t.Context())
	must(t, err)
	i := slices.IndexFunc(all, func(o host.Link) bool { return o.Name == name })
	if i < 0 {
		return host.Link{}, false
	}
	return all[i], true
}

func linkAt(t *testing.T, l host.Links, ifindex int) host.Link {
	t.Helper()
	out, err := l.Link(t.Context(), ifindex)
	must(t, err)
	return out
}

func open(t *testing.T, f Fixture, path string) host.NetnsLinks {
	t.Helper()
	n, err := f.Machine.Netns.Open(t.Context(), path)
	must(t, err)
	t.Cleanup(func() { _ = n.Close() }) // a rule may have closed it
	return n
}

func sameSnapshot(t *testing.T, before, after snapshot) {
	t.Helper()
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("something changed (-before +after):\n%s", d)
	}
}
