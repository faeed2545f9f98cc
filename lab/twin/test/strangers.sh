#!/bin/bash
# What programs of others read: it must be there and look right.
. "$(dirname "$0")/lib.sh"
fresh
numvfs $A 2
up=$(pf_dev $A) vf=$(vf_dev $A 0)

for mode in legacy switchdev; do
	mode $A $mode
	like "$mode: vf lines" "$(ip -d link show "$up")" 'vf 1 .*spoof checking off, link-state auto, trust off'
	like "$mode: statistics of VFs" "$(ip -s -s link show "$up")" 'vf 0'
	like "$mode: portname" "$(ip -d link show "$up")" 'portname p0 switchid 0c42a10300'
	like "$mode: parent" "$(ip -d link show "$up")" "parentbus pci parentdev $A"
	like "$mode: drvinfo" "$(ethtool -i "$up" | tr '\n' ' ')" "driver: mlx5_core .*firmware-version: [0-9.]+ \(MT_0000000359\) .*bus-info: $A"
	like "$mode: features" "$(ethtool -k "$up")" '^hw-tc-offload: off$'
	like "$mode: channels" "$(ethtool -l "$up" | tr -s '\n\t ' ' ')" 'Combined: 8 Current.*Combined: [1-8]'
	like "$mode: rings" "$(ethtool -g "$up" | tr -s '\n\t ' ' ')" 'RX: 8192'
	like "$mode: physical counters" "$(ethtool -S "$up")" 'rx_packets_phy: [0-9]+'
	like "$mode: permanent address" "$(ip -d link show "$up"; ethtool -P "$up")" 'Permanent address: 0c:42:a1:'
done
does "set channels" ethtool -L "$up" combined 2
like "they are set" "$(ethtool -l "$up" | tail -n 2)" 'Combined:[[:space:]]*2'
refused "too many channels" 'Invalid argument|exceeds maximum' ethtool -L "$up" combined 9
does "set rings" ethtool -G "$up" rx 2000
like "rounded up" "$(ethtool -g "$up" | tr -s '\n\t ' ' ')" 'Current.*RX: 2048'
like "VF's drvinfo" "$(ethtool -i "$vf" | tr '\n' ' ')" 'driver: mlx5_core .*bus-info: 1000:01:00.0'
like "VF's counters" "$(ethtool -S "$vf")" 'rx_vport_unicast_packets: [0-9]+'
like "representor's counters" "$(ethtool -S "$(rep $A 0)")" 'vport_rx_packets: [0-9]+'
like "representor's features" "$(ethtool -k "$(rep $A 0)")" '^hw-tc-offload: on$'
like "representor's name by devlink" "$(devlink -j port show | jq -r '.port[] | select(.flavour=="pcivf" and .vfnum==1) | .netdev')" "^$(rep $A 1)$"
does "VF up" ip link set "$vf" up
does "its address can be changed while it is up" ip link set "$vf" address 02:00:00:00:00:77
refused "to one of a group it cannot" 'Cannot assign requested address' ip link set "$vf" address 01:00:5e:00:00:01
like "aux device" "$(ls $sys/$A)" 'mlx5_core.eth.[0-9]+'
like "health reporters" "$(devlink health show pci/$A)" 'reporter fw_fatal'
is "no one says what it is" "$(ip -d link; devlink dev info; devlink port show; devlink dev param show; ethtool -i "$up"; find /sys/bus/pci/devices/1000:* /sys/bus/pci/drivers/mlx5_core /sys/class/net/ -name '*twin*')" \
	"$(ip -d link; devlink dev info; devlink port show; devlink dev param show; ethtool -i "$up")"
is "nor does anything that they print" "$( (ip -d link; devlink dev info; devlink port show; devlink dev param show; ethtool -i "$up"; lspci -vv) 2>/dev/null | grep -ci twin)" 0
finish
