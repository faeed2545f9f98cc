package apply

import (
	"cmp"
	"slices"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// Bonds of a node, and whether its hardware takes them (mlx5/core/lag/lag.c).

func (n *node) bond(a plan.Action) error {
	switch a := a.(type) {
	case plan.AddBond:
		if n.st.Bond(a.Name) != nil {
			return refusedf("EEXIST")
		}
		n.addBond(nic.Bond{
			Netdev: nic.Netdev{Name: a.Name, MTU: a.MTU}, Mode: a.Mode, Hash: cmp.Or(a.Hash, "layer2"),
			Miimon: a.Miimon, LACPRate: cmp.Or(a.LACPRate, "slow"), Ours: true,
		})
		return nil
	case plan.AwaitBond:
		return n.stranger(a.Bond, a.PF)
	}
	b := n.st.Bond(a.Object().Name)
	if b == nil {
		return refusedf("no bond")
	}
	switch a := a.(type) {
	case plan.DelBond:
		if !b.Ours || len(b.Members)+len(b.Others) > 0 {
			return refusedf("not ours, or with members")
		}
		n.st.Bonds = slices.DeleteFunc(n.st.Bonds, func(b nic.Bond) bool { return b.Name == a.Name })
	case plan.Enslave:
		return n.enslave(b, a.PF)
	case plan.Release:
		return n.release(b, a.PF)
	case plan.SetBondMTU:
		b.MTU = a.To
		for _, h := range b.Members {
			n.takeMTU(h, a.To)
		}
	case plan.AwaitLAG:
		if !n.eligible(b) || !n.idle(b) {
			return refusedf("the LAG does not become active")
		}
		n.setLAG(b, nic.LAGActive)
	}
	return nil
}

func (n *node) addBond(b nic.Bond) {
	b.Ifindex, b.MTU, b.Up = n.draw(), cmp.Or(b.MTU, 1500), true
	n.st.Bonds = append(n.st.Bonds, b)
	slices.SortFunc(n.st.Bonds, func(a, b nic.Bond) int { return cmp.Compare(a.Name, b.Name) })
}

func (n *node) enslave(b *nic.Bond, h nic.Handle) error {
	pf := n.st.PF(h)
	switch {
	case pf == nil || !pf.Uplink.Exists():
		return refusedf("no netdev")
	case n.bondOf(h) != nil:
		return refusedf("EBUSY: has a master")
	}
	n.join(b, pf)
	return nil
}

// join: a member has the bond's MTU and is up (bond_enslave).
func (n *node) join(b *nic.Bond, pf *nic.PF) {
	n.ownMTU[pf.Handle] = pf.Uplink.MTU
	b.Members = append(b.Members, pf.Handle)
	slices.SortFunc(b.Members, nic.Handle.Compare)
	n.takeMTU(pf.Handle, b.MTU)
	takeUp(pf, true)
}

// release: it has its own MTU again (__bond_release_one), and stays up.
func (n *node) release(b *nic.Bond, h nic.Handle) error {
	if !slices.Contains(b.Members, h) {
		return refusedf("no member")
	}
	b.Members = slices.DeleteFunc(b.Members, func(o nic.Handle) bool { return o == h })
	n.takeMTU(h, n.ownMTU[h])
	delete(n.ownMTU, h)
	return nil
}

func (n *node) takeMTU(h nic.Handle, mtu int) {
	pf := n.st.PF(h)
	pf.Uplink.MTU = mtu
	if _, ok := pf.Settings[nic.LinkMTU]; ok {
		pf.Settings[nic.LinkMTU] = strconv.Itoa(mtu)
	}
}

func takeUp(pf *nic.PF, up bool) {
	pf.Uplink.Up = up
	if _, ok := pf.Settings[nic.AdminLink]; ok {
		pf.Settings[nic.AdminLink] = map[bool]string{true: "up", false: "down"}[up]
	}
}

// stranger does what somebody else is about to do: a bond that he makes, and a
// port that he puts in, whatever its VFs do.
func (n *node) stranger(name string, h nic.Handle) error {
	for _, s := range n.strangers {
		if s.Name != name || !slices.Contains(s.Members, h) {
			continue
		}
		if n.bondOf(h) != nil {
			return refusedf("EBUSY: has a master")
		}
		if n.st.Bond(name) == nil {
			s.Members, s.Ours = nil, false
			n.addBond(s)
		}
		n.join(n.st.Bond(name), n.st.PF(h))
		return nil
	}
	return refusedf("nobody makes it")
}

// eligible is mlx5_lag_check_prereq, and that the members are exactly the card's
// ports.
func (n *node) eligible(b *nic.Bond) bool {
	if len(b.Others) > 0 || len(b.Members) < 2 || !slices.Contains(modes(), b.Mode) {
		return false
	}
	first := n.st.PF(b.Members[0])
	for i := range n.st.PFs {
		if p := &n.st.PFs[i]; p.Serial == first.Serial && !slices.Contains(b.Members, p.Handle) {
			return false
		}
	}
	for _, h := range b.Members {
		p := n.st.PF(h)
		if !hasLAG(p.Driver) || p.Serial != first.Serial || p.Eswitch != first.Eswitch ||
			p.Settings[nic.RoCE] != first.Settings[nic.RoCE] || p.Eswitch == nic.Legacy && len(p.VFs) > 0 {
			return false
		}
	}
	return true
}

// idle: no VF of the ports has a driver. Under bound ones the LAG does not come.
func (n *node) idle(b *nic.Bond) bool {
	for _, h := range b.Members {
		for _, v := range n.st.PF(h).VFs {
			if v.Driver != "" {
				return false
			}
		}
	}
	return true
}

// reconsiderLAG is the driver's own work queue, after every change.
func (n *node) reconsiderLAG(joined bool) {
	in := map[nic.Handle]bool{}
	for i := range n.st.Bonds {
		b := &n.st.Bonds[i]
		if !n.eligible(b) {
			continue
		}
		for _, h := range b.Members {
			in[h] = true
		}
		if n.prompt && joined && n.idle(b) {
			n.setLAG(b, nic.LAGActive)
		}
	}
	for i := range n.st.PFs {
		if p := &n.st.PFs[i]; hasLAG(p.Driver) && !in[p.Handle] {
			p.LAG = nic.LAGInactive
		}
	}
}

func (n *node) setLAG(b *nic.Bond, l nic.LAG) {
	for _, h := range b.Members {
		if p := n.st.PF(h); hasLAG(p.Driver) {
			p.LAG = l
		}
	}
}

func modes() []nic.BondMode { return []nic.BondMode{nic.ActiveBackup, nic.BalanceXOR, nic.IEEE8023AD} }
