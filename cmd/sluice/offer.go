package main

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// offer is an agent's pools at kubelet. Kubelet knows no change of a pool: other
// pools are another plugin, which comes when the one before has left.
type offer struct {
	*agentRun
	looked chan struct{}

	pools []deviceplugin.Pool
	end   context.CancelFunc
	ended sync.WaitGroup
}

// update offers the pools of w, if they are not those that are offered already.
func (o *offer) update(ctx context.Context, w *wanted) error {
	state, err := o.node.observe(ctx)
	if err != nil {
		return err
	}
	pools, err := deviceplugin.Resolve(poolTexts(w.doc, state), state, w.spec)
	if err != nil {
		return fmt.Errorf("%s: spec.%w", o.file, err)
	}
	if o.end != nil && reflect.DeepEqual(pools, o.pools) {
		return nil
	}
	plugin, err := deviceplugin.New(deviceplugin.Config{
		Dir:     o.kubelet,
		Pools:   pools,
		Observe: o.node.observe,
		RDMA:    o.node.machine.RDMA.Devices,
		Log:     o.log,
	})
	if err != nil {
		return err
	}
	o.stop()
	ctx, o.end = context.WithCancel(ctx)
	o.pools = pools
	o.ended.Go(func() { _ = plugin.Run(ctx, o.looked) }) // it ends with ctx, and only then
	return nil
}

// stop withdraws the pools.
func (o *offer) stop() {
	if o.end != nil {
		o.end()
		o.ended.Wait()
	}
}

func poolTexts(doc *v1alpha1.NodeNIC, state nic.State) []deviceplugin.Text {
	var out []deviceplugin.Text
	for _, p := range doc.Spec.Pools {
		out = append(out, deviceplugin.Text{Prefix: p.Prefix, Name: p.Name, PFs: policy.PoolPFs(p, state), Driver: p.Driver, RDMA: p.RDMA})
	}
	return out
}
