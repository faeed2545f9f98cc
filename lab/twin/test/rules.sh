#!/bin/bash
# What the hardware does with rules: each is skip_sw, so that nothing else can
# have done it.
. "$(dirname "$0")/lib.sh"
fresh
numvfs $A 4
numvfs $B 1
mode $A switchdev
mode $B switchdev
r0=$(rep $A 0) r1=$(rep $A 1) r2=$(rep $A 2) q0=$(rep $B 0) up=$(pf_dev $A)
pod a "$(vf_dev $A 0)" 10.0.0.1
pod b "$(vf_dev $A 1)" 10.0.0.2
pod c "$(vf_dev $A 2)" 10.0.0.3
pod d "$(vf_dev $B 0)" 10.0.0.4
ma=$(mac_in a) mb=$(mac_in b) mc=$(mac_in c) md=$(mac_in d)
for dev in "$r0" "$r1" "$r2" "$q0" "$up"; do
	ip link set "$dev" up
	tc qdisc add dev "$dev" ingress
done
for p in a b c d; do # no ARP: only what a rule says is forwarded
	for q in a:10.0.0.1:$ma b:10.0.0.2:$mb c:10.0.0.3:$mc d:10.0.0.4:$md; do
		IFS=: read -r name address mac <<<"$q"
		[ "$name" = $p ] || ip -n $p neigh replace "$address" lladdr "$mac" dev eth0 nud permanent
	done
done
clear() { for dev in "$r0" "$r1" "$r2" "$q0" "$up"; do tc filter del dev "$dev" ingress 2>/dev/null; done; }
chain=0
add() { # DEV PRIO PROTO MATCH... ACTION..., in $chain
	local dev=$1 prio=$2 proto=$3
	shift 3
	local out
	out=$(tc filter add dev "$dev" ingress chain "$chain" prio "$prio" protocol "$proto" flower skip_sw "$@" 2>&1) ||
		bad "rule on $dev: $*: $out"
}
refuse() { # WHAT TEXT DEV PRIO PROTO MATCH... ACTION...
	local what=$1 text=$2 dev=$3 prio=$4 proto=$5
	shift 5
	refused "$what" "$text" tc filter add dev "$dev" ingress chain "$chain" prio "$prio" protocol "$proto" flower skip_sw "$@"
}
to() { echo action mirred egress redirect dev "$1"; }
back() { add "$r1" 1 ip $(to "$r0"); }	# b answers a
pings() { in_pod a ping -c 2 -i 0.2 -W 2 "$1"; }
is "links up" "$(in_pod a cat /sys/class/net/eth0/carrier)" 1

# nothing without a rule, and then to the representor
refused "no rule, no forwarding" '100% packet loss' pings 10.0.0.2
[ "$(counter $A pf0vf0 miss_packets)" -ge 2 ] && ok "the representor got it" || bad "no misses counted"

# priority and match
add "$r0" 1 ip $(to "$r1")
back
does "forwarded" pings 10.0.0.2
add "$r0" 2 ip action drop
does "the lower priority number wins" pings 10.0.0.2
clear && back
add "$r0" 1 ip ip_proto icmp type 8 code 0 action drop
add "$r0" 2 ip $(to "$r1")
refused "ICMP type matched" '100% packet loss' pings 10.0.0.2
clear && back
add "$r0" 1 ip dst_ip 10.0.0.0/31 $(to "$r1")
refused "a prefix that does not match" '100% packet loss' pings 10.0.0.2
add "$r0" 2 ip dst_ip 10.0.0.2/31 $(to "$r1")
does "one that does" pings 10.0.0.2
clear && back
add "$r0" 1 ip src_mac "$mb" $(to "$r1")
refused "another source address" '100% packet loss' pings 10.0.0.2
add "$r0" 2 ip dst_mac "$mb" src_mac "$ma" $(to "$r1")
does "the right addresses" pings 10.0.0.2
clear && back
add "$r0" 1 ip ip_tos 0x20/0xfc $(to "$r1")
refused "TOS that does not match" '100% packet loss' pings 10.0.0.2
does "TOS that does" in_pod a ping -Q 0x20 -c 2 -i 0.2 -W 2 10.0.0.2
clear && back
add "$r0" 1 ip ip_flags frag $(to "$r1")
add "$r1" 2 ip ip_flags frag $(to "$r0")
refused "not a fragment" '100% packet loss' pings 10.0.0.2
does "fragments" in_pod a ping -s 4000 -c 2 -i 0.2 -W 2 10.0.0.2

