package linux

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
)

// Sysctl reads on a thread in the namespace: /proc/sys/net is that of whoever looks.
func (n *netnsLinks) Sysctl(ctx context.Context, ifindex int, name string) (string, error) {
	op := "read " + name
	path, object, err := n.sysctl(ctx, op, ifindex, name)
	if err != nil {
		return "", err
	}
	var text []byte
	err = n.within(func() (err error) { text, err = os.ReadFile(path); return err })
	return strings.TrimSpace(string(text)), fail(op, object, err)
}

func (n *netnsLinks) SetSysctl(ctx context.Context, ifindex int, name, value string) error {
	op := "set " + name + " " + value
	path, object, err := n.sysctl(ctx, op, ifindex, name)
	if err != nil {
		return err
	}
	return fail(op, object, n.within(func() error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	}))
}

func (n *netnsLinks) sysctl(ctx context.Context, op string, ifindex int, name string) (path, object string, err error) {
	ifname := "default"
	object = n.name(ifname, 0)
	if ifindex == host.DefaultSysctl {
		err = n.begin(ctx, op, object)
	} else {
		var k host.Link
		k, err = n.get(ctx, op, ifindex)
		ifname, object = k.Name, n.name(k.Name, ifindex)
	}
	if err != nil {
		return "", object, err
	}
	path, err = host.SysctlPath(name, ifname)
	if err != nil {
		return "", object, refuse(op, object, unix.EINVAL, err)
	}
	return "/proc/sys/" + path, object, nil
}
