package devlink

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// value is one DEVLINK_ATTR_PARAM_VALUE; data of a Bool that is off is none.
func value(mode uint8, data ...*nl.RtAttr) *nl.RtAttr {
	return netlink.Nest(85, append([]*nl.RtAttr{u8(87, mode)}, data...)...)
}

func param(name string, t Type, values ...*nl.RtAttr) []byte {
	return message(append(handle("0000:03:00.0"), netlink.Nest(80,
		netlink.Text(81, name), netlink.Attr(82, nil), u8(83, uint8(t)), netlink.Nest(84, values...)))...)
}

func TestParam(t *testing.T) {
	p := func(name string, t Type, values map[Mode]Value) Param {
		return Param{Handle: nic.PCI("0000:03:00.0"), Name: name, Generic: true, Type: t, Values: values}
	}
	for name, c := range map[string]struct {
		in   []byte
		want Param
	}{
		"a number, with a default": {
			param("max_macs", U32, value(1, u32(86, 128), u32(187, 64))),
			p("max_macs", U32, map[Mode]Value{DriverInit: {Type: U32, Number: 128}}),
		},
		"on and off": {
			param("enable_roce", Bool, value(0), value(1, netlink.Attr(86, nil))),
			p("enable_roce", Bool, map[Mode]Value{Runtime: {Type: Bool}, DriverInit: {Type: Bool, Number: 1}}),
		},
		"a word": {
			param("flow_steering_mode", String, value(0, netlink.Text(86, "smfs"))),
			p("flow_steering_mode", String, map[Mode]Value{Runtime: {Type: String, Text: "smfs"}}),
		},
		"a mode to come": {
			param("x", U8, value(7, u8(86, 3))),
			p("x", U8, map[Mode]Value{"7": {Type: U8, Number: 3}}),
		},
		"a list": {
			param("x", 129, value(0, u64(86, 1), u64(86, 2))),
			p("x", 129, nil),
		},
		"a number without one": {
			param("x", U16, value(0)),
			p("x", U16, nil),
		},
	} {
		if d := cmp.Diff(c.want, parseParam(c.in)); d != "" {
			t.Errorf("%s: want (-), got (+):\n%s", name, d)
		}
	}
}

func TestParseValue(t *testing.T) {
	for _, c := range []struct {
		t    Type
		in   string
		want Value
	}{
		{Bool, "true", Value{Type: Bool, Number: 1}},
		{Bool, "false", Value{Type: Bool}},
		{String, "smfs", Value{Type: String, Text: "smfs"}},
		{U8, "255", Value{Type: U8, Number: 255}},
		{U64, "18446744073709551615", Value{Type: U64, Number: 1<<64 - 1}},
	} {
		got, err := ParseValue(c.t, c.in)
		if err != nil || got != c.want || got.String() != c.in {
			t.Errorf("%q: %+v, %v", c.in, got, err)
		}
	}
	for in, kind := range map[string]Type{"256": U8, "-1": U32, "on": Bool, "x": U16, "1": 129} {
		if v, err := ParseValue(kind, in); err == nil {
			t.Errorf("%q of type %d gave %v", in, kind, v)
		}
	}
}

// What is sent of a value is what the kernel sends of it.
func TestValueAttrs(t *testing.T) {
	for _, v := range []Value{
		{Type: U8, Number: 200}, {Type: U16, Number: 60000}, {Type: U32, Number: 1 << 31}, {Type: U64, Number: 1 << 63},
		{Type: Bool}, {Type: Bool, Number: 1}, {Type: String, Text: "dmfs"}, {Type: String},
	} {
		_, got, ok := parseValue(v.Type, message(append(v.attrs(), u8(87, 0))...))
		if !ok || got != v {
			t.Errorf("sent %+v, read %+v, %v", v, got, ok)
		}
	}
}

