# What the RDMA scenarios ask of verbs devices and of RoCE's rules in the NIC.
# Sourced by them.

# pf FILTER, vf N FILTER: of the card's first port, of its VF N, as sluice sees it.
pf() { sluice observe -o json | jq -r "[.cards[].pfs[] | select(.handle == \"pci/1000:00:00.0\")][0] | $1"; }
vf() { pf ".vfs[$1] | $2"; }

# none COMMAND...: it prints nothing.
none() { ! "$@" | grep .; }

# count DEVICE COUNTER: of an RDMA device, e.g. sent_pkts.
count() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"; }

# gid_of DEVICE ADDRESS: the index of the GID of an IPv4 address.
gid_of() {
	local file want
	want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${2//./ })
	for file in "/sys/class/infiniband/$1/ports/1/gids"/*; do
		[ "$(cat "$file" 2>/dev/null)" != "$want" ] || { basename "$file"; return; }
	done
	return 1
}

gid_type() { cat "/sys/class/infiniband/$1/ports/1/gid_attrs/types/$2"; }

active_mtu() { ibv_devinfo -d "$1" | awk '$1 == "active_mtu:" { print $2 }'; }

# listens: a verbs program waits for its client, by TCP or by rdma_cm.
listens() { ss -Hltn 'sport = :18515' | grep -q . || rdma resource show cm_id | grep -q 'state LISTEN'; }

# roce_flow BRIDGE: Open vSwitch forwards by addresses; this makes RoCE's packets a
# flow of their own.
roce_flow() { ovs-ofctl add-flow "$1" 'priority=10,udp,tp_dst=4791,actions=normal'; }

# roce PORT WHAT: packets or bytes that the NIC counted for RoCE's rule at a port
# of the switch; fails if the NIC has no such rule.
roce() {
	sluice flows --port "$1" -o json | jq -e "[.ports[0].rules[] |
		select(.inHW and any(.match[]; .name == \"dst_port\" and .value == \"4791\"))][0].hardware.$2"
}

# offloaded PORT PORT: the NIC has RoCE's rule at both.
offloaded() { roce "$1" packets && roce "$2" packets; }
