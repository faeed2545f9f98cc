package apply

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// LockedError says that another process is changing the node.
type LockedError struct {
	PID int // 0: it did not say
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return "another run is changing this node: wait until it is done"
	}
	return fmt.Sprintf("another run is changing this node (process %d): wait until it is done", e.PID)
}

// lock makes the folder if there is none and takes the journal for this run. The
// kernel gives the lock back when the process ends, however it ends.
func (j *Journal) lock() (unlock func(), err error) {
	if err := os.MkdirAll(j.Dir, 0o700); err != nil {
		return nil, spaceError(fmt.Errorf("make the journal: %w", err))
	}
	f, err := os.OpenFile(filepath.Join(j.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, spaceError(fmt.Errorf("lock the journal: %w", err))
	}
	err = flock(f, syscall.LOCK_EX)
	for n := 0; n < 5 && errors.Is(err, syscall.EWOULDBLOCK); n++ {
		// It may be Running that only asks.
		time.Sleep(10 * time.Millisecond)
		err = flock(f, syscall.LOCK_EX)
	}
	if err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{PID: holder(f)}
		}
		return nil, fmt.Errorf("lock the journal: %w", err)
	}
	// Who holds it is for people to read; the lock is the kernel's.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return func() { f.Close() }, nil
}

// Running says whether a run is changing the node right now, and which process
// it is (0: it did not say).
func (j *Journal) Running() (pid int, running bool) {
	f, err := os.Open(filepath.Join(j.Dir, "lock"))
	if err != nil {
		return 0, false
	}
	defer f.Close() // and with it the lock, if it was got
	if !errors.Is(flock(f, syscall.LOCK_SH), syscall.EWOULDBLOCK) {
		return 0, false
	}
	return holder(f), true
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func holder(f *os.File) int {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}
