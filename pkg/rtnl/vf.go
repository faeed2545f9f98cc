package rtnl

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// VF is what a PF's netdev says of one of its VFs (struct ifla_vf_*, if_link.h).
// nil is what its driver does not tell.
type VF struct {
	Index      int
	MAC        nic.MAC // administrative; zero: none set
	VLAN       VLAN
	Trust      *bool
	SpoofCheck *bool
	RSSQuery   *bool  // the VF may read its RSS settings
	LinkState  string // auto, enable, disable
	MinRate    int    // Mbit/s; 0: none guaranteed
	MaxRate    int    // Mbit/s; 0: no limit
	NodeGUID   uint64 // of an InfiniBand VF; 0: none set, or not told
	PortGUID   uint64 // of an InfiniBand VF; 0: none set, or not told
}

// VLAN is the tag that a VF's frames get; ID 0 is none.
type VLAN struct {
	ID       int
	QoS      int
	Protocol uint16 // ethertype; 0x8100 (802.1Q) unless the driver can 0x88a8
}

// VFChange is what to change of a VF; nil and "" are left as they are.
type VFChange struct {
	MAC        *nic.MAC
	VLAN       *VLAN // Protocol 0 is 802.1Q
	Rate       *Rate
	Trust      *bool
	SpoofCheck *bool
	RSSQuery   *bool
	LinkState  string
	NodeGUID   *uint64
	PortGUID   *uint64
}

// Rate is what a VF may send, in Mbit/s; 0 is none guaranteed, and no limit.
type Rate struct{ Min, Max int }

func linkStates() words { return words{"auto", "enable", "disable"} }

// ethertype of 802.1Q, which kernels tell for no VLAN as well.
const protocol8021Q = 0x8100

func parseVFs(list []byte) (out []VF) {
	for kind, v := range netlink.Attrs(list) {
		if kind != nl.IFLA_VF_INFO {
			continue
		}
		if f, ok := parseVF(v); ok {
			out = append(out, f)
		}
	}
	return out
}

func parseVF(b []byte) (f VF, ok bool) {
	for kind, v := range netlink.Attrs(b) {
		if kind == nl.IFLA_VF_VLAN_LIST {
			for kind, v := range netlink.Attrs(v) {
				if kind == nl.IFLA_VF_VLAN_INFO && len(v) >= 14 {
					f.VLAN.Protocol = binary.BigEndian.Uint16(v[12:])
				}
			}
			continue
		}
		// Everything else begins with the index and a number.
		if len(v) < 8 {
			continue
		}
		n := binary.NativeEndian.Uint32(v[4:])
		switch kind {
		case nl.IFLA_VF_MAC:
			if len(v) >= 4+len(f.MAC) {
				f.Index, ok = int(binary.NativeEndian.Uint32(v)), true
				f.MAC = nic.MAC(v[4:])
			}
		case nl.IFLA_VF_VLAN:
			f.VLAN.ID = int(n)
			if len(v) >= 12 {
				f.VLAN.QoS = int(binary.NativeEndian.Uint32(v[8:]))
			}
		case nl.IFLA_VF_RATE:
			f.MinRate = int(n)
			if len(v) >= 12 {
				f.MaxRate = int(binary.NativeEndian.Uint32(v[8:]))
			}
		case nl.IFLA_VF_SPOOFCHK:
			f.SpoofCheck = setting(n)
		case nl.IFLA_VF_TRUST:
			f.Trust = setting(n)
		case nl.IFLA_VF_RSS_QUERY_EN:
			f.RSSQuery = setting(n)
		case nl.IFLA_VF_LINK_STATE:
			f.LinkState = linkStates().of(v[4:8])
		case nl.IFLA_VF_IB_NODE_GUID:
			f.NodeGUID = guid(v)
		case nl.IFLA_VF_IB_PORT_GUID:
			f.PortGUID = guid(v)
		}
	}
	return f, ok
}

// setting reads a switch; all ones is a driver that does not tell
// (rtnl_fill_vfinfo).
func setting(n uint32) *bool {
	if n == ^uint32(0) {
		return nil
	}
	on := n != 0
	return &on
}

