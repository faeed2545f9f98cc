package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nic"
)

func observeCommand(o *options) *cobra.Command {
	var capabilities bool
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Show the cards, their PFs, VFs and representors, or what the node can offload",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(n *node) error {
				state, err := n.observe(cmd.Context())
				if err != nil {
					return err
				}
				if capabilities {
					report := o.capabilities(cmd.Context(), state)
					return o.print(cmd.OutOrStdout(), report, func(w io.Writer) { capabilityTable(w, report) })
				}
				cards := state.Cards()
				return o.print(cmd.OutOrStdout(), struct {
					Cards []nic.Card `json:"cards"`
				}{orEmpty(cards)}, func(w io.Writer) { cardTable(w, cards) })
			})
		},
	}
	cmd.Flags().BoolVar(&capabilities, "capabilities", false, "show what this node can put into its NICs, what not and why, and what to change")
	return cmd
}

// cardTable prints a line for each PF and VF. Cards are told apart by a header
// line, so that it is plain which ports share a switch.
func cardTable(w io.Writer, cards []nic.Card) {
	if len(cards) == 0 {
		fmt.Fprintln(w, "no network cards: this machine has no PCI function of class 02")
		return
	}
	for i, c := range cards {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "card %d  %s  serial %s\n", i, orDash(c.Product), orDash(c.Serial))
		tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  FUNCTION\tID\tDRIVER\tNETDEV\tMAC\tMTU\tESWITCH\tVFS\tREPRESENTOR\tRDMA\tNUMA\tUSE")
		for _, p := range c.PFs {
			fmt.Fprintf(tw, "  %s\t%s:%s\t%s\t%s\t%s\t%s\t%s\t%s\t-\t%s\t%s\t-\n",
				p.Handle, p.Vendor, p.Device, orDash(p.Driver), orDash(p.Uplink.Name), orDash(macText(p.Uplink.MAC)),
				mtuText(p.Uplink), orDash(string(p.Eswitch)), vfCount(p), orDash(strings.Join(p.RDMA, ",")), numaText(p.NUMA))
			for _, v := range p.VFs {
				mac := v.MAC
				if v.Netdev.Exists() {
					mac = v.Netdev.MAC
				}
				fmt.Fprintf(tw, "    vf %d\t%s\t%s\t%s\t%s\t%s\t\t\t%s\t%s\t%s\t%s\n",
					v.Index, v.Address, orDash(v.Driver), orDash(v.Netdev.Name), orDash(macText(mac)), mtuText(v.Netdev),
					orDash(v.Rep.Netdev.Name), orDash(strings.Join(v.RDMA, ",")), numaText(p.NUMA), orDash(v.InUse()))
			}
		}
		tw.Flush()
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func macText(m nic.MAC) string {
	if m.IsZero() {
		return ""
	}
	return m.String()
}

func mtuText(n nic.Netdev) string {
	if !n.Exists() {
		return "-"
	}
	return fmt.Sprint(n.MTU)
}

func numaText(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func vfCount(p nic.PF) string {
	if p.TotalVFs == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", len(p.VFs), p.TotalVFs)
}
