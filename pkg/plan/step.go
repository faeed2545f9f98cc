package plan

import (
	"fmt"

	"sluice.dev/sluice/pkg/nic"
)

// Action is what a Step does: one of the types below, and no other.
type Action interface {
	fmt.Stringer

	// Object is what the action changes, or the PF whose VF or SF it changes. A
	// bond is bond/NAME, the node's RDMA subsystem nodeRDMA.
	Object() nic.Handle

	form() form
	predict(*nic.State)

	// touches lists the VFs and SFs that lose something that whoever has them
	// relies on: the function, its driver, or the settings of its netdev.
	touches(nic.State) []function

	// flaps says whether an interface that is there goes away or goes down for
	// a moment.
	flaps(nic.State) bool
}

// NodeRDMA stands for the node's RDMA subsystem where a handle is asked for.
func NodeRDMA() nic.Handle { return nic.Handle{Bus: "node", Name: "rdma"} }

func bondHandle(name string) nic.Handle { return nic.Handle{Bus: "bond", Name: name} }

// Step is one change of one object, small enough that the kernel does it or does
// not. It is comparable. String is stable, names the object and what it becomes,
// and is the same for a step that was predicted and one that is done; JSON is
// {"op", "object", "from", "to"}, "from" left out where it is not known.
type Step struct{ Action }

// VF names the VF that s is about; false for a step of something else.
func (s Step) VF() (nic.VFID, bool) {
	f := s.form()
	if f.VF == nil {
		return nic.VFID{}, false
	}
	return nic.VFID{PF: f.Object, Index: *f.VF}, true
}

// SF names the SF that s is about; false for a step of something else.
func (s Step) SF() (nic.SFID, bool) {
	f := s.form()
	if f.SF == nil {
		return nic.SFID{}, false
	}
	return nic.SFID{PF: f.Object, Num: *f.SF}, true
}

// Steps of a PF.
type (
	// SetVFs makes VFs of a PF that has none, or removes all that it has. The
	// kernel refuses to go from one count to another (drivers/pci/iov.c,
	// sriov_numvfs_store), so one of From and To is 0.
	SetVFs struct {
		PF       nic.Handle
		From, To int
	}

	// SetAutoprobe says whether VFs that are made from now on are bound by the
	// kernel itself.
	SetAutoprobe struct {
		PF nic.Handle
		To bool
	}

	// SetEswitch sets the mode of a PF's eswitch.
	SetEswitch struct {
		PF       nic.Handle
		From, To nic.Eswitch
	}

	// SetPF sets a setting of the PF.
	SetPF struct {
		PF       nic.Handle
		Setting  nic.Setting
		From, To string
	}
)

// Steps of a VF.
type (
	// Unbind takes the driver From from a VF.
	Unbind struct {
		VF   nic.VFID
		From string
	}

	// Bind gives a VF that has no driver one: nic.DriverKernel or a named one.
	Bind struct {
		VF nic.VFID
		To nic.Driver
	}

	// SetVFMAC sets the administrative address of a VF that has no driver:
	// drivers read it when they bind.
	SetVFMAC struct {
		VF       nic.VFID
		From, To nic.MAC
	}

	// SetVFLinkMAC sets the address of a VF's netdev.
	SetVFLinkMAC struct {
		VF       nic.VFID
		From, To nic.MAC
	}

	// SetVFMTU sets the MTU of a VF's netdev, in bytes.
	SetVFMTU struct {
		VF       nic.VFID
		From, To int
	}

	// SetRepMTU sets the MTU of a VF's representor, in bytes.
	SetRepMTU struct {
		VF       nic.VFID
		From, To int
	}

	// SetVF sets a setting of the VF.
	SetVF struct {
		VF       nic.VFID
		Setting  nic.Setting
		From, To string
	}
)

