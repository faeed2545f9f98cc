package tc

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"sluice.dev/sluice/pkg/netlink"
)

// Attributes of a filter (TCA_*, rtnetlink.h).
const (
	tcaKind    = 1
	tcaOptions = 2
	tcaChain   = 11
)

// magicBlock stands in tcm_ifindex for "tcm_parent is a block's index"
// (TCM_IFINDEX_MAGIC_BLOCK).
const magicBlock = 0xffffffff

// tcmsgSize is struct tcmsg: family, 3 bytes of padding, ifindex, handle,
// parent, info.
const tcmsgSize = 20

// filter says under which numbers a kind keeps actions, flags and in_hw_count.
type filter struct{ act, flags, count int }

var filters = map[string]filter{
	"flower":   {flowerAct, flowerFlags, flowerInHWCount},
	"matchall": {2, 3, 0},
	"u32":      {7, 11, 0},
	"bpf":      {1, 9, 0},
}

// Parse reads the payload of one RTM_NEWTFILTER. The kernel also lists what holds
// rules (a priority of a chain, a hash table of u32); for those ok is false.
func Parse(msg []byte) (r Rule, ok bool, err error) {
	if len(msg) < tcmsgSize {
		return Rule{}, false, fmt.Errorf("a tc filter message of %d bytes: want %d at least", len(msg), tcmsgSize)
	}
	ifindex := binary.NativeEndian.Uint32(msg[4:])
	if parent := binary.NativeEndian.Uint32(msg[12:]); ifindex == magicBlock {
		r.Block = parent
	} else {
		r.Ifindex = int(ifindex)
	}
	r.Handle = binary.NativeEndian.Uint32(msg[8:])
	info := binary.NativeEndian.Uint32(msg[16:])
	r.Prio = uint16(info >> 16)
	r.Protocol = etherName(swap(uint16(info)))

	var options []byte
	for kind, b := range netlink.Attrs(msg[tcmsgSize:]) {
		switch kind {
		case tcaKind:
			r.Kind = text(b, nil)
		case tcaOptions:
			options = b
		case tcaChain:
			n, _ := netlink.Uint(b)
			r.Chain = uint32(n)
		}
	}
	if r.Handle == 0 || options == nil {
		return Rule{}, false, nil
	}
	f := filters[r.Kind]
	for kind, b := range netlink.Attrs(options) {
		n, _ := netlink.Uint(b)
		switch {
		case kind == 0:
		case kind == f.act:
			r.Actions = parseActions(b)
		case kind == f.flags:
			r.SkipHW, r.SkipSW, r.InHW = n&1 != 0, n&2 != 0, n&4 != 0
		case kind == f.count:
			r.InHWCount = uint32(n)
		}
	}
	if r.Kind == "flower" {
		r.Match = flowerMatch(options)
	}
	if r.Kind == "u32" && r.Actions == nil && r.Handle&0xfff == 0 {
		return Rule{}, false, nil // a hash table: its nodes have a number in the low bits
	}
	r.count()
	return r, true, nil
}

// swap turns a number that lies in network order in the low half of tcm_info.
func swap(v uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return binary.BigEndian.Uint16(b[:])
}

// count takes the rule's counters from its actions. A packet passes all of them
// or stops at one, and some drivers report on one only, so the largest count is
// the rule's.
func (r *Rule) count() {
	for i, a := range r.Actions {
		if i == 0 || a.Total.Packets > r.Total.Packets {
			r.Total = a.Total
		}
		if i == 0 || a.Hardware.Packets > r.Hardware.Packets {
			r.Hardware = a.Hardware
		}
		if i == 0 || a.IdleSeconds < r.IdleSeconds {
			r.IdleSeconds = a.IdleSeconds
		}
		if r.Cookie == "" {
			r.Cookie = a.Cookie
		}
	}
}

// UFID writes a cookie of 16 bytes as Open vSwitch prints the flow's ufid, and
// any other one as it is. A ufid is four numbers of 32 bits (lib/odp-util.c,
// odp_format_ufid; lib/uuid.h), the cookie their bytes in memory.
func UFID(cookie string) string {
	b, err := hex.DecodeString(cookie)
	if err != nil || len(b) != 16 {
		return cookie
	}
	var p [4]uint32
	for i := range p {
		p[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%04x%08x", p[0], p[1]>>16, p[1]&0xffff, p[2]>>16, p[2]&0xffff, p[3])
}
