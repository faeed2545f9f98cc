package plan

import (
	"cmp"

	"sluice.dev/sluice/pkg/nic"
)

// What a netdev has when a driver has just made it (ETH_DATA_LEN), and the
// ifindex of one that is not there yet.
const (
	newMTU           = 1500
	predictedIfindex = -1
)

// Predict answers the state after s, as far as it can be known beforehand: new
// VFs have no PCI address, new netdevs no name and an address only if an
// administrative one says which. The state given is not changed. A step of a PF
// or VF that is not there changes nothing.
func (s Step) Predict(state nic.State) nic.State {
	out := state.Clone()
	if pf := out.PF(s.Scope()); pf != nil {
		s.predict(pf)
	}
	return out
}

func (a SetVFs) predict(pf *nic.PF) {
	pf.VFs = nil
	if a.To == 0 && pf.Eswitch == nic.Switchdev && profileOf(*pf).dropsMode {
		pf.Eswitch = nic.Legacy
	}
	for i := range a.To {
		v := nic.VF{Index: i, IOMMUGroup: -1}
		if pf.Autoprobe {
			bindTo(&v, profileOf(*pf), nic.DriverKernel)
		}
		if pf.Eswitch == nic.Switchdev {
			represent(&v)
		}
		pf.VFs = append(pf.VFs, v)
	}
}

func (a SetAutoprobe) predict(pf *nic.PF) { pf.Autoprobe = a.To }

func (a SetEswitch) predict(pf *nic.PF) {
	pf.Eswitch = a.To
	for i := range pf.VFs {
		pf.VFs[i].Rep = nic.Representor{}
		if a.To == nic.Switchdev {
			represent(&pf.VFs[i])
		}
	}
}

func (a Unbind) predict(pf *nic.PF) {
	if v := at(pf, a.VF); v != nil {
		v.Driver, v.Netdev, v.RDMA, v.Away = "", nic.Netdev{}, nil, false
	}
}

func (a Bind) predict(pf *nic.PF) {
	if v := at(pf, a.VF); v != nil {
		bindTo(v, profileOf(*pf), a.To)
	}
}

func (a SetVFMAC) predict(pf *nic.PF) {
	if v := at(pf, a.VF); v != nil {
		v.MAC = a.To
	}
}

func (a SetVFLinkMAC) predict(pf *nic.PF) {
	if v := at(pf, a.VF); v != nil {
		v.Netdev.MAC = a.To
	}
}

func (a SetVFMTU) predict(pf *nic.PF) {
	if v := at(pf, a.VF); v != nil {
		v.Netdev.MTU = a.To
	}
}

func (a SetRepMTU) predict(pf *nic.PF) {
	if v := at(pf, a.VF); v != nil {
		v.Rep.Netdev.MTU = a.To
	}
}

func at(pf *nic.PF, id nic.VFID) *nic.VF {
	if id.Index < 0 || id.Index >= len(pf.VFs) {
		return nil
	}
	return &pf.VFs[id.Index]
}

func bindTo(v *nic.VF, p profile, d nic.Driver) {
	v.Driver = string(d)
	if d == nic.DriverKernel {
		v.Driver = cmp.Or(p.vfDriver, v.Driver)
		v.Netdev = nic.Netdev{Ifindex: predictedIfindex, MAC: v.MAC, MTU: newMTU}
	}
}

func represent(v *nic.VF) {
	v.Rep.Netdev = nic.Netdev{Ifindex: predictedIfindex, MTU: newMTU}
}
