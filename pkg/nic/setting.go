package nic

import (
	"maps"
	"slices"
)

// Setting names one attribute of a PF, a VF or an SF that a NIC lets be set. Its
// value is text in one canonical form, so that equal is equal: on and off, a
// decimal number without sign, or one of the words that the comment names.
type Setting string

// The settings. The comment says of what, the values, and where the kernel has it.
const (
	// The eswitch, by devlink (Documentation/networking/devlink/devlink-eswitch-attr.rst).
	InlineMode   Setting = "inline-mode"   // PF: none, link, network, transport
	EncapMode    Setting = "encap-mode"    // PF: none, basic
	SteeringMode Setting = "steering-mode" // PF: dmfs, smfs, hmfs; devlink param flow_steering_mode

	// The uplink.
	TCOffload Setting = "hw-tc-offload" // PF: on, off; a feature of the uplink's netdev
	LinkMTU   Setting = "mtu"           // PF: bytes, of the uplink's netdev
	AdminLink Setting = "link"          // PF: up, down; IFF_UP of the uplink's netdev

	// The function. Of a PF RoCE is the devlink param enable_roce, which takes
	// effect with a reload; of VFs and SFs the capability of the port function.
	RoCE        Setting = "roce"         // PF, VF, SF: on, off
	EventQueues Setting = "event-queues" // VF, SF: number; port function max_io_eqs
	NodeGUID    Setting = "node-guid"    // VF of InfiniBand: eight octets, colon-separated
	PortGUID    Setting = "port-guid"    // VF of InfiniBand

	// What the PF lets a VF do, in legacy mode (IFLA_VFINFO_LIST).
	Trust      Setting = "trust"       // VF: on, off
	SpoofCheck Setting = "spoof-check" // VF: on, off
	LinkState  Setting = "link-state"  // VF: auto, enable, disable
	VLAN       Setting = "vlan"        // VF: ID[/QOS][/802.1ad], 0 none; IFLA_VF_VLAN_LIST

	// Rates in Mbit/s, 0 none: devlink rate in switchdev mode, VF attributes in
	// legacy mode.
	MinRate Setting = "min-rate" // VF, SF
	MaxRate Setting = "max-rate" // VF, SF

	// The function's own netdev, while it is in the host's namespace.
	Channels   Setting = "channels"          // PF, VF, SF: combined channels
	RxRing     Setting = "rx-ring"           // PF, VF, SF: entries
	TxRing     Setting = "tx-ring"           // PF, VF, SF: entries
	GSOMax     Setting = "gso-max-size"      // PF, VF, SF: bytes, over 65536 is BIG TCP
	GROMax     Setting = "gro-max-size"      // PF, VF, SF: bytes
	GSOMaxIPv4 Setting = "gso-ipv4-max-size" // PF, VF, SF: bytes, Linux 6.3
	GROMaxIPv4 Setting = "gro-ipv4-max-size" // PF, VF, SF: bytes, Linux 6.3

	// VDPA is the vDPA device of a VF and who drives it.
	VDPA Setting = "vdpa" // VF: none, vhost, virtio
)

// Unit is what a text puts behind a value of s that a person would otherwise take for
// another unit's: " Mbit/s" of a rate, mostly nothing.
func (s Setting) Unit() string {
	if s == MinRate || s == MaxRate {
		return " Mbit/s"
	}
	return ""
}

// Settings is values by name. Of an observed thing it has those that can be read
// and set as the thing is now (mode, driver, namespace of the netdev); of a wish
// those that are wanted.
type Settings map[Setting]string

// Names lists the settings that there are, sorted.
func (s Settings) Names() []Setting { return slices.Sorted(maps.Keys(s)) }

// With returns a copy of s in which name has value.
func (s Settings) With(name Setting, value string) Settings {
	out := maps.Clone(s)
	if out == nil {
		out = Settings{}
	}
	out[name] = value
	return out
}

// Limits is the most that a thing takes of a setting that is a number: channels,
// ring entries, bytes (tso_max_size).
type Limits map[Setting]int
