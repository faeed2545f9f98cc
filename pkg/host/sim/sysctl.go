package sim

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"syscall"

	"sluice.dev/sluice/pkg/host"
)

// sysctls are some of what an interface has, with what new ones get
// (net/ipv4/devinet.c, net/ipv6/addrconf.c, net/core/neighbour.c).
var sysctls = map[string]string{
	"net.ipv4.conf.IFNAME.accept_local": "0", "net.ipv4.conf.IFNAME.arp_announce": "0", "net.ipv4.conf.IFNAME.arp_ignore": "0",
	"net.ipv4.conf.IFNAME.arp_notify": "0", "net.ipv4.conf.IFNAME.forwarding": "0", "net.ipv4.conf.IFNAME.proxy_arp": "0",
	"net.ipv4.conf.IFNAME.rp_filter":  "0",
	"net.ipv6.conf.IFNAME.accept_dad": "1", "net.ipv6.conf.IFNAME.accept_ra": "1", "net.ipv6.conf.IFNAME.autoconf": "1",
	"net.ipv6.conf.IFNAME.disable_ipv6": "0", "net.ipv6.conf.IFNAME.forwarding": "0",
	"net.ipv4.neigh.IFNAME.gc_stale_time": "60", "net.ipv6.neigh.IFNAME.gc_stale_time": "60",
}

func (n *links) Sysctl(ctx context.Context, ifindex int, name string) (string, error) {
	value, known := sysctls[name]
	unknown := Op{Verb: "read sysctl", Arg: name, Object: "default"}.fail(syscall.ENOENT)
	if ifindex == host.DefaultSysctl {
		return value, n.s.read(ctx, "read sysctl", func() error {
			if !known {
				return unknown
			}
			return nil
		})
	}
	err := n.one(ctx, "read sysctl", ifindex, func(l *link) {
		if set, ok := l.Sysctls[name]; ok {
			value = set
		}
	})
	if err == nil && !known {
		err = unknown
	}
	return value, err
}

func (n *links) SetSysctl(ctx context.Context, ifindex int, name, value string) error {
	return n.set(ctx, SetSysctl, name+" "+value, ifindex, func(l *link) (func(), error) {
		if _, ok := sysctls[name]; !ok {
			return nil, refuse(syscall.ENOENT, "")
		}
		if _, err := strconv.Atoi(strings.TrimSpace(value)); err != nil {
			return nil, refuse(syscall.EINVAL, "") // proc_dointvec
		}
		return func() {
			l.Sysctls = maps.Clone(l.Sysctls)
			if l.Sysctls == nil {
				l.Sysctls = map[string]string{}
			}
			l.Sysctls[name] = value
		}, nil
	})
}
