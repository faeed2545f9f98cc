package plan

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// bond checks a wanted bond before anything is touched. What hardware asks of one
// is in mlx5/core/lag/lag.c (mlx5_lag_check_prereq, mlx5_handle_changeupper_event).
func (c *checker) bond(want nic.BondSpec, spec nic.Spec, state nic.State) {
	if want.Absent {
		return
	}
	b := bondHandle(want.Name).String()
	if !isNetdevName(want.Name) {
		c.add(b, fmt.Sprintf("%q can be no interface's name", want.Name), "1 to 15 characters without blanks, slashes or colons")
		return
	}
	if !slices.Contains([]nic.BondMode{nic.ActiveBackup, nic.BalanceXOR, nic.IEEE8023AD}, want.Mode) {
		c.add(b, fmt.Sprintf("mode %q, which hardware does not take", want.Mode), "active-backup, balance-xor or 802.3ad")
	}
	c.mtu(b, "MTU", want.MTU)
	if want.Miimon < 0 {
		c.add(b, fmt.Sprintf("miimon %d", want.Miimon), "milliseconds, 0 or more")
	}
	if !c.members(b, want, spec, state) || want.Exact {
		return // what was there before may be whatever it was
	}
	if have := state.Bond(want.Name); have != nil {
		c.existing(b, want, *have)
	}
	c.alike(b, want, spec, state)
}

// members checks who is to be in: PFs that there are, and that nobody else has.
func (c *checker) members(b string, want nic.BondSpec, spec nic.Spec, state nic.State) bool {
	before := len(c.problems)
	if len(want.Members) == 0 {
		c.add(b, "has no members", "the ports of one card")
	}
	for i, h := range want.Members {
		pf := state.PF(h)
		switch in := state.BondOf(h); {
		case slices.Contains(want.Members[:i], h):
			c.add(b, fmt.Sprintf("member %s is named twice", h), "each port once")
		case pf == nil:
			c.unknown(h, state)
		case spec.PF(h) == nil && !want.Exact:
			c.add(b, fmt.Sprintf("member %s has no entry of its own", h), "one for the PF")
		case !pf.Uplink.Exists():
			c.add(b, fmt.Sprintf("member %s has no netdev here", h), "a PF with its netdev in the host's namespace")
		case in != nil && in.Name != want.Name && !in.Ours:
			c.add(b, fmt.Sprintf("member %s is in bond %s, which sluice has not made", h, in.Name), "it out of that one first")
		}
	}
	return len(c.problems) == before
}

// existing checks the wish against a bond of the same name that is there.
func (c *checker) existing(b string, want nic.BondSpec, have nic.Bond) {
	if len(have.Others) > 0 {
		c.add(b, fmt.Sprintf("has %s as a member too", strings.Join(have.Others, ", ")), "the card's ports and nothing else, or no hardware aggregates")
	}
	for _, h := range have.Members {
		if !slices.Contains(want.Members, h) {
			c.add(b, fmt.Sprintf("has %s as a member too", h), "the card's ports and nothing else, or no hardware aggregates")
		}
	}
	switch {
	case want.Adopt && want.Mode != "" && want.Mode != have.Mode:
		c.add(b, fmt.Sprintf("is to be adopted in mode %s, and is %s", want.Mode, have.Mode), fmt.Sprintf("mode %s here, or %s where it is made", have.Mode, want.Mode))
	case !want.Adopt && !have.Ours && differs(want, have):
		c.add(b, fmt.Sprintf("is there already, made by somebody else, as %s", describe(have)), "the same, or adopt: true and its maker to change it")
	}
}

func describe(b nic.Bond) string {
	out := string(b.Mode)
	if b.Hash != "" {
		out += " " + b.Hash
	}
	return fmt.Sprintf("%s, miimon %d", out, b.Miimon)
}

