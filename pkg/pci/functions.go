package pci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Functions lists the functions of class 02 (network controller) by address. A
// machine without a PCI bus has none. When VFs came or went in the midst of it the
// list is read again, a few times: while somebody else is making 128 VFs, or has
// removed a single one, it stays in parts, and what was found is given.
func (s *Sys) Functions(ctx context.Context) ([]Function, error) {
	for pause := 2 * time.Millisecond; ; pause *= 2 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, whole, err := s.functions()
		if err != nil || whole || pause > 10*time.Millisecond {
			return out, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Function reads one function of class 02; not ok when there is none at address.
func (s *Sys) Function(address string) (f Function, ok bool) {
	var r reader
	devices, err := openDir(s.path("devices"))
	if err != nil {
		return f, false
	}
	defer devices.close()
	f, network, ok := s.function(&r, devices, address, false)
	if !ok || !network {
		return Function{}, false
	}
	f.Netdevs = s.netdevs(address)
	if f.PF == "" {
		return f, true
	}
	// As in the list, a VF without an index under its PF is none.
	if f.VFIndex, ok = s.index(f.PF, address); !ok {
		return Function{}, false
	}
	f.NUMA = s.numberOf(f.PF, "numa_node", -1)
	return f, true
}

// index finds a VF among its PF's by the place that offset and stride give it
// (drivers/pci/iov.c, pci_iov_virtfn_bus), and one by one where they do not.
func (s *Sys) index(pf, vf string) (int, bool) {
	offset, stride := s.numberOf(pf, "sriov_offset", 0), s.numberOf(pf, "sriov_stride", 0)
	a, okA := routingID(pf)
	b, okB := routingID(vf)
	if okA && okB && stride > 0 && b >= a+offset {
		i := (b - a - offset) / stride
		if at, ok := s.VF(pf, i); ok && at == vf {
			return i, true
		}
	}
	n, _ := s.NumVFs(pf)
	for i := range n {
		if at, ok := s.VF(pf, i); ok && at == vf {
			return i, true
		}
	}
	return 0, false
}

// routingID is bus, device and function of an address as one number.
func routingID(address string) (int, bool) {
	_, rest, ok := strings.Cut(address, ":")
	if !ok || len(rest) != len("00:00.0") {
		return 0, false
	}
	n, err := strconv.ParseUint(rest[:2]+rest[3:5], 16, 16)
	if err != nil || rest[6] < '0' || rest[6] > '7' {
		return 0, false
	}
	bus, device := int(n>>8), int(n&0xff)
	return bus<<8 | device<<3 | int(rest[6]-'0'), true
}

// netdevs lists the ifindexes of the function's netdevs. One that goes away while
// it is looked at is none.
func (s *Sys) netdevs(address string) []int {
	entries, err := os.ReadDir(s.device(address, "net"))
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		raw, err := os.ReadFile(s.device(address, "net", e.Name(), "ifindex"))
		if n, ok := decimal(bytes.TrimSpace(raw)); err == nil && ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// vf is what a PF says about one of its VFs. The node is the PF's too: both sit
// on one card, and the kernel takes it from the bus (pci_device_add).
type vf struct {
	pf    string
	index int
	numa  int
}

// functions reads the list once. It is whole when each VF was found both in the
// list of devices and under its PF.
func (s *Sys) functions() (out []Function, whole bool, err error) {
	var r reader
	devices, err := openDir(s.path("devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("open %s: %w", s.path("devices"), err)
	}
	defer devices.close()
	names, err := r.list(devices)
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", s.path("devices"), err)
	}
	slices.Sort(names)

	// A PF sorts before its VFs nearly always, so its links tell most VFs before
	// they are met; the others are placed at the end.
	vfs := map[string]vf{}
	var early []Function
	out = make([]Function, 0, len(names))
	whole = true
	for _, name := range names {
		of, isVF := vfs[name]
		f, network, ok := s.function(&r, devices, name, isVF)
		switch {
		case !ok:
			whole = false // went away since the list was read
		case isVF:
			f.PF, f.VFIndex, f.NUMA = of.pf, of.index, of.numa
			out = append(out, f)
			delete(vfs, name)
		case network && f.PF != "":
			early = append(early, f)
		case network:
			if f.NumVFs > 0 && !s.virtfns(&r, devices, f, vfs) {
				whole = false
			}
			out = append(out, f)
		}
	}
	for _, f := range early {
		of, ok := vfs[f.Address]
		if !ok {
			whole = false
			continue
		}
		f.VFIndex, f.NUMA = of.index, of.numa
		out = append(out, f)
		delete(vfs, f.Address)
	}
	if len(vfs) > 0 {
		whole = false
	}
	if len(early) > 0 {
		slices.SortFunc(out, func(a, b Function) int { return bytes.Compare([]byte(a.Address), []byte(b.Address)) })
	}
	return out, whole, nil
}

// virtfns adds the VFs of pf to vfs; false when there are fewer than it says.
func (s *Sys) virtfns(r *reader, devices dir, pf Function, vfs map[string]vf) bool {
	fd, err := devices.openAt(pf.Address, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	d := dir(fd)
	defer d.close()
	whole := true
	for i := range pf.NumVFs {
		address, ok := r.link(d, virtfn(i))
		if !ok {
			whole = false
			continue
		}
		vfs[address] = vf{pf: pf.Address, index: i, numa: pf.NUMA}
	}
	return whole
}

func virtfn(i int) string { return "virtfn" + strconv.Itoa(i) }

// vfioPCI is the driver that hands functions to programs.
const vfioPCI = "vfio-pci"

// function reads one function. Of one that is known as a VF, what only PFs have
// is not looked for. Of one that is no network controller nothing is filled in.
func (s *Sys) function(r *reader, devices dir, address string, isVF bool) (f Function, network, ok bool) {
	fd, err := devices.openAt(address, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return f, false, false
	}
	d := dir(fd)
	defer d.close()

	f = Function{Address: address, VFIndex: -1}
	class := s.identity(r, d, &f)
	if !isVF {
		if len(class) != 6 || class[:2] != "02" {
			return f, false, true
		}
		f.PF, isVF = r.link(d, "physfn")
	}
	f.NUMA, f.IOMMUGroup = -1, -1
	if !isVF {
		f.NUMA = r.number(d, "numa_node", -1)
	}
	if group, ok := r.link(d, "iommu_group"); ok {
		if n, ok := decimal([]byte(group)); ok {
			f.IOMMUGroup = n
		}
	}
	if f.Driver == vfioPCI {
		f.VFIO = r.first(d, "vfio-dev")
	}
	if f.Driver != "" {
		there, filled := r.peek(d, "net")
		f.Away = there && !filled
	}
	if isVF {
		return f, true, true
	}
	if f.TotalVFs = r.number(d, "sriov_totalvfs", 0); f.TotalVFs > 0 {
		f.NumVFs = r.number(d, "sriov_numvfs", 0)
		f.Autoprobe = r.number(d, "sriov_drivers_autoprobe", 0) == 1
		f.VFVectors = r.number(d, "sriov_vf_total_msix", 0)
		if b, ok := r.read(d, "sriov_vf_device"); ok {
			f.VFDevice = hexDigits(b, 4)
		}
	}
	f.ACPIIndex = r.number(d, "acpi_index", 0)
	f.Path = r.place(devices, address)
	if s.vpd != nil {
		f.Product, f.Serial = s.vpd.read(d, address)
	}
	return f, true, true
}

// identity fills in ids and driver, and gives the class as six hexadecimal
// digits. uevent has all four in one file (pci_uevent, dev_uevent); the single
// attributes are read when it cannot be.
func (s *Sys) identity(r *reader, d dir, f *Function) (class string) {
	if b, ok := r.read(d, "uevent"); ok {
		class = uevent(b, f)
		if class != "" && f.Vendor != "" {
			return class
		}
	}
	f.Driver, _ = r.link(d, "driver")
	for _, a := range []struct {
		name   string
		digits int
		to     *string
	}{{"vendor", 4, &f.Vendor}, {"device", 4, &f.Device}, {"class", 6, &class}} {
		*a.to = ""
		if b, ok := r.read(d, a.name); ok {
			*a.to = hexDigits(bytes.TrimPrefix(b, []byte("0x")), a.digits)
		}
	}
	return class
}

// uevent reads lines such as DRIVER=mlx5_core, PCI_CLASS=20000 and
// PCI_ID=15B3:101D; the kernel prints the numbers in capitals, the class without
// leading zeros.
func uevent(b []byte, f *Function) (class string) {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		b = rest
		key, value, _ := bytes.Cut(line, []byte("="))
		switch string(key) {
		case "DRIVER":
			f.Driver = string(value)
		case "PCI_CLASS":
			class = hexDigits(value, 6)
		case "PCI_ID":
			vendor, device, _ := bytes.Cut(value, []byte(":"))
			f.Vendor, f.Device = hexDigits(vendor, 4), hexDigits(device, 4)
		}
	}
	return class
}

// hexDigits gives b in lower case, filled up with zeros to n digits; "" when b is
// no number of at most n digits.
func hexDigits(b []byte, n int) string {
	if len(b) == 0 || len(b) > n {
		return ""
	}
	var out [8]byte
	pad := n - len(b)
	for i := range n {
		c := byte('0')
		if i >= pad {
			c = b[i-pad]
		}
		switch {
		case c >= 'A' && c <= 'F':
			c += 'a' - 'A'
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return ""
		}
		out[i] = c
	}
	return string(out[:n])
}
