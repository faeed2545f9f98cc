package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
)

// Op is the kind of a step, as JSON carries it.
type Op string

// The steps there are.
const (
	OpSetVFs        Op = "set-vfs"
	OpSetAutoprobe  Op = "set-autoprobe"
	OpSetEswitch    Op = "set-eswitch"
	OpSetPF         Op = "set-pf"
	OpUnbind        Op = "unbind"
	OpBind          Op = "bind"
	OpSetVFMAC      Op = "set-vf-mac"
	OpSetVFLinkMAC  Op = "set-vf-link-mac"
	OpSetVFMTU      Op = "set-vf-mtu"
	OpSetRepMTU     Op = "set-rep-mtu"
	OpSetVF         Op = "set-vf"
	OpAddSF         Op = "add-sf"
	OpDelSF         Op = "del-sf"
	OpSetSFActive   Op = "set-sf-active"
	OpSetSFMAC      Op = "set-sf-mac"
	OpSetSFMTU      Op = "set-sf-mtu"
	OpSetSFRepMTU   Op = "set-sf-rep-mtu"
	OpSetSF         Op = "set-sf"
	OpAddBond       Op = "add-bond"
	OpDelBond       Op = "del-bond"
	OpEnslave       Op = "enslave"
	OpRelease       Op = "release"
	OpSetBondMTU    Op = "set-bond-mtu"
	OpAwaitBond     Op = "await-bond"
	OpAwaitLAG      Op = "await-lag"
	OpSetRDMA       Op = "set-rdma"
	OpSetRDMAAtBoot Op = "set-rdma-at-boot"
)

