package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
)

func (l *links) SetMTU(ctx context.Context, ifindex, mtu int) error {
	op := fmt.Sprintf("set MTU %d", mtu)
	k, err := l.get(ctx, op, ifindex)
	if err != nil || k.MTU == mtu {
		return err
	}
	if mtu < 0 {
		return fail(op, l.name(k.Name, ifindex), unix.EINVAL)
	}
	return fail(op, l.name(k.Name, ifindex), l.rtnl.Set(ifindex, netlink.Attr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu)))))
}

func (l *links) SetMAC(ctx context.Context, ifindex int, mac nic.MAC) error {
	op := "set MAC " + mac.String()
	k, err := l.get(ctx, op, ifindex)
	if err != nil || k.MAC == mac {
		return err
	}
	return fail(op, l.name(k.Name, ifindex), l.rtnl.Set(ifindex, netlink.Attr(unix.IFLA_ADDRESS, mac[:])))
}

func (l *links) SetUp(ctx context.Context, ifindex int, up bool) error {
	op := "set down"
	if up {
		op = "set up"
	}
	k, err := l.get(ctx, op, ifindex)
	if err != nil || k.Up == up {
		return err
	}
	return fail(op, l.name(k.Name, ifindex), l.rtnl.SetUp(ifindex, up))
}

// SetName drops an alternative name of the interface itself that is the wanted
// one: the kernel refuses the rename even then (__dev_change_name,
// netdev_name_in_use), and software that keeps old names as alternative ones
// makes it happen at each second use of a VF.
func (l *links) SetName(ctx context.Context, ifindex int, name string) error {
	op := fmt.Sprintf("set name %q", name)
	k, err := l.get(ctx, op, ifindex)
	if err != nil || k.Name == name {
		return err
	}
	object := l.name(k.Name, ifindex)
	if !validName(name) {
		return refuse(op, object, unix.EINVAL,
			fmt.Errorf("want 1 to %d characters, no space, slash, colon or percent sign: %w", maxName, unix.EINVAL))
	}
	own := slices.Contains(k.AltNames, name)
	if own {
		if err := l.rtnl.SetAltName(ifindex, name, false); err != nil {
			return fail(op, object, err)
		}
	}
	err = l.rename(ifindex, name, k.Up)
	if err != nil && own {
		err = errors.Join(err, l.rtnl.SetAltName(ifindex, name, true))
	}
	return fail(op, object, err)
}

func (l *links) SetAltName(ctx context.Context, ifindex int, name string, on bool) error {
	op := fmt.Sprintf("take alternative name %q", name)
	if on {
		op = fmt.Sprintf("add alternative name %q", name)
	}
	k, err := l.get(ctx, op, ifindex)
	if err != nil || slices.Contains(k.AltNames, name) == on {
		return err
	}
	return fail(op, l.name(k.Name, ifindex), l.rtnl.SetAltName(ifindex, name, on))
}

func (l *links) SetPromisc(ctx context.Context, ifindex int, on bool) error {
	op := fmt.Sprintf("set promiscuous %v", on)
	k, err := l.get(ctx, op, ifindex)
	if err != nil || k.Promisc == on {
		return err
	}
	return fail(op, l.name(k.Name, ifindex), l.rtnl.SetPromisc(ifindex, on))
}

// rename takes the interface down for it where the kernel wants that (before
// Linux 6.2).
func (l *links) rename(ifindex int, name string, up bool) error {
	attr := netlink.Text(unix.IFLA_IFNAME, name)
	err := l.rtnl.Set(ifindex, attr)
	if !up || !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := l.rtnl.SetUp(ifindex, false); err != nil {
		return err
	}
	err = l.rtnl.Set(ifindex, attr)
	if e := l.rtnl.SetUp(ifindex, true); err == nil {
		err = e
	}
	return err
}

// maxName is IFNAMSIZ less the terminating zero.
const maxName = unix.IFNAMSIZ - 1

// validName is dev_valid_name, less the % of a pattern that the kernel would
// fill in.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && name != "." && name != ".." && !strings.ContainsAny(name, "/:% \t\n\v\f\r")
}

func (l *links) SetVFMAC(ctx context.Context, pfIfindex, vf int, mac nic.MAC) error {
	op := fmt.Sprintf("set MAC %s of VF %d", mac, vf)
	k, err := l.read(ctx, op, pfIfindex, l.rtnl.GetWithVFs)
	if err != nil {
		return err
	}
	object := l.name(k.Name, pfIfindex)
	was, ok := k.VFMACs[vf]
	if ok && was == mac {
		return nil
	}
	if !ok && k.VFMACs != nil {
		return refuse(op, object, 0, fmt.Errorf("it has %d VFs: %w", len(k.VFMACs), fs.ErrNotExist))
	}
	return fail(op, object, l.rtnl.SetVF(pfIfindex, vf, rtnl.VFChange{MAC: &mac}))
}

func (l *links) Move(ctx context.Context, ifindex int, path string) error {
	op := "move to " + path
	if path == "" {
		op = "move to the host"
	}
	k, err := l.get(ctx, op, ifindex)
	if err != nil {
		return err
	}
	object := l.name(k.Name, ifindex)
	to, done, err := target(op, object, path, l.home)
	if err != nil {
		return err
	}
	defer done()
	if to.id == l.ns.id {
		return nil
	}
	err = l.rtnl.Set(ifindex, netlink.Attr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.Fd()))))
	return moved(op, object, err)
}

// moved is what the kernel says to a move.
func moved(op, object string, err error) error {
	// The file is a namespace's, so EINVAL says that the device may not leave its
	// own (__dev_change_net_namespace: netns_immutable).
	var refused *netlink.Error
	if errors.As(err, &refused) && refused.Errno == unix.EINVAL {
		return &host.Error{Op: op, Object: object, Ext: refused.Text,
			Err: fmt.Errorf("the interface is bound to its network namespace: %w", host.ErrNotSupported)}
	}
	return fail(op, object, err)
}

// Pinned asks for a move to where the interface is: a pinned one is refused before it is
// seen that there is nothing to do, until Linux 6.12. Linux 6.15 tells it of the link.
func (l *links) Pinned(ctx context.Context, ifindex int) error {
	const op = "move"
	var told rtnl.Link
	k, err := l.read(ctx, op, ifindex, func(ifindex int) (_ rtnl.Link, err error) {
		told, err = l.rtnl.Get(ifindex)
		return told, err
	})
	if err != nil {
		return err
	}
	object := l.name(k.Name, ifindex)
	if told.Pinned {
		return &host.Error{Op: op, Object: object,
			Err: fmt.Errorf("the interface is bound to its network namespace (netns_immutable): %w", host.ErrNotSupported)}
	}
	return moved(op, object, l.rtnl.Set(ifindex, netlink.Attr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(l.ns.Fd())))))
}

// target opens the namespace at path to move object there, "" being home. done
// closes what was opened.
func target(op, object, path string, home *netnsFile) (to *netnsFile, done func(), err error) {
	if path == "" {
		return home, func() {}, nil
	}
	to, err = openNetns(path)
	if errors.Is(err, errNoNetns) {
		return nil, nil, refuse(op, object, unix.EINVAL, fmt.Errorf("%s %w", path, errNoNetns))
	}
	if err != nil {
		return nil, nil, fail(op, object, err)
	}
	return to, func() { to.Close() }, nil
}
