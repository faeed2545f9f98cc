#!/bin/bash
# As large as it gets: lab/run --nics twin:cards=2:vfs=128:numa=0+1 -- lab/twin/test/scale.sh
. "$(dirname "$0")/lib.sh"
C=1000:00:01.0 D=1000:00:01.1
took() { # WHAT COMMAND...
	local what=$1 start=${EPOCHREALTIME/./}
	shift
	does "$what" "$@"
	echo "# $what: $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
}
for pf in $A $B $C $D; do
	is "totalvfs of $pf" "$(cat $sys/$pf/sriov_totalvfs)" 128
	took "128 VFs on $pf" numvfs $pf 128
done
is "VFs" "$(ls -d $sys/1000:0[1-4]:* | wc -l)" 512
is "all bound" "$(ls -d $sys/1000:0[1-4]:*/driver | wc -l)" 512
is "all with a netdev" "$(ls -d $sys/1000:0[1-4]:*/net/* | wc -l)" 512
is "last VF of the last port" "$(basename "$(readlink $sys/$D/virtfn127)")" 1000:04:0f.7
is "node of card 0" "$(cat $sys/$A/numa_node) $(cat $sys/$A/virtfn5/numa_node)" "0 0"
is "node of card 1" "$(cat $sys/$C/numa_node) $(cat $sys/$C/virtfn5/numa_node)" "1 1"
took "switchdev of $A with 128 VFs" mode $A switchdev
took "switchdev of $D with 128 VFs" mode $D switchdev
is "representors" "$(ls $sys/$A/net | wc -l)" 129
is "named by port" "$(cat "$sys/$D/net/$(rep $D 127)/phys_port_name")" pf1vf127
[ "$(cat "$sys/$A/net/$(pf_dev $A)/phys_switch_id")" != "$(cat "$sys/$D/net/$(rep $D 0)/phys_switch_id")" ] &&
	ok "cards have switch ids of their own" || bad "two cards, one switch id"
like "serial number of card 1" "$(devlink dev info pci/$C)" 'serial_number MT2430X00002'
took "dump of all ports" devlink port show
took "vf lines of 128" ip -d link show "$(pf_dev $A)"
is "all there" "$(ip link show "$(pf_dev $A)" | grep -c '^ *vf ')" 128
r=$(rep $A 0)
tc qdisc add dev "$r" ingress
for i in $(seq 0 4999); do
	echo "filter add dev $r ingress prio 1 protocol ip flower skip_sw src_ip 10.1.$((i / 250)).$((i % 250)) action drop"
done >/tmp/rules
took "5000 rules" tc -b /tmp/rules
is "in hardware" "$(wc -l <$debug/$A/flows)" 5000
took "read with statistics" bash -c "tc -s filter show dev $r ingress | tail -n 1"
took "taken back" tc qdisc del dev "$r" ingress
took "legacy of $A" mode $A legacy
for pf in $A $B $C $D; do took "no VFs on $pf" numvfs $pf 0; done
took "unload" rmmod twin
finish
