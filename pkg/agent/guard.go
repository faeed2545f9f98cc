// Package agent keeps a node as it is wanted, for as long as it runs.
package agent

import (
	"context"
	"log/slog"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// How long a Guard waits for changes to come to rest before it looks, how long at
// most, and how often it looks when nothing has told of a change.
const (
	rest     = 100 * time.Millisecond
	patience = 500 * time.Millisecond
	Every    = 5 * time.Minute
)

// Guard looks at the node whenever something has changed, and mends what is no
// longer as wanted. A node that is as wanted costs no write, and without changes
// no reading.
type Guard struct {
	Changes <-chan host.Change
	Observe func(context.Context) (nic.State, error)

	// Want resolves the wish for the node as it is: names may have changed.
	Want func(nic.State) (nic.Spec, error)

	// Mend makes the node as wanted; nil only reports.
	Mend func(context.Context, nic.Spec) error

	// Busy says that somebody else is changing the node right now: what is seen
	// then is on its way elsewhere, and is looked at again when that has ended. Nil
	// means that nobody else does.
	Busy func() bool

	// Drift is told after each look how many steps the node is from what is wanted, and
	// whether that is news: not what the look before has shown. Nil is fine.
	Drift func(steps int, news bool)

	// Looked is told after each look that what is offered may be another; nil is fine.
	Looked func()

	Every time.Duration // 0 means the constant
	Log   *slog.Logger
}

// Run guards until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	every := g.Every
	if every <= 0 {
		every = Every
	}
	looks := &looks{Guard: g}
	for {
		what, ok := g.wait(ctx, looks.after(every))
		if !ok {
			return
		}
		looks.look(ctx, what)
		if g.Looked != nil {
			g.Looked()
		}
	}
}

// wait returns when something has changed and come to rest, or d has passed; false
// when ctx has ended. It answers what has changed first.
func (g *Guard) wait(ctx context.Context, d time.Duration) (string, bool) {
	idle := time.NewTimer(d)
	defer idle.Stop()
	var what string
	select {
	case <-ctx.Done():
		return "", false
	case <-idle.C:
		return "", true
	case c, open := <-g.Changes:
		if !open {
			g.Changes = nil // nobody tells any more; the timer remains
			return "", ctx.Err() == nil
		}
		what = c.What
	}
	calm, enough := time.NewTimer(rest), time.NewTimer(patience)
	defer calm.Stop()
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", false
		case <-calm.C:
			return what, true
		case <-enough.C:
			return what, true
		case _, open := <-g.Changes:
			if !open {
				return what, true
			}
			calm.Reset(rest)
		}
	}
}

// looks remembers what the last looks have come to.
type looks struct {
	*Guard
	drift  string    // the plan that was reported last; "" none
	busy   bool      // somebody else was at work
	failed int       // mendings in a row that failed
	before time.Time // and when not to try again: going back is a change too
}

// after is how long to wait without a change: what could not be mended is tried
// again, less and less often.
func (l *looks) after(every time.Duration) time.Duration {
	if l.busy {
		return min(every, time.Second)
	}
	if l.failed == 0 {
		return every
	}
	return min(every, time.Second<<min(l.failed, 10))
}

func (l *looks) look(ctx context.Context, what string) {
	if l.busy = l.Busy != nil && l.Busy(); l.busy {
		return
	}
	state, err := l.Observe(ctx)
	if err != nil {
		l.Log.Error("cannot look at the node", "error", err)
		return
	}
	spec, err := l.Want(state)
	if err != nil {
		l.Log.Error("what is wanted cannot be made out", "error", err)
		return
	}
	p, err := Missing(spec, state)
	switch {
	case err != nil:
		l.Log.Error("cannot plan", "error", err)
		return
	case len(p.Steps) == 0:
		if l.drift != "" {
			l.Log.Info("the node is as wanted again")
		}
		l.drift, l.failed = "", 0
		l.told(0, false)
		return
	}
	now := p.String()
	l.told(len(p.Steps), now != l.drift)
	if now != l.drift {
		l.drift = now
		for _, s := range p.Steps {
			l.Log.Warn("not as wanted", "needs", s.String(), "change", what)
		}
	}
	if l.Mend == nil || time.Now().Before(l.before) {
		return
	}
	if err := l.Mend(ctx, spec); err != nil {
		l.failed++
		l.before = time.Now().Add(l.after(Every))
		l.Log.Error("cannot mend", "error", err, "again", l.after(Every))
		return
	}
	l.Log.Info("mended", "steps", len(p.Steps))
	l.drift, l.failed = "", 0
	l.told(0, false)
}

func (l *looks) told(steps int, news bool) {
	if l.Drift != nil {
		l.Drift(steps, news)
	}
}

// Missing is the plan to what is wanted, past VFs that are in use and PFs that are
// not there.
func Missing(spec nic.Spec, state nic.State) (plan.Plan, error) {
	return plan.Unfold(plan.Complete(plan.Spare(there(spec, state), state), state), state)
}

// there is spec without PFs that are gone: a card that was taken out is reported
// by others.
func there(spec nic.Spec, state nic.State) nic.Spec {
	var pfs []nic.PFSpec
	for _, w := range spec.PFs {
		if state.PF(w.Handle) != nil {
			pfs = append(pfs, w)
		}
	}
	spec.PFs = pfs
	return spec
}
