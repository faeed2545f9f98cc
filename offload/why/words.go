package why

import (
	"fmt"
	"slices"
	"strings"
)

// most is how many actions a rule of tc has in Open vSwitch (lib/tc.h, TCA_ACT_MAX_NUM).
const most = 16

// unwritable are the actions that Open vSwitch does not write as actions of tc
// (parse_flow_actions): all but output, push and pop of VLAN and MPLS, set, ct,
// ct_clear, recirc, drop, meter and check_pkt_len.
func unwritable(acts []term) (out []Reason) {
	for _, a := range acts {
		if r := a.unwritable(); r != nil && !slices.Contains(out, *r) {
			out = append(out, *r)
		}
	}
	if len(acts) > most {
		out = append(out, Reason{
			Class: Action, What: fmt.Sprintf("it has %d actions, and a rule of tc has %d at most: it goes to too many ports", len(acts), most), From: "the flow's actions",
			Change: "smaller broadcast domains: fewer ports in the VLAN or the bridge; learnt addresses are not flooded",
		})
	}
	return out
}

func (a term) unwritable() *Reason {
	reason := func(c Class, what, change string) *Reason {
		return &Reason{Class: c, What: what, From: "the flow's actions", Change: change}
	}
	switch a.name {
	case "userspace":
		return a.userspace()
	case "sample", "psample", "emit_sample":
		return reason(Sample, "a part of its packets is sampled ("+a.name+"): tc has no such action in Open vSwitch",
			"sample elsewhere: sFlow and IPFIX of this bridge off (ovs-vsctl clear Bridge BRIDGE sflow ipfix), or in OVN no sampling of this ACL")
	case "hash":
		return reason(Hash, "it computes a hash for a select group (dp_hash), which the kernel's module alone can",
			"let the group choose by fields: selection_method=hash,fields(...); in OVN load balancers and ECMP routes with hashed fields")
	case "lb_output":
		return reason(Hash, "it goes out of a bond of Open vSwitch's own", "bond the ports with Linux (VF-LAG), and put that bond into the bridge")
	case "trunc":
		return reason(Action, "it sends packets cut short (trunc)", "mirror whole packets: ovs-vsctl clear Mirror NAME snaplen; max_len of an output likewise")
	case "clone":
		return reason(Action, "it works on a copy of the packet (clone), as patch ports and mirrors do that change it", "make both ways change the packet alike, or leave the second out")
	case "set":
		return a.set()
	case "ct":
		if strings.Contains(a.args, "helper=") {
			return reason(Conntrack, "its connections have a helper (ALG)", "leave the helper out: alg=ftp or tftp of the ct action; such connections stay in software")
		}
	case "check_pkt_len", "push_mpls", "pop_mpls", "push_vlan", "meter", "recirc", "pop_vlan", "ct_clear", "drop", "set_masked":
	default:
		if a.args != "" || bare[a.name] {
			return reason(Action, "tc has no action "+a.name+" in Open vSwitch", "do without it where the flow is to run in hardware")
		}
	}
	return nil
}

func (a term) userspace() *Reason {
	r := &Reason{Class: Controller, From: "the flow's actions"}
	switch {
	case strings.Contains(a.args, "sFlow"), strings.Contains(a.args, "ipfix"), strings.Contains(a.args, "flow_sample"):
		r.Class, r.What = Sample, "packets are sampled for sFlow or IPFIX"
		r.Change = "take sFlow and IPFIX off this bridge: ovs-vsctl clear Bridge BRIDGE sflow ipfix; sample at the wire instead"
	case strings.Contains(a.args, "slow_path(action)"):
		r.Class, r.What = Action, "ovs-vswitchd does it itself, packet by packet: the kernel has no such action (slow_path)"
		r.Change = "do without it; ARP and ICMPv6 rewritten into answers are of this kind"
	case strings.Contains(a.args, "slow_path"):
		r.What = "each packet goes to ovs-vswitchd, which alone can do this (slow_path)"
		r.Change = "see what asks for it: CFM, BFD, LACP, STP, LLDP, or an action that no datapath has"
	default:
		r.What = "each packet goes to the controller"
		r.Change = "have the controller write flows instead; in OVN: ACLs without log, no reject, replies (ARP, DHCP, ICMP) aside"
	}
	return r
}

// set: the keys that Open vSwitch can rewrite by pedit, tunnel_key and mpls are
// ethernet, ipv4, ipv6, tcp, udp, tunnel and mpls (set_flower_map).
func (a term) set() *Reason {
	key, _, _ := strings.Cut(a.args, "(")
	switch key {
	case "eth", "ipv4", "ipv6", "tcp", "udp", "tunnel", "mpls":
		return nil
	case "skb_mark":
		return &Reason{
			Class: Action, What: "it sets the packet mark (skb_mark), which no card has", From: "the flow's actions",
			Change: "keep marks out of pkt_mark: registers inside a bridge, ct_mark across recirculation; in OVN no QoS by mark",
		}
	case "skb_priority":
		return &Reason{
			Class: Action, What: "it sets a queue (skb_priority), which no card has", From: "the flow's actions",
			Change: "rate by hardware instead: rates of the VF in the node's document; no set_queue or enqueue",
		}
	}
	return &Reason{Class: Action, What: "it rewrites " + key + ", which tc has no action for in Open vSwitch", From: "the flow's actions", Change: "do without it"}
}

