package apply

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
)

// up is a step of a counter that is to reach a number.
type up int

func (u up) String() string { return "to " + strconv.Itoa(int(u)) }

// counter is the smallest machine that converges; it keeps what was called.
type counter struct {
	value int
	calls []string
	stuck int // the value at which a step succeeds without effect
	fail  int // the value at which a step fails
}

var errStep = errors.New("out of order")

func (c *counter) loop(want int) Loop[int, up] {
	c.call("start")
	return Loop[int, up]{
		Observe: func(context.Context) (int, error) { c.call("observe"); return c.value, nil },
		Next:    func(v int) (up, bool) { return up(v + 1), v < want },
		Intend:  func(s up) error { c.call("intend " + s.String()); return nil },
		Do: func(_ context.Context, s up) error {
			c.call("do " + s.String())
			switch int(s) {
			case c.fail:
				return errStep
			case c.stuck:
				return nil
			}
			c.value = int(s)
			return nil
		},
		Done: func(s up, err error) error {
			if err != nil {
				c.call("failed " + s.String())
			} else {
				c.call("done " + s.String())
			}
			return nil
		},
	}
}

func (c *counter) call(s string) { c.calls = append(c.calls, s) }

func TestConvergeOrder(t *testing.T) {
	var c counter
	if err := Converge(t.Context(), c.loop(2)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"start",
		"observe", "intend to 1", "do to 1", "done to 1",
		"observe", "intend to 2", "do to 2", "done to 2",
		"observe",
	}
	if !slices.Equal(c.calls, want) {
		t.Errorf("calls %q, want %q", c.calls, want)
	}
}

func TestConvergeFailure(t *testing.T) {
	c := counter{fail: 2}
	err := Converge(t.Context(), c.loop(3))
	var step *StepError
	if !errors.As(err, &step) || step.Step != up(2) || !errors.Is(err, errStep) {
		t.Fatalf("error %v, want a StepError of %q with its cause", err, up(2))
	}
	if c.value != 1 || c.calls[len(c.calls)-1] != "failed to 2" {
		t.Errorf("value %d after calls %q, want 1 and the failure written down last", c.value, c.calls)
	}
}

func TestConvergeNoProgress(t *testing.T) {
	c := counter{stuck: 2}
	if err := Converge(t.Context(), c.loop(3)); !errors.Is(err, ErrNoProgress) {
		t.Fatalf("a step without effect: error %v, want ErrNoProgress", err)
	}
	if n := len(c.calls); c.calls[n-1] != "observe" || slices.Index(c.calls, "do to 2") != n-3 {
		t.Errorf("calls %q, want the step done once and no more", c.calls)
	}
}

// A machine that goes back and forth never asks for the same step twice running.
func TestConvergeLimit(t *testing.T) {
	on, done := false, 0
	err := Converge(t.Context(), Loop[bool, up]{
		Observe: func(context.Context) (bool, error) { return on, nil },
		Next: func(on bool) (up, bool) {
			if on {
				return 0, true
			}
			return 1, true
		},
		Do:    func(_ context.Context, s up) error { on = s == 1; done++; return nil },
		Limit: 7,
	})
	if !errors.Is(err, ErrNoProgress) || done != 7 {
		t.Fatalf("error %v after %d steps, want ErrNoProgress after 7", err, done)
	}
}

func TestConvergeIntentFirst(t *testing.T) {
	var c counter
	l := c.loop(1)
	full := errors.New("disk is full")
	l.Intend = func(up) error { return full }
	if err := Converge(t.Context(), l); !errors.Is(err, full) {
		t.Fatalf("error %v, want %v", err, full)
	}
	if c.value != 0 {
		t.Error("the step was done although its intent could not be written")
	}
}

func TestConvergeDoneFails(t *testing.T) {
	var c counter
	l := c.loop(2)
	full := errors.New("disk is full")
	l.Done = func(up, error) error { return full }
	if err := Converge(t.Context(), l); !errors.Is(err, full) || c.value != 1 {
		t.Fatalf("error %v at %d, want %v at 1", err, c.value, full)
	}
}

func TestConvergeContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var c counter
	l := c.loop(5)
	do := l.Do
	l.Do = func(ctx context.Context, s up) error {
		if s == 3 {
			cancel()
		}
		return do(ctx, s)
	}
	if err := Converge(ctx, l); !errors.Is(err, context.Canceled) || c.value != 3 {
		t.Fatalf("error %v at %d, want the context's end after step 3", err, c.value)
	}
	if c.calls[len(c.calls)-1] != "done to 3" {
		t.Errorf("calls %q, want the step's end written down", c.calls)
	}
}

func TestConvergeObserveFails(t *testing.T) {
	l := (&counter{}).loop(1)
	l.Observe = func(context.Context) (int, error) { return 0, errStep }
	if err := Converge(t.Context(), l); !errors.Is(err, errStep) {
		t.Fatalf("error %v, want %v", err, errStep)
	}
}
