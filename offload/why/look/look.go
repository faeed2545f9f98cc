package look

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
	"sluice.dev/sluice/pkg/tc"
)

// Most is how many rules of a port are offered to drivers again in one look: each
// takes the kernel's lock twice.
const Most = 64

// Rules reads rules; *tc.Conn does.
type Rules interface {
	Ingress(ctx context.Context, ifindex int) ([]tc.Rule, error)
	Offer(ctx context.Context, r tc.Rule) (tc.Verdict, error)
}

// Ways looks up how the host sends to an address; rtnl.Conn does.
type Ways interface {
	WayTo(ctx context.Context, to netip.Addr) (rtnl.Way, error)
}

// Switch lists the flows of all layers; proof.Datapath does. One that does not run is
// fs.ErrNotExist.
type Switch interface {
	All(ctx context.Context) ([]proof.Flow, error)
}

// Node is what a look begins with: what was observed and read of the node.
type Node struct {
	State        nic.State
	Links        []host.Link
	Capabilities capability.Facts // of which kernel and Open vSwitch count
	Records      []*record.Record // attachments of pods, in the present boot
	Bridges      Bridges
}

// Reader reads what a Node leaves out.
type Reader struct {
	Rules  Rules
	Ways   Ways // nil: ways to tunnels' ends are not looked up
	Switch Switch

	// Ask has drivers asked why they have not taken a rule (tc.Conn.Offer), Most of a
	// port.
	Ask bool
}

// ufid is how Open vSwitch prints a flow's number, or the first part of it.
var ufid = regexp.MustCompile(`^(?:ufid:)?([0-9a-f]{8}(?:-[0-9a-f]{1,12}){0,4})-?$`)

// At reports on what is called by name: a port (a netdev of the host), a pod
// (NAMESPACE/NAME, by our records and by the kubelet: each of its VFs and SFs), or a flow
// (its ufid, or
// the first eight digits or more of it). Nothing of that name is fs.ErrNotExist.
func (r Reader) At(ctx context.Context, n Node, name string) ([]why.Report, error) {
	flows, err := r.flows(ctx)
	if err != nil {
		return nil, err
	}
	if strings.Contains(name, "/") {
		ports, err := n.pod(name)
		if err != nil {
			return nil, err
		}
		return r.each(ctx, n, ports, flows)
	}
	port, err := proof.Find(n.State, n.Links, name)
	if err == nil {
		return r.each(ctx, n, []proof.Port{port}, flows)
	}
	if m := ufid.FindStringSubmatch(name); m != nil && errors.Is(err, fs.ErrNotExist) {
		return r.flow(ctx, n, m[1], flows)
	}
	return nil, err
}

// All reports on the ports of all pods: of attachments by our records, and of what is in
// use that other CNI plugins have attached. Where there are none it is all representors.
func (r Reader) All(ctx context.Context, n Node) ([]why.Report, error) {
	ports := append(n.ours(), n.others("")...)
	if ports == nil {
		ports = proof.Representors(n.State)
	}
	return r.ports(ctx, n, ports)
}

// Ours reports on the ports of all attachments by our records.
func (r Reader) Ours(ctx context.Context, n Node) ([]why.Report, error) {
	return r.ports(ctx, n, n.ours())
}

func (r Reader) ports(ctx context.Context, n Node, ports []proof.Port) ([]why.Report, error) {
	flows, err := r.flows(ctx)
	if err != nil {
		return nil, err
	}
	return r.each(ctx, n, ports, flows)
}

// flow reports on one flow, judged among those of its port.
func (r Reader) flow(ctx context.Context, n Node, begin string, flows []proof.Flow) ([]why.Report, error) {
	for _, f := range flows {
		if !strings.HasPrefix(f.UFID, begin) {
			continue
		}
		port, err := proof.Find(n.State, n.Links, f.Port)
		if err != nil {
			return nil, fmt.Errorf("flow %s: %w", f.UFID, err)
		}
		reports, err := r.each(ctx, n, []proof.Port{port}, flows)
		if err != nil {
			return nil, err
		}
		for i := range reports {
			reports[i] = reports[i].Only(func(v why.Verdict) bool { return strings.HasPrefix(v.UFID, begin) })
		}
		return reports, nil
	}
	return nil, fmt.Errorf("flow %s among the %d of Open vSwitch: %w; it takes back those that rest for ten seconds", begin, len(flows), fs.ErrNotExist)
}

