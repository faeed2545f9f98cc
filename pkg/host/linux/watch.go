package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/pci"
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

// ear is one monitor: next gives what changed, nothing for what is of no interest.
type ear struct {
	io.Closer
	next func(context.Context) ([]host.Change, error)
}

// together is how many changes whoever reads finds at once.
const together = 64

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
	out, box := make(chan host.Change, together), host.NewOutbox()
	var all sync.WaitGroup
	for _, e := range ears {
		all.Go(func() {
			defer e.Close()
			e.listen(ctx, box.Put)
		})
	}
	all.Go(func() { box.Send(ctx, out) })
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
	ears = append(ears, ear{links, func(ctx context.Context) ([]host.Change, error) {
		list, err := links.Next(ctx)
		return each(list, linkChange), err
	}})
	devices, err := uevent.Listen()
	if err != nil {
		return ears, err
	}
	ears = append(ears, ear{devices, func(ctx context.Context) ([]host.Change, error) {
		e, err := devices.Next(ctx)
		if err != nil || !slices.Contains(subsystems(), e.Subsystem) {
			return nil, err
		}
		return []host.Change{deviceChange(e)}, nil
	}})
	ports, err := w.devlink.Listen()
	if errors.Is(err, devlink.ErrNoFamily) {
		return ears, nil
	}
	if err != nil {
		return ears, err
	}
	return append(ears, ear{ports, func(ctx context.Context) ([]host.Change, error) {
		list, err := ports.Next(ctx)
		return each(list, devlinkChange), err
	}}), nil
}

func each[T any](list []T, change func(T) host.Change) []host.Change {
	out := make([]host.Change, len(list))
	for i, e := range list {
		out[i] = change(e)
	}
	return out
}

// listen tells what is heard until ctx ends. A monitor that fails is none to be
// silent about: it is tried again, and each time counts as a change.
func (e ear) listen(ctx context.Context, tell func(host.Change)) {
	for {
		heard, err := e.next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, netlink.ErrOverrun):
			tell(host.Change{What: err.Error()})
		case err != nil:
			tell(host.Change{What: fmt.Sprintf("cannot hear what changes: %v", err)})
			if netlink.Sleep(ctx, time.Second) != nil {
				return
			}
		}
		for _, c := range heard {
			tell(c)
		}
	}
}

func linkChange(e rtnl.Event) host.Change {
	name := e.Name
	if name == "" {
		name = fmt.Sprint(e.Ifindex)
	}
	if e.Subject == rtnl.OfLink {
		return host.Change{What: "netdev " + name + gone(e.Gone), Of: host.Thing{Kind: host.OfInterface, Ifindex: e.Ifindex}}
	}
	return host.Change{What: fmt.Sprintf("%s of netdev %s%s", e.Subject, name, gone(e.Gone)), Of: host.Thing{Kind: host.OfUses}}
}

func devlinkChange(e devlink.Event) host.Change {
	object, of := e.Handle.String(), host.Thing{Kind: host.OfUses}
	if e.Port != nil {
		object = portName(e.Handle, *e.Port)
	}
	switch {
	case e.Subject == devlink.OfDevice:
		of = host.Thing{Kind: host.OfDevlink, Handle: e.Handle}
	case e.Subject == devlink.OfReporter:
		of = host.Thing{Kind: host.OfHealth, Handle: e.Handle}
	case e.Subject == devlink.OfPort && e.Port != nil:
		of = host.Thing{Kind: host.OfPort, Handle: e.Handle, Port: *e.Port}
	}
	return host.Change{What: fmt.Sprintf("devlink %s of %s%s", e.Subject, object, gone(e.Gone)), Of: of}
}

// deviceChange goes by where a device hangs: below the function whose driver made it.
func deviceChange(e uevent.Event) host.Change {
	c := host.Change{What: fmt.Sprintf("%s %s: %s", e.Subsystem, e.Name(), e.Action)}
	function, sf := owner(e.Path)
	switch {
	case e.Subsystem == "pci":
		c.Of = host.Thing{Kind: host.OfFunction, Function: e.Name()}
	case strings.HasPrefix(e.Subsystem, "infiniband"):
		c.Of = host.Thing{Kind: host.OfRDMA}
	case e.Subsystem == "misc":
		c.Of = host.Thing{Kind: host.OfFiles}
	case sf:
		c.Of = host.Thing{Kind: host.OfSFs}
	case e.Subsystem == "vdpa", e.Subsystem == "vhost-vdpa":
		c.Of = host.Thing{Kind: host.OfVDPA, Function: function}
	case function == "": // of no card
		c.Of = host.Thing{Kind: host.OfUses}
	default:
		c.Of = host.Thing{Kind: host.OfPart, Function: function}
	}
	return c
}

// owner is the PCI function that a device is or hangs below, and whether it is of one
// of its SFs.
func owner(path string) (function string, sf bool) {
	for part := range strings.SplitSeq(path, "/") {
		if nic.IsPCIAddress(part) {
			function = part
		}
		sf = sf || pci.IsSF(part)
	}
	return function, sf
}

func gone(yes bool) string {
	if yes {
		return " is gone"
	}
	return ""
}
