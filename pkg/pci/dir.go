package pci

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// reader reads attributes of open directories into one buffer.
type reader struct {
	buf  [4096]byte // an attribute is at most a page
	ents [8192]byte
}

// dir is an open directory.
type dir int

func openDir(path string) (dir, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return dir(fd), err
		}
	}
}

func (d dir) openAt(name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(int(d), name, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (d dir) close() { _ = unix.Close(int(d)) }

// read gives an attribute without the space around it. The bytes are good until
// the next read.
func (r *reader) read(d dir, name string) ([]byte, bool) {
	fd, err := d.openAt(name, unix.O_RDONLY)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, r.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, false
		}
		return bytes.TrimSpace(r.buf[:n]), true
	}
}

// number reads a decimal attribute; absent is otherwise.
func (r *reader) number(d dir, name string, otherwise int) int {
	b, ok := r.read(d, name)
	if !ok {
		return otherwise
	}
	n, ok := decimal(b)
	if !ok {
		return otherwise
	}
	return n
}

func decimal(b []byte) (int, bool) {
	b, negative := bytes.CutPrefix(b, []byte("-"))
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// link gives the last element of what a symbolic link points to: the kernel's
// links lead to a device, a driver or a group, which that element names.
func (r *reader) link(d dir, name string) (string, bool) {
	n, err := unix.Readlinkat(int(d), name, r.buf[:])
	if err != nil || n == 0 {
		return "", false
	}
	target := string(r.buf[:n])
	return target[strings.LastIndexByte(target, '/')+1:], true
}

// list gives all names in the directory.
func (r *reader) list(d dir) ([]string, error) {
	var names []string
	for {
		n, err := unix.ReadDirent(int(d), r.ents[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return names, nil
		}
		for b := r.ents[:n]; len(b) > 0; {
			var used int
			used, _, names = unix.ParseDirent(b, -1, names)
			b = b[used:]
		}
	}
}

// first gives the first name in the directory name in d; "" when there is none.
func (r *reader) first(d dir, name string) string {
	fd, err := d.openAt(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return ""
	}
	inner := dir(fd)
	defer inner.close()
	names, err := r.list(inner)
	if err != nil || len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// peek says whether the directory name in d is there, and whether anything is in
// it, by its first entries only: a switchdev PF's net/ holds hundreds. A signal,
// of which Go's scheduler sends many, cuts the kernel's answer short (fs/readdir.c,
// filldir64), so that "." alone does not mean empty; only the end does.
func (r *reader) peek(d dir, name string) (there, filled bool) {
	fd, err := d.openAt(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	for {
		n, err := unix.ReadDirent(fd, r.ents[:256])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, false
		}
		if n <= 0 {
			return true, false
		}
		if _, count, _ := unix.ParseDirent(r.ents[:n], -1, nil); count > 0 {
			return true, true
		}
	}
}
