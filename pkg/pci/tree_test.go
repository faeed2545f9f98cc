package pci

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// tree writes sysfs trees of files in the kernel's layout: devices below
// sys/devices, symbolic links to them below sys/bus/pci/devices.
type tree struct {
	t    testing.TB
	root string
}

func newTree(t testing.TB) tree {
	t.Helper()
	tr := tree{t: t, root: t.TempDir()}
	tr.mkdir("bus/pci/devices")
	tr.mkdir("bus/pci/drivers")
	return tr
}

func (tr tree) path(elem ...string) string {
	return filepath.Join(append([]string{tr.root}, elem...)...)
}

func (tr tree) mkdir(name string) {
	tr.t.Helper()
	if err := os.MkdirAll(tr.path(name), 0o700); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) file(name, value string) {
	tr.t.Helper()
	if err := os.WriteFile(tr.path(name), []byte(value), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) link(target, name string) {
	tr.t.Helper()
	if err := os.Symlink(target, tr.path(name)); err != nil {
		tr.t.Fatal(err)
	}
}

// function makes one function and gives its directory's name below root.
func (tr tree) function(address, vendor, device, class, driver string) string {
	tr.t.Helper()
	d := "devices/pci0000:00/" + address
	tr.mkdir(d)
	tr.link("../../../"+d, "bus/pci/devices/"+address)
	uevent := ""
	if driver != "" {
		uevent = "DRIVER=" + driver + "\n"
		tr.mkdir("bus/pci/drivers/" + driver)
		tr.link("../../../bus/pci/drivers/"+driver, d+"/driver")
	}
	tr.file(d+"/uevent", uevent+fmt.Sprintf("PCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SUBSYS_ID=15B3:0001\nPCI_SLOT_NAME=%s\nMODALIAS=pci:v\n",
		class, vendor, device, address))
	tr.file(d+"/numa_node", "1\n")
	tr.mkdir("kernel/iommu_groups/42")
	tr.link("../../../kernel/iommu_groups/42", d+"/iommu_group")
	return d
}

// pf makes a PF with n of total VFs, at functions 2 and up of its bus.
func (tr tree) pf(address string, total, n int) string {
	tr.t.Helper()
	d := tr.function(address, "15B3", "101D", "20000", "mlx5_core")
	tr.mkdir(d + "/net/eth0")
	tr.file(d+"/sriov_totalvfs", fmt.Sprintln(total))
	tr.file(d+"/sriov_numvfs", fmt.Sprintln(n))
	tr.file(d+"/sriov_drivers_autoprobe", "1\n")
	tr.file(d+"/sriov_vf_total_msix", "640\n")
	for i := range n {
		tr.vf(address, i)
	}
	return d
}

func vfAddress(pf string, i int) string {
	bus, function := pf[:len(pf)-4], int(pf[len(pf)-1]-'0')
	at := 2 + function*128 + i
	return fmt.Sprintf("%s%02x.%d", bus[:len(bus)-3]+fmt.Sprintf("%02x:", 0x10+at>>8), at>>3&0x1f, at&7)
}

func (tr tree) vf(pf string, i int) string {
	tr.t.Helper()
	address := vfAddress(pf, i)
	d := tr.function(address, "15B3", "101E", "20000", "mlx5_core")
	tr.mkdir(fmt.Sprintf("%s/net/v%d", d, i))
	tr.link("../"+pf, d+"/physfn")
	tr.link("../"+address, fmt.Sprintf("devices/pci0000:00/%s/virtfn%d", pf, i))
	return d
}

// vpdBytes makes the data of a card.
func vpdBytes(product, serial string) []byte {
	large := func(tag byte, b []byte) []byte {
		return append([]byte{tag, byte(len(b)), byte(len(b) >> 8)}, b...)
	}
	field := func(k, v string) []byte { return append([]byte{k[0], k[1], byte(len(v))}, v...) }
	var fields []byte
	for _, f := range [][2]string{{"PN", "MCX623106AN"}, {"EC", "A7"}, {"SN", serial}, {"V3", "x"}, {"RV", "\x7f\x00"}} {
		fields = append(fields, field(f[0], f[1])...)
	}
	out := large(vpdString, []byte(product))
	out = append(out, large(vpdR, fields)...)
	return append(out, vpdEnd)
}
