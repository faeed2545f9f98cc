package rtnl

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// message makes what the kernel sends of an interface.
func message(attrs ...*nl.RtAttr) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint16(b[2:], unix.ARPHRD_ETHER)
	binary.NativeEndian.PutUint32(b[4:], 7)
	binary.NativeEndian.PutUint32(b[8:], unix.IFF_UP)
	for _, a := range attrs {
		b = append(b, a.Serialize()...)
	}
	return b
}

func name(s string) *nl.RtAttr          { return netlink.Text(unix.IFLA_IFNAME, s) }
func u8(kind int, v uint8) *nl.RtAttr   { return netlink.Attr(kind, nl.Uint8Attr(v)) }
func u16(kind int, v uint16) *nl.RtAttr { return netlink.Attr(kind, nl.Uint16Attr(v)) }
func u32(kind int, v uint32) *nl.RtAttr { return netlink.Attr(kind, nl.Uint32Attr(v)) }
func is[T any](v T) *T                  { return &v }

// words32 is a struct of 32-bit numbers.
func words32(kind int, numbers ...uint32) *nl.RtAttr {
	var b []byte
	for _, n := range numbers {
		b = append(b, nl.Uint32Attr(n)...)
	}
	return netlink.Attr(kind, b)
}

func mac(vf uint32, m nic.MAC) *nl.RtAttr {
	return netlink.Attr(nl.IFLA_VF_MAC, slices.Concat(nl.Uint32Attr(vf), m[:], make([]byte, 26)))
}

// What mlx5 says of a VF in legacy mode: everything, and RSS query as not told.
func ethernetVF() *nl.RtAttr {
	const v = 3
	return netlink.Nest(nl.IFLA_VF_INFO, mac(v, nic.MAC{2, 9}),
		netlink.Attr(nl.IFLA_VF_STATS_BROADCAST+100, nil),
		words32(nl.IFLA_VF_VLAN, v, 100, 5), words32(nl.IFLA_VF_RATE, v, 10, 1000), words32(nl.IFLA_VF_TX_RATE, v, 1000),
		words32(nl.IFLA_VF_SPOOFCHK, v, 1), words32(nl.IFLA_VF_LINK_STATE, v, 2), words32(nl.IFLA_VF_RSS_QUERY_EN, v, ^uint32(0)),
		words32(nl.IFLA_VF_TRUST, v, 0),
		netlink.Nest(nl.IFLA_VF_VLAN_LIST, netlink.Attr(nl.IFLA_VF_VLAN_INFO, slices.Concat(
			nl.Uint32Attr(v), nl.Uint32Attr(100), nl.Uint32Attr(5), []byte{0x88, 0xa8, 0, 0}))))
}

func infinibandVF() *nl.RtAttr {
	guid := func(kind int, n uint64) *nl.RtAttr {
		return netlink.Attr(kind, slices.Concat(nl.Uint32Attr(4), make([]byte, 4), nl.Uint64Attr(n)))
	}
	return netlink.Nest(nl.IFLA_VF_INFO, mac(4, nic.MAC{}), words32(nl.IFLA_VF_LINK_STATE, 4, 0),
		words32(nl.IFLA_VF_SPOOFCHK, 4, ^uint32(0)), words32(nl.IFLA_VF_TRUST, 4, ^uint32(0)),
		guid(nl.IFLA_VF_IB_NODE_GUID, 0x0011223344556677), guid(nl.IFLA_VF_IB_PORT_GUID, 0x0011223344556678))
}

func uplink() []byte {
	return message(name("eth0"), netlink.Attr(unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, 1}), u32(unix.IFLA_MTU, 1500),
		u8(unix.IFLA_CARRIER, 1), netlink.Text(unix.IFLA_PHYS_PORT_NAME, "p0"),
		netlink.Attr(unix.IFLA_PHYS_SWITCH_ID, []byte{0xab, 0xcd}), u32(unix.IFLA_MASTER, 3),
		netlink.Text(unix.IFLA_PARENT_DEV_NAME, "0000:03:00.0"), netlink.Text(unix.IFLA_PARENT_DEV_BUS_NAME, "pci"),
		netlink.Nest(unix.IFLA_PROP_LIST, netlink.Text(unix.IFLA_ALT_IFNAME, "enp3s0f0np0")),
		u32(unix.IFLA_GSO_MAX_SIZE, 65536), u32(unix.IFLA_GRO_MAX_SIZE, 65535), u32(unix.IFLA_GSO_IPV4_MAX_SIZE, 65534),
		u32(unix.IFLA_GRO_IPV4_MAX_SIZE, 65533), u32(unix.IFLA_TSO_MAX_SIZE, 524280),
		netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_SLAVE_KIND, "bond"), netlink.Nest(unix.IFLA_INFO_SLAVE_DATA,
			u8(nl.IFLA_BOND_SLAVE_STATE, 0), u8(nl.IFLA_BOND_SLAVE_MII_STATUS, 2),
			netlink.Attr(nl.IFLA_BOND_SLAVE_PERM_HWADDR, []byte{2, 0, 0, 0, 0, 9}), u16(nl.IFLA_BOND_SLAVE_AD_AGGREGATOR_ID, 2))),
		netlink.Nest(unix.IFLA_VFINFO_LIST, ethernetVF(), infinibandVF()), u8(4000, 1))
}

