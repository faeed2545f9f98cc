# Shared by the tests of LAG; sourced after lib.sh, never run.
# shellcheck shell=bash

lagdir=/sys/kernel/debug/mlx5
module=$(dirname "$0")/../../../$(sed -n 's/.*lab\.run=\([^ ]*\).*/\1/p' /proc/cmdline)/vm${SLUICE_VM-}/twin.ko
modprobe -q bonding max_bonds=0
modprobe -aq bridge cls_flower act_mirred act_gact sch_ingress

# lag PF FILE: its lines on one
lag() { tr '\n' ' ' <"$lagdir/$1/lag/$2" 2>/dev/null | sed 's/ $//'; }

# bond MODE DEV...: bond0 of these, up; more options may follow the mode, in one word
bond() {
	local dev
	# shellcheck disable=SC2086
	ip link add bond0 type bond miimon 100 mode $1 || return
	shift
	ip link set bond0 up
	for dev; do
		ip link set "$dev" down
		ip link set "$dev" master bond0 || return
	done
}
bond_away() { ip link del bond0; }

state_is() { [ "$(lag $A state)" = "$1" ] && [ "$(lag $B state)" = "$1" ]; }
active() { within 60 "$1: active" state_is active; }
disabled() { within 60 "$1: disabled" state_is disabled; }
# stays WHAT STATE: for longer than the driver's work may be late (a second)
stays() {
	local i
	for i in 1 2 3 4 5; do
		state_is "$2" || { bad "$1: got \"$(lag $A state)\", want \"$2\""; return; }
		sleep 0.5
	done
	ok "$1: $2"
}

# logged WHAT PATTERN: the kernel's log has it, or will: the driver works on its own time
logged() { within 60 "$1" bash -c 'dmesg | grep -qE -- "$1"' _ "$2"; }

# mapping_is PORTS: these send; 6.12 does not hash for active-backup
mapping_is() {
	local got
	got=$(lag $A mapping)
	[ "$got" = "$1" ] || [ "$got" = "1:$1 2:$1" ]
}

# bind PF, unbind PF: all its VFs; with autoprobe off only an override binds one
bind() {
	local vf
	for vf in "$sys/$1"/virtfn*; do
		put "$vf/driver_override" mlx5_core
		put /sys/bus/pci/drivers_probe "$(basename "$(readlink "$vf")")"
	done
}
unbind() {
	local vf
	for vf in "$sys/$1"/virtfn*; do put "$vf/driver/unbind" "$(basename "$(readlink "$vf")")"; done
}
# seats: the first VF of each port in a pod
seats() {
	local pod
	bind $A
	bind $B
	for pod in a b; do ip netns del $pod 2>/dev/null; done
	pod a "$(vf_dev $A 0)" 10.0.0.1
	pod b "$(vf_dev $B 0)" 10.0.0.2
}
no_seats() {
	unbind $A
	unbind $B
}

# cables: a switch in namespace far, 10.0.0.9 behind it, cabled to both ports
cables() {
	local i
	ip netns add far
	ip -n far link add fb type bridge
	for i in 0 1; do
		ip link add w$i type veth peer name s$i netns far
		ip link set w$i up
		ip -n far link set s$i master fb
		ip -n far link set s$i up
	done
	ip -n far addr add 10.0.0.9/24 dev fb
	ip -n far link set fb up
	put $debug/$A/wire w0
	put $debug/$B/wire w1
}
far_mac() { ip netns exec far cat /sys/class/net/fb/address; }

# far_bond MODE: instead of the switch, a bond
far_bond() {
	local i
	ip -n far link del fb 2>/dev/null
	ip -n far link add fb type bond mode "$1" miimon 100
	for i in 0 1; do
		ip -n far link set s$i down
		ip -n far link set s$i master fb
	done
	ip -n far addr add 10.0.0.9/24 dev fb
	ip -n far link set fb up
}

# cut N, mend N: the wire of port N, so that both of its ends see it
cut() { ip -n far link set s$1 down; }
mend() { ip -n far link set s$1 up; }

# still_far POD: no ARP between the pod and far
still_far() {
	ip -n "$1" neigh replace 10.0.0.9 lladdr "$(far_mac)" dev eth0 nud permanent
	ip -n far neigh replace "$(ip -n "$1" -4 -o addr show eth0 | sed 's/.*inet \([0-9.]*\).*/\1/')" \
		lladdr "$(mac_in "$1")" dev fb nud permanent
}
pings() { in_pod "$1" ping -q -c "$2" -i 0.2 -W 2 10.0.0.9; }

# block_on N: both ports of the card share the block N; block_off: no more, nor its rules
block_on() {
	local dev
	for dev in "$p0" "$p1"; do tc qdisc add dev "$dev" ingress_block "$1" ingress || bad "block on $dev"; done
}
block_off() {
	local dev
	for dev in "$p0" "$p1"; do tc qdisc del dev "$dev" ingress || bad "no block on $dev"; done
}
