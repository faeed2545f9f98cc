#!/bin/bash
# VF-LAG: when a bond of both ports becomes one uplink and when not, what is shown
# of it, and what it does to traffic. Ends with the module unloaded.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/laglib.sh"
ip -all netns del
fresh
p0=$(pf_dev $A) p1=$(pf_dev $B)
cables
# VFs are not bound but where it is said
for pf in $A $B; do put $sys/$pf/sriov_drivers_autoprobe 0; done

# before
is "disabled at first" "$(lag $A state)" disabled
refused "no type then" 'Invalid argument' cat $lagdir/$A/lag/type
refused "no mapping then" 'Invalid argument' cat $lagdir/$A/lag/mapping
is "members are the card's ports" "$(lag $B members)" "$A $B"

# who may be a member, and how
does "bond both ports" bond balance-xor "$p0" "$p1"
active "in legacy mode without VFs: RoCE LAG"
is "its type" "$(lag $B type)" roce
is "its flags" "$(lag $A flags)" "shared_fdb:off fdb_selection_mode:affinity"
is "its port selection" "$(lag $A port_sel_mode)" hash
logged "the kernel's log" "mlx5_core $A: lag map active ports: 1"
logged "and" "mlx5_core $A: shared_fdb:0 mode:hash"
does "take one out" ip link set "$p1" nomaster
disabled "one port is no LAG"
ip link set "$p1" down
does "put it back" ip link set "$p1" master bond0
active "LAG again"
does "VFs in legacy mode" numvfs $A 2
disabled "end it"
stays "for good" disabled
does "one port in switchdev mode" mode $A switchdev
stays "is not enough" disabled
does "nor is it with VFs on the other" numvfs $B 2
stays "in legacy mode" disabled
does "both in switchdev mode" mode $B switchdev
active "are"
is "its type" "$(lag $A type)" switchdev
is "the other function says the same" "$(lag $B type)" switchdev
is "its flags" "$(lag $A flags)" "shared_fdb:on fdb_selection_mode:native"
logged "the kernel's log" "mlx5_core $A: Operation mode is single FDB"
if [[ $(uname -r) = 6.* ]]; then
	refused "no reload in LAG" 'reload is unsupported in Lag mode' devlink dev reload pci/$B
fi
refused "no RoCE setting in LAG" "Multi port slave/Lag device can't configure RoCE" \
	devlink dev param set pci/$A name enable_roce value false cmode driverinit
ip link add v0 type veth peer name v1
does "a stranger joins" ip link set v0 master bond0
disabled "a third member ends it"
does "and leaves" ip link set v0 nomaster
active "LAG again"
does "mode change of one" mode $B legacy
disabled "ends it"
stays "as long as it lasts" disabled
does "and back" mode $B switchdev
active "LAG again"
for pf in $A $B; do mode $pf legacy; done
stays "both legacy, with VFs" disabled
for pf in $A $B; do mode $pf switchdev; done
active "LAG again"
bond_away
disabled "bond gone, LAG gone"

# kinds of bonds
for kind in balance-rr broadcast balance-tlb; do
	out=$(bond $kind "$p0" "$p1" 2>&1)
	like "$kind: said why not" "$out" "Warning: mlx5_core: Can't activate LAG offload, TX type isn't supported"
	stays "$kind: no LAG" disabled
	bond_away
done
does "802.3ad" bond 802.3ad "$p0" "$p1"
active "802.3ad is a hash"
is "its port selection" "$(lag $A port_sel_mode)" hash
bond_away
does "active-backup" bond active-backup "$p0" "$p1"
active "active-backup, too"
within 60 "all by the active port" mapping_is 1
bond_away
does "one port with a stranger" bond active-backup "$p0" v0
stays "is no LAG" disabled
bond_away
ip link del v0

# what both must agree on
for pf in $A $B; do numvfs $pf 0 && mode $pf legacy; done
devlink dev param set pci/$A name enable_roce value false cmode driverinit
devlink dev reload pci/$A
p0=$(pf_dev $A)
for pf in $A $B; do mode $pf switchdev; done
bond active-backup "$p0" "$p1"
stays "RoCE on one port only: no LAG" disabled
mode $A legacy
devlink dev param set pci/$A name enable_roce value true cmode driverinit
does "RoCE on" devlink dev reload pci/$A
p0=$(pf_dev $A)
mode $A switchdev
bond_away
bond active-backup "$p0" "$p1"
active "RoCE on both"
for pf in $A $B; do mode $pf legacy; done
active "RoCE LAG in legacy mode"
does "no metadata" devlink dev param set pci/$B name esw_port_metadata value false cmode runtime
for pf in $A $B; do mode $pf switchdev; done
active "without metadata on a port"
is "no shared FDB" "$(lag $A flags)" "shared_fdb:off fdb_selection_mode:affinity"
for pf in $A $B; do mode $pf legacy; done
devlink dev param set pci/$B name esw_port_metadata value true cmode runtime
for pf in $A $B; do mode $pf switchdev; done
active "with it"
bond_away

