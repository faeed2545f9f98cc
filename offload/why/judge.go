package why

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/tc"
)

// mostZones: mlx5 carries a zone in a register of eight bits (en/tc_ct.h,
// ESW_ZONE_ID_BITS), of which 0 is none.
const mostZones = 255

// Judge makes the report of a port.
func Judge(f Facts) Report {
	r := Report{Port: f.Port, Flows: make([]Verdict, 0, len(f.Flows)), Reasons: f.general()}
	for i := range f.Flows {
		r.Flows = append(r.Flows, f.verdict(&f.Flows[i], nil))
	}
	r.sum()
	slices.SortStableFunc(r.Flows, func(a, b Verdict) int { return a.Where.rank() - b.Where.rank() })
	return r
}

func (w Where) rank() int { return slices.Index([]Where{Hardware, Software, Datapath, Userspace}, w) }

// verdict judges one flow. seen are the flows that led here, each one before the
// next.
func (f Facts) verdict(flow *Flow, seen []*Flow) Verdict {
	v := Verdict{UFID: flow.UFID, Match: flow.Match, Actions: flow.Actions, Used: flow.Used, Where: flow.place()}
	if flow.Rule != nil {
		v.Hardware, v.Software = flow.Rule.Hardware, flow.Rule.Software()
		_, v.Goes = flow.Rule.Goes()
	} else {
		v.Software, v.Goes = flow.Total, len(goesTo(flow.Actions)) > 0
	}
	switch v.Where {
	case Hardware:
		if v.Software.Packets >= fewPackets && v.Software.Packets > 3*v.Hardware.Packets {
			v.Reasons = f.idleReasons(flow)
		}
	case Software:
		v.Reasons = f.tcReasons(flow)
	default:
		v.Reasons = f.ovsReasons(flow, seen)
	}
	return v
}

// fewPackets are those that come up of a flow before its rule is there.
const fewPackets = 16

// idleReasons says why the host carries the packets of a rule that the NIC has. mlx5
// takes a rule that sends into a tunnel before the other end's neighbour is known, and
// sends its packets up until it is (en/rep/tc.c, mlx5e_rep_queue_neigh_update_work).
func (f Facts) idleReasons(flow *Flow) []Reason {
	if out := f.tunnelReasons(f.Netdevs[f.Port.Netdev], flow); out != nil {
		return out
	}
	if r := f.bypassed(flow); r != nil {
		return []Reason{*r}
	}
	if r := untracked(flow); r != nil {
		return []Reason{*r}
	}
	return []Reason{{
		Class: Driver, What: "the NIC has the rule, and still its packets come up to the host", From: "tc's counters",
		Change: "have Open vSwitch write it again: ovs-appctl revalidator/purge; over a bond see that VF-LAG is active: sluice observe",
	}}
}

func (flow *Flow) place() Where {
	switch {
	case flow.Rule != nil && flow.Rule.InHW:
		return Hardware
	case flow.Rule != nil || flow.Layer == "tc":
		return Software
	case slices.ContainsFunc(terms(flow.Actions), func(t term) bool { return t.name == "userspace" }):
		return Userspace
	}
	return Datapath
}

// general are the reasons that go for all flows of the port.
func (f Facts) general() (out []Reason) {
	if r := f.switchOff(); r != nil {
		out = append(out, *r)
	}
	if f.Zones > mostZones {
		out = append(out, Reason{
			Class: Limit, What: fmt.Sprintf("rules use %d conntrack zones, and mlx5 tells %d apart", f.Zones, mostZones), From: "the datapath's flows",
			Change: "fewer zones: OVN has one for each logical port and router (NB_Global options:use_common_zone for routers), or stateless ACLs",
		})
	}
	port, known := f.Netdevs[f.Port.Netdev]
	if !known {
		return out
	}
	if f.Switch.Runs && port.Bridge == "" && port.Role != RoleTunnel && f.bondOf(port.Name) == "" {
		out = append(out, Reason{
			Class: Ports, What: port.Name + " is in no bridge of Open vSwitch", From: "ovsdb",
			Change: "put it into one: ovs-vsctl add-port BRIDGE " + port.Name,
		})
	}
	if port.Bridge != "" && port.Role == RoleRepresentor && !f.uplinkIn(port) {
		out = append(out, Reason{
			Class: Ports, What: fmt.Sprintf("no uplink of its card is in bridge %s: what goes to the wire from there goes by the host", port.Bridge), From: "ovsdb",
			Change: fmt.Sprintf("if flows are to reach the wire by hardware, put the uplink (or the bond of both) into bridge %s, or a tunnel's address onto it", port.Bridge),
		})
	}
	return append(out, f.portOff(port)...)
}

