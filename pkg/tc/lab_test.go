package tc_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

var update = flag.Bool("update", false, "write testdata anew from this kernel")

// The rules that the messages in testdata/flower.hex were captured from, with
// tc's way to write each.
var flowerRules = []struct{ command, want string }{
	{"prio 1 protocol all handle 1 flower action drop",
		"chain 0 prio 1 all flower not_in_hw: drop"},
	{"prio 2 protocol ip handle 1 flower dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:00/ff:00:00:00:00:00 src_ip 10.0.0.0/24 dst_ip 10.0.1.7 ip_proto tcp dst_port 443 ip_ttl 64 ip_tos 0x10/0xfc tcp_flags 0x2/0x17 ip_flags nofrag action mirred egress redirect dev b0",
		"chain 0 prio 2 ip flower dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:00/ff:00:00:00:00:00 eth_type ip ip_proto tcp ip_tos 0x10/0xfc ip_ttl 64 src_ip 10.0.0.0/24 dst_ip 10.0.1.7 dst_port 443 tcp_flags 0x2/0x17 ip_flags -frag not_in_hw: mirred egress redirect dev b0"},
	{"prio 3 protocol ipv6 handle 1 flower src_ip 2001:db8::/32 ip_proto udp src_port 53 action mirred egress mirror dev b0 pipe action pass",
		"chain 0 prio 3 ipv6 flower eth_type ipv6 ip_proto udp src_ip 2001:db8::/32 src_port 53 not_in_hw: mirred egress mirror dev b0, pass"},
	{"prio 4 protocol 802.1Q handle 1 flower vlan_id 100 vlan_prio 3 vlan_ethtype ip src_ip 10.0.0.1 action vlan pop pipe action mirred egress redirect dev b0",
		"chain 0 prio 4 802.1Q flower eth_type ip vlan_id 100 vlan_prio 3 vlan_ethtype ip src_ip 10.0.0.1 not_in_hw: vlan pop, mirred egress redirect dev b0"},
	{"prio 5 protocol arp handle 1 flower arp_op request arp_tip 10.0.0.2 action vlan push id 100 protocol 802.1Q priority 1 pipe action mirred egress redirect dev b0",
		"chain 0 prio 5 arp flower eth_type arp arp_tip 10.0.0.2 arp_op 1 not_in_hw: vlan push id 100 protocol 802.1Q priority 1, mirred egress redirect dev b0"},
	{"prio 6 protocol ip handle 1 flower ct_state -trk action ct zone 5 nat pipe action goto chain 7",
		"chain 0 prio 6 ip flower eth_type ip ct_state -trk not_in_hw: ct nat zone 5, goto chain 7"},
	{"chain 7 prio 6 protocol ip handle 1 flower ct_state +trk+est ct_zone 5 ct_mark 0x1/0xff action mirred egress redirect dev b0",
		"chain 7 prio 6 ip flower eth_type ip ct_state +est+trk ct_zone 5 ct_mark 0x1/0xff not_in_hw: mirred egress redirect dev b0"},
	{"chain 7 prio 7 protocol ip handle 1 flower ct_state +trk+new-rel action ct commit zone 5 mark 0x1/0xff nat src addr 192.0.2.1-192.0.2.9 port 1000-2000 pipe action mirred egress redirect dev b0",
		"chain 7 prio 7 ip flower eth_type ip ct_state +new-rel+trk not_in_hw: ct commit nat src addr 192.0.2.1 to 192.0.2.9 port 1000 to 2000 zone 5 mark 0x1/0xff, mirred egress redirect dev b0"},
	{"prio 8 protocol ip handle 1 flower enc_key_id 77 enc_src_ip 192.0.2.1 enc_dst_ip 192.0.2.0/25 enc_dst_port 6081 enc_ttl 64 geneve_opts 0102:80:00800022 action tunnel_key unset pipe action mirred egress redirect dev b0",
		"chain 0 prio 8 ip flower eth_type ip enc_src_ip 192.0.2.1 enc_dst_ip 192.0.2.0/25 enc_key_id 77 enc_dst_port 6081 enc_ttl 64 enc_opts 0102:80:00800022 not_in_hw: tunnel_key unset, mirred egress redirect dev b0"},
	{"prio 9 protocol ip handle 1 flower ip_proto icmp type 8 code 0 action tunnel_key set src_ip 192.0.2.1 dst_ip 192.0.2.2 id 77 dst_port 6081 ttl 64 csum pipe action mirred egress redirect dev b0",
		"chain 0 prio 9 ip flower eth_type ip ip_proto icmp icmp_type 8 icmp_code 0 not_in_hw: tunnel_key set src_ip 192.0.2.1 dst_ip 192.0.2.2 id 77 dst_port 6081 ttl 64, mirred egress redirect dev b0"},
	{"prio 10 protocol ip handle 1 flower ip_proto udp action pedit ex munge ip dst set 10.9.9.9 pipe action csum ip4h udp pipe action skbedit mark 5 ptype host pipe action mirred egress redirect dev b0",
		"chain 0 prio 10 ip flower eth_type ip ip_proto udp not_in_hw: pedit ip4+16 0a090909, csum iph udp, skbedit mark 5 ptype host, mirred egress redirect dev b0"},
	{"prio 11 protocol ip handle 1 flower skip_hw action police rate 8mbit burst 10k index 268435456 conform-exceed drop/pipe action pass",
		"chain 0 prio 11 ip flower eth_type ip skip_hw: police index 0x10000000 rate 8000000bit mtu 2040 exceed drop, pass"},
	{"prio 12 protocol all matchall action pass",
		"chain 0 prio 12 all matchall not_in_hw: pass"},
}

// Everything that sluice has words for, made by tc in a real kernel and read
// back. With -update the messages become the test data of TestParse.
func TestLabFlower(t *testing.T) {
	needLab(t)
	inNamespace(t)
	sh(t, "ip link add a0 type veth peer name a1")
	sh(t, "ip link add b0 type veth peer name b1")
	sh(t, "tc qdisc add dev a0 clsact")
	for _, r := range flowerRules {
		if out, err := trySh("tc filter add dev a0 ingress " + r.command); err != nil {
			t.Errorf("tc filter add %s: %v: %s", r.command, err, out)
		}
	}
	c := open(t)
	rules, err := c.Ingress(t.Context(), ifindex(t, "a0"))
	if err != nil {
		t.Fatal(err)
	}
	checkRules(t, rules)
	if *update {
		capture(t, "a0")
	}
}

// capture writes the raw messages, one a line.
func capture(t *testing.T, dev string) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	msgs, err := c.Dump(t.Context(), unix.RTM_GETTFILTER, &nl.TcMsg{Ifindex: int32(ifindex(t, dev)), Parent: 0xfffffff2})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprintln(&b, hex.EncodeToString(m))
	}
	if err := os.WriteFile("testdata/flower.hex", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func needLab(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_LAB") == "" {
		t.Skip("runs in the lab only (lab/run): this needs a kernel with cls_flower")
	}
}
