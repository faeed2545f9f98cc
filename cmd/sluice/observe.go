package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/host"
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
				n.whereabouts(cmd.Context(), &state, "/run/netns")
				rdma, err := n.machine.RDMA.Devices(cmd.Context())
				if err != nil {
					return err
				}
				near, err := nearGPUs(cmd.Context(), n.machine, state)
				if err != nil {
					return err
				}
				cards := state.Cards()
				return o.print(cmd.OutOrStdout(), struct {
					Cards       []nic.Card        `json:"cards"`
					Bonds       []nic.Bond        `json:"bonds,omitempty"`
					RDMA        nic.RDMA          `json:"rdma,omitzero"`
					RDMADevices []host.RDMADevice `json:"rdmaDevices,omitempty"`
					GPUs        []nearGPU         `json:"gpus,omitempty"`
				}{orEmpty(cards), state.Bonds, state.RDMA, rdma, near}, func(w io.Writer) {
					cardTable(w, cards, state)
					bondTable(w, state)
					gpuTable(w, near)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&capabilities, "capabilities", false, "show what this node can put into its NICs, what not and why, and what to change")
	return cmd
}

// cardTable prints a line for each PF and VF. Cards are told apart by a header
// line, so that it is plain which ports share a switch.
func cardTable(w io.Writer, cards []nic.Card, state nic.State) {
	if len(cards) == 0 {
		fmt.Fprintln(w, "no network cards: this machine has no PCI function of class 02")
		return
	}
	for i, c := range cards {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "card %d  %s  serial %s%s\n", i, orDash(c.Product), orDash(c.Serial), firmwareText(c))
		if c.Rules.Why != "" {
			fmt.Fprintf(w, "  room for offloaded rules: %d %%: %s\n", c.Rules.Percent, c.Rules.Why)
		}
		tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  FUNCTION\tID\tDRIVER\tNETDEV\tMAC\tMTU\tESWITCH\tVFS\tREPRESENTOR\tRDMA\tNUMA\tUSE")
		for _, p := range c.PFs {
			fmt.Fprintf(tw, "  %s\t%s:%s\t%s\t%s\t%s\t%s\t%s\t%s\t-\t%s\t%s\t%s\n",
				p.Handle, p.Vendor, p.Device, orDash(p.Driver), orDash(p.Uplink.Name), orDash(macText(p.Uplink.MAC)),
				mtuText(p.Uplink), orDash(string(p.Eswitch)), vfCount(p), orDash(strings.Join(p.RDMA, ",")), numaText(p.NUMA), orDash(portUse(p, state)))
			for _, v := range p.VFs {
				if v.Gone {
					fmt.Fprintf(tw, "    vf %d\t-\tgone\t-\t-\t-\t\t\t%s\t-\t%s\t-\n", v.Index, orDash(v.Rep.Netdev.Name), numaText(p.NUMA))
					continue
				}
				mac := v.MAC
				if v.Netdev.Exists() {
					mac = v.Netdev.MAC
				}
				fmt.Fprintf(tw, "    vf %d\t%s\t%s\t%s\t%s\t%s\t\t\t%s\t%s\t%s\t%s\n",
					v.Index, v.Address, orDash(v.Driver), orDash(v.Netdev.Name), orDash(macText(mac)), mtuText(v.Netdev),
					orDash(v.Rep.Netdev.Name), orDash(strings.Join(v.RDMA, ",")), numaText(p.NUMA), orDash(use(v.InUse(), v.Netns)))
			}
			for _, f := range p.SFs {
				fmt.Fprintf(tw, "    sf %d\t%s\t%s\t%s\t%s\t%s\t\t\t%s\t%s\t%s\t%s\n",
					f.Num, orDash(f.Device), sfState(f), orDash(f.Netdev.Name), orDash(macText(f.MAC)), mtuText(f.Netdev),
					orDash(f.Rep.Name), orDash(strings.Join(f.RDMA, ",")), numaText(p.NUMA), orDash(use(f.InUse(), f.Netns)))
			}
		}
		tw.Flush()
	}
}

// firmwareText is the firmware of a card, or those of its ports where they differ.
func firmwareText(c nic.Card) string {
	var versions []string
	for _, p := range c.PFs {
		if p.Firmware != "" && !slices.Contains(versions, p.Firmware) {
			versions = append(versions, p.Firmware)
		}
	}
	if versions == nil {
		return ""
	}
	return "  firmware " + strings.Join(versions, ", ")
}

// portUse says in which bond a port is, and what of the host runs over it.
func portUse(p nic.PF, state nic.State) string {
	use := p.Carries
	if b := state.BondOf(p.Handle); b != nil {
		use = append([]string{"in bond " + b.Name}, use...)
	}
	return strings.Join(use, ", ")
}

// use says who has a VF or an SF, and where.
func use(by, netns string) string {
	if netns == "" {
		return by
	}
	return by + ", in " + netns
}

func sfState(f nic.SF) string {
	switch {
	case f.Active && f.Attached:
		return "attached"
	case f.Active:
		return "active"
	}
	return "inactive"
}

// bondTable prints the bonds of uplinks, and whether hardware aggregates them.
func bondTable(w io.Writer, state nic.State) {
	for _, b := range state.Bonds {
		var members []string
		lag := nic.LAGActive
		for _, h := range b.Members {
			members = append(members, h.String())
			if pf := state.PF(h); pf != nil && pf.LAG != nic.LAGActive {
				lag = pf.LAG
			}
		}
		fmt.Fprintf(w, "\nbond %s  %s, %s, VF-LAG %s\n", b.Name, b.Mode, upDown(b.Netdev), orDash(string(lag)))
		fmt.Fprintf(w, "  members  %s\n", orDash(strings.Join(append(members, b.Others...), ", ")))
		if b.Active != "" {
			fmt.Fprintf(w, "  active   %s\n", b.Active)
		}
	}
}

func upDown(n nic.Netdev) string {
	switch {
	case n.Up && n.Carrier:
		return "up"
	case n.Up:
		return "up without carrier"
	}
	return "down"
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
