package rtnl

import (
	"context"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// Subject is what a notification is about.
type Subject string

// The subjects.
const (
	OfLink    Subject = "link"
	OfAddress Subject = "address"
	OfRoute   Subject = "route"
)

// Event says that something changed, came or went.
type Event struct {
	Subject Subject
	Ifindex int    // 0: a route through several interfaces, or through none
	Name    string // of a link
	Gone    bool
}

// Monitor hears of changes of links, addresses and routes.
type Monitor struct{ m *netlink.Monitor }

// Listen starts a monitor in the calling thread's network namespace.
func Listen() (*Monitor, error) {
	m, err := netlink.Listen(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Monitor{m}, nil
}

// Close ends the monitor.
func (m *Monitor) Close() error { return m.m.Close() }

// Next waits for changes. netlink.ErrOverrun: some were lost, and everything may
// have changed.
func (m *Monitor) Next(ctx context.Context) ([]Event, error) {
	return netlink.Next(ctx, m.m, parseEvents)
}

func parseEvents(b []byte) (out []Event) {
	for kind, m := range netlink.Messages(b) {
		if e, ok := parseEvent(kind, m); ok {
			out = append(out, e)
		}
	}
	return out
}

func parseEvent(kind uint16, m []byte) (e Event, ok bool) {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return parseLinkEvent(kind, m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(m) < unix.SizeofIfAddrmsg {
			return e, false
		}
		return Event{Subject: OfAddress, Ifindex: int(binary.NativeEndian.Uint32(m[4:])), Gone: kind == unix.RTM_DELADDR}, true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m) < unix.SizeofRtMsg {
			return e, false
		}
		e = Event{Subject: OfRoute, Gone: kind == unix.RTM_DELROUTE}
		for kind, v := range netlink.Attrs(m[unix.SizeofRtMsg:]) {
			if kind == unix.RTA_OIF {
				e.Ifindex = number(v)
			}
		}
		return e, true
	}
	return e, false
}

// parseLinkEvent: a bridge tells in the same group of a port that left it, which is
// not gone for that (br_ifinfo_notify).
func parseLinkEvent(kind uint16, m []byte) (e Event, ok bool) {
	if len(m) < unix.SizeofIfInfomsg {
		return e, false
	}
	e = Event{Subject: OfLink, Ifindex: int(int32(binary.NativeEndian.Uint32(m[4:])))}
	e.Gone = kind == unix.RTM_DELLINK && m[0] == unix.AF_UNSPEC
	for kind, v := range netlink.Attrs(m[unix.SizeofIfInfomsg:]) {
		if kind == unix.IFLA_IFNAME {
			e.Name = netlink.String(v)
		}
	}
	return e, true
}