// Steps of an SF.
type (
	// AddSF makes an SF, inactive; DelSF removes one that is inactive.
	AddSF struct{ SF nic.SFID }
	DelSF struct{ SF nic.SFID }

	// SetSFActive gives an SF its device, or takes it.
	SetSFActive struct {
		SF nic.SFID
		To bool
	}

	// SetSFMAC sets the administrative address of an SF that is inactive.
	SetSFMAC struct {
		SF       nic.SFID
		From, To nic.MAC
	}

	// SetSFMTU sets the MTU of an SF's netdev, SetSFRepMTU of its representor.
	SetSFMTU struct {
		SF       nic.SFID
		From, To int
	}
	SetSFRepMTU struct {
		SF       nic.SFID
		From, To int
	}

	// SetSF sets a setting of the SF.
	SetSF struct {
		SF       nic.SFID
		Setting  nic.Setting
		From, To string
	}
)

// Steps of a bond.
type (
	// AddBond makes a bond without members, DelBond removes one of ours.
	AddBond struct {
		Name, Hash, LACPRate string
		Mode                 nic.BondMode
		Miimon, MTU          int
	}
	DelBond struct{ Name string }

	// Enslave puts a PF's uplink into a bond, Release takes it out.
	Enslave struct {
		Bond string
		PF   nic.Handle
	}
	Release struct {
		Bond string
		PF   nic.Handle
	}

	// SetBondMTU sets the MTU of a bond, and with it of its members.
	SetBondMTU struct {
		Bond     string
		From, To int
	}

	// AwaitBond waits for somebody else to put the PF's uplink into a bond.
	AwaitBond struct {
		Bond string
		PF   nic.Handle
	}

	// AwaitLAG waits for hardware to aggregate a bond's ports.
	AwaitLAG struct{ Bond string }
)

// Steps of the node.
type (
	// SetRDMA changes the RDMA subsystem's namespace mode, SetRDMAAtBoot what the
	// next boot brings, "" for the kernel's own.
	SetRDMA       struct{ From, To nic.RDMAMode }
	SetRDMAAtBoot struct{ From, To nic.RDMAMode }
)

func (a SetVFs) Object() nic.Handle        { return a.PF }
func (a SetAutoprobe) Object() nic.Handle  { return a.PF }
func (a SetEswitch) Object() nic.Handle    { return a.PF }
func (a SetPF) Object() nic.Handle         { return a.PF }
func (a Unbind) Object() nic.Handle        { return a.VF.PF }
func (a Bind) Object() nic.Handle          { return a.VF.PF }
func (a SetVFMAC) Object() nic.Handle      { return a.VF.PF }
func (a SetVFLinkMAC) Object() nic.Handle  { return a.VF.PF }
func (a SetVFMTU) Object() nic.Handle      { return a.VF.PF }
func (a SetRepMTU) Object() nic.Handle     { return a.VF.PF }
func (a SetVF) Object() nic.Handle         { return a.VF.PF }
func (a AddSF) Object() nic.Handle         { return a.SF.PF }
func (a DelSF) Object() nic.Handle         { return a.SF.PF }
func (a SetSFActive) Object() nic.Handle   { return a.SF.PF }
func (a SetSFMAC) Object() nic.Handle      { return a.SF.PF }
func (a SetSFMTU) Object() nic.Handle      { return a.SF.PF }
func (a SetSFRepMTU) Object() nic.Handle   { return a.SF.PF }
func (a SetSF) Object() nic.Handle         { return a.SF.PF }
func (a AddBond) Object() nic.Handle       { return bondHandle(a.Name) }
func (a DelBond) Object() nic.Handle       { return bondHandle(a.Name) }
func (a Enslave) Object() nic.Handle       { return bondHandle(a.Bond) }
func (a Release) Object() nic.Handle       { return bondHandle(a.Bond) }
func (a SetBondMTU) Object() nic.Handle    { return bondHandle(a.Bond) }
func (a AwaitBond) Object() nic.Handle     { return bondHandle(a.Bond) }
func (a AwaitLAG) Object() nic.Handle      { return bondHandle(a.Bond) }
func (a SetRDMA) Object() nic.Handle       { return NodeRDMA() }
func (a SetRDMAAtBoot) Object() nic.Handle { return NodeRDMA() }

