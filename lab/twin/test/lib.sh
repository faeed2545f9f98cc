# Shared by the tests of the twin; sourced, never run.
# shellcheck shell=bash
set -uo pipefail

tests=0 failures=0
A=1000:00:00.0 B=1000:00:00.1	# the ports of the first card
sys=/sys/bus/pci/devices
debug=/sys/kernel/debug/twin

ok() {
	tests=$((tests + 1))
	echo "ok $tests $*"
}

bad() {
	tests=$((tests + 1)) failures=$((failures + 1))
	echo "not ok $tests $*"
}

# is WHAT GOT WANTED
is() {
	if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: got \"$2\", want \"$3\""; fi
}

# like WHAT GOT PATTERN: an extended regular expression
like() {
	if grep -qE -- "$3" <<<"$2"; then ok "$1"; else bad "$1: got \"$2\", want /$3/"; fi
}

# does WHAT COMMAND...: it succeeds
does() {
	local what=$1 out
	shift
	if out=$("$@" 2>&1); then ok "$what"; else bad "$what: $* failed: $out"; fi
}

# refused WHAT PATTERN COMMAND...: it fails and says so
refused() {
	local what=$1 pattern=$2 out
	shift 2
	if out=$("$@" 2>&1); then
		bad "$what: $* was accepted"
	elif grep -qE -- "$pattern" <<<"$out"; then
		ok "$what"
	else
		bad "$what: $* said \"$out\", want /$pattern/"
	fi
}

# within SECONDS WHAT COMMAND...: it succeeds within that time
within() {
	local seconds=$1 what=$2 end
	shift 2
	end=$((SECONDS + seconds))
	until "$@" >/dev/null 2>&1; do
		if [ $SECONDS -ge $end ]; then
			bad "$what: not within $seconds s: $*"
			return 1
		fi
		sleep 0.1
	done
	ok "$what"
}

put() { echo "$2" >"$1"; }
numvfs() { put "$sys/$1/sriov_numvfs" "$2"; }
mode() { devlink dev eswitch set "pci/$1" mode "$2"; }
mode_of() { devlink -j dev eswitch show "pci/$1" | jq -r '.[][].mode'; }

# The netdev of PF whose phys_port_name is NAME: a PF's and its representors' parent is the PF
port_dev() {
	local at
	at=$(grep -lxs "$2" "$sys/$1"/net/*/phys_port_name) || return
	at=${at%/phys_port_name}
	echo "${at##*/}"
}
pf_dev() { port_dev "$1" "p${1##*.}"; }
rep() { port_dev "$1" "pf${1##*.}vf$2"; }
vf_dev() { ls "$sys/$1/virtfn$2/net" 2>/dev/null | head -n 1; }

# pod NAME VFDEV ADDRESS: the VF in a namespace of its own, as eth0. Without IPv6:
# its solicitations and reports come at times of their own, and are misses.
pod() {
	ip netns add "$1"
	ip netns exec "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
	ip link set "$2" netns "$1" name eth0
	ip -n "$1" addr add "$3/24" dev eth0
	ip -n "$1" link set eth0 up
	ip -n "$1" link set lo up
}

# acquainted A ADDRESS B ADDRESS: neither asks for the other's address any more. A
# busy machine takes so long over a few packets that entries go stale meanwhile.
acquainted() {
	ip -n "$1" neigh replace "$4" lladdr "$(mac_in "$3")" dev eth0 nud permanent
	ip -n "$3" neigh replace "$2" lladdr "$(mac_in "$1")" dev eth0 nud permanent
}
in_pod() { ip netns exec "$@"; }
mac_in() { ip netns exec "$1" cat /sys/class/net/eth0/address; }

# configured OPTION: does the running kernel have it? The lab's own kernel tells
# (IKCONFIG); Debian's keeps its configuration in /boot, which a guest has not, and
# lacks every option that is asked for here.
# Not by a pipe: grep ends at the first match, and with pipefail a zcat that still
# writes then makes it a no.
configured() { grep -qE "^$1=[ym]" <(zcat /proc/config.gz 2>/dev/null); }

# counter PF VPORT NAME: of the truth in debugfs
counter() { sed -n "s/^$2 .*\b$3:\([0-9]*\).*/\1/p" "$debug/$1/counters"; }
stat_of() { ethtool -S "$1" | sed -n "s/^ *$2: //p"; }

# The card as at load, whatever ran before in this guest
fresh() {
	local pf
	for pf in $A $B; do
		[ -e $debug/$pf/clear ] && put $debug/$pf/clear 1
		numvfs $pf 0
		mode $pf legacy
		put $debug/$pf/wire peer
		ip link set "$(pf_dev $pf)" down
	done
	dmesg -C
}

no_warnings() {
	local found
	found=$(dmesg | grep -E 'WARNING|BUG|Oops|Call Trace|refcount|unregister_netdevice: waiting' | head -n 5)
	is "nothing bad in the kernel's log" "$found" ""
}

# no_leaks: as kmemleak sees it, with kmemleak=on on the command line of a kernel
# that has it.
no_leaks() {
	if echo scan 2>/dev/null >/sys/kernel/debug/kmemleak; then
		sleep 6 # objects younger than 5 s are not reported
		echo scan >/sys/kernel/debug/kmemleak
		is "kmemleak" "$(cat /sys/kernel/debug/kmemleak)" ""
	else
		echo "# this kernel has no kmemleak, or it is off: not checked"
	fi
}

finish() {
	no_warnings
	echo "$tests tests, $failures failures"
	[ "$failures" = 0 ]
	exit
}
