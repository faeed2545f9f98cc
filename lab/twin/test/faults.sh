#!/bin/bash
# Faults on demand: each hits the operation that it names, once, and only it.
. "$(dirname "$0")/lib.sh"
fresh
d=$debug/$A

refused "an unknown operation" 'Invalid argument' bash -c "echo nothing EIO >$d/fail"
refused "an unknown error" 'Invalid argument' bash -c "echo mtu EWHAT >$d/fail"

put $d/fail "sriov_enable ENOMEM"
refused "sriov_enable" 'Cannot allocate memory' bash -c "echo 2 >$sys/$A/sriov_numvfs"
is "no VFs after it" "$(cat $sys/$A/sriov_numvfs)" 0
does "once only" numvfs $A 3

put $d/fail "eswitch_set EIO"
refused "eswitch_set" 'Failed setting eswitch to offloads' mode $A switchdev
is "mode as before" "$(mode_of $A)" legacy
put $d/fail "eswitch_set EBUSY 1 0 Can't change eswitch mode during firmware reset"
refused "with a text of its own" "mlx5_core: Can't change eswitch mode during firmware reset" mode $A switchdev
refused "a text too long" 'Invalid argument' bash -c "echo eswitch_set EIO 1 0 $(printf 'x%.0s' {1..80}) >$d/fail"
put $d/fail "rep_add ENOMEM 1 2"
refused "the third representor" 'Failed setting eswitch to offloads' mode $A switchdev
is "mode as before that" "$(mode_of $A)" legacy
is "no representor left" "$(ls $sys/$A/net | wc -l)" 1
is "the fault is used up" "$(cat $d/fail)" ""
does "then it works" mode $A switchdev
put $d/fail "eswitch_set EBUSY"
refused "on the way back" 'Failed setting eswitch to legacy' mode $A legacy
is "mode is switchdev" "$(mode_of $A)" switchdev

put $d/fail "port_fn_set EINVAL"
refused "port_fn_set" 'Invalid argument' devlink port function set pci/$A/1 hw_addr 00:11:22:33:44:55
put $d/fail "mtu EINVAL"
refused "mtu" 'Invalid argument' ip link set "$(rep $A 0)" mtu 9000
does "mtu once only" ip link set "$(rep $A 0)" mtu 9000
refused "mtu out of range" 'mtu greater than device maximum' ip link set "$(rep $A 0)" mtu 9979
tc qdisc add dev "$(rep $A 0)" ingress
put $d/fail "flower_add ENOSPC"
refused "flower_add" 'No space' tc filter add dev "$(rep $A 0)" ingress protocol ip flower skip_sw action drop
put $d/fail "open EIO"
refused "open" 'Input/output error' ip link set "$(rep $A 0)" up
put $d/fail "vf_set EPERM"
refused "vf_set" 'not permitted' ip link set "$(pf_dev $A)" vf 0 mac 00:11:22:33:44:55
put $d/fail "reload EBUSY"
refused "reload" 'busy' devlink dev reload pci/$A
is "VFs after a failed reload" "$(ls $sys/$A/net | wc -l)" 4

numvfs $A 0
put $d/fail "vf_probe EIO 1 1"
numvfs $A 3
is "VF 1 has no driver" "$(readlink $sys/$A/virtfn1/driver)" ""
like "VF 2 has" "$(readlink $sys/$A/virtfn2/driver)" mlx5_core
does "it can be bound later" put /sys/bus/pci/drivers/mlx5_core/bind 1000:01:00.1

numvfs $A 0
put $d/vf_late_ms 1500
numvfs $A 2
is "bound, but no netdev yet" "$(basename "$(readlink $sys/$A/virtfn0/driver)") $(vf_dev $A 0)" "mlx5_core "
within 60 "it comes" bash -c "[ -n \"\$(ls $sys/$A/virtfn0/net 2>/dev/null)\" ]"
numvfs $A 0
numvfs $A 2
does "VFs that go before their netdevs came" numvfs $A 0
put $d/clear 1
is "cleared" "$(cat $d/vf_late_ms)" 0

numvfs $A 4
does "VF 1 vanishes" put $d/vf_vanish 1
is "its link is gone" "$(readlink $sys/$A/virtfn1)" ""
is "so is its device" "$(ls -d $sys/1000:01:00.1 2>/dev/null)" ""
is "the others are there" "$(ls -d $sys/1000:01:00.* | wc -l)" 3
refused "it cannot vanish twice" 'No such device' bash -c "echo 1 >$d/vf_vanish"
does "all VFs off" numvfs $A 0
does "and on" numvfs $A 4
is "VF 1 is back" "$(basename "$(readlink $sys/$A/virtfn1)")" 1000:01:00.1
for i in 0 1 2 3; do put $d/vf_vanish $i; done
does "off when all have vanished" numvfs $A 0
does "on again" numvfs $A 1

ip link set "$(pf_dev $A)" up
is "carrier" "$(cat "/sys/class/net/$(pf_dev $A)/carrier")" 1
put $d/carrier 0
is "carrier dropped" "$(cat "/sys/class/net/$(pf_dev $A)/carrier")" 0
like "ethtool agrees" "$(ethtool "$(pf_dev $A)")" 'Link detected: no'
put $d/carrier 1
is "carrier back" "$(cat "/sys/class/net/$(pf_dev $A)/carrier")" 1
like "speed" "$(ethtool "$(pf_dev $A)")" 'Speed: 100000Mb/s'

put $d/health "fw something broke"
like "health error" "$(devlink health show pci/$A reporter fw)" 'state error error 1 recover 0'
put $d/health "fw_fatal something broke"
like "fatal error, recovered" "$(devlink health show pci/$A reporter fw_fatal)" 'state healthy error 1 recover 1'
finish
