package host

import (
	"fmt"
	"strings"
)

// SysctlPath is where below /proc/sys a setting of one interface is. Its name is
// net.FAMILY.conf.IFNAME.X or net.FAMILY.neigh.IFNAME.X, with IFNAME in place of the
// interface, whose own name may have dots; of anything else it is an error.
func SysctlPath(name, ifname string) (string, error) {
	p := strings.Split(name, ".")
	plain := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
	}
	if len(p) != 5 || p[0] != "net" || p[1] != "ipv4" && p[1] != "ipv6" || p[2] != "conf" && p[2] != "neigh" || p[3] != "IFNAME" || !plain(p[4]) {
		return "", fmt.Errorf("%q: want net.ipv4 or net.ipv6, conf or neigh, IFNAME and a setting, for example net.ipv4.conf.IFNAME.rp_filter", name)
	}
	p[3] = ifname
	return strings.Join(p, "/"), nil
}

// DefaultSysctl stands for no interface but what new ones of a namespace get.
const DefaultSysctl = 0
