package pci

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Exists says whether there is a function at address.
func (s *Sys) Exists(address string) bool {
	_, err := os.Lstat(s.device(address))
	return err == nil
}

// PF gives the address of a VF's PF; not ok for a function that is no VF.
func (s *Sys) PF(address string) (pf string, ok bool) {
	return s.linkOf(address, "physfn")
}

// VF gives the address of VF i of pf.
func (s *Sys) VF(pf string, i int) (address string, ok bool) {
	return s.linkOf(pf, virtfn(i))
}

// Class gives the class code as six hexadecimal digits, 020000 for Ethernet.
func (s *Sys) Class(address string) string {
	var r reader
	d, err := openDir(s.device(address))
	if err != nil {
		return ""
	}
	defer d.close()
	return s.identity(&r, d, &Function{})
}

// NumVFs gives how many VFs a PF has; not ok when it is none or has no SR-IOV.
func (s *Sys) NumVFs(pf string) (n int, ok bool) {
	n = s.numberOf(pf, "sriov_numvfs", -1)
	return n, n >= 0
}

// TotalVFs gives how many VFs a PF can have, 0 when it has no SR-IOV.
func (s *Sys) TotalVFs(pf string) int { return s.numberOf(pf, "sriov_totalvfs", 0) }

// SetNumVFs writes sriov_numvfs. The kernel makes or removes all VFs, and with
// autoprobe binds them, before the write returns (sriov_numvfs_store).
func (s *Sys) SetNumVFs(pf string, n int) error {
	return write(s.device(pf, "sriov_numvfs"), strconv.Itoa(n))
}

// Autoprobe gives sriov_drivers_autoprobe of a PF.
func (s *Sys) Autoprobe(pf string) (on, ok bool) {
	n := s.numberOf(pf, "sriov_drivers_autoprobe", -1)
	return n == 1, n >= 0
}

// AutoprobeFile is where that is.
func (s *Sys) AutoprobeFile(pf string) string { return s.device(pf, "sriov_drivers_autoprobe") }

// SetAutoprobe writes it.
func (s *Sys) SetAutoprobe(pf string, on bool) error {
	v := "0"
	if on {
		v = "1"
	}
	return write(s.AutoprobeFile(pf), v)
}

func (s *Sys) numberOf(address, attr string, otherwise int) int {
	var r reader
	d, err := openDir(s.device(address))
	if err != nil {
		return otherwise
	}
	defer d.close()
	return r.number(d, attr, otherwise)
}

func (s *Sys) linkOf(address, name string) (string, bool) {
	var r reader
	return r.link(unix.AT_FDCWD, s.device(address, name))
}

// write writes one attribute in one call, as the kernel takes it.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
