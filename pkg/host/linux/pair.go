package linux

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/rtnl"
)

// pairs is veth pairs with one end in the host's network namespace.
type pairs struct{ links *links }

func (p pairs) AddPair(ctx context.Context, name, peer, path string) error {
	op := fmt.Sprintf("add pair with %s in %s", peer, path)
	if err := p.links.begin(ctx, op, name); err != nil {
		return err
	}
	for _, n := range []string{name, peer} {
		if !validName(n) {
			return refuse(op, name, unix.EINVAL,
				fmt.Errorf("%q: want a name of 1 to %d characters, no space, slash, colon or percent sign: %w", n, maxName, unix.EINVAL))
		}
	}
	ns, done, err := target(op, name, path, p.links.home)
	if err != nil {
		return err
	}
	defer done()
	return fail(op, name, p.links.rtnl.AddVeth(name, peer, int(ns.Fd())))
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
	case l.Kind != rtnl.KindVeth || l.Name != name:
		return refuse(op, name, unix.EOPNOTSUPP, fmt.Errorf("it is of kind %q, not %s: %w", l.Kind, rtnl.KindVeth, host.ErrNotSupported))
	}
	err = p.links.rtnl.Delete(l.Ifindex)
	if errors.Is(err, unix.ENODEV) { // its namespace ended meanwhile
		return nil
	}
	return fail(op, name, err)
}
