package host

import (
	"context"
	"sync"
)

// mostWaiting is how many changes wait for a reader; more of them are one, of
// anything.
const mostWaiting = 1024

// Outbox is for implementations of Watch: changes on their way to a reader who may
// be slow. While one waits to be read, another of the same thing adds nothing.
type Outbox struct {
	mu      sync.Mutex
	changes []Change
	waiting map[Thing]bool
	filled  chan struct{}
}

// NewOutbox makes an empty one.
func NewOutbox() *Outbox {
	return &Outbox{waiting: map[Thing]bool{}, filled: make(chan struct{}, 1)}
}

// Put adds a change, without waiting for the reader.
func (o *Outbox) Put(c Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.waiting[c.Of]:
		return
	case len(o.changes) >= mostWaiting:
		o.changes = []Change{{What: "more than can be told one by one"}}
		o.waiting = map[Thing]bool{{}: true}
	default:
		o.changes = append(o.changes, c)
		o.waiting[c.Of] = true
	}
	select {
	case o.filled <- struct{}{}:
	default:
	}
}

// take is the change that waits longest.
func (o *Outbox) take() (c Change, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.changes) == 0 {
		return Change{}, false
	}
	c, o.changes = o.changes[0], o.changes[1:]
	delete(o.waiting, c.Of)
	return c, true
}

// Send hands changes to a reader until ctx ends.
func (o *Outbox) Send(ctx context.Context, to chan<- Change) {
	for {
		c, ok := o.take()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-o.filled:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case to <- c:
		}
	}
}
