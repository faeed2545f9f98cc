#!/bin/bash
# Connections: flows that Open vSwitch tracks, established ones in hardware, others in
# software from the ct action on. On a kernel that hands chains back:
# lab/run --kernel offload -- lab/twin/test/ct.sh
. "$(dirname "$0")/lib.sh"
fresh
configured CONFIG_NET_TC_SKB_EXT || { echo "needs the offload kernel" >&2; exit 1; }
mlx5=/sys/kernel/debug/mlx5

ovs other_config:max-idle=120000 other_config:min-revalidate-pps=0 || exit 1
numvfs $A 4
mode $A switchdev
r0=$(rep $A 0) r1=$(rep $A 1)
ovs-vsctl add-br br0 -- set-fail-mode br0 secure
for r in "$r0" "$r1"; do
	ip link set "$r" up
	ovs-vsctl add-port br0 "$r"
done
pod a "$(vf_dev $A 0)" 10.0.0.1
pod b "$(vf_dev $A 1)" 10.0.0.2
acquainted a 10.0.0.1 b 10.0.0.2

# flows: OpenFlow from standard input, in place of what was there
flows() { ovs-ofctl -O OpenFlow15 replace-flows br0 - || bad "no flows"; }
# firewall [ZONE]: who talks from a is answered by b.
firewall() {
	local zone=${1-5}
	flows <<-END
		table=0,priority=10,arp,actions=normal
		table=0,priority=10,ip,ct_state=-trk,actions=ct(zone=$zone,table=1)
		table=1,priority=10,ip,in_port=$r0,ct_state=+trk+new,actions=ct(zone=$zone,commit,exec(load:0x17->NXM_NX_CT_MARK[],load:0x5->NXM_NX_CT_LABEL[0..31])),$r1
		table=1,priority=10,ip,in_port=$r0,ct_state=+trk+est,ct_mark=0x17,ct_label=0x5,actions=$r1
		table=1,priority=10,ip,in_port=$r1,ct_state=+trk+est,ct_mark=0x17,ct_label=0x5,actions=$r0
	END
}
connections() { wc -l <$debug/$A/connections; }
some() { grep -qE -- "$1" $debug/$A/connections; }
none() { ! some "$1"; }
served() { in_pod b ss -Hltn "sport = :$1" | grep -q .; }
# serve PORT: iperf3 in b, once
serve() {
	in_pod b iperf3 -s -D -1 -p "$1" >/dev/null
	within 60 "a server on $1" served "$1"
}
# counted: packets that a has sent so far: by hardware, and come up
counted() { echo "$(counter $A pf0vf0 hw_packets) $(counter $A pf0vf0 miss_packets)"; }

# TCP: its first packets in software, and then in hardware
firewall
serve 5201
read -r hw miss <<<"$(counted)"
in_pod a iperf3 -c 10.0.0.2 -p 5201 -t 12 -b 4M >/tmp/ct.iperf 2>&1 &
client=$!
within 60 "a connection's way out is in hardware" some 'zone:5 ip_proto:6 src:10.0.0.1 .*dport:5201 state:.*est.*trk .*mark:17 packets:[1-9]'
within 60 "and its way back" some 'zone:5 ip_proto:6 src:10.0.0.2 .*sport:5201 .*state:.*est.*trk.*rpl .*packets:[1-9]'
like "the rules as the hardware has them" "$(cat $debug/$A/flows)" 'in:pf0vf0 .*acts: ct:5 goto:'
like "one that matches the connection" "$(cat $debug/$A/flows)" 'in:pf0vf0 .*ct_state:.*\+est.*\+trk.* packets:[1-9].*output:pf0vf1'
like "Open vSwitch has them offloaded" "$(ovs-appctl dpctl/dump-flows -m type=offloaded)" 'ct_state\(0x22/0x22\).*offloaded:yes, dp:tc'
like "nf_conntrack calls it offloaded" "$(conntrack -L -p tcp 2>/dev/null)" 'dport=5201.*HW_OFFLOAD'
[ "$(cat $mlx5/$A/ct/offloaded)" -ge 2 ] && ok "so does the driver" || bad "the driver has $(cat $mlx5/$A/ct/offloaded)"
wait $client && ok "TCP through connection tracking" || bad "iperf3: $(cat /tmp/ct.iperf)"
read -r hw2 miss2 <<<"$(counted)"
echo "# TCP: $((hw2 - hw)) packets by hardware, $((miss2 - miss)) came up"
[ $((hw2 - hw)) -gt 1000 ] && [ $((miss2 - miss)) -lt $(((hw2 - hw) / 10)) ] &&
	ok "hardware forwarded it" || bad "hardware forwarded $((hw2 - hw)), $((miss2 - miss)) came up"

