#!/bin/bash
# races [SECONDS]: everything at once. Nothing has to succeed; nothing may break.
. "$(dirname "$0")/lib.sh"
fresh
seconds=${1:-60}
end=$((SECONDS + seconds))
counts=$(mktemp)
loop() {
	local n=0
	while [ $SECONDS -lt $end ]; do
		if "$@" >/dev/null 2>&1; then n=$((n + 1)); else sleep 0.05; fi
	done
	echo "# $*: $n" >>"$counts"
}

change_modes() {
	sleep 0.$((RANDOM % 10))
	mode $1 switchdev
	sleep $((1 + RANDOM % 4)).$((RANDOM % 10))
	mode $1 legacy || { sleep 1 && mode $1 legacy; }
}
change_vfs() {
	numvfs $1 $((2 + RANDOM % 5))
	sleep $((4 + RANDOM % 8)).$((RANDOM % 10))
	numvfs $1 0
}
# Of the two SFs one is deleted as it is, active or on its way
change_sfs() {
	local i dev
	for i in 1 2; do
		devlink port add pci/$1 flavour pcisf pfnum ${1##*.} sfnum $i || return 1
		devlink port function set pci/$1/$((${1##*.} << 16 | 32767 + i)) state active
	done
	sleep 0.$((RANDOM % 10))
	for dev in /sys/bus/auxiliary/devices/mlx5_core.sf.*; do
		[ $((RANDOM % 2)) = 0 ] || continue
		devlink dev param set auxiliary/${dev##*/} name enable_eth value true cmode driverinit
		devlink dev reload auxiliary/${dev##*/}
		ip link set "$(ls $dev/net)" up
	done
	sleep 1.$((RANDOM % 10))
	devlink port function set pci/$1/$((${1##*.} << 16 | 32768)) state inactive
	devlink port del pci/$1/$((${1##*.} << 16 | 32769))
	put /sys/bus/auxiliary/drivers/mlx5_core.sf/unbind ${dev##*/}
	devlink port del pci/$1/$((${1##*.} << 16 | 32768))
}
change_rates() {
	devlink port function rate add pci/$1/node tx_max $((RANDOM % 100 + 1))mbit
	devlink port function rate set pci/$1/$((${1##*.} << 16 | 1)) tx_max 10mbit parent node
	ip link set "$(pf_dev $1)" vf 1 max_tx_rate $((RANDOM % 100))
	sleep 0.$((RANDOM % 10))
	devlink port function rate set pci/$1/$((${1##*.} << 16 | 1)) tx_max 0 noparent
	devlink port function rate del pci/$1/node
}
change_rules() {
	local r0 r1 i
	r0=$(rep $1 0) r1=$(rep $1 1)
	[ -n "$r1" ] || return 1
	ip link set "$r0" up
	{
		echo "qdisc add dev $r0 ingress"
		for i in 1 2 3 4 5 6 7 8; do
			echo "filter add dev $r0 ingress prio $i protocol ip flower src_ip 10.0.0.$i action mirred egress redirect dev $r1"
		done
	} | tc -b -
	[[ $(tc -s filter show dev "$r0" ingress) == *in_hw* ]] || return 1
	tc filter del dev "$r0" ingress prio $((1 + RANDOM % 8))
	tc qdisc del dev "$r0" ingress
}
traffic() {
	local v
	v=$(vf_dev $1 0)
	[ -n "$v" ] || return 1
	ip link set "$v" up
	ip addr add 10.0.0.1/24 dev "$v"
	ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev "$v" nud permanent
	timeout 5 ping -f -c 200 -w 1 -I "$v" 10.0.0.2
	true
}
read_all() {
	ip -d -s link
	devlink port show
	devlink dev info
	devlink dev param show
	devlink port function rate show
	devlink resource show pci/$A
	cat $debug/*/counters $debug/*/flows
	for d in /sys/class/net/*; do ethtool -S "${d##*/}"; ethtool -i "${d##*/}"; done
}
change_bond() {
	local pf modes=(active-backup balance-xor balance-rr)
	ip link add bond0 type bond mode "${modes[RANDOM % 3]}" miimon 100
	for pf in $A $B; do
		ip link set "$(pf_dev $pf)" down
		ip link set "$(pf_dev $pf)" master bond0
	done
	ip link set bond0 up
	sleep $((RANDOM % 5)).$((RANDOM % 10))
	cat /sys/kernel/debug/mlx5/*/lag/*
	ip link del bond0
}
change_wire() {
	put $debug/$A/carrier 0
	put $debug/$A/carrier 1
	put $debug/$A/wire w0
	put $debug/$A/wire peer
	ip link set "$(pf_dev $A)" up
	ip link set "$(pf_dev $B)" up
}
rebind() {
	sleep 5
	put /sys/bus/pci/drivers/mlx5_core/unbind $B
	put /sys/bus/pci/drivers/mlx5_core/bind $B
	devlink dev reload pci/$B
	put $debug/$A/vf_vanish 0
	put $debug/$A/vf_late_ms $((RANDOM % 300))
	put $debug/$A/sf_late_ms $((RANDOM % 300))
}
modprobe -q bonding max_bonds=0
ip link add w0 type veth peer name w1
ip link set w0 up
ip link set w1 up

for pf in $A $B; do
	loop change_modes $pf &
	loop change_vfs $pf &
	loop change_rules $pf &
	loop change_sfs $pf &
	loop change_rates $pf &
	loop traffic $pf &
done
loop read_all &
loop change_wire &
loop change_bond &
loop rebind &
wait
cat "$counts"
ok "$seconds s of everything at once"

put $debug/$A/clear 1
[ -e $sys/$B/driver ] || put /sys/bus/pci/drivers/mlx5_core/bind $B
fresh_log=$(dmesg | grep -cE 'WARNING|BUG')
is "no warning so far" "$fresh_log" 0
for pf in $A $B; do
	does "VFs off" numvfs $pf 0
	does "legacy" mode $pf legacy
	does "on" numvfs $pf 2
	does "switchdev" mode $pf switchdev
	is "representors" "$(ls $sys/$pf/net | wc -l)" 3
	is "no rules" "$(cat $debug/$pf/flows)" ""
	does "off" numvfs $pf 0
	does "legacy again" mode $pf legacy
done
ip link del w0
for pf in $A $B; do
	mode $pf switchdev
	n=$((${pf##*.} << 16 | 32768))
	devlink port add pci/$pf flavour pcisf pfnum ${pf##*.} sfnum 1 >/dev/null
	does "an SF, active" devlink port function set pci/$pf/$n state active
	within 60 "attached" bash -c "devlink port show pci/$pf/$n | grep -q 'opstate attached'"
done
for dev in /sys/bus/auxiliary/devices/mlx5_core.sf.*; do
	devlink dev param set auxiliary/${dev##*/} name enable_eth value true cmode driverinit
	devlink dev reload auxiliary/${dev##*/}
	ip link set "$(ls $dev/net)" up
done
devlink port function rate add pci/$A/node tx_max 10mbit
does "unload, with SFs and rates" rmmod twin
is "nothing left on the auxiliary bus" "$(ls /sys/bus/auxiliary/devices)" ""
is "nothing left on the bus" "$(ls $sys | grep -c '^1000:')" 0
no_leaks
finish
