package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// nearGPU says how near a GPU is to a PF: a pod that has both wants them near.
type nearGPU struct {
	Address string     `json:"address"`
	PF      nic.Handle `json:"pf"`
	Near    nic.Near   `json:"near"`
	NUMA    int        `json:"numa"`
	Path    string     `json:"path,omitempty"`
}

// nearGPUs pairs each PF with each GPU. Machines that know of none have none.
func nearGPUs(ctx context.Context, m host.Machine, state nic.State) ([]nearGPU, error) {
	if m.GPUs == nil {
		return nil, nil
	}
	list, err := m.GPUs.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	var out []nearGPU
	for _, p := range state.PFs {
		for _, g := range list {
			out = append(out, nearGPU{
				Address: g.Address, PF: p.Handle, NUMA: g.NUMA, Path: g.Path,
				Near: nic.Distance(p.Path, g.Path, p.NUMA, g.NUMA),
			})
		}
	}
	return out, nil
}

func gpuTable(w io.Writer, near []nearGPU) {
	if len(near) == 0 {
		return
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\tNUMA\tFROM\tDISTANCE")
	for _, g := range near {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", g.Address, numaText(g.NUMA), g.PF, g.Near)
	}
	tw.Flush()
}
