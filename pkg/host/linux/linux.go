// Package linux is host.Machine on the running kernel: PCI functions and
// subfunctions through sysfs, interfaces and bonds through rtnetlink, eswitch,
// ports, parameters and rates through devlink, channels and rings through ethtool's
// netlink, RDMA and vDPA devices through sysfs and netlink, changes through all of
// these and uevents.
//
// The machine is seen from the network namespace of the thread that calls Open,
// which must be the one that devlink instances and uplinks live in: the host's.
// Every socket stays where it was opened, so any goroutine may use the machine.
package linux

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/ethtool"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/pci"
	nldev "sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/vdpa"
)

// Options say where the machine's files are. The zero value is the usual one.
type Options struct {
	Sys string // sysfs, "" is /sys
	Dev string // device files, "" is /dev
	Etc string // settings, of which modprobe.d is read and written; "" is /etc
	Run string // runtime files, of which udev's queue is watched; "" is /run

	Proc string // procfs, "" is /proc

	// Brief leaves out what cards are slow to tell, Function.Product, Serial and
	// DevlinkDevice.Serial: VPD and firmware are asked only for these. For the
	// CNI, which starts anew for each pod.
	Brief bool
}

// Machine is the running machine. Close it after use.
type Machine struct {
	host.Machine
	closers []func() error
}

// Open opens the machine. It needs no privileges; changing it does.
func Open(o Options) (*Machine, error) {
	if o.Sys == "" {
		o.Sys = "/sys"
	}
	if o.Dev == "" {
		o.Dev = "/dev"
	}
	if o.Etc == "" {
		o.Etc = "/etc"
	}
	if o.Run == "" {
		o.Run = "/run"
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	home, err := openNetns(netlink.ThreadNetns)
	if err != nil {
		return nil, host.Fail("open network namespace", "the host", err, "")
	}
	l, err := newLinks(home, home, "", netlink.Dial)
	if err != nil {
		return nil, errors.Join(host.Fail("open rtnetlink", "the host", err, ""), home.Close())
	}
	l.sys = o.Sys
	m := &Machine{closers: []func() error{home.Close, l.Close}}
	dial := func(protocol int) func() (*netlink.Conn, error) {
		return func() (*netlink.Conn, error) { return dialHome(home, protocol) }
	}
	dl, err := devlink.New(dial(unix.NETLINK_GENERIC))
	if err != nil {
		return nil, errors.Join(host.Fail("open devlink", "the host", err, ""), m.Close())
	}
	m.closers = append(m.closers, dl.Close)
	et, err := ethtool.New(dial(unix.NETLINK_GENERIC))
	if err != nil {
		return nil, errors.Join(host.Fail("open ethtool", "the host", err, ""), m.Close())
	}
	m.closers = append(m.closers, et.Close)
	vd, err := vdpa.New(dial(unix.NETLINK_GENERIC))
	if err != nil {
		return nil, errors.Join(host.Fail("open vDPA", "the host", err, ""), m.Close())
	}
	ib := nldev.New(dial(unix.NETLINK_RDMA))
	m.closers = append(m.closers, vd.Close, ib.Close)

	functions := pci.New(o.Sys, !o.Brief)
	e := eswitches{sys: functions, root: o.Sys, devlink: dl, links: l, brief: o.Brief}
	m.Machine = host.Machine{
		PCI:     pciFunctions{sys: functions, eswitches: e, links: l, udev: o.Run + "/udev/queue"},
		Devlink: e,
		Links:   l,
		Bonds:   bonds{links: l},
		Pairs:   pairs{links: l},
		RDMA:    rdma{sys: o.Sys, dev: o.Dev, etc: o.Etc, home: home, client: ib},
		GPUs:    gpus{sys: functions},
		Netns:   namespaces{home: home},
		Settings: settings{
			eswitches: e, links: l, ethtool: et, vdpa: vd, bus: vdpa.Sys{Root: o.Sys}, dev: o.Dev,
		},
		Watch: watch{home: home, devlink: dl},
		Boot:  bootID(o.Proc),
	}
	return m, nil
}

// bootID is the kernel's name for this boot; "" if it does not tell.
func bootID(proc string) string {
	raw, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// Close ends the machine's sockets.
func (m *Machine) Close() error {
	var all error
	for _, c := range slices.Backward(m.closers) {
		all = errors.Join(all, c())
	}
	return all
}

// dialHome opens a socket in the machine's namespace. The thread is there nearly
// always, and entering needs privileges that reading does not.
func dialHome(home *netnsFile, protocol int) (*netlink.Conn, error) {
	if here, err := identify(netlink.ThreadNetns); err == nil && here == home.id {
		return netlink.Dial(protocol)
	}
	return netlink.DialAt(int(home.Fd()), protocol)
}

// fail is host.Fail with the kernel's text taken out of err. Errors of files are
// reduced to their errno, because the object is named already; other words that
// come with an errno are kept.
func fail(op, object string, err error) error {
	var (
		refused *netlink.Error
		path    *fs.PathError
		errno   unix.Errno
	)
	switch {
	case errors.As(err, &refused):
		return host.Fail(op, object, refused.Errno, refused.Text)
	case errors.As(err, &path), !errors.As(err, &errno), err.Error() == errno.Error():
		return host.Fail(op, object, err, "")
	}
	return refuse(op, object, errno, err)
}

// refuse is a refusal in words of our own. The error belongs to errno's kind.
func refuse(op, object string, errno unix.Errno, err error) error {
	return &host.Error{Op: op, Object: object, Errno: errno, Err: err}
}

// begin checks what each call checks first.
func begin(ctx context.Context, op, object string) error {
	return host.Fail(op, object, ctx.Err(), "")
}

// netnsFile is an open network namespace.
type netnsFile struct {
	*os.File
	id netnsID
}

// netnsID names a network namespace while it lives.
type netnsID struct{ dev, ino uint64 }

var errNoNetns = errors.New("is no network namespace")

// openNetns opens the network namespace at path. Whatever else is there, a plain
// file that a namespace was mounted on, say, is errNoNetns.
func openNetns(path string) (*netnsFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return nil, errors.Join(errNoNetns, f.Close())
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &netnsFile{File: f, id: netnsID{dev: st.Dev, ino: st.Ino}}, nil
}

// identify gives the identity of the namespace at path.
func identify(path string) (netnsID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return netnsID{}, err
	}
	return netnsID{dev: st.Dev, ino: st.Ino}, nil
}
