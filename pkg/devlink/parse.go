package devlink

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink/nl"

	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
)

// Eswitch is a device's eswitch. Fields that the driver does not offer are "".
type Eswitch struct {
	Mode   nic.Eswitch
	Inline string // none, link, network, transport
	Encap  string // none, basic
}

// Info is what a driver says of its device; "" for what it does not.
type Info struct {
	Driver      string
	Serial      string
	BoardSerial string
	Firmware    string // running: fw.version, else fw
	PSID        string // fixed: fw.psid, the name of the card's variant
}

// Port is one port of an instance.
type Port struct {
	Handle     nic.Handle
	Index      uint32
	Type       string // notset, auto, eth, ib
	Flavour    string // as devlink(8) prints it
	Number     int    // of a physical port; -1 when not said
	Controller uint32
	External   bool
	PF         int // pfnum; -1 when not said
	VF         int // vfnum; -1 when not said
	SF         int // sfnum; -1 when not said
	Ifindex    int // 0: no netdev, or one in another namespace than the socket's
	Netdev     string
	RDMA       string // IB device of a port of type ib

	// Function is the function behind the port, nil when the port has none or
	// its driver offers nothing of it.
	Function *Function
}

// Function is a port function (Documentation/networking/devlink/devlink-port.rst).
// What the driver does not offer is nil or "".
type Function struct {
	MAC       *nic.MAC // nil also for one that is no Ethernet address
	State     string   // inactive, active
	OpState   string   // detached, attached
	RoCE      *bool
	Migrate   *bool
	MaxIOEQs  *uint32
	OtherCaps uint32 // enabled capabilities that have no field here
}

// FunctionChange is what to change of a port function; nil is left as it is.
type FunctionChange struct {
	MAC      *nic.MAC
	Active   *bool
	RoCE     *bool
	Migrate  *bool
	MaxIOEQs *uint32
}

// Attributes and values that nl has no names for: include/uapi/linux/devlink.h.
const (
	attrBoardSerial = 146

	functionMAC      = 1
	functionState    = 2
	functionOpState  = 3
	functionCaps     = 4
	functionMaxIOEQs = 6

	capRoCE    = 1 << 0
	capMigrate = 1 << 1
)

// names turns the kernel's numbers into devlink(8)'s words; a number beyond them
// stays a number.
type names []string

func (n names) of(v []byte) string {
	i, ok := netlink.Uint(v)
	if !ok {
		return ""
	}
	if i < uint64(len(n)) {
		return n[i]
	}
	return strconv.FormatUint(i, 10)
}

// number is the other way round.
func (n names) number(word string) (int, bool) {
	i := slices.Index(n, word)
	return i, i >= 0
}

func modeNames() names { return names{string(nic.Legacy), string(nic.Switchdev), "switchdev_inactive"} }

func inlineModes() names { return names{"none", "link", "network", "transport"} }

func encapModes() names { return names{"none", "basic"} }

func flavourNames() names {
	return names{"physical", "cpu", "dsa", "pcipf", "pcivf", "virtual", "unused", "pcisf"}
}

func parseHandle(m []byte) (h nic.Handle) {
	for k, v := range netlink.Attrs(m) {
		switch k {
		case nl.DEVLINK_ATTR_BUS_NAME:
			h.Bus = netlink.String(v)
		case nl.DEVLINK_ATTR_DEV_NAME:
			h.Name = netlink.String(v)
		}
	}
	if h.Bus == "" || h.Name == "" {
		return nic.Handle{}
	}
	return h
}

func parseEswitch(m []byte) (e Eswitch) {
	for k, v := range netlink.Attrs(m) {
		switch k {
		case nl.DEVLINK_ATTR_ESWITCH_MODE:
			e.Mode = nic.Eswitch(modeNames().of(v))
		case nl.DEVLINK_ATTR_ESWITCH_INLINE_MODE:
			e.Inline = inlineModes().of(v)
		case nl.DEVLINK_ATTR_ESWITCH_ENCAP_MODE:
			e.Encap = encapModes().of(v)
		}
	}
	return e
}

func parseInfo(m []byte) (i Info) {
	for k, v := range netlink.Attrs(m) {
		switch k {
		case nl.DEVLINK_ATTR_INFO_DRIVER_NAME:
			i.Driver = netlink.String(v)
		case nl.DEVLINK_ATTR_INFO_SERIAL_NUMBER:
			i.Serial = netlink.String(v)
		case attrBoardSerial:
			i.BoardSerial = netlink.String(v)
		case nl.DEVLINK_ATTR_INFO_VERSION_FIXED:
			if name, value := parseVersion(v); name == "fw.psid" {
				i.PSID = value
			}
		case nl.DEVLINK_ATTR_INFO_VERSION_RUNNING:
			name, value := parseVersion(v)
			if name == "fw.version" || name == "fw" && i.Firmware == "" {
				i.Firmware = value
			}
		}
	}
	return i
}

