package why

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// node is a node with a card of two ports, another card, and what Open vSwitch has.
func node(flows ...Flow) Facts {
	yes := true
	a, b := nic.SwitchID("aa"), nic.SwitchID("bb")
	f := Facts{
		Port: Port{Netdev: "rep0"}, Flows: flows, Switch: Switch{Runs: true, HWOffload: true, TCPolicy: "none"},
		Recirculates: &yes, RecirculatesFrom: "/boot/config", Netdevs: map[string]Netdev{},
		Ways: map[string]Way{
			"10.0.0.1": {Dev: "up", Next: "10.0.0.1", Neighbour: "reachable"}, "10.0.0.2": {}, "10.0.0.3": {Dev: "up", Next: "10.0.0.254", Neighbour: "failed"},
			"10.0.0.4": {Dev: "lan", Next: "10.0.0.4", Neighbour: "stale"},
		},
	}
	p0, p1 := nic.PCI("0000:03:00.0"), nic.PCI("0000:03:00.1")
	for _, n := range []Netdev{
		{Name: "rep0", Role: RoleRepresentor, SwitchID: a, Port: p0, Bridge: "br"},
		{Name: "rep1", Role: RoleRepresentor, SwitchID: a, Port: p0, Bridge: "br"},
		{Name: "rep2", Role: RoleRepresentor, SwitchID: a, Port: p1, Bridge: "br"},
		{Name: "up", Role: RoleUplink, SwitchID: a, Port: p0, Bridge: "br", TCOffload: "on"},
		{Name: "up1", Role: RoleUplink, SwitchID: a, Port: p1, Bridge: "br", TCOffload: "off"},
		{Name: "far", Role: RoleRepresentor, SwitchID: b, Bridge: "br"},
		{Name: "br", Role: RoleInternal, Kind: "openvswitch", Bridge: "br"},
		{Name: "veth0", Role: RoleStranger, Kind: "veth", Bridge: "br"},
		{Name: "lan", Role: RoleStranger},
		{Name: "genev_sys_6081", Role: RoleTunnel, Kind: "geneve"},
	} {
		f.Netdevs[n.Name] = n
	}
	return f
}

func ovs(actions string) Flow { return ovsFor("recirc_id(0),in_port(rep0),eth_type(0x0800)", actions) }

func ovsFor(match, actions string) Flow {
	return Flow{UFID: "1234abcd-0000", Match: match, Actions: actions, Layer: "ovs", Total: tc.Counter{Packets: 7}}
}

// matching is the flow with one match more in its rule.
func matching(name string, f Flow) Flow {
	f.Rule.Match = append(f.Rule.Match, tc.Param{Name: name})
	return f
}

