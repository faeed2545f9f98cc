package host_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// lists are what a machine answers, as a case has them.
type lists struct {
	functions []host.Function
	devices   []host.DevlinkDevice
	ports     []host.DevlinkPort
	links     []host.Link
	rdma      []host.RDMADevice
	sfs       []host.SFDevice
	uses      []host.Use
	bonds     []host.Bond
	lag       map[string]nic.LAG
	err       error // of the list of links
}

// The interfaces' setters are not there: Observe writes nothing.
type (
	listPCI struct {
		host.PCI
		*lists
	}
	listDevlink struct {
		host.Devlink
		*lists
	}
	linkSetters = host.Links
	listLinks   struct {
		linkSetters
		*lists
	}
	listRDMA struct {
		host.RDMA
		*lists
	}
	bondSetters = host.Bonds
	listBonds   struct {
		bondSetters
		*lists
	}
)

func (l listPCI) Functions(context.Context) ([]host.Function, error) { return l.functions, nil }
func (l listDevlink) Devices(context.Context) ([]host.DevlinkDevice, error) {
	return l.devices, nil
}
func (l listDevlink) Ports(context.Context) ([]host.DevlinkPort, error) { return l.ports, nil }
func (l listLinks) Links(context.Context) ([]host.Link, error)          { return l.links, l.err }
func (l listRDMA) Devices(context.Context) ([]host.RDMADevice, error)   { return l.rdma, nil }
func (l listRDMA) System(context.Context) (nic.RDMA, error)             { return nic.RDMA{}, nil }
func (l listPCI) SFs(context.Context) ([]host.SFDevice, error)          { return l.sfs, nil }
func (l listLinks) Uses(context.Context) ([]host.Use, error)            { return l.uses, nil }
func (l listBonds) Bonds(context.Context) ([]host.Bond, error)          { return l.bonds, nil }
func (l listBonds) LAG(context.Context) (map[string]nic.LAG, error)     { return l.lag, nil }

func (l *lists) machine() host.Machine {
	return host.Machine{
		PCI: listPCI{lists: l}, Devlink: listDevlink{lists: l}, Links: listLinks{lists: l}, RDMA: listRDMA{lists: l},
		Bonds: listBonds{lists: l},
	}
}

// observe observes lists, and again with their entries in many other orders: the
// answer must be one.
func observe(t *testing.T, l lists) *nic.State {
	t.Helper()
	want, err := host.Observe(t.Context(), l.machine())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		p := lists{
			slices.Clone(l.functions), slices.Clone(l.devices), slices.Clone(l.ports), slices.Clone(l.links), slices.Clone(l.rdma),
			slices.Clone(l.sfs), slices.Clone(l.uses), slices.Clone(l.bonds), l.lag, nil,
		}
		shuffle(r, p.functions)
		shuffle(r, p.devices)
		shuffle(r, p.ports)
		shuffle(r, p.links)
		shuffle(r, p.rdma)
		shuffle(r, p.sfs)
		shuffle(r, p.uses)
		shuffle(r, p.bonds)
		got, err := host.Observe(t.Context(), p.machine())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("in another order there is another answer:\n%s\nlinks: %+v", d, p.links)
		}
	}
	return &want
}

