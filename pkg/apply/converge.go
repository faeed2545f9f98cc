package apply

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoProgress is returned by Converge when a step that was done without error
// is asked for again, or when Limit steps did not reach the end. It means that
// the machine and its model disagree, and that going on would write for ever.
var ErrNoProgress = errors.New("no progress")

// DefaultLimit is the number of steps that a Loop without a Limit may do. The
// longest plan of one PF with 128 VFs, all of their fields wanted, is shorter.
const DefaultLimit = 2000

// Loop is something that converges: S is what is observed, T a step. Observe,
// Next and Do are required, Intend and Done may be nil.
type Loop[S any, T fmt.Stringer] struct {
	// Observe reads the state afresh, before each step and after the last.
	Observe func(context.Context) (S, error)

	// Next answers the one step to do now; false means that there is none: the
	// state is what is wanted. It is pure.
	Next func(S) (T, bool)

	// Intend writes down that the step is about to be done. When it fails the
	// step is not done.
	Intend func(T) error

	// Do does the step. It is given only steps that Next answered for the state
	// that Observe returned last.
	Do func(context.Context, T) error

	// Done writes down how the step ended (nil: it succeeded). It is called for
	// every step that was intended, also when the context has ended meanwhile.
	Done func(T, error) error

	// Limit bounds the number of steps; 0 means DefaultLimit.
	Limit int
}

// StepError says which step failed and why.
type StepError struct {
	Step fmt.Stringer
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }

// Unwrap gives the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Converge runs the loop until Next has no step left. It returns nil then, and
// otherwise the first error of: the context, Observe, Intend, Do (as a
// *StepError), Done, or ErrNoProgress (as a *StepError too). It takes nothing
// back; whoever wants that converges on what was before.
func Converge[S any, T fmt.Stringer](ctx context.Context, l Loop[S, T]) error {
	limit := l.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	last := ""
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		state, err := l.Observe(ctx)
		if err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		step, more := l.Next(state)
		if !more {
			return nil
		}
		name := step.String()
		if name == last {
			return &StepError{step, fmt.Errorf("%w: it was done without error, and is still to be done", ErrNoProgress)}
		}
		if n == limit {
			return &StepError{step, fmt.Errorf("%w: still to be done after %d steps", ErrNoProgress, limit)}
		}
		if err := l.do(ctx, step); err != nil {
			return err
		}
		last = name
	}
}

// do is one step with its two records.
func (l Loop[S, T]) do(ctx context.Context, step T) error {
	if l.Intend != nil {
		if err := l.Intend(step); err != nil {
			return fmt.Errorf("write down %q: %w", step, err)
		}
	}
	err := l.Do(ctx, step)
	if l.Done != nil {
		if werr := l.Done(step, err); werr != nil && err == nil {
			return fmt.Errorf("write down the end of %q: %w", step, werr)
		}
	}
	if err != nil {
		return &StepError{step, err}
	}
	return nil
}
