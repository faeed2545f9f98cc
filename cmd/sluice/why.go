package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/offload/why"
	"sluice.dev/sluice/offload/why/look"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/capability/probe"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/rtnl"
	"sluice.dev/sluice/pkg/tc"
)

func whyCommand(o *options) *cobra.Command {
	ask := true
	cmd := &cobra.Command{
		Use:   "why [PORT | NAMESPACE/POD | UFID]",
		Short: "Say where each flow runs, and of those not in the NIC why, and what to change",
		Long: `Say for each flow of a port where it runs - in the NIC's hardware, in tc's software,
in Open vSwitch's kernel datapath, or in user space - and of one that is not in
hardware why, in words, with the thing to change.

What is asked about is a port (a representor, an uplink, a bond or a tunnel's netdev), a
pod, each VF of which is shown, by sluice's record of it or, where another CNI plugin has
attached it, by the kubelet; or one flow by its number, of which eight digits will do.
Without a name it is all pods that have a VF, or where there are none all representors.

A rule that a driver has not taken is offered to it again for its words, as a copy that
no packet can meet and that is removed at once; --ask=false leaves that out.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.sim != "" {
				return status{exitUsage, errors.New("a simulated machine (--sim) has no packets and no flows")}
			}
			return o.with(func(n *node) error {
				reports, err := n.why(cmd.Context(), ask, args...)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), struct {
					Ports []why.Report `json:"ports"`
				}{orEmpty(reports)}, func(w io.Writer) { whyTable(w, reports) })
			})
		},
	}
	cmd.Flags().BoolVar(&ask, "ask", true, "ask drivers why they have not taken a rule")
	return cmd
}

// why looks at what is called by name, or with none at everything.
func (n *node) why(ctx context.Context, ask bool, name ...string) ([]why.Report, error) {
	begin, err := n.around(ctx, probe.Reader{}.Kernel())
	if err != nil {
		return nil, err
	}
	rules, err := tc.Open()
	if err != nil {
		return nil, err
	}
	defer rules.Close()
	conn, err := netlink.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := look.Reader{Rules: rules, Ways: rtnl.New(conn), Switch: proof.Datapath{}, Ask: ask}
	if len(name) == 0 {
		return r.All(ctx, begin)
	}
	return r.At(ctx, begin, name[0])
}

// around reads what a look at flows begins with. A switch that does not run is what the
// report tells of, no error.
func (n *node) around(ctx context.Context, kernel capability.Kernel) (look.Node, error) {
	state, err := n.observe(ctx)
	if err != nil {
		return look.Node{}, err
	}
	links, err := n.machine.Links.Links(ctx)
	if err != nil {
		return look.Node{}, err
	}
	found, err := record.In(n.dir).All()
	if err != nil {
		return look.Node{}, err
	}
	var records []*record.Record
	for _, f := range found {
		if f.Record != nil && !f.Record.Outlived(n.machine.Boot) {
			records = append(records, f.Record)
		}
	}
	out := look.Node{State: state, Links: links, Records: records}
	out.Capabilities = capability.Facts{Kernel: kernel, Switch: probe.Reader{}.Switch(ctx)}
	if out.Capabilities.Switch.Error != "" {
		return out, nil
	}
	c, err := ovsdb.Connect(ctx, "")
	if err != nil {
		return look.Node{}, err
	}
	defer c.Close()
	out.Bridges, err = look.ReadBridges(ctx, c)
	return out, err
}

// whyTable prints each port with its flows, and below one that is not in hardware the
// reasons, each with what to change.
func whyTable(w io.Writer, reports []why.Report) {
	if len(reports) == 0 {
		fmt.Fprintln(w, "no representors: no PF of this machine is in switchdev mode with VFs")
		return
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, r)
		reasons(w, "  ", r.Reasons)
		if len(r.Flows) == 0 {
			continue
		}
		var rows strings.Builder
		tw := tabwriter.NewWriter(&rows, 2, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  "+strings.Join(why.Columns(), "\t"))
		for _, v := range r.Flows {
			fmt.Fprintln(tw, "  "+strings.Join(v.Row(), "\t"))
		}
		tw.Flush()
		lines := strings.SplitAfter(rows.String(), "\n")
		fmt.Fprint(w, lines[0])
		for i, v := range r.Flows {
			fmt.Fprint(w, lines[i+1])
			reasons(w, "      ", v.Reasons)
		}
	}
}

func reasons(w io.Writer, indent string, list []why.Reason) {
	for _, r := range list {
		fmt.Fprintf(w, "%s%s\n", indent, r)
		if r.Change != "" {
			fmt.Fprintf(w, "%s    -> %s\n", indent, r.Change)
		}
	}
}
