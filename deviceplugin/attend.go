package deviceplugin

import (
	"context"
	"time"

	"sluice.dev/sluice/pkg/nic"
)

// attend asks the kubelet now and then, and soon after an allocation, which pod has
// what: devices in pods are in use, whatever they look like from outside, and what
// no pod has needs no files.
func (p *Plugin) attend(ctx context.Context) {
	tick := time.NewTicker(p.timing.ask)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.asked:
			// The kubelet has not heard the answer yet that was asked for.
			if !pause(ctx, min(time.Second, p.timing.ask)) {
				return
			}
		}
		p.ask(ctx)
	}
}

// ask takes the kubelet's word. While it is away, its last one stands.
func (p *Plugin) ask(ctx context.Context) {
	if p.config.PodResources == "" {
		return
	}
	view, err := askPods(ctx, p.config.PodResources, 2*time.Second)
	if err != nil {
		p.config.Log.Debug("who has which device is as it was last", "error", err)
		return
	}
	p.mu.Lock()
	same := p.said && p.holders.same(view.holders)
	p.holders, p.said = view.holders, true
	endpoints := p.endpoints
	p.mu.Unlock()
	if !same {
		p.Look()
		if p.config.Held != nil {
			p.config.Held()
		}
	}
	var pools []nic.Pool
	for _, e := range endpoints {
		pools = append(pools, e.offer.current())
		if view.allocatable != nil {
			e.compare(view.allocatable[e.resource])
		}
	}
	p.papers.tidy(view.holders, pools)
}

// hear takes up what the kubelet said last.
func (p *Plugin) hear(n *Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said {
		n.Held, n.Elsewhere = p.holders.held, p.holders.elsewhere
	}
}

// compare holds the kubelet's list of what can be allocated against what was sent.
// They differ for a moment after each change. If they go on to, the place is given
// up and taken again, ever more seldom while that does not help.
func (e *endpoint) compare(kubelet map[string]bool) {
	devices, _ := e.offer.get()
	healthy := 0
	same := true
	for _, d := range devices {
		if d.Healthy() {
			healthy++
			same = same && kubelet[d.ID]
		}
	}
	if same && healthy == len(kubelet) {
		e.doubts = 0
		return
	}
	e.doubts++
	if e.doubts&(e.doubts-1) == 0 && e.doubts > 1 {
		e.log.Warn("the kubelet has another list", "kubelet", len(kubelet), "healthy", healthy)
		poke(e.doubted)
	}
}

// PoolStatus is what a pool is now.
type PoolStatus struct {
	Resource string
	Devices  []Device
	Pods     map[string]Holder // who has which device, by ID

	// Away is why the kubelet does not have the pool, ErrNoKubelet if none is there;
	// nil: it has.
	Away error
}

// Status is all pools in their order, as last observed and as the kubelet said
// last. The lists are not to be written to.
func (p *Plugin) Status() []PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []PoolStatus
	for _, e := range p.endpoints {
		devices, _ := e.offer.get()
		out = append(out, PoolStatus{Resource: e.resource, Devices: devices, Pods: p.holders[e.resource], Away: e.standing()})
	}
	return out
}
