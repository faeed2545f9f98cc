package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Random builds the machine of a seed, for tests of properties that hold on every
// machine: one to four PFs on cards of mlx5, ice and igb, a few VFs each, found in any
// state that a machine can be in when sluice starts: drivers bound or not, taken
// by vfio-pci, netdevs renamed, up, with other MTUs, away in a namespace; modes
// legacy and switchdev; administrative addresses set or not; a PF without a
// driver; names that others hold. It has no bonds and SFs and offers no settings. Its
// log is empty, it has no faults, and its clock does not let anybody wait (Jump).
func Random(seed uint64) *Sim {
	r := rand.New(rand.NewPCG(seed, 0x5115ce))
	s := randomCards(r, Config{Seed: seed, Plain: true}, []string{"mlx5", "ice", "igb"}, 1+r.IntN(4), 4)
	for i := range s.st.PFs {
		s.age(r, i)
	}
	return s
}

// RandomNode is Random with all that a node can have: one to four cards of all
// profiles (of those without an eswitch igb alone, which stands for ixgbe and i40e),
// settings that somebody has set, SFs, bonds by sluice and by others over
// ports that fit and ports that do not, what of the host runs over them, InfiniBand
// ports, RDMA modes.
func RandomNode(seed uint64) *Sim {
	r := rand.New(rand.NewPCG(seed, 0x90de))
	c := Config{Seed: seed}
	if r.IntN(4) == 0 {
		c.RDMAMode = nic.RDMAExclusive
	}
	if r.IntN(4) == 0 {
		c.RDMAAtBoot = nic.RDMAExclusive
	}
	s := randomCards(r, c, []string{"mlx5", "ice", "igb", "generic"}, 8, 1+r.IntN(4))
	for i := range s.st.PFs {
		s.age(r, i)
		s.ageSFs(r, i)
	}
	s.pairs(r)
	s.ageBonds(r)
	s.ageSettings(r)
	s.ageUses(r)
	s.startLAGs()
	return s
}

// randomCards plugs in up to so many cards, with up to so many ports together.
func randomCards(r *rand.Rand, c Config, profiles []string, ports, cards int) *Sim {
	c.NoUdev, c.NoIOMMU = r.IntN(3) == 0, r.IntN(8) == 0
	for ; ports > 0 && cards > 0; cards-- {
		name := profiles[r.IntN(len(profiles))]
		p, _ := profileNamed(name)
		card := Card{
			Profile: name, Ports: 1 + r.IntN(min(p.maxPorts, ports)), TotalVFs: 1 + r.IntN(7),
			NoAutoprobe: r.IntN(3) == 0, Unbound: r.IntN(12) == 0,
			InfiniBand: !c.Plain && p.infiniband && r.IntN(10) == 0,
		}
		c.Cards = append(c.Cards, card)
		ports -= card.Ports
	}
	s, err := New(c)
	if err != nil {
		panic(fmt.Sprintf("sim: random machine %d: %v", c.Seed, err)) // the ranges above are the profiles' own
	}
	s.clock = &Jump{}
	for ns := range r.IntN(3) {
		s.must(s.AddNetns(fmt.Sprintf("/run/netns/pod%d", ns)))
	}
	if r.IntN(4) == 0 {
		_, err := s.AddLink("", "eth9", "dummy")
		s.must(err)
	}
	return s
}

// age brings a PF and its VFs to where some earlier use may have left them.
func (s *Sim) age(r *rand.Rand, f int) {
	p := s.st.PFs[f]
	p.NoCarrier = r.IntN(10) == 0
	if !s.driven(f) {
		return
	}
	card := s.profile(f)
	switchdev := p.Mode != "" && r.IntN(2) == 0
	if switchdev && !card.modeAfterVFs {
		s.setMode(f, nic.Switchdev)
	}
	if r.IntN(4) > 0 {
		s.makeVFs(f, 1+r.IntN(p.TotalVFs))
		if switchdev && card.modeAfterVFs {
			s.setMode(f, nic.Switchdev)
		}
	}
	if card.modeWithVFs && p.Mode == nic.Switchdev && r.IntN(4) == 0 {
		s.setMode(f, nic.Legacy)
	}
	p.Autoprobe = r.IntN(3) > 0
	for v := range p.VFs {
		if r.IntN(3) == 0 {
			p.VFs[v].MAC = s.randomMAC()
		}
		s.rebind(r, f, v)
	}
	for _, l := range s.st.Links {
		if l.PF == f {
			s.ageLink(r, l)
		}
	}
}

