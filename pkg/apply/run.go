package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// ErrNothing is returned by Resume when no run was interrupted.
var ErrNothing = errors.New("no interrupted run to resume")

// Why a PF goes back that has not failed in this run.
var (
	errGaveUp = errors.New("it had failed before the interruption")
	errLeft   = errors.New("an interrupted run had begun to change it, and now it is not named")
)

// DefaultBack bounds the way back when a Runner says nothing else. A card with
// 128 VFs takes minutes to have them all made and bound.
const DefaultBack = 15 * time.Minute

// Runner changes a node. Machine and Journal are required.
type Runner struct {
	Machine host.Machine
	Journal *Journal

	// Observe reads the node; nil means host.Observe. Whoever keeps records of
	// attachments puts the owners of VFs and SFs in here (nic.VF.Owner).
	Observe func(context.Context) (nic.State, error)

	// Refresh reads parts of one VF again into a state that Observe gave, and its
	// owner; nil means that Observe reads everything again after each step.
	Refresh func(context.Context, *nic.State, nic.VFID, host.Part) error

	// Hold keeps others from taking VFs, by PCI address, and SFs, by device, while a
	// step is done on them, until release is called, and says who has them; nil means
	// that nobody else takes any.
	Hold func(ctx context.Context, devices []string) (owners map[string]string, release func(), err error)

	// Spare leaves VFs and SFs that are in use as they are, instead of refusing a
	// wish that would change them.
	Spare bool

	// Boot names the present boot of the machine; "" not known. What a run was
	// about that was interrupted in another boot is gone with that boot: it is not
	// taken over but ended, and how things were before it is no way back.
	Boot string

	// Booted says that the machine has just been booted, where the boot of an
	// interrupted run, or the present one, is not known.
	Booted bool

	// Uncommitted leaves Journal.Committed as it is, whatever is reached.
	Uncommitted bool

	// Drained says that whoever used VFs and SFs is gone, whatever records and
	// namespaces say: they may be taken.
	Drained bool

	// Probe says whether the node may stay as it now is: nil when it may. It is
	// asked after the last step of all PFs, and if it says no once more after going
	// back. None means yes.
	Probe func(context.Context) error

	// Parallel does the PFs at the same time instead of one after another.
	Parallel bool

	// Progress is told what goes on, one call at a time. None is fine.
	Progress func(Event)

	// Back bounds the time that going back may take, also when the context that
	// the run was given has ended; 0 means DefaultBack.
	Back time.Duration
}

// Event is one thing that goes on in a run.
type Event struct {
	Kind  EventKind
	Scope nic.Handle
	Plan  plan.Plan // of EventPlanned
	Step  plan.Step // of EventStarted, EventDone, EventFailed
	Back  bool      // it belongs to the way back
	Err   error     // of EventFailed and EventBack: why
}

// EventKind is what an Event tells.
type EventKind string

// The events of a scope: the steps foreseen; each step begun, and done or failed;
// the scope's turning back; and its end.
const (
	EventPlanned EventKind = "planned"
	EventStarted EventKind = "started"
	EventDone    EventKind = "done"
	EventFailed  EventKind = "failed"
	EventBack    EventKind = "back"
	EventReached EventKind = "reached"
)

// Run makes the node what spec wants. The spec may be incomplete; what it does
// not name ends as it was (plan.Complete).
//
// Each PF is a scope of its own: if one fails it goes back to what it was, and
// the others go on. If the probe fails all go back. A run that was interrupted
// is taken over: this one goes by how things were before that, goes on where that
// one stopped if it wanted the same of a PF, and else takes the PF back first, as
// it does for good with PFs that spec does not name.
//
// The error is nil when all was reached, a *RefusedError when nothing was
// touched, and else tells what became of each scope; Result has the same in
// parts. Only one run at a time changes a node (*LockedError in the refusal).
func (r *Runner) Run(ctx context.Context, spec nic.Spec) (Result, error) {
	return r.RunFor(ctx, always(spec))
}

