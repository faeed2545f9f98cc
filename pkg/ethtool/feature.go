package ethtool

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// TCOffload is the feature that lets tc rules go into the hardware.
const TCOffload = "hw-tc-offload"

// Feature is a switch of an interface.
type Feature struct {
	On     bool
	Wanted bool // somebody asked for it; it may be off all the same
	Fixed  bool // it cannot be switched
}

// Features reads the feature of that name of all interfaces, by ifindex; none
// when the kernel has no such feature.
func (c *Client) Features(ctx context.Context, name string) (map[int]Feature, error) {
	bit, err := c.bit(name)
	if err != nil || bit < 0 {
		return nil, err
	}
	return list(ctx, c, unix.ETHTOOL_MSG_FEATURES_GET, func(m []byte) (int, Feature) { return parseFeature(m, bit) })
}

// Feature reads one feature of one interface; EOPNOTSUPP when the kernel has none
// of that name.
func (c *Client) Feature(ifindex int, name string) (Feature, error) {
	bit, err := c.bit(name)
	if err != nil {
		return Feature{}, err
	}
	if bit < 0 {
		return Feature{}, fmt.Errorf("the kernel has no feature %q: %w", name, unix.EOPNOTSUPP)
	}
	return one(c, unix.ETHTOOL_MSG_FEATURES_GET, ifindex, func(m []byte) (int, Feature) { return parseFeature(m, bit) })
}

// SetFeature switches a feature, and looks whether that was done: the kernel calls
// it success when the driver refuses, too, and keeps the reason to its log
// (__netdev_update_features). EOPNOTSUPP: it is fixed; EBUSY: the driver refused,
// as mlx5 does while rules are offloaded.
func (c *Client) SetFeature(ifindex int, name string, on bool) error {
	value := []*nl.RtAttr{netlink.Text(unix.ETHTOOL_A_BITSET_BIT_NAME, name)}
	if on {
		value = append(value, netlink.Attr(unix.ETHTOOL_A_BITSET_BIT_VALUE, nil))
	}
	_, err := c.family.Set(unix.ETHTOOL_MSG_FEATURES_SET, header(ifindex, unix.ETHTOOL_FLAG_OMIT_REPLY),
		netlink.Nest(unix.ETHTOOL_A_FEATURES_WANTED, netlink.Nest(unix.ETHTOOL_A_BITSET_BITS,
			netlink.Nest(unix.ETHTOOL_A_BITSET_BITS_BIT, value...))))
	if err != nil {
		return err
	}
	switch f, err := c.Feature(ifindex, name); {
	case err != nil:
		return err
	case f.On == on:
		return nil
	case f.Fixed:
		return fmt.Errorf("%s is fixed: %w", name, unix.EOPNOTSUPP)
	}
	return fmt.Errorf("the driver refused to switch %s, see the kernel's log: %w", name, unix.EBUSY)
}

// bit gives the number of a feature, -1 when the kernel has none of that name.
// Numbers differ from kernel to kernel; asking for them once makes all answers a
// tenth of their size.
func (c *Client) bit(name string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.features == nil {
		const setFeatures = 4 // ETH_SS_FEATURES
		m, err := c.family.Get(unix.ETHTOOL_MSG_STRSET_GET, header(0, 0),
			netlink.Nest(unix.ETHTOOL_A_STRSET_STRINGSETS, netlink.Nest(unix.ETHTOOL_A_STRINGSETS_STRINGSET,
				netlink.Attr(unix.ETHTOOL_A_STRINGSET_ID, nl.Uint32Attr(setFeatures)))))
		if err != nil {
			return 0, fmt.Errorf("list the names of features: %w", err)
		}
		c.features = parseStrings(m)
	}
	return slices.Index(c.features, name), nil
}

// parseStrings reads the one string set of an answer.
func parseStrings(m []byte) (out []string) {
	for v := range each(m, unix.ETHTOOL_A_STRSET_STRINGSETS, unix.ETHTOOL_A_STRINGSETS_STRINGSET,
		unix.ETHTOOL_A_STRINGSET_STRINGS, unix.ETHTOOL_A_STRINGS_STRING) {
		index, text := -1, ""
		for k, v := range netlink.Attrs(v) {
			switch k {
			case unix.ETHTOOL_A_STRING_INDEX:
				if n, ok := netlink.Uint(v); ok && n < maxStrings {
					index = int(n)
				}
			case unix.ETHTOOL_A_STRING_VALUE:
				text = netlink.String(v)
			}
		}
		if index < 0 {
			continue
		}
		for len(out) <= index {
			out = append(out, "")
		}
		out[index] = text
	}
	return out
}

// maxStrings is more than any set has.
const maxStrings = 4096

func parseFeature(m []byte, bit int) (ifindex int, f Feature) {
	f.Fixed = true
	for k, v := range netlink.Attrs(m) {
		switch k {
		case attrHeader:
			ifindex = parseHeader(v)
		case unix.ETHTOOL_A_FEATURES_HW:
			f.Fixed = f.Fixed && !hasBit(v, bit)
		case unix.ETHTOOL_A_FEATURES_WANTED:
			f.Wanted = hasBit(v, bit)
		case unix.ETHTOOL_A_FEATURES_ACTIVE:
			f.On = hasBit(v, bit)
		}
	}
	return ifindex, f
}

// hasBit looks into a compact bit set: words of 32 bits in the machine's order.
func hasBit(set []byte, bit int) bool {
	for k, v := range netlink.Attrs(set) {
		if word := bit / 32 * 4; k == unix.ETHTOOL_A_BITSET_VALUE && len(v) >= word+4 {
			return binary.NativeEndian.Uint32(v[word:])>>(bit%32)&1 != 0
		}
	}
	return false
}

// each walks the attributes at the end of a path of nests.
func each(b []byte, path ...int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) { walk(b, path, yield) }
}

func walk(b []byte, path []int, yield func([]byte) bool) bool {
	if len(path) == 0 {
		return yield(b)
	}
	for k, v := range netlink.Attrs(b) {
		if k == path[0] && !walk(v, path[1:], yield) {
			return false
		}
	}
	return true
}
