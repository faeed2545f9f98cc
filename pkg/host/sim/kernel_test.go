package sim_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// What the machine does beyond the contract that all machines share.

func errExt(err error) string {
	var e *host.Error
	if errors.As(err, &e) {
		return e.Ext
	}
	return ""
}

func TestMlx5KeepsVFStateOverModes(t *testing.T) {
	s := parse(t, "mlx5:numvfs=2,autoprobe=off")
	m, h := s.Machine(), nic.PCI(pf0)
	mac := nic.MAC{2, 0, 0, 0, 0, 1}
	must(t, m.Links.SetVFMAC(t.Context(), observe(t, s).PFs[0].Uplink.Ifindex, 1, mac))
	for _, mode := range []nic.Eswitch{nic.Switchdev, nic.Legacy} {
		must(t, m.Devlink.SetEswitch(t.Context(), h, mode))
		if got := observe(t, s).PFs[0].VFs[1].MAC; got != mac {
			t.Errorf("in mode %s VF 1 has %s: want %s", mode, got, mac)
		}
	}
}

func TestMlx5RefusesSwitchdevWithUplinkAway(t *testing.T) {
	s := parse(t, "mlx5")
	m := s.Machine()
	must(t, s.AddNetns("/run/netns/a"))
	must(t, m.Links.Move(t.Context(), observe(t, s).PFs[0].Uplink.Ifindex, "/run/netns/a"))
	if p := observe(t, s).PFs[0]; p.Uplink.Exists() {
		t.Errorf("uplink %+v seen from afar", p.Uplink)
	}
	err := m.Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev)
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(errExt(err), "net namespace has diverged") {
		t.Error(err)
	}
}

// A bound mlx5 VF has a devlink instance of its own, which is no PF and has no mode.
func TestMlx5VFInstances(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1,mode=switchdev")
	m := s.Machine()
	v := observe(t, s).PFs[1].VFs[0]
	devices, err := m.Devlink.Devices(t.Context())
	must(t, err)
	i := slices.IndexFunc(devices, func(d host.DevlinkDevice) bool { return d.Handle == nic.PCI(v.Address) })
	if i < 0 || devices[i].Eswitch != "" {
		t.Fatalf("devices %+v", devices)
	}
	ports, err := m.Devlink.Ports(t.Context())
	must(t, err)
	var got []host.DevlinkPort
	for _, p := range ports {
		if p.Handle == nic.PCI(v.Address) {
			got = append(got, p)
		}
	}
	if len(got) != 1 || got[0].Flavour != "virtual" || got[0].Ifindex != v.Netdev.Ifindex {
		t.Errorf("ports of %s: %+v", v.Address, got)
	}
	if err := m.Devlink.SetEswitch(t.Context(), nic.PCI(v.Address), nic.Switchdev); !errors.Is(err, syscall.EPERM) {
		t.Error(err)
	}
	if err := m.Devlink.SetPortMAC(t.Context(), nic.PCI(v.Address), got[0].Index, nic.MAC{2}); !errors.Is(err, host.ErrNotSupported) {
		t.Error(err)
	}
	if err := m.Devlink.SetPortMAC(t.Context(), nic.PCI(v.Address), 5, nic.MAC{2}); !errors.Is(err, syscall.ENODEV) {
		t.Error(err)
	}
}

func TestPortIndexesAndAddresses(t *testing.T) {
	for _, c := range []struct {
		spec  string
		vfs   []string // first VF of each PF, second of the first
		ports []uint32 // of the same
	}{
		{"mlx5:vfs=8,numvfs=2,mode=switchdev", []string{"0000:03:00.2", "0000:03:01.2", "0000:03:00.3"}, []uint32{1, 65537, 2}},
		{"mlx5:ports=1,vfs=128,numvfs=2,mode=switchdev+mlx5:vfs=128,numvfs=128,mode=switchdev",
			[]string{"0000:03:00.1", "0000:13:00.2", "0000:03:00.2"}, []uint32{1, 1, 2}},
		{"ice:vfs=8,numvfs=2,mode=switchdev", []string{"0000:03:01.0", "0000:03:02.0", "0000:03:01.1"}, []uint32{1, 1, 2}},
		{"igb:ports=2,numvfs=2", []string{"0000:03:10.0", "0000:03:10.1", "0000:03:10.2"}, []uint32{0, 0, 0}},
	} {
		st := observe(t, parse(t, c.spec))
		got := []nic.VF{st.PFs[0].VFs[0], st.PFs[1].VFs[0], st.PFs[0].VFs[1]}
		for i, v := range got {
			if v.Address != c.vfs[i] || v.Rep.Port != c.ports[i] {
				t.Errorf("%s: VF at %s, port %d: want %s, %d", c.spec, v.Address, v.Rep.Port, c.vfs[i], c.ports[i])
			}
		}
		seen := map[string]bool{}
		for _, p := range st.PFs {
			for _, v := range p.VFs {
				if seen[v.Address] || !nic.IsPCIAddress(v.Address) {
					t.Errorf("%s: address %s", c.spec, v.Address)
				}
				seen[v.Address] = true
			}
		}
	}
}

