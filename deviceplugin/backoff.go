package deviceplugin

import (
	"context"
	"time"
)

// backoff doubles a delay from first up to most.
type backoff struct {
	first, most time.Duration
	next        time.Duration
}

// grow returns how long to wait now.
func (b *backoff) grow() time.Duration {
	d := max(b.next, b.first)
	b.next = min(2*d, b.most)
	return d
}

func (b *backoff) reset() { b.next = 0 }

// pause waits for d and answers whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
