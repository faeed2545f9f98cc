package main

import (
	"context"
	"time"

	"sluice.dev/sluice/cni"
)

// sweep takes down what attachments have left that nobody will come back to. What it
// cannot take down stays recorded for the runtime's DEL or GC.
func (a *agentRun) sweep(ctx context.Context) {
	limits := cni.DefaultLimits()
	limits.Return = time.Second // a VF that is not home by now is not nobody's
	p := &cni.Plugin{Host: a.node.machine, Switch: cni.OpenSwitch, IPAM: cni.Delegate{}, Limits: limits}
	swept, err := p.Sweep(ctx, a.node.dir, a.ovsdb)
	for _, what := range swept {
		a.log.Info("swept", "what", what)
	}
	if err != nil {
		a.log.Warn("what attachments have left could not all be taken down", "error", err)
	}
}
