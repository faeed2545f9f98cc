package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Link is one interface.
type Link struct {
	Ifindex  int
	Name     string
	AltNames []string
	Type     uint16  // ARPHRD_*: 1 Ethernet, 32 InfiniBand
	MAC      nic.MAC // zero when the address has not six bytes
	MTU      int     // bytes
	Up       bool
	Promisc  bool // IFF_PROMISC or IFF_ALLMULTI, by somebody's wish (dev_get_flags)
	Carrier  bool
	Pinned   bool   // the kernel says that it cannot leave its network namespace (from Linux 6.15)
	Master   int    // ifindex of bridge, bond or OVS; 0 none
	Lower    int    // ifindex of what it is built on: of a VLAN, say; 0 none
	Kind     string // "" for a physical one
	Alias    string // what somebody wrote of it

	// The device that it is a port of ("pci", "0000:03:00.0"); "" for software
	// interfaces, and for all before Linux 5.14.
	ParentBus, Parent string

	PortName string // phys_port_name; "" when absent or empty
	SwitchID nic.SwitchID
	Sizes    Sizes
	Bond     *Bond   // of a bond
	Member   *Member // of a member of a bond
	VFs      []VF    // of a PF, in the driver's order
}

// iflaNetnsImmutable is IFLA_NETNS_IMMUTABLE of linux/if_link.h.
const iflaNetnsImmutable = 67

// parseLink reads an RTM_NEWLINK message; ok says that it is about an interface
// with a name.
func parseLink(m []byte) (l Link, ok bool) {
	if len(m) < unix.SizeofIfInfomsg {
		return l, false
	}
	// struct ifinfomsg: family, pad, type (2), index (4), flags (4), change (4)
	l.Type = binary.NativeEndian.Uint16(m[2:])
	l.Ifindex = int(int32(binary.NativeEndian.Uint32(m[4:])))
	flags := binary.NativeEndian.Uint32(m[8:])
	l.Up, l.Promisc = flags&unix.IFF_UP != 0, flags&(unix.IFF_PROMISC|unix.IFF_ALLMULTI) != 0
	elsewhere := false
	for kind, v := range netlink.Attrs(m[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = netlink.String(v)
		case unix.IFLA_IFALIAS:
			l.Alias = netlink.String(v)
		case unix.IFLA_LINK:
			l.Lower = number(v)
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_ADDRESS:
			if len(v) == len(l.MAC) {
				l.MAC = nic.MAC(v)
			}
		case unix.IFLA_MTU:
			l.MTU = number(v)
		case unix.IFLA_CARRIER:
			l.Carrier = number(v) != 0
		case iflaNetnsImmutable:
			l.Pinned = number(v) != 0
		case unix.IFLA_MASTER:
			l.Master = number(v)
		case unix.IFLA_PHYS_PORT_NAME:
			l.PortName = netlink.String(v)
		case unix.IFLA_PHYS_SWITCH_ID:
			l.SwitchID = nic.SwitchIDOf(v)
		case unix.IFLA_PARENT_DEV_NAME:
			l.Parent = netlink.String(v)
		case unix.IFLA_PARENT_DEV_BUS_NAME:
			l.ParentBus = netlink.String(v)
		case unix.IFLA_LINKINFO:
			l.parseInfo(v)
		case unix.IFLA_PROP_LIST:
			for kind, v := range netlink.Attrs(v) {
				if kind == unix.IFLA_ALT_IFNAME {
					l.AltNames = append(l.AltNames, netlink.String(v))
				}
			}
		case unix.IFLA_VFINFO_LIST:
			l.VFs = parseVFs(v)
		default:
			l.Sizes.parse(kind, v)
		}
	}
	// A pair's other end is no lower one, and an ifindex of another namespace says
	// nothing here.
	if elsewhere || l.Kind == "veth" || l.Kind == "netkit" || l.Lower == l.Ifindex {
		l.Lower = 0
	}
	return l, l.Ifindex > 0 && l.Name != ""
}

func (l *Link) parseInfo(b []byte) {
	var memberKind string
	var data, memberData []byte
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.Kind = netlink.String(v)
		case unix.IFLA_INFO_DATA:
			data = v
		case unix.IFLA_INFO_SLAVE_KIND:
			memberKind = netlink.String(v)
		case unix.IFLA_INFO_SLAVE_DATA:
			memberData = v
		}
	}
	if l.Kind == kindBond {
		bond := parseBond(data)
		l.Bond = &bond
	}
	if memberKind == kindBond {
		member := parseMember(memberData)
		l.Member = &member
	}
}

// number reads a number; 0 when it is none.
func number(b []byte) int {
	n, _ := netlink.Uint(b)
	return int(n)
}
