package sim

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// links is one namespace as its interfaces.
type links struct {
	s      hand
	ns     int
	opened bool // through Netns.Open: to be closed
	closed bool // guarded by s.mu
}

func (n *links) Links(ctx context.Context) ([]host.Link, error) {
	var out []host.Link
	err := n.s.read(ctx, "list interfaces", func() error {
		if n.closed {
			return Op{Verb: "list interfaces", Object: "a closed namespace"}.fail(fs.ErrClosed)
		}
		out = n.s.listLinks(n.ns)
		return nil
	})
	return out, err
}

func (n *links) Link(ctx context.Context, ifindex int) (host.Link, error) {
	var out host.Link
	err := n.one(ctx, "read link", ifindex, func(l *link) {
		for _, h := range n.s.listLinks(n.ns) {
			if h.Ifindex == ifindex {
				out = h
			}
		}
	})
	return out, err
}

// one runs a query of one interface.
func (n *links) one(ctx context.Context, verb Verb, ifindex int, f func(*link)) error {
	return n.s.read(ctx, string(verb), func() error {
		object, path := n.object(ifindex)
		op := Op{Verb: verb, Object: object, Netns: path}
		if n.closed {
			return op.fail(fs.ErrClosed)
		}
		for _, l := range n.s.st.Links {
			if l.Netns == n.ns && l.Ifindex == ifindex && n.s.there(l) {
				f(l)
				return nil
			}
		}
		return op.fail(syscall.ENODEV)
	})
}

