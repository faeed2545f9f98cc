// Package vdpa makes and removes vDPA devices (generic netlink family vdpa,
// include/uapi/linux/vdpa.h) and binds them to the drivers that hand them to
// virtual machines (vhost_vdpa) or to the kernel (virtio_vdpa), through sysfs.
package vdpa

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// ErrNoFamily says that the kernel has no vDPA: its module is not loaded.
var ErrNoFamily = fmt.Errorf("the kernel has no vDPA: %w", unix.EOPNOTSUPP)

// Client asks the kernel's vDPA, which answers in the first network namespace
// only. It may be used by many goroutines.
type Client struct{ family *netlink.Family }

// New gives a client whose sockets dial opens, each a NETLINK_GENERIC one.
func New(dial func() (*netlink.Conn, error)) (*Client, error) {
	f, err := netlink.NewFamily(nl.VDPA_GENL_NAME, nl.VDPA_GENL_VERSION, ErrNoFamily, dial)
	if err != nil {
		return nil, err
	}
	return &Client{family: f}, nil
}

// Close ends the client.
func (c *Client) Close() error { return c.family.Close() }

// classNet is the number of virtio's network devices (VIRTIO_ID_NET).
const classNet = 1

// Parent is a device that vDPA devices can be made on: with mlx5 a VF or SF, never
// a PF.
type Parent struct {
	Handle nic.Handle // Bus is "" for software ones
	Net    bool       // it makes network devices
	MaxVQs int        // virtqueues of one device at the most, control queue included; 0: not said
}

// Device is one vDPA device.
type Device struct {
	Name   string
	Parent nic.Handle
	Net    bool
	MaxVQs int
}

// Config is what a new network device is to be; zero fields are its driver's
// choice.
type Config struct {
	MAC    nic.MAC
	MTU    int // bytes
	MaxVQP int // pairs of virtqueues
}

// Parents lists what devices can be made on; none where the kernel has no vDPA.
func (c *Client) Parents(ctx context.Context) ([]Parent, error) {
	return netlink.List(ctx, c.family, nl.VDPA_CMD_MGMTDEV_GET, parseParent, func(p Parent) bool { return p.Handle.Name != "" })
}

// Devices lists the devices; none where the kernel has no vDPA.
func (c *Client) Devices(ctx context.Context) ([]Device, error) {
	return netlink.List(ctx, c.family, nl.VDPA_CMD_DEV_GET, parseDevice, func(d Device) bool { return d.Name != "" })
}

// Add makes a device. ENODEV: no such parent; EEXIST: the name is taken;
// EOPNOTSUPP: the parent cannot do what is asked.
func (c *Client) Add(name string, parent nic.Handle, config Config) error {
	attrs := append([]*nl.RtAttr{netlink.Text(nl.VDPA_ATTR_DEV_NAME, name)}, of(parent)...)
	_, err := c.family.Set(nl.VDPA_CMD_DEV_NEW, append(attrs, config.attrs()...)...)
	return err
}

// Del removes a device; ENODEV: there is none of that name.
func (c *Client) Del(name string) error {
	_, err := c.family.Set(nl.VDPA_CMD_DEV_DEL, netlink.Text(nl.VDPA_ATTR_DEV_NAME, name))
	return err
}

// of names a parent; software ones are on no bus.
func of(h nic.Handle) (out []*nl.RtAttr) {
	if h.Bus != "" {
		out = append(out, netlink.Text(nl.VDPA_ATTR_MGMTDEV_BUS_NAME, h.Bus))
	}
	return append(out, netlink.Text(nl.VDPA_ATTR_MGMTDEV_DEV_NAME, h.Name))
}

func (c Config) attrs() (out []*nl.RtAttr) {
	if !c.MAC.IsZero() {
		out = append(out, netlink.Attr(nl.VDPA_ATTR_DEV_NET_CFG_MACADDR, c.MAC[:]))
	}
	if c.MTU != 0 {
		out = append(out, netlink.Attr(nl.VDPA_ATTR_DEV_NET_CFG_MTU, nl.Uint16Attr(uint16(c.MTU))))
	}
	if c.MaxVQP != 0 {
		out = append(out, netlink.Attr(nl.VDPA_ATTR_DEV_NET_CFG_MAX_VQP, nl.Uint16Attr(uint16(c.MaxVQP))))
	}
	return out
}

func parseHandle(m []byte) (h nic.Handle) {
	for k, v := range netlink.Attrs(m) {
		switch k {
		case nl.VDPA_ATTR_MGMTDEV_BUS_NAME:
			h.Bus = netlink.String(v)
		case nl.VDPA_ATTR_MGMTDEV_DEV_NAME:
			h.Name = netlink.String(v)
		}
	}
	return h
}

func parseParent(m []byte) Parent {
	p := Parent{Handle: parseHandle(m)}
	for k, v := range netlink.Attrs(m) {
		n, _ := netlink.Uint(v)
		switch k {
		case nl.VDPA_ATTR_MGMTDEV_SUPPORTED_CLASSES:
			p.Net = n&(1<<classNet) != 0
		case nl.VDPA_ATTR_DEV_MGMTDEV_MAX_VQS:
			p.MaxVQs = int(n)
		}
	}
	return p
}

func parseDevice(m []byte) Device {
	d := Device{Parent: parseHandle(m)}
	for k, v := range netlink.Attrs(m) {
		n, _ := netlink.Uint(v)
		switch k {
		case nl.VDPA_ATTR_DEV_NAME:
			d.Name = netlink.String(v)
		case nl.VDPA_ATTR_DEV_ID:
			d.Net = n == classNet
		case nl.VDPA_ATTR_DEV_MAX_VQS:
			d.MaxVQs = int(n)
		}
	}
	return d
}
