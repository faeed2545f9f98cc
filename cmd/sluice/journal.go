package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/apply"
)

func journalCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "journal [RUN]",
		Short: "List the runs that changed this node, or show one of them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := o.dir()
			if err != nil {
				return err
			}
			journal := (&node{dir: dir}).journal()
			if len(args) == 1 {
				id, err := apply.ParseID(args[0])
				if err != nil {
					return err
				}
				e, err := journal.Find(id)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), e, func(w io.Writer) { runTable(w, e) })
			}
			runs, err := journal.List()
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), struct {
				Runs []apply.Entry `json:"runs"`
			}{orEmpty(runs)}, func(w io.Writer) { runsTable(w, runs) })
		},
	}
}

func runsTable(w io.Writer, runs []apply.Entry) {
	if len(runs) == 0 {
		fmt.Fprintln(w, "no runs")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "RUN\tTIME\tKIND\tPFS\tSTEPS\tOUTCOME\tERROR")
	for _, e := range runs {
		note := e.Error
		if e.Damage != "" {
			note = "damaged: " + e.Damage
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", e.ID, timeText(e.Time), orDash(kindText(e)),
			len(e.Spec.PFs), len(e.Steps), e.Outcome, orDash(firstLine(note)))
	}
	tw.Flush()
}

// timeText is a dash for a record whose beginning cannot be read.
func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func kindText(e apply.Entry) string {
	if e.Of != 0 {
		return fmt.Sprintf("%s of %s", e.Kind, e.Of)
	}
	return string(e.Kind)
}

func runTable(w io.Writer, e apply.Entry) {
	fmt.Fprintf(w, "run %s: %s, begun %s, %s\n", e.ID, kindText(e), e.Time.Local().Format(time.DateTime), e.Outcome)
	for _, s := range e.Steps {
		note := ""
		if s.Error != "" {
			note = ": " + s.Error
		}
		fmt.Fprintf(w, "  %-8s  %s%s\n", s.State, s.Step, note)
	}
	if e.Error != "" {
		fmt.Fprintln(w, e.Error)
	}
	if e.Damage != "" {
		fmt.Fprintln(w, "damaged:", e.Damage)
	}
}

func firstLine(s string) string {
	for i, c := range s {
		if c == '\n' {
			return s[:i] + " ..."
		}
	}
	return s
}

func rollbackCommand(o *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rollback [RUN]",
		Short: "Bring the node back to what it was before a run, the last one if none is named",
		Long: `Bring the PFs that a run changed back to what they were before it. Rolling back is
a run of its own and can be rolled back in turn. VFs that are in use are spared.
With --all whatever later runs changed goes back too: the node is as it was before
that run.

Exit status: as of apply.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.change(cmd, func(ctx context.Context, n *node, r *apply.Runner) (apply.Result, error) {
				id, err := runToRollBack(args, r.Journal)
				if err != nil {
					return apply.Result{}, err
				}
				if all {
					return r.RollbackTo(ctx, id)
				}
				return r.Rollback(ctx, id)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also what later runs changed")
	return cmd
}

// runToRollBack is the named run, else the last one that left something: also one
// that was interrupted or reached what it wanted of some PFs alone, since what was
// before an earlier run is not what was before the last change. An interrupted run
// with another after it was taken over by that one.
func runToRollBack(args []string, j *apply.Journal) (apply.ID, error) {
	if len(args) == 1 {
		return apply.ParseID(args[0])
	}
	runs, err := j.List()
	if err != nil {
		return 0, err
	}
	for i, e := range slices.Backward(runs) {
		if e.Lasting() && (e.Outcome != apply.Interrupted || i == len(runs)-1) {
			return e.ID, nil
		}
	}
	return 0, errors.New("no run to roll back: the journal has none that left a change")
}