// bondOf is the bond that a netdev is a member of; "" none.
func (f Facts) bondOf(name string) string {
	for _, n := range f.Netdevs {
		if slices.Contains(n.Underneath, name) {
			return n.Name
		}
	}
	return ""
}

func (f Facts) uplinkIn(port Netdev) bool {
	for _, n := range f.Netdevs {
		if (n.Role == RoleUplink || n.Role == RoleBond) && n.Bridge == port.Bridge && n.SwitchID == port.SwitchID {
			return true
		}
	}
	return false
}

// switchOff says that Open vSwitch hands nothing to hardware; nil: it does.
func (f Facts) switchOff() *Reason {
	s := f.Switch
	switch {
	case !s.Runs:
		return &Reason{Class: Setting, What: "Open vSwitch does not run: " + s.Error, Change: "start it: systemctl start openvswitch-switch"}
	case !s.HWOffload:
		return &Reason{
			Class: Setting, What: "other_config:hw-offload is not true", From: "ovsdb",
			Change: "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true; that needs no restart",
		}
	case s.Offloads != nil && !*s.Offloads:
		return &Reason{
			Class: Setting, What: "hw-offload is true, and ovs-vswitchd does not offload", From: "dpif/offload/show",
			Change: "it was started before that was set, or with another setting: systemctl restart openvswitch-switch",
		}
	case s.TCPolicy == "skip_hw":
		return &Reason{
			Class: Setting, What: "other_config:tc-policy is skip_hw: rules are kept from the hardware", From: "ovsdb",
			Change: "ovs-vsctl remove Open_vSwitch . other_config tc-policy, then systemctl restart openvswitch-switch, which alone reads it anew",
		}
	}
	return nil
}

// portOff are settings of the port's own that keep its flows out.
func (f Facts) portOff(port Netdev) (out []Reason) {
	if port.TCOffload == "off" {
		out = append(out, Reason{
			Class: Setting, What: "hw-tc-offload of " + port.Name + " is off", From: "ethtool",
			Change: fmt.Sprintf("write \"hwTCOffload: true\" for it into the node's document, or ethtool -K %s hw-tc-offload on", port.Name),
		})
	}
	if port.Priority == "none" {
		out = append(out, Reason{
			Class: Setting, What: "other_config:hw-offload-priority of " + port.Name + " is none", From: "ovsdb",
			Change: fmt.Sprintf("ovs-vsctl remove Interface %s other_config hw-offload-priority, then systemctl restart openvswitch-switch", port.Name),
		})
	}
	return out
}

// ovsReasons says why a flow has not become a rule of tc.
func (f Facts) ovsReasons(flow *Flow, seen []*Flow) (out []Reason) {
	if r := f.switchOff(); r != nil && !f.othersInTC() {
		return []Reason{*r}
	}
	port := f.Netdevs[f.Port.Netdev]
	if port.Priority == "none" {
		return f.portOff(port)
	}
	acts := terms(flow.Actions)
	out = append(out, unwritable(acts)...)
	out = append(out, unmatchable(flow.Match)...)
	out = append(out, f.chained(flow, seen)...)
	for _, name := range outputs(acts) {
		if n := f.Netdevs[name]; n.Priority == "none" {
			out = append(out, f.portOff(n)...)
		}
	}
	if out == nil {
		out = []Reason{{
			Class: Unknown, What: "Open vSwitch has not written it as a rule of tc, and nothing in the flow says why",
			Change: "ask its log: ovs-appctl vlog/set tc:file:dbg, and netdev_offload_tc (before 3.7) or dpif_offload_tc_netdev; then ovs-appctl revalidator/purge",
		}}
	}
	return out
}

// othersInTC says that flows of the port are rules of tc now, whatever is set.
func (f Facts) othersInTC() bool {
	return slices.ContainsFunc(f.Flows, func(o Flow) bool { return o.Rule != nil })
}

// chained says what keeps away a flow whose packets recirculate, or come again.
func (f Facts) chained(flow *Flow, seen []*Flow) []Reason {
	from, to := comesFrom(flow.Match), goesTo(flow.Actions)
	if from == "" && to == nil {
		return nil
	}
	if f.Recirculates != nil && !*f.Recirculates {
		return []Reason{{
			Class: Recirculation, What: "its packets recirculate, and this kernel hands no recirculation to tc: CONFIG_NET_TC_SKB_EXT is not set", From: f.RecirculatesFrom,
			Change: "run a kernel that has CONFIG_NET_TC_SKB_EXT=y (net/openvswitch/datapath.c, ovs_dp_change); no setting helps",
		}}
	}
	if from == "" {
		return nil
	}
	for i := range f.Flows {
		before := &f.Flows[i]
		if !slices.Contains(goesTo(before.Actions), from) || slices.Contains(seen, before) || before == flow {
			continue
		}
		if before.Rule != nil {
			return nil // one that leads here is in tc: this is not the reason
		}
		return []Reason{before.reason(f.verdict(before, append(seen, flow)))}
	}
	return nil
}