// guid reads a struct ifla_vf_guid, whose number begins on an 8-byte boundary.
func guid(v []byte) uint64 {
	if len(v) < 16 {
		return 0
	}
	return binary.NativeEndian.Uint64(v[8:])
}

// SetVF changes a VF through its PF's netdev, one thing after the other, so that a
// refusal is about the one that it names: the kernel gives no text for these. What
// was done before it stays. EOPNOTSUPP: the driver cannot, or not in its mode;
// EINVAL: there is no such VF.
func (c Conn) SetVF(pf, vf int, change VFChange) error {
	settings, err := change.settings(vf)
	if err != nil {
		return err
	}
	for _, s := range settings {
		err := c.Set(pf, netlink.Nest(unix.IFLA_VFINFO_LIST, netlink.Nest(nl.IFLA_VF_INFO, s.attr)))
		if err := failed(s.what, err); err != nil {
			return err
		}
	}
	return nil
}

type vfSetting struct {
	what string
	attr *nl.RtAttr
}

func (c VFChange) settings(vf int) (out []vfSetting, err error) {
	add := func(what string, kind int, numbers ...uint32) {
		b := nl.Uint32Attr(uint32(vf))
		for _, n := range numbers {
			b = append(b, nl.Uint32Attr(n)...)
		}
		out = append(out, vfSetting{what, netlink.Attr(kind, b)})
	}
	if c.MAC != nil { // struct ifla_vf_mac has room for 32 bytes
		b := append(nl.Uint32Attr(uint32(vf)), c.MAC[:]...)
		out = append(out, vfSetting{"MAC " + c.MAC.String(), netlink.Attr(nl.IFLA_VF_MAC, append(b, make([]byte, 32-len(c.MAC))...))})
	}
	if c.VLAN != nil {
		out = append(out, vfSetting{fmt.Sprintf("VLAN %d", c.VLAN.ID), c.VLAN.attr(vf)})
	}
	if c.Rate != nil {
		add(fmt.Sprintf("rate %d to %d Mbit/s", c.Rate.Min, c.Rate.Max), nl.IFLA_VF_RATE, uint32(c.Rate.Min), uint32(c.Rate.Max))
	}
	for _, s := range []struct {
		what string
		kind int
		on   *bool
	}{
		{"spoof check", nl.IFLA_VF_SPOOFCHK, c.SpoofCheck},
		{"trust", nl.IFLA_VF_TRUST, c.Trust},
		{"RSS query", nl.IFLA_VF_RSS_QUERY_EN, c.RSSQuery},
	} {
		if s.on != nil {
			n := uint32(0)
			if *s.on {
				n = 1
			}
			add(fmt.Sprintf("%s %v", s.what, *s.on), s.kind, n)
		}
	}
	if c.LinkState != "" {
		n, err := linkStates().number("link state", c.LinkState)
		if err != nil {
			return nil, err
		}
		add("link state "+c.LinkState, nl.IFLA_VF_LINK_STATE, uint32(n))
	}
	for _, g := range []struct {
		what string
		kind int
		guid *uint64
	}{{"node GUID", nl.IFLA_VF_IB_NODE_GUID, c.NodeGUID}, {"port GUID", nl.IFLA_VF_IB_PORT_GUID, c.PortGUID}} {
		if g.guid != nil {
			b := append(nl.Uint32Attr(uint32(vf)), 0, 0, 0, 0)
			out = append(out, vfSetting{fmt.Sprintf("%s %016x", g.what, *g.guid), netlink.Attr(g.kind, append(b, nl.Uint64Attr(*g.guid)...))})
		}
	}
	return out, nil
}

// attr encodes a struct ifla_vf_vlan_info: index, VLAN, priority, and the protocol
// in network order.
func (v VLAN) attr(vf int) *nl.RtAttr {
	protocol := v.Protocol
	if protocol == 0 {
		protocol = protocol8021Q
	}
	b := nl.Uint32Attr(uint32(vf))
	b = append(b, nl.Uint32Attr(uint32(v.ID))...)
	b = append(b, nl.Uint32Attr(uint32(v.QoS))...)
	b = binary.BigEndian.AppendUint16(b, protocol)
	return netlink.Nest(nl.IFLA_VF_VLAN_LIST, netlink.Attr(nl.IFLA_VF_VLAN_INFO, append(b, 0, 0)))
}
