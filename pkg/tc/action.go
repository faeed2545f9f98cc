package tc

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"sluice.dev/sluice/pkg/netlink"
)

// Attributes of an action (TCA_ACT_*, pkt_cls.h).
const (
	actKind    = 1
	actOptions = 2
	actStats   = 4
	actCookie  = 6
)

// Attributes of statistics (TCA_STATS_*, gen_stats.h).
const (
	statsBasic   = 1
	statsBasicHW = 7
	statsPkt64   = 8
)

// genSize is struct tc_gen, with which the parameters of nearly every action
// begin: index, capab, action, refcnt, bindcnt, 4 bytes each.
const genSize = 20

// layout says where an action keeps things: TCA_<kind>_TM and _PARMS.
type layout struct {
	tm, parms int
	read      func(a *Action, parms []byte, options map[int][]byte)
}

var layouts = map[string]layout{
	"gact":       {1, 2, func(*Action, []byte, map[int][]byte) {}},
	"mirred":     {1, 2, readMirred},
	"vlan":       {1, 2, readVLAN},
	"tunnel_key": {1, 2, readTunnelKey},
	"pedit":      {1, 4, readPedit},
	"csum":       {2, 1, readCsum},
	"ct":         {2, 1, readCT},
	"skbedit":    {1, 2, readSkbedit},
	"police":     {6, 1, readPolice},
	"mpls":       {1, 2, readMPLS},
	"sample":     {1, 2, readSample},
	"bpf":        {1, 2, func(*Action, []byte, map[int][]byte) {}},
}

// parseActions reads a table of actions: attributes numbered from 1.
func parseActions(b []byte) []Action {
	var out []Action
	for _, one := range netlink.Attrs(b) {
		out = append(out, parseAction(one))
	}
	return out
}

func parseAction(b []byte) Action {
	var a Action
	var options []byte
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case actKind:
			a.Kind = text(v, nil)
		case actOptions:
			options = v
		case actStats:
			a.Total, a.Hardware = parseStats(v)
		case actCookie:
			a.Cookie = hex.EncodeToString(v)
		}
	}
	byKind := map[int][]byte{}
	for kind, v := range netlink.Attrs(options) {
		byKind[kind] = v
	}
	l, known := layouts[a.Kind]
	if !known {
		for kind, v := range netlink.Attrs(options) {
			a.Params = append(a.Params, Param{fmt.Sprintf("option_%d", kind), raw(v, nil)})
		}
		return a
	}
	a.IdleSeconds = idle(byKind[l.tm])
	parms := byKind[l.parms]
	at := 8 // in tc_gen
	if a.Kind == "police" {
		at = 4 // struct tc_police has its own order
	}
	a.Control = control(parms, at)
	l.read(&a, parms, byKind)
	return a
}

// parseStats reads total and hardware. TCA_STATS_PKT64 follows the counter whose
// packets did not fit into 32 bits (gen_stats.c, ___gnet_stats_copy_basic).
func parseStats(b []byte) (total, hardware Counter) {
	last := &total
	for kind, v := range netlink.Attrs(b) {
		switch kind {
		case statsBasic:
			last = &total
			*last = basic(v)
		case statsBasicHW:
			last = &hardware
			*last = basic(v)
		case statsPkt64:
			if n, ok := netlink.Uint(v); ok {
				last.Packets = n
			}
		}
	}
	return total, hardware
}

// basic reads struct gnet_stats_basic: bytes u64, packets u32.
func basic(b []byte) Counter {
	if len(b) < 12 {
		return Counter{}
	}
	return Counter{
		Bytes:   binary.NativeEndian.Uint64(b),
		Packets: uint64(binary.NativeEndian.Uint32(b[8:])),
	}
}

// idle reads lastuse of struct tcf_t: the age of the last use in USER_HZ, which
// is 100 a second on every architecture that matters here.
func idle(b []byte) float64 {
	if len(b) < 16 {
		return 0
	}
	return float64(binary.NativeEndian.Uint64(b[8:])) / 100
}

