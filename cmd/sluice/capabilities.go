package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/capability/probe"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/tc"
)

// capabilities judges the node, or the simulated machine.
func (o *options) capabilities(ctx context.Context, state nic.State) capability.Report {
	if o.sim != "" {
		return capability.Judge(capability.Simulate(state))
	}
	reader := probe.Reader{}
	// Without rtnetlink there would be no state: what it says of rules is more.
	if rules, err := tc.Open(); err == nil {
		defer rules.Close()
		reader.Rules = rules
	}
	return capability.Judge(reader.Read(ctx, state))
}

// capabilityTable prints a line for each capability, and below it the reasons: of
// one that is not there those that keep it away, each with what to change.
func capabilityTable(w io.Writer, r capability.Report) {
	if r.Facts.Simulated {
		fmt.Fprintln(w, "simulated: no kernel and no Open vSwitch were asked")
	} else {
		fmt.Fprintf(w, "kernel %s, configuration %s, Open vSwitch %s\n", r.Facts.Kernel.Release,
			orDash(r.Facts.Kernel.Config), orDash(r.Facts.Switch.Version))
	}
	fmt.Fprintln(w)
	var head strings.Builder
	tw := tabwriter.NewWriter(&head, 0, 0, 2, ' ', 0)
	for _, c := range r.Capabilities {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Name, c.Answer, c.Means)
	}
	tw.Flush()
	lines := strings.SplitAfter(head.String(), "\n")
	for i, c := range r.Capabilities {
		fmt.Fprint(w, lines[i])
		findings := c.Missing()
		if len(findings) == 0 {
			findings = c.Findings
		}
		for _, f := range findings {
			fmt.Fprintf(w, "    %s: %s\n", f.Answer, f)
			if f.Change != "" {
				fmt.Fprintf(w, "        -> %s\n", f.Change)
			}
		}
	}
}