// form is a step as JSON.
type form struct {
	Op      Op          `json:"op"`
	Object  nic.Handle  `json:"object"`
	VF      *int        `json:"vf,omitempty"`
	SF      *int        `json:"sf,omitempty"`
	Member  *nic.Handle `json:"member,omitempty"`
	Setting nic.Setting `json:"setting,omitempty"`
	From    string      `json:"from,omitempty"`
	To      string      `json:"to,omitempty"`

	// Of a bond that is made.
	Hash     string `json:"hash,omitempty"`
	LACPRate string `json:"lacpRate,omitempty"`
	Miimon   int    `json:"miimon,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
}

func vfForm(op Op, vf nic.VFID, from, to string) form {
	return form{Op: op, Object: vf.PF, VF: &vf.Index, From: from, To: to}
}

func sfForm(op Op, sf nic.SFID, from, to string) form {
	return form{Op: op, Object: sf.PF, SF: &sf.Num, From: from, To: to}
}

func numbers(f form, from, to int) form {
	f.From, f.To = strconv.Itoa(from), strconv.Itoa(to)
	return f
}

func setting(f form, name nic.Setting) form {
	f.Setting = name
	return f
}

func member(f form, pf nic.Handle) form {
	f.Member = &pf
	return f
}

func (a SetVFs) form() form { return numbers(form{Op: OpSetVFs, Object: a.PF}, a.From, a.To) }
func (a SetAutoprobe) form() form {
	return form{Op: OpSetAutoprobe, Object: a.PF, From: onOff(!a.To), To: onOff(a.To)}
}
func (a SetEswitch) form() form {
	return form{Op: OpSetEswitch, Object: a.PF, From: string(a.From), To: string(a.To)}
}
func (a SetPF) form() form {
	return form{Op: OpSetPF, Object: a.PF, Setting: a.Setting, From: a.From, To: a.To}
}
func (a Unbind) form() form { return vfForm(OpUnbind, a.VF, a.From, string(nic.DriverNone)) }
func (a Bind) form() form   { return vfForm(OpBind, a.VF, string(nic.DriverNone), string(a.To)) }
func (a SetVFMAC) form() form {
	return vfForm(OpSetVFMAC, a.VF, a.From.String(), a.To.String())
}
func (a SetVFLinkMAC) form() form { return vfForm(OpSetVFLinkMAC, a.VF, known(a.From), a.To.String()) }
func (a SetVFMTU) form() form     { return numbers(vfForm(OpSetVFMTU, a.VF, "", ""), a.From, a.To) }
func (a SetRepMTU) form() form    { return numbers(vfForm(OpSetRepMTU, a.VF, "", ""), a.From, a.To) }
func (a SetVF) form() form        { return setting(vfForm(OpSetVF, a.VF, a.From, a.To), a.Setting) }
func (a AddSF) form() form        { return sfForm(OpAddSF, a.SF, "", "") }
func (a DelSF) form() form        { return sfForm(OpDelSF, a.SF, "", "") }
func (a SetSFActive) form() form {
	return sfForm(OpSetSFActive, a.SF, onOff(!a.To), onOff(a.To))
}
func (a SetSFMAC) form() form {
	return sfForm(OpSetSFMAC, a.SF, a.From.String(), a.To.String())
}
func (a SetSFMTU) form() form    { return numbers(sfForm(OpSetSFMTU, a.SF, "", ""), a.From, a.To) }
func (a SetSFRepMTU) form() form { return numbers(sfForm(OpSetSFRepMTU, a.SF, "", ""), a.From, a.To) }
func (a SetSF) form() form       { return setting(sfForm(OpSetSF, a.SF, a.From, a.To), a.Setting) }
func (a AddBond) form() form {
	return form{
		Op: OpAddBond, Object: a.Object(), To: string(a.Mode),
		Hash: a.Hash, LACPRate: a.LACPRate, Miimon: a.Miimon, MTU: a.MTU,
	}
}
func (a DelBond) form() form { return form{Op: OpDelBond, Object: a.Object()} }
func (a Enslave) form() form { return member(form{Op: OpEnslave, Object: a.Object()}, a.PF) }
func (a Release) form() form { return member(form{Op: OpRelease, Object: a.Object()}, a.PF) }
func (a SetBondMTU) form() form {
	return numbers(form{Op: OpSetBondMTU, Object: a.Object()}, a.From, a.To)
}
func (a AwaitBond) form() form { return member(form{Op: OpAwaitBond, Object: a.Object()}, a.PF) }
func (a AwaitLAG) form() form  { return form{Op: OpAwaitLAG, Object: a.Object()} }
func (a SetRDMA) form() form {
	return form{Op: OpSetRDMA, Object: a.Object(), From: string(a.From), To: string(a.To)}
}
func (a SetRDMAAtBoot) form() form {
	return form{Op: OpSetRDMAAtBoot, Object: a.Object(), From: string(a.From), To: string(a.To)}
}

// known leaves out the address of a netdev that is only predicted: its driver
// will pick one.
func known(m nic.MAC) string {
	if m.IsZero() {
		return ""
	}
	return m.String()
}

// Op is the kind of step that s is.
func (s Step) Op() Op { return s.form().Op }

// MarshalJSON writes {"op", "object", "vf", "from", "to"} and what else the step
// has.
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
		return fmt.Errorf("step %q of %s: %w", f.Op, f.Object, err)
	}
	*s = Step{a}
	return nil
}

// reader collects the first error of several fields.
type reader struct {
	form
	err error
}

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

func (r *reader) vf() nic.VFID {
	if r.VF == nil || *r.VF < 0 {
		r.fail(fmt.Errorf("has no VF: want its index"))
		return nic.VFID{}
	}
	return nic.VFID{PF: r.Object, Index: *r.VF}
}

func (r *reader) sf() nic.SFID {
	if r.SF == nil || *r.SF < 0 {
		r.fail(fmt.Errorf("has no SF: want its number"))
		return nic.SFID{}
	}
	return nic.SFID{PF: r.Object, Num: *r.SF}
}

func (r *reader) setting() nic.Setting {
	if r.Setting == "" {
		r.fail(fmt.Errorf("has no setting: want its name"))
	}
	return r.Setting
}

func (r *reader) member() nic.Handle {
	if r.Member == nil || r.Member.IsZero() {
		r.fail(fmt.Errorf("has no member: want the PF's handle"))
		return nic.Handle{}
	}
	return *r.Member
}

func (f form) action() (Action, error) {
	if f.Object.IsZero() {
		return nil, fmt.Errorf("has no object: want bus/name")
	}
	r := reader{form: f}
	a := r.action()
	if a == nil {
		return nil, fmt.Errorf("no such step")
	}
	return a, r.err
}

func (r *reader) action() Action {
	switch o := r.Object; r.Op {
	case OpSetVFs:
		return SetVFs{o, r.int(r.From), r.int(r.To)}
	case OpSetAutoprobe:
		return SetAutoprobe{o, r.bool(r.To)}
	case OpSetEswitch:
		return SetEswitch{o, nic.Eswitch(r.From), nic.Eswitch(r.To)}
	case OpSetPF:
		return SetPF{o, r.setting(), r.From, r.To}
	case OpUnbind:
		return Unbind{r.vf(), r.From}
	case OpBind:
		return Bind{r.vf(), nic.Driver(r.To)}
	case OpSetVFMAC:
		return SetVFMAC{r.vf(), r.mac(r.From), r.mac(r.To)}
	case OpSetVFLinkMAC:
		return SetVFLinkMAC{r.vf(), r.mac(r.From), r.mac(r.To)}
	case OpSetVFMTU:
		return SetVFMTU{r.vf(), r.int(r.From), r.int(r.To)}
	case OpSetRepMTU:
		return SetRepMTU{r.vf(), r.int(r.From), r.int(r.To)}
	case OpSetVF:
		return SetVF{r.vf(), r.setting(), r.From, r.To}
	}
	return r.other()
}

func (r *reader) other() Action {
	switch name := r.Object.Name; r.Op {
	case OpAddSF:
		return AddSF{r.sf()}
	case OpDelSF:
		return DelSF{r.sf()}
	case OpSetSFActive:
		return SetSFActive{r.sf(), r.bool(r.To)}
	case OpSetSFMAC:
		return SetSFMAC{r.sf(), r.mac(r.From), r.mac(r.To)}
	case OpSetSFMTU:
		return SetSFMTU{r.sf(), r.int(r.From), r.int(r.To)}
	case OpSetSFRepMTU:
		return SetSFRepMTU{r.sf(), r.int(r.From), r.int(r.To)}
	case OpSetSF:
		return SetSF{r.sf(), r.setting(), r.From, r.To}
	case OpAddBond:
		return AddBond{name, r.Hash, r.LACPRate, nic.BondMode(r.To), r.Miimon, r.MTU}
	case OpDelBond:
		return DelBond{name}
	case OpEnslave:
		return Enslave{name, r.member()}
	case OpRelease:
		return Release{name, r.member()}
	case OpSetBondMTU:
		return SetBondMTU{name, r.int(r.From), r.int(r.To)}
	case OpAwaitBond:
		return AwaitBond{name, r.member()}
	case OpAwaitLAG:
		return AwaitLAG{name}
	case OpSetRDMA:
		return SetRDMA{nic.RDMAMode(r.From), nic.RDMAMode(r.To)}
	case OpSetRDMAAtBoot:
		return SetRDMAAtBoot{nic.RDMAMode(r.From), nic.RDMAMode(r.To)}
	}
	return nil
}
