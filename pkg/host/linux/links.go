package linux

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// links is the interfaces of one network namespace.
type links struct {
	ns, home *netnsFile
	path     string // of ns, for messages; "" is the host's
	sys      string // sysfs that shows this namespace; "" none
	conn     *netlink.Conn
	closed   atomic.Bool
}

func newLinks(ns, home *netnsFile, path string, dial func(int) (*netlink.Conn, error)) (*links, error) {
	conn, err := dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &links{ns: ns, home: home, path: path, conn: conn}, nil
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

// The lists leave out VF statistics: with them the VFs of one PF outgrow the 64
// KiB of a netlink attribute at about 200 (RTEXT_FILTER_SKIP_STATS, Linux 4.6).
const (
	extVF   = 1 << 0 // RTEXT_FILTER_VF
	extLean = 1 << 3 // RTEXT_FILTER_SKIP_STATS
)

func (l *links) Links(ctx context.Context) ([]host.Link, error) {
	const op = "list"
	if err := l.begin(ctx, op, l.where()); err != nil {
		return nil, err
	}
	messages, err := l.conn.Dump(ctx, unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		netlink.Attr(unix.IFLA_EXT_MASK, nl.Uint32Attr(extVF|extLean)))
	if err != nil {
		return nil, fail(op, l.where(), err)
	}
	out := make([]host.Link, 0, len(messages))
	parents := false
	for _, m := range messages {
		if k, parent, ok := parseLink(m); ok {
			parents = parents || parent
			out = append(out, k)
		}
	}
	if !parents {
		for i := range out {
			out[i].Parent = l.parentBySysfs(out[i].Name)
		}
	}
	slices.SortFunc(out, func(a, b host.Link) int { return a.Ifindex - b.Ifindex })
	return out, nil
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
	if parent := filepath.Base(target); nic.IsPCIAddress(parent) {
		return parent
	}
	return ""
}

func (l *links) Link(ctx context.Context, ifindex int) (host.Link, error) {
	return l.get(ctx, "read", ifindex, extLean)
}

// get reads one interface for op. Message IDs of single interfaces are strict:
// ENODEV is the only answer to an ifindex that is not there.
func (l *links) get(ctx context.Context, op string, ifindex int, mask uint32) (host.Link, error) {
	object := l.name("", ifindex)
	if err := l.begin(ctx, op, object); err != nil {
		return host.Link{}, err
	}
	if ifindex <= 0 {
		return host.Link{}, fail(op, object, unix.ENODEV)
	}
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(ifindex)
	out, err := l.conn.Do(unix.RTM_GETLINK, 0, header, netlink.Attr(unix.IFLA_EXT_MASK, nl.Uint32Attr(mask)))
	if err != nil {
		return host.Link{}, fail(op, object, err)
	}
	for _, m := range out {
		if k, parent, ok := parseLink(m); ok {
			if !parent {
				k.Parent = l.parentBySysfs(k.Name)
			}
			return k, nil
		}
	}
	return host.Link{}, fail(op, object, unix.ENODEV)
}

// parseLink reads an RTM_NEWLINK message; parent says that it names one, on
// whatever bus.
func parseLink(m []byte) (k host.Link, parent, ok bool) {
	if len(m) < unix.SizeofIfInfomsg {
		return k, false, false
	}
	// struct ifinfomsg: family, pad, type (2), index (4), flags (4), change (4)
	k.Ifindex = int(int32(binary.NativeEndian.Uint32(m[4:])))
	k.Up = binary.NativeEndian.Uint32(m[8:])&unix.IFF_UP != 0
	var bus, device string
	for kind, v := range netlink.Attrs(m[unix.SizeofIfInfomsg:]) {
		n, number := netlink.Uint(v)
		switch kind {
		case unix.IFLA_IFNAME:
			k.Name = netlink.String(v)
		case unix.IFLA_ADDRESS:
			if len(v) == len(k.MAC) {
				k.MAC = nic.MAC(v)
			}
		case unix.IFLA_MTU:
			if number {
				k.MTU = int(n)
			}
		case unix.IFLA_CARRIER:
			k.Carrier = number && n != 0
		case unix.IFLA_MASTER:
			if number {
				k.Master = int(n)
			}
		case unix.IFLA_PHYS_PORT_NAME:
			k.PortName = netlink.String(v)
		case unix.IFLA_PHYS_SWITCH_ID:
			k.SwitchID = nic.SwitchIDOf(v)
		case unix.IFLA_PARENT_DEV_NAME:
			device = netlink.String(v)
		case unix.IFLA_PARENT_DEV_BUS_NAME:
			bus = netlink.String(v)
		case unix.IFLA_LINKINFO:
			for kind, v := range netlink.Attrs(v) {
				if kind == unix.IFLA_INFO_KIND {
					k.Kind = netlink.String(v)
				}
			}
		case unix.IFLA_PROP_LIST:
			for kind, v := range netlink.Attrs(v) {
				if kind == unix.IFLA_ALT_IFNAME {
					k.AltNames = append(k.AltNames, netlink.String(v))
				}
			}
		case unix.IFLA_VFINFO_LIST:
			k.VFMACs = parseVFs(v)
		}
	}
	if bus == "pci" {
		k.Parent = device
	}
	return k, device != "", k.Ifindex > 0 && k.Name != ""
}

// parseVFs reads the addresses of a PF's VFs, each a struct ifla_vf_mac: the
// index, and 32 bytes that begin with the address.
func parseVFs(list []byte) map[int]nic.MAC {
	var out map[int]nic.MAC
	for kind, v := range netlink.Attrs(list) {
		if kind != nl.IFLA_VF_INFO {
			continue
		}
		for kind, v := range netlink.Attrs(v) {
			if kind == nl.IFLA_VF_MAC && len(v) >= 4+len(nic.MAC{}) {
				if out == nil {
					out = map[int]nic.MAC{}
				}
				out[int(int32(binary.NativeEndian.Uint32(v)))] = nic.MAC(v[4:])
			}
		}
	}
	return out
}
