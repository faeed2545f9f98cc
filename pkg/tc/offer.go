package tc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
)

// Verdict is what became of a rule that was offered to the hardware alone.
type Verdict struct {
	Taken bool `json:"taken"`

	// Of a refusal: the error number's words, and the kernel's or the driver's text
	// (NLMSGERR_ATTR_MSG), "" when it gave none.
	Errno string `json:"errno,omitempty"`
	Text  string `json:"text,omitempty"`

	NoRoom bool `json:"noRoom,omitempty"` // ENOSPC: the hardware is full
}

func (v Verdict) String() string {
	switch {
	case v.Taken:
		return "taken"
	case v.Text == "":
		return v.Errno
	}
	return v.Text
}

// Attributes of what is offered.
const (
	flowerEthSrc     = 6 // TCA_FLOWER_KEY_ETH_SRC
	flowerEthSrcMask = 7
	actHWStats       = 8
	policeTable      = 2 // TCA_POLICE_RATE
	policePeakTable  = 3
	skipSW           = 2  // TCA_CLS_FLAGS_SKIP_SW
	verbose          = 16 // TCA_CLS_FLAGS_VERBOSE: a driver's words, although its refusal is none
)

// ErrNotFlower says that a rule cannot be offered: only flower's can.
var ErrNotFlower = errors.New("only rules of flower can be offered")

// Offer asks the drivers whether they take a flower rule, and if not, for their
// words: a copy of the rule goes to the hardware alone (skip_sw), and when one has
// taken it, it is removed in the next request. A rule that is gone is fs.ErrNotExist.
//
// A netdev that offloads nothing itself, as a tunnel's, whose rules the drivers of cards
// take, is refused everything that is for hardware alone (net/sched/cls_api.c,
// tcf_block_offload_cmd). Its copy goes to software, too, where no packet meets it
// either, with the wish to be told of a refusal (verbose), is read for whether it is in
// hardware, and is removed.
//
// It does not disturb traffic:
//
//   - The copy matches one source address more, a random one with the group bit set,
//     and in place of the rule's own if it has one. No station sends from a group
//     address (IEEE 802.3, 3.2.3), and of the others it cannot be guessed, so that no
//     frame meets the copy while it is there.
//   - It stands in the rule's chain and priority, where the hardware judges it as it
//     does the rule, under a handle of its own. Nothing of the rule is touched.
//   - Its actions are new ones (index 0): one that others share, such as the police of
//     a meter, would be bound, and counted, twice.
//   - It has no cookie: Open vSwitch, which knows its rules by that, passes over it
//     (lib/netdev-offload-tc.c, netdev_tc_flow_dump_next).
//   - Interrupted between the two requests it leaves a rule that matches nothing;
//     it goes with the qdisc, or by hand.
//
// It costs the hardware one rule for as long as two requests take, and the kernel's
// lock (RTNL) twice.
func (c *Conn) Offer(ctx context.Context, r Rule) (Verdict, error) {
	if err := ctx.Err(); err != nil {
		return Verdict{}, err
	}
	if r.Kind != "flower" {
		return Verdict{}, fmt.Errorf("offer %s: %w", r, ErrNotFlower)
	}
	msg, err := c.raw(r)
	if err != nil {
		return Verdict{}, fmt.Errorf("offer %s: %w", r, err)
	}
	v, err := c.try(r, msg, skipSW)
	if err == nil && !v.Taken && v.Text == "" && v.Errno == unix.EOPNOTSUPP.Error() {
		v, err = c.try(r, msg, verbose)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("offer %s: %w", r, err)
	}
	return v, nil
}

// try offers a copy of the rule whose message is msg, with a flag of flower's.
func (c *Conn) try(r Rule, msg []byte, flag uint32) (Verdict, error) {
	head, kind, options, err := offer(msg, flag)
	if err != nil {
		return Verdict{}, err
	}
	chain := netlink.Attr(tcaChain, nl.Uint32Attr(r.Chain))
	said, err := c.nl.Told(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, head, kind, chain, options)
	var refused *netlink.Error
	switch {
	case errors.As(err, &refused):
		return Verdict{Errno: refused.Errno.Error(), Text: refused.Text, NoRoom: refused.Errno == unix.ENOSPC}, nil
	case err != nil:
		return Verdict{}, err
	}
	v := Verdict{Taken: true}
	if flag == verbose {
		r.Handle = binary.NativeEndian.Uint32(head[8:])
		if v.Taken, err = c.inHW(r); !v.Taken {
			v.Errno, v.Text = unix.EOPNOTSUPP.Error(), said
		}
	}
	if _, gone := c.nl.Do(unix.RTM_DELTFILTER, unix.NLM_F_ACK, head, kind, chain); gone != nil && !errors.Is(gone, unix.ENOENT) {
		err = errors.Join(err, fmt.Errorf("take back what was offered: %w", gone))
	}
	return v, err
}

// inHW says whether a card has the rule.
func (c *Conn) inHW(r Rule) (bool, error) {
	msg, err := c.raw(r)
	if err != nil {
		return false, err
	}
	r, _, err = Parse(msg)
	return r.InHW, err
}