// alike checks that the ports are all those of one card, and alike at the end.
func (c *checker) alike(b string, want nic.BondSpec, spec nic.Spec, state nic.State) {
	if want.Software {
		return
	}
	var card nic.Card
	for _, k := range state.Cards() {
		if slices.ContainsFunc(k.PFs, func(p nic.PF) bool { return p.Handle == want.Members[0] }) {
			card = k
		}
	}
	for _, h := range want.Members {
		if !slices.ContainsFunc(card.PFs, func(p nic.PF) bool { return p.Handle == h }) {
			c.add(b, fmt.Sprintf("%s and %s are ports of different cards", want.Members[0], h), "the ports of one card")
			return
		}
	}
	first := endOf(want.Members[0], spec, state)
	for _, h := range want.Members {
		pf, end := *state.PF(h), endOf(h, spec, state)
		if profileOf(pf).tellsLAG && pf.LAG == "" {
			c.add(h.String(), "whether hardware aggregates it cannot be read", "debugfs at /sys/kernel/debug, and a driver with VF-LAG")
		}
		switch {
		case pf.InfiniBand:
			c.add(b, fmt.Sprintf("%s is an InfiniBand port, which hardware does not aggregate", h), "Ethernet ports")
		case pf.Driver != first.pf.Driver:
			c.add(b, fmt.Sprintf("%s has driver %s and %s has %s", want.Members[0], first.pf.Driver, h, pf.Driver), "one driver")
		case end.endMode != first.endMode:
			c.add(b, fmt.Sprintf("%s is to be in %s mode and %s in %s", want.Members[0], modeName(first.endMode), h, modeName(end.endMode)), "one mode")
		case end.roceAtEnd() != first.roceAtEnd():
			c.add(b, fmt.Sprintf("%s is to have roce %s and %s %s", want.Members[0], first.roceAtEnd(), h, end.roceAtEnd()),
				"the same on each port, or no hardware aggregates")
		case end.endCount != first.endCount:
			c.add(b, fmt.Sprintf("%s is to have %d VFs and %s %d", want.Members[0], first.endCount, h, end.endCount), "as many on each port")
		case profileOf(pf).tellsLAG && end.endMode != nic.Switchdev && end.endCount > 0:
			c.add(b, fmt.Sprintf("%s is to have VFs in %s mode, in which hardware does not aggregate", h, modeName(end.endMode)), "eswitch mode switchdev")
		}
	}
	if profileOf(*state.PF(want.Members[0])).tellsLAG {
		for _, p := range card.PFs {
			if !slices.Contains(want.Members, p.Handle) {
				c.add(b, fmt.Sprintf("%s of the same card is no member", p.Handle), "all ports of the card, or no hardware aggregates")
			}
		}
	}
}

// shaken refuses what would end the LAG of a bond whose ports are not all named, or
// not all to be in one mode: VFs of all of them are bound anew for it.
func (c *checker) shaken(spec nic.Spec, state nic.State) {
	for _, b := range state.Bonds {
		if !active(b, state) {
			continue
		}
		for _, h := range b.Members {
			port := slices.IndexFunc(b.Members, func(o nic.Handle) bool { return spec.PF(o) != nil && endsLAG(o, spec, state) })
			if spec.PF(h) == nil && port >= 0 {
				c.add(bondHandle(b.Name).String(),
					fmt.Sprintf("is in hardware, and that ends when %s leaves it or changes its mode; %s is not named", b.Members[port], h),
					"an entry for each of its ports")
				return
			}
		}
	}
	for _, b := range state.Bonds {
		named := slices.ContainsFunc(spec.Bonds, func(w nic.BondSpec) bool { return w.Name == b.Name })
		if named || !active(b, state) || shakes(b.Members, spec, state) == nil {
			continue
		}
		if p, q, differ := modesDiffer(b.Members, spec, state); differ {
			c.add(bondHandle(b.Name).String(), fmt.Sprintf("is in hardware, and %s is to be in %s mode and %s in %s",
				p.pf.Handle, modeName(p.endMode), q.pf.Handle, modeName(q.endMode)), "one mode, or the ports out of the bond: bond: none")
		}
	}
}

func (g *goal) roceAtEnd() string {
	if value, ok := g.want.Settings[nic.RoCE]; ok {
		return value
	}
	return g.pf.Settings[nic.RoCE]
}

// isNetdevName is dev_valid_name.
func isNetdevName(s string) bool {
	return s != "" && len(s) < 16 && s != "." && s != ".." && !strings.ContainsAny(s, "/: \t\n\v\f\r")
}

// rdma checks the wish for the node's RDMA subsystem.
func (c *checker) rdma(spec nic.Spec, state nic.State) {
	switch {
	case spec.RDMA == "":
	case spec.RDMA != nic.RDMAShared && spec.RDMA != nic.RDMAExclusive:
		c.add(NodeRDMA().String(), fmt.Sprintf("namespace mode %q", spec.RDMA), "shared or exclusive")
	case state.RDMA.Mode == "":
		c.add(NodeRDMA().String(), fmt.Sprintf("namespace mode %s, but this kernel has no RDMA subsystem loaded", spec.RDMA),
			"module ib_core, or no wish")
	}
}
