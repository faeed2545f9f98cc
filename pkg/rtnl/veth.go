package rtnl

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// KindVeth and KindNetkit are Link.Kind of both ends of a pair.
const (
	KindVeth   = "veth"
	KindNetkit = "netkit"
)

// Attributes of a pair's IFLA_INFO_DATA: the other end, as an ifinfomsg and attributes
// (VETH_INFO_PEER, include/uapi/linux/veth.h), and of netkit the mode
// (include/uapi/linux/if_link.h).
const (
	vethInfoPeer   = 1
	netkitPeerInfo = 1 // IFLA_NETKIT_PEER_INFO
	netkitMode     = 5 // IFLA_NETKIT_MODE
	netkitL2       = 0 // NETKIT_L2: Ethernet, as a bridge wants
)

// AddPair makes a pair of a kind: name here and peer in the namespace of the file
// descriptor, both down. EEXIST when either name is in use, EOPNOTSUPP when the kernel
// has no such kind. Of netkit the end here is the primary one.
func (c Conn) AddPair(kind, name, peer string, netns int) error {
	attr := vethInfoPeer
	if kind == KindNetkit {
		attr = netkitPeerInfo
	}
	other := netlink.Attr(attr, header(0).Serialize())
	other.AddChild(netlink.Text(unix.IFLA_IFNAME, peer))
	other.AddChild(netlink.Attr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(netns))))
	data := netlink.Nest(unix.IFLA_INFO_DATA, other)
	if kind == KindNetkit {
		data.AddChild(netlink.Attr(netkitMode, nl.Uint32Attr(netkitL2)))
	}
	info := netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, kind), data)
	return c.Do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, netlink.Text(unix.IFLA_IFNAME, name), info)
}