// raw reads one rule's message. Protocol 0 is any (cls_api.c, tcf_chain_tp_find).
func (c *Conn) raw(r Rule) ([]byte, error) {
	where := nl.TcMsg{Ifindex: int32(r.Ifindex), Parent: clsactIngress, Handle: r.Handle, Info: uint32(r.Prio) << 16}
	if r.Block != 0 {
		magic := uint32(magicBlock)
		where.Ifindex, where.Parent = int32(magic), r.Block
	}
	out, err := c.nl.Do(unix.RTM_GETTFILTER, 0, &where, netlink.Attr(tcaChain, nl.Uint32Attr(r.Chain)))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, err
	}
	if len(out) != 1 || len(out[0]) < tcmsgSize {
		return nil, fmt.Errorf("%d answers: want one rule", len(out))
	}
	return out[0], nil
}

// offer makes of a rule's message what is offered in its stead: struct tcmsg with a
// handle of its own, kind, and options with flag, skipSW or verbose.
func offer(msg []byte, flag uint32) (head netlink.Bytes, kind, options *nl.RtAttr, err error) {
	var rnd [10]byte
	if _, err := rand.Read(rnd[:]); err != nil {
		return nil, nil, nil, err
	}
	head = slices.Clone(msg[:tcmsgSize])
	// The kernel counts the handles that it gives from 1 on (cls_flower.c, fl_change).
	binary.NativeEndian.PutUint32(head[8:], 1<<30|binary.NativeEndian.Uint32(rnd[6:])>>2)
	source := rnd[:6]
	source[0] |= 3 // group, local

	var own, acts []byte
	for number, whole := range attributes(msg[tcmsgSize:]) {
		if number == tcaOptions {
			own = whole[unix.SizeofRtAttr:]
		}
	}
	fields := netlink.Bytes{}
	for number, whole := range attributes(own) {
		switch number {
		case 0, flowerFlags, flowerInHWCount, flowerEthSrc, flowerEthSrcMask:
		case flowerAct:
			acts = whole[unix.SizeofRtAttr:]
		default:
			fields = appendAttr(fields, whole)
		}
	}
	options = nl.NewRtAttr(tcaOptions|unix.NLA_F_NESTED, nil)
	options.AddRtAttr(flowerEthSrc, source)
	options.AddRtAttr(flowerEthSrcMask, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	options.AddRtAttr(flowerFlags, nl.Uint32Attr(flag))
	if acts != nil {
		options.AddRtAttr(flowerAct|unix.NLA_F_NESTED, offerActions(acts))
	}
	options.AddChild(fields)
	return head, netlink.Text(tcaKind, "flower"), options, nil
}

func offerActions(acts []byte) (out []byte) {
	for number, whole := range attributes(acts) {
		var action, options, stats []byte
		name := ""
		for n, part := range attributes(whole[unix.SizeofRtAttr:]) {
			switch n {
			case actKind:
				name, action = text(part[unix.SizeofRtAttr:], nil), part
			case actOptions:
				options = part[unix.SizeofRtAttr:]
			case actHWStats:
				stats = part
			}
		}
		body := appendAttr(nil, action)
		if stats != nil {
			body = appendAttr(body, stats)
		}
		inner := nl.NewRtAttr(actOptions|unix.NLA_F_NESTED, offerOptions(name, options))
		body = append(body, inner.Serialize()...)
		out = append(out, nl.NewRtAttr(number|unix.NLA_F_NESTED, body).Serialize()...)
	}
	return out
}

// offerOptions are an action's parameters, for a new action.
func offerOptions(kind string, options []byte) (out []byte) {
	l, known := layouts[kind]
	for number, whole := range attributes(options) {
		if known && number == l.tm {
			continue
		}
		whole = slices.Clone(whole)
		if value := whole[unix.SizeofRtAttr:]; known && number == l.parms && len(value) >= 4 {
			clear(value[:4]) // index, of struct tc_gen and of struct tc_police
			if kind == "police" {
				out = append(out, rateTables(value)...)
			}
		}
		out = appendAttr(out, whole)
	}
	return out
}

// rateTables are what the kernel wants to see beside a rate, and no longer uses
// (sch_api.c, qdisc_get_rtab; act_police.c); it does not give them back. The two
// struct tc_ratespec of struct tc_police begin with the width of a table's cell.
func rateTables(police []byte) (out []byte) {
	for _, spec := range []struct{ at, table int }{{20, policeTable}, {32, policePeakTable}} {
		if rate, ok := number(police, spec.at+8); ok && rate != 0 {
			police[spec.at] = 3
			out = append(out, nl.NewRtAttr(spec.table, make([]byte, 1024)).Serialize()...)
		}
	}
	return out
}

// attributes walks attributes with their headers: number, and the whole of each with
// its flags, without the padding.
func attributes(b []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) {
				return
			}
			number := int(binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER))
			if !yield(number, b[:n]) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

// appendAttr appends a whole attribute, padded.
func appendAttr(b, whole []byte) []byte {
	b = append(b, whole...)
	return append(b, make([]byte, -len(whole)&3)...)
}
