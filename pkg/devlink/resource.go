package devlink

import (
	"github.com/vishvananda/netlink/nl"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Resources reads the sizes of a device's own resources by name
// (Documentation/networking/devlink/devlink-resource.rst), such as mlx5's
// max_local_SFs; EOPNOTSUPP when its driver has none.
func (c *Client) Resources(h nic.Handle) (map[string]uint64, error) {
	m, err := c.one(nl.DEVLINK_CMD_RESOURCE_DUMP, h)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for kind, list := range netlink.Attrs(m) {
		if kind != nl.DEVLINK_ATTR_RESOURCE_LIST {
			continue
		}
		for _, r := range netlink.Attrs(list) {
			if name, size, ok := parseResource(r); ok {
				out[name] = size
			}
		}
	}
	return out, nil
}

func parseResource(b []byte) (name string, size uint64, ok bool) {
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case nl.DEVLINK_ATTR_RESOURCE_NAME:
			name = netlink.String(v)
		case nl.DEVLINK_ATTR_RESOURCE_SIZE:
			size, ok = netlink.Uint(v)
		}
	}
	return name, size, ok && name != ""
}
