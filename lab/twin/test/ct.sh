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

# firewall [ZONE]: who talks from a is answered by b.
firewall() {
	local zone=${1-5}
	ovs-ofctl replace-flows br0 - <<-END
		table=0,priority=10,arp,actions=normal
		table=0,priority=10,ip,ct_state=-trk,actions=ct(zone=$zone,table=1)
		table=1,priority=10,ip,in_port=$r0,ct_state=+trk+new,actions=ct(zone=$zone,commit,exec(load:0x17->NXM_NX_CT_MARK[])),$r1
		table=1,priority=10,ip,in_port=$r0,ct_state=+trk+est,ct_mark=0x17,actions=$r1
		table=1,priority=10,ip,in_port=$r1,ct_state=+trk+est,ct_mark=0x17,actions=$r0
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
within 60 "and its way back" some 'zone:5 ip_proto:6 src:10.0.0.2 .*sport:5201 state:.*est.*trk.*rpl .*packets:[1-9]'
like "the rules as the hardware has them" "$(cat $debug/$A/flows)" 'in:pf0vf0 .*acts: ct:5 goto:'
like "one that matches the connection" "$(cat $debug/$A/flows)" 'in:pf0vf0 .*ct_state:.*\+est.*\+trk.* packets:[1-9].*output:pf0vf1'
like "Open vSwitch has them offloaded" "$(ovs-appctl dpctl/dump-flows -m type=offloaded)" 'ct_state\(.*\+est.*offloaded:yes, dp:tc'
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

# UDP
in_pod b python3 -c 'exit()' 2>/dev/null
in_pod b socat -V >/dev/null 2>&1
firewall
finish
