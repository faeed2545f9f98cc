package plan

import (
	"fmt"

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
	pf := state.PF(s.Scope())
	if pf == nil {
		return None
	}
	return s.impact(*pf)
}

func (s Step) impact(pf nic.PF) Impact {
	if len(s.takes(pf)) > 0 {
		return Drain
	}
	if s.flaps(pf) {
		return LinkFlap
	}
	return None
}

// Takes lists the VFs in state that are in use (nic.VF.InUse) and that s would
// take away from whoever has them, or change under them.
func (s Step) Takes(state nic.State) []nic.VFID {
	pf := state.PF(s.Scope())
	if pf == nil {
		return nil
	}
	return s.takes(*pf)
}

func (s Step) takes(pf nic.PF) []nic.VFID {
	var out []nic.VFID
	for _, i := range s.touches(pf) {
		if i >= 0 && i < len(pf.VFs) && pf.VFs[i].InUse() != "" {
			out = append(out, nic.VFID{PF: pf.Handle, Index: i})
		}
	}
	return out
}

func allVFs(pf nic.PF) []int {
	out := make([]int, len(pf.VFs))
	for i := range out {
		out[i] = i
	}
	return out
}

func (a SetVFs) touches(pf nic.PF) []int     { return allVFs(pf) }
func (a SetAutoprobe) touches(nic.PF) []int  { return nil }
func (a SetEswitch) touches(pf nic.PF) []int { return allVFs(pf) }
func (a Unbind) touches(nic.PF) []int        { return []int{a.VF.Index} }
func (a Bind) touches(nic.PF) []int          { return []int{a.VF.Index} }
func (a SetVFMAC) touches(nic.PF) []int      { return []int{a.VF.Index} }
func (a SetVFLinkMAC) touches(nic.PF) []int  { return []int{a.VF.Index} }
func (a SetVFMTU) touches(nic.PF) []int      { return []int{a.VF.Index} }
func (a SetRepMTU) touches(nic.PF) []int     { return nil }

func (a SetVFs) flaps(pf nic.PF) bool {
	for _, v := range pf.VFs {
		if v.Netdev.Exists() || v.Rep.Exists() {
			return true
		}
	}
	return false
}

func (a SetAutoprobe) flaps(nic.PF) bool { return false }

// A mode change takes the uplink's netdev down and up again: mlx5 attaches
// another profile to it (mlx5e_netdev_change_profile).
func (a SetEswitch) flaps(pf nic.PF) bool { return pf.Uplink.Exists() || a.From == nic.Switchdev }

func (a Unbind) flaps(pf nic.PF) bool {
	v := at(&pf, a.VF)
	return v != nil && v.Netdev.Exists()
}

func (a Bind) flaps(nic.PF) bool     { return false }
func (a SetVFMAC) flaps(nic.PF) bool { return false }

// An interface that is up loses its channels for a moment when its address or
// its MTU changes (mlx5e_change_nic_mtu, mlx5e_safe_switch_params).
func (a SetVFLinkMAC) flaps(pf nic.PF) bool { return up(pf, a.VF) }
func (a SetVFMTU) flaps(pf nic.PF) bool     { return up(pf, a.VF) }
func (a SetRepMTU) flaps(pf nic.PF) bool {
	v := at(&pf, a.VF)
	return v != nil && v.Rep.Netdev.Up
}

func up(pf nic.PF, id nic.VFID) bool {
	v := at(&pf, id)
	return v != nil && v.Netdev.Up
}
