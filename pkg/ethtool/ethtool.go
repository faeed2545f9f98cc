// Package ethtool speaks generic netlink's ethtool family
// (Documentation/networking/ethtool-netlink.rst): features, channels and rings of
// all interfaces of a network namespace in one request each, and of one
// interface set. Nothing here asks for time stamping (TSINFO), which crashes the
// kernel on some representors.
package ethtool

import (
	"context"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// ErrNoFamily says that the kernel's ethtool has no netlink (before Linux 5.6).
var ErrNoFamily = fmt.Errorf("the kernel has no ethtool netlink: %w", unix.EOPNOTSUPP)

// Client asks one network namespace's ethtool. It may be used by many goroutines.
type Client struct {
	family *netlink.Family

	mu       sync.Mutex
	features []string // names by bit; nil: not asked yet
}

// New gives a client whose sockets dial opens, each a NETLINK_GENERIC one.
func New(dial func() (*netlink.Conn, error)) (*Client, error) {
	f, err := netlink.NewFamily(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_GENL_VERSION, ErrNoFamily, dial)
	if err != nil {
		return nil, err
	}
	return &Client{family: f}, nil
}

// Close ends the client.
func (c *Client) Close() error { return c.family.Close() }

// Every request of this family carries its header under the same number.
const attrHeader = 1

// header names the interface, 0 for all, and says how the answer is to be written.
func header(ifindex int, flags uint32) *nl.RtAttr {
	var attrs []*nl.RtAttr
	if ifindex != 0 {
		attrs = append(attrs, netlink.Attr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(ifindex))))
	}
	if flags != 0 {
		attrs = append(attrs, netlink.Attr(unix.ETHTOOL_A_HEADER_FLAGS, nl.Uint32Attr(flags)))
	}
	return netlink.Nest(attrHeader, attrs...)
}

func parseHeader(b []byte) (ifindex int) {
	for k, v := range netlink.Attrs(b) {
		if n, ok := netlink.Uint(v); ok && k == unix.ETHTOOL_A_HEADER_DEV_INDEX {
			ifindex = int(n)
		}
	}
	return ifindex
}

// list dumps command and parses each answer; interfaces of which the driver does
// not offer it are left out by the kernel. One interface whose device is not
// there for the moment makes the whole list ENODEV (ethnl_ops_begin).
func list[T any](ctx context.Context, c *Client, command uint8, parse func([]byte) (int, T)) (map[int]T, error) {
	messages, err := c.family.Dump(ctx, command, header(0, unix.ETHTOOL_FLAG_COMPACT_BITSETS))
	if err != nil {
		return nil, err
	}
	out := make(map[int]T, len(messages))
	for _, m := range messages {
		if ifindex, v := parse(m); ifindex > 0 {
			out[ifindex] = v
		}
	}
	return out, nil
}

func one[T any](c *Client, command uint8, ifindex int, parse func([]byte) (int, T)) (v T, err error) {
	m, err := c.family.Get(command, header(ifindex, unix.ETHTOOL_FLAG_COMPACT_BITSETS))
	if err != nil {
		return v, err
	}
	_, v = parse(m)
	return v, nil
}

// parseNumbers puts the numbers of an answer where they belong, by attribute.
func parseNumbers(m []byte, where map[int]*uint32) (ifindex int) {
	for k, v := range netlink.Attrs(m) {
		if k == attrHeader {
			ifindex = parseHeader(v)
		} else if n, ok := netlink.Uint(v); ok && where[k] != nil {
			*where[k] = uint32(n)
		}
	}
	return ifindex
}

func (c *Client) set(command uint8, ifindex int, numbers map[int]*uint32) error {
	attrs := []*nl.RtAttr{header(ifindex, 0)}
	for kind, n := range numbers {
		if n != nil {
			attrs = append(attrs, netlink.Attr(kind, nl.Uint32Attr(*n)))
		}
	}
	_, err := c.family.Set(command, attrs...)
	return err
}
