package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// SF is the auxiliary device of a subfunction, in the terms of host.SFDevice, into
// which it converts.
type SF struct {
	Name   string // mlx5_core.sf.4
	PF     string
	Num    int    // sfnum
	Driver string // "" when unbound
	Away   bool   // net/ is there, and empty in the mount's namespace
}

// SFs lists the subfunctions' devices by name. They are on the auxiliary bus below
// their PF, and have the attribute sfnum (mlx5/core/sf/dev/dev.c).
func (s *Sys) SFs() ([]SF, error) {
	var r reader
	path := s.root + "/bus/auxiliary/devices"
	devices, err := openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer devices.close()
	names, err := r.list(devices)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	slices.Sort(names)
	var out []SF
	for _, name := range names {
		if !IsSF(name) {
			continue // of the hundreds there the name tells most apart
		}
		if f, ok := s.sf(&r, devices, name); ok {
			out = append(out, f)
		}
	}
	return out, nil
}

// IsSF says whether an auxiliary device's name is a subfunction's.
func IsSF(name string) bool { return strings.Contains(name, ".sf.") }

func (s *Sys) sf(r *reader, devices dir, name string) (f SF, ok bool) {
	// ../../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/mlx5_core.sf.4
	n, err := unix.Readlinkat(int(devices), name, r.buf[:])
	if err != nil {
		return f, false
	}
	parts := strings.Split(string(r.buf[:n]), "/")
	if len(parts) < 2 {
		return f, false
	}
	fd, err := devices.openAt(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return f, false
	}
	d := dir(fd)
	defer d.close()
	f = SF{Name: name, PF: parts[len(parts)-2], Num: r.number(d, "sfnum", -1)}
	f.Driver, _ = r.link(d, "driver")
	if f.Driver != "" {
		there, filled := r.peek(d, "net")
		f.Away = there && !filled
	}
	return f, f.Num >= 0
}
