package ethtool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"

	"sluice.dev/sluice/pkg/netlink"
)

func message(attrs ...*nl.RtAttr) (out []byte) {
	for _, a := range attrs {
		out = append(out, a.Serialize()...)
	}
	return out
}

func u32(kind int, v uint32) *nl.RtAttr { return netlink.Attr(kind, nl.Uint32Attr(v)) }

func of(ifindex uint32) *nl.RtAttr {
	return netlink.Nest(1, u32(1, ifindex), netlink.Attr(2, nl.ZeroTerminated("eth0")))
}

func bits(kind int, words ...uint32) *nl.RtAttr {
	var value []byte
	for _, w := range words {
		value = append(value, nl.Uint32Attr(w)...)
	}
	return netlink.Nest(kind, netlink.Attr(1, nil), u32(2, 64), netlink.Attr(4, value))
}

func TestQueues(t *testing.T) {
	i, ch := parseChannels(message(of(7), u32(2, 0), u32(4, 1), u32(5, 63), u32(6, 0), u32(8, 1), u32(9, 8), u32(99, 1)))
	if want := (Channels{Combined: Count{8, 63}}); i != 7 || ch != want {
		t.Errorf("interface %d has %+v, want %+v", i, ch, want)
	}
	i, r := parseRings(message(of(7), u32(2, 8192), u32(3, 1), u32(5, 4096), u32(6, 1024), u32(7, 2), u32(9, 512)))
	if want := (Rings{RX: Count{1024, 8192}, TX: Count{512, 4096}}); i != 7 || r != want {
		t.Errorf("interface %d has %+v, want %+v", i, r, want)
	}
}

func TestFeatureBits(t *testing.T) {
	m := message(of(7), bits(2, 0, 1<<5|1<<7), bits(3, 0, 1<<5|1<<7), bits(4, 1, 1<<5|1<<6))
	for bit, want := range map[int]Feature{
		0:  {On: true, Fixed: true},
		1:  {Fixed: true},
		37: {On: true, Wanted: true},
		38: {On: true, Fixed: true},
		39: {Wanted: true}, // the driver refused
		70: {Fixed: true},
	} {
		if i, f := parseFeature(m, bit); i != 7 || f != want {
			t.Errorf("bit %d of interface %d is %+v, want %+v", bit, i, f, want)
		}
	}
}

func TestStrings(t *testing.T) {
	s := func(i uint32, v string) *nl.RtAttr {
		return netlink.Nest(1, u32(1, i), netlink.Attr(2, nl.ZeroTerminated(v)))
	}
	got := parseStrings(message(netlink.Nest(2, netlink.Nest(1, u32(1, 4), u32(2, 3),
		netlink.Nest(3, s(0, "a"), s(2, "c"), s(1, "b"), s(1<<31, "far"))))))
	if d := cmp.Diff([]string{"a", "b", "c"}, got); d != "" {
		t.Error(d)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(message(of(7), u32(2, 0), u32(9, 8)))
	f.Add(message(of(7), bits(2, 1, 1), bits(4, 1, 1)))
	f.Add(message(netlink.Nest(2, netlink.Nest(1, netlink.Nest(3, netlink.Nest(1, u32(1, 1), netlink.Attr(2, []byte("x"))))))))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseChannels(b)
		parseRings(b)
		for bit := range 130 {
			parseFeature(b, bit)
		}
		if n := len(parseStrings(b)); n > maxStrings {
			t.Errorf("%d strings", n)
		}
	})
}
