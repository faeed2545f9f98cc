package devlink

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

func message(attrs ...*nl.RtAttr) (out []byte) {
	for _, a := range attrs {
		b := a.Serialize()
		out = append(out, b...)
	}
	return out
}

func u8(kind int, v uint8) *nl.RtAttr   { return netlink.Attr(kind, nl.Uint8Attr(v)) }
func u16(kind int, v uint16) *nl.RtAttr { return netlink.Attr(kind, nl.Uint16Attr(v)) }
func u32(kind int, v uint32) *nl.RtAttr { return netlink.Attr(kind, nl.Uint32Attr(v)) }
func u64(kind int, v uint64) *nl.RtAttr { return netlink.Attr(kind, nl.Uint64Attr(v)) }
func is[T any](v T) *T                  { return &v }
func handle(name string) []*nl.RtAttr {
	return []*nl.RtAttr{netlink.Text(1, "pci"), netlink.Text(2, name)}
}
func caps(value, selector uint32) []byte {
	return (&nl.Uint32Bitfield{Value: value, Selector: selector}).Serialize()
}

// What a ConnectX-6 Dx port of a VF says, with attributes after it that do not
// exist yet.
func representor() []byte {
	return message(append(handle("0000:03:00.1"),
		u32(nl.DEVLINK_ATTR_PORT_INDEX, 131073), u16(nl.DEVLINK_ATTR_PORT_TYPE, 2),
		u32(nl.DEVLINK_ATTR_PORT_NETDEV_IFINDEX, 77), netlink.Text(nl.DEVLINK_ATTR_PORT_NETDEV_NAME, "eth5"),
		u16(nl.DEVLINK_ATTR_PORT_FLAVOUR, 4), u32(nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER, 0),
		u16(nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, 1), u16(nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER, 3),
		u8(nl.DEVLINK_ATTR_PORT_EXTERNAL, 0),
		netlink.Nest(nl.DEVLINK_ATTR_PORT_FUNCTION,
			netlink.Attr(functionMAC, []byte{2, 0, 0, 0, 0, 9}),
			netlink.Attr(functionCaps, caps(0b0101, 0b0111)), u32(functionMaxIOEQs, 8), u32(99, 1)),
		u32(3999, 1))...)
}

func TestPort(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want Port
	}{
		"representor of a VF": {representor(), Port{
			Handle: nic.PCI("0000:03:00.1"), Index: 131073, Type: "eth", Flavour: "pcivf", Number: -1, PF: 1, VF: 3, SF: -1,
			Ifindex: 77, Netdev: "eth5",
			Function: &Function{MAC: &nic.MAC{2, 0, 0, 0, 0, 9}, RoCE: is(true), Migrate: is(false), MaxIOEQs: is(uint32(8)), OtherCaps: 0b100},
		}},
		"uplink": {message(append(handle("0000:03:00.0"), u32(nl.DEVLINK_ATTR_PORT_INDEX, 65535),
			u16(nl.DEVLINK_ATTR_PORT_FLAVOUR, 0), u32(nl.DEVLINK_ATTR_PORT_NUMBER, 0))...), Port{
			Handle: nic.PCI("0000:03:00.0"), Index: 65535, Flavour: "physical", PF: -1, VF: -1, SF: -1,
		}},
		"another host's SF": {message(append(handle("0000:03:00.0"),
			u16(nl.DEVLINK_ATTR_PORT_FLAVOUR, 7), u32(nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER, 1), u8(nl.DEVLINK_ATTR_PORT_EXTERNAL, 1),
			u16(nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, 0), u32(nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER, 88),
			netlink.Nest(nl.DEVLINK_ATTR_PORT_FUNCTION, netlink.Attr(functionMAC, nil), u8(functionState, 1), u8(functionOpState, 1)))...), Port{
			Handle: nic.PCI("0000:03:00.0"), Flavour: "pcisf", Controller: 1, External: true, Number: -1, PF: 0, VF: -1, SF: 88,
			Function: &Function{State: "active", OpState: "attached"},
		}},
		"a flavour, bus and type to come": {message(netlink.Text(1, "chip"), netlink.Text(2, "MT1"), u16(nl.DEVLINK_ATTR_PORT_FLAVOUR, 42), u16(nl.DEVLINK_ATTR_PORT_TYPE, 9)), Port{
			Handle: nic.Handle{Bus: "chip", Name: "MT1"}, Type: "9", Flavour: "42", Number: -1, PF: -1, VF: -1, SF: -1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, parsePort(c.in)); d != "" {
				t.Errorf("want (-), got (+):\n%s", d)
			}
		})
	}
}

