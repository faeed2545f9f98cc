package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// Result is how a run ended.
type Result struct {
	// ID is the run's number in the journal; 0 when there is no record, because
	// it was refused or because nothing was to be done.
	ID      ID      `json:"id,omitempty"`
	Outcome Outcome `json:"outcome"`

	// TookOver is the interrupted run whose beginning this one went by.
	TookOver ID            `json:"tookOver,omitempty"`
	Scopes   []ScopeResult `json:"scopes,omitempty"`

	// Committed is all that is committed now (Journal.Committed); nothing of a run
	// that was refused, or that commits nothing.
	Committed nic.Spec `json:"-"`

	// Uncommitted is why what was reached could not be added to that: the node is
	// as it says, and the next boot will not make it so.
	Uncommitted error `json:"-"`

	// Probe is why the node was not left in what had been reached.
	Probe error `json:"-"`

	// Still is what the probe said after going back: what it misses has not come
	// back, an address or a route, say, that went with an interface.
	Still error `json:"-"`

	// Journal is what could not be written down on the way back; it stops nothing.
	Journal error `json:"-"`
}

// MarshalJSON writes the errors as text.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	return json.Marshal(struct {
		plain
		Uncommitted string `json:"uncommitted,omitempty"`
		Probe       string `json:"probe,omitempty"`
		Still       string `json:"still,omitempty"`
		Journal     string `json:"journal,omitempty"`
	}{plain(r), text(r.Uncommitted), text(r.Probe), text(r.Still), text(r.Journal)})
}

// ScopeResult is how one PF ended.
type ScopeResult struct {
	Scope   nic.Handle
	Outcome Outcome
	Steps   int // done, there and back

	// Left is of a PF that the spec does not name: an interrupted run had begun
	// to change it, and it was to go back.
	Left bool

	Err  error // why what was wanted was not reached
	Back error // why the PF is not as it was before
}

// MarshalJSON writes the errors as text.
func (s ScopeResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Scope   nic.Handle `json:"scope"`
		Outcome Outcome    `json:"outcome"`
		Steps   int        `json:"steps"`
		Left    bool       `json:"left,omitempty"`
		Error   string     `json:"error,omitempty"`
		Back    string     `json:"back,omitempty"`
	}{s.Scope, s.Outcome, s.Steps, s.Left, text(s.Err), text(s.Back)})
}

// RefusedError says that nothing was touched, and why.
type RefusedError struct {
	Problems []plan.Problem // of the spec on this node
	Err      error          // of the run itself: node unreadable, journal locked or full
}

func (e *RefusedError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	var lines []string
	for _, p := range e.Problems {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the run's own error.
func (e *RefusedError) Unwrap() error { return e.Err }

// outcome is the worst of the scopes'. That a left-over PF is back is what was
// wanted of it.
func (r *Result) outcome() Outcome {
	out := Reached
	for _, s := range r.Scopes {
		switch {
		case s.Outcome == Failed:
			return Failed
		case s.Outcome == RolledBack && !s.Left:
			out = RolledBack
		}
	}
	return out
}

// err is nil if all was reached, else says of each scope what became of it.
func (r *Result) err() error {
	var errs []error
	if r.Probe != nil {
		errs = append(errs, fmt.Errorf("probe: %w", r.Probe))
	}
	if r.Still != nil {
		errs = append(errs, fmt.Errorf("after going back still: %w", r.Still))
	}
	for _, s := range r.Scopes {
		switch {
		case s.Outcome == Failed:
			errs = append(errs, fmt.Errorf("%s: not rolled back: %w", s.Scope, errors.Join(s.Err, s.Back)))
		case s.Outcome == RolledBack && !s.Left && (r.Probe == nil || !errors.Is(s.Err, r.Probe)):
			errs = append(errs, fmt.Errorf("%s: rolled back: %w", s.Scope, s.Err))
		}
	}
	return errors.Join(errs...)
}