func bond() []byte {
	return message(name("bond0"), netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "bond"), netlink.Nest(unix.IFLA_INFO_DATA,
		u8(nl.IFLA_BOND_MODE, 4), u32(nl.IFLA_BOND_MIIMON, 100), u8(nl.IFLA_BOND_XMIT_HASH_POLICY, 1), u8(nl.IFLA_BOND_AD_LACP_RATE, 1),
		netlink.Nest(nl.IFLA_BOND_AD_INFO, u16(nl.IFLA_BOND_AD_INFO_AGGREGATOR, 2), u16(nl.IFLA_BOND_AD_INFO_NUM_PORTS, 2),
			u16(nl.IFLA_BOND_AD_INFO_ACTOR_KEY, 15), u16(nl.IFLA_BOND_AD_INFO_PARTNER_KEY, 16),
			netlink.Attr(nl.IFLA_BOND_AD_INFO_PARTNER_MAC, []byte{2, 0, 0, 0, 0, 5})))))
}

func TestLink(t *testing.T) {
	for what, c := range map[string]struct {
		in   []byte
		want Link
	}{
		"an uplink in a bond": {uplink(), Link{
			Ifindex: 7, Name: "eth0", AltNames: []string{"enp3s0f0np0"}, Type: unix.ARPHRD_ETHER, MAC: nic.MAC{2, 0, 0, 0, 0, 1},
			MTU: 1500, Up: true, Carrier: true, Master: 3, ParentBus: "pci", Parent: "0000:03:00.0", PortName: "p0", SwitchID: "abcd",
			Sizes:  Sizes{GSO: 65536, GRO: 65535, GSOIPv4: 65534, GROIPv4: 65533, TSO: 524280},
			Member: &Member{Active: true, MAC: []byte{2, 0, 0, 0, 0, 9}, Aggregator: 2},
			VFs: []VF{
				{Index: 3, MAC: nic.MAC{2, 9}, VLAN: VLAN{ID: 100, QoS: 5, Protocol: 0x88a8}, Trust: is(false), SpoofCheck: is(true),
					LinkState: "disable", MinRate: 10, MaxRate: 1000},
				{Index: 4, LinkState: "auto", NodeGUID: 0x0011223344556677, PortGUID: 0x0011223344556678},
			},
		}},
		"a bond": {bond(), Link{
			Ifindex: 7, Name: "bond0", Type: unix.ARPHRD_ETHER, Up: true, Kind: "bond",
			Bond: &Bond{Mode: "802.3ad", MIIMon: 100, HashBy: "layer3+4", LACPRate: "fast",
				AD: &AD{Aggregator: 2, Ports: 2, ActorKey: 15, PartnerKey: 16, Partner: nic.MAC{2, 0, 0, 0, 0, 5}}},
		}},
		"a bond of a mode to come": {
			message(name("b"), netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "bond"), netlink.Nest(unix.IFLA_INFO_DATA,
				u8(nl.IFLA_BOND_MODE, 9), u32(nl.IFLA_BOND_ACTIVE_SLAVE, 4)))),
			Link{Ifindex: 7, Name: "b", Type: unix.ARPHRD_ETHER, Up: true, Kind: "bond", Bond: &Bond{Mode: "9", Active: 4}},
		},
		// InfiniBand's addresses have 20 bytes, and parents may be on other buses.
		"a subfunction": {
			message(name("ib0"), netlink.Attr(unix.IFLA_ADDRESS, make([]byte, 20)),
				netlink.Text(unix.IFLA_PARENT_DEV_NAME, "mlx5_core.sf.2"), netlink.Text(unix.IFLA_PARENT_DEV_BUS_NAME, "auxiliary")),
			Link{Ifindex: 7, Name: "ib0", Type: unix.ARPHRD_ETHER, Up: true, ParentBus: "auxiliary", Parent: "mlx5_core.sf.2"},
		},
		"a VLAN": {
			message(name("e.7"), u32(unix.IFLA_LINK, 3), netlink.Text(unix.IFLA_IFALIAS, "storage"), netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "vlan"))),
			Link{Ifindex: 7, Name: "e.7", Alias: "storage", Type: unix.ARPHRD_ETHER, Up: true, Kind: "vlan", Lower: 3},
		},
		"a VLAN of another namespace's": {
			message(name("e.7"), u32(unix.IFLA_LINK, 3), u32(unix.IFLA_LINK_NETNSID, 0), netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "vlan"))),
			Link{Ifindex: 7, Name: "e.7", Type: unix.ARPHRD_ETHER, Up: true, Kind: "vlan"},
		},
		"one end of a pair": {
			message(name("a"), u32(unix.IFLA_LINK, 3), netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_KIND, "veth"))),
			Link{Ifindex: 7, Name: "a", Type: unix.ARPHRD_ETHER, Up: true, Kind: "veth"},
		},
		"a member of a bridge": {
			message(name("e"), netlink.Nest(unix.IFLA_LINKINFO, netlink.Text(unix.IFLA_INFO_SLAVE_KIND, "bridge"), netlink.Nest(unix.IFLA_INFO_SLAVE_DATA, u8(1, 1)))),
			Link{Ifindex: 7, Name: "e", Type: unix.ARPHRD_ETHER, Up: true},
		},
	} {
		got, ok := parseLink(c.in)
		if d := cmp.Diff(c.want, got); d != "" || !ok {
			t.Errorf("%s: %v, want (-), got (+):\n%s", what, ok, d)
		}
	}
	if _, ok := parseLink(message()); ok {
		t.Error("an interface without a name")
	}
}