func parseVersion(b []byte) (name, value string) {
	for k, v := range netlink.Attrs(b) {
		switch k {
		case nl.DEVLINK_ATTR_INFO_VERSION_NAME:
			name = netlink.String(v)
		case nl.DEVLINK_ATTR_INFO_VERSION_VALUE:
			value = netlink.String(v)
		}
	}
	return name, value
}

func parsePort(m []byte) Port {
	p := Port{Handle: parseHandle(m), Number: -1, PF: -1, VF: -1, SF: -1}
	for k, v := range netlink.Attrs(m) {
		n, number := netlink.Uint(v)
		switch k {
		case nl.DEVLINK_ATTR_PORT_TYPE:
			p.Type = names{"notset", "auto", "eth", "ib"}.of(v)
		case nl.DEVLINK_ATTR_PORT_FLAVOUR:
			p.Flavour = flavourNames().of(v)
		case nl.DEVLINK_ATTR_PORT_NETDEV_NAME:
			p.Netdev = netlink.String(v)
		case nl.DEVLINK_ATTR_PORT_IBDEV_NAME:
			p.RDMA = netlink.String(v)
		case nl.DEVLINK_ATTR_PORT_FUNCTION:
			f := parseFunction(v)
			p.Function = &f
		}
		if !number {
			continue
		}
		switch k {
		case nl.DEVLINK_ATTR_PORT_INDEX:
			p.Index = uint32(n)
		case nl.DEVLINK_ATTR_PORT_NUMBER:
			p.Number = int(n)
		case nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER:
			p.Controller = uint32(n)
		case nl.DEVLINK_ATTR_PORT_EXTERNAL:
			p.External = n != 0
		case nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER:
			p.PF = int(n)
		case nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER:
			p.VF = int(n)
		case nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER:
			p.SF = int(n)
		case nl.DEVLINK_ATTR_PORT_NETDEV_IFINDEX:
			p.Ifindex = int(n)
		}
	}
	return p
}

func parseFunction(b []byte) (f Function) {
	for k, v := range netlink.Attrs(b) {
		switch k {
		case functionMAC:
			if len(v) == len(nic.MAC{}) {
				mac := nic.MAC(v)
				f.MAC = &mac
			}
		case functionState:
			f.State = names{"inactive", "active"}.of(v)
		case functionOpState:
			f.OpState = names{"detached", "attached"}.of(v)
		case functionMaxIOEQs:
			if n, ok := netlink.Uint(v); ok {
				eqs := uint32(n)
				f.MaxIOEQs = &eqs
			}
		case functionCaps: // struct nla_bitfield32: value, selector
			if len(v) != 8 {
				continue
			}
			value, selector := binary.NativeEndian.Uint32(v), binary.NativeEndian.Uint32(v[4:])
			f.RoCE = capability(value, selector, capRoCE)
			f.Migrate = capability(value, selector, capMigrate)
			f.OtherCaps = value & selector &^ (capRoCE | capMigrate)
		}
	}
	return f
}

func capability(value, selector, bit uint32) *bool {
	if selector&bit == 0 {
		return nil
	}
	on := value&bit != 0
	return &on
}

func (f FunctionChange) attrs() (out []*nl.RtAttr) {
	if f.MAC != nil {
		out = append(out, netlink.Attr(functionMAC, f.MAC[:]))
	}
	if f.Active != nil {
		v := uint8(0)
		if *f.Active {
			v = 1
		}
		out = append(out, netlink.Attr(functionState, nl.Uint8Attr(v)))
	}
	var caps nl.Uint32Bitfield
	for bit, on := range map[uint32]*bool{capRoCE: f.RoCE, capMigrate: f.Migrate} {
		if on != nil {
			caps.Selector |= bit
			if *on {
				caps.Value |= bit
			}
		}
	}
	if caps.Selector != 0 {
		out = append(out, netlink.Attr(functionCaps, caps.Serialize()))
	}
	if f.MaxIOEQs != nil {
		out = append(out, netlink.Attr(functionMaxIOEQs, nl.Uint32Attr(*f.MaxIOEQs)))
	}
	return out
}
