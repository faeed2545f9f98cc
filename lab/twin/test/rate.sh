#!/bin/bash
# Rates: devlink's leaves and nodes, ip's, and what passes. Bounds are from above
# only: a slow machine sends less, never more.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/laglib.sh"
fresh
rate() { devlink port function rate "$@"; }
# sent VPORT: bytes so far
sent() { counter $A "$1" tx_unicast_bytes; }
# at_most WHAT MBPS SECONDS VPORT...: all of them together send no more than that
at_most() {
	local what=$1 mbps=$2 seconds=$3 before=0 after=0 t v
	shift 3
	for v; do before=$((before + $(sent "$v"))); done
	t=$(date +%s%N)
	sleep "$seconds"
	for v; do after=$((after + $(sent "$v"))); done
	t=$((($(date +%s%N) - t) / 1000000))
	# 15% and a burst of 100 ms
	if [ $((after - before)) -le $((mbps * 125 * (t + 100) * 115 / 100)) ]; then
		ok "$what: $(((after - before) * 8 / t / 1000)) Mbit/s"
	else
		bad "$what: $(((after - before) * 8 / t / 1000)) Mbit/s, want at most $mbps"
	fi
}

# what is shown and refused
refused "a node in legacy mode" 'Rate node creation supported only in switchdev mode' rate add pci/$A/gold
mode $A switchdev
numvfs $A 3
devlink port add pci/$A flavour pcisf pfnum 0 sfnum 7 >/dev/null
is "a leaf for each VF and SF" "$(rate show | grep -c "^pci/$A/[0-9]*: type leaf")" 4
refused "less than 1 Mbit/s" 'TX rate value not in link speed units of 1Mbps' rate set pci/$A/1 tx_max 100kbit
refused "more than the link" 'TX rate value exceed link maximum speed' rate set pci/$A/1 tx_max 200gbit
refused "tx_share too" 'TX rate value not in link speed units' rate set pci/$A/1 tx_share 1500kbit
refused "tx_priority" "TX priority set isn't supported for the leafs" rate set pci/$A/1 tx_priority 1
refused "tx_weight" "TX weight set isn't supported for the leafs" rate set pci/$A/1 tx_weight 1
does "a leaf's tx_max" rate set pci/$A/1 tx_max 100mbit
does "and tx_share" rate set pci/$A/1 tx_share 10mbit
like "both are shown" "$(rate show pci/$A/1)" 'type leaf tx_share 10Mbit tx_max 100Mbit'
like "and seen by ip" "$(ip link show "$(pf_dev $A)")" 'vf 0 .*max_tx_rate 100Mbps, min_tx_rate 10Mbps|vf 0 .*tx rate 100 \(Mbps\), max_tx_rate 100Mbps, min_tx_rate 10Mbps'
does "ip sets it in switchdev" ip link set "$(pf_dev $A)" vf 0 max_tx_rate 50 min_tx_rate 0
like "devlink does not hear of that" "$(rate show pci/$A/1)" 'tx_max 100Mbit'
does "an SF's leaf" rate set pci/$A/32768 tx_max 100mbit
does "a node" rate add pci/$A/gold tx_max 1gbit
does "VF under it" rate set pci/$A/2 parent gold
does "SF under it" rate set pci/$A/32768 parent gold
like "shown" "$(rate show pci/$A/32768)" 'parent gold'
refused "no such node" 'No such device' rate set pci/$A/3 parent silver
refused "delete it with children" 'Node has children. Cannot delete node' rate del pci/$A/gold
refused "legacy mode while there are nodes" 'Rate node\(s\) exists' mode $A legacy
does "SF deleted" devlink port del pci/$A/32768
does "VF without" rate set pci/$A/2 noparent
does "delete it" rate del pci/$A/gold
put $debug/$A/fail "rate_set EREMOTEIO 1 0 E-Switch modify scheduling element failed"
refused "rate_set" 'E-Switch modify scheduling element failed' rate set pci/$A/1 tx_max 70mbit
like "as before" "$(rate show pci/$A/1)" 'tx_max 100Mbit'
if uname -r | grep -q '^7'; then
	rate add pci/$A/top tx_max 1gbit
	rate add pci/$A/low
	rate add pci/$A/lower
	does "a node under a node" rate set pci/$A/low parent top
	does "a VF under that" rate set pci/$A/3 parent low
	refused "a node with children moves" 'Cannot reassign a node that contains rate objects' rate set pci/$A/low noparent
	does "a third" rate set pci/$A/lower parent low
	rate add pci/$A/lowest
	refused "too deep" 'Node hierarchy depth 5 exceeds the maximum supported level 4' rate set pci/$A/lowest parent lower
	does "reload with nodes" devlink dev reload pci/$A
	is "none left" "$(rate show | grep -c "pci/$A")" 0
	mode $A switchdev
