#!/bin/bash
# Subfunctions: their ports, devices, driver, traffic, limits and ends.
. "$(dirname "$0")/lib.sh"
fresh
d=$debug/$A
add() { devlink port add "pci/$1" flavour pcisf pfnum "${1##*.}" sfnum "$2" >/dev/null; }
sf_rep() { port_dev "$1" "pf${1##*.}sf$2"; }
port_of() { devlink -j port show | jq -r --arg d "pci/$1" --argjson n "$2" '.port|to_entries[]|select((.key|startswith($d)) and .value.sfnum==$n)|.key'; }
sf_dev() { grep -lxs "$1" /sys/bus/auxiliary/devices/mlx5_core.sf.*/sfnum | sed 's|.*/\(mlx5_core[^/]*\)/sfnum|\1|'; }
sf_net() { ls "/sys/bus/auxiliary/devices/$(sf_dev "$1")/net" 2>/dev/null; }
state() { devlink port function set "$(port_of "$1" "$2")" state "$3"; }
shown() { devlink port show "$(port_of "$1" "$2")"; }
attached() { [[ $(shown "$1" "$2") == *'opstate attached'* ]]; }
detached() { [[ $(shown "$1" "$2") == *'opstate detached'* ]]; }
no_sfs() { ! ls -d /sys/bus/auxiliary/devices/mlx5_core.sf.* 2>/dev/null; }
# up PF SFNUM: active, attached, with its Ethernet part
up() {
	state "$1" "$2" active
	within 60 "SF $2 attaches" attached "$1" "$2"
	devlink dev param set "auxiliary/$(sf_dev "$2")" name enable_eth value true cmode driverinit
	does "SF $2 reloads" devlink dev reload "auxiliary/$(sf_dev "$2")"
}

# adding
like "the number of SFs is a resource" "$(devlink resource show pci/$A)" 'max_local_SFs size 64 '
refused "an SF in legacy mode" 'SF ports are only supported in eswitch switchdev mode' add $A 88
mode $A switchdev
numvfs $A 2
refused "no sfnum" 'User must provide unique sfnum. Driver does not support auto assignment' \
	devlink port add pci/$A flavour pcisf pfnum 0
refused "another function" 'Invalid pfnum supplied' devlink port add pci/$A flavour pcisf pfnum 1 sfnum 1
refused "an index of one's own" 'does not support user defined port index' \
	devlink port add pci/$A/40000 flavour pcisf pfnum 0 sfnum 1
refused "a controller" 'External controller is unsupported' \
	devlink port add pci/$A flavour pcisf pfnum 0 sfnum 1 controller 1
refused "a VF port" 'Driver supports only SF port addition' \
	devlink port add pci/$A flavour pcivf pfnum 0
refused "an SF of a VF" 'not supported' devlink port add pci/1000:01:00.0 flavour pcisf pfnum 0 sfnum 1
does "an SF" add $A 88
is "its index" "$(port_of $A 88)" pci/$A/32768
like "its port" "$(shown $A 88)" 'flavour pcisf controller 0 pfnum 0 sfnum 88.*'
like "state" "$(shown $A 88)" 'state inactive opstate detached roce enable'
like "representor" "$(sf_rep $A 88)" .
is "the switch id is the card's" "$(cat "/sys/class/net/$(sf_rep $A 88)/phys_switch_id")" \
	"$(cat "/sys/class/net/$(pf_dev $A)/phys_switch_id")"
refused "the same sfnum" 'SF already exist. Choose different sfnum' add $A 88
does "the same sfnum on the other port" mode $B switchdev
does "SF 88 of port 1" add $B 88
is "its index is the other port's" "$(port_of $B 88)" pci/$B/98304
does "deleted" devlink port del "$(port_of $B 88)"
mode $B legacy
refused "a VF port cannot be deleted" 'not supported' devlink port del pci/$A/1

