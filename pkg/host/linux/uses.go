package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
)

// Uses are two lists of the whole namespace. The kernel cannot be asked for default
// routes only.
func (l *links) Uses(ctx context.Context) ([]host.Use, error) {
	const op, what = "list", "addresses and default routes"
	if err := l.begin(ctx, op, what); err != nil {
		return nil, err
	}
	messages, err := l.conn.Dump(ctx, unix.RTM_GETADDR, make(netlink.Bytes, unix.SizeofIfAddrmsg))
	if err != nil {
		return nil, fail(op, what, err)
	}
	var out []host.Use
	for _, m := range messages {
		if at, p := parseAddress(m); p.IsValid() && !isFoundByItself(p.Addr()) {
			out = append(out, host.Use{Ifindex: at, What: "address " + p.String()})
		}
	}
	through := map[int]bool{}
	for _, f := range []byte{unix.AF_INET, unix.AF_INET6} {
		header := make(netlink.Bytes, unix.SizeofRtMsg)
		header[0] = f
		messages, err := l.conn.Dump(ctx, unix.RTM_GETROUTE, header)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fail(op, what, err)
		}
		for _, m := range messages {
			for _, ifindex := range defaultThrough(m) {
				if !through[ifindex] {
					through[ifindex] = true
					out = append(out, host.Use{Ifindex: ifindex, What: "the default route"})
				}
			}
		}
	}
	return out, nil
}

// defaultThrough gives the interfaces of an RTM_NEWROUTE message about a default
// route, whoever made it; none for another route.
func defaultThrough(m []byte) (out []int) {
	// struct rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags (4)
	if len(m) < unix.SizeofRtMsg || m[1] != 0 || m[7] != unix.RTN_UNICAST || binary.NativeEndian.Uint32(m[8:])&unix.RTM_F_CLONED != 0 {
		return nil
	}
	for kind, v := range netlink.Attrs(m[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_OIF:
			if n, ok := netlink.Uint(v); ok {
				out = append(out, int(n))
			}
		case unix.RTA_MULTIPATH:
			// struct rtnexthop: length (2), flags, hops, ifindex (4); then attributes
			for len(v) >= unix.SizeofRtNexthop {
				n := int(binary.NativeEndian.Uint16(v))
				if n < unix.SizeofRtNexthop || n > len(v) {
					break
				}
				out = append(out, int(int32(binary.NativeEndian.Uint32(v[4:]))))
				v = v[min((n+unix.RTNH_ALIGNTO-1)&^(unix.RTNH_ALIGNTO-1), len(v)):]
			}
		}
	}
	return out
}

func (l *links) RouteTo(ctx context.Context, a netip.Addr) (int, error) {
	const op = "look up the route"
	if err := l.begin(ctx, op, a.String()); err != nil {
		return 0, err
	}
	if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
		return 0, refuse(op, a.String(), unix.EINVAL, fmt.Errorf("%s is no address to send to: %w", a, unix.EINVAL))
	}
	header := make(netlink.Bytes, unix.SizeofRtMsg)
	header[0], header[1] = family(a), byte(a.BitLen())
	out, err := l.conn.Do(unix.RTM_GETROUTE, 0, header, netlink.Attr(unix.RTA_DST, a.AsSlice()))
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EACCES):
		return 0, refuse(op, a.String(), 0, fmt.Errorf("no route leads there: %w", fs.ErrNotExist))
	case err != nil:
		return 0, fail(op, a.String(), err)
	}
	for _, m := range out {
		if len(m) < unix.SizeofRtMsg {
			continue
		}
		for kind, v := range netlink.Attrs(m[unix.SizeofRtMsg:]) {
			if n, ok := netlink.Uint(v); ok && kind == unix.RTA_OIF {
				return int(n), nil
			}
		}
	}
	return 0, refuse(op, a.String(), 0, fmt.Errorf("the route there has no interface: %w", fs.ErrNotExist))
}
