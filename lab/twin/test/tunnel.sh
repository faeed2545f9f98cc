#!/bin/bash
# Tunnels between two machines: lab/run --vms 2 --kernel offload -- lab/twin/test/tunnel.sh
# A pod on a VF of each; what joins them is VXLAN and then Geneve over the wire. A rule of
# the pod is skip_sw where the hardware must have done it. One of a tunnel device cannot
# be, as that device offloads nothing itself (cls_api.c, tcf_block_offload_cmd): it has to
# be in_hw. Not on Debian's 6.12, which warns of its own write when a frame with an option
# comes to its Geneve (include/net/ip_tunnels.h, ip_tunnel_info_opts_set).
. "$(dirname "$0")/lib.sh"
me=$SLUICE_VM other=$((3 - SLUICE_VM))
numvfs $A 2
mode $A switchdev
up=$(pf_dev $A) r0=$(rep $A 0) r1=$(rep $A 1)
# the guests' cards are alike, also in their addresses
ip link set "$up" address "02:00:00:00:00:0$me"
ip link set "$up" mtu 1600
ip addr add "192.168.7.$me/24" dev "$up"
ip addr add "fd00:7::$me/64" dev "$up" nodad
ethtool -K "$up" hw-tc-offload on
ip link set wire0 mtu 1600
for dev in "$up" "$r0" "$r1"; do ip link set "$dev" up; done
tc qdisc add dev "$r0" ingress
ip link set "$(vf_dev $A 0)" address "02:00:00:00:0a:0$me"
pod a "$(vf_dev $A 0)" "10.0.0.$me"
ip -n a neigh replace "10.0.0.$other" lladdr "02:00:00:00:0a:0$other" dev eth0 nud permanent
in_pod a iperf3 -s -D >/dev/null
other4=192.168.7.$other me4=192.168.7.$me other6=fd00:7::$other me6=fd00:7::$me

tunnel() { # NAME KIND OPTION...
	ip link add "$1" type "$2" external "${@:3}"
	ip link set "$1" up
	tc qdisc add dev "$1" ingress
}
# encap HOW DEV KEY...: what the pod sends to the other one; decap HOW DEV MATCH...: and back
encap() { tc filter add dev "$r0" ingress prio "${prio:-1}" protocol ip flower "$1" action tunnel_key set "${@:3}" pipe action mirred egress redirect dev "$2"; }
decap() { on_tunnel "$1" "$2" "${@:3}" action tunnel_key unset pipe action mirred egress redirect dev "$r0"; }
# on_tunnel in_hw|skip_hw DEV MATCH... ACTION...: a rule of the tunnel device, which fails if it is to be in_hw and is not
on_tunnel() {
	local at=(dev "$2" ingress prio "${prio:-1}" protocol ip) flag=verbose
	[ "$1" = in_hw ] || flag=$1
	tc filter add "${at[@]}" flower "$flag" "${@:3}" || return
	[ "$flag" = verbose ] || return 0
	! tc filter show "${at[@]}" | grep not_in_hw || { tc filter del "${at[@]}"; return 1; }
}
clear() {
	tc filter del dev "$r0" ingress 2>/dev/null
	for dev in "$@"; do tc filter del dev "$dev" ingress; done
}
pings() { in_pod a ping -c 10 -i 0.2 -W 5 "10.0.0.$other"; }
hits() { counter $A "$1" hw_packets; }
flow() { grep "$1" $debug/$A/flows; }
packets_of() { flow "$1" | sed -n 's/.* packets:\([0-9]*\) .*/\1/p'; }
rx_of() { cat "/sys/class/net/$1/statistics/rx_packets"; }

# in_hardware WHAT DEV IN OUT: pings go by the rules that flows shows as IN and OUT, and nobody else sees them
in_hardware() {
	local out in soft dev miss
	out=$(packets_of "$4") in=$(packets_of "$3")
	soft=$(stat_of "$r0" rx_packets) dev=$(rx_of "$2") miss=$(counter $A pf0vf0 miss_packets)
	meet "$1: to be counted"
	like "$1" "$(pings)" '10 received'
	meet "$1: pinged"
	out=$(($(packets_of "$4") - out)) in=$(($(packets_of "$3") - in))
	[ "$out" -ge 20 ] && ok "$1: out in hardware" || bad "$1: out in hardware: $out of 20"
	[ "$in" -ge 20 ] && ok "$1: in in hardware" || bad "$1: in in hardware: $in of 20"
	is "$1: none by the representor" "$(stat_of "$r0" rx_packets)" "$soft"
	is "$1: none missed" "$(counter $A pf0vf0 miss_packets)" "$miss"
	is "$1: none by the tunnel device" "$(rx_of "$2")" "$dev"
	meet "$1: counted"
}

