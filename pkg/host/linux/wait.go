package linux

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// limit bounds the waiting for what n VFs bring with them. A VF of a real card
// takes up to half a second to probe; 128 of them, a minute.
func limit(n int) time.Duration { return 10*time.Second + time.Duration(n)*time.Second }

// until asks missing what is still missing until that is nothing. The kernel has
// most things done before it answers, so the first look mostly suffices; then the
// pause grows, and is never shorter than twice what a look costs.
func until(ctx context.Context, bound time.Duration, missing func() (string, error)) error {
	const longest = 100 * time.Millisecond
	start := time.Now()
	for pause := time.Millisecond; ; pause = min(pause+pause/2, longest) {
		looked := time.Now()
		what, err := missing()
		if err != nil || what == "" {
			return err
		}
		if time.Since(start) > bound {
			return fmt.Errorf("%s, after %s: %w", what, bound, unix.ETIMEDOUT)
		}
		if err := netlink.Sleep(ctx, max(pause, 2*time.Since(looked))); err != nil {
			return err
		}
	}
}

// settle waits for udev to finish what it has at hand, such as giving new netdevs
// their names or loading a VF's driver: the file queue is there as long as there
// is work (systemd: udevadm settle). It is a courtesy with a bound, never an
// error: where udev does not run, or not in this container, there is no file.
func settle(ctx context.Context, queue string, bound time.Duration) error {
	deadline := time.Now().Add(bound)
	for time.Now().Before(deadline) {
		if _, err := os.Stat(queue); err != nil {
			return nil
		}
		if err := netlink.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