// RunFor is Run with a wish that is made out on the node as it is, at a time when no
// other run can change or commit anything. Its error refuses the run.
func (r *Runner) RunFor(ctx context.Context, want func(nic.State) (nic.Spec, error)) (Result, error) {
	return r.locked(func() (Result, error) {
		open, err := r.Journal.Interrupted()
		if err != nil {
			return refuse(err)
		}
		return r.run(ctx, KindApply, 0, open, want)
	})
}

func always(spec nic.Spec) func(nic.State) (nic.Spec, error) {
	return func(nic.State) (nic.Spec, error) { return spec, nil }
}

// Resume finishes what an interrupted run wanted, and takes those of its PFs
// back that it was taking back. ErrNothing (refused) if there is none.
func (r *Runner) Resume(ctx context.Context) (Result, error) {
	return r.locked(func() (Result, error) {
		open, err := r.Journal.Interrupted()
		if err != nil {
			return refuse(err)
		}
		if open == nil {
			return refuse(ErrNothing)
		}
		return r.run(ctx, KindResume, open.ID, open, always(open.Spec))
	})
}

// Rollback makes the PFs that run id named what they were before it, as a run of
// its own that can be rolled back in turn. VFs that are in use now are spared
// where that can be. An id that is not in the journal is fs.ErrNotExist (refused).
func (r *Runner) Rollback(ctx context.Context, id ID) (Result, error) {
	return r.rollback(ctx, id, func() (nic.State, nic.Spec, error) {
		e, err := r.Journal.Find(id)
		return e.Before, e.Spec, err
	})
}

// RollbackTo makes everything that run id or a later one named what it was before
// run id. Else as Rollback.
func (r *Runner) RollbackTo(ctx context.Context, id ID) (Result, error) {
	return r.rollback(ctx, id, func() (nic.State, nic.Spec, error) { return r.Journal.since(id) })
}

func (r *Runner) rollback(ctx context.Context, id ID, what func() (nic.State, nic.Spec, error)) (Result, error) {
	return r.locked(func() (Result, error) {
		open, err := r.Journal.Interrupted()
		if err != nil {
			return refuse(err)
		}
		before, spec, err := what()
		if err != nil {
			return refuse(err)
		}
		return r.run(ctx, KindRollback, id, open, func(now nic.State) (nic.Spec, error) {
			return plan.Spare(plan.Back(before, spec), now), nil
		})
	})
}

func refuse(err error) (Result, error) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		refused = &RefusedError{Err: err}
	}
	return Result{Outcome: Refused}, refused
}

func (r *Runner) locked(do func() (Result, error)) (Result, error) {
	unlock, err := r.Journal.lock()
	if err != nil {
		return refuse(err)
	}
	defer unlock()
	return do()
}

// job is a run at work.
type job struct {
	*Runner
	before nic.State
	open   *Entry // the interrupted run that is taken over, or nil
	record *writer

	mu   sync.Mutex // of what several scopes share: Progress and lost
	lost error      // what could not be written down on the way back
}

func (r *Runner) run(ctx context.Context, kind Kind, of ID, open *Entry, want func(nic.State) (nic.Spec, error)) (Result, error) {
	ends := open != nil // a run that has no end gets one by this
	if r.gone(open) {
		open = nil
	}
	o, err := r.look(ctx, kind, open, want)
	if err != nil {
		return refuse(err)
	}
	if len(o.plan().Steps) == 0 && !ends {
		out := unchanged(o.scopes)
		r.commit(o.asked, o.scopes, &out)
		return out, nil
	}
	entry := o.entry(kind, of)
	entry.Boot = r.Boot
	w, err := r.Journal.begin(&entry)
	if err != nil {
		return refuse(err)
	}
	j := &job{Runner: r, before: o.before, open: open, record: w}
	out := Result{ID: entry.ID}
	if open != nil {
		out.TookOver = open.ID
	}
	j.all(ctx, o.scopes, o.plans, &out)
	r.commit(o.asked, o.scopes, &out)
	lost := w.end(out.outcome(), out.err())
	if lost != nil {
		// Without an end the next run would take this one for interrupted, and go
		// by a beginning that is long past.
		j.takeBack(ctx, o.scopes, &out, fmt.Errorf("write down the end: %w", lost))
		_ = w.end(out.outcome(), out.err()) // lost has the reason if this fails too
	}
	out.Outcome = out.outcome()
	out.Journal = errors.Join(lost, j.lost, w.close(), r.Journal.prune())
	return out, out.err()
}