# activating
p=$(port_of $A 88)
does "address" devlink port function set "$p" hw_addr 00:11:22:33:44:88
does "max_io_eqs" devlink port function set "$p" max_io_eqs 3
does "roce" devlink port function set "$p" roce disable
does "active" state $A 88 active
within 60 "attached" attached $A 88
does "active again" state $A 88 active
s=$(sf_dev 88)
is "parent" "$(basename "$(dirname "$(readlink -f "/sys/bus/auxiliary/devices/$s")")")" $A
is "driver" "$(basename "$(readlink "/sys/bus/auxiliary/devices/$s/driver")")" mlx5_core.sf
like "its devlink instance is nested in the port" "$(shown $A 88)" "auxiliary/$s"
for part in eth rdma vnet; do
	like "$part is off at first" "$(devlink dev param show "auxiliary/$s" name enable_$part)" 'cmode driverinit value false'
done
is "so there is no netdev" "$(sf_net 88)" ""
refused "roce of an attached SF" 'Failed setting HCA roce cap' devlink port function set "$p" roce enable
devlink dev param set "auxiliary/$s" name enable_eth value true cmode driverinit
does "reload" devlink dev reload "auxiliary/$s"
n=$(sf_net 88)
is "its address" "$(cat "/sys/class/net/$n/address")" 00:11:22:33:44:88
like "its port" "$(devlink port show)" "netdev $n flavour virtual"
like "bus-info" "$(ethtool -i "$n")" "bus-info: $s"
like "channels by max_io_eqs" "$(ethtool -l "$n")" 'Combined:[[:space:]]*3'

# traffic, in hardware: SF to VF by rules, SF to SF by rules
add $A 99
up $A 99
r88=$(sf_rep $A 88) r99=$(sf_rep $A 99) r0=$(rep $A 0)
pod a "$n" 10.0.0.1
pod b "$(vf_dev $A 0)" 10.0.0.2
pod c "$(sf_net 99)" 10.0.0.3
is "no carrier while the representor is down" "$(in_pod a cat /sys/class/net/eth0/carrier)" 0
for r in "$r88" "$r99" "$r0"; do
	ip link set "$r" up
	tc qdisc add dev "$r" ingress
done
within 60 "carrier with it" in_pod a bash -c '[ "$(cat /sys/class/net/eth0/carrier)" = 1 ]'
to() { # to REP ADDRESS OUT
	tc filter add dev "$1" ingress prio 1 protocol ip flower skip_sw dst_ip "$2" action mirred egress redirect dev "$3" &&
		tc filter add dev "$1" ingress prio 2 protocol arp flower skip_sw arp_tip "$2" action mirred egress redirect dev "$3" 2>/dev/null
	true
}
for x in "a 10.0.0.1" "b 10.0.0.2" "c 10.0.0.3"; do
	for y in "a 10.0.0.1" "b 10.0.0.2" "c 10.0.0.3"; do
		[ "$x" = "$y" ] || ip -n "${x% *}" neigh replace "${y#* }" lladdr "$(mac_in "${y% *}")" dev eth0 nud permanent
	done
done
to "$r88" 10.0.0.2 "$r0"
to "$r88" 10.0.0.3 "$r99"
to "$r0" 10.0.0.1 "$r88"
to "$r99" 10.0.0.1 "$r88"
for x in a b c; do in_pod $x sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1; done
miss=$(counter $A pf0sf88 miss_packets)
does "SF to VF" in_pod a ping -c 3 -i 0.2 -W 3 10.0.0.2
does "SF to SF" in_pod a ping -c 3 -i 0.2 -W 3 10.0.0.3
like "by the hardware" "$(counter $A pf0sf88 hw_packets)" '^[6-9]$|^..'
is "and not by the representor" "$(counter $A pf0sf88 miss_packets)" "$miss"
like "rules name it" "$(cat $d/flows)" 'in:pf0sf88 .*output:pf0vf0'
refused "legacy mode while rules are there" "Can't change mode, E-Switch is busy" mode $A legacy
in_pod b iperf3 -s -D -1 >/dev/null
does "iperf3 from SF to VF" in_pod a iperf3 -c 10.0.0.2 -n 5M
for r in "$r88" "$r99" "$r0"; do tc qdisc del dev "$r" ingress; done

