package plan

import (
	"cmp"
	"slices"
	"strconv"

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
// administrative one says which; of settings that a driver gives anew it is
// supposed that they are as they were. The state given is not changed. A step of
// something that is not there changes nothing.
func (s Step) Predict(state nic.State) nic.State {
	out := state.Clone()
	s.predict(&out)
	return out
}

func (a SetVFs) predict(s *nic.State) {
	pf := s.PF(a.PF)
	if pf == nil {
		return
	}
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
	if pf.Eswitch != nic.Switchdev {
		breakLAG(s, a.PF)
	}
}

func (a SetAutoprobe) predict(s *nic.State) {
	if pf := s.PF(a.PF); pf != nil {
		pf.Autoprobe = a.To
	}
}

func (a SetEswitch) predict(s *nic.State) {
	pf := s.PF(a.PF)
	if pf == nil {
		return
	}
	pf.Eswitch, pf.SFs = a.To, nil
	if profileOf(*pf).newChannels {
		delete(pf.Settings, nic.Channels) // how many is not known
	}
	for i := range pf.VFs {
		v := &pf.VFs[i]
		v.Rep = nic.Representor{}
		if a.To == nic.Switchdev {
			represent(v)
		}
		v.Settings = lasting(ofVF, a.To, v.Settings)
		for _, name := range []nic.Setting{nic.MinRate, nic.MaxRate} {
			if _, ok := v.Settings[name]; ok {
				v.Settings[name] = "0" // mlx5/core/esw/qos.c: they end with the mode
			}
		}
	}
	breakLAG(s, a.PF)
}

func (a SetPF) predict(s *nic.State) {
	pf := s.PF(a.PF)
	if pf == nil {
		return
	}
	pf.Settings = pf.Settings.With(a.Setting, a.To)
	switch a.Setting {
	case nic.LinkMTU:
		pf.Uplink.MTU = atoi(a.To)
	case nic.AdminLink:
		pf.Uplink.Up = a.To == "up"
	}
}

func (a Unbind) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		v.Driver, v.Netdev, v.RDMA, v.Away = "", nic.Netdev{}, nil, false
		delete(v.Settings, nic.VDPA)
	}
}

func (a Bind) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		bindTo(v, profileOf(*s.PF(a.VF.PF)), a.To)
	}
}

func (a SetVFMAC) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		v.MAC = a.To
	}
}

func (a SetVFLinkMAC) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		v.Netdev.MAC = a.To
	}
}

func (a SetVFMTU) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		v.Netdev.MTU = a.To
	}
}

func (a SetRepMTU) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		v.Rep.Netdev.MTU = a.To
	}
}

func (a SetVF) predict(s *nic.State) {
	if v := vfAt(s, a.VF); v != nil {
		v.Settings = v.Settings.With(a.Setting, a.To)
	}
}

func (a AddSF) predict(s *nic.State) {
	if pf := s.PF(a.SF.PF); pf != nil {
		pf.SFs = append(pf.SFs, nic.SF{Num: a.SF.Num, Rep: nic.Netdev{Ifindex: predictedIfindex, MTU: newMTU}})
		slices.SortFunc(pf.SFs, func(a, b nic.SF) int { return cmp.Compare(a.Num, b.Num) })
	}
}

func (a DelSF) predict(s *nic.State) {
	if pf := s.PF(a.SF.PF); pf != nil {
		pf.SFs = slices.DeleteFunc(pf.SFs, func(f nic.SF) bool { return f.Num == a.SF.Num })
	}
}

func (a SetSFActive) predict(s *nic.State) {
	f := sfAt(s, a.SF)
	if f == nil {
		return
	}
	f.Active, f.Attached, f.Netdev, f.Device, f.RDMA, f.Away = a.To, a.To, nic.Netdev{}, "", nil, false
	if a.To {
		f.Netdev = nic.Netdev{Ifindex: predictedIfindex, MAC: f.MAC, MTU: newMTU}
	}
}

func (a SetSFMAC) predict(s *nic.State) {
	if f := sfAt(s, a.SF); f != nil {
		f.MAC = a.To
	}
}

func (a SetSFMTU) predict(s *nic.State) {
	if f := sfAt(s, a.SF); f != nil {
		f.Netdev.MTU = a.To
	}
}

