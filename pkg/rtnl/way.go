package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// Way is how the host sends to an address.
type Way struct {
	Ifindex   int        // of the interface that the route leaves by
	Next      netip.Addr // the gateway, or the address itself on a link
	Neighbour string     // state of Next's entry on that interface (NUD_*): reachable, stale, ...; "" none
}

// neighbours are the states of a neighbour entry (include/uapi/linux/neighbour.h).
var neighbours = map[uint16]string{
	0x01: "incomplete", 0x02: "reachable", 0x04: "stale", 0x08: "delay", 0x10: "probe", 0x20: "failed", 0x40: "noarp", 0x80: "permanent",
}

// WayTo looks up the route to an address, and the next hop's neighbour entry, and
// changes neither. No route is fs.ErrNotExist.
func (c Conn) WayTo(ctx context.Context, to netip.Addr) (Way, error) {
	family := byte(unix.AF_INET6)
	if to.Is4() {
		family = unix.AF_INET
	}
	header := make(netlink.Bytes, unix.SizeofRtMsg)
	header[0], header[1] = family, byte(to.BitLen())
	out, err := c.nl.Do(unix.RTM_GETROUTE, 0, header, netlink.Attr(unix.RTA_DST, to.AsSlice()))
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EACCES) {
		return Way{}, fmt.Errorf("route to %s: %w: %w", to, fs.ErrNotExist, err)
	}
	if err != nil {
		return Way{}, fmt.Errorf("route to %s: %w", to, err)
	}
	w := Way{Next: to}
	for _, m := range out {
		if len(m) < unix.SizeofRtMsg {
			continue
		}
		for kind, v := range netlink.Attrs(m[unix.SizeofRtMsg:]) {
			switch kind {
			case unix.RTA_OIF:
				w.Ifindex = number(v)
			case unix.RTA_GATEWAY:
				if a, ok := netip.AddrFromSlice(v); ok {
					w.Next = a
				}
			}
		}
	}
	w.Neighbour, err = c.neighbour(ctx, family, w)
	return w, err
}

// neighbour reads the state of an entry; "" when there is none.
func (c Conn) neighbour(ctx context.Context, family byte, w Way) (string, error) {
	// struct ndmsg: family, 3 bytes of padding, ifindex (4), state (2), flags, type
	const size = 12
	header := make(netlink.Bytes, size)
	header[0] = family
	list, err := c.nl.Dump(ctx, unix.RTM_GETNEIGH, header)
	if err != nil {
		return "", fmt.Errorf("list neighbours: %w", err)
	}
	for _, m := range list {
		if len(m) < size || int(int32(binary.NativeEndian.Uint32(m[4:]))) != w.Ifindex {
			continue
		}
		for kind, v := range netlink.Attrs(m[size:]) {
			if a, ok := netip.AddrFromSlice(v); ok && kind == unix.NDA_DST && a == w.Next {
				return neighbours[binary.NativeEndian.Uint16(m[8:])], nil
			}
		}
	}
	return "", nil
}