func TestIceRefusal(t *testing.T) {
	s := parse(t, "ice:numvfs=1")
	err := s.Machine().Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev)
	if !errors.Is(err, host.ErrNotSupported) || errExt(err) != "ice: Changing eswitch mode is allowed only if there is no VFs created" {
		t.Error(err)
	}
}

// A representor's address cannot be changed while it is up (eth_prepare_mac_addr_change).
func TestRepresentorAddress(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1,mode=switchdev")
	l, rep := s.Machine().Links, observe(t, s).PFs[0].VFs[0].Rep.Netdev
	must(t, l.SetUp(t.Context(), rep.Ifindex, true))
	if err := l.SetMAC(t.Context(), rep.Ifindex, nic.MAC{2, 0, 0, 0, 0, 9}); !errors.Is(err, host.ErrBusy) {
		t.Error(err)
	}
	must(t, l.SetUp(t.Context(), rep.Ifindex, false))
	must(t, l.SetMAC(t.Context(), rep.Ifindex, nic.MAC{2, 0, 0, 0, 0, 9}))
}

func TestNames(t *testing.T) {
	udev := observe(t, parse(t, "mlx5:cards=2,numvfs=13,mode=switchdev"))
	plain := observe(t, parse(t, "mlx5:cards=2,numvfs=13,mode=switchdev+machine:udev=off"))
	var got []string
	for _, st := range []*nic.State{udev, plain} {
		for _, i := range []int{1, 2} { // function 1 of the first card, 0 of the second
			p := st.PFs[i]
			got = append(got, p.Uplink.Name, p.VFs[9].Netdev.Name, p.VFs[9].Rep.Netdev.Name, p.VFs[12].Rep.Netdev.Name)
		}
	}
	want := []string{
		// A name of more than 15 characters is not given: there the kernel's stays.
		"enp3s0f1np1", "enp3s0f1v9", "enp3s0f1npf1vf9", "eth5",
		"enp19s0f0np0", "enp19s0f0v9", "eth15", "eth18",
		"eth1", "eth52", "eth39", "eth42",
		"eth2", "eth78", "eth65", "eth68",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCarrier(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1,mode=switchdev+igb:numvfs=1")
	l := s.Machine().Links
	vf := func(pf int) nic.VF { return observe(t, s).PFs[pf].VFs[0] }
	for _, pf := range []int{0, 2} {
		must(t, l.SetUp(t.Context(), vf(pf).Netdev.Ifindex, true))
	}
	if vf(0).Netdev.Carrier {
		t.Error("in switchdev mode a VF has carrier without its representor being up")
	}
	must(t, l.SetUp(t.Context(), vf(0).Rep.Netdev.Ifindex, true))
	if v := vf(0); !v.Netdev.Carrier || !v.Rep.Netdev.Carrier {
		t.Errorf("%+v", v)
	}
	if !vf(2).Netdev.Carrier {
		t.Error("in legacy mode a VF has no carrier although its PF has")
	}
	for _, pf := range []int{0, 2} {
		must(t, s.SetCarrier(observe(t, s).PFs[pf].Handle, false))
	}
	if !vf(0).Netdev.Carrier || vf(2).Netdev.Carrier {
		t.Errorf("without a cable: switchdev %v, legacy %v: want true, false", vf(0).Netdev.Carrier, vf(2).Netdev.Carrier)
	}
	if p := observe(t, s).PFs[0]; p.Uplink.Carrier {
		t.Errorf("without a cable: uplink %+v", p.Uplink)
	}
}

// The PF's RDMA device is another one in the other mode: it takes the first free
// name, which is not always the one that it had.
func TestRDMANames(t *testing.T) {
	s := parse(t, "mlx5:ports=1,numvfs=2")
	names := func() [][]string {
		p := observe(t, s).PFs[0]
		return [][]string{p.RDMA, p.VFs[0].RDMA, p.VFs[1].RDMA}
	}
	if d := cmp.Diff([][]string{{"mlx5_0"}, {"mlx5_1"}, {"mlx5_2"}}, names()); d != "" {
		t.Error(d)
	}
	vf := observe(t, s).PFs[0].VFs[0].Address
	must(t, s.Machine().PCI.Unbind(t.Context(), vf))
	must(t, s.Machine().Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev))
	must(t, s.Machine().PCI.Bind(t.Context(), vf, ""))
	if d := cmp.Diff([][]string{{"mlx5_0"}, {"mlx5_1"}, {"mlx5_2"}}, names()); d != "" {
		t.Error(d)
	}
}

func TestPFWithoutDriver(t *testing.T) {
	s := parse(t, "mlx5:ports=1,bound=off")
	m := s.Machine()
	p := observe(t, s).PFs[0]
	if p.Driver != "" || p.Uplink.Exists() || p.Eswitch != "" || p.TotalVFs != 16 {
		t.Errorf("%+v", p)
	}
	if err := m.PCI.SetVFs(t.Context(), pf0, 1); !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
	if err := m.Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev); !errors.Is(err, syscall.ENODEV) {
		t.Error(err)
	}
	must(t, m.PCI.Bind(t.Context(), pf0, ""))
	if p = observe(t, s).PFs[0]; p.Driver != "mlx5_core" || !p.Uplink.Exists() || p.Eswitch != nic.Legacy || len(p.RDMA) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestDriverOfAnotherCard(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1,autoprobe=off+ice")
	v := observe(t, s).PFs[0].VFs[0].Address
	if err := s.Machine().PCI.Bind(t.Context(), v, "iavf"); !errors.Is(err, syscall.ENODEV) {
		t.Error(err)
	}
}

// An open handle keeps a namespace alive after its path is gone; with the last
// one VF netdevs go back to the host, without the alternative names that are
// taken there, and a name that is taken becomes devN.
func TestNetnsEnds(t *testing.T) {
	s := parse(t, "mlx5:numvfs=2")
	m := s.Machine()
	must(t, s.AddNetns("/run/netns/a"))
	vfs := observe(t, s).PFs[0].VFs
	for _, v := range vfs {
		must(t, m.Links.Move(t.Context(), v.Netdev.Ifindex, "/run/netns/a"))
	}
	must(t, s.AddAltName("/run/netns/a", vfs[0].Netdev.Ifindex, "both"))
	must(t, s.AddAltName("/run/netns/a", vfs[0].Netdev.Ifindex, "mine"))
	_, err := s.AddLink("/run/netns/a", "soft", "dummy")
	must(t, err)
	ns, err := m.Netns.Open(t.Context(), "/run/netns/a")
	must(t, err)
	must(t, s.DeleteNetns("/run/netns/a"))
	if _, err := m.Netns.Open(t.Context(), "/run/netns/a"); err == nil {
		t.Error("it can still be opened")
	}
	if l, err := ns.Links(t.Context()); err != nil || len(l) != 4 {
		t.Errorf("through the open handle: %+v, %v", l, err)
	}
	if v := observe(t, s).PFs[0].VFs[0]; !v.Away {
		t.Errorf("%+v: want it away still", v)
	}
	_, err = s.AddLink("", "both", "dummy")
	must(t, err)
	_, err = s.AddLink("", vfs[1].Netdev.Name, "dummy")
	must(t, err)
	must(t, ns.Close())
	if err := ns.Close(); err == nil {
		t.Error("it closed twice")
	}
	after := observe(t, s).PFs[0].VFs
	if v := after[0]; v.Netdev.Name != vfs[0].Netdev.Name || v.Away {
		t.Errorf("%+v", v)
	}
	if v, was := after[1].Netdev, vfs[1].Netdev.Ifindex; v.Ifindex != was || v.Name != fmt.Sprintf("dev%d", was) {
		t.Errorf("%+v: want dev%d", v, was)
	}
	l, err := m.Links.Link(t.Context(), after[0].Netdev.Ifindex)
	must(t, err)
	if !slices.Equal(l.AltNames, []string{"mine"}) {
		t.Errorf("alternative names %q", l.AltNames)
	}
	all, err := m.Links.Links(t.Context())
	must(t, err)
	if slices.ContainsFunc(all, func(l host.Link) bool { return l.Name == "soft" }) {
		t.Error("a software interface outlived its namespace")
	}
}

// An ifindex that is taken where an interface goes is replaced.
func TestIfindexClash(t *testing.T) {
	s := parse(t, "mlx5:numvfs=1")
	m := s.Machine()
	must(t, s.AddNetns("/run/netns/a"))
	v := observe(t, s).PFs[0].VFs[0].Netdev
	for i := 2; i <= v.Ifindex; i++ {
		_, err := s.AddLink("/run/netns/a", "soft"+string(rune('a'+i)), "dummy")
		must(t, err)
	}
	must(t, m.Links.Move(t.Context(), v.Ifindex, "/run/netns/a"))
	ns, err := m.Netns.Open(t.Context(), "/run/netns/a")
	must(t, err)
	all, err := ns.Links(t.Context())
	must(t, err)
	if last := all[len(all)-1]; last.Name != v.Name || last.Ifindex != v.Ifindex+1 {
		t.Errorf("%+v: want it after the others", last)
	}
	must(t, ns.Close())
}

func TestWorldErrors(t *testing.T) {
	s := parse(t, "mlx5")
	must(t, s.AddNetns("/run/netns/a"))
	s.AddFile("/etc/passwd")
	for what, err := range map[string]error{
		"netns twice":       s.AddNetns("/run/netns/a"),
		"netns on a file":   s.AddNetns("/etc/passwd"),
		"netns of the host": s.AddNetns(""),
		"delete the host's": s.DeleteNetns(""),
		"delete unknown":    s.DeleteNetns("/run/netns/b"),
		"link in unknown":   second(s.AddLink("/run/netns/b", "x", "dummy")),
		"link name taken":   second(s.AddLink("", "enp3s0f0np0", "dummy")),
		"link name bad":     second(s.AddLink("", "a/b", "dummy")),
		"altname taken":     s.AddAltName("", 2, "enp3s0f1np1"),
		"altname of none":   s.AddAltName("", 99, "x"),
		"altname elsewhere": s.AddAltName("/run/netns/b", 2, "x"),
		"carrier of none":   s.SetCarrier(nic.PCI("0000:99:00.0"), true),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if s.Writes() != 0 {
		t.Errorf("%d writes", s.Writes())
	}
}

func TestVanish(t *testing.T) {
	s := parse(t, "mlx5:mode=switchdev,numvfs=3")
	id := nic.VFID{PF: nic.PCI(pf0), Index: 1}
	at := observe(t, s).PFs[0].VFs[1].Address
	must(t, s.Vanish(id))
	if err := s.Vanish(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("twice: %v, want fs.ErrNotExist", err)
	}
	vfs := observe(t, s).PFs[0].VFs
	if v := vfs[1]; len(vfs) != 3 || !v.Gone || v.Address != "" || v.Netdev.Exists() || !v.Rep.Exists() {
		t.Errorf("VFs %+v: want the second gone, with its representor", vfs)
	}
	if err := s.Machine().PCI.Bind(t.Context(), at, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("bind: %v, want fs.ErrNotExist", err)
	}
	must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, 0))
	must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, 3))
	if v := observe(t, s).PFs[0].VFs[1]; v.Gone || v.Address != at {
		t.Errorf("made anew: %+v", v)
	}
}

