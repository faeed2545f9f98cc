package vdpa

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The drivers of the vdpa bus.
const (
	Vhost  = "vhost_vdpa"  // a virtual machine opens /dev/vhost-vdpa-N
	Virtio = "virtio_vdpa" // the kernel has a netdev of it
)

// Sys is the vdpa bus in sysfs.
type Sys struct{ Root string } // sysfs, such as /sys

func (s Sys) device(name string) string { return s.Root + "/bus/vdpa/devices/" + name }

// Driver is the driver that a device is bound to; "" none.
func (s Sys) Driver(name string) string {
	target, err := os.Readlink(s.device(name) + "/driver")
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// File is the character device of a device that is bound to Vhost, "vhost-vdpa-0";
// "" until it is there.
func (s Sys) File(name string) string { return s.child(name, "vhost-vdpa-*") }

// Netdev is the netdev of a device that is bound to Virtio; "" until it is there,
// or when it is in another network namespace.
func (s Sys) Netdev(name string) string { return s.child(name, "virtio*/net/*") }

func (s Sys) child(name, pattern string) string {
	// The name is a path's part, not a pattern.
	found, err := fs.Glob(os.DirFS(s.device(name)), pattern)
	if err != nil || len(found) == 0 {
		return ""
	}
	return filepath.Base(found[0])
}

// Bind gives a device to a driver, taking it from another one before. Any driver
// of the bus takes any device, and a new device goes to the first that was loaded,
// unless driver_override says which (vdpa_bus_match); that stays, as devices are
// probed again when a driver is loaded. No such device or driver is
// fs.ErrNotExist.
func (s Sys) Bind(name, driver string) error {
	if _, err := os.Stat(s.device(name)); err != nil {
		return fmt.Errorf("no vDPA device %s: %w", name, cause(err))
	}
	if _, err := os.Stat(s.Root + "/bus/vdpa/drivers/" + driver); err != nil {
		return fmt.Errorf("no vDPA driver %s is loaded: %w", driver, cause(err))
	}
	if err := write(s.device(name)+"/driver_override", driver); err != nil {
		return err
	}
	switch bound := s.Driver(name); bound {
	case driver:
		return nil
	case "":
	default:
		if err := s.Unbind(name); err != nil {
			return err
		}
	}
	err := write(s.Root+"/bus/vdpa/drivers/"+driver+"/bind", name)
	if err != nil && s.Driver(name) == driver { // the kernel was quicker
		return nil
	}
	return err
}

// Unbind takes a device from its driver, which waits until whoever has its file
// open closes it (vhost_vdpa_remove). One that has none is success.
func (s Sys) Unbind(name string) error {
	driver := s.Driver(name)
	if driver == "" {
		return nil
	}
	err := write(s.Root+"/bus/vdpa/drivers/"+driver+"/unbind", name)
	if errors.Is(err, unix.ENODEV) && s.Driver(name) == "" {
		return nil
	}
	return err
}

func write(path, value string) error {
	if strings.ContainsAny(value, "\x00\n/") {
		return fmt.Errorf("%q is no name: %w", value, unix.EINVAL)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// cause is the errno of a file's error, whose path says no more than the words.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
