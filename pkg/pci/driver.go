package pci

import (
	"os"
	"strings"
)

// Driver gives the name of the bound driver, "" for none.
func (s *Sys) Driver(address string) string {
	name, _ := s.linkOf(address, "driver")
	return name
}

// HasDriver says whether driver is there to be bound to.
func (s *Sys) HasDriver(driver string) bool {
	_, err := os.Stat(s.path("drivers", driver))
	return err == nil
}

// Netdev says whether the function has a netdev, in whatever namespace: net/ is
// in the function's directory for as long as one is.
func (s *Sys) Netdev(address string) bool {
	_, err := os.Stat(s.device(address, "net"))
	return err == nil
}

// Userspace says whether the function's driver hands it to programs instead of
// making a netdev: VFIO drivers have vfio-dev/ under the function since Linux
// 6.1, UIO drivers uio/.
func (s *Sys) Userspace(address string) bool {
	switch driver := s.Driver(address); {
	case driver == "":
		return false
	case strings.Contains(driver, "vfio"), strings.Contains(driver, "uio"), driver == "pci-stub":
		return true
	}
	for _, sub := range []string{"vfio-dev", "uio"} {
		if _, err := os.Stat(s.device(address, sub)); err == nil {
			return true
		}
	}
	return false
}

// Override gives driver_override, "" when none is set.
func (s *Sys) Override(address string) string {
	var r reader
	d, err := openDir(s.device(address))
	if err != nil {
		return ""
	}
	defer d.close()
	b, _ := r.read(d, "driver_override")
	if string(b) == "(null)" {
		return ""
	}
	return string(b)
}

// SetOverride ties the function to driver, and with "" to none: the kernel then
// goes by device ids again (driver_override_store).
func (s *Sys) SetOverride(address, driver string) error {
	return write(s.device(address, "driver_override"), driver)
}

// Bind writes the address to the driver's bind file, which tells why a probe
// failed; drivers_probe says EINVAL whatever it was.
func (s *Sys) Bind(address, driver string) error {
	return write(s.path("drivers", driver, "bind"), address)
}

// Probe has the kernel look for a driver (drivers_probe).
func (s *Sys) Probe(address string) error {
	return write(s.path("drivers_probe"), address)
}

// Unbind takes the function from its driver.
func (s *Sys) Unbind(address, driver string) error {
	return write(s.path("drivers", driver, "unbind"), address)
}

// Away says whether the function has a netdev, and none in the namespace of the
// mount.
func (s *Sys) Away(address string) bool {
	var r reader
	d, err := openDir(s.device(address))
	if err != nil {
		return false
	}
	defer d.close()
	there, filled := r.peek(d, "net")
	return there && !filled
}