func (s *Sim) listLinks(ns int) []host.Link {
	repUp, pfUp, bondUp := map[functionID]bool{}, map[int]bool{}, map[int]bool{}
	for _, l := range s.st.Links {
		switch l.Role {
		case representor, sfRep:
			repUp[l.id()] = l.Up
		case uplink:
			pfUp[l.PF] = s.wired(l)
		}
		if l.Master != 0 && l.Netns == ns && s.wired(l) {
			bondUp[l.Master] = true
		}
	}
	var out []host.Link
	for _, l := range s.st.Links {
		if l.Netns != ns || !s.there(l) {
			continue
		}
		h := host.Link{
			Netdev:   nic.Netdev{Name: l.Name, Ifindex: l.Ifindex, MAC: l.MAC, MTU: l.MTU, Up: l.Up, Carrier: l.Up},
			PortName: s.portName(l), Kind: l.Kind, Master: l.Master, AltNames: slices.Clone(l.AltNames), Promisc: l.Promisc,
		}
		if l.Role == bonded {
			h.Carrier = l.Up && bondUp[l.Ifindex]
		}
		if l.PF >= 0 {
			p := s.st.PFs[l.PF]
			h.Parent, h.InfiniBand = p.Address, p.InfiniBand
			switch l.Role {
			case uplink:
				h.SwitchID, h.Carrier = p.SwitchID, pfUp[l.PF]
				if len(p.VFs) > 0 && !p.InfiniBand {
					h.VFMACs = make(map[int]nic.MAC, len(p.VFs))
					for i, v := range p.VFs {
						h.VFMACs[i] = v.MAC
					}
				}
			case representor, sfRep:
				h.SwitchID = p.SwitchID
			case sfNetdev:
				h.Parent = s.sfDevice(p.sf(l.SF))
				h.Carrier = l.Up && repUp[l.id()]
			case vfNetdev:
				h.Parent = s.vfAddress(l.PF, l.VF)
				// In switchdev mode the vport's link is the representor's
				// admin state (mlx5e_rep_open), else it follows the wire.
				if p.Mode == nic.Switchdev {
					h.Carrier = l.Up && repUp[l.id()]
				} else {
					h.Carrier = l.Up && pfUp[l.PF]
				}
			}
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b host.Link) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	return out
}

// wired says whether a netdev is up and has a wire, or needs none.
func (s *Sim) wired(l *link) bool {
	return l.Up && !(l.Role == uplink && s.st.PFs[l.PF].NoCarrier)
}

// set is hand.set for one interface of this namespace.
func (n *links) set(ctx context.Context, verb Verb, arg string, ifindex int, plan func(*link) (func(), error)) error {
	s := n.s
	op := Op{Verb: verb, Arg: arg}
	s.mu.Lock()
	op.Object, op.Netns = n.object(ifindex)
	s.mu.Unlock()
	return s.set(ctx, op, func() (func(), error) {
		if n.closed {
			return nil, fs.ErrClosed
		}
		for _, l := range s.st.Links {
			if l.Netns == n.ns && l.Ifindex == ifindex && s.there(l) {
				return plan(l)
			}
		}
		return nil, refuse(syscall.ENODEV, "")
	}, nil)
}

// object names an interface for messages.
func (n *links) object(ifindex int) (object, path string) {
	for _, ns := range n.s.st.Netns {
		if ns.ID == n.ns {
			path = ns.Path
		}
	}
	for _, l := range n.s.st.Links {
		if l.Netns == n.ns && l.Ifindex == ifindex && n.s.there(l) {
			return l.Name, path
		}
	}
	return fmt.Sprintf("interface %d", ifindex), path
}

func (n *links) SetMTU(ctx context.Context, ifindex, mtu int) error {
	return n.set(ctx, SetMTU, strconv.Itoa(mtu), ifindex, func(l *link) (func(), error) { return n.s.changeMTU(l, mtu) })
}

func (s *Sim) changeMTU(l *link, mtu int) (func(), error) {
	low, high := s.rangeOfMTU(l)
	switch { // dev_validate_mtu
	case mtu < low:
		return nil, refuse(syscall.EINVAL, "mtu less than device minimum")
	case mtu > high:
		return nil, refuse(syscall.EINVAL, "mtu greater than device maximum")
	case l.MTU == mtu:
		return nil, nil
	}
	return func() {
		l.MTU = mtu
		if l.Role == bonded { // bond_change_mtu
			for _, m := range s.members(l) {
				m.MTU = mtu
			}
		}
	}, nil
}

const ipoibMTU = 4092 // ipoib.h, IPOIB_UD_MTU of a 4k path

func (s *Sim) rangeOfMTU(l *link) (low, high int) {
	switch {
	case l.PF < 0:
		return 0, 65536
	case s.st.PFs[l.PF].InfiniBand:
		return minMTU, ipoibMTU
	}
	return minMTU, s.profile(l.PF).maxMTU
}

func (n *links) SetMAC(ctx context.Context, ifindex int, mac nic.MAC) error {
	return n.set(ctx, SetMAC, mac.String(), ifindex, func(l *link) (func(), error) {
		switch {
		case l.MAC == mac:
			return nil, nil
		case l.Role == loopback, l.isRep() && !n.s.profile(l.PF).repMAC, l.PF >= 0 && n.s.st.PFs[l.PF].InfiniBand:
			return nil, refuse(syscall.EOPNOTSUPP, "")
		case l.isRep() && l.Up: // eth_prepare_mac_addr_change
			return nil, refuse(syscall.EBUSY, "")
		case !mac.IsUnicast():
			return nil, refuse(syscall.EADDRNOTAVAIL, "")
		}
		return func() { l.MAC = mac }, nil
	})
}

func (n *links) SetUp(ctx context.Context, ifindex int, up bool) error {
	arg := "down"
	if up {
		arg = "up"
	}
	return n.set(ctx, SetUp, arg, ifindex, func(l *link) (func(), error) {
		return n.s.changeUp(l, up)
	})
}

func (s *Sim) changeUp(l *link, up bool) (func(), error) {
	if l.Up == up {
		return nil, nil
	}
	return func() {
		if l.Role == uplink {
			s.retryLAG(l.PF)
		}
		l.Up = up
		if !up {
			l.down()
		}
	}, nil
}

func (l *link) isRep() bool { return l.Role == representor || l.Role == sfRep }

// down is what an interface loses with its admin state: its routes, and its IPv6
// addresses (addrconf_ifdown, keep_addr_on_down being 0).
func (l *link) down() {
	l.Up, l.Routes = false, nil
	l.Addrs = slices.DeleteFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
}

func (n *links) SetName(ctx context.Context, ifindex int, name string) error {
	return n.set(ctx, SetName, name, ifindex, func(l *link) (func(), error) {
		switch {
		case !validName(name):
			return nil, refuse(syscall.EINVAL, "")
		case l.Name == name:
			return nil, nil
		case n.s.taken(n.ns, name):
			return nil, refuse(syscall.EEXIST, "")
		}
		return func() { l.Name = name }, nil
	})
}

func (n *links) SetAltName(ctx context.Context, ifindex int, name string, on bool) error {
	return n.set(ctx, SetAltName, name, ifindex, func(l *link) (func(), error) {
		switch has := slices.Contains(l.AltNames, name); {
		case has == on:
			return nil, nil
		case on && n.s.taken(n.ns, name):
			return nil, refuse(syscall.EEXIST, "")
		case on:
			return func() { l.AltNames = append(l.AltNames, name) }, nil
		}
		return func() { l.AltNames = slices.DeleteFunc(l.AltNames, func(a string) bool { return a == name }) }, nil
	})
}

func (n *links) SetPromisc(ctx context.Context, ifindex int, on bool) error {
	return n.set(ctx, SetPromisc, fmt.Sprint(on), ifindex, func(l *link) (func(), error) {
		if l.Promisc == on {
			return nil, nil
		}
		return func() { l.Promisc = on }, nil
	})
}

// validName is dev_valid_name, less the patterns with % that the kernel would
// replace by a number.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/:% \t\n\v\f\r")
}

