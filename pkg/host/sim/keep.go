package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// place is the file that is a machine which several processes use: each change is
// made to what the file has, and is in it before the change is answered. So none is
// made to a machine of long ago, and none ends with the process that made it.
type place struct {
	path  string
	seen  *os.File    // that was read or written last; open, so that no other takes its number
	as    os.FileInfo // as it was then
	crash func()
}

// see remembers the file that is there now.
func (p *place) see(now *os.File) error {
	as, err := now.Stat()
	if err != nil {
		return errors.Join(err, now.Close())
	}
	if p.seen != nil {
		_ = p.seen.Close()
	}
	p.seen, p.as = now, as
	return nil
}

// is says whether a file is the one that was seen last, as it was.
func (p *place) is(f *os.File) bool {
	now, err := f.Stat()
	return err == nil && p.seen != nil && os.SameFile(p.as, now) && p.as.ModTime().Equal(now.ModTime())
}

// Keep makes the file at path the machine's place. If there is a machine in it, it
// replaces this one. The folder is made with the first change; who only reads needs
// none. crash is called after a Fault with Crash has struck and is in the file: it
// ends the process; nil lets calls fail instead.
func (s *Sim) Keep(path string, crash func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place = &place{path: path, crash: crash}
	return s.reread()
}

// reread takes up what others have made of the machine. s.mu is held.
func (s *Sim) reread() error {
	if s.place == nil {
		return nil
	}
	now, err := os.Open(s.place.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // nobody has changed it yet
	case err != nil:
		return err
	}
	if s.place.is(now) {
		return now.Close()
	}
	other, err := loadFrom(now)
	if err != nil {
		return errors.Join(err, now.Close())
	}
	s.st = other.st
	if err := s.place.see(now); err != nil {
		return err
	}
	if len(s.told) > 0 { // nothing else would tell
		s.work()
		s.send("another process has changed the machine")
	}
	return nil
}

// alone keeps other processes from changing the machine until release is called, and
// takes up what they have made of it. s.mu is held.
func (s *Sim) alone() (release func(), err error) {
	if s.place == nil {
		return func() {}, nil
	}
	if err := os.MkdirAll(filepath.Dir(s.place.path), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(s.place.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.EINTR
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err == nil {
		err = s.reread()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() { lock.Close() }, nil
}

// put writes the machine to its place, and ends the process if it has crashed. Others
// see all of it or what was before; a power cut of the real machine may take it.
// s.mu is held, and alone.
func (s *Sim) put() error {
	if s.place == nil {
		return nil
	}
	raw, err := json.Marshal(s.st)
	if err != nil {
		return fmt.Errorf("save simulated machine: %w", err)
	}
	next := s.place.path + ".new"
	if err := os.WriteFile(next, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("save simulated machine: %w", err)
	}
	seen, err := os.Open(next)
	if err != nil {
		return fmt.Errorf("save simulated machine: %w", err)
	}
	if err := os.Rename(next, s.place.path); err != nil {
		return fmt.Errorf("save simulated machine: %w", errors.Join(err, seen.Close()))
	}
	if err := s.place.see(seen); err != nil {
		return fmt.Errorf("save simulated machine: %w", err)
	}
	if s.dead && s.place.crash != nil {
		s.place.crash()
	}
	return nil
}
