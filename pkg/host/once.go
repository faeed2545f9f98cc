package host

import (
	"context"
	"sync"
)

// observation is what was read already within one Observe.
type observation struct {
	mu    sync.Mutex
	lists map[any]any
}

type observationKey struct{}

// observing gives a context within which Once reads each list a single time.
func observing(ctx context.Context) context.Context {
	return context.WithValue(ctx, observationKey{}, &observation{lists: map[any]any{}})
}

// Once is for implementations of Machine whose parts are made of the same lists:
// within one Observe it calls read for a key once, and gives what that gave to
// whoever asks again, who must not change it. Elsewhere it calls read each time.
// An error is not kept. read must not call Once.
func Once[T any](ctx context.Context, key any, read func() (T, error)) (T, error) {
	o, ok := ctx.Value(observationKey{}).(*observation)
	if !ok {
		return read()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if had, ok := o.lists[key]; ok {
		return had.(T), nil
	}
	out, err := read()
	if err == nil {
		o.lists[key] = out
	}
	return out, err
}
