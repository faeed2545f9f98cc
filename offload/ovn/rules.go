package ovn

import (
	"fmt"
	"net/netip"
	"strings"

	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
)

// Priorities of ACLs, at most 32767 (ovn-nb(5)).
const (
	priorityBasics   = 3000 // neighbour discovery, DHCP
	priorityIsolated = 2900
	priorityFirst    = 2800 // of the first rule, and down from there
	priorityDefault  = 1
)

// groupName is that of a network's port group and address sets. In expressions names
// have no dashes (ovn: lib/lex.c, lex_is_idn); underscores are not in names of networks.
func groupName(n network.Network) string { return "sluice." + strings.ReplaceAll(n.Name, "-", "_") }

// rules adds the port group of a network's pods, its address sets and ACLs; nothing if
// everything may pass.
func (b *builder) rules(n network.Network, ports []string) {
	if n.Firewall == nil && !n.Isolated {
		return
	}
	acls := aclsOf(n)
	g := Row{Table: tableGroup, Key: "ports/" + n.Name, Group: groupOf(n), Columns: map[string]any{"name": groupName(n)},
		Refs: map[string][]string{"ports": ports}}
	for i, a := range acls {
		key := fmt.Sprintf("acl/%s/%d", n.Name, i)
		b.add(Row{Table: tableACL, Key: key, Group: groupOf(n), Columns: a.columns()})
		g.Refs["acls"] = append(g.Refs["acls"], key)
	}
	for _, four := range []bool{true, false} {
		if in := subnets(n, four); len(in) > 0 {
			b.add(Row{Table: tableSet, Key: "subnet/" + family(four) + "/" + n.Name, Group: groupOf(n),
				Columns: map[string]any{"name": groupName(n) + "." + family(four), "addresses": in}})
		}
	}
	b.add(g)
}

type acl struct {
	direction, match, action string
	priority                 int
	log                      bool
}

func (a acl) columns() map[string]any {
	return map[string]any{"direction": a.direction, "priority": a.priority, "match": a.match, "action": a.action, "log": a.log}
}

func aclsOf(n network.Network) []acl {
	in, out := "outport == @"+groupName(n), "inport == @"+groupName(n)
	var all []acl
	if n.Isolated {
		for i, s := range n.Subnets {
			match := fmt.Sprintf("%s && %s.dst == $%s.%s", out, ip(s.Prefix), groupName(n), family(s.Prefix.Addr().Is4()))
			if s.Prefix.Addr().Is6() {
				// Each port has one of these of its own.
				all = append(all, acl{"from-lport", out + " && ip6.dst == fe80::/10", "drop", priorityIsolated, false})
			}
			if g := gatewaysOf(n, i); g != "" {
				match += fmt.Sprintf(" && %s.dst != %s", ip(s.Prefix), g)
			}
			all = append(all, acl{"from-lport", match, "drop", priorityIsolated, false})
		}
	}
	const basics = "(nd || nd_rs || nd_ra || mldv1 || mldv2)"
	all = append(all,
		acl{"from-lport", out + " && (" + basics + " || (udp.src == 68 && udp.dst == 67) || (udp.src == 546 && udp.dst == 547))", "allow-stateless", priorityBasics, false},
		acl{"to-lport", in + " && (" + basics + " || (udp.src == 67 && udp.dst == 68) || (udp.src == 547 && udp.dst == 546))", "allow-stateless", priorityBasics, false})
	w := n.Firewall
	if w == nil {
		return all
	}
	for i, r := range w.Rules {
		a := acl{"to-lport", in, action(r.Action, w.Stateful), priorityFirst - i, r.Log}
		side := "src"
		if r.Direction == "out" {
			a.direction, a.match, side = "from-lport", out, "dst"
		}
		a.match = strings.Join(append([]string{a.match}, clauses(r, side)...), " && ")
		all = append(all, a)
	}
	if w.Default == "allow" {
		if w.Stateful {
			// So that connections of both directions are known.
			all = append(all, acl{"from-lport", out + " && ip", "allow-related", priorityDefault, false},
				acl{"to-lport", in + " && ip", "allow-related", priorityDefault, false})
		}
		return all
	}
	return append(all, acl{"from-lport", out + " && ip", "drop", priorityDefault, false},
		acl{"to-lport", in + " && ip", "drop", priorityDefault, false})
}

// gatewaysOf is what isolated ports may reach in a subnet, as an expression; "" for
// nothing. With layer 3 each block has its own, and a port's own is the only one that
// it can reach without its router.
func gatewaysOf(n network.Network, i int) string {
	if g := n.Subnets[i].Gateway; g.IsValid() && n.Layer != 3 {
		return g.String()
	}
	return ""
}

func action(word string, stateful bool) string {
	switch {
	case word == "drop":
		return "drop"
	case stateful:
		return "allow-related"
	}
	return "allow-stateless"
}

// clauses are what a rule asks besides the port.
func clauses(r network.Rule, side string) []string {
	var out []string
	if len(r.Peers) > 0 {
		var either []string
		for _, four := range []bool{true, false} {
			var in []string
			for _, p := range r.Peers {
				if p.Addr().Is4() == four {
					in = append(in, p.String())
				}
			}
			if len(in) > 0 {
				either = append(either, fmt.Sprintf("%s.%s == {%s}", map[bool]string{true: "ip4", false: "ip6"}[four], side, strings.Join(in, ", ")))
			}
		}
		out = append(out, paren(either))
	}
	switch {
	case r.Protocol == "icmp":
		out = append(out, "(icmp4 || icmp6)")
	case r.Protocol == "" && len(r.Peers) == 0:
		out = append(out, "ip")
	case r.Protocol != "" && len(r.Ports) == 0:
		out = append(out, r.Protocol)
	}
	var either []string
	for _, p := range r.Ports {
		if p.First == p.Last {
			either = append(either, fmt.Sprintf("%s.dst == %d", r.Protocol, p.First))
		} else {
			either = append(either, fmt.Sprintf("(%s.dst >= %d && %s.dst <= %d)", r.Protocol, p.First, r.Protocol, p.Last))
		}
	}
	if len(either) > 0 {
		out = append(out, paren(either))
	}
	return out
}

func paren(either []string) string {
	if len(either) == 1 {
		return either[0]
	}
	return "(" + strings.Join(either, " || ") + ")"
}

func subnets(n network.Network, four bool) ovsdb.Set[string] {
	var out ovsdb.Set[string]
	for _, s := range n.Subnets {
		if s.Prefix.Addr().Is4() == four {
			out = append(out, s.Prefix.String())
		}
	}
	return out
}

func ip(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "ip4"
	}
	return "ip6"
}

func family(four bool) string {
	if four {
		return "v4"
	}
	return "v6"
}
