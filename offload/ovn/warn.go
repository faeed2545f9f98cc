package ovn

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/ovsdb"
)

// zonesOfNIC is how many conntrack zones a card tells apart: mlx5 carries the zone in
// eight bits of a register (linux: drivers/net/ethernet/mellanox/mlx5/core/en/tc_ct.h,
// ESW_ZONE_ID_BITS).
const zonesOfNIC = 255

// Overhead of a frame's encapsulation over IPv4: outer Ethernet (of the inner frame it
// is payload), IP, UDP, and the header; OVN's Geneve has one option of 4 bytes.
const (
	overheadGeneve = 14 + 20 + 8 + 8 + 8
	overheadVXLAN  = 14 + 20 + 8 + 8
)

// Node is what is known of a node's side of OVN. What is not known warns of nothing.
type Node struct {
	Name     string
	Encaps   []string // external_ids:ovn-encap-type; nil: not known
	Mappings []string // physical networks of ovn-bridge-mappings; nil: not known
	MTU      int      // of what carries tunnels; 0: not known

	// Cannot is what it is not able to do, by the names of pkg/capability, and why. What
	// is not in it it can do, or that is not known.
	Cannot map[string]string
}

// Warnings are the wishes that NICs cannot be given, and what happens instead, for each
// network by name. options is NB_Global's, nil if not known.
func Warnings(wishes []Wish, nodes []Node, options ovsdb.Map) map[string][]string {
	zones := zonesByNode(wishes)
	out := map[string][]string{}
	for _, w := range wishes {
		all := ofRules(w.Network)
		if stateful(w.Network) {
			all = append(all, ofZones(w, zones)...)
			all = append(all, ofOptions(options)...)
		}
		has := withBlocks(w, nodes)
		for _, n := range has {
			all = append(all, ofNode(w.Network, n)...)
		}
		all = append(all, ofAbilities(w.Network, has)...)
		if len(all) > 0 {
			out[w.Network.Name] = all
		}
	}
	return out
}

func stateful(n network.Network) bool { return n.Firewall != nil && n.Firewall.Stateful }

// zonesByNode counts the conntrack zones that networks can take on each node: OVN has
// one for each port of a switch with stateful rules (ovn: controller/ovn-controller.c,
// update_ct_zones).
func zonesByNode(wishes []Wish) map[string]int {
	zones := map[string]int{}
	for _, w := range wishes {
		if !stateful(w.Network) {
			continue
		}
		for _, m := range w.Members {
			zones[m.Node] += len(w.Network.Slots(m.Block))
		}
	}
	return zones
}

func ofZones(w Wish, zones map[string]int) []string {
	var over []string
	for _, m := range w.Members {
		if zones[m.Node] > zonesOfNIC {
			over = append(over, fmt.Sprintf("%s has %d", m.Node, zones[m.Node]))
		}
	}
	if len(over) == 0 {
		return nil
	}
	slices.Sort(over)
	if more := len(over) - 5; more > 0 {
		over = append(over[:5], strconv.Itoa(more)+" more")
	}
	return []string{fmt.Sprintf("firewall.stateful: each port of a stateful network takes a conntrack zone, and a NIC tells %d apart; node %s: connections of ports beyond that stay in software. Want fewer stateful networks, or a smaller portsPerNode",
		zonesOfNIC, strings.Join(over, ", node "))}
}

func ofOptions(options ovsdb.Map) []string {
	var out []string
	if options != nil && options["use_ct_inv_match"] != "false" {
		out = append(out, "firewall.stateful: NB_Global options:use_ct_inv_match is not false, so rules match ct_state +inv, which NICs do not take: ovn-nbctl set NB_Global . options:use_ct_inv_match=false")
	}
	if options["acl_ct_translation"] == "true" {
		out = append(out, "firewall.stateful: NB_Global options:acl_ct_translation is true, with which OVN says that offload may break: want it removed")
	}
	return out
}

func ofRules(n network.Network) []string {
	var out []string
	if len(n.DNS.Records) > 0 {
		out = append(out, "dns.records: each query of a pod, to whatever server, goes through its node's processor")
	}
	if n.Firewall == nil {
		return out
	}
	for i, r := range n.Firewall.Rules {
		path := fmt.Sprintf("firewall.rules[%d]", i)
		if r.Log {
			out = append(out, path+".log: what fits it goes through the node's processor, also of connections that are established")
		}
		if n.Firewall.Stateful && r.Action == "allow" && (r.Protocol == "sctp" || r.Protocol == "icmp") {
			out = append(out, fmt.Sprintf("%s: connections of %s are not offloaded (linux: net/sched/act_ct.c takes TCP, UDP and GRE)", path, r.Protocol))
		}
	}
	return out
}

