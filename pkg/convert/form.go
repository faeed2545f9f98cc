package convert

import (
	"fmt"
	"regexp"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// pciID checks a PCI id. One that is nearly right chooses nothing with the peer,
// whose comparison is of text.
func pciID(id string) error {
	if isPCIID(id) {
		return nil
	}
	right := strings.TrimPrefix(strings.ToLower(id), "0x")
	if isPCIID(right) {
		return fmt.Errorf("it is no PCI id as the kernel writes it, and chooses nothing: want %q", right)
	}
	return fmt.Errorf("it is no PCI id: want four hexadecimal digits in lower case, for example 15b3")
}

func isPCIID(id string) bool {
	return len(id) == 4 && strings.Trim(id, "0123456789abcdef") == ""
}

func pciAddress(a string) error {
	if nic.IsPCIAddress(a) {
		return nil
	}
	for _, right := range []string{strings.ToLower(a), "0000:" + strings.ToLower(a)} {
		if nic.IsPCIAddress(right) {
			return fmt.Errorf("it is no PCI address as the kernel writes it, and chooses nothing: want %q", right)
		}
	}
	return fmt.Errorf("it is no PCI address: want domain:bus:device.function, for example 0000:03:00.0")
}

// resourceName checks what both peers allow and Kubernetes takes.
func resourceName(name string) error {
	if len(name) <= 63 && regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`).MatchString(name) {
		return nil
	}
	return fmt.Errorf("it is no name of a resource: want 1 to 63 letters, digits, dashes and underscores, the first and the last a letter or digit")
}

func resourcePrefix(prefix string) error {
	const label = `[a-z0-9]([a-z0-9-]*[a-z0-9])?`
	if len(prefix) <= 244 && regexp.MustCompile(`^`+label+`(\.`+label+`)*$`).MatchString(prefix) {
		return nil
	}
	return fmt.Errorf("it is no prefix of a resource: want a DNS name, for example intel.com")
}

// portRange is a port with some of its VFs: "ens1f0#0-3,7".
type portRange struct {
	port string
	vfs  nic.Ranges // empty: all
}

func (p portRange) String() string {
	if len(p.vfs) == 0 {
		return p.port
	}
	return p.port + "#" + p.vfs.String()
}

func parsePortRange(text string) (portRange, error) {
	port, ranges, some := strings.Cut(text, "#")
	if port == "" || some && ranges == "" {
		return portRange{}, fmt.Errorf("want PF or PF#RANGES, for example ens1f0#0-3,7")
	}
	vfs, err := nic.ParseRanges(ranges)
	return portRange{port, vfs}, err
}

// join adds the VFs of p to list, which has each port once, in the order of their
// first mention. A port without ranges has all.
func join(list []portRange, p portRange) []portRange {
	for i := range list {
		if list[i].port != p.port {
			continue
		}
		if len(list[i].vfs) == 0 || len(p.vfs) == 0 {
			list[i].vfs = nil
			return list
		}
		list[i].vfs = union(list[i].vfs, p.vfs)
		return list
	}
	return append(list, p)
}

// union is what is in a or in b, which both are not empty.
func union(a, b nic.Ranges) nic.Ranges {
	var out nic.Ranges
	for len(a) > 0 || len(b) > 0 {
		if len(a) == 0 || len(b) > 0 && b[0].First < a[0].First {
			a, b = b, a
		}
		if last := len(out) - 1; last >= 0 && a[0].First <= out[last].Last+1 {
			out[last].Last = max(out[last].Last, a[0].Last)
		} else {
			out = append(out, a[0])
		}
		a = a[1:]
	}
	return out
}
