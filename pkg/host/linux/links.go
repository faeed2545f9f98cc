package linux

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/pci"
	"sluice.dev/sluice/pkg/rtnl"
)

// links is the interfaces of one network namespace.
type links struct {
	ns, home *netnsFile
	path     string // of ns, for messages; "" is the host's
	sys      string // sysfs that shows this namespace; "" none
	conn     *netlink.Conn
	rtnl     rtnl.Conn // over conn
	closed   atomic.Bool
}

func newLinks(ns, home *netnsFile, path string, dial func(int) (*netlink.Conn, error)) (*links, error) {
	conn, err := dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &links{ns: ns, home: home, path: path, conn: conn, rtnl: rtnl.New(conn)}, nil
}

// Close ends the socket; a second time is fs.ErrClosed.
func (l *links) Close() error {
	if l.closed.Swap(true) {
		return fs.ErrClosed
	}
	return l.conn.Close()
}

// begin checks what each call on an interface checks first.
func (l *links) begin(ctx context.Context, op, object string) error {
	if l.closed.Load() {
		return host.Fail(op, object, fs.ErrClosed, "")
	}
	return begin(ctx, op, object)
}

// name names an interface in messages.
func (l *links) name(name string, ifindex int) string {
	if name == "" {
		name = fmt.Sprintf("interface %d", ifindex)
	}
	if l.path != "" {
		name += " in " + l.path
	}
	return name
}

func (l *links) where() string {
	if l.path == "" {
		return "interfaces"
	}
	return "interfaces in " + l.path
}

func (l *links) Links(ctx context.Context) ([]host.Link, error) {
	const op = "list"
	if err := l.begin(ctx, op, l.where()); err != nil {
		return nil, err
	}
	list, err := l.list(ctx)
	if err != nil {
		return nil, fail(op, l.where(), err)
	}
	told := slices.ContainsFunc(list, func(k rtnl.Link) bool { return k.Parent != "" })
	out := make([]host.Link, len(list))
	for i, k := range list {
		out[i] = l.link(k, told)
	}
	slices.SortFunc(out, func(a, b host.Link) int { return a.Ifindex - b.Ifindex })
	return out, nil
}

// list is the one list from which interfaces, bonds and settings are taken.
func (l *links) list(ctx context.Context) ([]rtnl.Link, error) {
	type all struct{ *links }
	return host.Once(ctx, all{l}, func() ([]rtnl.Link, error) { return l.rtnl.List(ctx) })
}

// link translates; told says that the kernel tells parents.
func (l *links) link(k rtnl.Link, told bool) host.Link {
	out := host.Link{
		Netdev: nic.Netdev{
			Name: k.Name, Ifindex: k.Ifindex, MAC: k.MAC, MTU: k.MTU, Up: k.Up, Carrier: k.Carrier,
		},
		InfiniBand: k.Type == unix.ARPHRD_INFINIBAND, Lower: k.Lower,
		PortName: k.PortName, SwitchID: k.SwitchID, Kind: k.Kind, Master: k.Master, AltNames: k.AltNames, Promisc: k.Promisc,
	}
	switch {
	case k.ParentBus == "pci", k.ParentBus == "auxiliary" && pci.IsSF(k.Parent):
		out.Parent = k.Parent
	case !told:
		out.Parent = l.parentBySysfs(k.Name)
	}
	if len(k.VFs) > 0 {
		out.VFMACs = make(map[int]nic.MAC, len(k.VFs))
		for _, v := range k.VFs {
			out.VFMACs[v.Index] = v.MAC
		}
	}
	return out
}

// parentBySysfs is for kernels that do not tell the parent (IFLA_PARENT_DEV_NAME,
// Linux 5.14).
func (l *links) parentBySysfs(name string) string {
	if l.sys == "" {
		return ""
	}
	target, err := os.Readlink(l.sys + "/class/net/" + name + "/device")
	if err != nil {
		return ""
	}
	if parent := filepath.Base(target); nic.IsPCIAddress(parent) || pci.IsSF(parent) {
		return parent
	}
	return ""
}

func (l *links) Link(ctx context.Context, ifindex int) (host.Link, error) {
	return l.get(ctx, "read", ifindex)
}

// get reads one interface for op.
func (l *links) get(ctx context.Context, op string, ifindex int) (host.Link, error) {
	return l.read(ctx, op, ifindex, l.rtnl.Get)
}

func (l *links) read(ctx context.Context, op string, ifindex int, how func(int) (rtnl.Link, error)) (host.Link, error) {
	object := l.name("", ifindex)
	if err := l.begin(ctx, op, object); err != nil {
		return host.Link{}, err
	}
	k, err := how(ifindex)
	if err != nil {
		return host.Link{}, fail(op, object, err)
	}
	return l.link(k, k.Parent != ""), nil
}