# faults
put $debug/$A/lag_late_ms 3600000
bond active-backup "$p0" "$p1"
stays "late: not yet" disabled
put $debug/$B/lag_late_ms 0
active "no longer late"
bond_away
put $debug/$A/lag_late_ms 1000
bond active-backup "$p0" "$p1"
active "late: comes by itself"
bond_away
put $debug/$A/clear 1
put $debug/$B/fail "lag_create EREMOTEIO 1000"
bond active-backup "$p0" "$p1"
stays "the firmware refuses" disabled
logged "and it is told" "mlx5_core $A: Failed to create LAG \(-121\)"
logged "how to mend it" 'Make sure all VFs are unbound prior to VF LAG activation'
put $debug/$B/clear 1
bond_away
put $debug/$A/fail "lag_bond EINVAL"
like "the driver refuses" "$(bond active-backup "$p0" "$p1" 2>&1)" \
	"Can't activate LAG offload, PF is configured with more than 64 VFs"
stays "no LAG" disabled
bond_away
put $debug/$A/fail "lag_bond EINVAL 1 0 Can't activate LAG offload, it is Monday"
like "in the fault's words" "$(bond active-backup "$p0" "$p1" 2>&1)" "mlx5_core: Can't activate LAG offload, it is Monday"
bond_away

# rules by hand, without LAG: a bond is the own wire
for pf in $A $B; do numvfs $pf 2; done
r0=$(rep $A 0) q0=$(rep $B 0)
for dev in "$p0" "$p1"; do ethtool -K "$dev" hw-tc-offload on; done
for dev in "$r0" "$q0"; do ip link set "$dev" up && tc qdisc add dev "$dev" ingress; done
seats
still_far a
still_far b
dmesg -C
bond active-backup "$p0" "$p1"
block_on 77
stays "VFs bound first: bond up, LAG not" disabled
logged "why" "mlx5_core $A: Failed to create LAG \(-22\)"
to() { echo action mirred egress redirect dev "$1"; }
does "VF to the bond" tc filter add dev "$r0" ingress protocol ip flower skip_sw $(to bond0)
does "VF of the other port to the bond" tc filter add dev "$q0" ingress protocol ip flower skip_sw $(to bond0)
refused "from either wire to a VF" 'devices are not on same switch HW' \
	tc filter add block 77 protocol ip flower skip_sw $(to "$r0")
does "the same where software may help" tc filter add block 77 protocol ip flower $(to "$r0")
like "one of two took it" "$(tc filter show block 77)" 'in_hw in_hw_count 1'
tx0=$(counter $A p0 rx_unicast_packets) tx1=$(counter $B p1 rx_unicast_packets)
pings a 3 >/dev/null
pings b 3 >/dev/null
is "port 0's VF went by wire 0" "$(($(counter $A p0 rx_unicast_packets) - tx0))" 3
is "port 1's by wire 1, in use or not" "$(($(counter $B p1 rx_unicast_packets) - tx1))" 3
ip link add v0 type veth peer name v1
ip link add bond1 type bond mode active-backup
ip link set v0 master bond1
refused "a bond of strangers" 'devices are not on same switch HW' \
	tc filter add dev "$r0" ingress protocol ip prio 5 flower skip_sw $(to bond1)
ip link del bond1
refused "an empty bond" 'devices are not on same switch HW' \
	bash -c "ip link add bond1 type bond && tc filter add dev $r0 ingress protocol ip prio 5 flower skip_sw $(to bond1)"
ip link del bond1
ip link del v0
tc filter del dev "$r0" ingress
tc filter del dev "$q0" ingress
no_seats
stays "VFs unbound: nobody tells the driver" disabled
cut 1
within 60 "the bond sees a link go" grep -q down "/sys/class/net/$p1/bonding_slave/mii_status"
mend 1
active "and the driver hears of it"
seats
stays "VFs bound in LAG" active
block_off

