#!/bin/bash
# Traffic: two VFs over OVS with rules in hardware, the wire, and legacy mode.
. "$(dirname "$0")/lib.sh"
fresh

# flows stay in hardware for a minute: a busy machine takes more than 10 s to look at them
ovs other_config:max-idle=60000 || exit 1
numvfs $A 4
mode $A switchdev
ovs-vsctl add-br br0
for i in 0 1 2; do
	ip link set "$(rep $A $i)" up
	ovs-vsctl add-port br0 "$(rep $A $i)"
done
pod a "$(vf_dev $A 0)" 10.0.0.1
pod b "$(vf_dev $A 1)" 10.0.0.2
does "ping through OVS" in_pod a ping -c 3 -i 0.2 -W 5 10.0.0.2
within 60 "the flows are offloaded" bash -c "ovs-appctl dpctl/dump-flows -m type=offloaded | grep -q 'offloaded:yes, dp:tc'"
acquainted a 10.0.0.1 b 10.0.0.2
like "tc says in_hw" "$(tc -s filter show dev "$(rep $A 0)" ingress)" 'in_hw in_hw_count 1'

miss=$(counter $A pf0vf0 miss_packets) hw=$(counter $A pf0vf0 hw_packets)
soft=$(stat_of "$(rep $A 0)" rx_packets) vport=$(stat_of "$(rep $A 0)" vport_rx_packets)
does "40 more pings" in_pod a ping -c 40 -i 0.05 -W 5 10.0.0.2
hw2=$(counter $A pf0vf0 hw_packets) miss2=$(counter $A pf0vf0 miss_packets)
[ $((hw2 - hw)) -ge 38 ] && ok "the hardware forwarded them" || bad "hardware forwarded $((hw2 - hw)) of 40"
[ $((miss2 - miss)) -le 2 ] && ok "the representor saw none of them" || bad "representor saw $((miss2 - miss)) of 40"
[ $(($(stat_of "$(rep $A 0)" rx_packets) - soft)) -le 2 ] && ok "nor do its software counters" || bad "software counters moved"
[ $(($(stat_of "$(rep $A 0)" vport_rx_packets) - vport)) -ge 38 ] && ok "its vport counters do" || bad "vport counters did not move"
like "hardware statistics in tc" "$(tc -s filter show dev "$(rep $A 0)" ingress)" 'Sent hardware [1-9][0-9]* bytes'
like "the rules as the hardware has them" "$(cat $debug/$A/flows)" 'in:pf0vf0 .*output:pf0vf1'
like "CPU hits apart from vport counters" "$(ip stats show dev "$(rep $A 0)" group offload subgroup cpu_hit 2>&1)" 'RX'

# TCP with segmentation offload through the hardware
in_pod b iperf3 -s -D -1 >/dev/null
does "iperf3 over hardware" in_pod a iperf3 -c 10.0.0.2 -n 20M
hw3=$(counter $A pf0vf0 hw_packets)
[ $((hw3 - hw2)) -ge 5000 ] && ok "counted by segment" || bad "only $((hw3 - hw2)) packets counted"

# link state follows the representor
ip link set "$(rep $A 1)" down
within 60 "VF link down with its representor" in_pod b bash -c '[ "$(cat /sys/class/net/eth0/carrier)" = 0 ]'
ip link set "$(rep $A 1)" up
within 60 "and up" in_pod b bash -c '[ "$(cat /sys/class/net/eth0/carrier)" = 1 ]'

# refusals, by tc
r0=$(rep $A 0) r1=$(rep $A 1) up=$(pf_dev $A)
ovs-vsctl del-br br0
within 60 "OVS took its rules back" bash -c "[ -z \"\$(cat $debug/$A/flows)\" ]"
for d in "$r0" "$r1" "$up"; do tc qdisc add dev "$d" ingress 2>/dev/null; done
ip link add v0 type veth peer name v1
numvfs $B 1 && mode $B switchdev
add="tc filter add dev $r0 ingress protocol ip flower skip_sw"
refused "forward to a stranger" 'devices are not on same switch HW' $add action mirred egress redirect dev v0
refused "forward to the other port's uplink" 'devices are not on same switch HW' $add action mirred egress redirect dev "$(pf_dev $B)"
refused "forward to itself" "can't forward from a VF to itself" $add action mirred egress redirect dev "$r0"
refused "to one device twice" "can't duplicate output" $add action mirred egress mirror dev "$r1" action mirred egress redirect dev "$r1"
refused "ports of SCTP" 'Only UDP and TCP transports' tc filter add dev "$r0" ingress protocol ip flower skip_sw ip_proto sctp dst_port 5 action drop
refused "csum alone" 'only offloaded with pedit' $add action csum ip4h action drop
refused "a field it cannot write" 'unsupported field' $add ip_proto tcp action pedit ex munge ip ihl set 5 action drop
does "hw-tc-offload of the uplink" ethtool -K "$up" hw-tc-offload on
refused "uplink to the other uplink" 'not the same uplink' tc filter add dev "$up" ingress protocol ip flower skip_sw action mirred egress redirect dev "$(pf_dev $B)"
does "VF to a VF of the other port" $add action mirred egress redirect dev "$(rep $B 0)"
tc filter del dev "$r0" ingress
does "hw-tc-offload off" ethtool -K "$r0" hw-tc-offload off
refused "then nothing is taken" 'TC offload is disabled on net device' $add action drop
ethtool -K "$r0" hw-tc-offload on
put $debug/$A/capacity 2
for p in 1 2; do tc filter add dev "$r0" ingress prio $p protocol ip flower skip_sw action drop; done
refused "a full table" 'flow table is full|No space' tc filter add dev "$r0" ingress prio 3 protocol ip flower skip_sw action drop
put $debug/$A/capacity 65536
tc filter del dev "$r0" ingress

