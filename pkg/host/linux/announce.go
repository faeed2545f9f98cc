package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Announce sends one frame through a packet socket of the namespace: for IPv4 an
// ARP announcement (RFC 5227, 3: a request whose sender and target are the
// address), for IPv6 an unsolicited neighbour advertisement (RFC 4861, 7.2.6).
// A link that was just set up is given a moment to find its carrier.
func (l *links) Announce(ctx context.Context, ifindex int, a netip.Addr) error {
	op := "announce " + a.String()
	k, err := l.get(ctx, op, ifindex)
	if err != nil {
		return err
	}
	object := l.name(k.Name, ifindex)
	switch {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6():
		return refuse(op, object, unix.EINVAL, fmt.Errorf("%s is no interface's address: %w", a, unix.EINVAL))
	case !k.Up:
		return fail(op, object, unix.ENETDOWN)
	}
	if !k.Carrier {
		err := until(ctx, 200*time.Millisecond, func() (string, error) {
			k, err := l.get(ctx, op, ifindex)
			if err != nil || k.Carrier {
				return "", err
			}
			return "no carrier", nil
		})
		if err != nil && !errors.Is(err, unix.ETIMEDOUT) {
			return err
		}
	}
	frame, to := arpAnnouncement(k.MAC, a), nic.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	protocol := uint16(unix.ETH_P_ARP)
	if a.Is6() {
		frame, to, protocol = advertisement(k.MAC, a), allNodesMAC, unix.ETH_P_IPV6
	}
	return fail(op, object, l.send(ifindex, to, protocol, frame))
}

// send sends a packet behind an Ethernet header that the kernel makes.
func (l *links) send(ifindex int, to nic.MAC, protocol uint16, packet []byte) error {
	return l.within(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		address := &unix.SockaddrLinklayer{Ifindex: ifindex, Halen: uint8(len(to)), Protocol: networkOrder(protocol)}
		copy(address.Addr[:], to[:])
		return unix.Sendto(fd, packet, 0, address)
	})
}

func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// within runs f on a thread in the namespace of l.
func (l *links) within(f func() error) error { return l.ns.within(f) }

func (ns *netnsFile) within(f func() error) error {
	if here, err := identify(netlink.ThreadNetns); err == nil && here == ns.id {
		return f()
	}
	return netlink.In(int(ns.Fd()), f)
}

// arpAnnouncement is RFC 826 for Ethernet and IPv4.
func arpAnnouncement(mac nic.MAC, a netip.Addr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, lengths, request
	b = append(b, mac[:]...)
	b = append(b, a.AsSlice()...)
	b = append(b, make([]byte, 6)...)
	return append(b, a.AsSlice()...)
}

// allNodesMAC is ff02::1 in Ethernet (RFC 2464, 7).
var allNodesMAC = nic.MAC{0x33, 0x33, 0, 0, 0, 1}

// advertisement is an IPv6 packet with a neighbour advertisement that overrides
// what its receivers know, to all nodes.
func advertisement(mac nic.MAC, a netip.Addr) []byte {
	const hopLimit = 255 // any other is not accepted
	to := netip.MustParseAddr("ff02::1")
	icmp := []byte{136, 0, 0, 0, 0x20, 0, 0, 0} // override, neither router nor solicited
	icmp = append(icmp, a.AsSlice()...)
	icmp = append(icmp, 2, 1) // target's link layer address, in units of 8 bytes
	icmp = append(icmp, mac[:]...)

	b := []byte{0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, hopLimit}
	b = append(b, a.AsSlice()...)
	b = append(b, to.AsSlice()...)
	// The pseudo header of RFC 8200, 8.1: addresses, length, next header.
	sum := checksum(b[8:40], uint32(len(icmp))+unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(icmp[2:], ^fold(checksum(icmp, sum)))
	return append(b, icmp...)
}

// checksum adds up b, of even length, in 16 bit words (RFC 1071).
func checksum(b []byte, sum uint32) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