// inTC is a flow that is a rule of tc; what the driver answered, "" for in hardware.
func inTC(actions, answer string) Flow {
	f := ovs(actions)
	f.Layer, f.Rule = "tc", &tc.Rule{Total: tc.Counter{Packets: 9}, Hardware: tc.Counter{Packets: 5}}
	if answer == "" {
		f.Rule.InHW = true
		return f
	}
	f.Offer = &tc.Verdict{Text: answer, Errno: "not supported"}
	return f
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		flow  Flow
		where Where
		class Class
		says  string // part of the first reason
	}{
		{inTC("rep1", ""), Hardware, "", ""},
		{ovs("rep1,userspace(pid=1,controller(reason=1,dont_send=0))"), Userspace, Controller, "to the controller"},
		{ovs("userspace(pid=4294967295,slow_path(action))"), Userspace, Action, "does it itself"},
		{ovs("userspace(pid=1,slow_path(cfm))"), Userspace, Controller, "slow_path"},
		{ovs("userspace(pid=1,sFlow(vid=0,pcp=0,output=3),actions),rep1"), Userspace, Sample, "sFlow"},
		{ovs("sample(sample=10.0%,actions(userspace(pid=1,flow_sample(probability=1)))),rep1"), Datapath, Sample, "sampled"},
		{ovs("psample(group=1),rep1"), Datapath, Sample, "psample"},
		{ovs("hash(l4(0)),recirc(0x4)"), Datapath, Hash, "dp_hash"},
		{ovsFor("recirc_id(0x4),dp_hash(0x3/0xf),in_port(rep0)", "rep1"), Datapath, Hash, "matches a hash"},
		{ovs("lb_output(1)"), Datapath, Hash, "bond"},
		{ovs("rep1,trunc(64),rep2"), Datapath, Action, "trunc"},
		{ovs("set(skb_mark(0x5)),rep1"), Datapath, Action, "packet mark"},
		{ovs("set(skb_priority(0x10001)),rep1"), Datapath, Action, "queue"},
		{ovs("set(arp(op=2)),rep1"), Datapath, Action, "rewrites arp"},
		{ovs("set(sctp(dst=8)),rep1"), Datapath, Action, "rewrites sctp"},
		{ovs("push_nsh(flags=0),rep1"), Datapath, Action, "no action push_nsh"},
		{ovs("clone(set(eth(dst=02:00:00:00:00:01)),rep1),rep2"), Datapath, Action, "clone"},
		{ovs(strings.TrimSuffix(strings.Repeat("veth0,", 17), ",")), Datapath, Action, "17 actions"},
		{ovs("ct(commit,zone=5,helper=ftp),rep1"), Datapath, Conntrack, "helper"},
		{ovsFor("skb_mark(0x1),in_port(rep0)", "rep1"), Datapath, Match, "packet mark"},
		{ovsFor("skb_mark(0/0),skb_priority(0x1/0x1),in_port(rep0)", "rep1"), Datapath, Match, "priority"},
		{ovsFor("in_port(rep0),eth_type(0x86dd),ipv6(src=::/::,frag=later)", "rep1"), Datapath, Match, "fragments of IPv6"},
		{ovsFor("in_port(rep0),mpls(label=1/0xfffff,tc=0/0),(label=2/0xfffff)", "rep1"), Datapath, Unknown, "nothing in the flow says why"},
		{ovsFor("in_port(rep0),icmpv6(type=135,code=0/0),nd(target=2001:db8::2,sll=00:00:00:00:00:00/00:00:00:00:00:00)", "rep1"), Datapath, Match, "neighbour discovery"},
		{ovsFor("in_port(rep0),nd(target=::/::,sll=00:00:00:00:00:00/00:00:00:00:00:00),skb_mark(0/0x0)", "rep1"), Datapath, Unknown, "nothing"},
		{ovs("rep1"), Datapath, Unknown, "nothing in the flow says why"},

		{inTC("br", "mlx5_core: devices are not on same switch HW, can't offload forwarding"), Software, Ports, "the host itself"},
		{inTC("veth0", "mlx5_core: devices are not on same switch HW, can't offload forwarding"), Software, Ports, "veth0, a veth"},
		{inTC("lan", "mlx5_core: devices are not on same switch HW, can't offload forwarding"), Software, Ports, "has no switch id"},
		{inTC("rep1,far", "mlx5_core: devices are not on same switch HW, can't offload forwarding"), Software, Ports, "another card (switch id bb, not aa)"},
		{inTC("up1", "mlx5_core: devices are not on same switch HW, can't offload forwarding"), Software, Ports, "the card's other port"},
		{inTC("rep2", "mlx5_core: devices are not on same switch HW, can't offload forwarding"), Software, Ports, "the driver says"},
		{inTC("rep0", "mlx5_core: can't forward from a VF to itself"), Software, Ports, "where it came from"},
		{inTC("rep1,rep1", "mlx5_core: can't duplicate output to same device"), Software, Ports, "duplicate"},
		{inTC("br", "mlx5_core: something else altogether"), Software, Ports, "the host itself"},
		{inTC("rep1", "mlx5_core: something else altogether"), Software, Driver, "something else altogether"},
		{inTC("check_pkt_len(size=1400,gt(drop),le(rep1))", "act_police: Unsupported conform/exceed action offload"), Software, Action, "conform/exceed"},
		{inTC("rep1", "mlx5_core: matching on ct_state +inv isn't supported"), Software, Conntrack, "+inv"},
		{inTC("rep1", "mlx5_core: Unsupported match on control.flags 0x3"), Software, Match, "control.flags"},
		{inTC("rep1", "mlx5_core: Unsupported key"), Software, Match, "Unsupported key"},
		{inTC("rep1", "mlx5_core: TC offload is disabled on net device"), Software, Setting, "disabled"},
		{inTC("ct(commit,zone=5),rep1", "mlx5_core: mlx5 tc ct offload isn't enabled."), Software, Conntrack, "ct offload"},
		{inTC("push_vlan(vid=6,pcp=3),rep1", "mlx5_core: Changing VLAN prio is not supported"), Software, Action, "VLAN prio"},
		{inTC("set(tunnel(tun_id=0x7,dst=10.0.0.1,ttl=64,flags(df|key))),genev_sys_6081", "mlx5_core: Not implemented offload action"), Software, Tunnel, "Not implemented"},
		{inTC("set(tunnel(tun_id=0x7,dst=10.0.0.2,ttl=64,flags(df|key))),genev_sys_6081", "mlx5_core: Not implemented offload action"), Software, Tunnel, "no route"},
		{inTC("set(tunnel(tun_id=0x7,dst=10.0.0.3,ttl=64,flags(df|key))),genev_sys_6081", "mlx5_core: Not implemented offload action"), Software, Tunnel, "10.0.0.254, the next hop"},
		{matching("enc_flags", inTC("rep1", "mlx5_core: Failed to parse tunnel attributes")), Software, Tunnel, "the tunnel's flags"},
		{inTC("set(tunnel(tun_id=0x7,dst=10.0.0.4,ttl=64,flags(df|key))),genev_sys_6081", "mlx5_core: Not implemented offload action"), Software, Tunnel, "leaves by lan"},
	} {
		got := Judge(node(c.flow)).Flows[0]
		says := ""
		if len(got.Reasons) > 0 {
			says = got.Reasons[0].What
		}
		if got.Where != c.where || got.Class() != c.class || !strings.Contains(says, c.says) {
			t.Errorf("%s %s\ngot  %s %s: %s\nwant %s %s: %s", c.flow.Match, c.flow.Actions, got.Where, got.Class(), says, c.where, c.class, c.says)
		}
	}
}