# unbind, bind, inactive
does "unbind" put /sys/bus/auxiliary/drivers/mlx5_core.sf/unbind "$s"
like "active, detached" "$(shown $A 88)" 'state active opstate detached'
is "its netdev went, from another namespace" "$(in_pod a ls /sys/class/net)" lo
does "bind" put /sys/bus/auxiliary/drivers/mlx5_core.sf/bind "$s"
like "attached again" "$(shown $A 88)" 'state active opstate attached'
is "without parts again" "$(sf_net 88)" ""
does "inactive" state $A 88 inactive
within 60 "detached" detached $A 88
is "no device" "$(sf_dev 88)" ""
does "active and inactive" state $A 88 active
within 60 "attached once more" attached $A 88
does "deleted while active" devlink port del "$p"
within 60 "its device goes" bash -c "! grep -lxs 88 /sys/bus/auxiliary/devices/mlx5_core.sf.*/sfnum"
ip netns del b
ip netns del c
ip netns del a
within 60 "an SF's netdev comes back from a namespace that ends" bash -c "[ -n \"\$(ls /sys/bus/auxiliary/devices/$(sf_dev 99)/net)\" ]"

# what comes late, and faults
put $d/sf_late_ms 5000
add $A 5
state $A 5 active
like "active, and nothing attached yet" "$(shown $A 5)" 'state active opstate detached'
is "nor a device" "$(sf_dev 5)" ""
within 60 "it comes" attached $A 5
state $A 5 inactive
like "inactive, and still attached" "$(shown $A 5)" 'state inactive opstate attached'
refused "active while it is" 'SF is inactivated but it is still attached' state $A 5 active
within 60 "it goes" detached $A 5
put $d/sf_late_ms 60000
state $A 5 active
devlink port del "$(port_of $A 5)"
refused "an sfnum that is not free yet" 'SF already exist. Choose different sfnum' add $A 5
put $d/sf_late_ms 0
put $d/fail "sf_add EIO 1 0 Device is busy"
refused "sf_add" 'mlx5_core: Device is busy' add $A 6
does "once only" add $A 6
put $d/fail "rep_add ENOMEM"
refused "rep_add" 'Cannot allocate memory' add $A 7
is "no port of it" "$(port_of $A 7)" ""
put $d/fail "sf_activate EREMOTEIO"
refused "sf_activate" 'Remote I/O error' state $A 6 active
like "still inactive" "$(shown $A 6)" 'state inactive'
put $d/fail "sf_probe EIO"
does "active" state $A 6 active
within 60 "a device" bash -c "grep -qxs 6 /sys/bus/auxiliary/devices/mlx5_core.sf.*/sfnum"
within 60 "the fault is used up" bash -c "[ -z \"\$(cat $d/fail)\" ]"
like "and no driver" "$(shown $A 6)" 'state active opstate detached'
does "bind" put /sys/bus/auxiliary/drivers/mlx5_core.sf/bind "$(sf_dev 6)"
like "attached" "$(shown $A 6)" 'opstate attached'

# ends: mode, reload, unbind
does "legacy mode takes the SFs" mode $A legacy
within 60 "all of them" no_sfs
is "no ports" "$(devlink port show | grep -c pcisf)" 0
mode $A switchdev
add $A 1
up $A 1
does "reload of the PF" devlink dev reload pci/$A
is "no SF after it" "$(no_sfs && echo none)" none
mode $A switchdev
for i in $(seq 64); do add $A "$i" || bad "SF $i"; done
refused "one too many" 'No space left on device' add $A 65
is "64 representors, the VFs' and the uplink" "$(ls $sys/$A/net | wc -l)" 67
for i in 1 2 3 4 5 6 7 8; do state $A $i active; done
for i in 1 2 3 4 5 6 7 8; do within 60 "SF $i attaches" attached $A $i; done
does "delete one" devlink port del "$(port_of $A 64)"
does "and another takes its place" add $A 65
does "unbind the PF" put /sys/bus/pci/drivers/mlx5_core/unbind $A
is "no SF after it" "$(no_sfs && echo none)" none
does "bind it" put /sys/bus/pci/drivers/mlx5_core/bind $A
finish
