package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/offload/ovn"
	logical "sluice.dev/sluice/pkg/network"
	"sluice.dev/sluice/pkg/network/slots"
	"sluice.dev/sluice/pkg/ovsdb"
	"sluice.dev/sluice/pkg/policy"
)

const defaultNorthbound = "unix:/run/ovn/ovnnb_db.sock"

// networking is one call of sluice network.
type networking struct {
	*options
	file       string
	northbound string
	nodes      []string
}

func networkCommand(o *options) *cobra.Command {
	n := &networking{options: o}
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Bring logical networks into OVN's northbound, and addresses of theirs to this node",
	}
	sub := func(use, short, long string, run func(context.Context, *ovsdb.Client, io.Writer) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Long: long, Args: fileByFlag, RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := ovsdb.Connect(cmd.Context(), n.northbound)
			if err != nil {
				return err
			}
			defer client.Close()
			return run(cmd.Context(), client, cmd.OutOrStdout())
		}}
		c.Flags().StringVarP(&n.file, "file", "f", "", "file of Network documents; all that there are: what is not in it goes")
		c.Flags().StringVar(&n.northbound, "northbound", defaultNorthbound, "OVN's northbound database: unix:PATH or tcp:HOST:PORT, several of a cluster with commas between")
		c.Flags().StringArrayVar(&n.nodes, "node", nil, "a node that has a block of each network, as NAME or NAME=CHASSIS")
		_ = c.MarkFlagRequired("file") // it is a flag
		return c
	}
	cmd.AddCommand(
		sub("plan", "Show which rows would change", `Show which rows of OVN's northbound would be made, changed and removed, and which wishes
NICs cannot be given. A node keeps the block that it has.`, n.plan),
		sub("apply", "Change them", `Make, change and remove rows of ours in OVN's northbound until they are what the
networks come to. Rows of others are never touched.`, n.apply),
		sub("grant", "Bring to this node what it has of the networks", `Write which block of each network the node named by --node has into the state folder,
where the CNI plugin takes addresses from.`, n.grant),
	)
	return cmd
}

// networks reads the documents whole, and together.
func (n *networking) networks() ([]logical.Network, error) {
	raw, err := os.ReadFile(n.file)
	if err != nil {
		return nil, err
	}
	docs, err := policy.DecodeNetworks(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.file, err)
	}
	var out []logical.Network
	var bad []error
	for i := range docs {
		one, err := policy.ResolveNetwork(&docs[i])
		if err != nil {
			bad = append(bad, fmt.Errorf("network %s: %w", docs[i].Name, err))
		}
		if slices.ContainsFunc(out, func(o logical.Network) bool { return o.Name == one.Name }) {
			bad = append(bad, fmt.Errorf("network %s: there are two of this name", one.Name))
		}
		out = append(out, one)
	}
	conflicts := policy.NetworkConflicts(out)
	for _, name := range slices.Sorted(maps.Keys(conflicts)) {
		bad = append(bad, fmt.Errorf("network %s: %s", name, strings.Join(conflicts[name], "; ")))
	}
	return out, errors.Join(bad...)
}

// wishes gives each node a block of each network, that which it has already if it has
// one.
func (n *networking) wishes(ctx context.Context, c *ovsdb.Client) ([]ovn.Wish, []ovn.Have, error) {
	networks, err := n.networks()
	if err != nil {
		return nil, nil, err
	}
	have, err := ovn.Read(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	chassis := map[string]string{}
	for _, word := range n.nodes {
		name, on, _ := strings.Cut(word, "=")
		names = append(names, name)
		chassis[name] = cmp.Or(on, name)
	}
	var out []ovn.Wish
	for _, one := range networks {
		claims, without := one.Assign(ovn.Claims(one, have), names)
		if len(without) > 0 {
			return nil, nil, fmt.Errorf("network %s: no block is left for node %s: it has %d of %d addresses", one.Name, strings.Join(without, ", "), one.Blocks(), one.Ports)
		}
		w := ovn.Wish{Network: one}
		for _, cl := range claims {
			w.Members = append(w.Members, ovn.Member{Node: cl.Node, Block: cl.Block, Chassis: chassis[cl.Node]})
		}
		out = append(out, w)
	}
	return out, have, nil
}

// rowChanges is what plan and apply print.
type rowChanges struct {
	Changes  []string            `json:"changes"`
	Warnings map[string][]string `json:"warnings,omitempty"` // by network
}

func (n *networking) tell(ctx context.Context, c *ovsdb.Client, out io.Writer, wishes []ovn.Wish, changes []ovn.Change) error {
	options, err := ovn.Options(ctx, c)
	if err != nil {
		return err
	}
	r := rowChanges{Changes: []string{}, Warnings: ovn.Warnings(wishes, nil, options)}
	for _, ch := range changes {
		r.Changes = append(r.Changes, ch.String())
	}
	return n.print(out, r, func(w io.Writer) {
		for _, line := range r.Changes {
			fmt.Fprintln(w, line)
		}
		if len(r.Changes) == 0 {
			fmt.Fprintln(w, "nothing to change")
		}
		for _, name := range slices.Sorted(maps.Keys(r.Warnings)) {
			for _, text := range r.Warnings[name] {
				fmt.Fprintf(w, "warning: network %s: %s\n", name, text)
			}
		}
	})
}

func (n *networking) plan(ctx context.Context, c *ovsdb.Client, out io.Writer) error {
	wishes, have, err := n.wishes(ctx, c)
	if err != nil {
		return err
	}
	changes, err := ovn.Plan(ovn.Rows(wishes), have)
	if err != nil {
		return err
	}
	return n.tell(ctx, c, out, wishes, changes)
}

func (n *networking) apply(ctx context.Context, c *ovsdb.Client, out io.Writer) error {
	wishes, _, err := n.wishes(ctx, c)
	if err != nil {
		return err
	}
	done, err := ovn.Apply(ctx, c, ovn.Rows(wishes))
	return errors.Join(err, n.tell(ctx, c, out, wishes, done))
}

func (n *networking) grant(ctx context.Context, c *ovsdb.Client, out io.Writer) error {
	if len(n.nodes) != 1 {
		return status{exitUsage, fmt.Errorf("--node %q: want this node's name, once", n.nodes)}
	}
	networks, err := n.networks()
	if err != nil {
		return err
	}
	have, err := ovn.Read(ctx, c)
	if err != nil {
		return err
	}
	dir, err := n.dir()
	if err != nil {
		return err
	}
	for _, one := range networks {
		claims := ovn.Claims(one, have)
		i := slices.IndexFunc(claims, func(cl logical.Claim) bool { return cl.Node == n.nodes[0] })
		if i < 0 {
			return fmt.Errorf("network %s: node %s has no block of it: sluice network apply gives it one", one.Name, n.nodes[0])
		}
		g := slots.Grant{Network: one, Block: claims[i].Block}
		if err := slots.Open(dir).Put(g); err != nil {
			return err
		}
		fmt.Fprintf(out, "network %s: block %d, %d addresses of each family\n", one.Name, g.Block, len(one.Slots(g.Block)))
	}
	return nil
}
