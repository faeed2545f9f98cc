package why

import (
	"fmt"
	"strconv"
	"strings"
)

// Bits of ct_state (linux/openvswitch.h, OVS_CS_F_NEW and _TRACKED).
const (
	stateNew     = 0x01
	stateTracked = 0x20
)

// stateOf is which bits of ct_state a match asks for, and which of those must be set.
// Open vSwitch prints numbers where it prints all of a flow, and names elsewhere
// (lib/odp-util.c, format_odp_key_attr__).
func stateOf(match string) (set, asked uint64) {
	text := fields(match)["ct_state"]
	if value, mask, ok := strings.Cut(text, "/"); ok || strings.HasPrefix(text, "0x") {
		if !ok {
			mask = "0xffffffff"
		}
		v, err1 := strconv.ParseUint(value, 0, 32)
		m, err2 := strconv.ParseUint(mask, 0, 32)
		if err1 != nil || err2 != nil {
			return 0, 0
		}
		return v & m, m
	}
	for name, bit := range map[string]uint64{"new": stateNew, "trk": stateTracked} {
		switch {
		case strings.Contains(text, "+"+name):
			set, asked = set|bit, asked|bit
		case strings.Contains(text, "-"+name):
			asked |= bit
		}
	}
	return set, asked
}

// tracks says that a flow sends its packets through conntrack.
func tracks(flow *Flow) bool {
	for _, t := range terms(flow.Actions) {
		if t.name == "ct" {
			return true
		}
	}
	return false
}

// Protocols whose connections the kernel hands to a card (net/sched/act_ct.c,
// tcf_ct_flow_table_process_conn).
var inCards = map[string]bool{"6": true, "17": true, "47": true}

// protocolOf is the protocol that a match asks for; "" any.
func protocolOf(match string) string {
	have := fields(match)
	for part := range strings.SplitSeq(have["ipv4"]+","+have["ipv6"], ",") {
		if number, ok := strings.CutPrefix(part, "proto="); ok && !wild(number) {
			number, _, _ = strings.Cut(number, "/")
			return number
		}
	}
	return ""
}

// untracked says why the host carries the packets of a flow that the NIC has, if they
// are of connections that the NIC has not: those go on in software from the ct action
// on, and so do all flows that come after it (mlx5: en/tc_ct.c); nil: conntrack is not
// why.
func untracked(flow *Flow) *Reason {
	set, asked := stateOf(flow.Match)
	if !tracks(flow) && (asked&stateTracked == 0 || set&stateTracked == 0) {
		return nil
	}
	r := Reason{Class: Conntrack, From: "the flow and tc's counters"}
	switch protocol := protocolOf(flow.Match); {
	case protocol != "" && !inCards[protocol]:
		r.What = fmt.Sprintf("connections of protocol %s stay in software: the kernel hands those of TCP, UDP and GRE to the NIC", protocol)
		r.Change = "flows without conntrack where it is much traffic; in OVN allow-stateless ACLs"
	case set&stateNew != 0:
		r.What = "its packets begin connections: conntrack of the host sees those, and the NIC only what follows when a connection is established"
		r.Change = "nothing, if connections are long; for many short ones flows without conntrack, in OVN allow-stateless ACLs"
	default:
		r.What = "the NIC has the flow, but not the connections of its packets: they are not established TCP, UDP or GRE, or NAT is missing from the ct action, or the NIC had no room for them"
		r.Change = "see which have [HW_OFFLOAD]: conntrack -L; of no room the kernel's log tells, \"Failed to offload ct entry\""
	}
	return &r
}