tunnel vx0 vxlan dstport 4789
tunnel gn0 geneve dstport 6081
meet ready
within 60 "the other end answers" ping -c 1 -W 2 "$other4"
within 60 "by IPv6 also" ping -c 1 -W 2 "$other6"
meet there

# what the card writes and strips is what the kernel's own VXLAN does
if [ "$me" = 1 ]; then how=skip_sw there=in_hw; else how=skip_hw there=skip_hw; fi
does "VXLAN out ($how)" encap $how vx0 id 7 src_ip "$me4" dst_ip "$other4" dst_port 4789
does "VXLAN in ($there)" decap $there vx0 enc_key_id 7 enc_src_ip "$other4" enc_dst_ip "$me4" enc_dst_port 4789
meet "one in software"
if [ "$me" = 1 ]; then
	like "hardware and software understand each other" "$(pings)" '10 received'
	does "TCP between them" in_pod a iperf3 -c 10.0.0.2 -M 1300 -n 1M
fi
meet understood
clear vx0

does "VXLAN out" encap skip_sw vx0 id 7 src_ip "$me4" dst_ip "$other4" dst_port 4789
does "VXLAN in" decap in_hw vx0 enc_key_id 7 enc_src_ip "$other4" enc_dst_ip "$me4" enc_dst_port 4789
like "tc has the rule of the tunnel device in hardware" "$(tc -s filter show dev vx0 ingress)" 'in_hw in_hw_count 1'
like "the hardware has the way out" "$(cat $debug/$A/flows)" "in:pf0vf0 .*encap:vxlan\(id:7 dst:$other4\) output:p0"
like "and the way in" "$(cat $debug/$A/flows)" "in:p0 .*tunnel:vxlan id:7 enc_src:$other4 enc_dst:$me4 .*decap output:pf0vf0"
meet vxlan
in_hardware VXLAN vx0 tunnel:vxlan encap:vxlan
like "hardware statistics in tc" "$(tc -s filter show dev vx0 ingress)" 'Sent hardware [1-9][0-9]* bytes'
if [ "$me" = 1 ]; then
	before=$(hits pf0vf0)
	does "TCP, cut into segments by the card" in_pod a iperf3 -c 10.0.0.2 -M 1300 -n 2M
	[ $(($(hits pf0vf0) - before)) -ge 1500 ] && ok "each in a header of its own" || bad "only $(($(hits pf0vf0) - before)) packets"
fi
meet tcp
# another network in the same tunnel is not this rule's
before=$(packets_of tunnel:vxlan)
meet "network 7"
clear
does "network 8 out" encap skip_sw vx0 id 8 src_ip "$me4" dst_ip "$other4" dst_port 4789
meet "network 8"
refused "network 8 does not come in as 7" '100% packet loss' pings
is "and is not counted as 7" "$(packets_of tunnel:vxlan)" "$before"
meet "networks"
clear vx0

# over IPv6
does "VXLAN over IPv6 out" encap skip_sw vx0 id 7 src_ip "$me6" dst_ip "$other6" dst_port 4789
does "VXLAN over IPv6 in" decap in_hw vx0 enc_key_id 7 enc_src_ip "$other6" enc_dst_ip "$me6" enc_dst_port 4789
meet v6
in_hardware "VXLAN over IPv6" vx0 tunnel:vxlan encap:vxlan
clear vx0

# Geneve, with the option that OVN uses
does "Geneve out" encap skip_sw gn0 id 9 src_ip "$me4" dst_ip "$other4" dst_port 6081 geneve_opts "0102:80:0001000$me"
does "Geneve in" decap in_hw gn0 enc_key_id 9 enc_src_ip "$other4" enc_dst_ip "$me4" enc_dst_port 6081 geneve_opts "0102:80:0001000$other"
meet geneve
in_hardware Geneve gn0 tunnel:geneve encap:geneve
before=$(packets_of tunnel:geneve)
meet "option counted"
clear
does "another option out" encap skip_sw gn0 id 9 src_ip "$me4" dst_ip "$other4" dst_port 6081 geneve_opts 0102:80:00070007
meet "another option"
refused "what has another option does not come in" '100% packet loss' pings
is "and is not counted" "$(packets_of tunnel:geneve)" "$before"
meet "options"
clear gn0
if [ "$me" = 1 ]; then how=skip_sw there=in_hw; else how=skip_hw there=skip_hw; fi
does "Geneve out ($how)" encap $how gn0 id 9 src_ip "$me4" dst_ip "$other4" dst_port 6081 geneve_opts "0102:80:0001000$me"
does "Geneve in ($there)" decap $there gn0 enc_key_id 9 enc_src_ip "$other4" enc_dst_ip "$me4" enc_dst_port 6081 geneve_opts "0102:80:0001000$other"
meet "one Geneve in software"
[ "$me" = 2 ] || like "hardware and software understand each other in Geneve" "$(pings)" '10 received'
meet "Geneve understood"
clear gn0

