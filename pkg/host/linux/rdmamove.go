package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	nldev "sluice.dev/sluice/pkg/rdma"
)

func (r rdma) Move(ctx context.Context, name, path string) error {
	return moveRDMA(ctx, r.home, r.home, name, path, "RDMA device "+name)
}

func (n *netnsLinks) MoveRDMA(ctx context.Context, name, path string) error {
	object := "RDMA device " + name + " in " + n.path
	if err := n.begin(ctx, "move", object); err != nil {
		return err
	}
	return moveRDMA(ctx, n.ns, n.home, name, path, object)
}

// RDMADevices asks over netlink: the sysfs of this process shows its own namespace's.
func (n *netnsLinks) RDMADevices(ctx context.Context) ([]string, error) {
	const op = "list"
	object := "RDMA devices in " + n.path
	if err := n.begin(ctx, op, object); err != nil {
		return nil, err
	}
	var out []string
	err := askRDMA(n.ns, func(c *nldev.Client) error {
		all, err := c.Devices(ctx)
		for _, d := range all {
			out = append(out, d.Name)
		}
		return err
	})
	slices.Sort(out)
	return out, fail(op, object, err)
}

// moveRDMA asks from within the namespace that the device is in: the kernel looks it
// up in that of the socket (nldev.c, nldev_set_doit) and gives it away from that of
// the thread (device.c, ib_device_set_netns_put).
func moveRDMA(ctx context.Context, from, home *netnsFile, name, path, object string) error {
	op := "move to " + path
	if path == "" {
		op = "move to the host"
	}
	if err := begin(ctx, op, object); err != nil {
		return err
	}
	to, done, err := target(op, object, path, home)
	if err != nil {
		return err
	}
	defer done()
	err = askRDMA(from, func(c *nldev.Client) error {
		all, err := c.Devices(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(d nldev.Device) bool { return d.Name == name })
		if i < 0 {
			return unix.ENODEV
		}
		return c.SetNetns(all[i].Index, int(to.Fd()))
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return refuse(op, object, unix.EOPNOTSUPP,
			fmt.Errorf("namespaces share the devices (want the exclusive mode), or its driver cannot: %w", unix.EOPNOTSUPP))
	}
	return fail(op, object, err)
}

// askRDMA calls f on a thread in ns, with a client there.
func askRDMA(ns *netnsFile, f func(*nldev.Client) error) error {
	return ns.within(func() error {
		c := nldev.New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_RDMA) })
		return errors.Join(f(c), c.Close())
	})
}
