package sim

import (
	"context"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/host"
)

type watch struct{ hand }

// Changes tells of every change, by whomever.
func (s watch) Changes(ctx context.Context) (<-chan host.Change, error) {
	box := host.NewOutbox()
	err := s.read(ctx, "watch changes", func() error {
		if len(s.told) == 0 {
			s.shown = s.show()
		}
		s.told = append(s.told, box)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := make(chan host.Change, 64) // whoever reads finds several at once
	if s.place != nil {
		go s.listen(ctx)
	}
	go func() {
		defer close(c)
		box.Send(ctx, c)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = slices.DeleteFunc(s.told, func(o *host.Outbox) bool { return o == box })
	}()
	return c, nil
}

// listen looks now and then at what other processes do to a machine that is kept. What
// cannot be read then is an error to whoever reads.
func (s *Sim) listen(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.mu.Lock()
			_ = s.reread()
			s.mu.Unlock()
		}
	}
}

// tell says what has changed to those who watch, and that something has again when
// what is late has come.
func (s *Sim) tell(what string) {
	if len(s.told) == 0 {
		return
	}
	// Before anything is shown: what comes while that is made out is late as well.
	now := s.clock.Now()
	s.send(what)
	for _, due := range s.dues(now) {
		if !due.After(s.promised) {
			continue
		}
		s.promised = due
		aggregates := slices.ContainsFunc(s.st.LAGs, func(l *lag) bool { return l.Due.Equal(due) })
		go func() {
			if s.clock.Wait(context.Background(), due.Sub(now)) != nil {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.work()
			// A link may have been shown with the change before; what hardware
			// aggregates is in no list.
			if aggregates || len(s.shown.differ(s.show())) > 0 {
				s.send("what was late")
			}
		}()
	}
}

// send tells of each thing that shows differently than it was told last, as the kernel
// does. What shows in no list is told as anything.
func (s *Sim) send(what string) {
	now := s.show()
	things := s.shown.differ(now)
	s.shown = now
	if len(things) == 0 {
		things = []host.Thing{{}}
	}
	for _, box := range s.told {
		for _, t := range things {
			box.Put(host.Change{What: what, Of: t})
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
