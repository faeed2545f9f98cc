package linux

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/rtnl"
)

// pairs is pairs of veth or netkit with one end in the host's network namespace.
type pairs struct{ links *links }

func (p pairs) AddPair(ctx context.Context, kind host.PairKind, name, peer, path string) error {
	op := fmt.Sprintf("add %s pair with %s in %s", kind, peer, path)
	if err := p.links.begin(ctx, op, name); err != nil {
		return err
	}
	for _, n := range []string{name, peer} {
		if !validName(n) {
			return refuse(op, name, unix.EINVAL,
				fmt.Errorf("%q: want a name of 1 to %d characters, no space, slash, colon or percent sign: %w", n, maxName, unix.EINVAL))
		}
	}
	if kind != host.Veth && kind != host.Netkit {
		return refuse(op, name, unix.EINVAL, fmt.Errorf("kind %q: want %s or %s: %w", kind, host.Veth, host.Netkit, unix.EINVAL))
	}
	ns, done, err := target(op, name, path, p.links.home)
	if err != nil {
		return err
	}
	defer done()
	return fail(op, name, p.links.rtnl.AddPair(string(kind), name, peer, int(ns.Fd())))
}

func (p pairs) DelPair(ctx context.Context, name string) error {
	const op = "remove pair"
	if err := p.links.begin(ctx, op, name); err != nil {
		return err
	}
	l, err := p.links.rtnl.ByName(name)
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil
	case err != nil:
		return fail(op, name, err)
	case l.Kind != rtnl.KindVeth && l.Kind != rtnl.KindNetkit || l.Name != name:
		return refuse(op, name, unix.EOPNOTSUPP, fmt.Errorf("it is of kind %q, not %s or %s: %w", l.Kind, rtnl.KindVeth, rtnl.KindNetkit, host.ErrNotSupported))
	}
	err = p.links.rtnl.Delete(l.Ifindex)
	if errors.Is(err, unix.ENODEV) { // its namespace ended meanwhile
		return nil
	}
	return fail(op, name, err)
}