func (s *Sim) rebind(r *rand.Rand, f, v int) {
	bound := s.st.PFs[f].VFs[v].Driver
	want := bound
	switch r.IntN(5) {
	case 0:
		want = ""
	case 1:
		if s.st.IOMMU {
			want = vfioDriver
		}
	case 2:
		want = s.profile(f).vfDriver
	}
	if want == bound {
		return
	}
	if bound != "" {
		s.removeVF(f, v)
	}
	if want != "" {
		s.probeVF(f, v, want)
	}
}

func (s *Sim) ageLink(r *rand.Rand, l *link) {
	if r.IntN(4) == 0 {
		l.MTU = 1500 + 500*(1+r.IntN(15))
		if l.PF >= 0 && s.st.PFs[l.PF].InfiniBand {
			l.MTU = 2044
		}
	}
	if l.Role != uplink {
		l.Up = r.IntN(2) == 0
	}
	if r.IntN(6) == 0 {
		name := fmt.Sprintf("x%d", r.IntN(1000))
		if !s.taken(l.Netns, name) {
			l.Name = name
		}
	}
	if (l.Role == vfNetdev || l.Role == sfNetdev) && len(s.st.Netns) > 1 && r.IntN(4) == 0 {
		to := s.st.Netns[1+r.IntN(len(s.st.Netns)-1)]
		if !s.taken(to.ID, l.Name) {
			s.move(l, to)
		}
	}
}

// ageSFs makes a few SFs, active or not.
func (s *Sim) ageSFs(r *rand.Rand, f int) {
	p := s.st.PFs[f]
	if !s.driven(f) || p.Mode != nic.Switchdev || p.MaxSFs == 0 || r.IntN(2) == 0 {
		return
	}
	for range 1 + r.IntN(3) {
		if num := r.IntN(100); p.sf(num) == nil {
			s.addSF(f, num)
			o := p.sf(num)
			if r.IntN(3) == 0 {
				o.MAC = s.randomMAC()
			}
			if r.IntN(3) > 0 {
				s.activateSF(f, o)
			}
		}
	}
	for _, l := range s.st.Links {
		if l.PF == f && l.SF >= 0 {
			s.ageLink(r, l)
		}
	}
}

// pairs gives the second port of some cards the mode of the first, as where they
// were meant for a bond.
func (s *Sim) pairs(r *rand.Rand) {
	for f := range len(s.st.PFs) - 1 {
		a, b := s.st.PFs[f], s.st.PFs[f+1]
		if a.Card == b.Card && a.Mode == nic.Switchdev && b.Mode == nic.Legacy && s.profile(f).modeWithVFs &&
			s.driven(f+1) && (len(b.VFs) > 0 || !s.profile(f).modeAfterVFs) && r.IntN(2) == 0 {
			s.setMode(f+1, nic.Switchdev)
		}
	}
}