// bypassed says why the host carries the packets of a flow that the NIC has, if they
// come from a flow that the NIC has not; nil: one that leads here is in hardware, or
// none is known.
func (f Facts) bypassed(flow *Flow) *Reason {
	var out *Reason
	from := comesFrom(flow.Match)
	for i := range f.Flows {
		before := &f.Flows[i]
		if from == "" || !slices.Contains(goesTo(before.Actions), from) || before == flow {
			continue
		}
		if before.place() == Hardware {
			return nil
		}
		if out == nil {
			r := before.reason(f.verdict(before, []*Flow{flow}))
			out = &r
		}
	}
	return out
}

// reason is what a flow that is not in hardware means to those after it.
func (flow *Flow) reason(v Verdict) Reason {
	r := Reason{Class: Before, What: "the flow before it, " + short(flow.UFID) + ", is in " + v.Where.words()}
	if len(v.Reasons) > 0 {
		r.What += ": " + v.Reasons[0].What
		r.Change = v.Reasons[0].Change
	}
	return r
}

func short(ufid string) string {
	if ufid == "" {
		return "which has no number"
	}
	head, _, _ := strings.Cut(ufid, "-")
	return head
}

// tcReasons says why a rule of tc is not in hardware: the driver's words first, where
// it was asked; else what is known of ports and actions.
func (f Facts) tcReasons(flow *Flow) []Reason {
	if flow.Rule != nil && flow.Rule.SkipHW {
		if r := f.switchOff(); r != nil {
			return []Reason{*r}
		}
		return []Reason{{
			Class: Setting, What: "the rule was made with skip_hw", From: "tc",
			Change: "if Open vSwitch made it, its tc-policy was skip_hw when it was started: restart it",
		}}
	}
	port := f.Netdevs[f.Port.Netdev]
	guesses := append(f.portOff(port), f.strangers(port, flow)...)
	guesses = append(guesses, f.tunnelReasons(port, flow)...)
	if flow.Rule != nil && slices.ContainsFunc(flow.Rule.Match, func(p tc.Param) bool { return p.Name == "enc_flags" }) {
		guesses = append(guesses, Reason{
			Class: Tunnel, What: "it matches the tunnel's flags (csum, df), for which mlx5 has no match", From: "tc; linux:mlx5/core/en/tc_tun.c",
			Change: "Open vSwitch writes them where Linux has them, from 6.11 on: an earlier Open vSwitch or Linux, or a driver that takes them; what is sent into the tunnel is not concerned",
		})
	}
	if flow.Offer == nil {
		if guesses == nil {
			return []Reason{{Class: Unknown, What: "the driver has not taken the rule, and was not asked why", Change: "sluice why asks it"}}
		}
		return guesses
	}
	return f.refused(port, flow, *flow.Offer, guesses)
}