func TestDriversAnswer(t *testing.T) {
	for _, c := range []struct {
		offer *tc.Verdict
		want  []Class
		says  string
	}{
		{nil, []Class{Ports}, "veth"},
		{&tc.Verdict{Taken: true}, []Class{Ports, Driver}, "veth"},
		{&tc.Verdict{Errno: "no space", Text: "flow table is full", NoRoom: true}, []Class{Limit}, "flow table is full"},
		{&tc.Verdict{Errno: "no space", NoRoom: true}, []Class{Limit}, "no room"},
		{&tc.Verdict{Errno: "invalid argument"}, []Class{Ports}, "veth"},
		{&tc.Verdict{Errno: "not supported", Text: "devices are not on same switch HW"}, []Class{Ports, Ports}, "veth"},
		{&tc.Verdict{Errno: "not supported", Text: "TC offload is disabled on net device"}, []Class{Setting, Ports}, "disabled"},
	} {
		flow := inTC("veth0", "x")
		flow.Offer = c.offer
		var got []Class
		v := Judge(node(flow)).Flows[0]
		for _, r := range v.Reasons {
			got = append(got, r.Class)
		}
		if d := cmp.Diff(c.want, got); d != "" || !strings.Contains(v.Reasons[0].What, c.says) {
			t.Errorf("%+v: %v %s", c.offer, v.Reasons, d)
		}
	}
}

// The NIC has the rule, and the host carries the packets.
func TestIdleHardware(t *testing.T) {
	into := inTC("set(tunnel(dst=10.0.0.3)),genev_sys_6081", "")
	into.Rule.Total.Packets, into.Rule.Hardware.Packets = 100, 0
	if v := Judge(node(into)).Flows[0]; v.Where != Hardware || v.Class() != Tunnel || v.Offloaded() {
		t.Errorf("%+v", v)
	}
	plain := inTC("rep1", "")
	for _, c := range []struct {
		total, hardware uint64
		class           Class
	}{{100, 0, Driver}, {10, 0, ""}, {100, 90, ""}, {1000, 300, ""}} {
		plain.Rule.Total.Packets, plain.Rule.Hardware.Packets = c.total, c.hardware
		if v := Judge(node(plain)).Flows[0]; v.Class() != c.class {
			t.Errorf("%+v: %+v", c, v)
		}
	}
}