// ageBonds puts ports into bonds: mostly the two of a card, now and then one of them,
// one of another card or something else too.
func (s *Sim) ageBonds(r *rand.Rand) {
	modes := []nic.BondMode{nic.ActiveBackup, nic.BalanceXOR, nic.IEEE8023AD}
	for f, p := range s.st.PFs {
		if p.Port != 0 || r.IntN(3) > 0 {
			continue
		}
		b := Bond{
			Spec:  nic.BondSpec{Name: fmt.Sprintf("bond%d", f), Mode: modes[r.IntN(3)], Miimon: 100 * r.IntN(2)},
			Ours:  r.IntN(2) == 0,
			Ports: []Port{{p.Card, 0}, {p.Card, 1}},
		}
		if r.IntN(6) == 0 {
			b.Ports[1].Card = r.IntN(len(s.st.PFs))
		}
		if r.IntN(6) == 0 {
			b.Ports = b.Ports[:1+r.IntN(2)]
		}
		fits := b.Ports[0] != b.Ports[len(b.Ports)-1] || len(b.Ports) == 1
		for _, port := range b.Ports {
			l := s.netdevOf(port)
			fits = fits && l != nil && l.Master == 0 && !s.st.PFs[l.PF].InfiniBand
		}
		if !fits {
			continue
		}
		s.must(s.startBond(b))
		if r.IntN(8) == 0 {
			name := fmt.Sprintf("other%d", f)
			_, err := s.AddLink("", name, "dummy")
			s.must(err)
			last := s.st.Links[len(s.st.Links)-1]
			s.enslave(s.linkAt(hostNS, s.netdevOf(b.Ports[0]).Master), last)
		}
	}
}

// ageSettings sets a few things to something that they take.
func (s *Sim) ageSettings(r *rand.Rand) {
	all, netdevs := s.knobs(), s.netdevs()
	for f, p := range s.st.PFs {
		ids := []functionID{pfID(f)}
		for v := range p.VFs {
			ids = append(ids, vfID(f, v))
		}
		for _, o := range p.SFs {
			ids = append(ids, sfID(f, o.Num))
		}
		for _, id := range ids {
			t, _ := s.target(id, netdevs)
			for _, k := range all {
				value := k.random(r, t)
				if r.IntN(4) > 0 || !k.has(t) || value == "" || !k.takes(value) {
					continue
				}
				// What running drivers keep from being set may have been set before.
				if k.name == nic.RoCE || k.name == nic.EventQueues {
					keep(t.kept(), k.name, value)()
				} else if change, err := k.set(s, t, value); err == nil && change != nil {
					change()
				}
			}
		}
	}
}

// random is a value to try.
func (k knob) random(r *rand.Rand, t target) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	switch k.name {
	case nic.EncapMode:
		return pick("none", "basic")
	case nic.SteeringMode:
		return pick("dmfs", "smfs")
	case nic.TCOffload, nic.RoCE, nic.Trust, nic.SpoofCheck:
		return pick("on", "off")
	case nic.LinkState:
		return pick("auto", "enable", "disable")
	case nic.VLAN:
		return pick("0", "7", "100/3")
	case nic.MinRate:
		return pick("0", "10", "50")
	case nic.MaxRate:
		return pick("0", "100", "500")
	case nic.EventQueues:
		return pick("8", "16", "120")
	case nic.NodeGUID, nic.PortGUID:
		return pick(noGUID, "02:00:00:00:00:00:00:07")
	case nic.VDPA:
		return pick("none", "vhost", "virtio")
	case nic.Channels:
		if k.has(t) && k.most(t) > 0 {
			return strconv.Itoa(1 + r.IntN(k.most(t)))
		}
	case nic.RxRing, nic.TxRing:
		return pick("256", "512", "1024")
	case nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return pick("32768", "65536", "131072", "262144")
	}
	return ""
}

// ageUses has the host run over a port or bond now and then.
func (s *Sim) ageUses(r *rand.Rand) {
	for i, l := range s.st.Links {
		if (l.Role == uplink && l.Netns == hostNS || l.Role == bonded) && r.IntN(8) == 0 {
			l.Up = true
			l.Addrs = append(l.Addrs, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), 24))
			if r.IntN(2) == 0 {
				route := host.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: netip.AddrFrom4([4]byte{192, 0, 2, 254}), Priority: i}
				l.Routes = append(l.Routes, route)
			}
		}
	}
}

func (s *Sim) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("sim: random machine %d: %v", s.st.Seed, err)) // the names above are free
	}
}