# Its end: FIN goes to software, which takes the connection back
within 60 "an ended connection leaves the hardware" none 'dport:5201|sport:5201'
is "all of it" "$(cat $mlx5/$A/ct/offloaded) $(connections)" "0 0"

# UDP: an entry for each way as it is known; a rest ends it, packets keep it
echo 10 >/proc/sys/net/netfilter/nf_flowtable_udp_timeout
serve 5202
read -r hw miss <<<"$(counted)"
in_pod a iperf3 -u -c 10.0.0.2 -p 5202 -t 30 -b 400K -l 500 >/tmp/ct.iperf 2>&1 &
client=$!
within 60 "UDP is in hardware" some 'zone:5 ip_proto:17 src:10.0.0.1 .*dport:5202 .*packets:[1-9]'
within 60 "as established, once it was answered" some 'ip_proto:17 src:10.0.0.1 .*dport:5202 state:.est.* packets:[1-9]'
sleep 15
some 'ip_proto:17 src:10.0.0.1 .*dport:5202 state:.est' && ok "what hardware counts keeps it" || bad "it timed out beneath its packets: $(cat $debug/$A/connections)"
wait $client && ok "UDP through connection tracking" || bad "iperf3: $(cat /tmp/ct.iperf)"
read -r hw2 miss2 <<<"$(counted)"
echo "# UDP: $((hw2 - hw)) packets by hardware, $((miss2 - miss)) came up"
[ $((hw2 - hw)) -gt 500 ] && [ $((miss2 - miss)) -lt $(((hw2 - hw) / 4)) ] &&
	ok "hardware forwarded it" || bad "hardware forwarded $((hw2 - hw)), $((miss2 - miss)) came up"
within 90 "and a rest ends it" none 'dport:5202|sport:5202'

# What the flow tables of zones never have: ICMP
read -r hw miss <<<"$(counted)"
does "ping" in_pod a ping -q -c 10 -i 0.05 -W 5 10.0.0.2
read -r hw2 miss2 <<<"$(counted)"
[ $((miss2 - miss)) -ge 10 ] && ok "ICMP comes up" || bad "$((miss2 - miss)) of 10 pings came up"
is "and has no entry" "$(connections)" 0

# No room
put $debug/$A/ct_capacity 0
serve 5203
read -r hw miss <<<"$(counted)"
in_pod a iperf3 -c 10.0.0.2 -p 5203 -t 15 -b 2M >/tmp/ct.iperf 2>&1 &
client=$!
within 60 "no room for a connection" bash -c "dmesg | grep -q 'Failed to offload ct entry, err: -28'"
is "it has none" "$(connections)" 0
put $debug/$A/ct_capacity 65536
within 60 "room again, and it moves into hardware" some 'ip_proto:6 src:10.0.0.1 .*dport:5203 .*packets:[1-9]'
wait $client && ok "TCP all the while" || bad "iperf3: $(cat /tmp/ct.iperf)"

# NAT: a talks to 10.9.9.9, which is b
ip -n a route add 10.9.9.9 dev eth0
ip -n a neigh replace 10.9.9.9 lladdr "$(mac_in b)" dev eth0 nud permanent
flows <<-END
	table=0,priority=10,ip,ct_state=-trk,actions=ct(zone=6,nat,table=1)
	table=1,priority=10,ip,in_port=$r0,nw_dst=10.9.9.9,ct_state=+trk+new,actions=ct(zone=6,commit,nat(dst=10.0.0.2)),$r1
	table=1,priority=9,ip,in_port=$r0,ct_state=+trk+est,actions=$r1
	table=1,priority=9,ip,in_port=$r1,ct_state=+trk+est,actions=$r0
END
within 60 "the old zone's rules are gone" bash -c "! grep -q 'ct:5' $debug/$A/flows"
serve 5204
read -r hw miss <<<"$(counted)"
in_pod a iperf3 -c 10.9.9.9 -p 5204 -t 10 -b 4M >/tmp/ct.iperf 2>&1 &
client=$!
within 60 "a connection with NAT is in hardware" some 'zone:6 .*src:10.0.0.1 dst:10.9.9.9 .*dport:5204 .*packets:[1-9].* nat'
within 60 "both ways" some 'zone:6 .*src:10.0.0.2 dst:10.0.0.1 sport:5204 .*packets:[1-9].* nat'
wait $client && ok "TCP through NAT" || bad "iperf3: $(cat /tmp/ct.iperf)"
read -r hw2 miss2 <<<"$(counted)"
echo "# NAT: $((hw2 - hw)) packets by hardware, $((miss2 - miss)) came up"
[ $((hw2 - hw)) -gt 1000 ] && [ $((miss2 - miss)) -lt $(((hw2 - hw) / 10)) ] &&
	ok "hardware forwarded it" || bad "hardware forwarded $((hw2 - hw)), $((miss2 - miss)) came up"