// gone says that a run was interrupted in another boot.
func (r *Runner) gone(open *Entry) bool {
	if open == nil || open.Boot == "" || r.Boot == "" {
		return open != nil && r.Booted
	}
	return open.Boot != r.Boot
}

func (r *Runner) observe(ctx context.Context) (state nic.State, err error) {
	if r.Observe != nil {
		state, err = r.Observe(ctx)
	} else {
		state, err = host.Observe(ctx, r.Machine)
	}
	if r.Drained {
		free(&state)
	}
	return state, err
}

// free makes what is in use free, and notes that it was.
func free(s *nic.State) {
	for i := range s.PFs {
		for j := range s.PFs[i].VFs {
			v := &s.PFs[i].VFs[j]
			v.Drained, v.Owner, v.Away = cmp.Or(v.InUse(), v.Drained), "", false
		}
		for j := range s.PFs[i].SFs {
			f := &s.PFs[i].SFs[j]
			f.Drained, f.Owner, f.Away = cmp.Or(f.InUse(), f.Drained), "", false
		}
	}
}

func unchanged(scopes []scope) Result {
	out := Result{Outcome: Reached}
	for _, s := range scopes {
		out.Scopes = append(out.Scopes, ScopeResult{Scope: s.key, Outcome: Reached})
	}
	return out
}

// all does the scopes, asks the probe, and takes them back if it says no.
func (j *job) all(ctx context.Context, scopes []scope, plans []plan.Plan, out *Result) {
	for i, s := range scopes {
		j.progress(Event{Kind: EventPlanned, Scope: s.key, Plan: plans[i], Back: s.back})
	}
	out.Scopes = make([]ScopeResult, len(scopes))
	j.each(scopes, func(i int, s scope) { out.Scopes[i] = j.one(ctx, s) })
	if j.Probe == nil || !anyReached(out.Scopes) {
		return
	}
	if out.Probe = j.Probe(ctx); out.Probe == nil {
		return
	}
	j.takeBack(ctx, scopes, out, fmt.Errorf("probe: %w", out.Probe))
	out.Still = j.Probe(ctx)
}

// takeBack makes all scopes go back that had reached what was wanted.
func (j *job) takeBack(ctx context.Context, scopes []scope, out *Result, why error) {
	j.each(scopes, func(i int, sc scope) {
		if s := &out.Scopes[i]; s.Outcome == Reached {
			s.Err = why
			j.goBack(ctx, sc, s)
		}
	})
}

func anyReached(scopes []ScopeResult) bool {
	for _, s := range scopes {
		if s.Outcome == Reached {
			return true
		}
	}
	return false
}

// each calls do for every scope, in order or at the same time.
func (j *job) each(scopes []scope, do func(int, scope)) {
	if !j.Parallel {
		for i, s := range scopes {
			do(i, s)
		}
		return
	}
	var wg sync.WaitGroup
	for i, s := range scopes {
		wg.Go(func() { do(i, s) })
	}
	wg.Wait()
}

// one takes a scope to what is wanted of it, or back.
func (j *job) one(ctx context.Context, s scope) ScopeResult {
	out := ScopeResult{Scope: s.key, Left: s.left}
	if s.back {
		out.Err = errGaveUp
		if s.left {
			out.Err = errLeft
		}
		j.goBack(ctx, s, &out)
		return out
	}
	out.Err = j.there(ctx, s, &out)
	if out.Err != nil {
		j.goBack(ctx, s, &out)
		return out
	}
	out.Outcome = Reached
	j.progress(Event{Kind: EventReached, Scope: s.key})
	return out
}

