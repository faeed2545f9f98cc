package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/hosttest"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/netlink/netnstest"
	"sluice.dev/sluice/pkg/nic"
)

func nsHandle(ns *os.File) netns.NsHandle { return netns.NsHandle(ns.Fd()) }

func pathOf(ns *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", ns.Fd()) }

// openIn opens the machine as seen from a namespace.
func openIn(t testing.TB, ns *os.File, o Options) *Machine {
	t.Helper()
	var m *Machine
	err := netlink.In(int(ns.Fd()), func() (err error) {
		m, err = Open(o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// software adds what the suite wants of software interfaces and namespaces, for a
// machine whose host's namespace is home.
type software struct {
	home *os.File
	made map[string]*os.File
}

func (s software) addNetns(t *testing.T) string {
	ns := netnstest.New(t)
	s.made[pathOf(ns)] = ns
	return pathOf(ns)
}

func (s software) deleteNetns(t *testing.T, path string) {
	t.Helper()
	if err := s.made[path].Close(); err != nil {
		t.Fatal(err)
	}
	delete(s.made, path)
}

func (s software) handle(t *testing.T, path string) *vnl.Handle {
	t.Helper()
	ns := s.home
	if path != "" {
		ns = s.made[path]
	}
	h, err := vnl.NewHandleAt(nsHandle(ns), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// addLink makes a veth pair whose other end is up, so that the interface has
// carrier once it is.
func (s software) addLink(t *testing.T, path, name string) int {
	t.Helper()
	h := s.handle(t, path)
	peer := fmt.Sprintf("p%.14s", name)
	a := vnl.NewLinkAttrs()
	a.Name = name
	if err := h.LinkAdd(&vnl.Veth{LinkAttrs: a, PeerName: peer}); err != nil {
		t.Fatalf("add %s: %v", name, err)
	}
	t.Cleanup(func() { // with the namespace it goes by itself
		if l, err := h.LinkByName(peer); err == nil {
			_ = h.LinkDel(l)
		}
	})
	p, err := h.LinkByName(peer)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetUp(p); err != nil {
		t.Fatal(err)
	}
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

func (s software) addAltName(t *testing.T, path string, ifindex int, name string) {
	t.Helper()
	h := s.handle(t, path)
	l, err := h.LinkByIndex(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkAddAltName(l, name); err != nil {
		t.Fatal(err)
	}
}

// notNetns is a file that is none.
func notNetns(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The contract, as far as any kernel goes: no card, only namespaces and veth
// pairs. The machine's own namespace is a new one for each rule.
func TestContractInNamespaces(t *testing.T) {
	netnstest.New(t) // or skip once, not for each rule
	hosttest.Run(t, func(t *testing.T) hosttest.Fixture {
		s := software{home: netnstest.New(t), made: map[string]*os.File{}}
		m := openIn(t, s.home, Options{Sys: t.TempDir(), Etc: t.TempDir(), Run: t.TempDir()})
		const noCard = "a namespace has no PCI functions"
		const noFault = "this kernel injects no faults"
		f := hosttest.Fixture{
			Machine: m.Machine,
			Lacks: map[hosttest.Capability]string{
				hosttest.SRIOV: noCard, hosttest.Eswitch: noCard, hosttest.ModeWithVFs: noCard, hosttest.PortMAC: noCard,
				hosttest.TwoPorts: noCard, hosttest.VFIO: noCard, hosttest.RDMA: noCard,
				hosttest.Counting: "the kernel does not count its writes", hosttest.Faults: noFault,
				hosttest.VFSettings: noCard, hosttest.FunctionSettings: noCard, hosttest.Rates: noCard,
				hosttest.SFs: noCard, hosttest.LAG: noCard,
			},
			AddNetns: s.addNetns, DeleteNetns: s.deleteNetns, NotNetns: notNetns(t),
			AddLink: s.addLink, AddAltName: s.addAltName,
		}
		lackBonds(t, &f)
		lackRDMA(t, &f)
		lackNetkit(t, &f)
		return f
	})
}

// lackBonds takes bonds from a machine whose kernel has none.
func lackBonds(t *testing.T, f *hosttest.Fixture) {
	t.Helper()
	err := f.Machine.Bonds.AddBond(t.Context(), nic.BondSpec{Name: "slctry", Mode: nic.ActiveBackup})
	if errors.Is(err, host.ErrNotSupported) {
		f.Machine.Bonds, f.Lacks[hosttest.Bonds] = nil, err.Error()
		return
	}
	must(t, err)
	must(t, f.Machine.Bonds.DelBond(t.Context(), "slctry"))
}

// lackNetkit tries, with the other end in the namespace at hand.
func lackNetkit(t *testing.T, f *hosttest.Fixture) {
	t.Helper()
	path := f.AddNetns(t)
	defer f.DeleteNetns(t, path)
	err := f.Machine.Pairs.AddPair(t.Context(), host.Netkit, "slctry", "slctry", path)
	if errors.Is(err, host.ErrNotSupported) {
		f.Lacks[hosttest.Netkit] = err.Error()
		return
	}
	must(t, err)
	must(t, f.Machine.Pairs.DelPair(t.Context(), "slctry"))
}

func lackRDMA(t *testing.T, f *hosttest.Fixture) {
	t.Helper()
	s, err := f.Machine.RDMA.System(t.Context())
	must(t, err)
	if s.Mode == "" {
		f.Lacks[hosttest.RDMAModes] = "the kernel has no RDMA"
	}
}

// The inode number of a namespace that ended is given to another one soon; its
// identity is not.
func TestNamespaceIdentity(t *testing.T) {
	m, s := inNew(t)
	seen := map[string]bool{}
	for range 20 {
		path := s.addNetns(t)
		a, err := m.Netns.Open(t.Context(), path)
		must(t, err)
		b, err := m.Netns.Open(t.Context(), path)
		must(t, err)
		if a.ID() == "" || a.ID() != b.ID() || seen[a.ID()] {
			t.Errorf("one namespace is %q and %q, seen before: %v", a.ID(), b.ID(), seen[a.ID()])
		}
		seen[a.ID()] = true
		must(t, a.Close())
		must(t, b.Close())
		s.deleteNetns(t, path)
	}
}