func (r Reader) flows(ctx context.Context) ([]proof.Flow, error) {
	flows, err := r.Switch.All(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("flows of the datapath: %w", err)
	}
	return flows, nil
}

func (r Reader) each(ctx context.Context, n Node, ports []proof.Port, flows []proof.Flow) ([]why.Report, error) {
	facts := n.facts()
	facts.Zones = zones(flows)
	var out []why.Report
	for _, p := range ports {
		facts.Port = n.named(p)
		var err error
		if facts.Flows, err = r.of(ctx, p, flows); err != nil {
			return nil, err
		}
		if facts.Ways, err = r.ways(ctx, n, facts.Flows); err != nil {
			return nil, err
		}
		out = append(out, why.Judge(facts))
	}
	return out, nil
}

// of joins Open vSwitch's flows of a port with the kernel's rules there.
func (r Reader) of(ctx context.Context, p proof.Port, flows []proof.Flow) ([]why.Flow, error) {
	rules, err := r.Rules.Ingress(ctx, p.Ifindex)
	if err != nil {
		return nil, fmt.Errorf("rules of %s: %w", p.Netdev, err)
	}
	byUFID := map[string]*tc.Rule{}
	for i := range rules {
		if rules[i].Kind == "flower" { // others are no flows: policing, for one
			byUFID[tc.UFID(rules[i].Cookie)] = &rules[i]
		}
	}
	var out []why.Flow
	for _, f := range flows {
		rule := byUFID[f.UFID]
		if f.Port != p.Netdev || rule == nil && f.Layer == "tc" {
			continue // of another port, or gone since
		}
		delete(byUFID, f.UFID)
		out = append(out, why.Flow{UFID: f.UFID, Match: f.Match, Actions: f.Actions, Layer: f.Layer, Total: f.Total, Used: f.Used, Rule: rule})
	}
	for i := range rules {
		rule := &rules[i]
		if id := tc.UFID(rule.Cookie); byUFID[id] == rule {
			out = append(out, ofRule(id, rule))
		}
	}
	return out, r.ask(ctx, out)
}

// ofRule is a rule that Open vSwitch does not tell of: it is somebody else's, or came
// since.
func ofRule(id string, rule *tc.Rule) why.Flow {
	var match, actions []string
	for _, p := range rule.Match {
		match = append(match, p.String())
	}
	for _, a := range rule.Actions {
		actions = append(actions, a.String())
	}
	return why.Flow{
		UFID: id, Match: strings.Join(match, " "), Actions: strings.Join(actions, ", "), Total: rule.Total,
		Used: fmt.Sprintf("%.1fs", rule.IdleSeconds), Rule: rule,
	}
}

// ask offers the rules that no driver has taken.
func (r Reader) ask(ctx context.Context, flows []why.Flow) error {
	asked := 0
	for i := range flows {
		rule := flows[i].Rule
		if !r.Ask || asked == Most || rule == nil || rule.InHW || rule.SkipHW {
			continue
		}
		asked++
		v, err := r.Rules.Offer(ctx, *rule)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone since
		case err != nil:
			return err
		default:
			flows[i].Offer = &v
		}
	}
	return nil
}

func (r Reader) ways(ctx context.Context, n Node, flows []why.Flow) (map[string]why.Way, error) {
	if r.Ways == nil {
		return nil, nil
	}
	out := map[string]why.Way{}
	for _, end := range why.Ends(flows) {
		to, err := netip.ParseAddr(end)
		if err != nil {
			continue
		}
		w, err := r.Ways.WayTo(ctx, to)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			out[end] = why.Way{}
		case err != nil:
			return nil, err
		default:
			out[end] = why.Way{Dev: n.name(w.Ifindex), Next: w.Next.String(), Neighbour: w.Neighbour}
		}
	}
	return out, nil
}

var zoneOf = regexp.MustCompile(`\bct\([^()]*\bzone=(\d+)`)

// zones counts the conntrack zones that rules of tc use.
func zones(flows []proof.Flow) int {
	seen := map[string]bool{}
	for _, f := range flows {
		if f.Layer != "tc" {
			continue
		}
		for _, m := range zoneOf.FindAllStringSubmatch(f.Actions, -1) {
			seen[m[1]] = true
		}
	}
	return len(seen)
}

func (n Node) name(ifindex int) string {
	if i := slices.IndexFunc(n.Links, func(l host.Link) bool { return l.Ifindex == ifindex }); i >= 0 {
		return n.Links[i].Name
	}
	return fmt.Sprintf("interface %d", ifindex)
}