# IPv6
clear
for p in a b; do in_pod $p sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0; done
ip -n a addr add fd00::1/64 dev eth0 nodad
ip -n b addr add fd00::2/64 dev eth0 nodad
ip -n a neigh replace fd00::2 lladdr "$mb" dev eth0 nud permanent
ip -n b neigh replace fd00::1 lladdr "$ma" dev eth0 nud permanent
add "$r0" 1 ipv6 ip_proto icmpv6 dst_ip fd00::2 $(to "$r1")
add "$r1" 1 ipv6 src_ip fd00::/64 $(to "$r0")
does "IPv6" in_pod a ping -c 2 -i 0.2 -W 2 fd00::2

# L4
clear && back
add "$r0" 1 ip ip_proto tcp dst_port 5201 $(to "$r1")
in_pod b iperf3 -s -D -1 >/dev/null
does "TCP by port" in_pod a iperf3 -c 10.0.0.2 -n 5M
in_pod b iperf3 -s -D -1 -p 5202 >/dev/null
refused "another port" 'unable to connect' in_pod a timeout 5 iperf3 -c 10.0.0.2 -p 5202 --connect-timeout 1500 -n 1M
clear

# rewriting: a talks to 10.9.9.9, which is b, NATed both ways in hardware
ip -n a route add 10.9.9.9 dev eth0
ip -n a neigh replace 10.9.9.9 lladdr 00:00:5e:00:01:01 dev eth0 nud permanent
nat=(action pedit ex munge eth dst set "$mb" munge ip dst set 10.0.0.2 munge ip ttl add 0xff pipe action csum ip4h tcp udp pipe)
tan=(action pedit ex munge ip src set 10.9.9.9 munge ip ttl set 33 pipe action csum ip4h tcp udp pipe)
add "$r0" 1 ip ip_proto icmp dst_ip 10.9.9.9 "${nat[@]}" $(to "$r1")
add "$r1" 1 ip ip_proto icmp src_ip 10.0.0.2 "${tan[@]}" $(to "$r0")
like "ICMP through NAT in hardware, TTL written" "$(in_pod a ping -c 2 -i 0.2 -W 2 10.9.9.9 2>&1)" 'bytes from 10.9.9.9: icmp_seq=[12] ttl=33 '
clear
add "$r0" 1 ip ip_proto tcp dst_ip 10.9.9.9 dst_port 80 \
	action pedit ex munge eth dst set "$mb" munge ip dst set 10.0.0.2 munge tcp dport set 5203 pipe action csum ip4h tcp pipe $(to "$r1")
add "$r1" 1 ip ip_proto tcp src_port 5203 \
	action pedit ex munge ip src set 10.9.9.9 munge tcp sport set 80 pipe action csum ip4h tcp pipe $(to "$r0")
in_pod b iperf3 -s -D -1 -p 5203 >/dev/null
does "TCP through NAT and port change in hardware" in_pod a iperf3 -c 10.9.9.9 -p 80 -n 5M
in_pod a ethtool -K eth0 tx off tso off >/dev/null
in_pod b ethtool -K eth0 tx off tso off >/dev/null
in_pod b iperf3 -s -D -1 -p 5203 >/dev/null
does "the same with checksums made by the host" in_pod a iperf3 -c 10.9.9.9 -p 80 -n 2M
clear

