package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/rtnl"
	"sluice.dev/sluice/pkg/uevent"
)

// watch hears the kernel: interfaces, addresses and routes over rtnetlink, ports
// and parameters over devlink, functions, auxiliary, RDMA and vDPA devices by
// uevents.
type watch struct {
	home    *netnsFile
	devlink *devlink.Client
}

// ear is one monitor: next gives what changed in words, "" for what is of no
// interest.
type ear struct {
	io.Closer
	next func(context.Context) (string, error)
}

func (w watch) Changes(ctx context.Context) (<-chan host.Change, error) {
	const op, what = "watch", "the machine"
	if err := begin(ctx, op, what); err != nil {
		return nil, err
	}
	var ears []ear
	err := inHome(w.home, func() (err error) {
		ears, err = w.listen()
		return err
	})
	if err != nil {
		return nil, fail(op, what, err)
	}
	// Whoever is slow finds one change instead of many, and what it reads then is
	// not older than those.
	out := make(chan host.Change, 16)
	tell := func(words string) {
		select {
		case out <- host.Change{What: words}:
		default:
		}
	}
	var all sync.WaitGroup
	for _, e := range ears {
		all.Go(func() {
			defer e.Close()
			e.listen(ctx, tell)
		})
	}
	go func() {
		all.Wait()
		close(out)
	}()
	return out, nil
}

// inHome calls f in the machine's namespace, where the thread is nearly always.
func inHome(home *netnsFile, f func() error) error {
	if here, err := identify(netlink.ThreadNetns); err == nil && here == home.id {
		return f()
	}
	return netlink.In(int(home.Fd()), f)
}

// subsystems are those whose uevents are of interest. The device files that a pod
// needs come by modules of their own: umad's (user_mad.c, class infiniband_mad), and
// rdma_cm and vfio's (ucma.c, vfio/container.c, both misc).
func subsystems() []string {
	return []string{"pci", "auxiliary", "net", "infiniband", "infiniband_verbs", "infiniband_mad", "misc", "vdpa", "vhost-vdpa", "vfio-dev"}
}

// listen opens all monitors or none. A kernel without devlink has nothing to tell
// of it.
func (w watch) listen() (ears []ear, err error) {
	defer func() {
		if err != nil {
			for _, e := range ears {
				_ = e.Close()
			}
		}
	}()
	links, err := rtnl.Listen()
	if err != nil {
		return ears, err
	}
	ears = append(ears, ear{links, func(ctx context.Context) (string, error) {
		list, err := links.Next(ctx)
		if err != nil {
			return "", err
		}
		return linkWords(list[0]), nil
	}})
	devices, err := uevent.Listen()
	if err != nil {
		return ears, err
	}
	ears = append(ears, ear{devices, func(ctx context.Context) (string, error) {
		e, err := devices.Next(ctx)
		if err != nil || !slices.Contains(subsystems(), e.Subsystem) {
			return "", err
		}
		return fmt.Sprintf("%s %s: %s", e.Subsystem, e.Name(), e.Action), nil
	}})
	ports, err := w.devlink.Listen()
	if errors.Is(err, devlink.ErrNoFamily) {
		return ears, nil
	}
	if err != nil {
		return ears, err
	}
	return append(ears, ear{ports, func(ctx context.Context) (string, error) {
		list, err := ports.Next(ctx)
		if err != nil {
			return "", err
		}
		return devlinkWords(list[0]), nil
	}}), nil
}

// listen tells what is heard until ctx ends. A monitor that fails is none to be
// silent about: it is tried again, and each time counts as a change.
func (e ear) listen(ctx context.Context, tell func(string)) {
	for {
		words, err := e.next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, netlink.ErrOverrun):
			tell(err.Error())
		case err != nil:
			tell(fmt.Sprintf("cannot hear what changes: %v", err))
			if netlink.Sleep(ctx, time.Second) != nil {
				return
			}
		case words != "":
			tell(words)
		}
	}
}

func linkWords(e rtnl.Event) string {
	name := e.Name
	if name == "" {
		name = fmt.Sprint(e.Ifindex)
	}
	if e.Subject == rtnl.OfLink {
		return "netdev " + name + gone(e.Gone)
	}
	return fmt.Sprintf("%s of netdev %s%s", e.Subject, name, gone(e.Gone))
}

func devlinkWords(e devlink.Event) string {
	object := e.Handle.String()
	if e.Port != nil {
		object = portName(e.Handle, *e.Port)
	}
	return fmt.Sprintf("devlink %s of %s%s", e.Subject, object, gone(e.Gone))
}

func gone(yes bool) string {
	if yes {
		return " is gone"
	}
	return ""
}
