package apply

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// Preview is what Run would do now, taking over an interrupted run if there is one
// (its number, else 0). It touches nothing, and is refused where Run would be.
func (r *Runner) Preview(ctx context.Context, spec nic.Spec) (p plan.Plan, takesOver ID, err error) {
	open, err := r.Journal.Interrupted()
	if err != nil {
		return p, 0, &RefusedError{Err: err}
	}
	if r.gone(open) {
		open = nil
	}
	o, err := r.look(ctx, KindApply, open, always(spec))
	if err != nil {
		_, err = refuse(err)
		return p, 0, err
	}
	if open != nil {
		takesOver = open.ID
	}
	return o.plan(), takesOver, nil
}

// outlook is a run before it has begun.
type outlook struct {
	asked  nic.Spec // as it was wished for
	before nic.State
	scopes []scope
	plans  []plan.Plan // of scopes[i]
}

// look observes the node and plans. It is a *RefusedError when the wish must not be
// begun.
func (r *Runner) look(ctx context.Context, kind Kind, open *Entry, want func(nic.State) (nic.Spec, error)) (*outlook, error) {
	now, err := r.observe(ctx)
	if err != nil {
		return nil, fmt.Errorf("observe the node: %w", err)
	}
	o := &outlook{before: beginning(now, open)}
	if o.asked, err = want(now); err != nil {
		return nil, err
	}
	spec := o.asked
	if r.Spare {
		spec = plan.Spare(spec, now)
	}
	spec = plan.Complete(spec, o.before)
	if problems := plan.Check(spec, o.before); len(problems) > 0 {
		return nil, &RefusedError{Problems: problems}
	}
	o.scopes = scopesOf(kind, spec, o.before, open)
	var taken []plan.Problem
	for i := range o.scopes {
		s := &o.scopes[i]
		p, err := s.foresee(o.before, now)
		if err != nil {
			return nil, err
		}
		o.plans = append(o.plans, p)
		// What an interrupted run left may have been given away since. Who goes
		// back for good spares it; who goes on over it must not begin.
		if open != nil && !s.back {
			taken = append(taken, plan.Taken(p, now)...)
		}
	}
	if len(taken) > 0 {
		return nil, &RefusedError{Problems: taken}
	}
	return o, nil
}

// plan is all of it, in order.
func (o *outlook) plan() plan.Plan {
	var out plan.Plan
	for _, p := range o.plans {
		out.Steps = append(out.Steps, p.Steps...)
		out.Impacts = append(out.Impacts, p.Impacts...)
	}
	return out
}

// entry is the record of the run, as it begins.
func (o *outlook) entry(kind Kind, of ID) Entry {
	e := Entry{Kind: kind, Of: of}
	for _, s := range o.scopes {
		e.Spec.PFs = append(e.Spec.PFs, s.want.PFs...)
		e.Spec.Bonds = append(e.Spec.Bonds, s.want.Bonds...)
		if s.want.RDMA != "" {
			e.Spec.RDMA, e.Spec.RDMAAtBoot = s.want.RDMA, s.want.RDMAAtBoot
		}
		if s.clear {
			e.Clear = append(e.Clear, s.key)
		}
	}
	e.Before = only(o.before, e.Spec)
	return e
}
