package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/plan"
)

func planCommand(o *options) *cobra.Command {
	var file string
	var drained bool
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show the steps that would be done, and what each costs; touches nothing",
		Args:  fileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(n *node) error {
				w, err := n.wish(cmd.Context(), file)
				if err != nil {
					return err
				}
				w.warn(cmd.ErrOrStderr())
				r := n.runner(nil)
				r.Drained = drained
				p, takesOver, err := r.Preview(cmd.Context(), w.spec)
				if err != nil {
					return err
				}
				if takesOver != 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "sluice: run %s was interrupted; this takes it over\n", takesOver)
				}
				return o.print(cmd.OutOrStdout(), p, func(w io.Writer) { planTable(w, p) })
			})
		},
	}
	cmd.Flags().BoolVar(&drained, "drain-done", false, "VFs and SFs in use may be taken: whoever used them is gone")
	cmd.Flags().StringVarP(&file, "file", "f", "", "NodeNIC document, - for standard input")
	return cmd
}

func planTable(w io.Writer, p plan.Plan) {
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, "nothing to do: the node is as wanted")
		return
	}
	for i, s := range p.Steps {
		fmt.Fprintf(w, "%3d  %s%s\n", i+1, s, impactNote(p.Impacts[i]))
	}
	fmt.Fprintf(w, "%d steps, impact: %s\n", len(p.Steps), p.Impact())
}

func impactNote(i plan.Impact) string {
	if i == plan.None {
		return ""
	}
	return "  (" + i.String() + ")"
}
