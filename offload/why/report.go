package why

import (
	"fmt"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/tc"
)

// Where a flow runs.
type Where string

// The places, the best first.
const (
	Hardware  Where = "hardware"
	Software  Where = "tc"        // in tc's software: the driver has not taken the rule
	Datapath  Where = "datapath"  // in Open vSwitch's kernel module
	Userspace Where = "userspace" // each packet goes to ovs-vswitchd
)

// Class is the kind of a reason: few words that stay, for programs and alerts.
type Class string

// The classes.
const (
	Setting       Class = "setting"       // of Open vSwitch, or of a netdev
	Ports         Class = "port"          // the ports are not of one card
	Match         Class = "match"         // on something that tc or the card has no match for
	Action        Class = "action"        // tc or the card has no such action
	Controller    Class = "controller"    // packets go to ovs-vswitchd or its controller
	Hash          Class = "hash"          // dp_hash: the kernel's module alone computes it
	Sample        Class = "sample"        // sFlow, IPFIX, sampling
	Recirculation Class = "recirculation" // the kernel hands no recirculation to tc
	Conntrack     Class = "conntrack"
	Tunnel        Class = "tunnel" // of its other end, or of what the driver knows of tunnels
	Limit         Class = "limit"  // the card is full
	Before        Class = "before" // the flow before it in the chain is not there
	Driver        Class = "driver" // in words of its own
	Unknown       Class = "unknown"
)

// Reason is one thing that keeps a flow out of hardware.
type Reason struct {
	Class  Class  `json:"class"`
	What   string `json:"what"`
	From   string `json:"from,omitempty"`   // where that was read
	Change string `json:"change,omitempty"` // what to change; "" there is nothing
}

func (r Reason) String() string {
	s := string(r.Class) + ": " + r.What
	if r.From != "" {
		s += " (" + r.From + ")"
	}
	return s
}

// Verdict is what became of one flow.
type Verdict struct {
	UFID     string     `json:"ufid,omitempty"`
	Where    Where      `json:"where"`
	Match    string     `json:"match"`
	Actions  string     `json:"actions"`
	Hardware tc.Counter `json:"hardware"` // handled by the NIC
	Software tc.Counter `json:"software"` // handled by the host
	Used     string     `json:"used,omitempty"`

	// Reasons why it is not in hardware, the first that stands in its way first. Of
	// one that is there are none, unless the host carries its packets all the same.
	Reasons []Reason `json:"reasons,omitempty"`

	// Goes: the packet's way goes on in another flow, which counts it.
	Goes bool `json:"goes,omitempty"`
}

// Offloaded says that the NIC has the flow and carries its packets.
func (v Verdict) Offloaded() bool { return v.Where == Hardware && len(v.Reasons) == 0 }

// Class is that of the first reason; "" in hardware.
func (v Verdict) Class() Class {
	if len(v.Reasons) == 0 {
		return ""
	}
	return v.Reasons[0].Class
}

// Report is the port's flows, judged.
type Report struct {
	Port  Port      `json:"port"`
	Flows []Verdict `json:"flows"`

	// Reasons that are not of one flow: settings, and what the port lacks.
	Reasons []Reason `json:"reasons,omitempty"`

	// Packets whose way ended in one of the flows, by who handled them; Share is the
	// hardware's of both, nil when there were none.
	Hardware tc.Counter `json:"hardware"`
	Software tc.Counter `json:"software"`
	Share    *float64   `json:"share,omitempty"`
}

// Only is the report with those flows alone that keep says, and what they sum up to.
func (r Report) Only(keep func(Verdict) bool) Report {
	all := r.Flows
	r.Flows = make([]Verdict, 0, len(all))
	for _, v := range all {
		if keep(v) {
			r.Flows = append(r.Flows, v)
		}
	}
	r.sum()
	return r
}

func (r *Report) sum() {
	r.Hardware, r.Software, r.Share = tc.Counter{}, tc.Counter{}, nil
	for _, v := range r.Flows {
		if !v.Goes {
			r.Hardware, r.Software = r.Hardware.Plus(v.Hardware), r.Software.Plus(v.Software)
		}
	}
	if all := r.Hardware.Packets + r.Software.Packets; all > 0 {
		share := float64(r.Hardware.Packets) / float64(all)
		r.Share = &share
	}
}

// Count is how many flows run in a place.
func (r Report) Count(w Where) (n int) {
	for _, v := range r.Flows {
		if v.Where == w {
			n++
		}
	}
	return n
}

func (p Port) String() string {
	s := p.Netdev
	var more []string
	if p.VF != nil {
		more = append(more, fmt.Sprintf("representor of %s", p.VF))
	}
	if p.SF != nil {
		more = append(more, fmt.Sprintf("representor of %s", p.SF))
	}
	if p.Pod != "" {
		more = append(more, strings.TrimSpace(p.Interface+" of pod "+p.Pod))
	}
	if more != nil {
		s += " (" + strings.Join(more, ", ") + ")"
	}
	return s
}

// String is the report in one line.
func (r Report) String() string {
	if len(r.Flows) == 0 {
		return r.Port.String() + ": no flows: Open vSwitch takes those back that rest for ten seconds"
	}
	var places []string
	for _, w := range []Where{Hardware, Software, Datapath, Userspace} {
		if n := r.Count(w); n > 0 {
			places = append(places, fmt.Sprintf("%d in %s", n, w.words()))
		}
	}
	share := "no packets yet"
	if r.Share != nil {
		share = fmt.Sprintf("%d packets by the NIC, %d by the host (%.1f%% in hardware)", r.Hardware.Packets, r.Software.Packets, 100**r.Share)
	}
	return fmt.Sprintf("%s: %d flows, %s; %s", r.Port, len(r.Flows), strings.Join(places, ", "), share)
}

func (w Where) words() string {
	switch w {
	case Software:
		return "tc's software"
	case Datapath:
		return "Open vSwitch's kernel datapath"
	case Userspace:
		return "user space"
	}
	return string(w)
}

// Columns are the headings of Row.
func Columns() []string { return []string{"WHERE", "NIC", "HOST", "USED", "MATCH", "ACTIONS"} }

// Row writes the flow for a table: of the match what counts, of many actions the first.
func (v Verdict) Row() []string {
	return []string{
		string(v.Where), strconv.FormatUint(v.Hardware.Packets, 10), strconv.FormatUint(v.Software.Packets, 10), v.Used, brief(v.Match), cut(v.Actions),
	}
}