# with LAG: the bond is both wires
bond_away
no_seats
bond active-backup "$p0" "$p1"
block_on 77
active "LAG"
within 60 "by port 0" mapping_is 1
seats
still_far a
still_far b
does "from either wire to a VF" tc filter add block 77 protocol ip flower skip_sw dst_mac "$(mac_in a)" $(to "$r0")
like "both took it" "$(tc filter show block 77)" 'in_hw in_hw_count 2'
does "to the other port's VF" tc filter add block 77 prio 1 protocol ip flower skip_sw dst_mac "$(mac_in b)" $(to "$q0")
does "VF to the bond" tc filter add dev "$r0" ingress protocol ip flower skip_sw $(to bond0)
does "VF of the other port to the bond" tc filter add dev "$q0" ingress protocol ip flower skip_sw $(to bond0)
does "VF to the other port's uplink" tc filter add dev "$r0" ingress prio 9 protocol ip flower skip_sw $(to "$p1")
tx0=$(counter $A p0 rx_unicast_packets) tx1=$(counter $B p1 rx_unicast_packets)
miss=$(($(counter $A pf0vf0 miss_packets) + $(counter $B pf1vf0 miss_packets)))
does "VF of port 0 and far" pings a 3
does "VF of port 1 and far, by wire 0" pings b 3
is "all by wire 0" "$(($(counter $A p0 rx_unicast_packets) - tx0)) $(($(counter $B p1 rx_unicast_packets) - tx1))" "6 0"
miss=$(($(counter $A pf0vf0 miss_packets) + $(counter $B pf1vf0 miss_packets) - miss))
[ $miss -le 3 ] && ok "the representors saw $miss frames" || bad "the representors saw $miss frames"
drops=$(counter $B p1 tx_drops)
ip netns exec far ping -b -c 3 -i 0.2 -W 1 10.0.0.255 >/dev/null 2>&1 # to both wires
[ "$(($(counter $B p1 tx_drops) - drops))" -ge 3 ] && ok "what comes by the unused wire is dropped" || bad "the unused wire is open"
does "wire 0 cut" put $debug/$A/carrier 0
within 60 "then by port 1" mapping_is 2
logged "the new map" 'lag map(: port 1:2 port 2:2| active ports: 2)$'
hw=$(counter $B p1 hw_packets)
does "VF of port 0 and far, by wire 1" pings a 3
does "VF of port 1, too" pings b 3
is "rules met both ways" "$(($(counter $B p1 hw_packets) - hw))" 6
put $debug/$A/carrier 1
within 60 "active-backup stays where it is" mapping_is 2

# rules that were there before LAG: port 1's are not in port 0's tables
ip link set "$p1" nomaster
disabled "one port only"
tc filter del dev "$q0" ingress
does "a rule while LAG is not" tc filter add dev "$q0" ingress protocol ip flower skip_sw action drop
no_seats
ip link set "$p1" down
ip link set "$p1" master bond0
active "LAG"
seats
still_far b
miss=$(counter $B pf1vf0 miss_packets)
pings b 2 >/dev/null
[ "$(($(counter $B pf1vf0 miss_packets) - miss))" -ge 2 ] && ok "it is not found in LAG" || bad "it is found in LAG"
for dev in "$r0" "$q0"; do tc filter del dev "$dev" ingress; done
block_off
bond_away
no_seats

# balance-xor hashes
ip netns exec far ip link set s0 nomaster
ip netns exec far ip link set s1 nomaster
far_bond balance-xor
bond "balance-xor xmit_hash_policy layer2+3" "$p0" "$p1"
block_on 77
active "balance-xor"
seats
still_far a
within 60 "both ports send" mapping_is "1 2"
tc filter add block 77 protocol ip flower skip_sw $(to "$r0") || bad "rule"
tc filter add dev "$r0" ingress protocol ip flower skip_sw $(to bond0) || bad "rule"
tx0=$(counter $A p0 rx_unicast_packets) tx1=$(counter $B p1 rx_unicast_packets)
for i in 1 2 3 4 5 6 7 8; do
	ip -n far addr add 10.0.0.1$i/24 dev fb
	ip -n a neigh replace 10.0.0.1$i lladdr "$(far_mac)" dev eth0 nud permanent
	in_pod a ping -c 1 -W 5 10.0.0.1$i >/dev/null || bad "no answer from 10.0.0.1$i"
done
tx0=$(($(counter $A p0 rx_unicast_packets) - tx0)) tx1=$(($(counter $B p1 rx_unicast_packets) - tx1))
[ $tx0 -ge 1 ] && [ $tx1 -ge 1 ] && [ $((tx0 + tx1)) = 8 ] && ok "8 addresses by both wires ($tx0, $tx1)" || bad "wires: $tx0 and $tx1 of 8"
cut 1
within 60 "one port down" mapping_is 1
for i in 1 2 3 4 5 6 7 8; do in_pod a ping -c 1 -W 5 10.0.0.1$i >/dev/null || bad "one wire: no answer from 10.0.0.1$i"; done
ok "all by one wire"
mend 1
within 60 "both again" mapping_is "1 2"
for dev in "$r0" "$q0"; do tc qdisc del dev "$dev" ingress; done
block_off
bond_away
ip -n far link del fb

