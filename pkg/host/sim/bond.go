package sim

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Bonds: drivers/net/bonding/bond_main.c and bond_options.c.

type bonds struct{ hand }

// members are the interfaces in a bond, in the order they came to the machine.
func (s *Sim) members(b *link) []*link {
	if b.Role != bonded {
		return nil
	}
	var out []*link
	for _, l := range s.st.Links {
		if l.Master == b.Ifindex && l.Netns == b.Netns {
			out = append(out, l)
		}
	}
	return out
}

func (s *Sim) masterOf(l *link) *link {
	if l.Master == 0 {
		return nil
	}
	return s.linkAt(l.Netns, l.Master)
}

func (s *Sim) linkAt(ns, ifindex int) *link {
	for _, l := range s.st.Links {
		if l.Netns == ns && l.Ifindex == ifindex && s.there(l) {
			return l
		}
	}
	return nil
}

func (s bonds) Bonds(ctx context.Context) ([]host.Bond, error) {
	var out []host.Bond
	err := s.read(ctx, "list bonds", func() error {
		of := map[int][]int{}
		for _, l := range s.st.Links {
			if l.Netns == hostNS && l.Master != 0 && s.there(l) {
				of[l.Master] = append(of[l.Master], l.Ifindex)
			}
		}
		if !slices.ContainsFunc(s.st.Links, func(l *link) bool { return l.Role == bonded }) {
			return nil
		}
		byIndex := map[int]*link{}
		for _, l := range s.st.Links {
			if l.Netns == hostNS {
				byIndex[l.Ifindex] = l
			}
		}
		for _, l := range s.listLinks(hostNS) {
			if b := byIndex[l.Ifindex].Bond; b != nil {
				slices.Sort(of[l.Ifindex])
				out = append(out, host.Bond{
					Link: l, Mode: b.Mode, Hash: b.Hash, Miimon: b.Miimon, LACPRate: b.LACPRate,
					Ours: b.Ours, Members: of[l.Ifindex], Active: b.Active,
				})
			}
		}
		slices.SortFunc(out, func(a, b host.Bond) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return out, err
}

// bondOf is what the kernel makes of options; it says of which one it makes nothing.
func bondOf(b nic.BondSpec) (*bond, error) {
	out := &bond{Mode: b.Mode, Hash: cmp.Or(b.Hash, "layer2"), Miimon: b.Miimon, LACPRate: b.LACPRate, Drawn: true}
	switch {
	case !validName(b.Name):
		return nil, refuse(syscall.EINVAL, "")
	case !slices.Contains([]nic.BondMode{nic.ActiveBackup, nic.BalanceXOR, nic.IEEE8023AD, "balance-rr", "broadcast", "balance-tlb", "balance-alb"}, b.Mode):
		return nil, refuse(syscall.EINVAL, "option mode: invalid value")
	case !slices.Contains([]string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"}, out.Hash):
		return nil, refuse(syscall.EINVAL, "option xmit_hash_policy: invalid value")
	case !slices.Contains([]string{"", "slow", "fast"}, b.LACPRate), b.LACPRate != "" && b.Mode != nic.IEEE8023AD:
		return nil, refuse(syscall.EINVAL, "option lacp_rate: invalid value or mode")
	case b.Miimon < 0:
		return nil, refuse(syscall.EINVAL, "option miimon: invalid value")
	}
	if b.Mode == nic.IEEE8023AD {
		out.LACPRate = cmp.Or(b.LACPRate, "slow")
		out.Miimon = cmp.Or(b.Miimon, 100) // bond_option_mode_set, BOND_DEFAULT_MIIMON
	}
	return out, nil
}

func (s bonds) AddBond(ctx context.Context, b nic.BondSpec) error {
	return s.set(ctx, Op{Verb: AddBond, Arg: string(b.Mode), Object: cmp.Or(b.Name, `""`)}, func() (func(), error) {
		made, err := bondOf(b)
		switch {
		case err != nil:
			return nil, err
		case s.taken(hostNS, b.Name):
			return nil, refuse(syscall.EEXIST, "")
		}
		made.Ours = !s.stranger
		return func() { s.addBond(b.Name, made) }, nil
	}, nil)
}

func (s *Sim) addBond(name string, b *bond) *link {
	ns := s.netns(hostNS)
	ns.Last++
	l := &link{
		Ifindex: ns.Last, Name: name, Role: bonded, PF: -1, VF: -1, SF: -1, Kind: "bond", MAC: s.randomMAC(), MTU: 1500,
		Up: true, Bond: b,
	}
	s.st.Links = append(s.st.Links, l)
	return l
}

func (s bonds) DelBond(ctx context.Context, name string) error {
	return s.set(ctx, Op{Verb: DelBond, Object: name}, func() (func(), error) {
		for _, l := range s.st.Links {
			switch {
			case l.Netns != hostNS || l.Name != name:
				continue
			case l.Role != bonded || !l.Bond.Ours:
				return nil, &refusal{err: host.ErrNotSupported, ext: "it was made by somebody else"}
			case len(s.members(l)) > 0:
				return nil, &refusal{errno: syscall.EBUSY, ext: "it has members"}
			}
			return func() { s.drop(func(o *link) bool { return o == l }) }, nil
		}
		return nil, refuse(syscall.ENODEV, "")
	}, nil)
}

// pair finds a bond and an interface of the host's namespace.
func (s *Sim) pair(b, m int) (master, member *link, err error) {
	master, member = s.linkAt(hostNS, b), s.linkAt(hostNS, m)
	switch {
	case master == nil || member == nil:
		return nil, nil, refuse(syscall.ENODEV, "")
	case master.Role != bonded:
		return nil, nil, refuse(syscall.EOPNOTSUPP, "") // no ndo_add_slave
	}
	return master, member, nil
}

func (s bonds) op(verb Verb, b, m int) Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := &links{s: s.hand, ns: hostNS}
	master, _ := host.object(b)
	member, _ := host.object(m)
	return Op{Verb: verb, Arg: member, Object: master}
}

func (s bonds) Enslave(ctx context.Context, b, m int) error {
	return s.set(ctx, s.op(Enslave, b, m), func() (func(), error) {
		master, member, err := s.pair(b, m)
		switch {
		case err != nil:
			return nil, err
		case member.Master == b:
			return nil, nil
		case member.Master != 0:
			return nil, refuse(syscall.EBUSY, fmt.Sprintf("%s is in %s", member.Name, s.masterOf(member).Name))
		case member.Role == bonded, member.Role == loopback:
			return nil, refuse(syscall.EINVAL, "Device type cannot be enslaved")
		}
		return func() { s.enslave(master, member) }, nil
	}, nil)
}

// enslave is bond_enslave, of an interface that is set down for it: it gets the
// bond's address and MTU and is opened; the first one gives the bond its address.
func (s *Sim) enslave(b, l *link) {
	l.down()
	l.OwnMAC, l.OwnMTU = l.MAC, l.MTU
	if b.Bond.Drawn && len(s.members(b)) == 0 && !l.MAC.IsZero() {
		b.MAC, b.Bond.Drawn = l.MAC, false
	}
	if !l.MAC.IsZero() {
		l.MAC = b.MAC
	}
	l.MTU = b.MTU
	l.Master, l.Up = b.Ifindex, true
}

func (s bonds) Release(ctx context.Context, b, m int) error {
	return s.set(ctx, s.op(Release, b, m), func() (func(), error) {
		master, member, err := s.pair(b, m)
		switch {
		case err != nil:
			return nil, err
		case member.Master != b:
			return nil, nil
		}
		return func() {
			up := member.Up
			s.release(master, member)
			member.Up = up
		}, nil
	}, nil)
}

// release is __bond_release_one: the interface is closed, and has its own address and
// MTU again.
func (s *Sim) release(b, l *link) {
	l.down()
	l.MAC, l.MTU, l.Master = l.OwnMAC, l.OwnMTU, 0
	l.OwnMAC, l.OwnMTU = nic.MAC{}, 0
	if b.Bond.Active == l.Ifindex {
		b.Bond.Active = 0
	}
}

// work is what the kernel does by itself after a change, or in time: bonds choose
// their active member, and drivers take bonds into hardware or let go of them.
func (s *Sim) work() {
	if len(s.st.LAGs) == 0 && !slices.ContainsFunc(s.st.Links, func(l *link) bool { return l.Role == bonded }) {
		return
	}
	for _, b := range s.st.Links {
		if b.Role == bonded && b.Bond.Mode == nic.ActiveBackup {
			s.chooseActive(b)
		}
	}
	for f, p := range s.st.PFs {
		if p.Port == 0 && s.profile(f).lag {
			s.aggregate(f)
		}
	}
}

// chooseActive keeps the active member while it has carrier, else takes the first
// that has (bond_find_best_slave).
func (s *Sim) chooseActive(b *link) {
	next := 0
	for _, l := range s.members(b) {
		switch {
		case !s.wired(l):
		case l.Ifindex == b.Bond.Active:
			return
		case next == 0:
			next = l.Ifindex
		}
	}
	b.Bond.Active = next
}

func (s *Sim) lagOf(card int) *lag {
	for _, l := range s.st.LAGs {
		if l.Card == card {
			return l
		}
	}
	return nil
}

// aggregate is mlx5_do_bond for the card whose port 0 is PF f, some time after its
// ports, modes or VFs have changed.
func (s *Sim) aggregate(f int) {
	card := s.st.PFs[f].Card
	l, wanted, now := s.lagOf(card), s.unfit(f) == "", s.clock.Now()
	switch {
	case !wanted:
		s.endLAG(card)
		return
	case l == nil:
		l = &lag{Card: card, Due: now.Add(s.st.LAGWait)}
		s.st.LAGs = append(s.st.LAGs, l)
	}
	if l.Active || l.Failed || now.Before(l.Due) {
		return
	}
	l.Due = time.Time{}
	// mlx5_activate_lag: "Make sure all VFs are unbound prior to VF LAG activation".
	never := s.st.LAGWait < 0 || s.fault(Op{Verb: Aggregate, Object: s.st.PFs[f].Address}) != nil
	if never || s.bound(f) || s.bound(f+1) {
		l.Failed = true
		return
	}
	s.startLAG(l, f)
}

// retryLAG: a change of a port's link makes the driver look at the bond again
// (mlx5_handle_changelowerstate_event).
func (s *Sim) retryLAG(f int) {
	if l := s.lagOf(s.st.PFs[f].Card); l != nil && l.Failed {
		l.Failed = false
	}
}

func (s *Sim) bound(f int) bool {
	return slices.ContainsFunc(s.st.PFs[f].VFs, func(v *vf) bool { return v.Driver != "" })
}

// startLAG puts one RDMA device in the place of both PFs'
// (drivers/infiniband/hw/mlx5/main.c, mlx5_ib_stage_ib_reg_init).
func (s *Sim) startLAG(l *lag, f int) {
	l.Active = true
	s.dropRDMA(pfID(f))
	s.dropRDMA(pfID(f + 1))
	s.registerRDMA("mlx5_bond_", &rdmaDevice{PF: f, VF: -1, SF: -1, LAG: true})
}

// endLAG lets go of a card's bond, in hardware or on the way there.
func (s *Sim) endLAG(card int) {
	l := s.lagOf(card)
	if l == nil {
		return
	}
	s.st.LAGs = slices.DeleteFunc(s.st.LAGs, func(o *lag) bool { return o == l })
	if !l.Active {
		return
	}
	s.st.RDMA = slices.DeleteFunc(s.st.RDMA, func(d *rdmaDevice) bool { return d.LAG && s.st.PFs[d.PF].Card == card })
	for f, p := range s.st.PFs {
		if p.Card == card && s.driven(f) {
			s.addRDMA(pfID(f))
		}
	}
}

// unfit is mlx5_lag_check_prereq and what mlx5_handle_changeupper_event wants of a
// bond: exactly the ports of the card, of which there are two, both in one mode and
// with the same RoCE; VFs in switchdev mode only; a mode of the bond that hardware has.
// It says what is amiss with the card whose port 0 is PF f; "" nothing.
func (s *Sim) unfit(f int) string {
	a := s.st.PFs[f]
	if a.Ports != 2 || a.InfiniBand || f+1 >= len(s.st.PFs) || s.st.PFs[f+1].Card != a.Card {
		return "the card has not two Ethernet ports"
	}
	b := s.st.PFs[f+1]
	switch {
	case !s.driven(f) || !s.driven(f+1):
		return "a port has no driver"
	case a.Mode != b.Mode:
		return fmt.Sprintf("one port is in %s mode, the other in %s mode", a.Mode, b.Mode)
	case lookUp(a.Set, nic.RoCE, "on") != lookUp(b.Set, nic.RoCE, "on"):
		return "one port has RoCE, the other not"
	case a.Mode == nic.Legacy && len(a.VFs)+len(b.VFs) > 0:
		return "there are VFs in legacy mode"
	}
	return s.unfitBond(f)
}

func (s *Sim) unfitBond(f int) string {
	one, other := s.masterOfPF(f), s.masterOfPF(f+1)
	if one == nil || one != other {
		return "the ports are not in one bond"
	}
	for _, l := range s.st.Links {
		if l.Netns == hostNS && l.Master == one.Ifindex && (l.Role != uplink || l.PF != f && l.PF != f+1) {
			return "the bond has another member, " + l.Name
		}
	}
	if !slices.Contains([]nic.BondMode{nic.ActiveBackup, nic.BalanceXOR, nic.IEEE8023AD}, one.Bond.Mode) {
		return "hardware has no mode " + string(one.Bond.Mode)
	}
	return ""
}

// masterOfPF is the bond that a PF's netdev is in; nil none.
func (s *Sim) masterOfPF(f int) *link {
	for _, l := range s.st.Links {
		if l.Role == uplink && l.PF == f && l.Netns == hostNS && s.there(l) {
			return s.masterOf(l)
		}
	}
	return nil
}

func (s bonds) LAG(ctx context.Context) (map[string]nic.LAG, error) {
	out := map[string]nic.LAG{}
	err := s.read(ctx, "read LAG", func() error {
		for f, p := range s.st.PFs {
			if !s.profile(f).lag || !s.driven(f) {
				continue
			}
			out[p.Address] = nic.LAGInactive
			if l := s.lagOf(p.Card); l != nil && l.Active {
				out[p.Address] = nic.LAGActive
			}
		}
		return nil
	})
	return out, err
}

// await looks again and again until there is nothing amiss any more; it gives up
// after a bound, with what is amiss then as the reason.
func (s bonds) await(ctx context.Context, op Op, cause error, amiss func() string) error {
	const every, bound = 10 * time.Millisecond, 5 * time.Second
	s.mu.Lock()
	clock := s.clock
	end := clock.Now().Add(bound + max(0, s.st.LAGWait))
	s.mu.Unlock()
	for {
		what := ""
		if err := s.read(ctx, string(op.Verb), func() error { what = amiss(); return nil }); err != nil {
			return op.fail(err)
		}
		switch {
		case what == "":
			return nil
		case !clock.Now().Before(end):
			return op.fail(&refusal{err: cause, ext: what})
		}
		if err := clock.Wait(ctx, every); err != nil {
			return op.fail(err)
		}
	}
}

func (s bonds) AwaitBond(ctx context.Context, name string, members []int) error {
	return s.await(ctx, Op{Verb: "wait for bond", Object: name}, fs.ErrNotExist, func() string {
		i := slices.IndexFunc(s.st.Links, func(l *link) bool { return l.Netns == hostNS && l.Name == name && l.Role == bonded })
		if i < 0 {
			return "there is no bond of that name"
		}
		for _, m := range members {
			if l := s.linkAt(hostNS, m); l == nil || l.Master != s.st.Links[i].Ifindex {
				return fmt.Sprintf("interface %d is not in it", m)
			}
		}
		return ""
	})
}

func (s bonds) AwaitLAG(ctx context.Context, pfs []string) error {
	return s.await(ctx, Op{Verb: "wait for LAG", Object: strings.Join(pfs, " ")}, host.ErrNotActive, func() string {
		for _, address := range pfs {
			f, v, ok := s.find(address)
			if !ok || v >= 0 {
				return address + " is no PF"
			}
			if why := s.whyNoLAG(f); why != "" {
				return address + ": " + why
			}
		}
		return ""
	})
}

// whyNoLAG says why hardware does not aggregate PF f; "" if it does. What the driver
// only writes into its log is told too.
func (s *Sim) whyNoLAG(f int) string {
	first := f - s.st.PFs[f].Port
	switch l := s.lagOf(s.st.PFs[f].Card); {
	case l != nil && l.Active:
		return ""
	case !s.profile(f).lag:
		return "its driver tells nothing"
	case s.unfit(first) != "":
		return s.unfit(first)
	case l != nil && l.Failed && (s.bound(first) || s.bound(first+1)):
		return "VFs were bound when it was to begin"
	}
	return "the driver has not done it"
}

// startBond makes a bond that the machine is found with.
func (s *Sim) startBond(b Bond) error {
	b.Spec.Mode = cmp.Or(b.Spec.Mode, nic.ActiveBackup)
	made, err := bondOf(b.Spec)
	switch {
	case err != nil:
		return fmt.Errorf("bond %q: %w", b.Spec.Name, err)
	case s.taken(hostNS, b.Spec.Name):
		return fmt.Errorf("bond %q: the name is taken", b.Spec.Name)
	}
	made.Ours = b.Ours
	l := s.addBond(b.Spec.Name, made)
	for _, p := range b.Ports {
		m := s.netdevOf(p)
		if m == nil || m.Master != 0 {
			return fmt.Errorf("bond %q: no netdev of port %d of card %d, or one that is in a bond", b.Spec.Name, p.Port, p.Card)
		}
		s.enslave(l, m)
	}
	return nil
}

// netdevOf is the netdev of a port.
func (s *Sim) netdevOf(p Port) *link {
	for _, l := range s.st.Links {
		if l.Role == uplink && s.st.PFs[l.PF].Card == p.Card && s.st.PFs[l.PF].Port == p.Port {
			return l
		}
	}
	return nil
}

// startLAGs: what could be aggregated had been, before VFs were bound.
func (s *Sim) startLAGs() {
	for f, p := range s.st.PFs {
		if p.Port == 0 && s.profile(f).lag && s.st.LAGWait >= 0 && s.unfit(f) == "" {
			l := &lag{Card: p.Card}
			s.st.LAGs = append(s.st.LAGs, l)
			s.startLAG(l, f)
		}
	}
	s.work()
}
