package plan

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Impact is what a step or a plan means for those who use the node, in rising
// order.
type Impact int

// The impacts.
const (
	None     Impact = iota // nobody notices
	LinkFlap               // an interface of the host goes away or down for a moment
	Drain                  // a VF that is in use is taken away: whoever has it goes first
	Reboot                 // takes effect with the next boot
)

func (i Impact) String() string {
	switch i {
	case None:
		return "none"
	case LinkFlap:
		return "link flap"
	case Drain:
		return "drain"
	case Reboot:
		return "reboot"
	}
	return fmt.Sprintf("impact %d", int(i))
}

// MarshalText writes the name.
func (i Impact) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads a name.
func (i *Impact) UnmarshalText(b []byte) error {
	for _, known := range []Impact{None, LinkFlap, Drain, Reboot} {
		if known.String() == string(b) {
			*i = known
			return nil
		}
	}
	return fmt.Errorf("%q is no impact: want none, link flap, drain or reboot", b)
}

// Impact answers what s means in state, the one that it is to be done in.
func (s Step) Impact(state nic.State) Impact {
	switch {
	case len(s.Takes(state)) > 0, s.takesGone(state):
		return Drain
	case s.flaps(state):
		return LinkFlap
	}
	if _, ok := s.Action.(SetRDMAAtBoot); ok && state.RDMA.Fixed {
		return Reboot
	}
	return None
}

// function is a VF or an SF: one of the two is set.
type function struct {
	vf *nic.VFID
	sf *nic.SFID
}

// Use is something in use that a step would take away from whoever has it.
type Use struct {
	Object string // "pci/0000:03:00.0 vf 3"
	Why    string // "held by pod/eth0"
}

// Takes lists the VFs and SFs in state that are in use (nic.VF.InUse) and that s
// would take away from whoever has them, or change under them.
func (s Step) Takes(state nic.State) []Use {
	var out []Use
	for _, f := range s.touches(state) {
		switch {
		case f.vf != nil:
			if v := vfAt(&state, *f.vf); v != nil && v.InUse() != "" {
				out = append(out, Use{f.vf.String(), v.InUse()})
			}
		case f.sf != nil:
			if v := sfAt(&state, *f.sf); v != nil && v.InUse() != "" {
				out = append(out, Use{f.sf.String(), v.InUse()})
			}
		}
	}
	return out
}

// takesGone says whether s takes a VF or SF from somebody who is said to be gone.
func (s Step) takesGone(state nic.State) bool {
	return slices.ContainsFunc(s.touches(state), func(f function) bool {
		if f.vf != nil {
			v := vfAt(&state, *f.vf)
			return v != nil && v.Drained != ""
		}
		v := sfAt(&state, *f.sf)
		return v != nil && v.Drained != ""
	})
}

// VFs lists the VFs in state that s changes or takes, in use or not.
func (s Step) VFs(state nic.State) []nic.VFID {
	var out []nic.VFID
	for _, f := range s.touches(state) {
		if f.vf != nil && vfAt(&state, *f.vf) != nil {
			out = append(out, *f.vf)
		}
	}
	return out
}

// SFs lists the SFs in state that s changes or takes, in use or not.
func (s Step) SFs(state nic.State) []nic.SFID {
	var out []nic.SFID
	for _, f := range s.touches(state) {
		if f.sf != nil && sfAt(&state, *f.sf) != nil {
			out = append(out, *f.sf)
		}
	}
	return out
}

func allOf(s nic.State, h nic.Handle, sfs bool) []function {
	pf := s.PF(h)
	if pf == nil {
		return nil
	}
	var out []function
	for i := range pf.VFs {
		if pf.VFs[i].Gone {
			continue
		}
		out = append(out, theVF(nic.VFID{PF: h, Index: i})...)
	}
	for i := range pf.SFs {
		if sfs {
			out = append(out, theSF(nic.SFID{PF: h, Num: pf.SFs[i].Num})...)
		}
	}
	return out
}

func theVF(id nic.VFID) []function { return []function{{vf: &id}} }
func theSF(id nic.SFID) []function { return []function{{sf: &id}} }

func (a SetVFs) touches(s nic.State) []function      { return allOf(s, a.PF, false) }
func (a SetAutoprobe) touches(nic.State) []function  { return nil }
func (a SetEswitch) touches(s nic.State) []function  { return allOf(s, a.PF, true) }
func (a Unbind) touches(nic.State) []function        { return theVF(a.VF) }
func (a Bind) touches(nic.State) []function          { return theVF(a.VF) }
func (a SetVFMAC) touches(nic.State) []function      { return theVF(a.VF) }
func (a SetVFLinkMAC) touches(nic.State) []function  { return theVF(a.VF) }
func (a SetVFMTU) touches(nic.State) []function      { return theVF(a.VF) }
func (a SetRepMTU) touches(nic.State) []function     { return nil }
func (a SetVF) touches(nic.State) []function         { return theVF(a.VF) }
func (a AddSF) touches(nic.State) []function         { return nil }
func (a DelSF) touches(nic.State) []function         { return theSF(a.SF) }
func (a SetSFActive) touches(nic.State) []function   { return theSF(a.SF) }
func (a SetSFMAC) touches(nic.State) []function      { return theSF(a.SF) }
func (a SetSFMTU) touches(nic.State) []function      { return theSF(a.SF) }
func (a SetSFRepMTU) touches(nic.State) []function   { return nil }
func (a SetSF) touches(nic.State) []function         { return theSF(a.SF) }
func (a AddBond) touches(nic.State) []function       { return nil }
func (a DelBond) touches(nic.State) []function       { return nil }
func (a Enslave) touches(nic.State) []function       { return nil }
func (a SetBondMTU) touches(nic.State) []function    { return nil }
func (a AwaitBond) touches(nic.State) []function     { return nil }
func (a AwaitLAG) touches(nic.State) []function      { return nil }
func (a SetRDMA) touches(nic.State) []function       { return nil }
func (a SetRDMAAtBoot) touches(nic.State) []function { return nil }

