package rtnl

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// Sizes is how large packets may be that an interface hands to its device to cut
// (GSO), and that are put together from received ones (GRO), in bytes. 0 is what
// an older kernel does not tell.
type Sizes struct {
	GSO, GRO         int // IPv6, and IPv4 before Linux 6.3
	GSOIPv4, GROIPv4 int // Linux 6.3
	TSO              int // the most that GSO and GSOIPv4 can be: the device's limit
}

func (s *Sizes) parse(kind int, v []byte) {
	switch kind {
	case unix.IFLA_GSO_MAX_SIZE:
		s.GSO = number(v)
	case unix.IFLA_GRO_MAX_SIZE:
		s.GRO = number(v)
	case unix.IFLA_GSO_IPV4_MAX_SIZE:
		s.GSOIPv4 = number(v)
	case unix.IFLA_GRO_IPV4_MAX_SIZE:
		s.GROIPv4 = number(v)
	case unix.IFLA_TSO_MAX_SIZE:
		s.TSO = number(v)
	}
}

// SetSizes sets those sizes that are not 0, all or none of them. GSO over TSO is
// EINVAL; a size that the kernel does not tell it does not take, and says nothing.
// A GSO or GRO of 64 KiB or less becomes IPv4's, too (netif_set_gso_max_size). The
// kernel looks at IPv6's first (do_setlink), so one request does what two in the
// wrong order undo.
func (c Conn) SetSizes(ifindex int, s Sizes) error {
	var attrs []*nl.RtAttr
	for kind, n := range map[int]int{
		unix.IFLA_GSO_MAX_SIZE: s.GSO, unix.IFLA_GRO_MAX_SIZE: s.GRO,
		unix.IFLA_GSO_IPV4_MAX_SIZE: s.GSOIPv4, unix.IFLA_GRO_IPV4_MAX_SIZE: s.GROIPv4,
	} {
		if n != 0 {
			attrs = append(attrs, netlink.Attr(kind, nl.Uint32Attr(uint32(n))))
		}
	}
	return c.Set(ifindex, attrs...)
}
