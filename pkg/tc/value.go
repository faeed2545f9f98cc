package tc

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/netlink"
)

// show writes a value with its mask; a nil mask means that every bit counts.
type show func(value, mask []byte) string

func raw(value, mask []byte) string {
	return withMask(hex.EncodeToString(value), hex.EncodeToString(mask), mask)
}

// withMask leaves out a mask of ones only.
func withMask(value, maskText string, mask []byte) string {
	for _, b := range mask {
		if b != 0xff {
			return value + "/" + maskText
		}
	}
	return value
}

func mac(value, mask []byte) string {
	return withMask(net.HardwareAddr(value).String(), net.HardwareAddr(mask).String(), mask)
}

func ip(value, mask []byte) string {
	a, ok := netip.AddrFromSlice(value)
	if !ok {
		return raw(value, mask)
	}
	if mask == nil {
		return a.String()
	}
	ones, contiguous := 0, true
	for i, b := range mask {
		n := bits.LeadingZeros8(^b)
		contiguous = contiguous && bits.OnesCount8(b) == n && (n == 0 || ones == 8*i)
		ones += n
	}
	switch m, _ := netip.AddrFromSlice(mask); {
	case !contiguous:
		return a.String() + "/" + m.String()
	case ones == 8*len(value):
		return a.String()
	}
	return a.String() + "/" + strconv.Itoa(ones)
}

// big is a number in network order.
func big(value, mask []byte) string {
	return withMask(strconv.FormatUint(bigUint(value), 10), fmt.Sprintf("%#x", bigUint(mask)), mask)
}

func bigHex(value, mask []byte) string {
	return withMask(fmt.Sprintf("%#x", bigUint(value)), fmt.Sprintf("%#x", bigUint(mask)), mask)
}

func bigUint(b []byte) (n uint64) {
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}

// host is a number in the machine's order.
func host(value, mask []byte) string {
	v, ok := netlink.Uint(value)
	if !ok {
		return raw(value, mask)
	}
	m, _ := netlink.Uint(mask)
	return withMask(strconv.FormatUint(v, 10), fmt.Sprintf("%#x", m), mask)
}

func hostHex(value, mask []byte) string {
	v, ok := netlink.Uint(value)
	if !ok {
		return raw(value, mask)
	}
	m, _ := netlink.Uint(mask)
	return withMask(fmt.Sprintf("%#x", v), fmt.Sprintf("%#x", m), mask)
}

func text(value, _ []byte) string { return strings.ToValidUTF8(netlink.String(value), "?") }

func etherType(value, mask []byte) string {
	if len(value) != 2 {
		return raw(value, mask)
	}
	return etherName(binary.BigEndian.Uint16(value))
}

// etherName is tc's word for an EtherType.
func etherName(t uint16) string {
	switch t {
	case 0x0003:
		return "all"
	case 0x0800:
		return "ip"
	case 0x0806:
		return "arp"
	case 0x86dd:
		return "ipv6"
	case 0x8100:
		return "802.1Q"
	case 0x88a8:
		return "802.1ad"
	case 0x8847:
		return "mpls_uc"
	case 0x88cc:
		return "lldp"
	}
	return fmt.Sprintf("0x%04x", t)
}

func ipProto(value, mask []byte) string {
	if len(value) != 1 {
		return raw(value, mask)
	}
	switch value[0] {
	case 1:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 47:
		return "gre"
	case 50:
		return "esp"
	case 58:
		return "icmpv6"
	case 132:
		return "sctp"
	}
	return strconv.Itoa(int(value[0]))
}

// signs writes the bits that the mask covers as +name or -name.
func signs(value, mask uint64, names ...string) string {
	var b strings.Builder
	for i, n := range names {
		if bit := uint64(1) << i; mask&bit != 0 {
			b.WriteByte("-+"[value&bit>>i])
			b.WriteString(n)
			value, mask = value&^bit, mask&^bit
		}
	}
	if mask != 0 {
		fmt.Fprintf(&b, "+%#x/%#x", value, mask)
	}
	return b.String()
}

// ctState: TCA_FLOWER_KEY_CT_FLAGS_*.
func ctState(value, mask []byte) string {
	v, ok := netlink.Uint(value)
	m, masked := netlink.Uint(mask)
	if !ok {
		return raw(value, mask)
	}
	if !masked {
		m = v
	}
	return signs(v, m, "new", "est", "rel", "trk", "inv", "rpl")
}

// ipFlags: TCA_FLOWER_KEY_FLAGS_*.
func ipFlags(value, mask []byte) string {
	m := bigUint(mask)
	if mask == nil {
		m = bigUint(value)
	}
	return signs(bigUint(value), m, "frag", "firstfrag", "tun_csum", "tun_df", "tun_oam", "tun_crit_opt")
}

// tunnelOptions: class:type:data of geneve, anything else as bytes.
func tunnelOptions(value, mask []byte) string {
	var out []string
	for kind, b := range netlink.Attrs(value) {
		if kind != 1 { // TCA_FLOWER_KEY_ENC_OPTS_GENEVE
			out = append(out, fmt.Sprintf("%d:%x", kind, b))
			continue
		}
		var class, typ, data string
		for k, v := range netlink.Attrs(b) {
			switch k {
			case 1:
				class = hex.EncodeToString(v)
			case 2:
				typ = hex.EncodeToString(v)
			case 3:
				data = hex.EncodeToString(v)
			}
		}
		out = append(out, class+":"+typ+":"+data)
	}
	s := strings.Join(out, ",")
	if mask == nil {
		return s
	}
	if m := tunnelOptions(mask, nil); strings.Trim(m, "f:,") != "" {
		s += "/" + m
	}
	return s
}
