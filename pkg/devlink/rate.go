package devlink

import (
	"context"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// RateOf names what has a rate: the function behind a port, or a group of others.
type RateOf struct {
	Node string // a group's name; "" for a port
	Port uint32
}

// Rate is what something may send (Documentation/networking/devlink/
// devlink-port.rst, "Rate object"). Ports have one while their driver is in
// switchdev mode.
type Rate struct {
	Handle nic.Handle
	Of     RateOf
	Share  uint64 // tx_share: what it gets when all want to send, bytes/s; 0 none
	Max    uint64 // tx_max: bytes/s; 0 no limit
	Parent string // the group that it is in; "" none
}

// RateChange is what to change of a rate; nil is left as it is. mlx5 takes whole
// Mbit/s only, which is 125,000 bytes/s.
type RateChange struct {
	Share  *uint64
	Max    *uint64
	Parent *string // "": out of the group
}

// Rates lists those of all devices, in one request; none where the kernel has no
// devlink, or one from before Linux 5.14.
func (c *Client) Rates(ctx context.Context) ([]Rate, error) {
	return netlink.List(ctx, c.family, unix.DEVLINK_CMD_RATE_GET, parseRate, func(r Rate) bool { return !r.Handle.IsZero() })
}

// Rate reads one; ENODEV as of SetRate.
func (c *Client) Rate(h nic.Handle, of RateOf) (Rate, error) {
	m, err := c.one(unix.DEVLINK_CMD_RATE_GET, h, of.attrs()...)
	if err != nil {
		return Rate{}, err
	}
	return parseRate(m), nil
}

// SetRate changes a rate. ENODEV: there is no such port or group, or the port has
// no rate.
func (c *Client) SetRate(h nic.Handle, of RateOf, r RateChange) error {
	return c.set(unix.DEVLINK_CMD_RATE_SET, h, append(of.attrs(), r.attrs()...)...)
}

// NewRateNode makes a group. Its name must not be a number (EINVAL), nor taken
// (EEXIST).
func (c *Client) NewRateNode(h nic.Handle, name string, r RateChange) error {
	return c.set(unix.DEVLINK_CMD_RATE_NEW, h, append(RateOf{Node: name}.attrs(), r.attrs()...)...)
}

// DelRateNode removes a group; one that has members is EBUSY.
func (c *Client) DelRateNode(h nic.Handle, name string) error {
	return c.set(unix.DEVLINK_CMD_RATE_DEL, h, RateOf{Node: name}.attrs()...)
}

func (o RateOf) attrs() []*nl.RtAttr {
	if o.Node != "" {
		return []*nl.RtAttr{netlink.Text(unix.DEVLINK_ATTR_RATE_NODE_NAME, o.Node)}
	}
	return []*nl.RtAttr{portIndex(o.Port)}
}

func (r RateChange) attrs() (out []*nl.RtAttr) {
	if r.Share != nil {
		out = append(out, netlink.Attr(unix.DEVLINK_ATTR_RATE_TX_SHARE, nl.Uint64Attr(*r.Share)))
	}
	if r.Max != nil {
		out = append(out, netlink.Attr(unix.DEVLINK_ATTR_RATE_TX_MAX, nl.Uint64Attr(*r.Max)))
	}
	if r.Parent != nil {
		out = append(out, netlink.Text(unix.DEVLINK_ATTR_RATE_PARENT_NODE_NAME, *r.Parent))
	}
	return out
}

func parseRate(m []byte) Rate {
	r := Rate{Handle: parseHandle(m)}
	for k, v := range netlink.Attrs(m) {
		n, _ := netlink.Uint(v)
		switch k {
		case nl.DEVLINK_ATTR_PORT_INDEX:
			r.Of.Port = uint32(n)
		case unix.DEVLINK_ATTR_RATE_NODE_NAME:
			r.Of.Node = netlink.String(v)
		case unix.DEVLINK_ATTR_RATE_TX_SHARE:
			r.Share = n
		case unix.DEVLINK_ATTR_RATE_TX_MAX:
			r.Max = n
		case unix.DEVLINK_ATTR_RATE_PARENT_NODE_NAME:
			r.Parent = netlink.String(v)
		}
	}
	return r
}
