package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
)

func bootCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "boot",
		Short: "Bring the node to the last committed state, before network, Open vSwitch and kubelet start",
		Long: `Bring the node to the last committed state: what earlier runs have reached, the last
one for each PF. It asks nothing of the network and of no API server.

PFs that are gone are passed over. Of a bond that somebody else makes, which at this
time is not there yet, the ports are made ready and their VFs left without driver;
the agent binds them when the bond is in hardware.

Exit status: as of apply; 0 also when nothing was ever committed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd, func(ctx context.Context, n *node, r *apply.Runner) (apply.Result, error) {
				return n.toCommitted(ctx, r, func(gone nic.Handle) {
					fmt.Fprintf(cmd.ErrOrStderr(), "sluice: %s is not there: passed over\n", gone)
				})
			})
		},
	}
}

// toCommitted brings a machine that has just been booted to what was committed.
func (n *node) toCommitted(ctx context.Context, r *apply.Runner, passedOver func(nic.Handle)) (apply.Result, error) {
	committed, err := r.Journal.Committed()
	if err != nil {
		return apply.Result{}, err
	}
	state, err := n.observe(ctx)
	if err != nil {
		return apply.Result{}, err
	}
	spec := atBoot(committed, state)
	for _, w := range committed.PFs {
		if spec.PF(w.Handle) == nil {
			passedOver(w.Handle)
		}
	}
	r.Spare, r.Uncommitted, r.Booted = true, true, true
	return r.Run(ctx, spec)
}

// atBoot is what of the committed state can be had before the network is up.
func atBoot(committed nic.Spec, state nic.State) nic.Spec {
	out := nic.Spec{RDMA: committed.RDMA}
	if state.RDMA.Mode == "" {
		out.RDMA = "" // its modules are not loaded yet
	}
	for _, w := range committed.PFs {
		pf := state.PF(w.Handle)
		if pf == nil {
			continue
		}
		if b := committed.BondOf(w.Handle); b != nil && (b.Adopt || !allThere(*b, state)) {
			w = unbound(w, *pf)
		}
		out.PFs = append(out.PFs, w)
	}
	for _, b := range committed.Bonds {
		if !b.Adopt && allThere(b, state) {
			out.Bonds = append(out.Bonds, b)
		}
	}
	return out
}

func allThere(b nic.BondSpec, state nic.State) bool {
	return !slices.ContainsFunc(b.Members, func(h nic.Handle) bool { return state.PF(h) == nil })
}

// unbound wants all VFs of a port without driver, and no bond.
func unbound(w nic.PFSpec, pf nic.PF) nic.PFSpec {
	count := len(pf.VFs)
	if w.VFCount != nil {
		count = *w.VFCount
	}
	vfs := make([]nic.VFSpec, count)
	for i := range vfs {
		vfs[i] = nic.VFSpec{Driver: nic.DriverNone, MAC: w.VF(i).MAC}
	}
	w.VFs, w.Bond = vfs, nil
	return w
}