func (a SetSFRepMTU) predict(s *nic.State) {
	if f := sfAt(s, a.SF); f != nil {
		f.Rep.MTU = a.To
	}
}

func (a SetSF) predict(s *nic.State) {
	if f := sfAt(s, a.SF); f != nil {
		f.Settings = f.Settings.With(a.Setting, a.To)
	}
}

func (a AddBond) predict(s *nic.State) {
	s.Bonds = append(s.Bonds, nic.Bond{
		Netdev: nic.Netdev{Name: a.Name, Ifindex: predictedIfindex, MTU: cmp.Or(a.MTU, newMTU), Up: true},
		Mode:   a.Mode, Hash: a.Hash, Miimon: a.Miimon, LACPRate: a.LACPRate, Ours: true,
	})
	slices.SortFunc(s.Bonds, func(a, b nic.Bond) int { return cmp.Compare(a.Name, b.Name) })
}

func (a DelBond) predict(s *nic.State) {
	s.Bonds = slices.DeleteFunc(s.Bonds, func(b nic.Bond) bool { return b.Name == a.Name })
}

func (a Enslave) predict(s *nic.State)   { join(s, a.Bond, a.PF) }
func (a AwaitBond) predict(s *nic.State) { join(s, a.Bond, a.PF) }

func join(s *nic.State, bond string, h nic.Handle) {
	b, pf := s.Bond(bond), s.PF(h)
	if b == nil {
		// It is awaited, and how it will be made is not known.
		s.Bonds = append(s.Bonds, nic.Bond{Netdev: nic.Netdev{Name: bond, Ifindex: predictedIfindex, MTU: newMTU}})
		b = s.Bond(bond)
	}
	b.Members = append(b.Members, h)
	slices.SortFunc(b.Members, nic.Handle.Compare)
	if pf != nil {
		pf.Uplink.Up, pf.Uplink.MTU = true, b.MTU
		memberSettings(pf)
	}
	breakLAG(s, h)
}

// memberSettings: what a bond sets of its members shows as the port's own.
func memberSettings(pf *nic.PF) {
	if _, ok := pf.Settings[nic.AdminLink]; ok {
		pf.Settings = pf.Settings.With(nic.AdminLink, "up")
	}
	if _, ok := pf.Settings[nic.LinkMTU]; ok {
		pf.Settings = pf.Settings.With(nic.LinkMTU, strconv.Itoa(pf.Uplink.MTU))
	}
}

func (a Release) predict(s *nic.State) {
	breakLAG(s, a.PF)
	if b := s.Bond(a.Bond); b != nil {
		b.Members = slices.DeleteFunc(b.Members, func(h nic.Handle) bool { return h == a.PF })
	}
}

func (a SetBondMTU) predict(s *nic.State) {
	b := s.Bond(a.Bond)
	if b == nil {
		return
	}
	b.MTU = a.To
	for _, h := range b.Members {
		if pf := s.PF(h); pf != nil {
			pf.Uplink.MTU = a.To
			memberSettings(pf)
		}
	}
}

func (a AwaitLAG) predict(s *nic.State) {
	if b := s.Bond(a.Bond); b != nil {
		setLAG(s, b.Members, nic.LAGActive)
	}
}

// breakLAG: hardware aggregates the ports of a bond no more when one of them
// changes.
func breakLAG(s *nic.State, h nic.Handle) {
	if b := s.BondOf(h); b != nil {
		setLAG(s, b.Members, nic.LAGInactive)
	}
}

func setLAG(s *nic.State, members []nic.Handle, l nic.LAG) {
	for _, h := range members {
		if pf := s.PF(h); pf != nil && profileOf(*pf).tellsLAG {
			pf.LAG = l
		}
	}
}

func (a SetRDMA) predict(s *nic.State)       { s.RDMA.Mode = a.To }
func (a SetRDMAAtBoot) predict(s *nic.State) { s.RDMA.AtBoot = a.To }

func vfAt(s *nic.State, id nic.VFID) *nic.VF {
	pf := s.PF(id.PF)
	if pf == nil || id.Index < 0 || id.Index >= len(pf.VFs) {
		return nil
	}
	return &pf.VFs[id.Index]
}

func sfAt(s *nic.State, id nic.SFID) *nic.SF {
	if pf := s.PF(id.PF); pf != nil {
		return pf.SF(id.Num)
	}
	return nil
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
