package cni

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/pkg/nic"
)

// functionID names the function that an attachment is of: a VF by its index, an SF by
// its number.
type functionID struct {
	PF    nic.Handle
	Index int
	SF    bool
}

func (id functionID) String() string {
	if id.SF {
		return nic.SFID{PF: id.PF, Num: id.Index}.String()
	}
	return nic.VFID{PF: id.PF, Index: id.Index}.String()
}

// function finds the VF or SF of a device's ID; nil for none. An SF is told in the terms
// of a VF, as which it is attached: its auxiliary device stands for the PCI address.
func function(st nic.State, device string) (functionID, *nic.VF) {
	if !nic.IsSFDevice(device) {
		id, vf := st.VFAt(device)
		return functionID{PF: id.PF, Index: id.Index}, vf
	}
	for _, pf := range st.PFs {
		for _, f := range pf.SFs {
			if f.Device == device {
				return functionID{PF: pf.Handle, Index: f.Num, SF: true}, asVF(f)
			}
		}
	}
	return functionID{SF: true}, nil
}

func asVF(f nic.SF) *nic.VF {
	driver, _, _ := strings.Cut(f.Device, ".") // that of the PF drives it too
	return &nic.VF{
		Address: f.Device, Driver: driver, MAC: f.MAC, Netdev: f.Netdev, Away: f.Away, Owner: f.Owner,
		Rep: nic.Representor{Port: f.Port, Netdev: f.Rep}, RDMA: f.RDMA, IOMMUGroup: -1,
		Settings: f.Settings, Limits: f.Limits,
	}
}

// function is the recorded one in an observation. Names of auxiliary devices are given
// away again: another SF that has the name by now is not it.
func (j *job) function(st nic.State) (functionID, *nic.VF) {
	id, vf := function(st, j.rec.VF)
	j.other = vf != nil && id.SF && (id.PF != j.rec.PF || id.Index != j.rec.Index)
	if j.other {
		return functionID{}, nil
	}
	return id, vf
}

// noFunction says what a device's ID is, that no VF or SF has.
func noFunction(st nic.State, device string) error {
	pf := st.PF(nic.PCI(device))
	switch {
	case nic.IsSFDevice(device):
		return coded(ErrNode, "deviceID = %q: there is no auxiliary device of this name that is an SF's: want that of an SF which is active (sluice observe lists them)", device)
	case pf == nil:
		return coded(ErrNode, "deviceID = %q: there is no network function of this PCI address: want a VF's (sluice observe lists them)", device)
	case len(pf.VFs) > 0:
		return coded(types.ErrInvalidNetworkConfig, "deviceID = %q: it is a PF: want one of its %d VFs, for example %s", device, len(pf.VFs), pf.VFs[0].Address)
	default:
		return coded(types.ErrInvalidNetworkConfig, "deviceID = %q: it is a PF, and has no VFs: want a VF", device)
	}
}