# rules by hand: VLANs, rewrite, drop, the wire
ip link set "$up" up
ip link set "$r1" up
ip -n b link add link eth0 name eth0.7 type vlan id 7
ip -n b addr add 10.7.0.2/24 dev eth0.7
ip -n b link set eth0.7 up
ip -n a addr add 10.7.0.1/24 dev eth0
for p in ip arp; do
	tc filter add dev "$r0" ingress prio $([ $p = ip ] && echo 1 || echo 2) protocol $p flower skip_sw \
		action vlan push id 7 action mirred egress redirect dev "$r1" || bad "push rule"
done
tc filter add dev "$r1" ingress prio 1 protocol 802.1q flower skip_sw vlan_id 7 \
	action vlan pop action mirred egress redirect dev "$r0" || bad "pop rule"
soft=$(stat_of "$r1" rx_packets)
does "VLAN pushed one way and popped the other" in_pod a ping -c 3 -i 0.2 -W 3 10.7.0.2
is "none of it by the representor" "$(stat_of "$r1" rx_packets)" "$soft"
tc filter del dev "$r0" ingress
tc filter del dev "$r1" ingress
tc filter add dev "$r0" ingress prio 1 protocol ip flower skip_sw ip_proto icmp action drop
refused "dropped in hardware" '100% packet loss' in_pod a ping -c 2 -i 0.2 -W 1 10.0.0.2
tc filter del dev "$r0" ingress

# the wire: a veth, beyond it a host
put $debug/$A/wire v0
ip netns add far
ip link set v1 netns far
ip -n far addr add 10.0.0.9/24 dev v1
ip -n far link set v1 up
ip link set v0 up
is "carrier with the wire" "$(cat "/sys/class/net/$up/carrier")" 1
for p in 0x0800 0x0806; do
	tc filter add dev "$r0" ingress prio $((p)) protocol $p flower skip_sw action mirred egress redirect dev "$up" || bad "to the wire"
	tc filter add dev "$up" ingress prio $((p)) protocol $p flower skip_sw action mirred egress redirect dev "$r0" || bad "from the wire"
done
does "ping over the wire in hardware" in_pod a ping -c 3 -i 0.2 -W 3 10.0.0.9
put $debug/$A/carrier 0
is "wire cut" "$(cat "/sys/class/net/$up/carrier")" 0
put $debug/$A/carrier 1
tc qdisc del dev "$r0" ingress
tc qdisc del dev "$r1" ingress
tc qdisc del dev "$up" ingress

# legacy mode: the VEB
does "legacy" mode $A legacy
does "ping by the VEB" in_pod a ping -c 3 -i 0.2 -W 3 10.0.0.2
does "ping over the wire by the VEB" in_pod a ping -c 3 -i 0.2 -W 3 10.0.0.9
ip link set "$up" up && ip addr add 10.0.0.8/24 dev "$up"
does "ping the PF" in_pod a ping -c 3 -i 0.2 -W 3 10.0.0.8
ip link set "$up" vf 0 spoofchk on
refused "spoofed" '100% packet loss' in_pod a ping -c 2 -i 0.2 -W 1 10.0.0.2
ip link set "$up" vf 0 mac "$(in_pod a cat /sys/class/net/eth0/address)"
does "not spoofed" in_pod a ping -c 2 -i 0.2 -W 3 10.0.0.2
ip link set "$up" vf 0 vlan 5
refused "another VLAN" '100% packet loss' in_pod a ping -c 2 -i 0.2 -W 1 10.0.0.2
ip link set "$up" vf 1 vlan 5
does "the same VLAN" in_pod a ping -c 2 -i 0.2 -W 3 10.0.0.2
ip link set "$up" vf 1 state disable
is "link state disable" "$(in_pod b cat /sys/class/net/eth0/carrier)" 0
ip netns del a
ip netns del b
within 60 "a VF comes back from a namespace that ends" bash -c "[ -n \"\$(ls $sys/$A/virtfn0/net)\" ]"
ip netns del far
within 60 "the wire's end is gone" bash -c "! ip link show v0"
is "and the wire waits for it" "$(cat $debug/$A/wire)" "v0 (not there)"
is "without carrier" "$(cat "/sys/class/net/$up/carrier")" 0
finish
