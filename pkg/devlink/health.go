package devlink

import (
	"context"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Reporter is a health reporter of a device or of one of its ports
// (Documentation/networking/devlink/devlink-health.rst).
type Reporter struct {
	Handle     nic.Handle
	Port       *uint32 // nil: of the device
	Name       string
	State      string // healthy, error
	Errors     uint64 // since the driver was loaded
	Recoveries uint64
}

// Reporters lists those of all devices, in one request; none where the kernel has
// no devlink.
func (c *Client) Reporters(ctx context.Context) ([]Reporter, error) {
	return netlink.List(ctx, c.family, unix.DEVLINK_CMD_HEALTH_REPORTER_GET, parseReporter,
		func(r Reporter) bool { return !r.Handle.IsZero() && r.Name != "" })
}

func parseReporter(m []byte) Reporter {
	r := Reporter{Handle: parseHandle(m)}
	for k, v := range netlink.Attrs(m) {
		switch k {
		case nl.DEVLINK_ATTR_PORT_INDEX:
			if n, ok := netlink.Uint(v); ok {
				port := uint32(n)
				r.Port = &port
			}
		case unix.DEVLINK_ATTR_HEALTH_REPORTER:
			for k, v := range netlink.Attrs(v) {
				n, _ := netlink.Uint(v)
				switch k {
				case unix.DEVLINK_ATTR_HEALTH_REPORTER_NAME:
					r.Name = netlink.String(v)
				case unix.DEVLINK_ATTR_HEALTH_REPORTER_STATE:
					r.State = names{"healthy", "error"}.of(v)
				case unix.DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT:
					r.Errors = n
				case unix.DEVLINK_ATTR_HEALTH_REPORTER_RECOVER_COUNT:
					r.Recoveries = n
				}
			}
		}
	}
	return r
}
