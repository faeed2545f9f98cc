package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
)

// Op is the kind of a step, as JSON carries it.
type Op string

// The steps there are.
const (
	OpSetVFs       Op = "set-vfs"
	OpSetAutoprobe Op = "set-autoprobe"
	OpSetEswitch   Op = "set-eswitch"
	OpUnbind       Op = "unbind"
	OpBind         Op = "bind"
	OpSetVFMAC     Op = "set-vf-mac"
	OpSetVFLinkMAC Op = "set-vf-link-mac"
	OpSetVFMTU     Op = "set-vf-mtu"
	OpSetRepMTU    Op = "set-rep-mtu"
)

// Action is what a Step does: one of the types below, and no other.
type Action interface {
	fmt.Stringer

	// Scope is the PF that a failure of the action concerns.
	Scope() nic.Handle

	form() form
	predict(*nic.PF)

	// touches says which VFs lose something that whoever has them relies on: the
	// VF itself, its driver, or the settings of its netdev.
	touches(nic.PF) []int

	// flaps says whether an interface that is there goes away or goes down for
	// a moment.
	flaps(nic.PF) bool
}

// Step is one change of one object, small enough that the kernel does it or does
// not. It is comparable. String is stable, names the object and what it becomes,
// and is the same for a step that was predicted and one that is done; JSON is
// {"op", "object", "from", "to"}, "from" left out where it is not known.
type Step struct{ Action }

// VF names the VF that s is about; false for a step of the PF itself.
func (s Step) VF() (nic.VFID, bool) {
	f := s.form()
	if f.VF == nil {
		return nic.VFID{}, false
	}
	return nic.VFID{PF: f.PF, Index: *f.VF}, true
}

// SetVFs makes VFs of a PF that has none, or removes all that it has. The kernel
// refuses to go from one count to another (drivers/pci/iov.c,
// sriov_numvfs_store), so one of From and To is 0.
type SetVFs struct {
	PF       nic.Handle
	From, To int
}

// SetAutoprobe says whether VFs that are made from now on are bound by the
// kernel itself.
type SetAutoprobe struct {
	PF nic.Handle
	To bool
}

// SetEswitch sets the mode of a PF's eswitch.
type SetEswitch struct {
	PF       nic.Handle
	From, To nic.Eswitch
}

// Unbind takes the driver From from a VF.
type Unbind struct {
	VF   nic.VFID
	From string
}

// Bind gives a VF that has no driver one: nic.DriverKernel or a named one.
type Bind struct {
	VF nic.VFID
	To nic.Driver
}

// SetVFMAC sets the administrative address of a VF that has no driver: drivers
// read it when they bind.
type SetVFMAC struct {
	VF       nic.VFID
	From, To nic.MAC
}

// SetVFLinkMAC sets the address of a VF's netdev.
type SetVFLinkMAC struct {
	VF       nic.VFID
	From, To nic.MAC
}

// SetVFMTU sets the MTU of a VF's netdev, in bytes.
type SetVFMTU struct {
	VF       nic.VFID
	From, To int
}

// SetRepMTU sets the MTU of a VF's representor, in bytes.
type SetRepMTU struct {
	VF       nic.VFID
	From, To int
}

func (a SetVFs) Scope() nic.Handle       { return a.PF }
func (a SetAutoprobe) Scope() nic.Handle { return a.PF }
func (a SetEswitch) Scope() nic.Handle   { return a.PF }
func (a Unbind) Scope() nic.Handle       { return a.VF.PF }
func (a Bind) Scope() nic.Handle         { return a.VF.PF }
func (a SetVFMAC) Scope() nic.Handle     { return a.VF.PF }
func (a SetVFLinkMAC) Scope() nic.Handle { return a.VF.PF }
func (a SetVFMTU) Scope() nic.Handle     { return a.VF.PF }
func (a SetRepMTU) Scope() nic.Handle    { return a.VF.PF }

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

func (a SetEswitch) String() string   { return fmt.Sprintf("set eswitch of %s to %s", a.PF, a.To) }
func (a Unbind) String() string       { return fmt.Sprintf("unbind %s", a.VF) }
func (a Bind) String() string         { return fmt.Sprintf("bind %s to %s", a.VF, driverName(a.To)) }
func (a SetVFMAC) String() string     { return fmt.Sprintf("set MAC of %s to %s", a.VF, a.To) }
func (a SetVFLinkMAC) String() string { return fmt.Sprintf("set netdev MAC of %s to %s", a.VF, a.To) }
func (a SetVFMTU) String() string     { return fmt.Sprintf("set MTU of %s to %d", a.VF, a.To) }
func (a SetRepMTU) String() string    { return fmt.Sprintf("set representor MTU of %s to %d", a.VF, a.To) }

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