# the neighbour: without one the rule is software's, whatever tc says
nobody=192.168.7.99
does "a way to nobody" encap skip_sw vx0 id 7 src_ip "$me4" dst_ip $nobody dst_port 4789
like "is in hardware, says tc" "$(tc filter show dev "$r0" ingress)" 'in_hw in_hw_count 1'
like "and is not: there is no neighbour" "$(flow encap:vxlan)" 'slow:no-neighbour'
miss=$(counter $A pf0vf0 miss_packets) soft=$(stat_of "$r0" rx_packets)
refused "to nobody" '100% packet loss' in_pod a ping -c 3 -i 0.2 -W 1 "10.0.0.$other"
[ $(($(counter $A pf0vf0 miss_packets) - miss)) -ge 3 ] && ok "packets miss" || bad "$(($(counter $A pf0vf0 miss_packets) - miss)) packets missed"
[ $(($(stat_of "$r0" rx_packets) - soft)) -ge 3 ] && ok "to the representor" || bad "the representor saw $(($(stat_of "$r0" rx_packets) - soft))"
is "and are not counted" "$(packets_of encap:vxlan)" 0
ip neigh replace $nobody lladdr 02:00:00:00:00:99 dev "$up" nud permanent
within 60 "with a neighbour it is" grep -q 'encap:vxlan(id:7 dst:192.168.7.99) output:p0' $debug/$A/flows
in_pod a ping -c 3 -i 0.2 -W 1 "10.0.0.$other" >/dev/null
[ "$(packets_of encap:vxlan)" -ge 3 ] && ok "and counts" || bad "counted $(packets_of encap:vxlan)"
heard() { timeout 60 tcpdump -nnec 1 -i wire0 "udp port 4789 and src host $me4 and dst host $nobody" 2>/dev/null; }
sends() { (sleep 3; in_pod a ping -c 20 -i 0.3 -W 1 "10.0.0.$other" >/dev/null) & heard; wait $!; }
like "to the neighbour's address" "$(sends)" "02:00:00:00:00:0$me > 02:00:00:00:00:99,"
ip neigh replace $nobody lladdr 02:00:00:00:00:98 dev "$up" nud permanent
like "or its new one" "$(sends)" "02:00:00:00:00:0$me > 02:00:00:00:00:98,"
ip neigh del $nobody dev "$up"
within 60 "without it, it is software's again" grep -q 'slow:no-neighbour' $debug/$A/flows
clear
meet neighbours

# the route
like "no way at all" "$(encap skip_sw vx0 id 7 src_ip "$me4" dst_ip 10.99.0.1 dst_port 4789 2>&1)" 'Network is unreachable'
ip route add 10.99.0.0/24 via "$other4"
does "a way by a gateway" encap skip_sw vx0 id 7 src_ip "$me4" dst_ip 10.99.0.1 dst_port 4789
within 60 "is in hardware" grep -q 'dst:10.99.0.1) output:p0' $debug/$A/flows
ip route del 10.99.0.0/24
within 60 "until the route goes" grep -q 'slow:no-route' $debug/$A/flows
ip route add 10.99.0.0/24 via "$other4"
within 60 "and when it is back" grep -q 'dst:10.99.0.1) output:p0' $debug/$A/flows
ip link add far0 type veth peer name far1
ip link set far0 up && ip link set far1 up
ip addr add 10.98.0.2/24 dev far0
ip neigh replace 10.98.0.1 lladdr 02:00:00:00:00:98 dev far0 nud permanent
refused "no way back" not_in_hw decap in_hw vx0 enc_key_id 7 enc_src_ip 10.97.0.1 enc_dst_ip "$me4" enc_dst_port 4789
clear
ip route del 10.99.0.0/24
ip link del far0
is "nothing left" "$(cat $debug/$A/flows)" ""

