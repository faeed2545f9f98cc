// Package rtnl reads and changes interfaces over rtnetlink: what vishvananda's
// library leaves out or gets wrong, in one list with the VFs of each PF and the
// members of each bond, and a monitor of links, addresses and routes. Refusals
// are *netlink.Error with the kernel's text.
package rtnl

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// Conn asks one network namespace's rtnetlink. It may be used by many goroutines.
type Conn struct{ nl *netlink.Conn }

// New speaks over conn, a NETLINK_ROUTE socket, which stays the caller's.
func New(conn *netlink.Conn) Conn { return Conn{conn} }

// What to tell of interfaces (RTEXT_FILTER_*, if_link.h). Statistics of VFs are
// always left out: with them the VFs of one PF outgrow the 64 KiB of a netlink
// attribute at about 200, without at over 300.
const (
	extVF        = 1 << 0
	extSkipStats = 1 << 3
)

// List lists all interfaces with everything, in one request.
func (c Conn) List(ctx context.Context) ([]Link, error) {
	messages, err := c.nl.Dump(ctx, unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), extMask(extVF|extSkipStats))
	if err != nil {
		return nil, err
	}
	out := make([]Link, 0, len(messages))
	for _, m := range messages {
		if l, ok := parseLink(m); ok {
			out = append(out, l)
		}
	}
	return out, nil
}

// Get reads one interface, without its VFs; ENODEV if there is none.
func (c Conn) Get(ifindex int) (Link, error) { return c.get(ifindex, extSkipStats) }

// GetWithVFs reads one interface with its VFs, which takes a driver the longer the
// more it has.
func (c Conn) GetWithVFs(ifindex int) (Link, error) { return c.get(ifindex, extVF|extSkipStats) }

// get asks strictly: ENODEV is the only answer to an ifindex that is not there.
func (c Conn) get(ifindex int, mask uint32) (Link, error) {
	if ifindex <= 0 {
		return Link{}, &netlink.Error{Errno: unix.ENODEV}
	}
	return c.one(header(ifindex), extMask(mask))
}

// ByName reads the interface of that name; ENODEV if there is none.
func (c Conn) ByName(name string) (Link, error) {
	return c.one(header(0), extMask(extSkipStats), netlink.Text(unix.IFLA_IFNAME, name))
}

func (c Conn) one(data ...nl.NetlinkRequestData) (Link, error) {
	out, err := c.nl.Do(unix.RTM_GETLINK, 0, data...)
	if err != nil {
		return Link{}, err
	}
	for _, m := range out {
		if l, ok := parseLink(m); ok {
			return l, nil
		}
	}
	return Link{}, &netlink.Error{Errno: unix.ENODEV}
}

// Set changes attributes of one interface.
func (c Conn) Set(ifindex int, attrs ...*nl.RtAttr) error {
	return c.do(unix.RTM_SETLINK, 0, header(ifindex), attrs...)
}

// SetUp takes an interface up or down.
func (c Conn) SetUp(ifindex int, up bool) error {
	h := header(ifindex)
	h.Change = unix.IFF_UP
	if up {
		h.Flags = unix.IFF_UP
	}
	return c.do(unix.RTM_SETLINK, 0, h)
}

// SetPromisc has an interface take all packets; off, only what is for it, and not all
// multicast packets either.
func (c Conn) SetPromisc(ifindex int, on bool) error {
	h := header(ifindex)
	h.Change = unix.IFF_PROMISC | unix.IFF_ALLMULTI
	if on {
		h.Change = unix.IFF_PROMISC
		h.Flags = unix.IFF_PROMISC
	}
	return c.do(unix.RTM_SETLINK, 0, h)
}

// SetAltName gives an interface an alternative name, or takes it. EEXIST when it is in
// use.
func (c Conn) SetAltName(ifindex int, name string, on bool) error {
	list := netlink.Nest(unix.IFLA_PROP_LIST, netlink.Text(unix.IFLA_ALT_IFNAME, name))
	if !on {
		return c.Do(unix.RTM_DELLINKPROP, 0, ifindex, list)
	}
	return c.Do(unix.RTM_NEWLINKPROP, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_APPEND, ifindex, list)
}

// Delete removes a software interface; EOPNOTSUPP when it is none.
func (c Conn) Delete(ifindex int) error { return c.do(unix.RTM_DELLINK, 0, header(ifindex)) }

// Do sends any other request about one interface.
func (c Conn) Do(kind, flags, ifindex int, attrs ...*nl.RtAttr) error {
	return c.do(kind, flags, header(ifindex), attrs...)
}

func (c Conn) do(kind, flags int, h *nl.IfInfomsg, attrs ...*nl.RtAttr) error {
	data := []nl.NetlinkRequestData{h}
	for _, a := range attrs {
		data = append(data, a)
	}
	_, err := c.nl.Do(kind, unix.NLM_F_ACK|flags, data...)
	return err
}

func header(ifindex int) *nl.IfInfomsg {
	h := nl.NewIfInfomsg(unix.AF_UNSPEC)
	h.Index = int32(ifindex)
	return h
}

func extMask(mask uint32) *nl.RtAttr {
	return netlink.Attr(unix.IFLA_EXT_MASK, nl.Uint32Attr(mask))
}

// failed says which of several requests the kernel refused.
func failed(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
