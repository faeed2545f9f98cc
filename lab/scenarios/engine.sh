# What the scenarios of the node engine share; sourced, after the demo's lib.sh.
# shellcheck shell=bash

p0=1000:00:00.0 p1=1000:00:00.1
door=/sys/kernel/debug/twin
work=$(mktemp -d)

# document NAME: standard input as the spec of a NodeNIC in $work/NAME.yaml.
document() {
	{
		printf 'apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n'
		sed 's/^/  /'
	} >"$work/$1.yaml"
}

# inventory: all that sluice sees, less what no one chooses: the kernel numbers
# interfaces in the order in which drivers come to them, and ports go in parallel. An
# error that a reporter cannot recover from stays.
unchosen='del(.. | .ifindex?, .failing?, (.name? | select(type == "string" and test("^eth[0-9]+$"))))'
inventory() { sluice observe -o json | jq "$unchosen"; }

# pf N FILTER, vf N I FILTER: of a port, of a VF, as sluice sees it.
pf() { sluice observe -o json | jq -r "[.cards[].pfs[]][$1] | $2"; }
vf() { pf "$1" ".vfs[$2] | $3"; }

uplink() { pf "$1" .uplink.name; }
mode_of() { devlink -j dev eswitch show "pci/$1" | jq -r '.[][].mode'; }
left() { sluice plan -f "$work/$1.yaml" -o json | jq '.steps | length'; }

# ends STATUS COMMAND...: the command ends with that status. Its output is kept in
# $work/said.
ends() {
	local want=$1 got=0
	shift
	"$@" >"$work/said" 2>&1 || got=$?
	[ "$got" = "$want" ] || { echo "status $got, want $want"; cat "$work/said"; return 1; }
}
said() { grep -qE -- "$1" "$work/said" || { cat "$work/said"; return 1; }; }