func TestRate(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want Rate
	}{
		"port in a group": {
			message(append(handle("0000:03:00.0"), u16(165, 0), u32(nl.DEVLINK_ATTR_PORT_INDEX, 131073),
				u64(166, 125000), u64(167, 1250000), u32(172, 0), u32(173, 0), netlink.Text(169, "gold"))...),
			Rate{Handle: nic.PCI("0000:03:00.0"), Of: RateOf{Port: 131073}, Share: 125000, Max: 1250000, Parent: "gold"},
		},
		"group": {
			message(append(handle("0000:03:00.0"), u16(165, 1), netlink.Text(168, "gold"), u64(166, 0), u64(167, 0))...),
			Rate{Handle: nic.PCI("0000:03:00.0"), Of: RateOf{Node: "gold"}},
		},
	} {
		if d := cmp.Diff(c.want, parseRate(c.in)); d != "" {
			t.Errorf("%s: want (-), got (+):\n%s", name, d)
		}
	}
	change := RateChange{Share: is(uint64(1)), Max: is(uint64(1 << 40)), Parent: is("gold")}
	got := parseRate(message(append(append(handle("0000:03:00.0"), RateOf{Port: 7}.attrs()...), change.attrs()...)...))
	want := Rate{Handle: nic.PCI("0000:03:00.0"), Of: RateOf{Port: 7}, Share: 1, Max: 1 << 40, Parent: "gold"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("sent (-), read (+):\n%s", d)
	}
	if n := len(RateChange{}.attrs()); n != 0 {
		t.Errorf("no change has %d attributes", n)
	}
}

func TestReporter(t *testing.T) {
	got := parseReporter(message(append(handle("0000:03:00.0"), u32(nl.DEVLINK_ATTR_PORT_INDEX, 65535), netlink.Nest(114,
		netlink.Text(115, "fw_fatal"), u8(116, 1), u64(117, 3), u64(118, 2), u64(120, 1000), u8(121, 1)))...))
	want := Reporter{Handle: nic.PCI("0000:03:00.0"), Port: is(uint32(65535)), Name: "fw_fatal", State: "error", Errors: 3, Recoveries: 2}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
}

// notification is one netlink message to the group's members.
func notification(command uint8, attrs []byte) []byte {
	r := nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: 21}, RawData: append([]byte{command, 1, 0, 0}, attrs...)}
	return r.Serialize()
}

func TestEvents(t *testing.T) {
	h := nic.PCI("0000:03:00.1")
	for name, c := range map[string]struct {
		in   []byte
		want []Event
	}{
		"port gone": {notification(unix.DEVLINK_CMD_PORT_DEL, representor()), []Event{{Handle: h, Port: is(uint32(131073)), Subject: OfPort, Gone: true}}},
		"device":    {notification(unix.DEVLINK_CMD_NEW, message(handle("0000:03:00.1")...)), []Event{{Handle: h, Subject: OfDevice}}},
		"param": {notification(unix.DEVLINK_CMD_PARAM_NEW, param("x", Bool, value(0))),
			[]Event{{Handle: nic.PCI("0000:03:00.0"), Subject: OfParam}}},
		"rate gone":  {notification(unix.DEVLINK_CMD_RATE_DEL, message(handle("0000:03:00.1")...)), []Event{{Handle: h, Subject: OfRate, Gone: true}}},
		"health":     {notification(unix.DEVLINK_CMD_HEALTH_REPORTER_RECOVER, message(handle("0000:03:00.1")...)), []Event{{Handle: h, Subject: OfReporter}}},
		"to come":    {notification(250, message(handle("0000:03:00.1")...)), []Event{{Handle: h, Subject: OfOther}}},
		"no handle":  {notification(unix.DEVLINK_CMD_PORT_NEW, nil), nil},
		"no command": {(&nl.NetlinkRequest{RawData: []byte{1, 2}}).Serialize(), nil},
	} {
		if d := cmp.Diff(c.want, parseEvents(c.in)); d != "" {
			t.Errorf("%s: want (-), got (+):\n%s", name, d)
		}
	}
}
