package main

import (
	"context"
	"path/filepath"
	"sync"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// offer is an agent's pools at kubelet.
type offer struct {
	*agentRun
	plugin *deviceplugin.Plugin
	end    context.CancelFunc
	ended  sync.WaitGroup

	mu   sync.Mutex
	said string // why the pools are not those wanted; "" they are
}

// offer begins to offer the pools of w.
func (a *agentRun) offer(ctx context.Context, w *wanted) (*offer, error) {
	state, err := a.node.observe(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := a.pools(w.doc, state, w.spec)
	switch {
	case err != nil && a.cluster == nil:
		return nil, err
	case err != nil: // they are offered when they can be made out, or are others
		a.fault(faultPools, "no pools are offered for now", "error", err)
		pools = nil
	}
	o := &offer{agentRun: a}
	if o.plugin, err = deviceplugin.New(a.pluginConfig(pools)); err != nil {
		return nil, err
	}
	ctx, o.end = context.WithCancel(ctx)
	// Changes of its own: the guard waits for them to come to rest, and kubelet is
	// to hear at once.
	changes, err := a.changes(ctx)
	if err != nil {
		o.end()
		return nil, err
	}
	o.ended.Go(func() { _ = o.plugin.Run(ctx, changes) }) // it ends with ctx, and only then
	return o, nil
}

// beside is a path below kubelet's root folder, where that of its device plugins is.
func (a *agentRun) beside(path ...string) string {
	return filepath.Join(append([]string{filepath.Dir(a.kubelet)}, path...)...)
}

func (a *agentRun) pluginConfig(pools []nic.Pool) deviceplugin.Config {
	return deviceplugin.Config{
		Dir:          a.kubelet,
		Registry:     a.beside("plugins_registry"),
		PodResources: a.node.podResources,
		Heard:        a.node.hear,
		DeviceInfo:   a.infos,
		CDI:          a.specs,
		DeviceFiles:  filepath.Join(a.node.dir, "devices"),
		Pools:        pools,
		Look:         a.node.see,
		GPUs:         a.gpus,
		Allocated:    a.meters.allocated,
		Log:          a.log,
		Listed: func() {
			if a.cluster != nil {
				a.cluster.agent.Looked()
			}
		},
		Held: func() {
			select {
			case a.held <- struct{}{}:
			default: // told, and not yet heard
			}
		},
	}
}

func (a *agentRun) gpus(ctx context.Context) ([]host.GPU, error) {
	if a.node.machine.GPUs == nil {
		return nil, nil
	}
	return a.node.machine.GPUs.GPUs(ctx)
}

// want is w.want, and offers the pools of w as they are on that state: a card that
// came is in those that choose it. Pools that cannot be made out stay as they were
// offered, and keep nobody from what else is wanted.
func (o *offer) want(w *wanted) func(nic.State) (nic.Spec, error) {
	return func(state nic.State) (nic.Spec, error) {
		spec, err := w.want(state)
		if err == nil {
			o.say(o.set(w, state, spec))
		}
		return spec, err
	}
}

func (o *offer) set(w *wanted, state nic.State, spec nic.Spec) error {
	pools, err := o.pools(w.doc, state, spec)
	if err == nil {
		err = o.plugin.SetPools(pools)
	}
	return err
}

// say tells once why pools stay as they were.
func (o *offer) say(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != o.said {
		o.fault(faultPools, "the pools stay as they were offered", "error", err)
	}
	o.said = text
}

// update offers the pools of another document, or of another configuration.
func (o *offer) update(ctx context.Context, w *wanted) error {
	state, err := o.node.observe(ctx)
	if err != nil {
		return err
	}
	spec, err := w.want(state)
	if err != nil {
		return err
	}
	return o.set(w, state, spec)
}

// stop withdraws the pools.
func (o *offer) stop() {
	o.end()
	o.ended.Wait()
}
