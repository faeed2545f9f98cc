package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Sight is one look at the machine, which is not changed any more.
type Sight interface {
	State() nic.State
	RDMA() []host.RDMADevice

	// After is the sight after changes, with what they name read again. sure is false
	// where more may have changed than was read.
	After(ctx context.Context, changes []host.Change) (next Sight, sure bool, err error)
}

// Look has the machine looked at again, soon and without waiting for it: whoever
// has changed something need not wait for the kernel to tell of it.
func (p *Plugin) Look() { poke(p.poked) }

// first looks until it has seen the machine; false when ctx has ended before.
func (p *Plugin) first(ctx context.Context) (Node, bool) {
	wait := backoff{first: p.timing.first, most: p.timing.most}
	for {
		n, err := p.observe(ctx)
		if err == nil {
			p.note(p.list(n, true))
			return n, true
		}
		p.cannotLook(ctx, err)
		if !pause(ctx, wait.grow()) {
			return Node{}, false
		}
	}
}

func (p *Plugin) cannotLook(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.config.Log.Error("VFs cannot be listed; the last list stands", "error", err)
	}
}

// observe reads the machine.
func (p *Plugin) observe(ctx context.Context) (Node, error) {
	sight, err := p.config.Look(ctx)
	if err != nil {
		return Node{}, fmt.Errorf("observe: %w", err)
	}
	n := Node{Exists: p.config.Exists}
	n.see(sight)
	p.hear(&n)
	if p.config.GPUs != nil && p.wantsGPUs() {
		if n.GPUs, err = p.config.GPUs(ctx); err != nil {
			return Node{}, fmt.Errorf("observe GPUs: %w", err)
		}
	}
	return n, nil
}

// see takes up what there is.
func (n *Node) see(s Sight) {
	n.sight, n.State, n.RDMA = s, s.State(), map[string]host.RDMADevice{}
	for _, d := range s.RDMA() {
		n.RDMA[d.Name] = d
	}
}

// list offers what there is, and answers what is not as pools want it. CDI specs are of
// whole looks alone, as an allocation's is: what was followed may be behind that.
func (p *Plugin) list(node Node, whole bool) (problems []string) {
	by := map[string]nic.Pool{}
	for _, e := range p.current() {
		pool := e.offer.current()
		devices, missing := List(pool, node)
		problems = append(problems, missing...)
		devices = slices.DeleteFunc(devices, func(d Device) bool {
			first, twice := by[d.ID]
			if twice {
				problems = append(problems, fmt.Sprintf("pools %s and %s both want %s: the first has it", first, pool, d.ID))
				return true
			}
			by[d.ID] = pool
			return false
		})
		if whole {
			if err := p.papers.spec(pool, node, devices); err != nil {
				problems = append(problems, err.Error())
			}
		}
		if e.update(devices) && p.config.Listed != nil {
			p.config.Listed()
		}
	}
	return problems
}

// note logs problems that there were not before.
func (p *Plugin) note(problems []string) {
	now := map[string]bool{}
	for _, problem := range problems {
		if !p.noted[problem] && !now[problem] {
			p.config.Log.Warn("a pool is not as it is wanted", "problem", problem)
		}
		now[problem] = true
	}
	p.noted = now
}

// follower lists what there is as it changes. What a change names is read at once,
// also while the machine is looked at as a whole, which takes longer.
type follower struct {
	*Plugin
	seen   Node
	looked chan look     // of the look that is under way
	missed []host.Change // since it began
	again  bool          // another one when it has ended
	wait   backoff       // after looks that failed
	free   time.Time     // no look before: half of the time is spent looking
	first  time.Time     // of the changes that no look has seen; zero none
	next   *time.Timer   // until the next look
}

// look is how one has ended.
type look struct {
	node Node
	err  error
	took time.Duration
}

// together is how many changes are read one by one; of more a look is cheaper.
const together = 256

// follow follows changes until ctx ends.
func (p *Plugin) follow(ctx context.Context, seen Node, changes <-chan host.Change) {
	f := &follower{Plugin: p, seen: seen, next: time.NewTimer(0), wait: backoff{first: p.timing.first, most: p.timing.most}}
	f.next.Stop()
	defer f.next.Stop()
	for {
		select {
		case <-ctx.Done():
			if f.looked != nil {
				<-f.looked
			}
			return
		case c, more := <-changes:
			if !more {
				changes = nil
				continue
			}
			f.changed(ctx, gather(changes, []host.Change{c}))
		case <-p.poked:
			f.lookSoon()
		case <-f.next.C:
			f.begin(ctx)
		case l := <-f.looked:
			f.end(ctx, l)
		}
	}
}

// gather adds what has been told so far.
func gather(changes <-chan host.Change, to []host.Change) []host.Change {
	for len(to) < together {
		select {
		case c, more := <-changes:
			if !more {
				return to
			}
			to = append(to, c)
		default:
			return to
		}
	}
	return append(to, host.Change{}) // of anything
}

// changed lists what there is after changes, as far as they tell. In a storm of them
// half of the time is spent so, and they come together.
func (f *follower) changed(ctx context.Context, changes []host.Change) {
	if f.looked != nil && len(f.missed) < together {
		f.missed = append(f.missed, changes...)
	}
	begun := time.Now()
	if f.after(ctx, changes) {
		f.lookLater()
	} else {
		f.lookSoon()
	}
	pause(ctx, min(time.Since(begun), f.timing.most))
}

// after reads what changes name and lists it; false where that is not all.
func (f *follower) after(ctx context.Context, changes []host.Change) bool {
	sight, sure, err := f.seen.sight.After(ctx, changes)
	if err != nil {
		if ctx.Err() == nil {
			f.config.Log.Debug("what has changed cannot be read by itself", "error", err)
		}
		return false
	}
	f.seen.see(sight)
	f.hear(&f.seen)
	f.list(f.seen, false) // of what is missing a look tells
	return sure
}

// lookLater looks when changes have come to rest, so that none is missed for good. One
// that is under way is followed by what came meanwhile.
func (f *follower) lookLater() {
	if f.looked != nil || f.again {
		return
	}
	now := time.Now()
	if f.first.IsZero() {
		f.first = now
	}
	f.next.Reset(max(0, min(f.timing.calm, f.timing.patience-now.Sub(f.first))))
}

// lookSoon looks as soon as half of the time was not spent looking.
func (f *follower) lookSoon() {
	f.again = true
	if f.looked == nil {
		f.next.Reset(max(0, time.Until(f.free)))
	}
}

func (f *follower) begin(ctx context.Context) {
	if f.looked != nil {
		return
	}
	f.looked, f.missed, f.again, f.first = make(chan look, 1), nil, false, time.Time{}
	go func(to chan<- look) {
		begun := time.Now()
		n, err := f.observe(ctx)
		to <- look{n, err, time.Since(begun)}
	}(f.looked)
}

// end takes up a look, and what has changed since it began.
func (f *follower) end(ctx context.Context, l look) {
	missed := f.missed
	f.looked, f.missed = nil, nil
	f.free = time.Now().Add(min(l.took, f.timing.most))
	if l.err != nil {
		f.cannotLook(ctx, l.err)
		f.again = true
		f.next.Reset(f.wait.grow())
		return
	}
	f.wait.reset()
	f.seen = l.node
	sure := len(missed) == 0 || len(missed) < together && f.after(ctx, missed)
	f.note(f.list(f.seen, true))
	switch {
	case !sure || f.again:
		f.lookSoon()
	case len(missed) > 0:
		f.lookLater()
	}
}