func (n *links) SetVFMAC(ctx context.Context, ifindex, v int, mac nic.MAC) error {
	return n.set(ctx, SetVFMAC, fmt.Sprintf("%d %s", v, mac), ifindex, func(l *link) (func(), error) {
		switch {
		case l.Role != uplink, n.s.st.PFs[l.PF].InfiniBand:
			return nil, refuse(syscall.EOPNOTSUPP, "") // no ndo_set_vf_mac
		case v < 0 || v >= len(n.s.st.PFs[l.PF].VFs):
			return nil, &refusal{errno: syscall.EINVAL, err: fs.ErrNotExist}
		case mac[0]&1 != 0:
			return nil, refuse(syscall.EINVAL, "")
		}
		f := n.s.st.PFs[l.PF].VFs[v]
		if f.MAC == mac {
			return nil, nil
		}
		return func() { f.MAC = mac }, nil
	})
}

func (n *links) Move(ctx context.Context, ifindex int, path string) error {
	s := n.s
	return n.set(ctx, Move, cmp.Or(path, "of the host"), ifindex, func(l *link) (func(), error) {
		to, err := s.netnsAt(path)
		switch {
		case err != nil:
			return nil, err
		case to.ID == n.ns:
			return nil, nil
		}
		if s.pinned(l) {
			return nil, s.immutable()
		}
		if s.taken(to.ID, l.Name) {
			return nil, refuse(syscall.EEXIST, "An interface with the same name exists in the target netns")
		}
		for _, a := range l.AltNames {
			if s.taken(to.ID, a) {
				return nil, refuse(syscall.EEXIST, fmt.Sprintf("An interface with the altname %s exists in the target netns", a))
			}
		}
		return func() { s.move(l, to) }, nil
	})
}

// immutable is how the kernel refuses to move what is pinned: with words from Linux
// 6.15 on.
func (s *Sim) immutable() error {
	r := &refusal{errno: syscall.EINVAL, err: host.ErrNotSupported}
	if s.st.Reps != RepsUntold {
		r.ext = "The interface netns is immutable"
	}
	return r
}

func (n *links) Pinned(ctx context.Context, ifindex int) error {
	var refused error
	err := n.one(ctx, "look whether it may move", ifindex, func(l *link) {
		if n.s.pinned(l) && n.s.st.Reps != RepsUntold {
			object, path := n.object(ifindex)
			refused = Op{Verb: Move, Object: object, Netns: path}.fail(n.s.immutable())
		}
	})
	if err != nil {
		return err
	}
	return refused
}

// pinned says whether an interface may not leave its namespace: netns_immutable.
func (s *Sim) pinned(l *link) bool {
	return l.Role == loopback || l.Role == bonded || l.isRep() && s.st.Reps != RepsFree ||
		l.Role == uplink && s.st.PFs[l.PF].Mode == nic.Switchdev
}

