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

	"sluice.dev/sluice/pkg/netlink"
)

func (l *links) Addresses(ctx context.Context, ifindex int) ([]netip.Prefix, error) {
	const op = "list addresses"
	k, err := l.get(ctx, op, ifindex)
	if err != nil {
		return nil, err
	}
	out, err := l.addresses(ctx, ifindex)
	return out, fail(op, l.name(k.Name, ifindex), err)
}

// addresses has the kernel list one interface's only (strict lists, Linux 4.20);
// an older one lists all.
func (l *links) addresses(ctx context.Context, ifindex int) ([]netip.Prefix, error) {
	header := make(netlink.Bytes, unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(ifindex))
	messages, err := l.conn.Dump(ctx, unix.RTM_GETADDR, header)
	var out []netip.Prefix
	for _, m := range messages {
		if at, p := parseAddress(m); at == ifindex && p.IsValid() && !isFoundByItself(p.Addr()) {
			out = append(out, p)
		}
	}
	return out, err
}

// isFoundByItself says whether the kernel gives each interface such an address.
func isFoundByItself(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// parseAddress reads an RTM_NEWADDR message. Of a point-to-point interface
// IFA_ADDRESS is the other end, so IFA_LOCAL goes first; IPv6 has only the former.
func parseAddress(m []byte) (ifindex int, p netip.Prefix) {
	if len(m) < unix.SizeofIfAddrmsg {
		return 0, p
	}
	// struct ifaddrmsg: family, prefix length, flags, scope, index (4)
	var address, local netip.Addr
	for kind, v := range netlink.Attrs(m[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(v)
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(v)
		}
	}
	if local.IsValid() {
		address = local
	}
	return int(binary.NativeEndian.Uint32(m[4:])), netip.PrefixFrom(address, int(m[1]))
}

// AddAddress adds IPv6 addresses without duplicate address detection: whoever
// gave the address answers for it, and detection would keep it from use for a
// second, or for ever on a link without carrier.
func (l *links) AddAddress(ctx context.Context, ifindex int, a netip.Prefix) error {
	op := fmt.Sprintf("add address %s", a)
	k, err := l.get(ctx, op, ifindex)
	if err != nil {
		return err
	}
	object := l.name(k.Name, ifindex)
	if !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().Is4In6() || a.Addr().Zone() != "" {
		return refuse(op, object, unix.EINVAL, fmt.Errorf("%s is no interface's address: %w", a, unix.EINVAL))
	}
	have, err := l.addresses(ctx, ifindex)
	if err != nil {
		return fail(op, object, err)
	}
	if slices.Contains(have, a) {
		return nil
	}
	header := make(netlink.Bytes, unix.SizeofIfAddrmsg)
	header[0], header[1] = family(a.Addr()), byte(a.Bits())
	binary.NativeEndian.PutUint32(header[4:], uint32(ifindex))
	data := []nl.NetlinkRequestData{header,
		netlink.Attr(unix.IFA_LOCAL, a.Addr().AsSlice()), netlink.Attr(unix.IFA_ADDRESS, a.Addr().AsSlice())}
	if a.Addr().Is6() {
		header[2] = unix.IFA_F_NODAD
	} else if a.Bits() < 31 {
		data = append(data, netlink.Attr(unix.IFA_BROADCAST, broadcast(a)))
	}
	_, err = l.conn.Do(unix.RTM_NEWADDR, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, data...)
	if errors.Is(err, unix.EEXIST) { // added since, or a link local one
		if isFoundByItself(a.Addr()) {
			return nil
		}
		if have, e := l.addresses(ctx, ifindex); e == nil && slices.Contains(have, a) {
			return nil
		}
	}
	return fail(op, object, err)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// broadcast is the last address of an IPv4 prefix.
func broadcast(p netip.Prefix) []byte {
	b := p.Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | uint32(1<<(32-p.Bits())-1)
	return binary.BigEndian.AppendUint32(nil, n)
}