func TestChains(t *testing.T) {
	first := ovsFor("recirc_id(0),in_port(rep0)", "ct(zone=5),recirc(0x1)")
	second := ovsFor("recirc_id(0x1),in_port(rep0),ct_state(+trk)", "rep1")
	second.UFID = "second"
	f := node(first, second)
	no := false
	f.Recirculates = &no
	for _, v := range Judge(f).Flows {
		if v.Class() != Recirculation || !strings.Contains(v.Reasons[0].From, "/boot/config") {
			t.Errorf("%+v", v)
		}
	}
	// Where the kernel can, the first of the chain has the reason.
	first.Actions = "userspace(pid=1,controller(reason=1)),ct(zone=5),recirc(0x1)"
	r := Judge(node(first, second))
	if v := r.Flows[0]; v.UFID != "second" || v.Class() != Before || !strings.Contains(v.Reasons[0].What, "1234abcd, is in user space: each packet goes to the controller") {
		t.Errorf("%+v", v)
	}
	// One that is in tc is none.
	inHW := inTC("ct(zone=5),recirc(0x1)", "")
	if v := Judge(node(inHW, second)).Flows[1]; v.Class() != Unknown {
		t.Errorf("%+v", v)
	}
	// A circle ends.
	a, b := ovsFor("recirc_id(0x1),in_port(rep0)", "recirc(0x2)"), ovsFor("recirc_id(0x2),in_port(rep0)", "recirc(0x1)")
	if r := Judge(node(a, b)); len(r.Flows) != 2 {
		t.Errorf("%+v", r)
	}
}

// A flow that the NIC has, of packets that the host carries since their connections are
// its own.
func TestUntracked(t *testing.T) {
	for _, c := range []struct {
		match, actions string
		class          Class
		says           string
	}{
		{"recirc_id(0),in_port(rep0),ct_state(0/0x20),ipv4(src=0.0.0.0/0.0.0.0,proto=0/0,frag=no)", "ct(zone=5),recirc(0x1)", Conntrack, "not the connections of its packets"},
		{"recirc_id(0x1),in_port(rep0),ct_state(0x21/0x21),ipv4(proto=6)", "ct(commit,zone=5),rep1", Conntrack, "begin connections"},
		{"recirc_id(0x1),in_port(rep0),ct_state(+new+trk),ipv4(proto=6)", "rep1", Conntrack, "begin connections"},
		{"recirc_id(0x1),in_port(rep0),ct_state(-new+est+trk)", "rep1", Conntrack, "not the connections of its packets"},
		{"recirc_id(0x1),in_port(rep0),ct_state(0x22/0x22)", "rep1", Conntrack, "not the connections of its packets"},
		{"recirc_id(0),in_port(rep0),ipv4(proto=1,frag=no)", "ct(zone=5),recirc(0x1)", Conntrack, "protocol 1 "},
		{"recirc_id(0x1),in_port(rep0),ct_state(0x22/0x22),ipv6(proto=58/0xff)", "rep1", Conntrack, "protocol 58 "},
		{"recirc_id(0),in_port(rep0),ct_state(0/0x20)", "rep1", Driver, "come up to the host"},
		{"recirc_id(0),in_port(rep0),ct_state(0/0)", "ct_clear,rep1", Driver, "come up to the host"},
		{"recirc_id(0),in_port(rep0),ct_state(what)", "rep1", Driver, "come up to the host"},
	} {
		flow := inTC(c.actions, "")
		flow.Match, flow.Rule.Total.Packets = c.match, 100
		v := Judge(node(flow)).Flows[0]
		if v.Where != Hardware || v.Offloaded() || v.Class() != c.class || !strings.Contains(v.Reasons[0].What, c.says) {
			t.Errorf("%s -> %s: %+v", c.match, c.actions, v)
		}
		flow.Rule.Hardware.Packets = 90
		if v := Judge(node(flow)).Flows[0]; !v.Offloaded() {
			t.Errorf("%s, by the NIC: %+v", c.match, v)
		}
	}
	full := inTC("ct(zone=300),recirc(0x1)", "")
	full.Rule.InHW, full.Offer = false, &tc.Verdict{Errno: "no space left on device", NoRoom: true}
	after := inTC("rep1", "")
	after.Match, after.Rule.Total.Packets = "recirc_id(0x1),in_port(rep0),ct_state(0x22/0x22)", 100
	if v := Judge(node(full, after)).Flows[0]; v.Class() != Before || !strings.Contains(v.Reasons[0].What, "in tc's software: the card has no room") {
		t.Errorf("%+v", v)
	}
	if v := Judge(node(full)).Flows[0]; v.Class() != Limit || !strings.Contains(v.Reasons[0].What, "conntrack zone") {
		t.Errorf("%+v", v)
	}
}

