package sim

import (
	"errors"
	"slices"
	"syscall"
)

// ErrCrashed is what every call answers after a Fault with Crash: the process
// that used the machine is gone, the machine is as the kernel left it.
var ErrCrashed = errors.New("crashed")

// Fault makes an operation fail. Its zero value fails the next one with EIO.
type Fault struct {
	// Which operations are meant: all that fit every field that is set. Aggregate is
	// met by its name only; Errno and After say nothing of it, and it does not crash.
	Verb   Verb          `json:"verb,omitempty"`
	Object string        `json:"object,omitempty"`
	Write  int           `json:"write,omitempty"` // Op.N
	Match  func(Op) bool `json:"-"`

	Skip  int  `json:"skip,omitempty"`  // let so many of them pass first
	Times int  `json:"times,omitempty"` // how many fail; 0 is one, -1 all
	After bool `json:"after,omitempty"` // fail once the change is made, not before

	// How it fails. Errno 0 is EIO.
	Errno syscall.Errno `json:"errno,omitempty"`
	Ext   string        `json:"ext,omitempty"` // extended ack text
	Crash bool          `json:"crash,omitempty"`
}

// Inject adds a fault. Several may wait; the first that fits an operation is the
// one that strikes.
func (s *Sim) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Faults = append(s.st.Faults, f)
}

// Heal takes all faults away.
func (s *Sim) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Faults = nil
}

// Restart ends a crash: the next process may use the machine.
func (s *Sim) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = false
}

func (f Fault) fits(op Op) bool {
	return (f.Verb == "" && op.Verb != Aggregate || f.Verb == op.Verb) &&
		(f.Object == "" || f.Object == op.Object) &&
		(f.Write == 0 || f.Write == op.N) &&
		(f.Match == nil || f.Match(op))
}

// fault finds the fault that strikes op, and counts what it let pass and how often
// it struck in the fault itself, so that a saved machine goes on where it was.
func (s *Sim) fault(op Op) *Fault {
	for i := range s.st.Faults {
		f := &s.st.Faults[i]
		if !f.fits(op) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		hit := *f
		switch {
		case f.Times > 1:
			f.Times--
		case f.Times >= 0:
			s.st.Faults = slices.Delete(s.st.Faults, i, i+1)
		}
		return &hit
	}
	return nil
}

func (s *Sim) strike(op Op, f *Fault) error {
	if f.Crash {
		s.dead = true
		return op.fail(ErrCrashed)
	}
	errno := f.Errno
	if errno == 0 {
		errno = syscall.EIO
	}
	return op.fail(refuse(errno, f.Ext))
}
