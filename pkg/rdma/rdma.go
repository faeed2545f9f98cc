// Package rdma asks the RDMA subsystem over netlink (RDMA_NL_NLDEV,
// include/uapi/rdma/rdma_netlink.h): its devices with their GUIDs, their ports
// with the netdevs on them, and whether network namespaces share the devices.
package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// ErrNone says that the kernel has no RDMA: its module ib_core is not loaded.
var ErrNone = fmt.Errorf("the kernel has no RDMA: %w", unix.EOPNOTSUPP)

// Client asks for one network namespace. It may be used by many goroutines.
type Client struct {
	dial func() (*netlink.Conn, error)

	mu   sync.Mutex
	conn *netlink.Conn // nil: not opened yet
}

// New gives a client whose socket dial opens, a NETLINK_RDMA one, when the kernel
// has it.
func New(dial func() (*netlink.Conn, error)) *Client { return &Client{dial: dial} }

// Close ends the client.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// socket opens the socket once there can be one; ErrNone until then.
func (c *Client) socket() (*netlink.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := c.dial()
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return nil, ErrNone
		}
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	return c.conn, nil
}

// Commands that nl has no names for, and attributes.
const (
	cmdPortGet = 5

	attrNdevIndex = 50
	attrProtocol  = 67
)

func message(command int) int { return nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT | command }

// Device is one RDMA device.
type Device struct {
	Index        uint32
	Name         string
	Ports        int    // how many
	NodeGUID     uint64 // 0: none
	SysImageGUID uint64 // of the card
	Protocol     string // ib, roce, iw and others: of its first port
	Firmware     string // "" when not said
}

// Port is one port of a device.
type Port struct {
	Number  int
	State   string // as sysfs has it: ACTIVE, DOWN and others
	Ifindex int    // of the netdev on it; 0 none, or one in another namespace
	Netdev  string
}

// Devices lists the devices that the namespace sees, in one request; none where
// the kernel has no RDMA.
func (c *Client) Devices(ctx context.Context) ([]Device, error) {
	conn, err := c.socket()
	if errors.Is(err, ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	messages, err := conn.Dump(ctx, message(nl.RDMA_NLDEV_CMD_GET))
	if err != nil {
		return nil, err
	}
	out := make([]Device, 0, len(messages))
	for _, m := range messages {
		if d := parseDevice(m); d.Name != "" {
			out = append(out, d)
		}
	}
	return out, nil
}

// Ports lists the ports of one device, which the kernel tells of one device at a
// time only. EINVAL: there is no such device.
func (c *Client) Ports(ctx context.Context, device uint32) ([]Port, error) {
	conn, err := c.socket()
	if err != nil {
		return nil, err
	}
	messages, err := conn.Dump(ctx, message(cmdPortGet), index(device))
	if err != nil {
		return nil, err
	}
	out := make([]Port, 0, len(messages))
	for _, m := range messages {
		out = append(out, parsePort(m))
	}
	return out, nil
}

// Shared says whether every network namespace sees all devices, rather than only
// those that were given to it.
func (c *Client) Shared() (bool, error) {
	conn, err := c.socket()
	if err != nil {
		return false, err
	}
	out, err := conn.Do(message(nl.RDMA_NLDEV_CMD_SYS_GET), 0)
	if err != nil {
		return false, err
	}
	for _, m := range out {
		for k, v := range netlink.Attrs(m) {
			if n, ok := netlink.Uint(v); ok && k == nl.RDMA_NLDEV_SYS_ATTR_NETNS_MODE {
				return n != 0, nil
			}
		}
	}
	return false, fmt.Errorf("no network namespace mode: %w", unix.EOPNOTSUPP) // before Linux 5.2
}

// SetShared changes that; EBUSY while there are other network namespaces
// (rdma_compatdev_set).
func (c *Client) SetShared(shared bool) error {
	n := uint8(0)
	if shared {
		n = 1
	}
	return c.set(nl.RDMA_NLDEV_CMD_SYS_SET, netlink.Attr(nl.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, nl.Uint8Attr(n)))
}

// SetNetns gives a device to the network namespace behind the open file ns.
// EOPNOTSUPP: devices are shared, or the driver cannot, as soft ones
// (ib_device_set_netns_put).
func (c *Client) SetNetns(device uint32, ns int) error {
	return c.set(nl.RDMA_NLDEV_CMD_SET, index(device), netlink.Attr(nl.RDMA_NLDEV_NET_NS_FD, nl.Uint32Attr(uint32(ns))))
}

func (c *Client) set(command int, attrs ...nl.NetlinkRequestData) error {
	conn, err := c.socket()
	if err != nil {
		return err
	}
	_, err = conn.Do(message(command), unix.NLM_F_ACK, attrs...)
	return err
}

func index(device uint32) *nl.RtAttr {
	return netlink.Attr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(device))
}

func parseDevice(m []byte) (d Device) {
	for k, v := range netlink.Attrs(m) {
		n, _ := netlink.Uint(v)
		switch k {
		case nl.RDMA_NLDEV_ATTR_DEV_INDEX:
			d.Index = uint32(n)
		case nl.RDMA_NLDEV_ATTR_DEV_NAME:
			d.Name = netlink.String(v)
		case nl.RDMA_NLDEV_ATTR_PORT_INDEX:
			d.Ports = int(n)
		case nl.RDMA_NLDEV_ATTR_NODE_GUID:
			d.NodeGUID = n
		case nl.RDMA_NLDEV_ATTR_SYS_IMAGE_GUID:
			d.SysImageGUID = n
		case nl.RDMA_NLDEV_ATTR_FW_VERSION:
			d.Firmware = netlink.String(v)
		case attrProtocol:
			d.Protocol = netlink.String(v)
		}
	}
	return d
}

// portStates are the words of sysfs for enum ib_port_state.
func portStates() []string { return []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"} }

func parsePort(m []byte) (p Port) {
	for k, v := range netlink.Attrs(m) {
		n, ok := netlink.Uint(v)
		switch k {
		case nl.RDMA_NLDEV_ATTR_PORT_INDEX:
			p.Number = int(n)
		case nl.RDMA_NLDEV_ATTR_PORT_STATE:
			if states := portStates(); ok && n < uint64(len(states)) {
				p.State = states[n]
			}
		case attrNdevIndex:
			p.Ifindex = int(n)
		case nl.RDMA_NLDEV_ATTR_NDEV_NAME:
			p.Netdev = netlink.String(v)
		}
	}
	return p
}

// GUID writes a GUID as eight octets, colon-separated, as rdma(8) and ip(8) do.
func GUID(n uint64) string {
	b := binary.BigEndian.AppendUint64(nil, n)
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7])
}
