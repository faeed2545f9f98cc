package apply

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
)

// ID numbers the runs of a journal, counted from 1.
type ID int

func (id ID) String() string { return strconv.Itoa(int(id)) }

// ParseID reads the number of a run.
func ParseID(s string) (ID, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is no run: want its number, as the journal lists it", s)
	}
	return ID(n), nil
}

// Kind is why a run was made.
type Kind string

// The kinds of runs.
const (
	KindApply    Kind = "apply"
	KindResume   Kind = "resume"   // of an interrupted run: what that one wanted
	KindRollback Kind = "rollback" // of a run: what was before it
)

// Outcome is how a run, or one scope of it, ended.
type Outcome string

// The outcomes. Refused is of whole runs only, and such runs are in no journal.
// Interrupted is of a run whose record has no end: its process was killed, or is
// at work right now.
const (
	Reached     Outcome = "reached"
	Refused     Outcome = "refused"     // nothing was touched
	RolledBack  Outcome = "rolled back" // it is as it was before
	Failed      Outcome = "failed"      // neither what was wanted nor what was before
	Interrupted Outcome = "interrupted"
)

// What a scope's record may say before its outcome: that it failed and is turning
// back; that what an interrupted run left of it is being cleared away before what
// is wanted is begun, and that this is done.
const (
	TurningBack Outcome = "turning back"
	Clearing    Outcome = "clearing"
	Cleared     Outcome = "cleared"
)

// Entry is what the journal has of one run.
type Entry struct {
	ID   ID        `json:"id"`
	Kind Kind      `json:"kind"`
	Of   ID        `json:"of,omitempty"` // the run that was resumed or rolled back
	Time time.Time `json:"time"`

	// Spec is what was wanted, completed (plan.Complete); Before the PFs that it
	// names as they were: of a run that took an interrupted one over, as they
	// were before that.
	Spec   nic.Spec  `json:"spec"`
	Before nic.State `json:"before"`

	// Boot is the boot of the machine in which the run began; "" not known.
	Boot string `json:"boot,omitempty"`

	// Clear are the PFs that are first cleared of what an interrupted run left.
	Clear []nic.Handle `json:"clear,omitempty"`

	Steps  []StepRecord  `json:"steps,omitempty"`
	Scopes []ScopeRecord `json:"scopes,omitempty"` // in the order of their writing

	Outcome Outcome   `json:"outcome"`
	End     time.Time `json:"end,omitzero"`
	Error   string    `json:"error,omitempty"`

	// Damage says what of the record could not be read; "" for all of it. A last
	// line that is cut short is no damage: it was being written when the process
	// or the machine ended.
	Damage string `json:"damage,omitempty"`
}

// StepRecord is one step of a run.
type StepRecord struct {
	Step  plan.Step `json:"step"`
	Time  time.Time `json:"time"`
	State StepState `json:"state"`
	Error string    `json:"error,omitempty"`
}

// StepState is how far a step got.
type StepState string

// Intended is a step of which nobody knows whether it was done.
const (
	StepIntended StepState = "intended"
	StepDone     StepState = "done"
	StepFailed   StepState = "failed"
)

// ScopeRecord says how far a scope got.
type ScopeRecord struct {
	Scope   nic.Handle `json:"scope"`
	Outcome Outcome    `json:"outcome"`
	Error   string     `json:"error,omitempty"`
}

// record is one line of a journal file.
type record struct {
	Record string    `json:"record"`
	Time   time.Time `json:"time"`

	ID     ID           `json:"id,omitempty"`
	Kind   Kind         `json:"kind,omitempty"`
	Of     ID           `json:"of,omitempty"`
	Spec   *nic.Spec    `json:"spec,omitempty"`
	Before *nic.State   `json:"before,omitempty"`
	Clear  []nic.Handle `json:"clear,omitempty"`
	Boot   string       `json:"boot,omitempty"`

	Step    *plan.Step  `json:"step,omitempty"`
	Scope   *nic.Handle `json:"scope,omitempty"`
	Outcome Outcome     `json:"outcome,omitempty"`
	Error   string      `json:"error,omitempty"`
}

// The kinds of lines.
const (
	recordBegin  = "begin"
	recordIntent = "intent"
	recordDone   = "done"
	recordFailed = "failed"
	recordScope  = "scope"
	recordEnd    = "end"
)

// errNotBegun is of a file in which not even the first line is whole: the run
// had not begun, and nothing was touched.
var errNotBegun = errors.New("the run had not begun")