// refused joins the driver's answer with what explains it.
func (f Facts) refused(port Netdev, flow *Flow, v tc.Verdict, guesses []Reason) []Reason {
	switch {
	case v.Taken:
		return append(guesses, Reason{
			Class: Driver, What: "the driver takes the rule now that it is asked; when it was written it did not", From: "offered again",
			Change: "have Open vSwitch write it again: ovs-appctl revalidator/purge",
		})
	case v.NoRoom && v.Text == "" && tracks(flow):
		return []Reason{{
			Class: Limit, What: fmt.Sprintf("the card has no room for the rule, or for one more conntrack zone: rules use %d", f.Zones), From: "the driver",
			Change: "fewer zones: OVN has one for each logical port and router (NB_Global options:use_common_zone for routers), or stateless ACLs; the kernel's log tells more, \"Failed to offload ct flow\"",
		}}
	case v.NoRoom:
		return []Reason{{
			Class: Limit, What: orWord(v.Text, "the card has no room for the rule"), From: "the driver",
			Change: "fewer flows: broader matches, other_config:max-idle lower; VF-LAG halves the room",
		}}
	case v.Text == "":
		if guesses == nil {
			guesses = []Reason{{Class: Driver, What: "no driver takes rules of " + f.Port.Netdev + ": " + v.Errno, From: "offered again"}}
		}
		return guesses
	}
	class, change := wordsOf(v.Text)
	if class == Action && len(Ends([]Flow{*flow})) > 0 && strings.Contains(v.Text, "offload action") {
		class, change = Tunnel, "see what the driver offers: sluice observe --capabilities, geneve and vxlan" // the action is tunnel_key
	}
	said := Reason{Class: class, What: "the driver says: " + v.Text, From: "offered again", Change: change}
	// What was read of ports explains the driver's words where it is of their class.
	for i, g := range guesses {
		if g.Class == class || class == Driver {
			said.Class, said.Change = g.Class, ""
			rest := slices.Delete(slices.Clone(guesses), i, i+1)
			return append([]Reason{g, said}, rest...)
		}
	}
	return append([]Reason{said}, guesses...)
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

// strangers are the ports of the flow that are not of the card whose port it comes in
// by.
func (f Facts) strangers(port Netdev, flow *Flow) (out []Reason) {
	if port.Name != "" && port.Role != RoleTunnel && port.SwitchID == "" {
		return []Reason{f.stranger(port, "comes in by")}
	}
	said := map[string]bool{}
	for _, name := range f.outputsOf(flow) {
		to, known := f.Netdevs[name]
		if !known || said[name] || to.Role == RoleTunnel {
			continue
		}
		said[name] = true
		switch {
		case name == port.Name && to.Role == RoleRepresentor:
			out = append(out, Reason{Class: Ports, What: "it goes back to where it came from, " + name + ": no card sends to the VF that sent"})
		case to.Role == RoleInternal || to.SwitchID == "":
			out = append(out, f.stranger(to, "goes to"))
		case port.SwitchID != "" && to.SwitchID != port.SwitchID:
			out = append(out, Reason{
				Class: Ports, What: fmt.Sprintf("it goes to %s, which is of another card (switch id %s, not %s)", name, to.SwitchID, port.SwitchID), From: "phys_switch_id",
				Change: "use VFs of one card for what is to talk in hardware; from card to card it goes by the wire",
			})
		case port.Role == RoleRepresentor && to.Role == RoleUplink && port.Port != to.Port && to.LAG != "active":
			out = append(out, Reason{
				Class: Ports, What: fmt.Sprintf("it goes to %s, the uplink of the card's other port", name), From: "devlink",
				Change: "send it by the uplink of its own port, or bond both ports (VF-LAG)",
			})
		}
	}
	return out
}

func (f Facts) stranger(n Netdev, verb string) Reason {
	switch {
	case n.Role == RoleInternal:
		return Reason{
			Class: Ports, What: fmt.Sprintf("it %s %s, which is Open vSwitch's own port: the host itself", verb, n.Name), From: "rtnetlink",
			Change: "nothing, if the host is to have the packets; a flood goes there too: learn the address, or take " + n.Name + " out of the VLAN",
		}
	case n.Kind != "":
		return Reason{
			Class: Ports, What: fmt.Sprintf("it %s %s, a %s, which is no port of a card", verb, n.Name, n.Kind), From: "rtnetlink",
			Change: "attach what is behind it by a VF of the same card",
		}
	}
	return Reason{
		Class: Ports, What: fmt.Sprintf("it %s %s, which is no port of a switch: it has no switch id", verb, n.Name), From: "phys_switch_id",
		Change: "use a representor or an uplink of a card in switchdev mode",
	}
}

// outputsOf are where the flow's packets go, by Open vSwitch's words or by the rule.
func (f Facts) outputsOf(flow *Flow) []string {
	if flow.Actions != "" && flow.Layer != "" {
		return outputs(terms(flow.Actions))
	}
	var out []string
	if flow.Rule != nil {
		for _, a := range flow.Rule.Actions {
			if a.Dev != "" {
				out = append(out, a.Dev)
			}
		}
	}
	return out
}

// tunnelReasons look at the other ends of tunnels that the flow sends into.
func (f Facts) tunnelReasons(port Netdev, flow *Flow) (out []Reason) {
	for _, end := range Ends([]Flow{*flow}) {
		way, asked := f.Ways[end]
		dev := f.Netdevs[way.Dev]
		switch {
		case !asked:
		case way.Dev == "":
			out = append(out, Reason{
				Class: Tunnel, What: "there is no route to the tunnel's other end " + end, From: "rtnetlink",
				Change: "give the uplink, or the bridge that has it, an address and a route that lead there",
			})
		case !way.Known():
			out = append(out, Reason{
				Class: Tunnel, What: fmt.Sprintf("%s, the next hop to the tunnel's other end %s, does not answer on %s (neighbour %s)", way.Next, end, way.Dev, orWord(way.Neighbour, "unknown")), From: "rtnetlink",
				Change: "see that it is up, and answers ARP or neighbour discovery",
			})
		case dev.Role == RoleStranger || dev.Role == RoleInternal && !f.uplinkIn(Netdev{Bridge: dev.Bridge, SwitchID: port.SwitchID}):
			out = append(out, Reason{
				Class: Tunnel, What: fmt.Sprintf("the way to the tunnel's other end %s leaves by %s, which does not lead to the card", end, way.Dev), From: "rtnetlink",
				Change: "put the tunnel's address onto the card's uplink, or onto the bridge that has it",
			})
		}
	}
	return out
}
