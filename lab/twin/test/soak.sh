#!/bin/bash
# soak [MODES [COUNTS [LOADS]]]: mode changes, VF count changes and module loads
# (1000, 1000 and 20), then: is the kernel's log clean and its memory back?
# With kmemleak=on on the command line of a kernel that has it, that too.
. "$(dirname "$0")/lib.sh"
modes=${1:-1000} counts=${2:-1000} loads=${3:-20}
tree=$(cd "$(dirname "$0")/../../.." && pwd)
module=$tree/$(sed -n 's/.*lab\.run=\([^ ]*\).*/\1/p' /proc/cmdline)/vm${SLUICE_VM-}/twin.ko

# What the kernel itself holds, in kB. The machine's free memory is no measure: it
# wanders by megabytes with nothing going on (pages on per-processor lists).
held() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 2
	awk '/^(Slab|VmallocUsed|Percpu|PageTables|KernelStack):/ { n += $2 } END { print n }' /proc/meminfo
}
round() { # one of each, so that what is made once is made
	numvfs $A 2 && mode $A switchdev && mode $A legacy && numvfs $A 0
}
for i in 1 2 3 4 5; do round; done

# grows WHAT BEFORE AFTER LIMIT: kB
grows() {
	echo "# $1: $(($3 - $2)) kB more held"
	[ $(($3 - $2)) -le "$4" ] && ok "no growth by $1" || bad "$1: $(($3 - $2)) kB more held, allowed $4"
}

numvfs $A 2
before=$(held) start=$SECONDS
for ((i = 0; i < modes / 2; i++)); do
	mode $A switchdev || { bad "switchdev, round $i"; break; }
	mode $A legacy || { bad "legacy, round $i"; break; }
done
echo "# $((i * 2)) mode changes in $((SECONDS - start)) s"
is "mode changes" "$((i * 2))" "$((modes / 2 * 2))"
grows "mode changes" "$before" "$(held)" 2048
numvfs $A 0

before=$(held) start=$SECONDS
for ((i = 0; i < counts / 2; i++)); do
	numvfs $A 2 || { bad "2 VFs, round $i"; break; }
	numvfs $A 0 || { bad "0 VFs, round $i"; break; }
done
echo "# $((i * 2)) VF count changes in $((SECONDS - start)) s"
is "VF count changes" "$((i * 2))" "$((counts / 2 * 2))"
grows "VF count changes" "$before" "$(held)" 2048

if [ -e "$module" ] && [ "$loads" -gt 0 ]; then
	copy=/tmp/twin.ko
	cp "$module" $copy
	rmmod twin && insmod $copy && rmmod twin
	before=$(held) start=$SECONDS
	for ((i = 0; i < loads; i++)); do
		insmod $copy vfs=8 || { bad "insmod, round $i"; break; }
		numvfs $A 2 && mode $A switchdev
		rmmod twin || { bad "rmmod, round $i"; break; }
	done
	echo "# $i loads in $((SECONDS - start)) s"
	is "loads and unloads, each with VFs in switchdev mode" "$i" "$loads"
	grows "loads and unloads" "$before" "$(held)" 2048
	is "nothing left on the bus" "$(ls $sys | grep -c '^1000:')" 0
	is "nor in debugfs" "$(ls $debug 2>/dev/null)" ""
else
	[ "$loads" = 0 ] || bad "no twin.ko to load again"
fi

no_leaks
finish
