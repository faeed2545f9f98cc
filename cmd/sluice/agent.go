package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
	"sluice.dev/sluice/pkg/policy"
)

// agent is what runs on a node: it brings the node to what FILE wants, finishing
// an interrupted run first, and then keeps the pools offered to kubelet.
type agent struct {
	node    *node
	file    string
	kubelet string
	every   time.Duration
	log     *slog.Logger
}

func agentCommand(o *options) *cobra.Command {
	a := &agent{}
	cmd := &cobra.Command{
		Use:   "agent -f FILE",
		Short: "Bring the node to what FILE wants and offer its pools to kubelet",
		Args:  cobra.NoArgs,
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
	f.DurationVar(&a.every, "every", 2*time.Second, "how often the machine is looked at for changes")
	return cmd
}

func (a *agent) run(ctx context.Context) error {
	if a.every <= 0 {
		return status{exitUsage, fmt.Errorf("--every %s: want more than nothing", a.every)}
	}
	doc, spec, err := a.converge(ctx)
	if err != nil {
		return err
	}
	state, err := a.node.observe(ctx)
	if err != nil {
		return err
	}
	pools, err := deviceplugin.Resolve(poolTexts(doc, state), state, spec)
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
	if err := plugin.Run(ctx, tick(ctx, a.every)); ctx.Err() == nil {
		return err
	}
	return nil
}

// converge brings the node to what the document wants. An interrupted run needs
// no step of its own: this one takes it over.
func (a *agent) converge(ctx context.Context) (*v1alpha1.NodeNIC, nic.Spec, error) {
	state, err := a.node.observe(ctx)
	if err != nil {
		return nil, nic.Spec{}, err
	}
	doc, spec, err := wanted(a.file, state)
	if err != nil {
		return nil, nic.Spec{}, err
	}
	// VFs in pods are as their attachments made them, until they come back.
	result, err := a.node.runner(a.progress).Run(ctx, plan.Spare(spec, state))
	if result.Journal != nil {
		a.log.Error("the journal is not whole", "error", result.Journal)
	}
	var refused *apply.RefusedError
	if err != nil && !errors.As(err, &refused) {
		err = status{exitRolledBack, err}
	}
	if err == nil {
		a.log.Info("the node is as wanted", "run", result.ID, "tookOver", result.TookOver)
	}
	return doc, spec, err
}

func (a *agent) progress(e apply.Event) {
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

// tick sends every so often until ctx ends; a receiver that is busy misses some.
func tick(ctx context.Context, every time.Duration) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			select {
			case <-ctx.Done():
				return
			case out <- struct{}{}:
			}
		}
	}()
	return out
}
