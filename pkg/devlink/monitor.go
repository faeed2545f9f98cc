package devlink

import (
	"context"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Subject is what a notification is about.
type Subject string

// The subjects that are told apart.
const (
	OfDevice   Subject = "device"
	OfPort     Subject = "port"
	OfParam    Subject = "param"
	OfRate     Subject = "rate"
	OfReporter Subject = "health reporter"
	OfOther    Subject = "other"
)

// Event says that something of a device changed, came or went. A mode change is
// told by the ports that come and go, not by itself.
type Event struct {
	Handle  nic.Handle
	Port    *uint32 // nil: not of one port
	Subject Subject
	Gone    bool
}

// Monitor hears of changes of all devices (multicast group "config").
type Monitor struct{ m *netlink.Monitor }

// Listen starts a monitor in the calling thread's network namespace, which has to
// be the client's. ErrNoFamily while the kernel has no devlink.
func (c *Client) Listen() (*Monitor, error) {
	group, err := c.family.Group("config")
	if err != nil {
		return nil, err
	}
	m, err := netlink.Listen(unix.NETLINK_GENERIC, group)
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
	for _, m := range netlink.Messages(b) {
		if len(m) < netlink.GenlHeaderLen {
			continue
		}
		e := parseEvent(m[0], m[netlink.GenlHeaderLen:])
		if !e.Handle.IsZero() {
			out = append(out, e)
		}
	}
	return out
}

func parseEvent(command uint8, m []byte) Event {
	e := Event{Handle: parseHandle(m), Subject: OfOther}
	for k, v := range netlink.Attrs(m) {
		if n, ok := netlink.Uint(v); ok && k == nl.DEVLINK_ATTR_PORT_INDEX {
			port := uint32(n)
			e.Port = &port
		}
	}
	switch command {
	case unix.DEVLINK_CMD_NEW, unix.DEVLINK_CMD_DEL:
		e.Subject, e.Gone = OfDevice, command == unix.DEVLINK_CMD_DEL
	case unix.DEVLINK_CMD_PORT_NEW, unix.DEVLINK_CMD_PORT_DEL:
		e.Subject, e.Gone = OfPort, command == unix.DEVLINK_CMD_PORT_DEL
	case unix.DEVLINK_CMD_PARAM_NEW, unix.DEVLINK_CMD_PARAM_DEL:
		e.Subject, e.Gone = OfParam, command == unix.DEVLINK_CMD_PARAM_DEL
	case unix.DEVLINK_CMD_RATE_NEW, unix.DEVLINK_CMD_RATE_DEL:
		e.Subject, e.Gone = OfRate, command == unix.DEVLINK_CMD_RATE_DEL
	case unix.DEVLINK_CMD_HEALTH_REPORTER_RECOVER:
		e.Subject = OfReporter
	}
	return e
}
