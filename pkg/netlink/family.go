package netlink

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Family asks one generic netlink family in one network namespace. It may be used
// by many goroutines: reads share a socket, each write has its own, because a
// driver's work takes seconds.
type Family struct {
	name    string
	version uint8
	missing error
	dial    func() (*Conn, error)
	conn    *Conn

	mu     sync.Mutex
	id     int               // 0: not known yet
	groups map[string]uint32 // multicast groups
}

// NewFamily gives the family called name; dial opens its sockets, each a
// NETLINK_GENERIC one. On a kernel without the family (its module is not loaded,
// say) lists are empty, and everything else is refused with missing.
func NewFamily(name string, version uint8, missing error, dial func() (*Conn, error)) (*Family, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	return &Family{name: name, version: version, missing: missing, dial: dial, conn: conn}, nil
}

// Close ends the shared socket.
func (f *Family) Close() error { return f.conn.Close() }

// Dump lists: the attributes of each answer, without its header.
func (f *Family) Dump(ctx context.Context, command uint8, attrs ...*nl.RtAttr) ([][]byte, error) {
	id, _, err := f.lookUp()
	if err != nil || id == 0 {
		return nil, err
	}
	out, err := f.conn.Dump(ctx, id, f.request(command, attrs)...)
	return payloads(out), err
}

// List is Dump with each answer parsed, without those that are nothing by ok.
func List[T any](ctx context.Context, f *Family, command uint8, parse func([]byte) T, ok func(T) bool) ([]T, error) {
	messages, err := f.Dump(ctx, command)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(messages))
	for _, m := range messages {
		if v := parse(m); ok(v) {
			out = append(out, v)
		}
	}
	return out, nil
}

// Get asks for one thing, and gives the attributes of its answer.
func (f *Family) Get(command uint8, attrs ...*nl.RtAttr) ([]byte, error) {
	id, _, err := f.lookUp()
	if err != nil {
		return nil, err
	}
	if id == 0 {
		return nil, f.missing
	}
	out, err := f.conn.Do(id, 0, f.request(command, attrs)...)
	if err != nil {
		return nil, err
	}
	if out = payloads(out); len(out) != 1 {
		return nil, fmt.Errorf("%d answers to command %d of %s", len(out), command, f.name)
	}
	return out[0], nil
}

// Set changes something, and returns when it is done: the attributes of what the
// kernel answered, if anything.
func (f *Family) Set(command uint8, attrs ...*nl.RtAttr) ([][]byte, error) {
	id, _, err := f.lookUp()
	if err != nil {
		return nil, err
	}
	if id == 0 {
		return nil, f.missing
	}
	conn, err := f.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out, err := conn.Do(id, unix.NLM_F_ACK, f.request(command, attrs)...)
	return payloads(out), err
}

// Group gives the number of a multicast group, for Listen.
func (f *Family) Group(name string) (uint32, error) {
	id, groups, err := f.lookUp()
	if err != nil {
		return 0, err
	}
	if id == 0 {
		return 0, f.missing
	}
	n, ok := groups[name]
	if !ok {
		return 0, fmt.Errorf("%s has no multicast group %q: %w", f.name, name, unix.ENOENT)
	}
	return n, nil
}

// lookUp asks for the family's numbers until the kernel knows them; 0 while it
// does not.
func (f *Family) lookUp() (id int, groups map[string]uint32, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.id != 0 {
		return f.id, f.groups, nil
	}
	out, err := f.conn.Do(unix.GENL_ID_CTRL, 0, Genl(unix.CTRL_CMD_GETFAMILY, 2),
		Text(unix.CTRL_ATTR_FAMILY_NAME, f.name))
	if errors.Is(err, unix.ENOENT) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("look up %s: %w", f.name, err)
	}
	for _, m := range payloads(out) {
		f.id, f.groups = parseFamily(m)
	}
	return f.id, f.groups, nil
}

func parseFamily(m []byte) (id int, groups map[string]uint32) {
	groups = map[string]uint32{}
	for kind, v := range Attrs(m) {
		switch kind {
		case unix.CTRL_ATTR_FAMILY_ID:
			n, _ := Uint(v)
			id = int(n)
		case unix.CTRL_ATTR_MCAST_GROUPS:
			for _, v := range Attrs(v) {
				name, group := "", uint64(0)
				for kind, v := range Attrs(v) {
					switch kind {
					case unix.CTRL_ATTR_MCAST_GRP_NAME:
						name = String(v)
					case unix.CTRL_ATTR_MCAST_GRP_ID:
						group, _ = Uint(v)
					}
				}
				groups[name] = uint32(group)
			}
		}
	}
	return id, groups
}

func (f *Family) request(command uint8, attrs []*nl.RtAttr) []nl.NetlinkRequestData {
	out := []nl.NetlinkRequestData{Genl(command, f.version)}
	for _, a := range attrs {
		out = append(out, a)
	}
	return out
}

// payloads cuts the generic netlink headers off, and drops what is none.
func payloads(messages [][]byte) [][]byte {
	out := messages[:0]
	for _, m := range messages {
		if len(m) >= GenlHeaderLen {
			out = append(out, m[GenlHeaderLen:])
		}
	}
	return out
}
