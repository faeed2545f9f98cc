package linux

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
)

type namespaces struct{ home *netnsFile }

// Open needs CAP_SYS_ADMIN: it enters the namespace once, to leave a socket there.
func (n namespaces) Open(ctx context.Context, path string) (host.NetnsLinks, error) {
	const op = "open network namespace"
	if err := begin(ctx, op, path); err != nil {
		return nil, err
	}
	ns, err := openNetns(path)
	if errors.Is(err, errNoNetns) {
		return nil, refuse(op, path, unix.EINVAL, fmt.Errorf("it %w", errNoNetns))
	}
	if err != nil {
		return nil, fail(op, path, err)
	}
	l, err := newLinks(ns, n.home, path, func(protocol int) (*netlink.Conn, error) {
		return netlink.DialAt(int(ns.Fd()), protocol)
	})
	if err != nil {
		return nil, errors.Join(fail(op, path, err), ns.Close())
	}
	return &netnsLinks{links: l}, nil
}

// netnsLinks is the interfaces of an opened namespace.
type netnsLinks struct{ *links }

func (n *netnsLinks) Close() error {
	if err := n.links.Close(); err != nil {
		return err
	}
	return n.links.ns.Close()
}

func (n *netnsLinks) ID() string { return fmt.Sprintf("%d:%d", n.ns.id.dev, n.ns.id.ino) }