func TestDevice(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want Eswitch
	}{
		"switchdev":      {message(u16(25, 1), u8(26, 2), u8(62, 1)), Eswitch{Mode: nic.Switchdev, Inline: "network", Encap: "basic"}},
		"legacy":         {message(u16(25, 0)), Eswitch{Mode: nic.Legacy}},
		"a mode to come": {message(u16(25, 9), u8(62, 7)), Eswitch{Mode: "9", Encap: "7"}},
		"nothing":        {nil, Eswitch{}},
		"torn":           {message(u16(25, 1))[:5], Eswitch{}},
	} {
		if d := cmp.Diff(c.want, parseEswitch(c.in)); d != "" {
			t.Errorf("%s: want (-), got (+):\n%s", name, d)
		}
	}
	version := func(kind int, name, value string) *nl.RtAttr {
		return netlink.Nest(kind, netlink.Text(103, name), netlink.Text(104, value))
	}
	info := parseInfo(message(netlink.Text(98, "mlx5_core"), netlink.Text(99, "MT1"), netlink.Text(146, "B1"), version(100, "fw.psid", "MT_0359"),
		version(101, "fw.version", "22.41.1000"), version(101, "fw", "22"), version(102, "fw.version", "22.99")))
	want := Info{Driver: "mlx5_core", Serial: "MT1", BoardSerial: "B1", Firmware: "22.41.1000", PSID: "MT_0359"}
	if info != want {
		t.Errorf("got %+v, want %+v", info, want)
	}
	if got := parseInfo(message(version(101, "fw", "22"))).Firmware; got != "22" {
		t.Errorf("firmware %q of a driver that tells fw only", got)
	}
	for _, in := range [][]byte{nil, message(netlink.Text(1, "pci")), message(netlink.Text(1, ""), netlink.Text(2, "x"))} {
		if h := parseHandle(in); !h.IsZero() {
			t.Errorf("half a handle gave %v", h)
		}
	}
}

// What is sent is read back as it was meant.
func TestFunctionChange(t *testing.T) {
	mac := nic.MAC{2, 0, 0, 0, 0, 1}
	change := FunctionChange{MAC: &mac, Active: is(true), RoCE: is(false), Migrate: is(true), MaxIOEQs: is(uint32(4))}
	var got Function
	for _, v := range netlink.Attrs(netlink.Nest(nl.DEVLINK_ATTR_PORT_FUNCTION, change.attrs()...).Serialize()) {
		got = parseFunction(v)
	}
	want := Function{MAC: &mac, State: "active", RoCE: is(false), Migrate: is(true), MaxIOEQs: is(uint32(4))}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if n := len(FunctionChange{}.attrs()); n != 0 {
		t.Errorf("no change has %d attributes", n)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(representor())
	f.Add(message(u16(25, 1), u8(26, 2), u8(62, 1)))
	f.Add(message(netlink.Text(98, "mlx5_core"), netlink.Text(99, "MT1")))
	f.Add(param("max_macs", U32, value(1, netlink.Attr(86, nl.Uint32Attr(128)))))
	f.Add(notification(unix.DEVLINK_CMD_PORT_DEL, representor()))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := parsePort(b)
		if (p.Handle.Bus == "") != (p.Handle.Name == "") {
			t.Errorf("half a handle: %+v", p.Handle)
		}
		if p.Function != nil && p.Function.RoCE == nil && p.Function.OtherCaps&capRoCE != 0 {
			t.Error("a capability in two places")
		}
		parseEswitch(b)
		parseInfo(b)
		parseRate(b)
		parseReporter(b)
		parseEvents(b)
		for mode, v := range parseParam(b).Values {
			if again, err := ParseValue(v.Type, v.String()); err != nil || again != v {
				t.Errorf("%s value %+v is written as %q and read as %+v, %v", mode, v, v, again, err)
			}
		}
	})
}
