package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/agent"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// agentRun is what runs on a node: it brings the node to what FILE wants, finishing
// an interrupted run first, and then keeps the pools offered to kubelet.
type agentRun struct {
	node    *node
	file    string
	kubelet string
	every   time.Duration
	log     *slog.Logger
}

func agentCommand(o *options) *cobra.Command {
	a := &agentRun{}
	cmd := &cobra.Command{
		Use:   "agent -f FILE",
		Short: "Keep the node as FILE wants it and offer its pools to kubelet",
		Long: `Bring the node to what FILE wants, finishing an interrupted run first; then offer
its pools to kubelet, and watch the node: what somebody else changes is seen within
a second, reported, and mended (or only reported, with drift: report in FILE).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(n *node) error {
				a.node = n
				a.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
				return a.run(cmd.Context())
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.file, "file", "f", "", "NodeNIC document")
	f.StringVar(&a.kubelet, "kubelet-dir", deviceplugin.DefaultDir, "folder of kubelet's device plugin sockets")
	f.DurationVar(&a.every, "every", agent.Every, "how often the machine is looked at when nothing tells of a change")
	return cmd
}

func (a *agentRun) run(ctx context.Context) error {
	if a.every <= 0 {
		return status{exitUsage, fmt.Errorf("--every %s: want more than nothing", a.every)}
	}
	// From before the first look, so that no change falls between.
	changes, err := a.changes(ctx)
	if err != nil {
		return err
	}
	w, err := a.converge(ctx)
	if err != nil {
		return err
	}
	state, err := a.node.observe(ctx)
	if err != nil {
		return err
	}
	pools, err := deviceplugin.Resolve(poolTexts(w.doc, state), state, w.spec)
	if err != nil {
		return fmt.Errorf("%s: spec.%w", a.file, err)
	}
	plugin, err := deviceplugin.New(deviceplugin.Config{
		Dir:     a.kubelet,
		Pools:   pools,
		Observe: a.node.observe,
		RDMA:    a.node.machine.RDMA.Devices,
		Log:     a.log,
	})
	if err != nil {
		return err
	}
	looked := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(ctx)
	var guard sync.WaitGroup
	guard.Go(func() { a.guard(w, changes, looked).Run(ctx) })
	err = plugin.Run(ctx, looked)
	ended := ctx.Err() != nil
	stop()
	guard.Wait()
	if ended {
		return nil
	}
	return err
}

// changes tells of the machine's changes; a machine that cannot tell is looked at
// every two seconds.
func (a *agentRun) changes(ctx context.Context) (<-chan host.Change, error) {
	if a.node.machine.Watch != nil {
		return a.node.machine.Watch.Changes(ctx)
	}
	a.every = min(a.every, 2*time.Second)
	return nil, nil
}

// guard keeps the node as w has it, and tells looked after each look.
func (a *agentRun) guard(w *wish, changes <-chan host.Change, looked chan<- struct{}) *agent.Guard {
	g := &agent.Guard{
		Changes: changes,
		Observe: a.node.observe,
		Want:    func(state nic.State) (nic.Spec, error) { return policy.Resolve(w.doc, state) },
		Looked: func() {
			select {
			case looked <- struct{}{}:
			default: // it has yet to hear of the last one
			}
		},
		Every: a.every,
		Log:   a.log,
	}
	if w.conduct.Drift == policy.DriftMend {
		g.Mend = func(ctx context.Context, spec nic.Spec) error {
			_, err := a.change(ctx, w.conduct, spec)
			return err
		}
	}
	return g
}

// converge brings the node to what the document wants. An interrupted run needs
// no step of its own: this one takes it over.
func (a *agentRun) converge(ctx context.Context) (*wish, error) {
	w, err := a.node.wish(ctx, a.file)
	if err != nil {
		return nil, err
	}
	result, err := a.change(ctx, w.conduct, w.spec)
	if err == nil {
		a.log.Info("the node is as wanted", "run", result.ID, "tookOver", result.TookOver)
	}
	return w, err
}

// change is one run. VFs in pods are as their attachments made them, until they
// come back.
func (a *agentRun) change(ctx context.Context, c policy.Conduct, spec nic.Spec) (apply.Result, error) {
	runner := a.node.runner(a.progress)
	if err := a.node.probe(ctx, runner, c); err != nil {
		return apply.Result{}, err
	}
	runner.Spare = true
	result, err := runner.Run(ctx, spec)
	if result.Journal != nil {
		a.log.Error("the journal is not whole", "error", result.Journal)
	}
	var refused *apply.RefusedError
	if err != nil && !errors.As(err, &refused) {
		err = status{exitRolledBack, err}
	}
	return result, err
}

func (a *agentRun) progress(e apply.Event) {
	switch e.Kind {
	case apply.EventDone:
		a.log.Info("done", "step", e.Step.String())
	case apply.EventFailed:
		a.log.Error("failed", "step", e.Step.String(), "error", e.Err)
	case apply.EventBack:
		a.log.Warn("goes back", "pf", e.Scope.String(), "error", e.Err)
	}
}

func poolTexts(doc *v1alpha1.NodeNIC, state nic.State) []deviceplugin.Text {
	var out []deviceplugin.Text
	for _, p := range doc.Spec.Pools {
		out = append(out, deviceplugin.Text{Prefix: p.Prefix, Name: p.Name, PFs: policy.PoolPFs(p, state), Driver: p.Driver, RDMA: p.RDMA})
	}
	return out
}
