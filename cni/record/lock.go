package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrLocked is returned by Lock when another process worked on the VF for the
// whole time that the context gave.
var ErrLocked = errors.New("another process works on it")

// Lock excludes all others from working on the VF at a PCI address, in this
// process and in others, until unlock is called or the process ends. It waits
// as long as ctx lasts.
func (s Store) Lock(ctx context.Context, vf string) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	// The file stays: if one process removed it while another waits on it, a
	// third would lock a new file and both would go ahead.
	f, err := os.OpenFile(filepath.Join(s.dir, vf+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", Name(vf), err)
	}
	return func() { f.Close() }, nil
}

// flock polls, since a flock that blocks cannot be told to stop.
func flock(ctx context.Context, f *os.File) error {
	const first, last = time.Millisecond, 50 * time.Millisecond
	for wait := first; ; wait = min(2*wait, last) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ErrLocked, ctx.Err())
		case <-time.After(wait):
		}
	}
}