// unmatchable are the fields that Open vSwitch does not write as matches of flower
// (test_key_and_mask).
func unmatchable(match string) (out []Reason) {
	have := fields(match)
	reason := func(class Class, what, change string) {
		out = append(out, Reason{Class: class, What: what, From: "the flow's match", Change: change})
	}
	if _, ok := have["dp_hash"]; ok {
		reason(Hash, "it matches a hash (dp_hash): it is a bucket of a select group", "let the group choose by fields: selection_method=hash,fields(...)")
	}
	if _, ok := have["skb_mark"]; ok {
		reason(Match, "it matches the packet mark", "match something that is in the packet, or ct_mark")
	}
	if _, ok := have["skb_priority"]; ok {
		reason(Match, "it matches the priority of the packet's buffer", "match something that is in the packet")
	}
	if strings.Contains(have["ipv6"], "frag=first") || strings.Contains(have["ipv6"], "frag=later") {
		reason(Match, "it is for fragments of IPv6", "no fragments: see that MTUs agree along the way")
	}
	if strings.Count(have["mpls"], "label=") > 1 {
		reason(Match, "it matches more than one MPLS label", "match the outermost one")
	}
	if _, ok := have["nd"]; ok {
		reason(Match, "it matches what is asked for in neighbour discovery (nd)", "match type and addresses alone; let the controller or the pods answer")
	}
	for _, name := range []string{"nsh", "packet_type", "actset_output"} {
		if v, ok := have[name]; ok && v != "ns=0,id=0" {
			reason(Match, "it matches "+name+", which flower has no key for", "match something else")
		}
	}
	return out
}

// words are what drivers and the kernel say of rules, parts of their texts in the
// order in which they are looked for (mlx5: en_tc.c, en/tc/act/, en/tc_ct.c; kernel:
// cls_api.c, act_*.c; net/core/flow_offload.c).
var words = []struct {
	text   string
	class  Class
	change string
}{
	{"TC offload is disabled", Setting, "ethtool -K NETDEV hw-tc-offload on, or \"hwTCOffload: true\" in the node's document; then ovs-appctl revalidator/purge"},
	{"not on same switch HW", Ports, "use ports of one card in switchdev mode"},
	{"not the same uplink", Ports, "send it by the uplink of its own port, or bond both ports (VF-LAG)"},
	{"from a VF to itself", Ports, ""},
	{"duplicate output", Ports, "send to each port once"},
	{"redirect to ingress", Ports, "nothing, if the host is to have the packets"},
	{"output ports", Action, "send to fewer ports"},
	{"ct_state", Conntrack, "match neither +inv nor +rel; in OVN: NB_Global options:use_ct_inv_match=false"},
	{"ct offload", Conntrack, "run a kernel whose driver is built with connection tracking (mlx5: CONFIG_MLX5_TC_CT)"},
	{"CT ", Conntrack, ""},
	{" ct_", Conntrack, ""},
	{"hain", Recirculation, "run a kernel that has CONFIG_NET_TC_SKB_EXT=y, and a card whose driver has chains"},
	{"Goto action", Recirculation, "run a kernel that has CONFIG_NET_TC_SKB_EXT=y"},
	{"is full", Limit, "fewer flows: broader matches, other_config:max-idle lower"},
	{"encap", Tunnel, "devlink dev eswitch set DEV encap-mode basic, with no rules in the card"},
	{"decap", Tunnel, ""},
	{"unnel", Tunnel, "use a tunnel that the card knows, on its registered port"},
	{"control.flags", Match, "match fragments or none, not the first or the later ones (ip_frag)"},
	{"MPLS", Match, "match something else"},
	{"transports are supported", Match, "match addresses without ports"},
	{"Unsupported key", Match, "match fewer kinds of fields"},
	{"Can't match", Match, ""},
	{"matching", Match, ""},
	{"Code and type", Match, ""},
	{"pedit", Action, "rewrite fewer, or other, fields"},
	{"re-write", Action, "rewrite addresses of TCP, UDP and ICMP alone"},
	{"unsupported field", Action, "rewrite other fields"},
	{"csum", Action, ""},
	{"VLAN", Action, "leave the VLAN's priority as it is, and match the VLAN that is changed"},
	{"vlans", Action, "push one tag less"},
	{"onform-exceed", Action, "let the meter drop what exceeds"},
	{"conform/exceed", Action, "use a meter that drops what exceeds a rate; a packet's length alone (check_pkt_larger, gateway_mtu in OVN) is for no driver"},
	{"police", Action, "use a meter that drops what exceeds a rate"},
	{"too many actions", Action, "fewer actions"},
	{"offload action", Action, "do without the action"},
	{"Mirroring", Action, ""},
	{"trap", Action, ""},
}

// wordsOf finds the class of what a driver says, and what to change; Driver when the
// words are not known.
func wordsOf(text string) (Class, string) {
	for _, w := range words {
		if strings.Contains(text, w.text) {
			return w.class, w.change
		}
	}
	return Driver, "ask the driver's maker what it means"
}
