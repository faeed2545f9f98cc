package plan

import (
	"cmp"
	"fmt"

	"sluice.dev/sluice/pkg/nic"
)

// subject is an object whose wished settings are checked.
type subject struct {
	object string
	of     kind
	mode   nic.Eswitch // at the end
	device string      // whose driver is spoken of

	// have is what it offers now; known says that this holds for the end too,
	// because the mode, the function and its driver stay.
	have   nic.Settings
	limits nic.Limits
	known  bool
	netdev bool // it has, or will have, its netdev in the host's namespace
	away   bool // it has it in another one
}

func (c *checker) settings(s subject, want nic.Settings) {
	for _, name := range want.Names() {
		value := want[name]
		r, ok := ruleOf(name)
		switch {
		case !ok:
			c.add(s.object, fmt.Sprintf("there is no setting %q", name), "one that the document describes")
			continue
		case r.of&s.of == 0:
			c.add(s.object, fmt.Sprintf("%s %s, but %s has no such setting", name, value, s.of), fmt.Sprintf("it of %s", r.of))
			continue
		}
		if form := formOf(name, value); form != "" {
			c.add(s.object, fmt.Sprintf("%s %q", name, value), form)
			continue
		}
		c.possible(s, r.at(s.of), name, value)
	}
}

// possible refuses what the object cannot have, and says what would work instead.
func (c *checker) possible(s subject, r rule, name nic.Setting, value string) {
	_, offered := s.have[name]
	most, limited := s.limits[name]
	switch {
	case r.mode != "" && r.mode != legacyIfNone(s.mode):
		want := cmp.Or(r.instead, "no "+string(name)) + ", or eswitch mode " + string(r.mode)
		if r.where != "" {
			want += ", " + r.where
		}
		c.add(s.object, fmt.Sprintf("%s %s, which there is not in %s mode", name, value, modeName(s.mode)), want)
	case r.phase == netdev && !s.netdev && !s.away:
		c.add(s.object, fmt.Sprintf("%s %s is a matter of a netdev, and it has none", name, value),
			"the kernel's driver, or no "+string(name))
	case s.known && !offered && !s.away:
		c.add(s.object, fmt.Sprintf("%s %s, which %s does not offer here", name, value, s.device), "no "+string(name))
	case s.known && limited && !r.clamped && atoi(value) > most:
		c.add(s.object, fmt.Sprintf("%s %s is over what it takes", name, value), fmt.Sprintf("at most %d", most))
	}
}

func (c *checker) portSettings(g *goal, want nic.PFSpec) {
	p := g.pf
	c.settings(subject{
		object: p.Handle.String(), of: ofPF, mode: g.endMode, device: driverOr(p),
		have: p.Settings, limits: p.Limits, known: !g.flips() && !g.detours(), netdev: p.Uplink.Exists(),
	}, want.Settings)
	for _, name := range []nic.Setting{nic.LinkMTU, nic.AdminLink} {
		if _, ok := want.Settings[name]; ok && g.bond != "" {
			c.add(p.Handle.String(), fmt.Sprintf("%s %s, but the port is a member of bond %s, which says so for its members",
				name, want.Settings[name], g.bond), "it as the bond's")
		}
	}
	if g.stays && g.wants(nic.RoCE) {
		c.add(p.Handle.String(), fmt.Sprintf("%s %s takes a reload of the driver, and the port is in bond %s, which would lose it",
			nic.RoCE, want.Settings[nic.RoCE], g.bond), "the port out of the bond first: bond: none")
	}
}

func (c *checker) vfSettings(g *goal, i int, w nic.VFSpec) {
	s := subject{
		object: g.id(i).String(), of: ofVF, mode: g.endMode, device: driverOr(g.pf),
		netdev: g.driverAtEnd(i) == nic.DriverKernel,
	}
	if i < len(g.pf.VFs) && !g.removes() {
		v := g.pf.VFs[i]
		s.have, s.limits, s.away = v.Settings, v.Limits, v.Away
		s.known = !g.flips() && !g.detours() && !g.awaitsLAG && !g.wantsDriver(i) && !g.wantsUnbound(i) && v.Driver != ""
	}
	c.settings(s, w.Settings)
	if w.Settings[nic.VDPA] != "" && w.Settings[nic.VDPA] != "none" && g.driverAtEnd(i) != nic.DriverKernel {
		c.add(s.object, fmt.Sprintf("vdpa %s with driver %s: it is made by the kernel's driver", w.Settings[nic.VDPA], g.driverAtEnd(i)),
			"driver kernel")
	}
	c.rates(s.object, w.Settings, g.keptOf(i))
}

// keptOf is the settings of VF i that it keeps.
func (g *goal) keptOf(i int) nic.Settings {
	if i < len(g.pf.VFs) && g.endCount == len(g.pf.VFs) {
		return g.pf.VFs[i].Settings
	}
	return nil
}

// rates: drivers refuse a minimum over the maximum, one of which may be there
// already.
func (c *checker) rates(object string, want, have nic.Settings) {
	end := over(have, want)
	low, high := end[nic.MinRate], end[nic.MaxRate]
	if atoi(high) != 0 && atoi(low) > atoi(high) {
		c.add(object, fmt.Sprintf("min-rate %s is over max-rate %s", low, high), "a minimum that is not over the maximum")
	}
}

// subfunctions checks the entries of SFs.
func (c *checker) subfunctions(g *goal, want nic.PFSpec) {
	if want.SFs == nil {
		return
	}
	h := g.pf.Handle
	if len(*want.SFs) > 0 && g.endMode != nic.Switchdev {
		c.add(h.String(), fmt.Sprintf("%d SFs, which there are not in %s mode", len(*want.SFs), modeName(g.endMode)),
			"no SFs, or eswitch mode switchdev")
		return
	}
	seen := map[int]bool{}
	if room := g.pf.MaxSFs; room > 0 && len(*want.SFs) > room {
		c.add(h.String(), fmt.Sprintf("%d SFs, and the device has room for %d (devlink resource max_local_SFs)", len(*want.SFs), room),
			fmt.Sprintf("%d SFs at most, or room for more in its firmware (mstconfig: PF_TOTAL_SF)", room))
	}
	for _, w := range *want.SFs {
		id := nic.SFID{PF: h, Num: w.Num}.String()
		switch {
		case w.Num < 0 || w.Num > maxSF:
			c.add(id, fmt.Sprintf("SF number %d", w.Num), fmt.Sprintf("0 to %d", maxSF))
		case seen[w.Num]:
			c.add(id, "is named twice", "one entry an SF")
		}
		seen[w.Num] = true
		if w.MAC != nil && !w.MAC.IsUnicast() {
			c.add(id, fmt.Sprintf("MAC %s is zero or a multicast address", w.MAC), "a unicast address: the first octet even")
		}
		c.mtu(id, "MTU", w.MTU)
		c.mtu(id, "representor MTU", w.RepMTU)
		s := subject{object: id, of: ofSF, mode: g.endMode, device: driverOr(g.pf), netdev: !w.Inactive}
		if f := g.pf.SF(w.Num); f != nil && f.Active && !g.flips() {
			s.have, s.limits, s.away, s.known = f.Settings, f.Limits, f.Away, true
		}
		c.settings(s, w.Settings)
		if f := g.pf.SF(w.Num); f != nil {
			c.rates(id, w.Settings, f.Settings)
		} else {
			c.rates(id, w.Settings, nil)
		}
	}
}

// maxSF bounds sfnum: mlx5 takes what fits into its vhca state's software
// function id, 31 bits.
const maxSF = 1<<31 - 1