// move is __dev_change_net_namespace: the interface is closed, loses addresses and
// routes, and keeps its ifindex if it is free there.
func (s *Sim) move(l *link, to *netns) {
	if b := s.masterOf(l); b != nil {
		s.release(b, l)
	}
	l.down()
	l.Addrs, l.Sysctls = nil, nil
	for _, o := range s.st.Links {
		if o.Netns == to.ID && o.Ifindex == l.Ifindex {
			to.Last++
			l.Ifindex = to.Last
			break
		}
	}
	to.Last = max(to.Last, l.Ifindex)
	l.Netns = to.ID
}

func (n *links) Addresses(ctx context.Context, ifindex int) ([]netip.Prefix, error) {
	var out []netip.Prefix
	err := n.one(ctx, "list addresses", ifindex, func(l *link) { out = slices.Clone(l.Addrs) })
	return out, err
}

func (n *links) AddAddress(ctx context.Context, ifindex int, a netip.Prefix) error {
	return n.set(ctx, AddAddress, a.String(), ifindex, func(l *link) (func(), error) {
		switch {
		case !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().Is4In6():
			return nil, refuse(syscall.EINVAL, "")
		case slices.Contains(l.Addrs, a):
			return nil, nil
		}
		return func() { l.Addrs = append(l.Addrs, a) }, nil
	})
}

func (n *links) Routes(ctx context.Context, ifindex int) ([]host.Route, error) {
	var out []host.Route
	err := n.one(ctx, "list routes", ifindex, func(l *link) { out = slices.Clone(l.Routes) })
	return out, err
}

func (n *links) AddRoute(ctx context.Context, ifindex int, r host.Route) error {
	r = asKept(r)
	arg := r.Dst.String()
	if r.Gateway.IsValid() {
		arg += " via " + r.Gateway.String()
	}
	return n.set(ctx, AddRoute, arg, ifindex, func(l *link) (func(), error) {
		reaches := func(a netip.Prefix) bool { return a.Contains(r.Gateway) }
		switch {
		case !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || r.Dst.Addr().Is4In6():
			return nil, refuse(syscall.EINVAL, "")
		case r.Gateway.IsValid() && r.Gateway.Is4() != r.Dst.Addr().Is4():
			return nil, refuse(syscall.EINVAL, "")
		case r.MTU < 0 || r.AdvMSS < 0 || r.Priority < 0 || r.Table < 0:
			return nil, refuse(syscall.EINVAL, "")
		case slices.Contains(l.Routes, r):
			return nil, nil
		case !l.Up:
			return nil, refuse(syscall.ENETDOWN, "Device for nexthop is not up")
		case r.Gateway.IsValid() && !r.Gateway.IsLinkLocalUnicast() && !slices.ContainsFunc(l.Addrs, reaches):
			return nil, refuse(syscall.ENETUNREACH, "Nexthop has invalid gateway")
		case n.s.routed(n.ns, r):
			return nil, refuse(syscall.EEXIST, "")
		}
		return func() { l.Routes = append(l.Routes, r) }, nil
	})
}

// asKept puts the kernel's picks where they are spelled out.
func asKept(r host.Route) host.Route {
	const mainTable, ip6Priority = 254, 1024 // RT_TABLE_MAIN, IP6_RT_PRIO_USER
	if r.Table == mainTable {
		r.Table = 0
	}
	if r.Dst.Addr().Is6() && r.Priority == ip6Priority {
		r.Priority = 0
	}
	return r
}

// routed says whether the namespace has a route that r would stand beside: one
// destination, table and priority name one route (fib_table_insert, NLM_F_EXCL).
func (s *Sim) routed(ns int, r host.Route) bool {
	for _, l := range s.st.Links {
		if l.Netns == ns && slices.ContainsFunc(l.Routes, func(o host.Route) bool {
			return o.Dst == r.Dst && o.Table == r.Table && o.Priority == r.Priority
		}) {
			return true
		}
	}
	return false
}

func (n *links) Announce(ctx context.Context, ifindex int, a netip.Addr) error {
	return n.set(ctx, Announce, a.String(), ifindex, func(l *link) (func(), error) {
		switch {
		case !a.IsValid():
			return nil, refuse(syscall.EINVAL, "")
		case !l.Up:
			return nil, refuse(syscall.ENETDOWN, "")
		}
		return func() {}, nil
	})
}
