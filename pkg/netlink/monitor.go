package netlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrOverrun says that the kernel told more than the socket could hold, and that
// some of it is lost: everything may have changed.
var ErrOverrun = errors.New("notifications were lost: everything may have changed")

// monitorBuffer is how much waits to be heard, in bytes. A card with 256 VFs that
// changes its mode brings some thousand notifications of 2 KiB each; what the
// kernel counts is what it allocated for them.
const monitorBuffer = 8 << 20

// Monitor hears what the kernel tells the members of multicast groups. It is for
// one goroutine. It belongs to the network namespace in which it was opened.
type Monitor struct {
	file   *os.File
	conn   syscall.RawConn
	buf    []byte
	closed atomic.Bool
}

// Listen joins multicast groups of a protocol in the calling thread's network
// namespace.
func Listen(protocol int, groups ...uint32) (*Monitor, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket of protocol %d: %w", protocol, err)
	}
	file := os.NewFile(uintptr(fd), "netlink")
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g))
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("join groups %d of netlink protocol %d: %w", groups, protocol, err)
	}
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	m := &Monitor{file: file, conn: conn, buf: make([]byte, 1<<16)}
	if err := m.SetBuffer(monitorBuffer); err != nil {
		file.Close()
		return nil, err
	}
	return m, nil
}

// SetBuffer says how many bytes may wait to be heard; without CAP_NET_ADMIN the
// kernel gives no more than net.core.rmem_max, and says nothing.
func (m *Monitor) SetBuffer(bytes int) error {
	var err error
	e := m.conn.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
		if err != nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
	})
	return errors.Join(e, err)
}

// Close ends the monitor; a Receive that waits ends with os.ErrClosed.
func (m *Monitor) Close() error {
	m.closed.Store(true)
	return m.file.Close()
}

// Receive waits for the next datagram, which is valid until the next call. After
// ErrOverrun the monitor goes on with what happens from then on; what is read of
// the machine after it is not older than what was lost.
func (m *Monitor) Receive(ctx context.Context) ([]byte, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := m.wait(ctx)
		switch {
		case m.closed.Load(): // for which package os has an error without a name
			return nil, os.ErrClosed
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The context's end, or what is left of that of an earlier one.
		case errors.Is(err, unix.ENOBUFS):
			m.drain()
			return nil, ErrOverrun
		case err != nil || b != nil:
			return b, err
		}
	}
}

// Next waits for a datagram in which parse finds something, and gives what it finds.
func Next[E any](ctx context.Context, m *Monitor, parse func([]byte) []E) ([]E, error) {
	for {
		b, err := m.Receive(ctx)
		if err != nil {
			return nil, err
		}
		if out := parse(b); len(out) > 0 {
			return out, nil
		}
	}
}

// wait gives a datagram of the kernel's, nil for one of somebody else.
func (m *Monitor) wait(ctx context.Context) (b []byte, err error) {
	if err := m.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = m.file.SetReadDeadline(time.Unix(1, 0)) })()
	e := m.conn.Read(func(fd uintptr) bool {
		b, err = m.receive(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	})
	if e != nil {
		return nil, e
	}
	return b, err
}

func (m *Monitor) receive(fd int) ([]byte, error) {
	n, from, err := unix.Recvfrom(fd, m.buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	switch sender, ok := from.(*unix.SockaddrNetlink); {
	case errors.Is(err, unix.EINTR):
		return nil, nil
	case err != nil:
		return nil, err
	case !ok || sender.Pid != 0:
		return nil, nil
	case n > len(m.buf):
		return nil, unix.ENOBUFS
	}
	return m.buf[:n], nil
}

// drain reads away what still waits. Only then does the kernel deliver again
// (linux: net/netlink/af_netlink.c, netlink_rcv_wake): whoever looked at the
// machine before that could miss what changed after the look.
func (m *Monitor) drain() {
	_ = m.conn.Read(func(fd uintptr) bool {
		for {
			if _, err := m.receive(int(fd)); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return true
			}
		}
	})
}

// Messages walks the netlink messages in a datagram: type, and payload without the
// header. What is cut short ends the walk.
func Messages(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlMsghdr {
			n := int(binary.NativeEndian.Uint32(b))
			if n < unix.SizeofNlMsghdr || n > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n]) {
				return
			}
			b = b[min((n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
		}
	}
}
