package apply

import (
	"cmp"
	"slices"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// sf is the rules of SFs (mlx5/core/sf/devlink.c): in switchdev mode only, and
// everything that a driver reads when it begins is set before it does.
func (n *node) sf(pf *nic.PF, id nic.SFID, a plan.Action) error {
	f := pf.SF(id.Num)
	if _, add := a.(plan.AddSF); add {
		if pf.Eswitch != nic.Switchdev || !hasSFs(pf.Driver) || f != nil {
			return refusedf("not in switchdev mode, no SFs, or there already")
		}
		pf.SFs = append(pf.SFs, n.newSF(id.Num))
		slices.SortFunc(pf.SFs, func(a, b nic.SF) int { return cmp.Compare(a.Num, b.Num) })
		return nil
	}
	if f == nil {
		return refusedf("no SF")
	}
	if _, rep := a.(plan.SetSFRepMTU); !rep && n.used(f.InUse()) {
		return refusedf("SF in use")
	}
	switch a := a.(type) {
	case plan.DelSF:
		if f.Active {
			return refusedf("EBUSY: active")
		}
		pf.SFs = slices.DeleteFunc(pf.SFs, func(f nic.SF) bool { return f.Num == id.Num })
	case plan.SetSFActive:
		n.activate(pf, f, a.To)
	case plan.SetSFMAC:
		if f.Active || !a.To.IsUnicast() {
			return refusedf("active, or no address")
		}
		f.MAC = a.To
	case plan.SetSFMTU:
		if !f.Netdev.Exists() {
			return refusedf("no netdev")
		}
		f.Netdev.MTU = a.To
	case plan.SetSFRepMTU:
		f.Rep.MTU = a.To
	case plan.SetSF:
		return n.setSF(f, a.Setting, a.To)
	}
	return nil
}

func (n *node) newSF(num int) nic.SF {
	return nic.SF{Num: num, Port: uint32(1<<15 + num), Rep: n.netdev(nic.MAC{}), Settings: n.functionSettings(nic.Settings{}, true, true)}
}

func (n *node) activate(pf *nic.PF, f *nic.SF, on bool) {
	f.Active, f.Attached, f.Netdev, f.Away, f.Limits = on, on, nic.Netdev{}, false, nil
	endNetdev(f.Settings)
	if !on {
		return
	}
	mac := f.MAC
	if mac.IsZero() {
		mac = n.anyMAC(6)
	}
	f.Netdev = n.netdev(mac)
	f.Settings, f.Limits = n.withNetdev(f.Settings, pf.Driver)
}