func TestSettings(t *testing.T) {
	off := false
	for what, change := range map[string]func(*Facts){
		"does not run":                   func(f *Facts) { f.Switch.Runs = false },
		"hw-offload is not true":         func(f *Facts) { f.Switch.HWOffload = false },
		"ovs-vswitchd does not offload":  func(f *Facts) { f.Switch.Offloads = &off },
		"tc-policy is skip_hw":           func(f *Facts) { f.Switch.TCPolicy = "skip_hw" },
		"hw-offload-priority of rep0":    func(f *Facts) { n := f.Netdevs["rep0"]; n.Priority = "none"; f.Netdevs["rep0"] = n },
		"hw-tc-offload of rep0 is off":   func(f *Facts) { n := f.Netdevs["rep0"]; n.TCOffload = "off"; f.Netdevs["rep0"] = n },
		"rep0 is in no bridge":           func(f *Facts) { n := f.Netdevs["rep0"]; n.Bridge = ""; f.Netdevs["rep0"] = n },
		"no uplink of its card is in br": func(f *Facts) { delete(f.Netdevs, "up"); delete(f.Netdevs, "up1") },
		"rules use 256 conntrack zones":  func(f *Facts) { f.Zones = 256 },
	} {
		f := node(ovs("rep1"))
		change(&f)
		if r := Judge(f); len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0].What, what) {
			t.Errorf("%s: %v", what, r.Reasons)
		}
	}
	if r := Judge(node(ovs("rep1"))); r.Reasons != nil {
		t.Errorf("nothing is set wrongly: %v", r.Reasons)
	}
	// With nothing of a port in tc the setting is each flow's reason; with something
	// there it is not.
	f := node(ovs("rep1"))
	f.Switch.HWOffload = false
	if v := Judge(f).Flows[0]; v.Class() != Setting {
		t.Errorf("%+v", v)
	}
	f = node(ovs("userspace(pid=1,controller(reason=1))"), inTC("rep1", ""))
	f.Switch.HWOffload = false
	if v := Judge(f).Flows[1]; v.Class() != Controller {
		t.Errorf("%+v", v)
	}
	kept := inTC("rep1", "")
	kept.Rule.InHW, kept.Rule.SkipHW = false, true
	if v := Judge(node(kept)).Flows[0]; v.Class() != Setting || !strings.Contains(v.Reasons[0].What, "skip_hw") {
		t.Errorf("%+v", v)
	}
}

func TestReport(t *testing.T) {
	id := nic.VFID{PF: nic.PCI("0000:03:00.0"), Index: 2}
	f := node(ovs("userspace(pid=1,controller(reason=1))"), inTC("rep1", ""), inTC("veth0", "not on same switch HW"))
	f.Port = Port{Netdev: "rep0", VF: &id, Pod: "shop/web-0", Interface: "net1"}
	r := Judge(f)
	want := "rep0 (representor of pci/0000:03:00.0 vf 2, net1 of pod shop/web-0): 3 flows, 1 in hardware, 1 in tc's software, 1 in user space; " +
		"10 packets by the NIC, 15 by the host (40.0% in hardware)"
	if r.String() != want {
		t.Errorf("got  %s\nwant %s", r, want)
	}
	for _, v := range r.Flows {
		if len(v.Row()) != len(Columns()) {
			t.Errorf("%d cells under %d headings", len(v.Row()), len(Columns()))
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(b, &again); err != nil || !cmp.Equal(r, again) {
		t.Errorf("%v %s", err, cmp.Diff(r, again))
	}
	one := r.Only(func(v Verdict) bool { return v.Where == Hardware })
	if len(one.Flows) != 1 || one.Hardware.Packets != 5 || one.Software.Packets != 4 || len(r.Flows) != 3 {
		t.Errorf("%+v", one)
	}
	if s := Judge(node()).String(); s != "rep0: no flows: Open vSwitch takes those back that rest for ten seconds" {
		t.Error(s)
	}
}
