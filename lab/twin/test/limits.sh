#!/bin/bash
# What netdevs and VFs can be given: channels, rings, MSI-X vectors, long frames, GUIDs.
. "$(dirname "$0")/lib.sh"
fresh
numvfs $A 3
pf=$(pf_dev $A) v0=$(vf_dev $A 0)

# channels and rings
for d in "$pf" "$v0"; do
	like "$d: channels" "$(ethtool -l "$d")" 'Combined:[[:space:]]*8'
	does "$d: one channel" ethtool -L "$d" combined 1
	like "$d: it has one" "$(ethtool -l "$d" | sed '1,/Current/d')" 'Combined:[[:space:]]*1$'
	is "$d: one queue" "$(ls -d "/sys/class/net/$d/queues"/tx-* | wc -l)" 1
	does "$d: eight channels" ethtool -L "$d" combined 8
	is "$d: eight queues" "$(ls -d "/sys/class/net/$d/queues"/tx-* | wc -l)" 8
	refused "$d: nine" 'exceed maximum|out of range|Invalid argument' ethtool -L "$d" combined 9
	refused "$d: separate ones" 'out of range|Invalid argument|exceed' ethtool -L "$d" rx 2
	like "$d: rings" "$(ethtool -g "$d" | head -n 5)" 'RX:[[:space:]]*8192'
	does "$d: rings, not a power of two" ethtool -G "$d" rx 700 tx 300
	is "$d: rounded up" "$(ethtool -g "$d" | sed '1,/Current/d' | awk '/^(RX|TX):/ {print $2}' | xargs)" "1024 512"
	refused "$d: too large" 'exceed|Invalid argument|out of range' ethtool -G "$d" rx 8193
done

# MSI-X
is "vectors of all VFs" "$(cat $sys/$A/sriov_vf_total_msix)" 2048
like "a VF's share" "$(lspci -D -s 1000:01:00.0 -vv 2>/dev/null)" 'MSI-X: Enable- Count=64 '
refused "of a VF with a driver" 'busy' bash -c "echo 16 >$sys/$A/virtfn0/sriov_vf_msix_count"
put /sys/bus/pci/drivers/mlx5_core/unbind 1000:01:00.0
does "of one without" put $sys/$A/virtfn0/sriov_vf_msix_count 4
like "lspci agrees" "$(lspci -D -s 1000:01:00.0 -vv 2>/dev/null)" 'MSI-X: Enable- Count=4 '
refused "too few" 'Invalid argument' bash -c "echo 1 >$sys/$A/virtfn0/sriov_vf_msix_count"
refused "too many" 'Value too large' bash -c "echo 129 >$sys/$A/virtfn0/sriov_vf_msix_count"
put /sys/bus/pci/drivers/mlx5_core/bind 1000:01:00.0
like "channels by vectors" "$(ethtool -l "$(vf_dev $A 0)")" 'Combined:[[:space:]]*3'
put /sys/bus/pci/drivers/mlx5_core/unbind 1000:01:00.0
does "the default" put $sys/$A/virtfn0/sriov_vf_msix_count 0
like "again" "$(lspci -D -s 1000:01:00.0 -vv 2>/dev/null)" 'Count=64 '
numvfs $A 0
put $sys/$A/sriov_drivers_autoprobe 0
numvfs $A 16
for i in $(seq 0 14); do put $sys/$A/virtfn$i/sriov_vf_msix_count 128 || bad "VF $i"; done
does "128 for fifteen and the rest for one" put $sys/$A/virtfn15/sriov_vf_msix_count 128
is "that is all" "$((16 * 128))" "$(cat $sys/$A/sriov_vf_total_msix)"
numvfs $A 0
put $sys/$A/sriov_drivers_autoprobe 1

# GUIDs: of InfiniBand only, mlx5e has no ndo_set_vf_guid
numvfs $A 3
refused "node_guid" 'not supported' ip link set "$pf" vf 0 node_guid 00:11:22:33:44:55:66:77
refused "port_guid" 'not supported' ip link set "$pf" vf 0 port_guid 00:11:22:33:44:55:66:77
is "none is shown" "$(ip link show "$pf" | grep -c GUID)" 0

# long frames: KERNEL: en_main.c, en_rep.c (which sets none)
mode $A switchdev
max_of() { ip -j -d link show "$1" | jq ".[0].tso_max_size"; }
is "the PF's longest frame" "$(max_of "$(pf_dev $A)")" 524280
is "a VF's" "$(max_of "$(vf_dev $A 0)")" 524280
is "a representor's" "$(max_of "$(rep $A 0)")" 65536
refused "longer ones by a representor" 'too big gso_max_size' ip link set "$(rep $A 0)" gso_max_size 100000
pod a "$(vf_dev $A 0)" 10.0.0.1
pod b "$(vf_dev $A 1)" 10.0.0.2
for x in 1 2; do
	n=$([ $x = 1 ] && echo a || echo b)
	in_pod $n sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0
	ip -n $n addr add fd00::$x/64 dev eth0 nodad
	does "$n: long frames" ip -n $n link set eth0 gso_max_size 200000 gro_max_size 200000 \
		gso_ipv4_max_size 200000 gro_ipv4_max_size 200000
done
for i in 0 1; do
	ip link set "$(rep $A $i)" up
	tc qdisc add dev "$(rep $A $i)" ingress
	tc filter add dev "$(rep $A $i)" ingress prio 1 protocol all flower skip_sw \
		action mirred egress redirect dev "$(rep $A $((1 - i)))" || bad "rule"
done
sysctl -qw net.core.wmem_max=8388608 net.core.rmem_max=8388608
longest() { # longest FAMILY ADDRESS: of the TCP frames that b sees while a sends
	in_pod b iperf3 -s -D -1 >/dev/null
	in_pod b tcpdump -Z root -nni eth0 -s 96 -c 1 -w /tmp/long greater 70000 2>/dev/null &
	sleep 2
	does "$1: iperf3" in_pod a iperf3 "$1" -c "$2" -n 40M -w 4M
	within 60 "$1: frames over 70000 bytes arrive whole" bash -c "! kill -0 $! 2>/dev/null"
	kill $! 2>/dev/null
}
longest -4 10.0.0.2
longest -6 fd00::2
[ "$(counter $A pf0vf0 hw_packets)" -gt 50000 ] && ok "in hardware, counted by segment" ||
	bad "in hardware: $(counter $A pf0vf0 hw_packets) packets"
# the way through software: a representor takes shorter frames, the kernel cuts them
for i in 0 1; do tc qdisc del dev "$(rep $A $i)" ingress; done
ip link add br0 type bridge
ip link set br0 up
for i in 0 1; do ip link set "$(rep $A $i)" master br0; done
in_pod b iperf3 -s -D -1 >/dev/null
does "long frames over representors and a bridge" in_pod a iperf3 -c 10.0.0.2 -n 20M
in_pod b iperf3 -s -D -1 >/dev/null
does "IPv6 too" in_pod a iperf3 -6 -c fd00::2 -n 20M
ip link del br0
ip netns del a
ip netns del b
finish
