// Package devlink speaks generic netlink's devlink family
// (Documentation/netlink/specs/devlink.yaml) where vishvananda/netlink does not:
// a device's eswitch with inline and encap mode, ports with all that names them
// and their port function, subfunctions, parameters, rates, health, device info,
// reload, and what changes of all that. Refusals are *netlink.Error with the
// driver's text. Buses, flavours, modes and attributes that a newer kernel adds
// are carried by name or number, or passed over; they are never an error.
package devlink

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// ErrNoFamily says that the kernel has no devlink, and so no device of it.
var ErrNoFamily = fmt.Errorf("the kernel has no devlink: %w", unix.ENODEV)

// Client asks one network namespace's devlink. It may be used by many goroutines.
type Client struct{ family *netlink.Family }

// New gives a client whose sockets dial opens, each a NETLINK_GENERIC one.
func New(dial func() (*netlink.Conn, error)) (*Client, error) {
	f, err := netlink.NewFamily(nl.GENL_DEVLINK_NAME, nl.GENL_DEVLINK_VERSION, ErrNoFamily, dial)
	if err != nil {
		return nil, err
	}
	return &Client{family: f}, nil
}

// Close ends the client.
func (c *Client) Close() error { return c.family.Close() }

// Devices lists the instances; none where the kernel has no devlink. Beside
// devices on a bus newer kernels list instances of a whole chip, whose bus is
// none that sysfs knows.
func (c *Client) Devices(ctx context.Context) ([]nic.Handle, error) {
	return netlink.List(ctx, c.family, nl.DEVLINK_CMD_GET, parseHandle, func(h nic.Handle) bool { return !h.IsZero() })
}

// Ports lists the ports of all instances; none where the kernel has no devlink.
func (c *Client) Ports(ctx context.Context) ([]Port, error) {
	return netlink.List(ctx, c.family, nl.DEVLINK_CMD_PORT_GET, parsePort, func(p Port) bool { return !p.Handle.IsZero() })
}

// Port reads one port. The kernel says ENODEV when there is no such instance or
// port (devlink_port_get_from_attrs).
func (c *Client) Port(h nic.Handle, index uint32) (Port, error) {
	m, err := c.one(nl.DEVLINK_CMD_PORT_GET, h, portIndex(index))
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
	n, ok := modeNames().number(string(mode))
	if !ok {
		return fmt.Errorf("%q is no eswitch mode: want %s or %s", mode, nic.Legacy, nic.Switchdev)
	}
	return c.set(nl.DEVLINK_CMD_ESWITCH_SET, h, netlink.Attr(nl.DEVLINK_ATTR_ESWITCH_MODE, nl.Uint16Attr(uint16(n))))
}

// SetInlineMode changes how much of a packet's headers a VF's driver hands to the
// hardware: none, link, network or transport. mlx5 refuses where the device needs
// none (ConnectX-5 and later), and while rules are offloaded.
func (c *Client) SetInlineMode(h nic.Handle, mode string) error {
	n, ok := inlineModes().number(mode)
	if !ok {
		return fmt.Errorf("%q is no inline mode: want one of %q", mode, inlineModes())
	}
	return c.set(nl.DEVLINK_CMD_ESWITCH_SET, h, netlink.Attr(nl.DEVLINK_ATTR_ESWITCH_INLINE_MODE, nl.Uint8Attr(uint8(n))))
}

// SetEncapMode changes whether rules can encapsulate: none or basic. mlx5 refuses
// while rules are offloaded.
func (c *Client) SetEncapMode(h nic.Handle, mode string) error {
	n, ok := encapModes().number(mode)
	if !ok {
		return fmt.Errorf("%q is no encap mode: want one of %q", mode, encapModes())
	}
	return c.set(nl.DEVLINK_CMD_ESWITCH_SET, h, netlink.Attr(nl.DEVLINK_ATTR_ESWITCH_ENCAP_MODE, nl.Uint8Attr(uint8(n))))
}

// SetPortFunction changes what is given of the function behind a port.
func (c *Client) SetPortFunction(h nic.Handle, port uint32, f FunctionChange) error {
	return c.set(nl.DEVLINK_CMD_PORT_SET, h,
		portIndex(port),
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

// Reload has the driver start the device anew, after which parameters of mode
// DriverInit are in force (Documentation/networking/devlink/devlink-reload.rst).
// mlx5 comes back in legacy mode, with new netdevs.
func (c *Client) Reload(h nic.Handle) error {
	return c.set(unix.DEVLINK_CMD_RELOAD, h, netlink.Attr(unix.DEVLINK_ATTR_RELOAD_ACTION, nl.Uint8Attr(unix.DEVLINK_RELOAD_ACTION_DRIVER_REINIT)))
}

func (c *Client) one(command uint8, h nic.Handle, attrs ...*nl.RtAttr) ([]byte, error) {
	return c.family.Get(command, of(h, attrs)...)
}

func (c *Client) set(command uint8, h nic.Handle, attrs ...*nl.RtAttr) error {
	_, err := c.family.Set(command, of(h, attrs)...)
	return err
}

// of puts a device's handle before attributes.
func of(h nic.Handle, attrs []*nl.RtAttr) []*nl.RtAttr {
	return append([]*nl.RtAttr{netlink.Text(nl.DEVLINK_ATTR_BUS_NAME, h.Bus), netlink.Text(nl.DEVLINK_ATTR_DEV_NAME, h.Name)}, attrs...)
}

func portIndex(n uint32) *nl.RtAttr {
	return netlink.Attr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(n))
}