func second[T any](_ T, err error) error { return err }

func TestClone(t *testing.T) {
	a := parse(t, "mlx5:numvfs=2")
	b := a.Clone()
	before := observe(t, a)
	must(t, b.Machine().PCI.SetVFs(t.Context(), pf0, 0))
	must(t, b.Machine().Links.SetMTU(t.Context(), before.PFs[1].VFs[0].Netdev.Ifindex, 1400))
	must(t, b.Machine().Links.SetVFMAC(t.Context(), before.PFs[1].Uplink.Ifindex, 0, nic.MAC{2}))
	must(t, b.AddNetns("/run/netns/a"))
	if d := cmp.Diff(before, observe(t, a)); d != "" {
		t.Errorf("what was done to a clone shows in the original:\n%s", d)
	}
	if a.Writes() != 0 || b.Writes() != 3 {
		t.Errorf("%d and %d writes", a.Writes(), b.Writes())
	}
}

// Two machines of one spec go the same way.
func TestDeterministic(t *testing.T) {
	run := func(seed string) *nic.State {
		s := parse(t, "mlx5+igb+machine:seed="+seed)
		for _, n := range []int{2, 0, 4} {
			must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, n))
		}
		return observe(t, s)
	}
	if d := cmp.Diff(run("1"), run("1")); d != "" {
		t.Error(d)
	}
	if cmp.Equal(run("1"), run("2")) {
		t.Error("another seed made the same addresses")
	}
}