# over OVS, with LACP; the bond was there first, modes and VFs come after
for pf in $A $B; do
	numvfs $pf 0
	mode $pf legacy
done
far_bond 802.3ad
bond 802.3ad "$p0" "$p1"
active "RoCE LAG first"
ovs other_config:max-idle=60000 || exit 1
ovs-vsctl add-br br0
ip link set br0 up
ovs-vsctl add-port br0 bond0
for pf in $A $B; do
	numvfs $pf 2
	mode $pf switchdev
done
active "VF LAG when VFs and modes are there"
within 60 "both ports send" mapping_is "1 2"
r0=$(rep $A 0) q0=$(rep $B 0)
for dev in "$r0" "$q0"; do
	ip link set "$dev" up
	ovs-vsctl add-port br0 "$dev"
done
seats
# LACP is agreed on here; the other end may take a moment more.
within 60 "pod to far" in_pod a ping -c 3 -i 0.2 -W 5 10.0.0.9
within 60 "pod on the other port to far" in_pod b ping -c 3 -i 0.2 -W 5 10.0.0.9
within 60 "pod to pod" in_pod a ping -c 3 -i 0.2 -W 5 10.0.0.2
index=$(cat /sys/class/net/bond0/ifindex)
within 60 "rules from the bond are on both ports" bash -c "tc filter show block $index | grep -q 'in_hw in_hw_count 2'"
within 60 "OVS says offloaded" bash -c "[ \$(ovs-appctl dpctl/dump-flows -m type=offloaded | grep 0x0800 | grep -c 'offloaded:yes, dp:tc') -ge 4 ]"
# How many of 20 pings' frames the representor and the uplinks saw; beside the pings
# LACP goes on. Rules may be on their way still, or come anew: soon no longer.
in_hardware() {
	local miss missup
	miss=$(counter $A pf0vf0 miss_packets) missup=$(($(counter $A p0 miss_packets) + $(counter $B p1 miss_packets)))
	in_pod a ping -c 20 -i 0.05 -W 5 10.0.0.9 || return
	[ $(($(counter $A pf0vf0 miss_packets) - miss)) -le 2 ] || return
	[ $(($(counter $A p0 miss_packets) + $(counter $B p1 miss_packets) - missup)) -le 8 ]
}
within 60 "20 pings, out and in in hardware" in_hardware

# failover under traffic
for port in 0 1; do
	ip netns exec a ping -i 0.2 -W 5 10.0.0.9 >/run/pings.a 2>&1 &
	ping_a=$!
	ip netns exec b ping -i 0.2 -W 5 10.0.0.9 >/run/pings.b 2>&1 &
	ping_b=$!
	sleep 2
	cut $port
	within 60 "wire $port cut" mapping_is $((2 - port))
	for pod in a b; do
		n=$(wc -l </run/pings.$pod)
		within 60 "pod $pod goes on" bash -c "[ \$(wc -l </run/pings.$pod) -ge $((n + 10)) ]"
	done
	mend $port
	within 60 "and mended" mapping_is "1 2"
	kill -INT $ping_a $ping_b
	wait $ping_a $ping_b 2>/dev/null
	for pod in a b; do like "lost few" "$(tail -n 2 /run/pings.$pod)" ' ([0-9]|[1-3][0-9])(\.[0-9]+)?% packet loss'; done
done
active "LAG all the while"

# unloading in LAG, with rules and traffic
ip netns exec a ping -i 0.2 10.0.0.9 >/dev/null 2>&1 &
ping_a=$!
does "unload in LAG" rmmod twin
kill $ping_a
wait $ping_a 2>/dev/null
is "nothing left on the bus" "$(ls $sys | grep -c '^1000:')" 0
is "nor in debugfs" "$(ls -d $lagdir $debug 2>/dev/null)" ""
is "nor in the bond" "$(cat /sys/class/net/bond0/bonding/slaves)" ""
ovs-vsctl del-br br0
bond_away
does "load" insmod "$module"
p0=$(pf_dev $A) p1=$(pf_dev $B)
does "bond" bond active-backup "$p0" "$p1"
put $debug/$A/lag_late_ms 3600000
for pf in $A $B; do mode $pf switchdev; done
does "unload before LAG is there" rmmod twin
bond_away
no_leaks
finish
