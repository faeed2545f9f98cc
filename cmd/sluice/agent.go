package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/cni"
	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/agent"
	"sluice.dev/sluice/pkg/apply"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// agentRun is what runs on a node: it brings the node to what FILE wants, finishing
// an interrupted run first, and then keeps it so and its pools offered to kubelet.
type agentRun struct {
	node    *node
	file    string
	kubelet string
	every   time.Duration
	read    time.Duration // how often FILE is looked at
	log     *slog.Logger

	sriov *sriovConfig // nil without

	held chan struct{} // something is in it when pods have other devices than before

	infos, specs string // folders of device information and CDI specs
	ovsdb        string // endpoint of the Open vSwitch that is swept; "" none

	flows time.Duration // how often flows are looked at; 0 never

	doors  doors
	health string // address of /healthz and /readyz
	meters *meters
	ready  readiness

	cluster *cluster // whom what is wanted comes from with --node; nil: FILE is people's
}

func agentCommand(o *options) *cobra.Command {
	a, sriov := &agentRun{read: 2 * time.Second, held: make(chan struct{}, 1), meters: newMeters()}, &sriovConfig{}
	var name, kubeconfig string
	var tell logging
	cmd := &cobra.Command{
		Use:   "agent (-f FILE | --node NAME | --sriov-config FILE)",
		Short: "Keep the node as FILE wants it and offer its pools to kubelet",
		Long: `Bring the node to what FILE wants, finishing an interrupted run first; then offer
its pools to kubelet, and watch the node: what somebody else changes is seen within
a second, reported, and mended (or only reported, with drift: report in FILE).

FILE is followed: when it has changed the node is brought to what it wants now. One
that is wrong is reported, and the last good one stays in force.

What sluice apply and sluice rollback reach meanwhile is wanted from then on, over
what FILE says, until FILE is another.

With --sriov-config the resources of a configuration of the SR-IOV network device
plugin are offered as they are, beside the pools of FILE or without one. It is
followed as well.

With --node what is wanted is the NodeNIC of that name at the API server, which is
also told what is planned, done and there. What was last taken up is kept in the
state folder, and is what the node is kept as while the API server is away.`,
		Args: fileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.doors.check(); err != nil {
				return err
			}
			var err error
			if a.log, err = tell.to(cmd.ErrOrStderr()); err != nil {
				return err
			}
			return o.with(func(n *node) error {
				a.node, a.ovsdb = n, cni.DefaultOVSDB
				if sriov.file != "" {
					sriov.log, a.sriov = a.log, sriov
				}
				if o.sim != "" { // its devices are none for others to read of, nor in a bridge, and it has no flows
					a.ovsdb, a.flows = "", 0
					a.infos, a.specs = filepath.Join(n.dir, "devinfo"), filepath.Join(n.dir, "cdi")
				}
				if name != "" && a.file != "" {
					return status{exitUsage, errors.New("want either -f FILE or --node NAME")}
				}
				if name != "" {
					if err := a.join(o, name, kubeconfig); err != nil {
						return err
					}
				}
				return a.run(cmd.Context())
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&a.file, "file", "f", "", "NodeNIC document")
	f.StringVar(&sriov.file, "sriov-config", "", "configuration of the SR-IOV network device plugin, JSON, whose resources are offered")
	f.StringVar(&sriov.prefix, "resource-prefix", "intel.com", "prefix of resources in it that name none")
	f.StringVar(&name, "node", "", "name of this node, whose NodeNIC at the API server is followed")
	f.StringVar(&kubeconfig, "kubeconfig", "", "how the API server is reached (default: as pods reach it)")
	f.StringVar(&a.kubelet, "kubelet-dir", deviceplugin.DefaultDir, "folder of kubelet's device plugin sockets")
	f.StringVar(&a.infos, "devinfo-dir", deviceplugin.DefaultDeviceInfo, "folder where CNI plugins look for what they were given")
	f.StringVar(&a.specs, "cdi-dir", deviceplugin.DefaultCDI, "folder where container runtimes look for CDI specs")
	f.DurationVar(&a.every, "every", agent.Every, "how often the machine is looked at when nothing tells of a change")
	f.DurationVar(&a.flows, "flows-every", 30*time.Second, "how often it is looked where the pods' flows run, where Open vSwitch does; 0 for never")
	f.StringVar(&a.health, "health-address", "0", "where /healthz and /readyz answer, for example 127.0.0.1:9109; 0 for nowhere")
	a.doors.bind(f)
	tell.bind(f)
	return cmd
}

func (a *agentRun) run(ctx context.Context) error {
	if a.every <= 0 {
		return status{exitUsage, fmt.Errorf("--every %s: want more than nothing", a.every)}
	}
	if a.flows < 0 || a.flows > 0 && a.flows < time.Second {
		return status{exitUsage, fmt.Errorf("--flows-every %s: want a second or more, or 0 for never", a.flows)}
	}
	if a.sriov != nil {
		if _, err := a.sriov.read(); err != nil {
			return err
		}
	}
	// Before the first run, which may take longer than whoever probes waits.
	shutHealth, err := answer(ctx, "health", a.health, a.ready.probes())
	if err != nil {
		return err
	}
	defer shutHealth()
	shutDoors, err := a.doors.open(ctx, a.meters.registry)
	if err != nil {
		return err
	}
	defer shutDoors()
	a.node.podResources = a.beside("pod-resources", "kubelet.sock")
	// From before the first look, so that no change falls between.
	changes, err := a.changes(ctx)
	if err != nil {
		return err
	}
	a.sweep(ctx)
	w, err := a.begin(ctx)
	if err != nil {
		return err
	}
	o, err := a.offer(ctx, w)
	if err != nil {
		return err
	}
	defer o.stop()
	a.meters.pools.offers(o.plugin.Status)
	a.ready.offers(o.plugin.Status)
	if a.cluster != nil {
		defer a.cluster.start(ctx, o)()
	}
	defer a.watchFlows(ctx)()
	news := orHeld(ctx, changes, a.held)
	for {
		next := a.keepUntil(ctx, w, news, o)
		if next == nil {
			return nil
		}
		w = a.takeUp(ctx, next)
		o.say(o.update(ctx, w))
	}
}

// watchFlows looks at the pods' flows until ctx ends; what it returns waits for that.
func (a *agentRun) watchFlows(ctx context.Context) (wait func()) {
	var looking sync.WaitGroup
	if a.flows > 0 {
		f := &flowWatch{node: a.node, every: a.flows, log: a.log, meter: a.meters.offload}
		if a.cluster != nil {
			f.say = a.cluster.carry
		}
		looking.Go(func() { f.run(ctx) })
	}
	return looking.Wait
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

// orHeld tells of changes, until ctx ends, and when pods have other devices than
// before: what was left to them may then be mended, and nothing of the machine has
// changed that would tell.
func orHeld(ctx context.Context, changes <-chan host.Change, held <-chan struct{}) <-chan host.Change {
	out := make(chan host.Change)
	go func() {
		defer close(out)
		for {
			var c host.Change
			open := true
			select {
			case <-ctx.Done():
				return
			case c, open = <-changes:
			case <-held:
				c.What = "devices of pods"
			}
			if !open {
				changes = nil // nobody tells any more
				continue
			}
			select {
			case <-ctx.Done():
				return
			case out <- c:
			}
		}
	}()
	return out
}

// keepUntil keeps the node as w has it until there is another good document, which
// it answers, or ctx has ended: nil. A run that is under way then is not cut off.
func (a *agentRun) keepUntil(ctx context.Context, w *wanted, changes <-chan host.Change, o *offer) *wanted {
	guarding, stop := context.WithCancel(ctx)
	defer stop()
	g := &agent.Guard{
		Changes: changes,
		Observe: func(ctx context.Context) (nic.State, error) {
			state, err := a.node.observe(ctx)
			a.meters.looked(state, err)
			return state, err
		},
		Want: func(state nic.State) (nic.Spec, error) {
			spec, err := o.want(w)(state)
			if err != nil {
				a.meters.faults.WithLabelValues(faultDocument).Inc()
			}
			return spec, err
		},
		Drift: a.meters.drifted,
		Busy: func() bool {
			_, busy := a.node.journal().Running()
			return busy
		},
		Looked: func() {
			o.plugin.Look()
			if a.cluster != nil {
				a.cluster.agent.Looked()
			}
		},
		Every: a.every,
		Log:   a.log,
	}
	if w.conduct.Drift == policy.DriftMend {
		g.Mend = func(context.Context, nic.Spec) error {
			_, err := a.change(ctx, w)
			a.meters.mends.WithLabelValues(resultOf(err)).Inc()
			return err
		}
	}
	var guard sync.WaitGroup
	guard.Go(func() { g.Run(guarding) })
	guard.Go(func() { o.follow(guarding, w) })
	guard.Go(func() { a.keepSwitch(guarding, w) })
	next := a.await(ctx, w)
	stop()
	guard.Wait()
	return next
}

// change is one run to what is wanted. VFs in pods are as their attachments made
// them, until they come back.
func (a *agentRun) change(ctx context.Context, w *wanted) (apply.Result, error) {
	begun := time.Now()
	result, err := a.runTo(ctx, w)
	a.meters.ran(result.Outcome, time.Since(begun), err)
	a.ready.ran(err)
	if a.cluster != nil {
		a.cluster.ended(w, result, err)
	}
	return result, err
}

func (a *agentRun) runTo(ctx context.Context, w *wanted) (apply.Result, error) {
	runner := a.node.runner(a.progress)
	if err := a.node.probe(ctx, runner, w.conduct); err != nil {
		return apply.Result{}, err
	}
	runner.Spare, runner.Drained = true, w.drained
	alone := false // nobody else has committed anything since
	result, err := runner.RunFor(ctx, func(state nic.State) (nic.Spec, error) {
		later, err := w.later()
		if err != nil {
			return nic.Spec{}, err
		}
		alone = apply.Nothing(later)
		return w.want(state)
	})
	if result.Outcome != apply.Refused {
		a.take(w, alone && result.Uncommitted == nil, result.Committed)
	}
	if result.Journal != nil {
		a.fault(faultState, "the journal is not whole", "error", result.Journal)
	}
	if result.Uncommitted != nil {
		a.fault(faultState, "what was reached is not committed for the next boot", "error", result.Uncommitted)
	}
	var refused *apply.RefusedError
	if err != nil && !errors.As(err, &refused) {
		err = status{exitRolledBack, err}
	}
	return result, err
}

// fault logs what went wrong, and counts it.
func (a *agentRun) fault(kind, message string, about ...any) {
	a.meters.faults.WithLabelValues(kind).Inc()
	a.log.Error(message, about...)
}

func (a *agentRun) progress(e apply.Event) {
	a.meters.event(e)
	if a.cluster != nil {
		a.cluster.agent.Event(e)
	}
	switch e.Kind {
	case apply.EventDone:
		a.log.Info("done", "step", e.Step.String())
	case apply.EventFailed:
		a.log.Error("failed", "step", e.Step.String(), "error", e.Err)
	case apply.EventBack:
		a.log.Warn("goes back", "pf", e.Scope.String(), "error", e.Err)
	}
}