func shuffle[T any](r *rand.Rand, s []T) {
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

const card = "0000:3b:00."

// pfAt is PF number fn of the card, with n VFs.
func (l *lists) pfAt(fn, n int) {
	address := fmt.Sprintf("%s%d", card, fn)
	l.functions = append(l.functions, host.Function{Address: address, Driver: "mlx5_core", VFIndex: -1, TotalVFs: 8, NumVFs: n})
	for i := range n {
		l.functions = append(l.functions, host.Function{
			Address: vfAt(fn, i), Driver: "mlx5_core", PF: address, VFIndex: i, IOMMUGroup: -1,
		})
	}
	l.devices = append(l.devices, host.DevlinkDevice{Handle: nic.PCI(address), Eswitch: nic.Switchdev})
}

func vfAt(fn, i int) string { return fmt.Sprintf("0000:3b:0%d.%d", 1+fn, i) }

// link adds an interface; its ifindex is its place in the list, counted from 10.
func (l *lists) link(parent, name, port string) int {
	ifindex := 10 + len(l.links)
	o := host.Link{Netdev: nic.Netdev{Name: name, Ifindex: ifindex, MTU: 1500}, Parent: parent, PortName: port}
	if port != "" {
		o.SwitchID = "b8cef60300a1b2c3"
	}
	l.links = append(l.links, o)
	return ifindex
}

func (l *lists) port(h nic.Handle, index uint32, f host.Flavour, pf, vf, ifindex int) {
	l.ports = append(l.ports, host.DevlinkPort{Handle: h, Index: index, Flavour: f, PF: pf, VF: vf, Ifindex: ifindex})
}

// TestB01UplinkAmongRepresentors: the uplink is not the entry that comes first,
// nor the one with the shortest or smallest name.
func TestB01UplinkAmongRepresentors(t *testing.T) {
	for _, names := range [][]string{
		{"ens8f1", "0123456789abcde", "ens8f1_1", "ens8f1_2"}, // one still has a dead pod's name
		{"eth2", "eth10", "eth11", "eth1"},
		{"zz", "a", "b", "c"},
	} {
		for _, withPorts := range []bool{true, false} {
			var l lists
			l.pfAt(1, 3)
			pf := card + "1"
			reps := []int{l.link(pf, names[1], "pf1vf0"), l.link(pf, names[2], "pf1vf1"), l.link(pf, names[3], "pf1vf2")}
			uplink := l.link(pf, names[0], "p1")
			if withPorts {
				l.port(nic.PCI(pf), 131071, host.FlavourPhysical, -1, -1, uplink)
				for i, ifindex := range reps {
					l.port(nic.PCI(pf), uint32(65537+i), host.FlavourPCIVF, 1, i, ifindex)
				}
			}
			p := observe(t, l).PF(nic.PCI(pf))
			if p.Uplink.Name != names[0] || p.PortName != "p1" {
				t.Errorf("%q: uplink %+v, port %q", names, p.Uplink, p.PortName)
			}
			for i, v := range p.VFs {
				if v.Rep.Netdev.Name != names[i+1] {
					t.Errorf("%q: VF %d has representor %+v", names, i, v.Rep)
				}
			}
		}
	}
}

// TestB03OneSwitchIDForTwoPFs: two PFs of one card with one switch id; each VF has
// the representor of its own PF, also where both PFs call theirs pf0vfN.
func TestB03OneSwitchIDForTwoPFs(t *testing.T) {
	for _, withPorts := range []bool{true, false} {
		testTwoPFs(t, withPorts, func(fn int) int { return fn })
		testTwoPFs(t, withPorts, func(int) int { return 0 })
	}
}

func testTwoPFs(t *testing.T, withPorts bool, pfnum func(fn int) int) {
	t.Helper()
	var l lists
	for fn := range 2 {
		l.pfAt(fn, 2)
		pf := fmt.Sprintf("%s%d", card, fn)
		for i := range 2 {
			ifindex := l.link(pf, fmt.Sprintf("rep%d%d", fn, i), fmt.Sprintf("pf%dvf%d", pfnum(fn), i))
			if withPorts {
				l.port(nic.PCI(pf), uint32(fn<<16|i+1), host.FlavourPCIVF, pfnum(fn), i, ifindex)
			}
		}
		uplink := l.link(pf, fmt.Sprintf("up%d", 1-fn), fmt.Sprintf("p%d", fn))
		if withPorts {
			l.port(nic.PCI(pf), uint32(fn<<16|0xffff), host.FlavourPhysical, -1, -1, uplink)
		}
	}
	s := observe(t, l)
	for fn := range 2 {
		p := s.PF(nic.PCI(fmt.Sprintf("%s%d", card, fn)))
		if want := fmt.Sprintf("up%d", 1-fn); p.Uplink.Name != want {
			t.Errorf("PF %d has uplink %+v: want %s", fn, p.Uplink, want)
		}
		for i, v := range p.VFs {
			if want := fmt.Sprintf("rep%d%d", fn, i); v.Rep.Netdev.Name != want {
				t.Errorf("ports %v, PF %d VF %d has representor %+v: want %s", withPorts, fn, i, v.Rep, want)
			}
		}
	}
}

// TestOldRepresentors: before Linux 5.8 representors had no parent, and some drivers
// gave no more than the VF's number for a name. What is not certain is no
// representor: a VF must never be wired through another one's.
func TestOldRepresentors(t *testing.T) {
	names := map[string]func(fn, i int) string{
		"pfNvfM": func(fn, i int) string { return fmt.Sprintf("pf%dvf%d", fn, i) },
		"number": func(_, i int) string { return fmt.Sprint(i) },
	}
	for _, c := range []struct {
		name      string
		parents   bool
		oneSwitch bool
		found     bool
	}{
		{"pfNvfM", true, true, true},
		{"pfNvfM", false, true, true},
		{"pfNvfM", false, false, true},
		{"number", true, true, true},
		{"number", false, false, true},
		{"number", false, true, false}, // VF 0 of which of the two?
	} {
		var l lists
		for fn := range 2 {
			l.pfAt(fn, 2)
			pf := fmt.Sprintf("%s%d", card, fn)
			parent := pf
			if !c.parents {
				parent = ""
			}
			for i := range 2 {
				l.link(parent, fmt.Sprintf("rep%d%d", fn, i), names[c.name](fn, i))
			}
			l.link(pf, fmt.Sprintf("up%d", fn), fmt.Sprintf("p%d", fn))
			if !c.oneSwitch {
				for i := range l.links[3*fn:] {
					l.links[3*fn+i].SwitchID = nic.SwitchID(fmt.Sprintf("b8cef60300a1b2c%d", fn))
				}
			}
		}
		// What else has a switch id: a port of a switch on the board, a VLAN on one.
		l.link("", "lan1", "p1")
		l.link("", "vlan", "0")
		l.links[len(l.links)-1].Kind = "vlan"
		s := observe(t, l)
		for fn := range 2 {
			for i, v := range s.PF(nic.PCI(fmt.Sprintf("%s%d", card, fn))).VFs {
				want := fmt.Sprintf("rep%d%d", fn, i)
				if !c.found {
					want = ""
				}
				if v.Rep.Netdev.Name != want {
					t.Errorf("%+v: PF %d VF %d has representor %q: want %q", c, fn, i, v.Rep.Netdev.Name, want)
				}
			}
		}
	}
}

// simulated gives a machine of the simulator's, as Observe has it and its links.
func simulated(t *testing.T, spec string) (nic.State, []host.Link) {
	t.Helper()
	s, err := sim.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	st, err := host.Observe(t.Context(), s.Machine())
	if err != nil {
		t.Fatal(err)
	}
	links, err := s.Machine().Links.Links(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st, links
}

// TestTwoCards: function 0 of either card has a pf0vf0.
func TestTwoCards(t *testing.T) {
	st, links := simulated(t, "mlx5:cards=2,ports=1,numvfs=2,mode=switchdev")
	for _, p := range st.PFs {
		for _, v := range p.VFs {
			i := slices.IndexFunc(links, func(l host.Link) bool { return l.Ifindex == v.Rep.Netdev.Ifindex })
			if i < 0 || links[i].Parent != p.Handle.Name || links[i].SwitchID != p.SwitchID {
				t.Errorf("%s VF %d has representor %+v", p.Handle, v.Index, v.Rep)
			}
		}
	}
}

// Ports that are not the PF's own VFs': another host's (a DPU shows them), and
// another PF's VFs beside its own.
func TestForeignPorts(t *testing.T) {
	var l lists
	l.pfAt(1, 2)
	pf := card + "1"
	h := nic.PCI(pf)
	l.port(h, 0xffff, host.FlavourPhysical, -1, -1, l.link(pf, "up", "p1"))
	l.port(h, 1, host.FlavourPCIVF, 0, 0, l.link(pf, "adjacent0", "pf0vf0"))
	l.port(h, 2, host.FlavourPCIVF, 0, 1, l.link(pf, "adjacent1", "pf0vf1"))
	l.port(h, 7, host.FlavourPCIVF, 1, 0, l.link(pf, "own0", "pf1vf0"))
	l.port(h, 8, host.FlavourPCIVF, 1, 1, l.link(pf, "own1", "pf1vf1"))
	l.port(h, 3, host.FlavourPCIVF, 1, 0, l.link(pf, "external0", "c1pf1vf0"))
	l.ports[len(l.ports)-1].External = true
	l.port(h, 9, host.FlavourPCISF, 1, -1, l.link(pf, "sf", "pf1sf88"))
	for i, v := range observe(t, l).PF(h).VFs {
		if want := fmt.Sprintf("own%d", i); v.Rep.Netdev.Name != want {
			t.Errorf("VF %d has representor %+v: want %s", i, v.Rep, want)
		}
	}
	l.ports = nil // by the netdevs alone
	for i, v := range observe(t, l).PF(h).VFs {
		if want := fmt.Sprintf("own%d", i); v.Rep.Netdev.Name != want {
			t.Errorf("without devlink: VF %d has representor %+v: want %s", i, v.Rep, want)
		}
	}
}

// TestB05PortNameUnreadable: an interface without a port name is no representor,
// and spoils nothing for the others.
func TestB05PortNameUnreadable(t *testing.T) {
	var l lists
	l.pfAt(0, 2)
	pf := card + "0"
	l.link(pf, "a-broken", "")
	l.link(pf, "rep1", "pf0vf1")
	l.link(pf, "up", "p0")
	p := observe(t, l).PF(nic.PCI(pf))
	if p.Uplink.Name != "up" || p.VFs[0].Rep.Exists() || p.VFs[1].Rep.Netdev.Name != "rep1" {
		t.Errorf("%+v", p)
	}

	// The uplink's own cannot be read: it is what is left when representors are not.
	l = lists{}
	l.pfAt(0, 1)
	l.link(pf, "rep0", "pf0vf0")
	l.link(pf, "up", "")
	if p := observe(t, l).PF(nic.PCI(pf)); p.Uplink.Name != "up" || p.VFs[0].Rep.Netdev.Name != "rep0" {
		t.Errorf("%+v", p)
	}

	// A legacy driver without port names: the one netdev is the uplink.
	l = lists{}
	l.pfAt(0, 0)
	l.devices = nil
	l.link(pf, "eth0", "")
	if p := observe(t, l).PF(nic.PCI(pf)); p.Uplink.Name != "eth0" || p.Eswitch != "" {
		t.Errorf("%+v", p)
	}
}

// Where nothing tells two things apart the older one counts, not the one that is
// listed first.
func TestTies(t *testing.T) {
	var l lists
	l.pfAt(0, 1)
	pf := card + "0"
	l.link(pf, "one", "")
	l.link(pf, "two", "")
	l.link(vfAt(0, 0), "vf", "")
	l.link(vfAt(0, 0), "vf-again", "")
	l.port(nic.PCI(pf), 8, host.FlavourPCIVF, 4, 0, l.link(pf, "rep8", "pf4vf0"))
	l.port(nic.PCI(pf), 7, host.FlavourPCIVF, 3, 0, l.link(pf, "rep7", "pf3vf0"))
	l.rdma = []host.RDMADevice{{Name: "mlx5_1", Parent: pf}, {Name: "mlx5_0", Parent: pf}}
	p := observe(t, l).PF(nic.PCI(pf))
	if v := p.VFs[0]; p.Uplink.Name != "one" || v.Netdev.Name != "vf" || v.Rep.Netdev.Name != "rep7" {
		t.Errorf("%+v", p)
	}
	if d := cmp.Diff([]string{"mlx5_0", "mlx5_1"}, p.RDMA); d != "" {
		t.Error(d)
	}
}

// TestB25BondedRDMA: under LAG one RDMA device stands for both PFs, at the function
// of one; VFs keep theirs, and the other PF is none the worse.
func TestB25BondedRDMA(t *testing.T) {
	for name, c := range map[string]struct {
		lag    nic.LAG
		bonded bool
		device string
		at     int // PF
		want   [][]string
	}{
		"before":                {nic.LAGInactive, false, "mlx5_0", 0, [][]string{{"mlx5_0"}, nil}},
		"bonded, not yet a LAG": {nic.LAGInactive, true, "mlx5_0", 0, [][]string{{"mlx5_0"}, nil}},
		"a LAG":                 {nic.LAGActive, true, "mlx5_bond_0", 0, [][]string{{"mlx5_bond_0"}, {"mlx5_bond_0"}}},
		"at the second":         {nic.LAGActive, true, "mlx5_bond_0", 1, [][]string{{"mlx5_bond_0"}, {"mlx5_bond_0"}}},
		"renamed":               {nic.LAGActive, true, "rocep59s0f0", 0, [][]string{{"rocep59s0f0"}, {"rocep59s0f0"}}},
		"the driver is silent":  {"", true, "mlx5_bond_0", 0, [][]string{{"mlx5_bond_0"}, {"mlx5_bond_0"}}},
		"and it is not shared":  {"", true, "mlx5_0", 0, [][]string{{"mlx5_0"}, nil}},
	} {
		var l lists
		var bond host.Bond
		bond.Name, bond.Ifindex, bond.Mode = "bond0", 99, nic.ActiveBackup
		l.lag = map[string]nic.LAG{}
		for fn := range 2 {
			l.pfAt(fn, 1)
			pf := fmt.Sprintf("%s%d", card, fn)
			bond.Members = append(bond.Members, l.link(pf, fmt.Sprintf("up%d", fn), fmt.Sprintf("p%d", fn)))
			l.rdma = append(l.rdma, host.RDMADevice{Name: fmt.Sprintf("mlx5_%d", 2+fn), Parent: vfAt(fn, 0)})
			if c.lag != "" {
				l.lag[pf] = c.lag
			}
		}
		if c.bonded {
			l.bonds = []host.Bond{bond}
		}
		l.rdma = append(l.rdma, host.RDMADevice{Name: c.device, Parent: fmt.Sprintf("%s%d", card, c.at)})
		s := observe(t, l)
		var got [][]string
		for fn, p := range s.PFs {
			got = append(got, p.RDMA)
			if p.Driver == "" || !p.Uplink.Exists() {
				t.Errorf("%s: %+v", name, p)
			}
			if d := cmp.Diff([]string{fmt.Sprintf("mlx5_%d", 2+fn)}, p.VFs[0].RDMA); d != "" {
				t.Errorf("%s: VF of PF %d: %s", name, fn, d)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestB25HalfALAG: a port that hardware does not aggregate shares nothing, whatever
// the other says.
func TestB25HalfALAG(t *testing.T) {
	var l lists
	var bond host.Bond
	bond.Name, bond.Ifindex, bond.Mode = "bond0", 99, nic.ActiveBackup
	for fn := range 2 {
		l.pfAt(fn, 0)
		bond.Members = append(bond.Members, l.link(fmt.Sprintf("%s%d", card, fn), fmt.Sprintf("up%d", fn), fmt.Sprintf("p%d", fn)))
	}
	l.bonds = []host.Bond{bond}
	l.lag = map[string]nic.LAG{card + "0": nic.LAGActive, card + "1": nic.LAGInactive}
	l.rdma = []host.RDMADevice{{Name: "mlx5_bond_0", Parent: card + "0"}}
	s := observe(t, l)
	if d := cmp.Diff([][]string{{"mlx5_bond_0"}, nil}, [][]string{s.PFs[0].RDMA, s.PFs[1].RDMA}); d != "" {
		t.Error(d)
	}
}

// A soft RDMA device belongs to whoever has its netdev; the representor's is not
// the VF's, and one on something else is nobody's.
func TestSoftRDMA(t *testing.T) {
	var l lists
	l.pfAt(0, 2)
	pf := card + "0"
	l.link(pf, "up", "p0")
	l.link(pf, "rep0", "pf0vf0")
	l.link(vfAt(0, 0), "vf0", "")
	l.link("", "br0", "")
	l.rdma = []host.RDMADevice{
		{Name: "mlx5_0", Parent: pf}, {Name: "rxe0", Netdev: "vf0"}, {Name: "rxe1", Netdev: "rep0"},
		{Name: "rxe2", Netdev: "br0"}, {Name: "rxe3", Netdev: "up"}, {Name: "rxe4", Netdev: "in-a-pod"}, {Name: "rxe5"},
		// Of a pod whose netdev has the name of one here.
		{Name: "rxe6", Netdev: "vf0", Ports: []host.RDMAPort{{Number: 1}}},
		{Name: "rxe7", Netdev: "vf0", Ports: []host.RDMAPort{{Number: 1, Netdev: "vf0"}}},
	}
	p := observe(t, l).PF(nic.PCI(pf))
	if d := cmp.Diff([][]string{{"mlx5_0", "rxe3"}, {"rxe0", "rxe7"}, nil}, [][]string{p.RDMA, p.VFs[0].RDMA, p.VFs[1].RDMA}); d != "" {
		t.Error(d)
	}
}

// What is read of a VF beside its representor.
func TestVF(t *testing.T) {
	var l lists
	l.pfAt(0, 3)
	pf := card + "0"
	h := nic.PCI(pf)
	uplink := l.link(pf, "up", "p0")
	l.links[0].VFMACs = map[int]nic.MAC{0: {2, 0, 0, 0, 0, 1}, 1: {2, 0, 0, 0, 0, 2}}
	l.link(vfAt(0, 0), "vf0", "")
	l.functions[2].Away = true
	l.port(h, 1, host.FlavourPCIVF, 0, 0, 0) // its netdev is not there yet
	l.ports[0].HasMAC, l.ports[0].MAC = true, nic.MAC{2, 0, 0, 0, 0, 9}
	p := observe(t, l).PF(h)
	if p.Uplink.Ifindex != uplink {
		t.Errorf("uplink %+v", p.Uplink)
	}
	if v := p.VFs[0]; v.Netdev.Name != "vf0" || v.Rep.Exists() || v.Rep.Port != 1 || v.MAC != (nic.MAC{2, 0, 0, 0, 0, 9}) {
		t.Errorf("VF 0: %+v: want its netdev, its port without one, the port's address", v)
	}
	if v := p.VFs[1]; !v.Away || v.Netdev.Exists() || v.MAC != (nic.MAC{2, 0, 0, 0, 0, 2}) {
		t.Errorf("VF 1: %+v: want away, with the address of the PF's row", v)
	}
	if v := p.VFs[2]; v.Away || !v.MAC.IsZero() {
		t.Errorf("VF 2: %+v: want nothing", v)
	}

	// In legacy mode the PF's row counts.
	l.devices[0].Eswitch = nic.Legacy
	if v := observe(t, l).PF(h).VFs[0]; v.MAC != (nic.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("legacy: VF 0: %+v", v)
	}

	// VFs that are gone from the bus, in the midst and at the end.
	l.functions = slices.Delete(l.functions, 2, 4)
	vfs := observe(t, l).PF(h).VFs
	if len(vfs) != 3 || vfs[0].Gone || !vfs[1].Gone || !vfs[2].Gone || vfs[2].Index != 2 || vfs[1].Address != "" {
		t.Errorf("VFs 1 and 2 gone from the bus: %+v: want VF 0, and two that are gone", vfs)
	}
}

func TestObserveFails(t *testing.T) {
	cause := errors.New("no memory")
	l := lists{err: cause}
	if _, err := host.Observe(t.Context(), l.machine()); !errors.Is(err, cause) {
		t.Errorf("%v: want %v", err, cause)
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, spec := range []string{"mlx5:vfs=128,numvfs=128,mode=switchdev", "mlx5:vfs=16,numvfs=16,mode=switchdev"} {
		b.Run(spec, func(b *testing.B) {
			s, err := sim.Parse(spec)
			if err != nil {
				b.Fatal(err)
			}
			m := s.Machine()
			b.ReportAllocs()
			for b.Loop() {
				st, err := host.Observe(b.Context(), m)
				if err != nil || len(st.PFs) != 2 || !st.PFs[1].VFs[15].Rep.Exists() {
					b.Fatal(err, len(st.PFs))
				}
			}
		})
	}
}
