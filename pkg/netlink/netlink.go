// Package netlink asks the kernel over netlink: requests whose refusal carries
// the extended ack text as a value, lists that are consistent, sockets in any
// network namespace, and a walk over attributes that survives what it does not
// know. Messages are built with vishvananda/netlink's nl package.
package netlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Error is the kernel's refusal of a request.
type Error struct {
	Errno syscall.Errno
	Text  string // NLMSGERR_ATTR_MSG; "" when the kernel gave none
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Errno.Error()
	}
	return e.Errno.Error() + ": " + e.Text
}

func (e *Error) Unwrap() error { return e.Errno }

// Conn is one netlink socket. It belongs to the network namespace in which it
// was opened, whichever thread uses it later, and may be used by many goroutines.
type Conn struct {
	protocol int
	sockets  map[int]*nl.SocketHandle
}

// Dial opens a socket in the calling thread's network namespace.
func Dial(protocol int) (*Conn, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket of protocol %d: %w", protocol, err)
	}
	// Both options make answers better and are no condition: kernels before 4.12
	// and 4.20 have not got them.
	_ = s.SetExtAck(true)
	_ = unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	return &Conn{protocol: protocol, sockets: map[int]*nl.SocketHandle{protocol: {Socket: s}}}, nil
}

// DialAt opens a socket in the network namespace behind the open file ns.
func DialAt(ns int, protocol int) (*Conn, error) {
	var c *Conn
	err := In(ns, func() (err error) {
		c, err = Dial(protocol)
		return err
	})
	return c, err
}

// Close ends the socket.
func (c *Conn) Close() error { return c.sockets[c.protocol].Close() }

// Netns gives the cookie of the socket's network namespace (SO_NETNS_COOKIE, Linux
// 5.14): a number that no other namespace has or will have until the next boot.
// The inode number that names a namespace's file is given to another one soon
// after its end.
func (c *Conn) Netns() (uint64, error) {
	return unix.GetsockoptUint64(c.sockets[c.protocol].Socket.GetFd(), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}

// Do sends one request and gives the payloads of its answers. With NLM_F_ACK it
// returns when the kernel has done it. A refusal is an *Error.
func (c *Conn) Do(kind, flags int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = c.sockets
	r.Data = data
	out, err := r.Execute(c.protocol, 0)
	return out, refusal(err)
}

// Told is Do for a request with nothing to give but its having been done (NLM_F_ACK),
// and gives what the kernel or a driver has said of a request that was granted all the
// same: a warning, "" as a rule. A refusal is an *Error.
func (c *Conn) Told(kind, flags int, data ...nl.NetlinkRequestData) (warning string, err error) {
	r := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	r.Data = data
	s := c.sockets[c.protocol].Socket
	s.Lock()
	defer s.Unlock()
	if err := s.Send(r); err != nil {
		return "", err
	}
	for {
		messages, from, err := s.Receive()
		if err != nil {
			return "", err
		}
		for _, m := range messages {
			if from.Pid != nl.PidKernel || m.Header.Seq != r.Seq || m.Header.Type != unix.NLMSG_ERROR {
				continue
			}
			errno, text := acknowledgement(m.Header.Flags, m.Data)
			if errno != 0 {
				return "", &Error{Errno: errno, Text: text}
			}
			return text, nil
		}
	}
}

// acknowledgement reads an NLMSG_ERROR: the negative errno, the request or its header
// alone (NLM_F_CAPPED), and attributes if there are any (NLM_F_ACK_TLVS), of which
// NLMSGERR_ATTR_MSG is 1 (include/uapi/linux/netlink.h).
func acknowledgement(flags uint16, b []byte) (errno syscall.Errno, text string) {
	const head = 4 + unix.NLMSG_HDRLEN
	if len(b) < head {
		return unix.EBADMSG, ""
	}
	errno = syscall.Errno(-int32(binary.NativeEndian.Uint32(b)))
	at := head
	if flags&unix.NLM_F_CAPPED == 0 {
		at = 4 + (int(binary.NativeEndian.Uint32(b[4:]))+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)
	}
	if flags&unix.NLM_F_ACK_TLVS == 0 || at < head || at > len(b) {
		return errno, ""
	}
	for number, value := range Attrs(b[at:]) {
		if number == 1 {
			text = String(value)
		}
	}
	return errno, text
}

// Dump lists. The kernel marks a list during which something changed
// (NLM_F_DUMP_INTR); such a list is read again, until one is whole or ctx ends.
// While 256 VFs come up that can take several turns, so the pause grows.
func (c *Conn) Dump(ctx context.Context, kind int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	const turns = 16
	pause := time.Millisecond
	for range turns {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, err := c.Do(kind, unix.NLM_F_DUMP, data...)
		if !interrupted(err) {
			return out, err
		}
		if err := Sleep(ctx, pause); err != nil {
			return nil, err
		}
		pause = min(2*pause, 250*time.Millisecond)
	}
	return nil, fmt.Errorf("the list changed each of the %d times that it was read: %w", turns, unix.EAGAIN)
}

// Sleep waits for d or for the end of ctx, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func interrupted(err error) bool {
	return errors.Is(err, nl.ErrDumpInterrupted) || errors.Is(err, unix.EINTR)
}

// refusal takes errno and text apart again: nl joins them as "errno: text".
func refusal(err error) error {
	var errno syscall.Errno
	if err == nil || errors.Is(err, nl.ErrDumpInterrupted) || !errors.As(err, &errno) {
		return err
	}
	text, ok := strings.CutPrefix(err.Error(), errno.Error()+": ")
	if !ok {
		text = ""
	}
	return &Error{Errno: errno, Text: text}
}
