// Package devlink speaks generic netlink's devlink family
// (Documentation/netlink/specs/devlink.yaml) where vishvananda/netlink does not:
// a device's eswitch with inline and encap mode, ports with all that names them
// and their port function, port function set, device info. Refusals are
// *netlink.Error with the driver's text. Buses, flavours, modes and attributes
// that a newer kernel adds are carried by name or number, or passed over; they
// are never an error.
package devlink

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// ErrNoFamily says that the kernel has no devlink, and so no device of it.
var ErrNoFamily = fmt.Errorf("the kernel has no devlink: %w", unix.ENODEV)

// Client asks one network namespace's devlink. It may be used by many
// goroutines: reads share a socket, each write has its own, because a mode
// change takes seconds.
type Client struct {
	dial func() (*netlink.Conn, error)
	conn *netlink.Conn

	mu     sync.Mutex
	family int // 0: not known yet
}

// New gives a client whose sockets dial opens, each a NETLINK_GENERIC one.
func New(dial func() (*netlink.Conn, error)) (*Client, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	return &Client{dial: dial, conn: conn}, nil
}

// Close ends the client.
func (c *Client) Close() error { return c.conn.Close() }

// Devices lists the instances; none where the kernel has no devlink. Beside
// devices on a bus newer kernels list instances of a whole chip, whose bus is
// none that sysfs knows.
func (c *Client) Devices(ctx context.Context) ([]nic.Handle, error) {
	out, err := c.dump(ctx, nl.DEVLINK_CMD_GET)
	if err != nil {
		return nil, err
	}
	handles := make([]nic.Handle, 0, len(out))
	for _, m := range out {
		if h := parseHandle(m); !h.IsZero() {
			handles = append(handles, h)
		}
	}
	return handles, nil
}

// Ports lists the ports of all instances; none where the kernel has no devlink.
func (c *Client) Ports(ctx context.Context) ([]Port, error) {
	out, err := c.dump(ctx, nl.DEVLINK_CMD_PORT_GET)
	if err != nil {
		return nil, err
	}
	ports := make([]Port, 0, len(out))
	for _, m := range out {
		if p := parsePort(m); !p.Handle.IsZero() {
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// Port reads one port. The kernel says ENODEV when there is no such instance or
// port (devlink_port_get_from_attrs).
func (c *Client) Port(h nic.Handle, index uint32) (Port, error) {
	m, err := c.one(nl.DEVLINK_CMD_PORT_GET, h, netlink.Attr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(index)))
	if err != nil {
		return Port{}, err
	}
	return parsePort(m), nil
}

// Eswitch reads a device's eswitch; EOPNOTSUPP when its driver has none, EPERM
// from mlx5 for a VF.
func (c *Client) Eswitch(h nic.Handle) (Eswitch, error) {
	m, err := c.one(nl.DEVLINK_CMD_ESWITCH_GET, h)
	if err != nil {
		return Eswitch{}, err
	}
	return parseEswitch(m), nil
}

// SetEswitchMode changes the mode, and returns when the driver has: mlx5 makes
// or removes all representors in the call.
func (c *Client) SetEswitchMode(h nic.Handle, mode nic.Eswitch) error {
	n, ok := modeNumber(mode)
	if !ok {
		return fmt.Errorf("%q is no eswitch mode: want %s or %s", mode, nic.Legacy, nic.Switchdev)
	}
	return c.set(nl.DEVLINK_CMD_ESWITCH_SET, h, netlink.Attr(nl.DEVLINK_ATTR_ESWITCH_MODE, nl.Uint16Attr(n)))
}

// SetPortFunction changes what is given of the function behind a port.
func (c *Client) SetPortFunction(h nic.Handle, port uint32, f FunctionChange) error {
	return c.set(nl.DEVLINK_CMD_PORT_SET, h,
		netlink.Attr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(port)),
		netlink.Nest(nl.DEVLINK_ATTR_PORT_FUNCTION, f.attrs()...))
}

// Info reads what the driver says of the device. A driver may ask the card's
// firmware for it, which takes milliseconds.
func (c *Client) Info(h nic.Handle) (Info, error) {
	m, err := c.one(nl.DEVLINK_CMD_INFO_GET, h)
	if err != nil {
		return Info{}, err
	}
	return parseInfo(m), nil
}

func (c *Client) dump(ctx context.Context, command uint8) ([][]byte, error) {
	family, err := c.familyID()
	if errors.Is(err, ErrNoFamily) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := c.conn.Dump(ctx, family, netlink.Genl(command, nl.GENL_DEVLINK_VERSION))
	return payloads(out), err
}

func (c *Client) one(command uint8, h nic.Handle, attrs ...*nl.RtAttr) ([]byte, error) {
	family, err := c.familyID()
	if err != nil {
		return nil, err
	}
	out, err := c.conn.Do(family, 0, request(command, h, attrs)...)
	if err != nil {
		return nil, err
	}
	if out = payloads(out); len(out) != 1 {
		return nil, fmt.Errorf("%d answers to devlink command %d", len(out), command)
	}
	return out[0], nil
}

func (c *Client) set(command uint8, h nic.Handle, attrs ...*nl.RtAttr) error {
	family, err := c.familyID()
	if err != nil {
		return err
	}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do(family, unix.NLM_F_ACK, request(command, h, attrs)...)
	return err
}

// familyID asks for devlink's number until the kernel knows one.
func (c *Client) familyID() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.family != 0 {
		return c.family, nil
	}
	out, err := c.conn.Do(unix.GENL_ID_CTRL, 0, netlink.Genl(unix.CTRL_CMD_GETFAMILY, 2),
		netlink.Attr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(nl.GENL_DEVLINK_NAME)))
	if errors.Is(err, unix.ENOENT) {
		return 0, ErrNoFamily
	}
	if err != nil {
		return 0, fmt.Errorf("look up devlink: %w", err)
	}
	for _, m := range payloads(out) {
		for k, v := range netlink.Attrs(m) {
			if n, ok := netlink.Uint(v); ok && k == unix.CTRL_ATTR_FAMILY_ID {
				c.family = int(n)
			}
		}
	}
	if c.family == 0 {
		return 0, ErrNoFamily
	}
	return c.family, nil
}

func request(command uint8, h nic.Handle, attrs []*nl.RtAttr) []nl.NetlinkRequestData {
	out := []nl.NetlinkRequestData{
		netlink.Genl(command, nl.GENL_DEVLINK_VERSION),
		netlink.Attr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated(h.Bus)),
		netlink.Attr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(h.Name)),
	}
	for _, a := range attrs {
		out = append(out, a)
	}
	return out
}

// payloads cuts the generic netlink headers off, and drops what is none.
func payloads(messages [][]byte) [][]byte {
	out := messages[:0]
	for _, m := range messages {
		if len(m) >= netlink.GenlHeaderLen {
			out = append(out, m[netlink.GenlHeaderLen:])
		}
	}
	return out
}