func (a SetVFs) String() string {
	if a.To == 0 {
		return fmt.Sprintf("remove all VFs of %s", a.PF)
	}
	if a.To == 1 {
		return fmt.Sprintf("make 1 VF of %s", a.PF)
	}
	return fmt.Sprintf("make %d VFs of %s", a.To, a.PF)
}

func (a SetAutoprobe) String() string {
	return fmt.Sprintf("turn VF autoprobe of %s %s", a.PF, onOff(a.To))
}

func (a SetEswitch) String() string { return fmt.Sprintf("set eswitch of %s to %s", a.PF, a.To) }
func (a SetPF) String() string {
	return fmt.Sprintf("set %s of %s to %s", a.Setting, a.PF, a.To)
}
func (a Unbind) String() string       { return fmt.Sprintf("unbind %s", a.VF) }
func (a Bind) String() string         { return fmt.Sprintf("bind %s to %s", a.VF, driverName(a.To)) }
func (a SetVFMAC) String() string     { return fmt.Sprintf("set MAC of %s to %s", a.VF, a.To) }
func (a SetVFLinkMAC) String() string { return fmt.Sprintf("set netdev MAC of %s to %s", a.VF, a.To) }
func (a SetVFMTU) String() string     { return fmt.Sprintf("set MTU of %s to %d", a.VF, a.To) }
func (a SetRepMTU) String() string    { return fmt.Sprintf("set representor MTU of %s to %d", a.VF, a.To) }
func (a SetVF) String() string {
	return fmt.Sprintf("set %s of %s to %s%s", a.Setting, a.VF, a.To, a.Setting.Unit())
}
func (a AddSF) String() string { return fmt.Sprintf("make %s", a.SF) }
func (a DelSF) String() string { return fmt.Sprintf("remove %s", a.SF) }
func (a SetSFActive) String() string {
	if a.To {
		return fmt.Sprintf("activate %s", a.SF)
	}
	return fmt.Sprintf("deactivate %s", a.SF)
}
func (a SetSFMAC) String() string { return fmt.Sprintf("set MAC of %s to %s", a.SF, a.To) }
func (a SetSFMTU) String() string { return fmt.Sprintf("set MTU of %s to %d", a.SF, a.To) }
func (a SetSFRepMTU) String() string {
	return fmt.Sprintf("set representor MTU of %s to %d", a.SF, a.To)
}
func (a SetSF) String() string {
	return fmt.Sprintf("set %s of %s to %s%s", a.Setting, a.SF, a.To, a.Setting.Unit())
}
func (a AddBond) String() string    { return fmt.Sprintf("make bond %s, %s", a.Name, a.Mode) }
func (a DelBond) String() string    { return fmt.Sprintf("remove bond %s", a.Name) }
func (a Enslave) String() string    { return fmt.Sprintf("put %s into bond %s", a.PF, a.Bond) }
func (a Release) String() string    { return fmt.Sprintf("take %s out of bond %s", a.PF, a.Bond) }
func (a SetBondMTU) String() string { return fmt.Sprintf("set MTU of bond %s to %d", a.Bond, a.To) }
func (a AwaitBond) String() string {
	return fmt.Sprintf("wait for %s in bond %s", a.PF, a.Bond)
}
func (a AwaitLAG) String() string { return fmt.Sprintf("wait for bond %s in hardware", a.Bond) }
func (a SetRDMA) String() string  { return fmt.Sprintf("set RDMA namespace mode to %s", a.To) }
func (a SetRDMAAtBoot) String() string {
	if a.To == "" {
		return "set no RDMA namespace mode at boot"
	}
	return fmt.Sprintf("set RDMA namespace mode at boot to %s", a.To)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func driverName(d nic.Driver) string {
	if d == nic.DriverKernel {
		return "its kernel driver"
	}
	return string(d)
}
