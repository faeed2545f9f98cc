package host

import (
	"cmp"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// This file joins what is not of one PCI function: SFs and bonds.

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
			f.Device, f.Away, f.RDMA = d.Name, d.Away, j.rdma[d.Name]
			if own := j.byParent[d.Name]; len(own) > 0 {
				f.Netdev = own[0].Netdev
			}
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b nic.SF) int { return cmp.Compare(a.Num, b.Num) })
	return out
}

// bondsOf lists the bonds that have a PF's uplink as member, and ours.
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
		if len(bond.Members) == 0 && !bond.Ours {
			continue
		}
		slices.SortFunc(bond.Members, nic.Handle.Compare)
		slices.Sort(bond.Others)
		out = append(out, bond)
	}
	slices.SortFunc(out, func(a, b nic.Bond) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
