package sim

import (
	"context"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/host"
)

type watch struct{ hand }

// Changes tells of every change, by whomever. A watcher that is slow gets one word
// for several.
func (s watch) Changes(ctx context.Context) (<-chan host.Change, error) {
	c := make(chan host.Change, 16)
	err := s.read(ctx, "watch changes", func() error {
		s.told = append(s.told, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = slices.DeleteFunc(s.told, func(o chan host.Change) bool { return o == c })
		close(c)
	})
	return c, nil
}

// tell says what has changed to those who watch, and that something has again when
// what is late has come.
func (s *Sim) tell(what string) {
	if len(s.told) == 0 {
		return
	}
	s.send(what)
	now := s.clock.Now()
	for _, due := range s.dues(now) {
		if !due.After(s.promised) {
			continue
		}
		s.promised = due
		go func() {
			if s.clock.Wait(context.Background(), due.Sub(now)) != nil {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.work()
			s.send("what was late")
		}()
	}
}

func (s *Sim) send(what string) {
	for _, c := range s.told {
		select {
		case c <- host.Change{What: what}:
		default: // what it has not read yet says so too
		}
	}
}

// dues are the times at which something is yet to come.
func (s *Sim) dues(now time.Time) []time.Time {
	var out []time.Time
	add := func(t time.Time) {
		if t.After(now) && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	for _, l := range s.st.Links {
		add(l.Due)
	}
	for _, l := range s.st.LAGs {
		add(l.Due)
	}
	return out
}

// Stranger changes the machine as another program would: an administrator, a network
// manager, another operator. Its changes are not counted, not logged and meet no
// faults, and they go on after a crash.
func (s *Sim) Stranger(do func(host.Machine) error) error {
	return do(hand{Sim: s, stranger: true}.machine())
}
