package netlink

import (
	"encoding/binary"
	"iter"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attrs walks the attributes in b: type without the nested and byte order flags,
// and payload, which is a part of b. What is cut short ends the walk.
func Attrs(b []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofNlAttr || n > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(int(kind), b[unix.SizeofNlAttr:n]) {
				return
			}
			b = b[min((n+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
		}
	}
}

// Uint reads a number of 1, 2, 4 or 8 bytes in the machine's order; the kernel
// has widened some attributes over time. Any other length is not ok.
func Uint(b []byte) (v uint64, ok bool) {
	switch len(b) {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.NativeEndian.Uint16(b)), true
	case 4:
		return uint64(binary.NativeEndian.Uint32(b)), true
	case 8:
		return binary.NativeEndian.Uint64(b), true
	}
	return 0, false
}

// String reads a string up to its NUL.
func String(b []byte) string { return unix.ByteSliceToString(b) }

// Attr makes an attribute; what it holds is data, or further attributes.
func Attr(kind int, data []byte) *nl.RtAttr { return nl.NewRtAttr(kind, data) }

// Text makes an attribute that holds a string, with its NUL.
func Text(kind int, s string) *nl.RtAttr { return Attr(kind, nl.ZeroTerminated(s)) }

// Nest makes an attribute that holds attributes.
func Nest(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	for _, c := range children {
		a.AddChild(c)
	}
	return a
}

// Bytes is data of a request that is made already: a fixed header, say.
type Bytes []byte

// Len and Serialize are what nl wants of a request's parts.
func (b Bytes) Len() int          { return len(b) }
func (b Bytes) Serialize() []byte { return b }

// GenlHeaderLen is the length of struct genlmsghdr.
const GenlHeaderLen = 4

// Genl makes a struct genlmsghdr. nl.Genlmsg leaves its reserved field to
// chance, which the kernel refuses for newer commands (genl_header_check).
func Genl(command, version uint8) Bytes { return Bytes{command, version, 0, 0} }