// control names what comes after the action (TC_ACT_*).
func control(parms []byte, at int) string {
	if len(parms) < at+4 {
		return ""
	}
	v := int32(binary.NativeEndian.Uint32(parms[at:]))
	// The upper four bits: 1 is jump, 2 goto chain; the rest is their argument.
	switch arg := uint32(v) & 0x0fffffff; uint32(v) >> 28 {
	case 1:
		return fmt.Sprintf("jump %d", arg)
	case 2:
		return fmt.Sprintf("goto chain %d", arg)
	}
	switch v {
	case -1:
		return "continue"
	case 0:
		return "pass"
	case 1:
		return "reclassify"
	case 2:
		return "drop"
	case 3:
		return "pipe"
	case 4:
		return "stolen"
	case 5:
		return "queued"
	case 6:
		return "repeat"
	case 7:
		return "redirect"
	case 8:
		return "trap"
	}
	return fmt.Sprintf("control_%d", v)
}

// number is the 32-bit field at an offset of the parameters.
func number(parms []byte, at int) (uint32, bool) {
	if len(parms) < at+4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(parms[at:]), true
}

// add appends the parameters whose attribute is there, in the order given.
func (a *Action) add(options map[int][]byte, fields ...field) {
	for _, f := range fields {
		if b, ok := options[f.kind]; ok {
			a.Params = append(a.Params, Param{f.name, f.show(b, options[f.mask])})
		}
	}
}

type field struct {
	kind int
	name string
	mask int
	show show
}

func (a *Action) word(w string) { a.Params = append(a.Params, Param{Name: w}) }

func readMirred(a *Action, parms []byte, _ map[int][]byte) {
	what, _ := number(parms, genSize)
	to, ok := number(parms, genSize+4)
	switch what {
	case 1:
		a.Params = append(a.Params, Param{"egress", "redirect"})
	case 2:
		a.Params = append(a.Params, Param{"egress", "mirror"})
	case 3:
		a.Params = append(a.Params, Param{"ingress", "redirect"})
	case 4:
		a.Params = append(a.Params, Param{"ingress", "mirror"})
	default:
		a.Params = append(a.Params, Param{"action", strconv.FormatUint(uint64(what), 10)})
	}
	if ok {
		a.Ifindex = int(to)
		a.Params = append(a.Params, Param{"ifindex", strconv.Itoa(a.Ifindex)})
	}
}

func readVLAN(a *Action, parms []byte, o map[int][]byte) {
	switch what, _ := number(parms, genSize); what {
	case 1:
		a.word("pop")
	case 2:
		a.word("push")
	case 3:
		a.word("modify")
	case 4:
		a.word("pop_eth")
	case 5:
		a.word("push_eth")
	default:
		a.Params = append(a.Params, Param{"action", strconv.FormatUint(uint64(what), 10)})
	}
	a.add(o, field{3, "id", 0, host}, field{4, "protocol", 0, etherType}, field{6, "priority", 0, host},
		field{7, "dst_mac", 0, mac}, field{8, "src_mac", 0, mac})
}

func readTunnelKey(a *Action, parms []byte, o map[int][]byte) {
	switch what, _ := number(parms, genSize); what {
	case 1:
		a.word("set")
	case 2:
		a.word("unset")
	default:
		a.Params = append(a.Params, Param{"action", strconv.FormatUint(uint64(what), 10)})
	}
	a.add(o, field{3, "src_ip", 0, ip}, field{4, "dst_ip", 0, ip}, field{5, "src_ip", 0, ip}, field{6, "dst_ip", 0, ip},
		field{7, "id", 0, big}, field{9, "dst_port", 0, big}, field{11, "opts", 0, tunnelOptions},
		field{12, "tos", 0, hostHex}, field{13, "ttl", 0, host})
	if n, ok := netlink.Uint(o[10]); ok && n != 0 {
		a.word("nocsum")
	}
}