// What is sent is read back as it was meant.
func TestVFChange(t *testing.T) {
	change := VFChange{
		MAC: &nic.MAC{2, 1}, VLAN: &VLAN{ID: 7, QoS: 1}, Rate: &Rate{5, 50}, Trust: is(true), SpoofCheck: is(false), RSSQuery: is(true),
		LinkState: "enable", NodeGUID: is(uint64(0x1122334455667788)), PortGUID: is(uint64(1)),
	}
	settings, err := change.settings(2)
	if err != nil {
		t.Fatal(err)
	}
	var attrs []*nl.RtAttr
	for _, s := range settings {
		if s.what == "" {
			t.Errorf("attribute %d has no words", s.attr.Type)
		}
		attrs = append(attrs, s.attr)
	}
	// The kernel tells the VLAN twice, as the older struct too.
	attrs = append(attrs, words32(nl.IFLA_VF_VLAN, 2, 7, 1))
	got := parseVFs(netlink.Nest(1, attrs...).Serialize())
	want := []VF{{
		Index: 2, MAC: nic.MAC{2, 1}, VLAN: VLAN{ID: 7, QoS: 1, Protocol: 0x8100}, MinRate: 5, MaxRate: 50, Trust: is(true), SpoofCheck: is(false),
		RSSQuery: is(true), LinkState: "enable", NodeGUID: 0x1122334455667788, PortGUID: 1,
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if s, err := (VFChange{}).settings(0); err != nil || len(s) != 0 {
		t.Errorf("no change is %v, %v", s, err)
	}
	if _, err := (VFChange{LinkState: "up"}).settings(0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("link state up: %v", err)
	}
}

func TestBondChange(t *testing.T) {
	attrs, err := BondChange{Mode: "balance-xor", MIIMon: is(100), HashBy: "layer2+3", LACPRate: "slow", Active: 9}.attrs()
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, a := range attrs {
		b = append(b, a.Serialize()...)
	}
	want := Bond{Mode: "balance-xor", MIIMon: 100, HashBy: "layer2+3", LACPRate: "slow", Active: 9}
	if d := cmp.Diff(want, parseBond(b)); d != "" {
		t.Errorf("sent (-), read (+):\n%s", d)
	}
	for _, c := range []BondChange{{Mode: "lacp"}, {HashBy: "l4"}, {LACPRate: "1s"}} {
		if _, err := c.attrs(); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func FuzzLink(f *testing.F) {
	f.Add(uplink())
	f.Add(bond())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := parseLink(b)
		if ok && (l.Name == "" || l.Ifindex <= 0) {
			t.Errorf("%+v", l)
		}
		if l.Bond != nil && l.Kind != "bond" {
			t.Errorf("a %s is a bond", l.Kind)
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, kind := range []uint16{unix.RTM_NEWLINK, unix.RTM_DELADDR, unix.RTM_NEWROUTE} {
		f.Add((&nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: kind}, RawData: uplink()}).Serialize())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range parseEvents(b) {
			if e.Subject == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}
