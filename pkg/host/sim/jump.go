package sim

import (
	"context"
	"sync"
	"time"
)

// Jump is a Clock that goes on by what somebody waits for, at once, and not
// otherwise: late things come without anybody being late.
type Jump struct {
	mu  sync.Mutex
	now time.Time
}

// Now is the zero time and all that was waited for.
func (c *Jump) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Wait returns at once.
func (c *Jump) Wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return nil
}
