package tc

import (
	"fmt"
	"strings"
)

// Rule is one filter on an ingress hook.
type Rule struct {
	// Ifindex of the netdev, or 0 with Block not 0 when the rule is in a block
	// that several netdevs share (the ports of a bond).
	Ifindex int    `json:"ifindex,omitempty"`
	Block   uint32 `json:"block,omitempty"`

	Chain    uint32 `json:"chain"` // 0 is where a packet begins
	Prio     uint16 `json:"prio"`
	Protocol string `json:"protocol"` // EtherType: ip, ipv6, arp, 802.1Q, all, or 0x....
	Kind     string `json:"kind"`     // flower, matchall, u32, ...
	Handle   uint32 `json:"handle"`   // unique within chain, prio and kind
	Cookie   string `json:"cookie,omitempty"`

	SkipHW    bool   `json:"skipHW,omitempty"` // not offered to drivers
	SkipSW    bool   `json:"skipSW,omitempty"` // not run by the kernel
	InHW      bool   `json:"inHW"`
	InHWCount uint32 `json:"inHWCount"` // how many drivers' callbacks took it

	Match   []Param  `json:"match,omitempty"`
	Actions []Action `json:"actions,omitempty"`

	// Total is all that matched, Hardware the part that the driver reports of
	// it. Bytes of Open vSwitch's rules lack the Ethernet header.
	Total    Counter `json:"total"`
	Hardware Counter `json:"hardware"`

	// IdleSeconds since a packet matched last, or since it was made.
	IdleSeconds float64 `json:"idleSeconds"`
}

// Param is one match key or one parameter of an action: what `tc` calls it, and
// its value, "" for a word that stands by itself.
type Param struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

func (p Param) String() string {
	if p.Value == "" {
		return p.Name
	}
	return p.Name + " " + p.Value
}

// Action is one action of a rule, in order.
type Action struct {
	Kind    string  `json:"kind"` // mirred, vlan, gact, ct, ...
	Params  []Param `json:"params,omitempty"`
	Control string  `json:"control"` // what comes next: pipe, drop, stolen, goto chain N, ...

	Ifindex int    `json:"ifindex,omitempty"` // of mirred: where to
	Dev     string `json:"dev,omitempty"`     // its name, if it has one here
	Cookie  string `json:"cookie,omitempty"`  // hexadecimal; Open vSwitch writes the flow's ufid

	Total       Counter `json:"total"`
	Hardware    Counter `json:"hardware"`
	IdleSeconds float64 `json:"idleSeconds"`
}

// Counter counts packets and their bytes.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Minus gives c without o, at least 0 of each: the two are not read at one
// moment.
func (c Counter) Minus(o Counter) Counter {
	return Counter{Packets: c.Packets - min(c.Packets, o.Packets), Bytes: c.Bytes - min(c.Bytes, o.Bytes)}
}

// Plus gives the sum.
func (c Counter) Plus(o Counter) Counter {
	return Counter{Packets: c.Packets + o.Packets, Bytes: c.Bytes + o.Bytes}
}

// Software is what the kernel itself had to handle (act_api.c,
// tcf_action_update_stats: what a driver reports is added to both counters).
func (r Rule) Software() Counter { return r.Total.Minus(r.Hardware) }

// Goes says that a packet's way goes on in another chain, and in which.
func (r Rule) Goes() (chain uint32, on bool) {
	for _, a := range r.Actions {
		if n, err := fmt.Sscanf(a.Control, "goto chain %d", &chain); n == 1 && err == nil {
			return chain, true
		}
	}
	return 0, false
}

// Where is the hardware side in one word, as tc prints it.
func (r Rule) Where() string {
	switch {
	case r.InHW:
		return "in_hw"
	case r.SkipHW:
		return "skip_hw"
	}
	return "not_in_hw"
}

// String is the rule in one line, in tc's words.
func (r Rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain %d prio %d %s %s", r.Chain, r.Prio, r.Protocol, r.Kind)
	for _, p := range r.Match {
		b.WriteString(" " + p.String())
	}
	b.WriteString(" " + r.Where() + ":")
	if len(r.Actions) == 0 {
		b.WriteString(" no action")
	}
	for i, a := range r.Actions {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(" " + a.String())
	}
	return b.String()
}

// String is the action in tc's words.
func (a Action) String() string {
	if a.Kind == "gact" {
		return a.Control
	}
	s := a.Kind
	for _, p := range a.Params {
		s += " " + p.String()
	}
	switch a.Control {
	case "", "pipe", "stolen": // what everybody expects of an action in a list
	default:
		s += " " + a.Control
	}
	return s
}
