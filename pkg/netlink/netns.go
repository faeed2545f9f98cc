package netlink

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ThreadNetns is the file of the calling thread's network namespace.
const ThreadNetns = "/proc/thread-self/ns/net"

// In calls f on a thread that is in the network namespace behind the open file
// ns; sockets opened by f stay there. f must not start goroutines that rely on
// the namespace. Needs CAP_SYS_ADMIN.
func In(ns int, f func() error) error {
	done := make(chan error)
	go func() {
		// A thread that cannot go back must not serve another goroutine: it
		// stays locked, and the runtime ends it with this goroutine.
		runtime.LockOSThread()
		home, err := unix.Open(ThreadNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("open the thread's own network namespace: %w", err)
			return
		}
		defer unix.Close(home)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		err = f()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