// SetPF touches all when the driver is loaded anew for it.
func (a SetPF) touches(s nic.State) []function {
	if r, _ := ruleOf(a.Setting); r.at(ofPF).phase == bare {
		return allOf(s, a.PF, true)
	}
	return nil
}

// Release: VFs that were bound with a LAG in hardware lose the other port, and get
// it back only by being bound anew.
func (a Release) touches(s nic.State) []function {
	b := s.Bond(a.Bond)
	if b == nil {
		return nil
	}
	var out []function
	for _, h := range b.Members {
		if pf := s.PF(h); pf != nil && pf.LAG == nic.LAGActive {
			out = append(out, allOf(s, h, false)...)
		}
	}
	return out
}

func (a SetVFs) flaps(s nic.State) bool {
	pf := s.PF(a.PF)
	return pf != nil && slices.ContainsFunc(pf.VFs, func(v nic.VF) bool { return v.Netdev.Exists() || v.Rep.Exists() })
}

func (a SetAutoprobe) flaps(nic.State) bool { return false }

// A mode change takes the uplink's netdev down and up again: mlx5 attaches
// another profile to it (mlx5e_netdev_change_profile).
func (a SetEswitch) flaps(s nic.State) bool {
	pf := s.PF(a.PF)
	return pf != nil && pf.Uplink.Exists() || a.From == nic.Switchdev
}

func (a SetPF) flaps(s nic.State) bool {
	r, _ := ruleOf(a.Setting)
	pf := s.PF(a.PF)
	return pf != nil && pf.Uplink.Up && (r.flaps || r.at(ofPF).phase == bare)
}

func (a Unbind) flaps(s nic.State) bool {
	v := vfAt(&s, a.VF)
	return v != nil && v.Netdev.Exists()
}

func (a Bind) flaps(nic.State) bool     { return false }
func (a SetVFMAC) flaps(nic.State) bool { return false }

// An interface that is up loses its channels for a moment when its address, its
// MTU or their number changes (mlx5e_change_nic_mtu, mlx5e_safe_switch_params).
func (a SetVFLinkMAC) flaps(s nic.State) bool { return vfUp(s, a.VF) }
func (a SetVFMTU) flaps(s nic.State) bool     { return vfUp(s, a.VF) }
func (a SetRepMTU) flaps(s nic.State) bool {
	v := vfAt(&s, a.VF)
	return v != nil && v.Rep.Netdev.Up
}
func (a SetVF) flaps(s nic.State) bool {
	r, _ := ruleOf(a.Setting)
	return r.flaps && vfUp(s, a.VF)
}

func (a AddSF) flaps(nic.State) bool { return false }
func (a DelSF) flaps(s nic.State) bool {
	f := sfAt(&s, a.SF)
	return f != nil && f.Rep.Exists()
}
func (a SetSFActive) flaps(s nic.State) bool {
	f := sfAt(&s, a.SF)
	return !a.To && f != nil && f.Netdev.Exists()
}
func (a SetSFMAC) flaps(nic.State) bool   { return false }
func (a SetSFMTU) flaps(s nic.State) bool { return sfUp(s, a.SF) }
func (a SetSFRepMTU) flaps(s nic.State) bool {
	f := sfAt(&s, a.SF)
	return f != nil && f.Rep.Up
}
func (a SetSF) flaps(s nic.State) bool {
	r, _ := ruleOf(a.Setting)
	return r.flaps && sfUp(s, a.SF)
}

func (a AddBond) flaps(nic.State) bool       { return false }
func (a DelBond) flaps(nic.State) bool       { return true }
func (a Enslave) flaps(nic.State) bool       { return true } // the port goes down first
func (a Release) flaps(nic.State) bool       { return true }
func (a SetBondMTU) flaps(nic.State) bool    { return true }
func (a AwaitBond) flaps(nic.State) bool     { return false }
func (a AwaitLAG) flaps(nic.State) bool      { return false }
func (a SetRDMA) flaps(nic.State) bool       { return false }
func (a SetRDMAAtBoot) flaps(nic.State) bool { return false }

func vfUp(s nic.State, id nic.VFID) bool {
	v := vfAt(&s, id)
	return v != nil && v.Netdev.Up
}

func sfUp(s nic.State, id nic.SFID) bool {
	f := sfAt(&s, id)
	return f != nil && f.Netdev.Up
}
