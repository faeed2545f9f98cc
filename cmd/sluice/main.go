// Command sluice discovers a node's NICs, brings them to a wanted state by a plan
// that is shown first, offers their VFs to kubelet, and shows which flows run in
// hardware.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit statuses. Scripts and units rely on them.
const (
	exitReached    = 0
	exitRefused    = 1 // the input or the question was wrong; nothing was touched
	exitUsage      = 2
	exitRolledBack = 3 // something failed on the way; what was touched is back, or said not to be
	exitUnwritten  = 4 // reached, and not committed: the next boot will not make it so
)

// status is an error that chooses the exit status.
type status struct {
	code int
	err  error
}

func (s status) Error() string { return s.err.Error() }
func (s status) Unwrap() error { return s.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Who has been asked to end once and has not ended goes at the second signal:
	// what a killed run leaves is taken over by the next.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: tests call it.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	o := &options{}
	root := newRoot(o)
	check, begun := root.PersistentPreRunE, false
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		begun = true
		return check(cmd, args)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitReached
	}
	fmt.Fprintln(stderr, "sluice: "+err.Error())
	code := exitRefused
	var s status
	switch {
	case errors.As(err, &s):
		code = s.code
	case !begun:
		code = exitUsage // no such command, or arguments that it does not take
	}
	if err := o.refuse(stdout, err, code); err != nil {
		fmt.Fprintln(stderr, "sluice: "+err.Error())
	}
	return code
}

func newRoot(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:               "sluice",
		Short:             "NICs with a switch inside: planned, sliced, plugged, and proven in hardware",
		Version:           version(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return o.check() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return status{exitUsage, err} })
	o.bind(root.PersistentFlags())
	root.AddCommand(
		observeCommand(o),
		planCommand(o),
		applyCommand(o),
		journalCommand(o),
		rollbackCommand(o),
		bootCommand(o),
		agentCommand(o),
		controllerCommand(),
		flowsCommand(o),
		whyCommand(o),
		networkCommand(o),
		benchCommand(o),
		convertCommand(o),
		installCNICommand(o),
		uninstallCNICommand(o),
		versionCommand(o),
	)
	return root
}
