package why

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTerms(t *testing.T) {
	got := terms("set(eth(src=a,dst=b)), ct(commit,nat(src=1.2.3.4)),pop_vlan,rep1,drop")
	want := []term{{"set", "eth(src=a,dst=b)"}, {"ct", "commit,nat(src=1.2.3.4)"}, {"pop_vlan", ""}, {"rep1", ""}, {"drop", ""}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(term{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"rep1"}, outputs(got)); d != "" {
		t.Error(d)
	}
	have := fields("recirc_id(0x5),skb_mark(0/0),ct_mark(0/0x0),in_port(rep0),eth(src=00:00:00:00:00:00/00:00:00:00:00:00),skb_priority(0)")
	if d := cmp.Diff(map[string]string{"recirc_id": "0x5", "in_port": "rep0", "skb_priority": "0"}, have); d != "" {
		t.Error(d)
	}
}

func TestForATable(t *testing.T) {
	for match, want := range map[string]string{
		"recirc_id(0),dp_hash(0/0),in_port(x),packet_type(ns=0/0,id=0/0),eth(src=a,dst=00:00:00:00:00:00/00:00:00:00:00:00),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,frag=no),key32(00 00/00 00)": "eth(src=a),eth_type(0x0800),ipv4(frag=no)",
		"recirc_id(0x5),ct_state(+est+trk),ct_mark(0/0x1)": "recirc_id(0x5),ct_state(+est+trk),ct_mark(0/0x1)",
		"eth_type ip dst_ip 10.0.0.1":                      "eth_type ip dst_ip 10.0.0.1",
	} {
		if got := brief(match); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", match, got, want)
		}
	}
	if got := cut(strings.Repeat("port12345,", 20)); got != strings.Repeat("port12345,", 10)+"... (20 actions)" {
		t.Error(got)
	}
	if got := cut("userspace(" + strings.Repeat("x", 200) + ")"); len(got) != widest+3 {
		t.Error(got)
	}
}

func TestEnds(t *testing.T) {
	flows := []Flow{
		{Actions: "set(tunnel(tun_id=0x7,dst=10.0.0.1,ttl=64,geneve({class=0x102,type=0x80,len=4,0x30002}),flags(df|csum|key))),genev_sys_6081"},
		{Actions: "set(tunnel(tun_id=0x7,src=::,ipv6_dst=2001:db8::1,ttl=64)),vxlan_sys_4789,set(tunnel(dst=10.0.0.1)),x"},
	}
	if d := cmp.Diff([]string{"10.0.0.1", "2001:db8::1"}, Ends(flows)); d != "" {
		t.Error(d)
	}
}

// Whatever the daemon prints, a report comes of it.
func FuzzJudge(f *testing.F) {
	f.Add("recirc_id(0x1),in_port(rep0),ct_state(0/0)", "set(tunnel(dst=10.0.0.2)),ct(commit),recirc(0x1)")
	f.Add("((", "))),,(")
	f.Fuzz(func(t *testing.T, match, actions string) {
		for _, flow := range []Flow{ovsFor(match, actions), inTC(actions, "x")} {
			if v := Judge(node(flow, ovsFor(match, actions))).Flows[0]; v.Where != Hardware && len(v.Reasons) == 0 {
				t.Errorf("no reason: %+v", v)
			}
		}
	})
}
