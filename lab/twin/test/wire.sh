#!/bin/bash
# Two machines, their NICs cabled together: lab/run --vms 2 -- lab/twin/test/wire.sh
# A pod on a VF of each, OVS between VF and wire, all of it in hardware.
. "$(dirname "$0")/lib.sh"
me=$SLUICE_VM other=$((3 - SLUICE_VM))
ovs other_config:max-idle=60000 || exit 1
is "cabled" "$(cat $debug/$A/wire)" wire0
numvfs $A 2
mode $A switchdev
up=$(pf_dev $A)
ethtool -K "$up" hw-tc-offload on
ip link set "$up" up
is "carrier" "$(cat "/sys/class/net/$up/carrier")" 1
ovs-vsctl add-br br0
for dev in "$up" "$(rep $A 0)"; do
	ip link set "$dev" up
	ovs-vsctl add-port br0 "$dev"
done
pod a "$(vf_dev $A 0)" 10.0.0.$me
in_pod a iperf3 -s -D >/dev/null
meet ready
within 60 "ping the other machine's pod" in_pod a ping -c 1 -W 2 10.0.0.$other
within 60 "both directions are offloaded" bash -c "[ \$(ovs-appctl dpctl/dump-flows -m type=offloaded | grep 0x0800 | grep -c 'offloaded:yes, dp:tc') -ge 2 ]"
meet warm
hw=$(counter $A pf0vf0 hw_packets) hwup=$(counter $A p0 hw_packets)
miss=$(counter $A pf0vf0 miss_packets) missup=$(counter $A p0 miss_packets)
does "30 pings" in_pod a ping -c 30 -i 0.1 -W 5 10.0.0.$other
[ $(($(counter $A pf0vf0 hw_packets) - hw)) -ge 30 ] && ok "out in hardware" || bad "out in hardware: $(($(counter $A pf0vf0 hw_packets) - hw))"
[ $(($(counter $A p0 hw_packets) - hwup)) -ge 30 ] && ok "in in hardware" || bad "in in hardware: $(($(counter $A p0 hw_packets) - hwup))"
lost=$(($(counter $A pf0vf0 miss_packets) - miss + $(counter $A p0 miss_packets) - missup))
[ $lost -le 6 ] && ok "the host saw $lost packets" || bad "the host saw $lost packets"
meet pinged
if [ "$me" = 1 ]; then
	does "TCP between the machines" in_pod a iperf3 -c 10.0.0.2 -n 5M
fi
meet done
if [ "$me" = 1 ]; then
	put $debug/$A/carrier 0
	is "cut here: no carrier here" "$(cat "/sys/class/net/$up/carrier")" 0
	refused "nor traffic" '100% packet loss' in_pod a ping -c 2 -i 0.3 -W 1 10.0.0.2
fi
meet end
finish