# several outputs: mirror to c, then to b with another VLAN
add "$r0" 1 ip ip_proto icmp action mirred egress mirror dev "$r2" $(to "$r1")
back
before=$(counter $A pf0vf2 rx_unicast_packets)
does "mirrored and forwarded" pings 10.0.0.2
is "the mirror's copies" "$(($(counter $A pf0vf2 rx_unicast_packets) - before))" 2
clear

# to a VF of the other port
add "$r0" 1 ip dst_mac "$md" $(to "$q0")
add "$q0" 1 ip dst_mac "$ma" $(to "$r0")
does "between the ports of the card" pings 10.0.0.4
clear

# two tags
ip -n b link add link eth0 name s type vlan id 10 protocol 802.1ad
ip -n b link add link s name eth0.5 type vlan id 5
ip -n b addr add 10.5.0.2/24 dev eth0.5
ip -n b link set s up && ip -n b link set eth0.5 up
ip -n a addr add 10.5.0.1/24 dev eth0
ip -n a neigh replace 10.5.0.2 lladdr "$mb" dev eth0 nud permanent
ip -n b neigh replace 10.5.0.1 lladdr "$ma" dev eth0.5 nud permanent
add "$r0" 1 ip action vlan push id 5 pipe action vlan push id 10 protocol 802.1ad pipe $(to "$r1")
add "$r1" 1 802.1ad vlan_id 10 vlan_ethtype 802.1q cvlan_id 5 action vlan pop pipe action vlan pop pipe $(to "$r0")
does "two tags pushed and popped" pings 10.5.0.2
clear
add "$r1" 1 802.1ad vlan_id 10 vlan_ethtype 802.1q action vlan modify id 11 $(to "$r0")
refuse "three tags" 'Total vlans used is greater than supported' "$r0" 1 ip action vlan push id 1 pipe action vlan push id 2 pipe action vlan push id 3 $(to "$r1")
refuse "change of a tag that need not be there" 'VLAN rewrite action must have VLAN protocol match' "$r0" 1 ip action vlan modify id 3 $(to "$r1")
refuse "change of its priority" 'Changing VLAN prio is not supported' "$r0" 1 802.1q vlan_id 3 action vlan modify id 4 priority 5 $(to "$r1")
refuse "rewriting a GRE packet's address" "can't offload re-write of non TCP/UDP" "$r0" 1 ip ip_proto 47 action pedit ex munge ip dst set 1.2.3.4 $(to "$r1")
refuse "one place twice" 'Acting twice on same location' "$r0" 1 ip ip_proto udp action pedit ex munge ip dst set 1.2.3.4 pipe action pedit ex munge ip dst set 1.2.3.5 $(to "$r1")
configured CONFIG_NET_TC_SKB_EXT || # with it: ct.sh
	refuse "conntrack" "mlx5 tc ct offload isn't enabled" "$r0" 1 ip action ct zone 1 pipe $(to "$r1")
refuse "a range of ports" 'Unsupported key' "$r0" 1 ip ip_proto udp dst_port 5-9 action drop
refuse "immediate statistics" 'HW stats type is not supported|not supported' "$r0" 1 ip action drop hw_stats immediate
clear

# metering: 80 kbit/s let 1 of many big pings through
add "$r0" 1 ip ip_proto icmp action police rate 80kbit burst 3000 conform-exceed drop/pipe $(to "$r1")
back
lost=$(in_pod a ping -s 1000 -c 30 -i 0.02 -W 1 10.0.0.2 | sed -n 's/.* \([0-9]*\)[.0-9]*% packet loss.*/\1/p')
[ "${lost:-0}" -gt 20 ] && [ "${lost:-100}" -lt 100 ] && ok "the meter drops some: $lost%" || bad "the meter dropped $lost%"
clear

