package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/pkg/tc"
)

func flowsCommand(o *options) *cobra.Command {
	var port, netns string
	cmd := &cobra.Command{
		Use:   "flows [--port NETDEV | --netns PATH]",
		Short: "Show each rule on a port's ingress, in hardware or not, with the packets of each",
		Long: `Show the rules on the ingress of a port in the switch, whether the NIC has each of
them, the packets that the NIC and the host handled, and how many packets came up
to the host at all. The port is a representor or an uplink by name, or those of the
VFs in a pod's network namespace; without either, all representors.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case port != "" && netns != "":
				return status{exitUsage, errors.New("want --port or --netns, not both")}
			case o.sim != "":
				return status{exitUsage, errors.New("a simulated machine (--sim) has no packets and no flows")}
			}
			return o.with(func(n *node) error {
				rules, err := tc.Open()
				if err != nil {
					return err
				}
				defer rules.Close()
				reports, err := readFlows(cmd.Context(), proof.Reader{Machine: n.machine, Rules: rules, Switch: proof.Datapath{}}, port, netns)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), struct {
					Ports []portFlows `json:"ports"`
				}{withHost(reports)}, func(w io.Writer) { flowsTable(w, reports) })
			})
		},
	}
	cmd.Flags().StringVar(&port, "port", "", "netdev of the port: a representor or an uplink")
	cmd.Flags().StringVar(&netns, "netns", "", "network namespace of a pod")
	return cmd
}

func readFlows(ctx context.Context, r proof.Reader, port, netns string) ([]proof.Report, error) {
	switch {
	case netns != "":
		return r.Netns(ctx, netns)
	case port != "":
		report, err := r.Port(ctx, port)
		return []proof.Report{report}, err
	}
	return r.All(ctx)
}

// portFlows is a report with what is worked out of it.
type portFlows struct {
	proof.Report
	HostPackets uint64 `json:"hostPackets"` // that came up to the host
}

func withHost(reports []proof.Report) []portFlows {
	out := make([]portFlows, 0, len(reports))
	for _, r := range reports {
		out = append(out, portFlows{r, r.HostSaw()})
	}
	return out
}

func flowsTable(w io.Writer, reports []proof.Report) {
	if len(reports) == 0 {
		fmt.Fprintln(w, "no representors: no PF of this machine is in switchdev mode with VFs")
		return
	}
	for _, r := range reports {
		fmt.Fprintln(w, r)
		if len(r.Rules)+len(r.Flows) == 0 {
			continue
		}
		tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  "+strings.Join(proof.Columns(), "\t"))
		for _, row := range r.Rows() {
			fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
		}
		tw.Flush()
	}
}