func ofNode(n network.Network, node Node) []string {
	var out []string
	if n.VLAN != nil && node.Mappings != nil && !slices.Contains(node.Mappings, n.VLAN.Physical) {
		out = append(out, fmt.Sprintf("vlan.physicalNetwork: node %s has no bridge for %s: want it in external_ids:ovn-bridge-mappings", node.Name, n.VLAN.Physical))
	}
	if n.VLAN == nil && node.Encaps != nil && !slices.Contains(node.Encaps, n.Encapsulation) {
		out = append(out, fmt.Sprintf("overlay.encapsulation: node %s has no %s, only %s: want it in external_ids:ovn-encap-type", node.Name, n.Encapsulation, strings.Join(node.Encaps, ", ")))
	}
	if need := n.MTU + overhead(n); n.VLAN == nil && n.MTU != 0 && node.MTU != 0 && need > node.MTU {
		out = append(out, fmt.Sprintf("mtu: %d and %d bytes of %s are more than the %d that node %s carries: want at most %d",
			n.MTU, overhead(n), n.Encapsulation, node.MTU, node.Name, node.MTU-overhead(n)))
	}
	return out
}

// withBlocks are the nodes that have a block of the network.
func withBlocks(w Wish, nodes []Node) (out []Node) {
	has := map[string]bool{}
	for _, m := range w.Members {
		has[m.Node] = true
	}
	for _, n := range nodes {
		if has[n.Name] {
			out = append(out, n)
		}
	}
	return out
}

// need is something that a node must be able to do for a network to be in its NICs.
type need struct{ path, ability, instead string }

// needs come in an order in which what the others rest on is first.
func needs(n network.Network) []need {
	out := []need{
		{"", capability.OpenVSwitch, "Open vSwitch hands no flows to the NIC"},
		{"", capability.Flows, "no flows run in the NIC"},
		{"", capability.FromWire, "what comes from the wire stays in software"},
	}
	if n.VLAN == nil {
		out = append(out, need{"overlay.encapsulation: ", n.Encapsulation, n.Encapsulation + " is put on and taken off in software"})
	}
	if stateful(n) {
		out = append(out, need{"firewall.stateful: ", capability.Conntrack, "connections stay in software"})
	}
	return out
}

// ofAbilities is a warning for each thing that nodes cannot do for the same reason, with
// the first of them by name. Where nothing at all runs in the NIC the rest is not said.
func ofAbilities(n network.Network, nodes []Node) []string {
	const few = 5
	var out []string
	told := map[string]bool{}
	for _, need := range needs(n) {
		by := map[string][]string{}
		var whys []string
		for _, node := range nodes {
			why := node.Cannot[need.ability]
			if why == "" || told[node.Name] {
				continue
			}
			if by[why] == nil {
				whys = append(whys, why)
			}
			by[why] = append(by[why], node.Name)
			told[node.Name] = need.ability == capability.Flows || need.ability == capability.OpenVSwitch
		}
		for _, why := range whys {
			names := by[why]
			slices.Sort(names)
			if more := len(names) - few; more > 0 {
				names = append(names[:few:few], strconv.Itoa(more)+" more")
			}
			out = append(out, fmt.Sprintf("%snode %s: %s: %s", need.path, strings.Join(names, ", "), need.instead, why))
		}
	}
	return out
}

func overhead(n network.Network) int {
	if n.Encapsulation == "vxlan" {
		return overheadVXLAN
	}
	return overheadGeneve
}

// Options reads NB_Global's.
func Options(ctx context.Context, c *ovsdb.Client) (ovsdb.Map, error) {
	out, err := c.TransactIn(ctx, Database, ovsdb.Select(tableGlobal, ovsdb.All(), "options"))
	if err != nil {
		return nil, fmt.Errorf("read NB_Global: %w", err)
	}
	var rows []struct {
		Options ovsdb.Map `json:"options"`
	}
	if err := out[0].Decode(&rows); err != nil || len(rows) == 0 {
		return ovsdb.Map{}, err
	}
	return rows[0].Options, nil
}
