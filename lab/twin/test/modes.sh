#!/bin/bash
# The E-Switch: PCI and SR-IOV around it, modes, refusals, what devlink shows.
. "$(dirname "$0")/lib.sh"
fresh

# PCI
is "vendor" "$(cat $sys/$A/vendor)" 0x15b3
is "device" "$(cat $sys/$A/device)" 0x101d
is "class" "$(cat $sys/$A/class)" 0x020000
is "driver" "$(basename "$(readlink $sys/$A/driver)")" mlx5_core
is "driver's module" "$(basename "$(readlink /sys/bus/pci/drivers/mlx5_core/module)")" mlx5_core
is "totalvfs" "$(cat $sys/$A/sriov_totalvfs)" 16
like "VPD has the serial number" "$(tr -c '[:print:]' '\n' <$sys/$A/vpd)" 'SN.?MT2430X00001|MT2430X00001'
like "lspci reads the VPD" "$(lspci -D -s $A -vv 2>/dev/null)" 'Serial number: MT2430X00001'
like "lspci names the card" "$(lspci -D -s $A)" 'MT2892 Family \[ConnectX-6 Dx\]'

# devlink, before VFs
like "info names the driver" "$(devlink dev info pci/$A)" 'driver mlx5_core'
like "info has the serial number" "$(devlink dev info pci/$A)" 'serial_number MT2430X00001'
like "info has the firmware" "$(devlink dev info pci/$A)" 'fw.version [0-9]+\.[0-9]+\.[0-9]{4}'
like "info has the PSID" "$(devlink dev info pci/$A)" 'fw.psid MT_0000000359'
is "legacy at first" "$(mode_of $A)" legacy
like "physical port 0" "$(devlink port show)" 'netdev [^ ]+ flavour physical port 0 '
like "physical port 1" "$(devlink port show)" 'netdev [^ ]+ flavour physical port 1 '
like "enable_roce is driverinit" "$(devlink dev param show pci/$A name enable_roce)" 'cmode driverinit value true'
like "flow_steering_mode is runtime" "$(devlink dev param show pci/$A name flow_steering_mode)" 'cmode runtime value smfs'
does "dmfs in legacy mode" devlink dev param set pci/$A name flow_steering_mode value dmfs cmode runtime
does "smfs in legacy mode" devlink dev param set pci/$A name flow_steering_mode value smfs cmode runtime
refused "hmfs" 'Hardware steering is not supported by current device' \
	devlink dev param set pci/$A name flow_steering_mode value hmfs cmode runtime
refused "a mode that is none" 'Bad parameter: supported values are' \
	devlink dev param set pci/$A name flow_steering_mode value xmfs cmode runtime
refused "inline mode" "Inline mode can't be set" devlink dev eswitch set pci/$A inline-mode network
does "encap mode none" devlink dev eswitch set pci/$A encap-mode none
does "encap mode basic" devlink dev eswitch set pci/$A encap-mode basic

# SR-IOV
does "4 VFs" numvfs $A 4
is "numvfs" "$(cat $sys/$A/sriov_numvfs)" 4
is "VF address" "$(basename "$(readlink $sys/$A/virtfn3)")" 1000:01:00.3
is "VF of port 1 would be elsewhere" "$(numvfs $B 1 && basename "$(readlink $sys/$B/virtfn0)")" 1000:02:00.0
is "physfn" "$(basename "$(readlink $sys/$A/virtfn0/physfn)")" $A
is "VF device" "$(cat $sys/$A/virtfn0/device)" 0x101e
is "VF driver" "$(basename "$(readlink $sys/$A/virtfn0/driver)")" mlx5_core
refused "8 VFs while there are 4" 'busy' bash -c "echo 8 >$sys/$A/sriov_numvfs"
refused "17 VFs" 'out of range' bash -c "echo 17 >$sys/$A/sriov_numvfs"
refused "the E-Switch of a VF" 'Operation not permitted' devlink dev eswitch show pci/1000:01:00.0
like "a VF has a virtual port" "$(devlink port show)" 'flavour virtual'
is "vf lines" "$(ip -d link show "$(pf_dev $A)" | grep -c '^ *vf ')" 4

# bind, unbind, autoprobe, driver_override
does "unbind a VF" put /sys/bus/pci/drivers/mlx5_core/unbind 1000:01:00.2
is "its netdev is gone" "$(vf_dev $A 2)" ""
does "bind it" put /sys/bus/pci/drivers/mlx5_core/bind 1000:01:00.2
like "its netdev is back" "$(vf_dev $A 2)" .
numvfs $A 0
put $sys/$A/sriov_drivers_autoprobe 0
numvfs $A 4
is "autoprobe off: no driver" "$(readlink $sys/$A/virtfn0/driver)" ""
is "nor a netdev" "$(vf_dev $A 0)" ""
does "driver_override" put $sys/$A/virtfn0/driver_override mlx5_core
does "drivers_probe" put /sys/bus/pci/drivers_probe 1000:01:00.0
like "bound by it" "$(vf_dev $A 0)" .
put $sys/$A/sriov_drivers_autoprobe 1

