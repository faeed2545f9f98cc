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
	// Which operations are meant: all that fit every field that is set.
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
	s.st.Faults, s.seen = nil, nil
}

// Restart ends a crash: the next process may use the machine.
func (s *Sim) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = false
}

func (f Fault) fits(op Op) bool {
	return (f.Verb == "" || f.Verb == op.Verb) &&
		(f.Object == "" || f.Object == op.Object) &&
		(f.Write == 0 || f.Write == op.N) &&
		(f.Match == nil || f.Match(op))
}

// fault finds the fault that strikes op and uses it up.
func (s *Sim) fault(op Op) *Fault {
	for len(s.seen) < len(s.st.Faults) {
		s.seen = append(s.seen, 0)
	}
	for i, f := range s.st.Faults {
		if !f.fits(op) {
			continue
		}
		s.seen[i]++
		if s.seen[i] <= f.Skip {
			continue
		}
		if f.Times >= 0 && s.seen[i] >= f.Skip+max(f.Times, 1) {
			s.st.Faults = slices.Delete(s.st.Faults, i, i+1)
			s.seen = slices.Delete(s.seen, i, i+1)
		}
		return &f
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
