package linux

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	return &netnsLinks{links: l, id: netnsIdentity(ns, l.conn)}, nil
}

// netnsLinks is the interfaces of an opened namespace.
type netnsLinks struct {
	*links
	id string
}

func (n *netnsLinks) Close() error {
	if err := n.links.Close(); err != nil {
		return err
	}
	return n.links.ns.Close()
}

func (n *netnsLinks) ID() string { return n.id }

// netnsIdentity is boot and cookie; device and inode number of the namespace's
// file before Linux 5.14, which are used again.
func netnsIdentity(ns *netnsFile, conn *netlink.Conn) string {
	cookie, err := conn.Netns()
	if err != nil {
		return fmt.Sprintf("%d:%d", ns.id.dev, ns.id.ino)
	}
	boot, _, _ := strings.Cut(attribute("/proc/sys/kernel/random/boot_id"), "-")
	return fmt.Sprintf("%s:%d", boot, cookie)
}