// readPedit: struct tc_pedit_sel is tc_gen, nkeys, flags, then keys of mask,
// value, offset, at, offmask, shift; beside them the header that each offset
// counts from. A mask's zero bits are what is set.
func readPedit(a *Action, parms []byte, o map[int][]byte) {
	const keys, keySize = genSize + 4, 24
	if len(parms) < keys {
		return
	}
	var headers []string
	for _, k := range netlink.Attrs(o[5]) {
		header, cmd := uint64(0), uint64(0)
		for kind, v := range netlink.Attrs(k) {
			n, _ := netlink.Uint(v)
			switch kind {
			case 1:
				header = n
			case 2:
				cmd = n
			}
		}
		names := []string{"net", "eth", "ip4", "ip6", "tcp", "udp"}
		name := strconv.FormatUint(header, 10)
		if header < uint64(len(names)) {
			name = names[header]
		}
		if cmd == 1 {
			name = "add " + name
		}
		headers = append(headers, name)
	}
	b := parms[keys:]
	for i := range int(parms[genSize]) {
		if len(b) < keySize {
			return
		}
		header := "net"
		if i < len(headers) {
			header = headers[i]
		}
		keep := make([]byte, 4)
		for j := range keep {
			keep[j] = ^b[j]
		}
		a.Params = append(a.Params, Param{
			fmt.Sprintf("%s+%d", header, binary.NativeEndian.Uint32(b[8:])), raw(b[4:8], keep),
		})
		b = b[keySize:]
	}
}

func readCsum(a *Action, parms []byte, _ map[int][]byte) {
	flags, _ := number(parms, genSize)
	for i, name := range []string{"iph", "icmp", "igmp", "tcp", "udp", "udplite", "sctp"} {
		if flags&(1<<i) != 0 {
			a.word(name)
		}
	}
}

func readCT(a *Action, _ []byte, o map[int][]byte) {
	what, _ := netlink.Uint(o[3])
	for i, name := range []string{"commit", "force", "clear", "nat", "src", "dst"} {
		if what&(1<<i) != 0 {
			a.word(name)
		}
	}
	a.add(o, field{9, "addr", 0, ip}, field{10, "to", 0, ip}, field{11, "addr", 0, ip}, field{12, "to", 0, ip},
		field{13, "port", 0, big}, field{14, "to", 0, big},
		field{4, "zone", 0, host}, field{5, "mark", 6, hostHex}, field{7, "label", 8, raw}, field{16, "helper", 0, text})
}

func readSkbedit(a *Action, _ []byte, o map[int][]byte) {
	a.add(o, field{3, "priority", 0, hostHex}, field{4, "queue_mapping", 0, host}, field{5, "mark", 8, host})
	if t, ok := netlink.Uint(o[7]); ok {
		names := []string{"host", "broadcast", "multicast", "otherhost"}
		name := strconv.FormatUint(t, 10)
		if t < uint64(len(names)) {
			name = names[t]
		}
		a.Params = append(a.Params, Param{"ptype", name})
	}
}

// readPolice: struct tc_police is index, action, limit, burst, mtu and two
// tc_ratespec with the rate in bytes a second at offset 8; rates beyond 32 bits,
// and those in packets, are attributes.
func readPolice(a *Action, parms []byte, o map[int][]byte) {
	index, _ := number(parms, 0)
	a.Params = append(a.Params, Param{"index", fmt.Sprintf("%#x", index)})
	rate, ok := netlink.Uint(o[8])
	if !ok {
		r, _ := number(parms, 20+8)
		rate = uint64(r)
	}
	if rate != 0 {
		a.Params = append(a.Params, Param{"rate", strconv.FormatUint(8*rate, 10) + "bit"})
	}
	if mtu, _ := number(parms, 16); mtu != 0 {
		a.Params = append(a.Params, Param{"mtu", strconv.FormatUint(uint64(mtu), 10)})
	}
	a.add(o, field{10, "pkts_rate", 0, host}, field{11, "pkts_burst", 0, host})
	// The action in the struct is for what exceeds the rate; TCA_POLICE_RESULT,
	// if there is one, for what conforms.
	if conform := control(o[5], 0); conform != "" {
		a.Params = append(a.Params, Param{"exceed", a.Control})
		a.Control = conform
	}
}

func readMPLS(a *Action, parms []byte, o map[int][]byte) {
	names := []string{"action_0", "pop", "push", "modify", "dec_ttl", "mac_push"}
	what, _ := number(parms, genSize)
	if what < uint32(len(names)) {
		a.word(names[what])
	}
	a.add(o, field{4, "protocol", 0, etherType}, field{5, "label", 0, host}, field{6, "tc", 0, host},
		field{7, "ttl", 0, host}, field{8, "bos", 0, host})
}

func readSample(a *Action, _ []byte, o map[int][]byte) {
	a.add(o, field{3, "rate", 0, host}, field{4, "trunc", 0, host}, field{5, "group", 0, host})
}
