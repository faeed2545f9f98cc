package proof

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/tc"
	"sluice.dev/sluice/pkg/unixctl"
)

// Flow is a flow of Open vSwitch's datapath, as ovs-vswitchd prints it. Those in
// the layer tc are the rules that the kernel lists as well; one in the layer ovs
// is in the kernel's openvswitch module only, where no NIC can have it.
type Flow struct {
	UFID      string     `json:"ufid"`
	Port      string     `json:"port"`  // in_port, by name
	Layer     string     `json:"layer"` // tc, ovs or dpdk
	Offloaded string     `json:"offloaded,omitempty"`
	Match     string     `json:"match"`
	Actions   string     `json:"actions"`
	Total     tc.Counter `json:"total"`
	Used      string     `json:"used,omitempty"` // how long ago, "never"
}

// Goes says that the packet's way goes on in another flow.
func (f Flow) Goes() bool { return strings.Contains(f.Actions, "recirc(") }

// Datapath reads the flows of the ovs-vswitchd whose files are in RunDir, ""
// being the usual place. One that does not run is fs.ErrNotExist.
type Datapath struct{ RunDir string }

// Flows lists the flows that are only in the kernel's openvswitch module. The
// text that they come in is no interface of Open vSwitch's; lines that are not
// understood are an error, so that none is lost unseen.
func (d Datapath) Flows(ctx context.Context) ([]Flow, error) { return d.list(ctx, "type=ovs") }

// All lists the flows of every layer, in the same way.
func (d Datapath) All(ctx context.Context) ([]Flow, error) { return d.list(ctx) }

func (d Datapath) list(ctx context.Context, which ...string) ([]Flow, error) {
	socket, err := unixctl.Socket(d.RunDir, "ovs-vswitchd")
	if err != nil {
		return nil, err
	}
	datapaths, err := unixctl.Call(ctx, socket, "dpctl/dump-dps")
	if err != nil {
		return nil, err
	}
	var all []Flow
	for name := range strings.Lines(datapaths) {
		if name = strings.TrimSpace(name); !strings.HasPrefix(name, "system@") {
			continue // of userspace, where representors are not
		}
		out, err := unixctl.Call(ctx, socket, "dpctl/dump-flows", append([]string{"-m", "--names", name}, which...)...)
		if err != nil {
			return nil, err
		}
		flows, err := ParseFlows(out)
		if err != nil {
			return nil, err
		}
		all = append(all, flows...)
	}
	return all, nil
}

var inPort = regexp.MustCompile(`\bin_port\(([^)]*)\)`)

// ParseFlows reads the output of `ovs-appctl dpctl/dump-flows -m --names`
// (lib/dpctl.c, format_dpif_flow).
func ParseFlows(text string) ([]Flow, error) {
	var out []Flow
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "flow-dump from ") {
			continue
		}
		f, err := parseFlow(line)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func parseFlow(line string) (f Flow, err error) {
	head, actions, ok := strings.Cut(line, ", actions:")
	match, stats, alsoOK := strings.Cut(head, ", packets:")
	if !ok || !alsoOK {
		return f, fmt.Errorf("datapath flow %.200q: want MATCH, packets:N, ..., actions:ACTIONS", line)
	}
	f.Actions, _, _ = strings.Cut(actions, ", dp-extra-info:")
	if rest, ok := strings.CutPrefix(match, "ufid:"); ok {
		f.UFID, match, _ = strings.Cut(rest, ", ")
	}
	f.Match = match
	if m := inPort.FindStringSubmatch(match); m != nil {
		f.Port = m[1]
	}
	for i, word := range strings.Split("packets:"+stats, ", ") {
		name, value, _ := strings.Cut(word, ":")
		switch name {
		case "packets":
			f.Total.Packets, err = strconv.ParseUint(value, 10, 64)
		case "bytes":
			f.Total.Bytes, err = strconv.ParseUint(value, 10, 64)
		case "used":
			f.Used = value
		case "offloaded":
			f.Offloaded = value
		case "dp":
			f.Layer = value
		}
		if err != nil {
			return f, fmt.Errorf("datapath flow %.200q: word %d: %w", line, i, err)
		}
	}
	return f, nil
}
