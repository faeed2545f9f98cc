#!/bin/bash
# LAG is a card's own: lab/run --nics twin:cards=2 -- lab/twin/test/lagcards.sh
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/laglib.sh"
fresh
C=1000:00:01.0 D=1000:00:01.1
for pf in $A $B $C $D; do mode $pf switchdev; done
a=$(pf_dev $A) b=$(pf_dev $B) c=$(pf_dev $C) d=$(pf_dev $D)
put $sys/$A/sriov_drivers_autoprobe 0 # no LAG with bound VFs
numvfs $A 1
r=$(rep $A 0)
tc qdisc add dev "$r" ingress
two_states() { echo "$(lag $A state) $(lag $C state)"; }
two_are() { [ "$(two_states)" = "$1" ]; }

is "members are each card's" "$(lag $B members), $(lag $C members)" "$A $B, $C $D"
does "a port of each card" bond active-backup "$a" "$c"
stays "no LAG" disabled
is "nor on the other card" "$(lag $C state)" disabled
refused "nor is a rule sent to it" 'devices are not on same switch HW' \
	tc filter add dev "$r" ingress protocol ip flower skip_sw action mirred egress redirect dev bond0
bond_away
does "all four" bond active-backup "$a" "$b" "$c" "$d"
stays "no LAG" disabled
ip link set "$d" nomaster
stays "three" disabled
ip link set "$c" nomaster
within 60 "two of one card" two_are "active disabled"
does "the bond of the other card" ip link add bond1 type bond mode balance-xor miimon 100
for dev in "$c" "$d"; do ip link set "$dev" down && ip link set "$dev" master bond1; done
within 60 "LAG on both cards" two_are "active active"
refused "rule to the other card's bond" 'devices are not on same switch HW' \
	tc filter add dev "$r" ingress protocol ip flower skip_sw action mirred egress redirect dev bond1
does "rule to the own" tc filter add dev "$r" ingress protocol ip flower skip_sw action mirred egress redirect dev bond0
does "unload a card's port" put /sys/bus/pci/drivers/mlx5_core/unbind $D
within 60 "its LAG ends, the other's stays" two_are "active disabled"
is "one member left" "$(lag $C members)" $C
does "bind it" put /sys/bus/pci/drivers/mlx5_core/bind $D
mode $D switchdev
d=$(pf_dev $D)
ip link set "$d" master bond1
within 60 "LAG on both again" two_are "active active"
finish