// readEntry reads a journal file. It fails only when there is no whole first
// line (errNotBegun), when that is no beginning of a run, or when r does. After
// a line that makes no sense nothing is believed but an end as the last line, and
// Damage says so.
func readEntry(r io.Reader) (Entry, error) {
	in := bufio.NewReader(r)
	line, whole, err := readLine(in)
	switch {
	case err != nil:
		return Entry{}, err
	case !whole:
		return Entry{}, errNotBegun
	}
	var first record
	if err := json.Unmarshal(line, &first); err != nil {
		return Entry{}, fmt.Errorf("line 1: %w", err)
	}
	if first.Record != recordBegin || first.ID < 1 || first.Spec == nil || first.Before == nil {
		return Entry{}, fmt.Errorf("line 1: record %q is no beginning of a run", first.Record)
	}
	e := Entry{
		ID: first.ID, Kind: first.Kind, Of: first.Of, Time: first.Time,
		Spec: *first.Spec, Before: *first.Before, Clear: first.Clear, Boot: first.Boot, Outcome: Interrupted,
	}
	for n := 2; ; n++ {
		line, whole, err := readLine(in)
		if err != nil {
			return Entry{}, err
		}
		if !whole {
			return e, nil
		}
		if err := e.add(line); err != nil {
			e.Damage = fmt.Sprintf("line %d: %v", n, err)
			return e, e.endAfter(in)
		}
	}
}

// endAfter looks in the rest of a damaged file for its end: a last line that says
// how the run ended was written by a process that had got there, whatever has
// become of the lines before it.
func (e *Entry) endAfter(in *bufio.Reader) error {
	var last []byte
	for {
		line, whole, err := readLine(in)
		if err != nil {
			return err
		}
		if !whole {
			break
		}
		last = line
	}
	var r record
	if e.Outcome == Interrupted && json.Unmarshal(last, &r) == nil && r.Record == recordEnd {
		damage := e.Damage
		if err := e.add(last); err != nil {
			e.Damage = damage + "; last line: " + err.Error()
		}
	}
	return nil
}

// readLine returns the next line; not whole at the end, and when it is cut short.
func readLine(in *bufio.Reader) (line []byte, whole bool, err error) {
	line, err = in.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return nil, false, nil
	}
	return bytes.TrimSuffix(line, []byte("\n")), err == nil, err
}

func (e *Entry) add(line []byte) error {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	if e.Outcome != Interrupted {
		return fmt.Errorf("record %q after the end", r.Record)
	}
	switch r.Record {
	case recordIntent, recordDone, recordFailed:
		if r.Step == nil || r.Step.Action == nil {
			return fmt.Errorf("record %q without a step", r.Record)
		}
		return e.addStep(r)
	case recordScope:
		if r.Scope == nil {
			return fmt.Errorf("record %q without a scope", r.Record)
		}
		if !slices.Contains([]Outcome{Reached, RolledBack, Failed, TurningBack, Clearing, Cleared}, r.Outcome) {
			return fmt.Errorf("a scope is not %q", r.Outcome)
		}
		e.Scopes = append(e.Scopes, ScopeRecord{*r.Scope, r.Outcome, r.Error})
	case recordEnd:
		if r.Outcome != Reached && r.Outcome != RolledBack && r.Outcome != Failed {
			return fmt.Errorf("a run does not end with %q", r.Outcome)
		}
		e.Outcome, e.End, e.Error = r.Outcome, r.Time, r.Error
	default:
		return fmt.Errorf("no such record: %q", r.Record)
	}
	return nil
}

// addStep adds an intent, or the end of the last one that was for the same step.
func (e *Entry) addStep(r record) error {
	if r.Record == recordIntent {
		e.Steps = append(e.Steps, StepRecord{Step: *r.Step, Time: r.Time, State: StepIntended})
		return nil
	}
	for i := len(e.Steps) - 1; i >= 0; i-- {
		s := &e.Steps[i]
		if s.State != StepIntended || s.Step != *r.Step {
			continue
		}
		s.State, s.Error = StepDone, r.Error
		if r.Record == recordFailed {
			s.State = StepFailed
		}
		return nil
	}
	return fmt.Errorf("record %q of a step that was not intended: %s", r.Record, r.Step)
}

// Lasting says whether something of the run is still there: a run that went all
// the way back left nothing, one that failed for one PF alone left the others as
// it wanted them, and of one that was cut off or cannot be read nobody knows.
func (e *Entry) Lasting() bool {
	if e.Outcome != RolledBack {
		return true
	}
	for _, pf := range e.Spec.PFs {
		if e.last(pf.Handle) == Reached {
			return true
		}
	}
	return false
}

// last is what was written of the scope last; "" if it was just begun, or not
// even that.
func (e *Entry) last(scope nic.Handle) Outcome {
	for _, s := range slices.Backward(e.Scopes) {
		if s.Scope == scope {
			return s.Outcome
		}
	}
	if slices.Contains(e.Clear, scope) {
		return Clearing
	}
	return ""
}
