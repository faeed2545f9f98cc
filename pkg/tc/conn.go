package tc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// clsactIngress is where the rules are that a packet meets when it comes in:
// TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS). The ingress qdisc has the same ones
// there (sch_ingress.c, ingress_find).
const clsactIngress = 0xfffffff2

// Conn reads one network namespace. It may be used by many goroutines.
type Conn struct{ nl *netlink.Conn }

// Open reads the calling thread's network namespace.
func Open() (*Conn, error) { return wrap(netlink.Dial(unix.NETLINK_ROUTE)) }

// OpenAt reads the network namespace behind the open file ns.
func OpenAt(ns int) (*Conn, error) { return wrap(netlink.DialAt(ns, unix.NETLINK_ROUTE)) }

func wrap(c *netlink.Conn, err error) (*Conn, error) {
	if err != nil {
		return nil, err
	}
	return &Conn{nl: c}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.nl.Close() }

// Ingress lists the rules on the ingress of a netdev, in the order in which a
// packet meets them within each chain; those of a block that it shares with
// others too. Without an ingress qdisc there are none. No such netdev is
// fs.ErrNotExist.
func (c *Conn) Ingress(ctx context.Context, ifindex int) ([]Rule, error) {
	out, err := c.rules(ctx, nl.TcMsg{Ifindex: int32(ifindex), Parent: clsactIngress})
	if err != nil {
		return nil, fmt.Errorf("list rules on the ingress of ifindex %d: %w", ifindex, err)
	}
	if len(out) == 0 {
		// The kernel lists nothing for a netdev that is not there.
		if _, err := c.name(ifindex); err != nil {
			return nil, fmt.Errorf("list rules on the ingress of ifindex %d: %w", ifindex, err)
		}
	}
	return out, nil
}

// Block lists the rules of a shared block by its index.
func (c *Conn) Block(ctx context.Context, block uint32) ([]Rule, error) {
	magic := uint32(magicBlock)
	out, err := c.rules(ctx, nl.TcMsg{Ifindex: int32(magic), Parent: block})
	if err != nil {
		return nil, fmt.Errorf("list rules of block %d: %w", block, err)
	}
	return out, nil
}

func (c *Conn) rules(ctx context.Context, where nl.TcMsg) ([]Rule, error) {
	msgs, err := c.nl.Dump(ctx, unix.RTM_GETTFILTER, &where)
	if err != nil {
		return nil, err
	}
	var out []Rule
	names := map[int]string{}
	for _, m := range msgs {
		r, ok, err := Parse(m)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		for i := range r.Actions {
			c.resolve(&r.Actions[i], names)
		}
		out = append(out, r)
	}
	return out, nil
}

// resolve puts the name of a netdev where mirred has its ifindex. One that is
// gone, or was never in this namespace, stays a number.
func (c *Conn) resolve(a *Action, names map[int]string) {
	if a.Ifindex == 0 {
		return
	}
	name, seen := names[a.Ifindex]
	if !seen {
		name, _ = c.name(a.Ifindex)
		names[a.Ifindex] = name
	}
	if name == "" {
		return
	}
	a.Dev = name
	for i := range a.Params {
		if a.Params[i] == (Param{"ifindex", strconv.Itoa(a.Ifindex)}) {
			a.Params[i] = Param{"dev", name}
		}
	}
}

func (c *Conn) name(ifindex int) (string, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(ifindex)
	out, err := c.nl.Do(unix.RTM_GETLINK, 0, msg)
	if err != nil {
		return "", notExist(err)
	}
	for _, m := range out {
		if len(m) < unix.SizeofIfInfomsg {
			continue
		}
		for kind, b := range netlink.Attrs(m[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_IFNAME {
				return netlink.String(b), nil
			}
		}
	}
	return "", fmt.Errorf("netdev %d has no name", ifindex)
}

func notExist(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// Link is what a netdev counted since it was made.
type Link struct {
	RX Counter `json:"rx"`
	TX Counter `json:"tx"`

	// CPU is the part that the host's processors saw, where the driver tells it
	// apart: the representors of a ConnectX count all packets of their VF in RX
	// and TX, those handled in hardware too (mlx5/core/en_rep.c,
	// mlx5e_rep_get_stats).
	CPU *Directions `json:"cpu,omitempty"`
}

// Directions is a counter for each of the two.
type Directions struct {
	RX Counter `json:"rx"`
	TX Counter `json:"tx"`
}

// Host is what came up to the host from the netdev, and what it sent down.
func (l Link) Host() Directions {
	if l.CPU != nil {
		return *l.CPU
	}
	return Directions{RX: l.RX, TX: l.TX}
}

// Statistics to ask for and the attributes that they come in (IFLA_STATS_*,
// if_link.h).
const (
	statsLink64  = 1 // struct rtnl_link_stats64
	statsOffload = 4
	cpuHit       = 1 // in statsOffload; struct rtnl_link_stats64
)

// Link reads a netdev's counters. No such netdev is fs.ErrNotExist.
func (c *Conn) Link(_ context.Context, ifindex int) (Link, error) {
	msg := statsMsg{ifindex: uint32(ifindex), filter: 1<<(statsLink64-1) | 1<<(statsOffload-1)}
	out, err := c.nl.Do(unix.RTM_GETSTATS, 0, msg)
	if err != nil {
		return Link{}, fmt.Errorf("read counters of ifindex %d: %w", ifindex, notExist(err))
	}
	var l Link
	for _, m := range out {
		l = parseLink(m)
	}
	return l, nil
}

// statsMsg is struct if_stats_msg.
type statsMsg struct{ ifindex, filter uint32 }

func (statsMsg) Len() int { return 12 }

func (m statsMsg) Serialize() []byte {
	b := make([]byte, 12)
	binary.NativeEndian.PutUint32(b[4:], m.ifindex)
	binary.NativeEndian.PutUint32(b[8:], m.filter)
	return b
}

func parseLink(m []byte) (l Link) {
	if len(m) < 12 {
		return l
	}
	for kind, b := range netlink.Attrs(m[12:]) {
		switch kind {
		case statsLink64:
			d := directions(b)
			l.RX, l.TX = d.RX, d.TX
		case statsOffload:
			for k, v := range netlink.Attrs(b) {
				if k == cpuHit {
					d := directions(v)
					l.CPU = &d
				}
			}
		}
	}
	return l
}

// directions reads the head of struct rtnl_link_stats64: packets received and
// sent, bytes received and sent.
func directions(b []byte) (d Directions) {
	if len(b) < 32 {
		return d
	}
	n := binary.NativeEndian
	d.RX = Counter{Packets: n.Uint64(b), Bytes: n.Uint64(b[16:])}
	d.TX = Counter{Packets: n.Uint64(b[8:]), Bytes: n.Uint64(b[24:])}
	return d
}
