package devlink

import (
	"context"
	"fmt"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Param is one parameter of a device.
type Param struct {
	Handle  nic.Handle
	Name    string
	Generic bool // its meaning is the kernel's (devlink-params.rst), not the driver's
	Type    Type

	// Values by the mode in which they are kept. Of DriverInit it is the value
	// that the next reload brings, whether or not it is in force now.
	Values map[Mode]Value
}

// Mode says when a value comes into force (DEVLINK_PARAM_CMODE_*).
type Mode string

// The modes. A mode that is not known is carried as its number.
const (
	Runtime    Mode = "runtime"    // at once
	DriverInit Mode = "driverinit" // with the next reload
	Permanent  Mode = "permanent"  // after a reset of the device, and for good
)

func paramModes() names { return names{string(Runtime), string(DriverInit), string(Permanent)} }

// Type is a parameter's type (DEVLINK_VAR_ATTR_TYPE_*).
type Type uint8

// The types that can be read and set; parameters of others have no values.
const (
	U8     Type = 1
	U16    Type = 2
	U32    Type = 3
	U64    Type = 4
	String Type = 5
	Bool   Type = 6
)

// Value is a parameter's value. Its String is as devlink(8) prints it.
type Value struct {
	Type   Type
	Number uint64 // of a number; of a Bool 0 or 1
	Text   string // of a String
}

func (v Value) String() string {
	switch v.Type {
	case String:
		return v.Text
	case Bool:
		return strconv.FormatBool(v.Number != 0)
	}
	return strconv.FormatUint(v.Number, 10)
}

// ParseValue reads what String writes.
func ParseValue(t Type, s string) (Value, error) {
	v := Value{Type: t}
	switch t {
	case String:
		v.Text = s
	case Bool:
		on, err := strconv.ParseBool(s)
		if err != nil {
			return Value{}, fmt.Errorf("%q is no switch: want true or false", s)
		}
		if on {
			v.Number = 1
		}
	case U8, U16, U32, U64:
		bits := 8 << (t - U8)
		n, err := strconv.ParseUint(s, 10, bits)
		if err != nil {
			return Value{}, fmt.Errorf("%q is no number of %d bits: want 0 to %d", s, bits, ^uint64(0)>>(64-bits))
		}
		v.Number = n
	default:
		return Value{}, fmt.Errorf("cannot make a value of type %d", t)
	}
	return v, nil
}

// attrs encodes the value; that of a Bool is there or not.
func (v Value) attrs() []*nl.RtAttr {
	data := []byte(nil)
	switch v.Type {
	case Bool:
		if v.Number == 0 {
			return nil
		}
	case String:
		data = nl.ZeroTerminated(v.Text)
	case U8:
		data = nl.Uint8Attr(uint8(v.Number))
	case U16:
		data = nl.Uint16Attr(uint16(v.Number))
	case U32:
		data = nl.Uint32Attr(uint32(v.Number))
	case U64:
		data = nl.Uint64Attr(v.Number)
	}
	return []*nl.RtAttr{netlink.Attr(unix.DEVLINK_ATTR_PARAM_VALUE_DATA, data)}
}

// Params lists the parameters of all devices, in one request; none where the
// kernel has no devlink.
func (c *Client) Params(ctx context.Context) ([]Param, error) {
	return netlink.List(ctx, c.family, unix.DEVLINK_CMD_PARAM_GET, parseParam,
		func(p Param) bool { return !p.Handle.IsZero() && p.Name != "" })
}

// Param reads one parameter. EINVAL is the kernel's answer when the device has
// none of that name (__devlink_nl_cmd_param_get_doit).
func (c *Client) Param(h nic.Handle, name string) (Param, error) {
	m, err := c.one(unix.DEVLINK_CMD_PARAM_GET, h, netlink.Text(unix.DEVLINK_ATTR_PARAM_NAME, name))
	if err != nil {
		return Param{}, err
	}
	return parseParam(m), nil
}

// SetParam sets a parameter's value, which must be of the parameter's type.
func (c *Client) SetParam(h nic.Handle, name string, mode Mode, v Value) error {
	n, ok := paramModes().number(string(mode))
	if !ok {
		return fmt.Errorf("%q is no configuration mode: want one of %q", mode, paramModes())
	}
	attrs := []*nl.RtAttr{
		netlink.Text(unix.DEVLINK_ATTR_PARAM_NAME, name),
		netlink.Attr(unix.DEVLINK_ATTR_PARAM_TYPE, nl.Uint8Attr(uint8(v.Type))),
		netlink.Attr(unix.DEVLINK_ATTR_PARAM_VALUE_CMODE, nl.Uint8Attr(uint8(n))),
	}
	return c.set(unix.DEVLINK_CMD_PARAM_SET, h, append(attrs, v.attrs()...)...)
}

func parseParam(m []byte) Param {
	p := Param{Handle: parseHandle(m)}
	var list []byte
	for k, v := range netlink.Attrs(m) {
		if k != unix.DEVLINK_ATTR_PARAM {
			continue
		}
		for k, v := range netlink.Attrs(v) {
			switch k {
			case unix.DEVLINK_ATTR_PARAM_NAME:
				p.Name = netlink.String(v)
			case unix.DEVLINK_ATTR_PARAM_GENERIC:
				p.Generic = true
			case unix.DEVLINK_ATTR_PARAM_TYPE:
				n, _ := netlink.Uint(v)
				p.Type = Type(n)
			case unix.DEVLINK_ATTR_PARAM_VALUES_LIST:
				list = v
			}
		}
	}
	if p.Type < U8 || p.Type > Bool {
		return p
	}
	for k, v := range netlink.Attrs(list) {
		if k != unix.DEVLINK_ATTR_PARAM_VALUE {
			continue
		}
		if mode, value, ok := parseValue(p.Type, v); ok {
			if p.Values == nil {
				p.Values = map[Mode]Value{}
			}
			p.Values[mode] = value
		}
	}
	return p
}

func parseValue(t Type, b []byte) (mode Mode, value Value, ok bool) {
	value.Type = t
	ok = t == Bool // false is told by saying nothing
	for k, v := range netlink.Attrs(b) {
		switch k {
		case unix.DEVLINK_ATTR_PARAM_VALUE_CMODE:
			mode = Mode(paramModes().of(v))
		case unix.DEVLINK_ATTR_PARAM_VALUE_DATA:
			switch t {
			case Bool:
				value.Number = 1
			case String:
				value.Text, ok = netlink.String(v), true
			default:
				value.Number, ok = netlink.Uint(v)
				ok = ok && len(v) == 1<<(t-U8)
			}
		}
	}
	return mode, value, ok && mode != ""
}
