package proof

import (
	"fmt"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// Report is what was read of one port at one time.
type Report struct {
	Port  Port      `json:"port"`
	Rules []tc.Rule `json:"rules"`
	Flows []Flow    `json:"flows,omitempty"` // those that only Open vSwitch's kernel module has
	Link  tc.Link   `json:"link"`            // the representor's counters

	// Hardware and Software are the packets whose way ended in a rule or flow, by
	// who handled it. Rules that send a packet to another chain are not in it, so
	// that none is counted twice.
	Hardware tc.Counter `json:"hardware"`
	Software tc.Counter `json:"software"`

	// Share of the packets of Hardware and Software that Hardware has, 0 to 1;
	// nil when there were none.
	Share *float64 `json:"share,omitempty"`
}

// Port is where the report looks: the netdev on the switch's side.
type Port struct {
	Netdev  string    `json:"netdev"`
	Ifindex int       `json:"ifindex"`
	VF      *nic.VFID `json:"vf,omitempty"`      // of a representor
	SF      *nic.SFID `json:"sf,omitempty"`      // of a representor
	Address string    `json:"address,omitempty"` // the VF's, PCI; the SF's device
	PodDev  string    `json:"podDev,omitempty"`  // the VF's netdev in the namespace that was asked for
}

func (p Port) String() string {
	s := p.Netdev
	if p.VF != nil {
		s += fmt.Sprintf(" (representor of %s, %s)", p.VF, p.Address)
	}
	if p.SF != nil {
		s += fmt.Sprintf(" (representor of %s, %s)", p.SF, p.Address)
	}
	if p.PodDev != "" {
		s += ", " + p.PodDev + " in the pod"
	}
	return s
}

// New sums rules and flows up.
func New(p Port, rules []tc.Rule, flows []Flow, link tc.Link) Report {
	r := Report{Port: p, Rules: rules, Flows: flows, Link: link}
	for _, f := range flows {
		if !f.Goes() {
			r.Software = r.Software.Plus(f.Total)
		}
	}
	for _, rule := range rules {
		if _, on := rule.Goes(); on {
			continue
		}
		r.Hardware = r.Hardware.Plus(rule.Hardware)
		r.Software = r.Software.Plus(rule.Software())
	}
	if all := r.Hardware.Packets + r.Software.Packets; all > 0 {
		share := float64(r.Hardware.Packets) / float64(all)
		r.Share = &share
	}
	return r
}

// InHardware counts the rules that the NIC has.
func (r Report) InHardware() int {
	n := 0
	for _, rule := range r.Rules {
		if rule.InHW {
			n++
		}
	}
	return n
}

// HostSaw is how many packets came up to the host from the port since its netdev
// was made: those that no rule in hardware handled to the end.
func (r Report) HostSaw() uint64 { return r.Link.Host().RX.Packets }

// Since gives what has been counted since an earlier report of the same port.
// What is new since then, or was removed and made again, counts from 0.
func (r Report) Since(earlier Report) Report {
	before := map[string]tc.Rule{}
	for _, rule := range earlier.Rules {
		before[identity(rule)] = rule
	}
	rules := make([]tc.Rule, len(r.Rules))
	for i, rule := range r.Rules {
		if b, ok := before[identity(rule)]; ok && b.Total.Packets <= rule.Total.Packets && b.Hardware.Packets <= rule.Hardware.Packets {
			rule.Total, rule.Hardware = rule.Total.Minus(b.Total), rule.Hardware.Minus(b.Hardware)
		}
		rules[i] = rule
	}
	used := map[string]Flow{}
	for _, f := range earlier.Flows {
		used[f.UFID] = f
	}
	var flows []Flow
	for _, f := range r.Flows {
		if b, ok := used[f.UFID]; ok && f.UFID != "" && b.Total.Packets <= f.Total.Packets {
			f.Total = f.Total.Minus(b.Total)
		}
		flows = append(flows, f)
	}
	link := tc.Link{RX: r.Link.RX.Minus(earlier.Link.RX), TX: r.Link.TX.Minus(earlier.Link.TX)}
	if r.Link.CPU != nil && earlier.Link.CPU != nil {
		link.CPU = &tc.Directions{
			RX: r.Link.CPU.RX.Minus(earlier.Link.CPU.RX),
			TX: r.Link.CPU.TX.Minus(earlier.Link.CPU.TX),
		}
	}
	return New(r.Port, rules, flows, link)
}

func identity(r tc.Rule) string {
	return fmt.Sprintf("%d/%d/%s/%d/%s", r.Chain, r.Prio, r.Kind, r.Handle, r.Cookie)
}

// Columns are the headings of Rows.
func Columns() []string {
	return []string{"WHERE", "CHAIN", "PRIO", "MATCH", "ACTIONS", "HARDWARE", "SOFTWARE", "IDLE"}
}

// Rows writes rules and flows for a table, one each.
func (r Report) Rows() [][]string {
	out := make([][]string, 0, len(r.Rules))
	for _, rule := range r.Rules {
		match := []string{rule.Protocol}
		for _, p := range rule.Match {
			if p.Name == "eth_type" && p.Value == rule.Protocol {
				continue
			}
			match = append(match, p.String())
		}
		var actions []string
		for _, a := range rule.Actions {
			actions = append(actions, a.String())
		}
		out = append(out, []string{
			rule.Where(),
			strconv.FormatUint(uint64(rule.Chain), 10),
			strconv.FormatUint(uint64(rule.Prio), 10),
			strings.Join(match, " "),
			strings.Join(actions, ", "),
			strconv.FormatUint(rule.Hardware.Packets, 10),
			strconv.FormatUint(rule.Software().Packets, 10),
			fmt.Sprintf("%.1fs", rule.IdleSeconds),
		})
	}
	for _, f := range r.Flows {
		out = append(out, []string{
			"dp:" + f.Layer, "-", "-", f.Match, f.Actions, "0", strconv.FormatUint(f.Total.Packets, 10), f.Used,
		})
	}
	return out
}

// String is the report in one line.
func (r Report) String() string {
	share := "no packets yet"
	if r.Share != nil {
		share = fmt.Sprintf("%d packets in hardware, %d in software (%.1f%% in hardware)",
			r.Hardware.Packets, r.Software.Packets, 100**r.Share)
	}
	only := ""
	if n := len(r.Flows); n > 0 {
		only = fmt.Sprintf(", %d flows in the kernel only", n)
	}
	return fmt.Sprintf("%s: %d of %d rules in hardware%s; %s; the host saw %d packets",
		r.Port, r.InHardware(), len(r.Rules), only, share, r.HostSaw())
}
