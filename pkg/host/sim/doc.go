// Package sim is one simulated machine with SR-IOV network cards in it: the PCI
// functions, devlink instances, netdevs, RDMA devices and network namespaces of
// one coherent state, behind the interfaces of package host. A change through
// one interface shows in all others, as it does on a real machine.
//
// It models the kernel and the cards' drivers, with their refusals in their own
// words, and nothing of what sluice wants of them:
//
//   - PCI: sriov_numvfs, sriov_totalvfs, sriov_drivers_autoprobe, driver binding
//     (drivers/pci/iov.c, sriov_numvfs_store); VF addresses by offset and stride.
//   - mlx5 (drivers/net/ethernet/mellanox/mlx5/core): legacy and switchdev, with
//     VFs or without; both ports of a card share the switch id; port indexes are
//     (vhca_id << 16) | vport; a bound VF has a devlink instance of its own; the
//     PF's netdev is the uplink representor and keeps name and ifindex; uplink
//     in switchdev mode and representors are pinned to their namespace.
//   - ice: the mode can only be changed while there are no VFs; no port function
//     attributes.
//   - igb: legacy only, no devlink instance, no phys_port_name.
//   - net/core/dev.c: names and alternative names, ifindexes per namespace, what a
//     move between namespaces keeps and drops, and where interfaces go when their
//     namespace ends.
//   - A VF's administrative address is read when its driver binds; VF state ends
//     when the count goes to 0; a netdev made anew has a new ifindex and the
//     default MTU.
//
// Not modelled: packets, tc and OVS, bonds, SFs, link speed, what an
// administrative address does to a VF that is bound already, the VF's
// own address in ice's VF rows.
//
// Everything that the kernel draws by chance (MAC addresses) is drawn from a
// seed, so a machine built twice from one spec behaves alike to the last ifindex.
//
// Faults: Inject makes chosen operations fail, before or after their effect, or
// ends the process in the midst of one (see Fault). Delay lets netdevs appear
// late. Clone and Save keep a machine for later.
package sim
