package sim

import (
	"fmt"
	"math/rand/v2"

	"sluice.dev/sluice/pkg/nic"
)

// Random builds the machine of a seed, for tests of properties that hold on every
// machine: one to four PFs on cards of all profiles, a few VFs each, found in any
// state that a machine can be in when sluice starts: drivers bound or not, taken
// by vfio-pci, netdevs renamed, up, with other MTUs, away in a namespace; modes
// legacy and switchdev; administrative addresses set or not; a PF without a
// driver; names that others hold. Its log is empty and it has no faults.
func Random(seed uint64) *Sim {
	r := rand.New(rand.NewPCG(seed, 0x5115ce))
	c := Config{Seed: seed, NoUdev: r.IntN(3) == 0, NoIOMMU: r.IntN(8) == 0}
	for pfs := 1 + r.IntN(4); pfs > 0; {
		name := profileNames()[r.IntN(len(profileNames()))]
		p, _ := profileNamed(name)
		card := Card{
			Profile: name, Ports: 1 + r.IntN(min(p.maxPorts, pfs)), TotalVFs: 1 + r.IntN(7),
			NoAutoprobe: r.IntN(3) == 0, Unbound: r.IntN(12) == 0,
		}
		c.Cards = append(c.Cards, card)
		pfs -= card.Ports
	}
	s, err := New(c)
	if err != nil {
		panic(fmt.Sprintf("sim: random machine %d: %v", seed, err)) // the ranges above are the profiles' own
	}
	for ns := range r.IntN(3) {
		s.must(s.AddNetns(fmt.Sprintf("/run/netns/pod%d", ns)))
	}
	if r.IntN(4) == 0 {
		_, err := s.AddLink("", "eth9", "dummy")
		s.must(err)
	}
	for i := range s.st.PFs {
		s.age(r, i)
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
	if l.Role == vfNetdev && len(s.st.Netns) > 1 && r.IntN(4) == 0 {
		to := s.st.Netns[1+r.IntN(len(s.st.Netns)-1)]
		if !s.taken(to.ID, l.Name) {
			s.move(l, to)
		}
	}
}

func (s *Sim) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("sim: random machine %d: %v", s.st.Seed, err)) // the names above are free
	}
}