// there clears away what an interrupted run left, if need be, and converges.
func (j *job) there(ctx context.Context, s scope, out *ScopeResult) error {
	if s.clear {
		if err := j.converge(ctx, &look{job: j, want: s.backTo(j.before)}, out); err != nil {
			return fmt.Errorf("clear away what run %s left: %w", j.open.ID, err)
		}
		if err := j.record.scope(s.key, Cleared, nil); err != nil {
			return err
		}
	}
	if err := j.converge(ctx, &look{job: j, want: s.want, steady: true}, out); err != nil {
		return err
	}
	return j.record.scope(s.key, Reached, nil)
}

// converge is the way there: nothing is done that is not written down.
func (j *job) converge(ctx context.Context, look *look, out *ScopeResult) error {
	want := look.want
	look.next = func(s nic.State) (plan.Step, bool) { return plan.NextOf(want, s) }
	return Converge(ctx, Loop[nic.State, plan.Step]{
		Observe: look.observe,
		Next:    look.next,
		Intend: func(s plan.Step) error {
			if err := j.record.intend(s); err != nil {
				return err
			}
			j.progress(Event{Kind: EventStarted, Scope: out.Scope, Step: s})
			return nil
		},
		Do: look.do,
		Done: func(s plan.Step, err error) error {
			j.ended(s, err, false, out)
			return j.record.done(s, err)
		},
		Limit: 2 * plan.Limit(want, j.before),
	})
}

// ended counts and tells how a step ended.
func (j *job) ended(s plan.Step, err error, back bool, out *ScopeResult) {
	kind := EventFailed
	if err == nil {
		kind = EventDone
		out.Steps++
	}
	j.progress(Event{Kind: kind, Scope: out.Scope, Step: s, Err: err, Back: back})
}

// goBack takes a scope that has failed (out.Err) to what it was before. It goes
// on when the context has ended, when the journal cannot be written, and past
// VFs that fail: what can be put back is put back.
func (j *job) goBack(ctx context.Context, s scope, out *ScopeResult) {
	h := out.Scope
	j.progress(Event{Kind: EventBack, Scope: h, Err: out.Err, Back: true})
	// Who takes the run over finds the scope on its way back.
	lost := j.record.scope(h, TurningBack, out.Err)

	bound := j.Back
	if bound <= 0 {
		bound = DefaultBack
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()

	out.Back, out.Outcome = j.putBack(ctx, s, out, &lost), RolledBack
	if out.Back != nil {
		// What was refused once may be taken now: firmware that was busy, an SF
		// whose device took its time to go.
		out.Back = j.putBack(ctx, s, out, &lost)
	}
	if out.Back != nil {
		out.Outcome = Failed
	}
	lost = errors.Join(lost, j.record.scope(h, out.Outcome, errors.Join(out.Err, out.Back)))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = errors.Join(j.lost, lost)
}

// putBack puts back what can be, and says what cannot.
func (j *job) putBack(ctx context.Context, s scope, out *ScopeResult, lost *error) error {
	want := s.backTo(j.before)
	var errs []error
	for {
		err := j.convergeBack(ctx, want, out, lost)
		errs = append(errs, err)
		if err == nil || !giveUp(&want, err) {
			return errors.Join(errs...)
		}
	}
}

// convergeBack is the way back. VFs that have come into use meanwhile are spared.
func (j *job) convergeBack(ctx context.Context, want nic.Spec, out *ScopeResult, lost *error) error {
	look := &look{job: j, want: want, next: func(s nic.State) (plan.Step, bool) {
		return plan.NextOf(plan.Spare(want, s), s)
	}}
	return Converge(ctx, Loop[nic.State, plan.Step]{
		Observe: look.observe,
		Next:    look.next,
		Intend: func(s plan.Step) error {
			*lost = errors.Join(*lost, j.record.intend(s))
			j.progress(Event{Kind: EventStarted, Scope: out.Scope, Step: s, Back: true})
			return nil
		},
		Do: look.do,
		Done: func(s plan.Step, err error) error {
			j.ended(s, err, true, out)
			*lost = errors.Join(*lost, j.record.done(s, err))
			return nil
		},
		Limit: 2 * plan.Limit(want, j.before),
	})
}

func (j *job) progress(e Event) {
	if j.Progress == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Progress(e)
}
