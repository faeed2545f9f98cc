package sim

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"syscall"

	"sluice.dev/sluice/pkg/host"
)

// Uses lists addresses and default routes of the main table.
func (n *links) Uses(ctx context.Context) ([]host.Use, error) {
	var out []host.Use
	err := n.s.read(ctx, "list uses", func() error {
		if n.closed {
			return Op{Verb: "list uses", Object: "a closed namespace"}.fail(fs.ErrClosed)
		}
		for _, l := range n.s.st.Links {
			if l.Netns != n.ns || !n.s.there(l) {
				continue
			}
			for _, a := range l.Addrs {
				if !a.Addr().IsLinkLocalUnicast() {
					out = append(out, host.Use{Ifindex: l.Ifindex, What: "address " + a.String()})
				}
			}
			for _, r := range l.Routes {
				if r.Dst.Bits() == 0 && r.Table == 0 {
					out = append(out, host.Use{Ifindex: l.Ifindex, What: "the default route"})
					break
				}
			}
		}
		return nil
	})
	return out, err
}

// RouteTo is the longest prefix of the main table, and of those the lowest priority.
func (n *links) RouteTo(ctx context.Context, a netip.Addr) (int, error) {
	best, bits, priority := 0, -1, 0
	err := n.s.read(ctx, "look up route", func() error {
		for _, l := range n.s.st.Links {
			if l.Netns != n.ns || !l.Up || !n.s.there(l) {
				continue
			}
			for _, r := range append(connected(l), l.Routes...) {
				if r.Table == 0 && r.Dst.Contains(a) && (r.Dst.Bits() > bits || r.Dst.Bits() == bits && r.Priority < priority) {
					best, bits, priority = l.Ifindex, r.Dst.Bits(), r.Priority
				}
			}
		}
		if best == 0 {
			return Op{Verb: "look up route", Object: a.String()}.fail(&refusal{errno: syscall.ENETUNREACH, err: fs.ErrNotExist})
		}
		return nil
	})
	return best, err
}

// connected are the routes that the kernel adds with addresses.
func connected(l *link) []host.Route {
	out := make([]host.Route, len(l.Addrs))
	for i, a := range l.Addrs {
		out[i] = host.Route{Dst: a.Masked()}
	}
	return out
}

// startUse puts an address, and with it a default route, where the machine is found
// to have one.
func (s *Sim) startUse(u Use) error {
	on := s.netdevOf(u.Port)
	if u.Bond != "" {
		on = nil
		for _, l := range s.st.Links {
			if l.Role == bonded && l.Name == u.Bond {
				on = l
			}
		}
	}
	switch {
	case on == nil:
		return fmt.Errorf("use of port %d of card %d, bond %q: there is no such netdev", u.Port.Port, u.Port.Card, u.Bond)
	case !u.Address.IsValid() || u.Address.Addr().IsMulticast() || u.Address.Addr().IsUnspecified() || u.Address.Addr().Is4In6():
		return fmt.Errorf("use of %s: no address %s for an interface", on.Name, u.Address)
	}
	on.Up = true
	on.Addrs = append(on.Addrs, u.Address)
	if u.Default {
		dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if u.Address.Addr().Is6() {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		on.Routes = append(on.Routes, host.Route{Dst: dst, Gateway: u.Address.Masked().Addr().Next()})
	}
	return nil
}
