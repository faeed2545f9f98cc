package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/apply"
)

func applyCommand(o *options) *cobra.Command {
	var file string
	var resume, drained bool
	cmd := &cobra.Command{
		Use:   "apply (-f FILE | --resume)",
		Short: "Do the plan; what fails goes back to what was before",
		Long: `Do the plan of FILE, or with --resume finish what an interrupted run wanted.

Exit status: 0 reached, 1 refused and nothing touched, 3 rolled back, 4 reached but
not committed for the next boot.`,
		Args: fileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if resume == (file != "") {
				return status{exitUsage, errors.New("want either -f FILE or --resume")}
			}
			return o.change(cmd, func(ctx context.Context, n *node, r *apply.Runner) (apply.Result, error) {
				r.Drained = drained
				if resume {
					return r.Resume(ctx)
				}
				w, err := n.wish(ctx, file)
				if err != nil {
					return apply.Result{}, err
				}
				w.warn(cmd.ErrOrStderr())
				if err := n.probe(ctx, r, w.conduct); err != nil {
					return apply.Result{}, err
				}
				return r.Run(ctx, w.spec)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "NodeNIC document, - for standard input")
	cmd.Flags().BoolVar(&drained, "drain-done", false, "VFs and SFs in use may be taken: whoever used them is gone")
	cmd.Flags().BoolVar(&resume, "resume", false, "finish what an interrupted run wanted")
	return cmd
}

// change runs something that changes the machine, shows its progress, and turns
// its end into an exit status.
func (o *options) change(cmd *cobra.Command, do func(context.Context, *node, *apply.Runner) (apply.Result, error)) error {
	return o.with(func(n *node) error {
		out := cmd.OutOrStdout()
		var t *ticks
		if o.output == "table" {
			t = newTicks(out)
		}
		result, err := do(cmd.Context(), n, n.runner(t.event))
		if result.Outcome == "" || result.Outcome == apply.Refused {
			return err
		}
		if perr := o.print(out, result, func(w io.Writer) { ending(w, result, t.foreseen()) }); perr != nil {
			err = errors.Join(err, perr)
		}
		if result.Journal != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "sluice: the journal is not whole:", result.Journal)
		}
		if err != nil {
			if result.Uncommitted != nil {
				err = errors.Join(err, fmt.Errorf("what was reached of the others is not committed: %w", result.Uncommitted))
			}
			return status{exitRolledBack, err}
		}
		if result.Uncommitted != nil {
			return status{exitUnwritten, fmt.Errorf("reached, and not committed: the next boot will not make it so: %w", result.Uncommitted)}
		}
		return nil
	})
}

// ending is the last line of a run.
func ending(w io.Writer, r apply.Result, foreseen int) {
	steps := 0
	for _, s := range r.Scopes {
		steps += s.Steps
	}
	switch {
	case r.ID == 0:
		fmt.Fprintln(w, "nothing to do: the node is as wanted")
		return
	case r.TookOver != 0:
		fmt.Fprintf(w, "run %s, taking over the interrupted run %s: %s, %d steps", r.ID, r.TookOver, r.Outcome, steps)
	default:
		fmt.Fprintf(w, "run %s: %s, %d steps", r.ID, r.Outcome, steps)
	}
	if r.Outcome == apply.Reached && steps < foreseen {
		fmt.Fprintf(w, " of %d foreseen: the others were not needed", foreseen)
	}
	fmt.Fprintln(w)
}