// form is a step as JSON.
type form struct {
	Op   Op         `json:"op"`
	PF   nic.Handle `json:"object"`
	VF   *int       `json:"vf,omitempty"`
	From string     `json:"from,omitempty"`
	To   string     `json:"to"`
}

func vfForm(op Op, vf nic.VFID, from, to string) form {
	return form{Op: op, PF: vf.PF, VF: &vf.Index, From: from, To: to}
}

func (a SetVFs) form() form {
	return form{Op: OpSetVFs, PF: a.PF, From: strconv.Itoa(a.From), To: strconv.Itoa(a.To)}
}

func (a SetAutoprobe) form() form {
	return form{Op: OpSetAutoprobe, PF: a.PF, From: onOff(!a.To), To: onOff(a.To)}
}

func (a SetEswitch) form() form {
	return form{Op: OpSetEswitch, PF: a.PF, From: string(a.From), To: string(a.To)}
}

func (a Unbind) form() form { return vfForm(OpUnbind, a.VF, a.From, string(nic.DriverNone)) }
func (a Bind) form() form {
	return vfForm(OpBind, a.VF, string(nic.DriverNone), string(a.To))
}
func (a SetVFMAC) form() form     { return vfForm(OpSetVFMAC, a.VF, a.From.String(), a.To.String()) }
func (a SetVFLinkMAC) form() form { return vfForm(OpSetVFLinkMAC, a.VF, known(a.From), a.To.String()) }
func (a SetVFMTU) form() form {
	return vfForm(OpSetVFMTU, a.VF, strconv.Itoa(a.From), strconv.Itoa(a.To))
}
func (a SetRepMTU) form() form {
	return vfForm(OpSetRepMTU, a.VF, strconv.Itoa(a.From), strconv.Itoa(a.To))
}

// known leaves out the address of a netdev that is only predicted: its driver
// will pick one.
func known(m nic.MAC) string {
	if m.IsZero() {
		return ""
	}
	return m.String()
}

// MarshalJSON writes {"op", "object", "vf", "from", "to"}.
func (s Step) MarshalJSON() ([]byte, error) {
	if s.Action == nil {
		return []byte("null"), nil
	}
	return json.Marshal(s.form())
}

// UnmarshalJSON reads what MarshalJSON wrote; null is the zero Step.
func (s *Step) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*s = Step{}
		return nil
	}
	var f form
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	a, err := f.action()
	if err != nil {
		return fmt.Errorf("step %q of %s: %w", f.Op, f.PF, err)
	}
	*s = Step{a}
	return nil
}

// reader collects the first error of several fields.
type reader struct{ err error }

func (r *reader) fail(err error) { r.err = cmp.Or(r.err, err) }

func (r *reader) int(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		r.fail(fmt.Errorf("%q is no number", s))
	}
	return n
}

func (r *reader) bool(s string) bool {
	if s != "on" && s != "off" {
		r.fail(fmt.Errorf("%q is neither on nor off", s))
	}
	return s == "on"
}

func (r *reader) mac(s string) nic.MAC {
	if s == "" {
		return nic.MAC{}
	}
	m, err := nic.ParseMAC(s)
	if err != nil {
		r.fail(err)
	}
	return m
}

func (f form) action() (Action, error) {
	var (
		r reader
		a Action
		v nic.VFID
	)
	if f.PF.IsZero() {
		return nil, fmt.Errorf("has no object: want bus/name")
	}
	ofPF := slices.Contains([]Op{OpSetVFs, OpSetAutoprobe, OpSetEswitch}, f.Op)
	if !ofPF {
		if f.VF == nil || *f.VF < 0 {
			return nil, fmt.Errorf("has no VF: want its index")
		}
		v = nic.VFID{PF: f.PF, Index: *f.VF}
	}
	switch f.Op {
	case OpSetVFs:
		a = SetVFs{f.PF, r.int(f.From), r.int(f.To)}
	case OpSetAutoprobe:
		a = SetAutoprobe{f.PF, r.bool(f.To)}
	case OpSetEswitch:
		a = SetEswitch{f.PF, nic.Eswitch(f.From), nic.Eswitch(f.To)}
	case OpUnbind:
		a = Unbind{v, f.From}
	case OpBind:
		a = Bind{v, nic.Driver(f.To)}
	case OpSetVFMAC:
		a = SetVFMAC{v, r.mac(f.From), r.mac(f.To)}
	case OpSetVFLinkMAC:
		a = SetVFLinkMAC{v, r.mac(f.From), r.mac(f.To)}
	case OpSetVFMTU:
		a = SetVFMTU{v, r.int(f.From), r.int(f.To)}
	case OpSetRepMTU:
		a = SetRepMTU{v, r.int(f.From), r.int(f.To)}
	default:
		return nil, fmt.Errorf("no such step")
	}
	return a, r.err
}