# trap
add "$r0" 1 ip action trap
before=$(stat_of "$r0" rx_packets)
refused "trapped" '100% packet loss' pings 10.0.0.2
[ $(($(stat_of "$r0" rx_packets) - before)) -ge 2 ] && ok "to the representor" || bad "the representor saw nothing"
clear

# the receiver's filter and MTU
add "$r0" 1 ip $(to "$r1")
back
ip -n b link set eth0 mtu 1000
refused "longer than the receiver's MTU" '100% packet loss' in_pod a ping -M do -s 1200 -c 2 -i 0.2 -W 1 10.0.0.2
does "not longer" in_pod a ping -s 900 -c 2 -i 0.2 -W 2 10.0.0.2
ip -n b link set eth0 mtu 1500
before=$(counter $A pf0vf1 rx_drops)
ip -n a neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
refused "not the receiver's address" '100% packet loss' pings 10.0.0.2
is "dropped by it" "$(($(counter $A pf0vf1 rx_drops) - before))" 2
ip -n a neigh replace 10.0.0.2 lladdr "$mb" dev eth0 nud permanent
clear

# chains
if configured CONFIG_NET_TC_SKB_EXT; then
	add "$r0" 1 ip action goto chain 5
	chain=5 add "$r0" 1 ip ip_proto icmp action goto chain 3
	chain=3 add "$r0" 1 ip $(to "$r1")
	back
	does "through three chains in hardware" pings 10.0.0.2
	tc filter del dev "$r0" ingress chain 3
	refused "nothing in the last" '100% packet loss' pings 10.0.0.2
	tc filter add dev "$r0" ingress chain 3 prio 1 protocol ip flower skip_hw $(to "$r1") || bad "software rule"
	before=$(counter $A pf0vf0 hw_packets) soft=$(stat_of "$r0" rx_packets)
	does "a miss goes on in software where the hardware stopped" pings 10.0.0.2
	is "first in hardware" "$(($(counter $A pf0vf0 hw_packets) - before))" 2
	is "then by the host" "$(($(stat_of "$r0" rx_packets) - soft))" 2
	clear
	tc filter del dev "$r0" ingress chain 3 2>/dev/null
	tc filter del dev "$r0" ingress chain 5 2>/dev/null
	add "$r0" 1 ip action goto chain 1
	chain=1 add "$r0" 1 ip action goto chain 0
	refused "a circle of chains ends" '100% packet loss' pings 10.0.0.2
	tc filter del dev "$r0" ingress chain 1
	clear
else
	refuse "goto without NET_TC_SKB_EXT" 'Goto action is not supported' "$r0" 1 ip action goto chain 5
	chain=5 refuse "a chain without it" 'chain is out of supported range' "$r0" 1 ip action drop
fi

# a block shared by two representors
tc qdisc del dev "$r0" ingress
tc qdisc del dev "$r2" ingress
tc qdisc add dev "$r0" ingress_block 7 ingress
tc qdisc add dev "$r2" ingress_block 7 ingress
does "a rule on a shared block" tc filter add block 7 prio 1 protocol ip flower skip_sw $(to "$r1")
like "in hardware twice" "$(tc filter show block 7)" 'in_hw in_hw_count 2'
back
does "it works for one" pings 10.0.0.2
add "$r1" 2 ip dst_mac "$mc" $(to "$r2")
tc filter del dev "$r1" ingress prio 1
add "$r1" 3 ip $(to "$r0")
does "and for the other" in_pod c ping -c 2 -i 0.2 -W 2 10.0.0.2
tc filter del block 7
is "nothing left of it" "$(grep -c 'in:pf0vf[02]' $debug/$A/flows)" 0

# VFs go while rules name them
back
add "$r1" 5 ip dst_ip 10.0.0.3 $(to "$r2")
does "VFs off while rules are in hardware" numvfs $A 0
is "the rules are gone with their ports" "$(cat $debug/$A/flows)" ""
for p in a b c d; do ip netns del $p; done
finish
