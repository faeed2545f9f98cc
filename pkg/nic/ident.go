package nic

import (
	"encoding/hex"
	"fmt"
	"net"
	"strings"
)

// Handle is a devlink handle, "bus/name", and the only identity of a PF. For a
// PCI device the name is its address (domain:bus:device.function); a device
// whose driver has no devlink instance is named in the same way. Netdev names
// and ifindexes are not identities: both change with the eswitch mode.
type Handle struct {
	Bus  string
	Name string
}

// PCI returns the handle of the PCI function at address, e.g. 0000:03:00.0.
func PCI(address string) Handle { return Handle{Bus: "pci", Name: address} }

// ParseHandle reads "bus/name". A bare PCI address is taken as "pci/address".
func ParseHandle(s string) (Handle, error) {
	bus, name, ok := strings.Cut(s, "/")
	switch {
	case ok && bus != "" && name != "" && !strings.Contains(name, "/"):
		return Handle{Bus: bus, Name: name}, nil
	case !ok && IsPCIAddress(s):
		return PCI(s), nil
	}
	return Handle{}, fmt.Errorf("%q is no devlink handle: want bus/name, for example pci/0000:03:00.0", s)
}

func (h Handle) String() string { return h.Bus + "/" + h.Name }

// IsZero says that h names nothing.
func (h Handle) IsZero() bool { return h == Handle{} }

// Compare orders handles by bus, then name.
func (h Handle) Compare(o Handle) int {
	if c := strings.Compare(h.Bus, o.Bus); c != 0 {
		return c
	}
	return strings.Compare(h.Name, o.Name)
}

// MarshalText writes "bus/name", so that JSON and YAML carry the usual form.
func (h Handle) MarshalText() ([]byte, error) {
	if h.IsZero() {
		return nil, nil
	}
	return []byte(h.String()), nil
}

// UnmarshalText is ParseHandle; empty text is the zero handle.
func (h *Handle) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*h = Handle{}
		return nil
	}
	*h, err = ParseHandle(string(b))
	return err
}

// IsPCIAddress says whether s has the kernel's form DDDD:BB:DD.F, lower case
// hexadecimal; a domain may have more than four digits (emulated root buses and
// VMD use such).
func IsPCIAddress(s string) bool {
	domain, rest, ok := strings.Cut(s, ":")
	if !ok || len(domain) < 4 || len(domain) > 8 || !isHex(domain) {
		return false
	}
	return len(rest) == 7 && rest[2] == ':' && rest[5] == '.' &&
		isHex(rest[:2]) && isHex(rest[3:5]) && rest[6] >= '0' && rest[6] <= '7'
}

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// VFID names a VF: its PF and its index among the PF's VFs, counted from 0 as
// the kernel's virtfnN and devlink's vfnum do.
type VFID struct {
	PF    Handle `json:"pf"`
	Index int    `json:"index"`
}

func (id VFID) String() string { return fmt.Sprintf("%s vf %d", id.PF, id.Index) }

// MAC is an Ethernet address. The zero value means "none is set": the kernel
// reports a VF without an administrative address in this way.
type MAC [6]byte

// ParseMAC reads six colon-separated hexadecimal octets.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != len(m) {
		return m, fmt.Errorf("%q is no MAC address: want six octets, for example 02:00:00:00:00:01", s)
	}
	copy(m[:], hw)
	return m, nil
}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero says that no address is set.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsUnicast says that m can be the address of an interface: not zero, not
// multicast (is_valid_ether_addr in the kernel).
func (m MAC) IsUnicast() bool { return !m.IsZero() && m[0]&1 == 0 }

// MarshalText writes the colon form; the zero address is empty text.
func (m MAC) MarshalText() ([]byte, error) {
	if m.IsZero() {
		return nil, nil
	}
	return []byte(m.String()), nil
}

// UnmarshalText is ParseMAC; empty text is the zero address.
func (m *MAC) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*m = MAC{}
		return nil
	}
	*m, err = ParseMAC(string(b))
	return err
}

// SwitchID is phys_switch_id in lower-case hexadecimal, 2 to 64 digits; "" where the
// driver tells none. It says nothing of the mode: mlx5 and ice give it to the PF's
// port in legacy mode too (mlx5e_devlink_port_register). All ports of one card report the same one (mlx5:
// mlx5_esw_get_port_parent_id, the NIC's system image GUID), so it names the
// card's switch, never a PF.
type SwitchID string

// SwitchIDOf encodes the raw bytes of IFLA_PHYS_SWITCH_ID.
func SwitchIDOf(raw []byte) SwitchID { return SwitchID(hex.EncodeToString(raw)) }
