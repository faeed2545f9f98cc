package rtnl

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// KindVeth is Link.Kind of both ends of a pair.
const KindVeth = "veth"

// vethInfoPeer is VETH_INFO_PEER (include/uapi/linux/veth.h): an ifinfomsg and the
// attributes of the other end.
const vethInfoPeer = 1

// AddVeth makes a pair: name here and peer in the namespace of the file descriptor,
// both down. EEXIST when either name is in use.
func (c Conn) AddVeth(name, peer string, netns int) error {
	other := netlink.Attr(vethInfoPeer, header(0).Serialize())
	other.AddChild(netlink.Text(unix.IFLA_IFNAME, peer))
	other.AddChild(netlink.Attr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(netns))))
	info := netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, KindVeth),
		netlink.Nest(unix.IFLA_INFO_DATA, other))
	return c.Do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, netlink.Text(unix.IFLA_IFNAME, name), info)
}