# switchdev
before=$(pf_dev $A) index=$(cat "$sys/$A/net/$(pf_dev $A)/ifindex")
does "switchdev" mode $A switchdev
is "it is" "$(mode_of $A)" switchdev
is "the PF's netdev keeps its name" "$(pf_dev $A)" "$before"
is "and its index" "$(cat "$sys/$A/net/$before/ifindex")" "$index"
is "a representor for each VF" "$(ls $sys/$A/net | wc -l)" 5
like "port of VF 3" "$(devlink port show pci/$A/4)" "netdev $(rep $A 3) flavour pcivf controller 0 pfnum 0 vfnum 3 external false"
like "representor's driver" "$(ethtool -i "$(rep $A 0)")" 'driver: mlx5e_rep'
like "representor's bus" "$(ethtool -i "$(rep $A 0)")" "bus-info: $A"
refused "a representor stays in its namespace" 'netns is immutable' \
	bash -c "ip netns add x && ip link set $(rep $A 0) netns x"
refused "so does the uplink" 'netns is immutable' ip link set "$before" netns x
id=$(cat "/sys/class/net/$before/phys_switch_id")
is "8 bytes of switch id" "${#id}" 16
is "the representor's is the same" "$(cat "/sys/class/net/$(rep $A 0)/phys_switch_id")" "$id"
does "port 1 in switchdev" mode $B switchdev
is "so is the other port's" "$(cat "/sys/class/net/$(rep $B 0)/phys_switch_id")" "$id"
is "named for its function" "$(cat "/sys/class/net/$(rep $B 0)/phys_port_name")" pf1vf0
refused "smfs in switchdev" 'Changing fs mode is not supported when eswitch offloads enabled' \
	devlink dev param set pci/$A name flow_steering_mode value dmfs cmode runtime
does "the same mode again" mode $A switchdev

# functions
f="devlink port function set pci/$A/2"
does "address of an unbound VF" $f hw_addr 00:11:22:33:44:55
does "roce off of an unbound VF" $f roce disable
does "max_io_eqs of an unbound VF" $f max_io_eqs 12
like "they are shown" "$(devlink port show pci/$A/2)" 'hw_addr 00:11:22:33:44:55.* roce disable.* max_io_eqs 12'
refused "a multicast address" 'Invalid argument' $f hw_addr 01:11:22:33:44:55
put /sys/bus/pci/drivers_probe 1000:01:00.1
is "the VF got it" "$(cat "/sys/class/net/$(vf_dev $A 1)/address")" 00:11:22:33:44:55
refused "roce of a bound VF" 'Failed setting HCA roce cap' $f roce enable
refused "max_io_eqs of a bound VF" 'Failed setting HCA caps' $f max_io_eqs 13
like "the vf line has the address" "$(ip link show "$before")" 'vf 1 .*00:11:22:33:44:55'

# set_vf_*: KERNEL: esw/legacy.c
does "mac by ip" ip link set "$before" vf 2 mac 00:11:22:33:44:66
does "rate by ip" ip link set "$before" vf 2 max_tx_rate 100
does "vlan 0" ip link set "$before" vf 2 vlan 0
refused "vlan 7" 'not supported' ip link set "$before" vf 2 vlan 7
refused "spoofchk" 'not supported' ip link set "$before" vf 2 spoofchk on
refused "trust" 'not supported' ip link set "$before" vf 2 trust on
refused "state" 'not supported' ip link set "$before" vf 2 state enable

# the mode while rules are offloaded
r=$(rep $A 0)
tc qdisc add dev "$r" ingress
does "a rule in hardware" tc filter add dev "$r" ingress protocol ip flower skip_sw action drop
refused "legacy while it is" "Can't change mode, E-Switch is busy" mode $A legacy
refused "encap mode while it is" "Can't set encapsulation when flows are configured" \
	devlink dev eswitch set pci/$A encap-mode none
tc filter del dev "$r" ingress
does "legacy when it is gone" mode $A legacy
is "it is legacy" "$(mode_of $A)" legacy
is "no representors" "$(ls $sys/$A/net | wc -l)" 1
does "vlan 7 in legacy" ip link set "$before" vf 2 vlan 7 qos 3
does "spoofchk in legacy" ip link set "$before" vf 2 spoofchk on
does "trust in legacy" ip link set "$before" vf 2 trust on
does "state in legacy" ip link set "$before" vf 2 state enable
like "all of them shown" "$(ip link show "$before")" 'vf 2 .*vlan 7, qos 3.*spoof checking on.*link-state enable.*trust on'
does "the uplink moves in legacy" ip link set "$before" netns x
does "and back" ip -n x link set "$before" netns 1

# VFs in switchdev mode, and reload
numvfs $A 0
like "VF settings end with the VFs" "$(numvfs $A 3 && ip link show "$before")" 'vf 2 .*00:00:00:00:00:00.*spoof checking off'
numvfs $A 0
mode $A switchdev
does "VFs come in switchdev mode" numvfs $A 2
is "with representors" "$(ls $sys/$A/net | wc -l)" 3
does "and go in it" numvfs $A 0
is "with representors gone" "$(ls $sys/$A/net | wc -l)" 1
is "still switchdev" "$(mode_of $A)" switchdev
numvfs $A 2
does "reload" devlink dev reload pci/$A
is "ends in legacy" "$(mode_of $A)" legacy
is "with its VFs" "$(cat $sys/$A/sriov_numvfs)" 2
does "switchdev after it" mode $A switchdev
does "unbind a PF in switchdev with VFs" put /sys/bus/pci/drivers/mlx5_core/unbind $A
is "its VFs are gone" "$(cat $sys/$A/sriov_numvfs)" 0
does "bind it" put /sys/bus/pci/drivers/mlx5_core/bind $A
is "it starts in legacy" "$(mode_of $A)" legacy
finish