# refusals; of a tunnel's match mlx5 tells the reason in the log only
in4=(enc_src_ip "$other4" enc_dst_ip "$me4")
to4=(src_ip "$me4" dst_ip "$other4")
logged() { # WHAT PATTERN COMMAND...
	dmesg -C
	refused "$1" 'Failed to parse tunnel attributes' "${@:3}"
	like "$1: the reason" "$(dmesg)" "$2"
}
dmesg >"/tmp/dmesg" # looked at in the end
grep -E 'WARNING|BUG|Oops|Call Trace' /tmp/dmesg && bad "so far"
logged "no port" 'must include enc_dst_port' decap in_hw vx0 enc_key_id 7 "${in4[@]}"
logged "a port that is not VXLAN's" 'UDP port 4790 is not registered as a VXLAN port' decap in_hw vx0 enc_key_id 7 "${in4[@]}" enc_dst_port 4790
tunnel vx1 vxlan dstport 4790
does "until a device has it" decap in_hw vx1 enc_key_id 7 "${in4[@]}" enc_dst_port 4790
clear vx1
ip link del vx1
logged "a port that is not Geneve's" 'UDP port 6082 is not registered as a GENEVE port' decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6082
logged "two options" 'unsupported options len \(len=16\)' decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081 geneve_opts 0102:80:00010002,0103:80:00010002
logged "a longer option" 'unsupported options len \(len=12\)' decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081 geneve_opts 0102:80:0001000200030004
logged "an option of nothing but zeros" "can't match on 0 data field" decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081 geneve_opts 0102:80:00000000
does "one option" decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081 geneve_opts 0102:80:00010002
prio=2 logged "and no second kind of it" "another class:type already exists" decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081 geneve_opts 0103:80:00010002
clear gn0
does "until the first is gone" decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081 geneve_opts 0103:80:00010002
clear gn0
refused "out by a port that is not VXLAN's" 'vxlan udp dport was not registered with the HW' encap skip_sw vx0 id 7 "${to4[@]}" dst_port 4790
refused "out by what is no tunnel" 'Unsupported tunnel' encap skip_sw "$r1" id 7 "${to4[@]}" dst_port 4789
dmesg -C
long=0102:80:$(printf '%0160d' 1)
refused "a header that is too long" 'not supported' encap skip_sw gn0 id 7 "${to4[@]}" dst_port 6081 geneve_opts "$long"
like "a header that is too long: the reason" "$(dmesg)" 'encap size 134 too big, max supported is 128'
refused "the same tunnel twice" "can't duplicate encap action" tc filter add dev "$r0" ingress protocol ip flower skip_sw \
	action tunnel_key set id 7 "${to4[@]}" dst_port 4789 pipe action mirred egress mirror dev vx0 pipe \
	action tunnel_key set id 7 "${to4[@]}" dst_port 4789 pipe action mirred egress redirect dev vx0
refused "the inner congestion mark" "without also matching enc_tos ecn bits" decap in_hw vx0 enc_key_id 7 "${in4[@]}" enc_dst_port 4789 ip_tos 1/3
refused "another chain" "Chains on tunnel devices isn't supported" on_tunnel in_hw vx0 enc_key_id 7 "${in4[@]}" enc_dst_port 4789 action goto chain 3
refused "tunnel keys where there is no tunnel" 'Match on tunnel is not supported' tc filter add dev "$r0" ingress protocol ip flower skip_sw enc_key_id 7 action drop
put $debug/$A/capacity 1
does "a rule" decap in_hw vx0 enc_key_id 7 "${in4[@]}" enc_dst_port 4789
prio=2 refused "no room for another" 'flow table is full' decap in_hw vx0 enc_key_id 8 "${in4[@]}" enc_dst_port 4789
refused "nor for a way out" 'flow table is full' encap skip_sw vx0 id 7 "${to4[@]}" dst_port 4789
put $debug/$A/capacity 65536

# the end of the device, and of the port, under the rules
does "one more" encap skip_sw gn0 id 7 "${to4[@]}" dst_port 6081
ip link del vx0
is "the tunnel device takes its rules along" "$(grep -c tunnel: $debug/$A/flows)" 0
does "Geneve in" decap in_hw gn0 enc_key_id 7 "${in4[@]}" enc_dst_port 6081
put /sys/bus/pci/drivers/mlx5_core/unbind $A
is "so does the port" "$(cat $debug/$A/flows 2>/dev/null)" ""
like "tc has its rules still, in software" "$(tc filter show dev gn0 ingress 2>&1)" 'filter|^$'
meet end
finish
