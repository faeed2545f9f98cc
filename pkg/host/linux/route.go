package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
)

func (l *links) Routes(ctx context.Context, ifindex int) ([]host.Route, error) {
	const op = "list routes"
	k, err := l.get(ctx, op, ifindex)
	if err != nil {
		return nil, err
	}
	out, err := l.routes(ctx, ifindex)
	return out, fail(op, l.name(k.Name, ifindex), err)
}

func (l *links) routes(ctx context.Context, ifindex int) ([]host.Route, error) {
	var out []host.Route
	for _, f := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := make(netlink.Bytes, unix.SizeofRtMsg)
		header[0] = f
		messages, err := l.conn.Dump(ctx, unix.RTM_GETROUTE, header, netlink.Attr(unix.RTA_OIF, nl.Uint32Attr(uint32(ifindex))))
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if r, at, ok := parseRoute(m); ok && at == ifindex {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// What the kernel picks when a route does not say.
const (
	mainTable   = unix.RT_TABLE_MAIN
	ip6Priority = 1024 // IP6_RT_PRIO_USER
)

// parseRoute reads an RTM_NEWROUTE message; ok says that somebody asked for the
// route and that it is unicast through one interface.
func parseRoute(m []byte) (r host.Route, ifindex int, ok bool) {
	if len(m) < unix.SizeofRtMsg {
		return r, 0, false
	}
	// struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags (4)
	bits, table, protocol, kind := int(m[1]), int(m[4]), m[5], m[7]
	if kind != unix.RTN_UNICAST || binary.NativeEndian.Uint32(m[8:])&unix.RTM_F_CLONED != 0 ||
		protocol == unix.RTPROT_KERNEL || protocol == unix.RTPROT_REDIRECT || protocol == unix.RTPROT_RA {
		return r, 0, false
	}
	dst := netip.IPv4Unspecified()
	if m[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for kind, v := range netlink.Attrs(m[unix.SizeofRtMsg:]) {
		n, number := netlink.Uint(v)
		switch kind {
		case unix.RTA_DST:
			if a, ok := netip.AddrFromSlice(v); ok {
				dst = a
			}
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(v)
		case unix.RTA_OIF:
			if number {
				ifindex = int(n)
			}
		case unix.RTA_TABLE:
			if number {
				table = int(n)
			}
		case unix.RTA_PRIORITY:
			if number {
				r.Priority = int(n)
			}
		case unix.RTA_METRICS:
			for kind, v := range netlink.Attrs(v) {
				n, _ := netlink.Uint(v)
				switch kind {
				case unix.RTAX_MTU:
					r.MTU = int(n)
				case unix.RTAX_ADVMSS:
					r.AdvMSS = int(n)
				}
			}
		}
	}
	r.Dst, r.Table = netip.PrefixFrom(dst, bits), table
	return asKept(r), ifindex, r.Dst.IsValid()
}

// asKept puts 0 where the kernel's own pick is spelled out.
func asKept(r host.Route) host.Route {
	if r.Table == mainTable {
		r.Table = 0
	}
	if r.Dst.Addr().Is6() && r.Priority == ip6Priority {
		r.Priority = 0
	}
	return r
}

func (l *links) AddRoute(ctx context.Context, ifindex int, r host.Route) error {
	op := "add route " + r.Dst.String()
	if r.Gateway.IsValid() {
		op += " via " + r.Gateway.String()
	}
	k, err := l.get(ctx, op, ifindex)
	if err != nil {
		return err
	}
	object := l.name(k.Name, ifindex)
	r = asKept(r)
	if bad := badRoute(r); bad != nil {
		return refuse(op, object, unix.EINVAL, fmt.Errorf("%w: %w", bad, unix.EINVAL))
	}
	have, err := l.routes(ctx, ifindex)
	if err != nil {
		return fail(op, object, err)
	}
	if slices.Contains(have, r) {
		return nil
	}
	_, err = l.conn.Do(unix.RTM_NEWROUTE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, routeRequest(ifindex, r)...)
	return fail(op, object, err)
}

func badRoute(r host.Route) error {
	switch {
	case !r.Dst.IsValid() || r.Dst.Addr().Is4In6():
		return errors.New("it has no destination")
	case r.Dst != r.Dst.Masked():
		return fmt.Errorf("the destination has host bits: want %s", r.Dst.Masked())
	case r.Gateway.IsValid() && r.Gateway.Is4() != r.Dst.Addr().Is4():
		return errors.New("destination and gateway are of two families")
	case r.MTU < 0 || r.AdvMSS < 0 || r.Priority < 0 || r.Table < 0:
		return errors.New("a number is negative")
	}
	return nil
}

func routeRequest(ifindex int, r host.Route) []nl.NetlinkRequestData {
	header := make(netlink.Bytes, unix.SizeofRtMsg)
	header[0], header[1] = family(r.Dst.Addr()), byte(r.Dst.Bits())
	header[4], header[5], header[7] = mainTable, unix.RTPROT_STATIC, unix.RTN_UNICAST
	if r.Dst.Addr().Is4() && !r.Gateway.IsValid() {
		header[6] = unix.RT_SCOPE_LINK
	}
	data := []nl.NetlinkRequestData{header, netlink.Attr(unix.RTA_OIF, nl.Uint32Attr(uint32(ifindex)))}
	if r.Dst.Bits() > 0 {
		data = append(data, netlink.Attr(unix.RTA_DST, r.Dst.Addr().AsSlice()))
	}
	if r.Gateway.IsValid() {
		data = append(data, netlink.Attr(unix.RTA_GATEWAY, r.Gateway.AsSlice()))
	}
	if r.Priority > 0 {
		data = append(data, netlink.Attr(unix.RTA_PRIORITY, nl.Uint32Attr(uint32(r.Priority))))
	}
	if r.Table > 0 {
		header[4] = unix.RT_TABLE_UNSPEC
		data = append(data, netlink.Attr(unix.RTA_TABLE, nl.Uint32Attr(uint32(r.Table))))
	}
	var metrics []*nl.RtAttr
	if r.MTU > 0 {
		metrics = append(metrics, netlink.Attr(unix.RTAX_MTU, nl.Uint32Attr(uint32(r.MTU))))
	}
	if r.AdvMSS > 0 {
		metrics = append(metrics, netlink.Attr(unix.RTAX_ADVMSS, nl.Uint32Attr(uint32(r.AdvMSS))))
	}
	if metrics != nil {
		data = append(data, netlink.Nest(unix.RTA_METRICS, metrics...))
	}
	return data
}