within 60 "its end" none 5204

# Two zones one after the other
flows <<-END
	table=0,priority=10,ip,ct_state=-trk,actions=ct(zone=7,table=1)
	table=1,priority=10,ip,ct_state=+trk+new,actions=ct(zone=7,commit),ct(zone=8,table=2)
	table=1,priority=9,ip,ct_state=+trk+est,actions=ct(zone=8,table=2)
	table=2,priority=10,ip,in_port=$r0,ct_state=+trk+new,actions=ct(zone=8,commit),$r1
	table=2,priority=9,ip,in_port=$r0,ct_state=+trk+est,actions=$r1
	table=2,priority=9,ip,in_port=$r1,ct_state=+trk+est,actions=$r0
END
serve 5205
read -r hw miss <<<"$(counted)"
in_pod a iperf3 -c 10.0.0.2 -p 5205 -t 10 -b 4M >/tmp/ct.iperf 2>&1 &
client=$!
within 60 "the first zone has it" some 'zone:7 .*dport:5205 .*packets:[1-9]'
within 60 "so does the second" some 'zone:8 .*dport:5205 .*packets:[1-9]'
wait $client && ok "TCP through two zones" || bad "iperf3: $(cat /tmp/ct.iperf)"
read -r hw2 miss2 <<<"$(counted)"
echo "# two zones: $((hw2 - hw)) packets by hardware, $((miss2 - miss)) came up"
[ $((hw2 - hw)) -gt 1000 ] && [ $((miss2 - miss)) -lt $(((hw2 - hw) / 10)) ] &&
	ok "hardware forwarded it" || bad "hardware forwarded $((hw2 - hw)), $((miss2 - miss)) came up"

# By hand: what the driver refuses
ovs-vsctl del-br br0
within 60 "Open vSwitch took its rules back" bash -c "[ -z \"\$(cat $debug/$A/flows)\" ]"
is "and no connection is left" "$(connections) $(cat $mlx5/$A/ct/offloaded)" "0 0"
for r in "$r0" "$r1"; do tc qdisc add dev "$r" ingress 2>/dev/null; done
add="tc filter add dev $r0 ingress protocol ip flower skip_sw"
refused "+inv" "matching on ct_state \+inv isn't supported" $add ct_state +trk+inv action drop
refused "+rel" "matching on ct_state \+rel isn't supported" $add ct_state +trk+rel action drop
refused "commit, and nothing after it" 'Operation not supported' $add action ct commit zone 9
does "-inv-rel" $add ct_state +trk-inv-rel action drop
tc filter del dev "$r0" ingress
put $debug/$A/zone_capacity 1
does "one zone" tc filter add dev "$r0" ingress prio 1 protocol ip flower skip_sw action ct zone 9 action goto chain 1
does "and again" tc filter add dev "$r0" ingress prio 2 protocol ip flower skip_sw action ct zone 9 action goto chain 2
refused "two zones" 'No space left' tc filter add dev "$r0" ingress prio 3 protocol ip flower skip_sw action ct zone 10 action goto chain 1
like "the driver says why" "$(dmesg)" 'Failed to offload ct flow, err -28'
tc filter del dev "$r0" ingress
does "the zone is free again" tc filter add dev "$r0" ingress prio 3 protocol ip flower skip_sw action ct zone 10 action goto chain 1
tc filter del dev "$r0" ingress
put $debug/$A/zone_capacity 255

# The module goes while a connection is in hardware
ovs-vsctl add-br br0 -- set-fail-mode br0 secure
for r in "$r0" "$r1"; do
	tc qdisc del dev "$r" ingress 2>/dev/null
	ovs-vsctl add-port br0 "$r"
done
firewall
serve 5206
in_pod a iperf3 -c 10.0.0.2 -p 5206 -t 600 -b 2M >/dev/null 2>&1 &
client=$!
within 60 "a connection" some 'zone:5 .*dport:5206 .*packets:[1-9]'
does "the module goes" rmmod twin
kill $client
no_leaks
finish
