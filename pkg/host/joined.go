package host

import (
	"cmp"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// This file joins what is not of one PCI function: SFs, bonds, RDMA devices.

// subfunctions are the ports of flavour pcisf under the PF's own handle; their
// devices answer to the number, which only sysfs tells (mlx5_core.sf.N/sfnum).
func (j join) subfunctions(h nic.Handle, address string) []nic.SF {
	var out []nic.SF
	for _, p := range j.ports[h] {
		if p.Flavour != FlavourPCISF || p.External || p.SF < 0 {
			continue
		}
		f := nic.SF{Num: p.SF, Port: p.Index, Active: p.Active, Attached: p.Attached, MAC: p.MAC}
		if l, ok := j.byIndex[p.Ifindex]; ok {
			f.Rep = l.Netdev
		}
		for _, d := range j.sfs[address] {
			if d.Num != p.SF {
				continue
			}
			f.Device, f.Away = d.Name, d.Away
			f.Failing = j.devices[nic.Handle{Bus: "auxiliary", Name: d.Name}].Failing
			if own := j.byParent[d.Name]; len(own) > 0 {
				f.Netdev = own[0].Netdev
			}
			f.RDMA = j.rdmaOf(d.Name, f.Netdev)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b nic.SF) int { return cmp.Compare(a.Num, b.Num) })
	return out
}

// bondsOf lists all bonds: also one that no PF's uplink is a member of may be the
// one that is wanted, or the one that a PF goes back to.
func (j join) bondsOf(pfs []nic.PF) []nic.Bond {
	uplinks := map[int]nic.Handle{}
	for _, p := range pfs {
		if p.Uplink.Exists() {
			uplinks[p.Uplink.Ifindex] = p.Handle
		}
	}
	var out []nic.Bond
	for _, b := range j.bonds {
		bond := nic.Bond{
			Netdev: b.Netdev, Mode: b.Mode, Hash: b.Hash, Miimon: b.Miimon, LACPRate: b.LACPRate,
			Ours: b.Ours, Active: j.byIndex[b.Active].Name,
		}
		for _, m := range b.Members {
			if h, ok := uplinks[m]; ok {
				bond.Members = append(bond.Members, h)
			} else {
				bond.Others = append(bond.Others, j.byIndex[m].Name)
			}
		}
		slices.SortFunc(bond.Members, nic.Handle.Compare)
		slices.Sort(bond.Others)
		out = append(out, bond)
	}
	slices.SortFunc(out, func(a, b nic.Bond) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// elsewhere says that a soft device sits on a netdev of another namespace, which
// may have the name of one here. Its ports show that; its name for it does not
// (infiniband/sw/rxe/rxe_verbs.c, parent_show).
func (d RDMADevice) elsewhere() bool {
	return len(d.Ports) > 0 && !slices.ContainsFunc(d.Ports, func(p RDMAPort) bool { return p.Netdev == d.Netdev })
}

// rdmaOf returns the RDMA devices whose parent is a device, and the soft ones on
// its netdev. One on a representor is neither the VF's nor the PF's.
func (j join) rdmaOf(parent string, n nic.Netdev) []string {
	own, soft := j.rdma[parent], j.soft[n.Name]
	if !n.Exists() || len(soft) == 0 {
		return own
	}
	return append(slices.Clone(own), soft...)
}

// shareRDMA gives PFs whose ports are one in hardware the RDMA device that they
// share. The driver has it at one of their functions only, which may be any
// (mlx5/core/lag/lag.c, mlx5_lag_is_master); each VF has its own. Where the driver
// does not say whether it aggregates, the device's name does, unless it was changed
// (infiniband/hw/mlx5/main.c, mlx5_ib_stage_ib_reg_init: mlx5_bond_N).
func shareRDMA(s *nic.State) {
	for _, b := range s.Bonds {
		var shared []string
		for _, h := range b.Members {
			p := s.PF(h)
			for _, name := range p.RDMA {
				if p.LAG == nic.LAGActive || p.LAG == "" && strings.HasPrefix(name, "mlx5_bond_") {
					shared = append(shared, name)
				}
			}
		}
		for _, h := range b.Members {
			if p := s.PF(h); len(p.RDMA) == 0 && p.LAG != nic.LAGInactive {
				p.RDMA = slices.Clone(shared)
			}
		}
	}
}
