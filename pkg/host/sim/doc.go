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
//   - igb, ixgbe, i40e: legacy only, no devlink instance, no phys_port_name.
//   - generic: no real card, but the strictest manners of drivers that sluice has no
//     row for: switchdev is refused without VFs (bnxt_vfr.c of Linux 6.1) and ends
//     with the last one (netdevsim/dev.c).
//   - Settings (nic.Setting): what each driver offers, in which mode, with what
//     limits, how it refuses, and what a new count, a bind, a mode change and a reload
//     reset. knob.go is the table, with the kernel source of each line.
//   - SFs (mlx5/core/sf): in switchdev mode only, with port, representor, auxiliary
//     device, devlink instance, netdev and RDMA device; a limit; gone with the mode.
//   - Bonds (drivers/net/bonding): options, members, which is active, whose address and
//     MTU members have. LAG by the rules of mlx5/core/lag/lag.c, some time after its
//     bond; it needs VFs unbound when it begins; one mlx5_bond_N in the place of both
//     PFs' RDMA devices.
//   - RDMA modes, and in exclusive mode devices in other namespaces
//     (drivers/infiniband/core/device.c); InfiniBand ports with GUIDs.
//   - net/core/dev.c: names and alternative names, ifindexes per namespace, what a
//     move between namespaces keeps and drops, and where interfaces go when their
//     namespace ends.
//   - A VF's administrative address is read when its driver binds; VF state ends
//     when the count goes to 0; a netdev made anew has a new ifindex and the
//     default MTU.
//
// What Read tells of a setting does not mean that it can be set now: steering mode
// in switchdev mode, or RoCE of a bound VF, are read and refused, as a kernel does.
//
// Not modelled: packets, tc and OVS, what an administrative address does to a VF that
// is bound already, the VF's own address in ice's VF rows, the netdev of a virtio
// vDPA device, SFs of ice, LAG of ice.
//
// Everything that the kernel draws by chance (MAC addresses) is drawn from a
// seed, so a machine built twice from one spec behaves alike to the last ifindex. Only
// the name of its boot is another each time.
//
// Faults: Inject makes chosen operations fail, before or after their effect, or
// ends the process in the midst of one (see Fault). Delay lets netdevs appear
// late. Clone and Save keep a machine for later, Keep lets processes share it. Stranger changes it as another
// program would; Watch tells of every change.
package sim
