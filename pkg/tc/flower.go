package tc

import (
	"fmt"

	"sluice.dev/sluice/pkg/netlink"
)

// Attributes of a flower rule that are not match keys (TCA_FLOWER_*).
const (
	flowerClassID   = 1
	flowerAct       = 3
	flowerFlags     = 22
	flowerInHWCount = 86
)

// key is one match key of flower: its name in tc, the attribute that holds its
// mask (0: none) and how to write it.
type key struct {
	name string
	mask int
	show show
}

// flowerKeys by attribute (TCA_FLOWER_KEY_*, pkt_cls.h).
var flowerKeys = map[int]key{
	2:   {"indev", 0, text},
	4:   {"dst_mac", 5, mac},
	6:   {"src_mac", 7, mac},
	8:   {"eth_type", 0, etherType},
	9:   {"ip_proto", 0, ipProto},
	10:  {"src_ip", 11, ip},
	12:  {"dst_ip", 13, ip},
	14:  {"src_ip", 15, ip},
	16:  {"dst_ip", 17, ip},
	18:  {"src_port", 35, big}, // TCP
	19:  {"dst_port", 36, big},
	20:  {"src_port", 37, big}, // UDP
	21:  {"dst_port", 38, big},
	23:  {"vlan_id", 0, host}, // in the machine's order: cls_flower.c, fl_dump_key_vlan
	24:  {"vlan_prio", 0, host},
	25:  {"vlan_ethtype", 0, etherType},
	26:  {"enc_key_id", 0, big},
	27:  {"enc_src_ip", 28, ip},
	29:  {"enc_dst_ip", 30, ip},
	31:  {"enc_src_ip", 32, ip},
	33:  {"enc_dst_ip", 34, ip},
	41:  {"src_port", 39, big}, // SCTP
	42:  {"dst_port", 40, big},
	43:  {"enc_src_port", 44, big},
	45:  {"enc_dst_port", 46, big},
	47:  {"ip_flags", 48, ipFlags},
	49:  {"icmp_code", 50, host},
	51:  {"icmp_type", 52, host},
	53:  {"icmp_code", 54, host}, // ICMPv6
	55:  {"icmp_type", 56, host},
	57:  {"arp_sip", 58, ip},
	59:  {"arp_tip", 60, ip},
	61:  {"arp_op", 62, host},
	63:  {"arp_sha", 64, mac},
	65:  {"arp_tha", 66, mac},
	67:  {"mpls_ttl", 0, host},
	68:  {"mpls_bos", 0, host},
	69:  {"mpls_tc", 0, host},
	70:  {"mpls_label", 0, host},
	71:  {"tcp_flags", 72, bigHex},
	73:  {"ip_tos", 74, hostHex},
	75:  {"ip_ttl", 76, host},
	77:  {"cvlan_id", 0, host},
	78:  {"cvlan_prio", 0, host},
	79:  {"cvlan_ethtype", 0, etherType},
	80:  {"enc_tos", 81, hostHex},
	82:  {"enc_ttl", 83, host},
	84:  {"enc_opts", 85, tunnelOptions},
	87:  {"src_port_min", 0, big},
	88:  {"src_port_max", 0, big},
	89:  {"dst_port_min", 0, big},
	90:  {"dst_port_max", 0, big},
	91:  {"ct_state", 92, ctState},
	93:  {"ct_zone", 94, host},
	95:  {"ct_mark", 96, hostHex},
	97:  {"ct_label", 98, raw},
	99:  {"mpls", 0, raw},
	100: {"hash", 101, hostHex},
	102: {"num_of_vlans", 0, host},
	103: {"pppoe_sid", 0, big},
	104: {"ppp_proto", 0, etherType},
	105: {"l2tpv3_sid", 0, big},
	106: {"l2_miss", 0, host},
	107: {"cfm", 0, raw},
	108: {"spi", 109, bigHex},
	110: {"enc_flags", 111, ipFlags},
}

// flowerMatch reads the match keys, in the kernel's order.
func flowerMatch(options []byte) []Param {
	byKind := map[int][]byte{}
	for kind, b := range netlink.Attrs(options) {
		byKind[kind] = b
	}
	masks := map[int]bool{}
	for kind := range byKind {
		masks[flowerKeys[kind].mask] = true
	}
	var out []Param
	for kind, b := range netlink.Attrs(options) {
		switch kind {
		case 0, flowerClassID, flowerAct, flowerFlags, flowerInHWCount:
			continue
		}
		k, known := flowerKeys[kind]
		switch {
		case known:
			out = append(out, Param{k.name, k.show(b, byKind[k.mask])})
		case !masks[kind]:
			out = append(out, Param{fmt.Sprintf("key_%d", kind), raw(b, nil)})
		}
	}
	return out
}