fi
does "legacy" mode $A legacy
like "rates end with the mode" "$(ip link show "$(pf_dev $A)" | grep 'vf 0' | grep -c tx_rate)" 0

# legacy mode: what passes
pod a "$(vf_dev $A 0)" 10.0.0.1
pod b "$(vf_dev $A 1)" 10.0.0.2
pod c "$(vf_dev $A 2)" 10.0.0.3
in_pod c iperf3 -s -D -p 5201 >/dev/null
in_pod c iperf3 -s -D -p 5202 >/dev/null
send() { in_pod "$1" iperf3 -c 10.0.0.3 -p "$2" -t "$3" >/dev/null 2>&1 & }
does "ping" in_pod a ping -c 2 -i 0.2 -W 5 10.0.0.3
does "max_tx_rate by ip" ip link set "$(pf_dev $A)" vf 0 max_tx_rate 20
like "shown" "$(ip link show "$(pf_dev $A)")" 'vf 0 .*max_tx_rate 20Mbps'
send a 5201 6
sleep 2
at_most "legacy, by ip" 20 3 pf0vf0
before=$(sent pf0vf0)
wait
does "no limit" ip link set "$(pf_dev $A)" vf 0 max_tx_rate 0
send a 5201 4
within 60 "more passes then" bash -c "[ \$((\$(sed -n 's/^pf0vf0 .*tx_unicast_bytes:\([0-9]*\).*/\1/p' $debug/$A/counters) - $before)) -gt 25000000 ]"
wait

# switchdev: leaf, node, assured rate
does "switchdev" mode $A switchdev
for i in 0 1 2; do ip link set "$(rep $A $i)" up && tc qdisc add dev "$(rep $A $i)" ingress; done
both() {
	tc filter add dev "$(rep $A "$1")" ingress prio 1 protocol all flower skip_sw dst_mac "$(mac_in "$3")" \
		action mirred egress redirect dev "$(rep $A "$2")" || bad "rule"
}
both 0 2 c
both 1 2 c
both 2 0 a
both 2 1 b
for x in a b; do ip -n $x neigh replace 10.0.0.3 lladdr "$(mac_in c)" dev eth0 nud permanent; done
ip -n c neigh replace 10.0.0.1 lladdr "$(mac_in a)" dev eth0 nud permanent
ip -n c neigh replace 10.0.0.2 lladdr "$(mac_in b)" dev eth0 nud permanent
does "ping in hardware" in_pod a ping -c 2 -i 0.2 -W 5 10.0.0.3
# What a VF says before its link is up is dropped, so only what comes now counts.
drops=$(counter $A pf0vf0 tx_drops)
does "leaf" rate set pci/$A/1 tx_max 20mbit
send a 5201 6
sleep 2
at_most "leaf" 20 3 pf0vf0
wait
does "no limit" rate set pci/$A/1 tx_max 0
rate add pci/$A/pods tx_max 20mbit
rate set pci/$A/1 parent pods
rate set pci/$A/2 parent pods
send a 5201 7
send b 5202 7
sleep 2
at_most "node, both together" 20 4 pf0vf0 pf0vf1
wait
does "an assured rate" rate set pci/$A/2 tx_share 16mbit
a0=$(sent pf0vf0) b0=$(sent pf0vf1)
send a 5201 9
send b 5202 9
sleep 2
at_most "node, with an assured rate in it" 20 5 pf0vf0 pf0vf1
wait
a=$(($(sent pf0vf0) - a0)) b=$(($(sent pf0vf1) - b0))
[ $b -gt $((a * 2)) ] && ok "who has it gets more: $b and $a bytes" || bad "$b and $a bytes"
is "nothing was dropped for it" "$(counter $A pf0vf0 tx_drops)" "$drops"
does "link down while it waits" ip -n a link set eth0 down
does "and up" ip -n a link set eth0 up
for i in 0 1 2; do tc qdisc del dev "$(rep $A $i)" ingress; done
for x in a b c; do ip netns pids $x | xargs -r kill; ip netns del $x; done

# with LAG the bond is the link
p0=$(pf_dev $A) p1=$(pf_dev $B)
mode $B switchdev
unbind $A # with drivers on VFs no LAG begins
bond balance-xor "$p0" "$p1"
active "LAG"
like "the bond's speed" "$(ethtool bond0)" 'Speed: 200000Mb/s'
does "more than a link" rate set pci/$A/1 tx_max 150gbit
refused "more than the bond" 'TX rate value exceed link maximum speed' rate set pci/$A/1 tx_max 300gbit
bond_away
disabled "without it"
refused "more than a link, again" 'TX rate value exceed link maximum speed' rate set pci/$A/1 tx_max 160gbit
does "unbind the PF with nodes" put /sys/bus/pci/drivers/mlx5_core/unbind $A
does "bind" put /sys/bus/pci/drivers/mlx5_core/bind $A
finish
