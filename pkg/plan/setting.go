package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// kind of object that a setting may be of.
type kind int

const (
	ofPF kind = 1 << iota
	ofVF
	ofSF
)

func (k kind) String() string {
	var names []string
	for _, n := range []struct {
		kind kind
		name string
	}{{ofPF, "a PF"}, {ofVF, "a VF"}, {ofSF, "an SF"}} {
		if k&n.kind != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, " or ")
}

// phase is when a setting is set.
type phase int

const (
	early   phase = iota // before the mode changes to what is wanted
	bare                 // while the PF has no VFs and is in legacy mode
	unbound              // while the function has no driver, which reads it when it binds
	anytime              // whatever the function's driver
	bound                // while the function has its kernel driver
	netdev               // while the function's netdev is there; gone with it
)

// rule is what there is to know of one setting beforehand.
type rule struct {
	of      kind
	phase   phase
	mode    nic.Eswitch // the only mode in which there is such a thing; "" any
	flaps   bool        // the netdev goes down for a moment
	queues  bool        // of the uplink it is the mode's own
	clamped bool        // more than the device takes means all that it takes
	instead string      // what does the same in the other mode
	where   string      // why it is in this mode that there is one
}

// ruleOf finds a setting in the table. Sources: drivers/net/ethernet/mellanox/
// mlx5/core unless another is named.
//
//	inline-mode, encap-mode  eswitch_offloads.c, mlx5_devlink_eswitch_inline_mode_set, ..._encap_mode_set
//	steering-mode            fs_core.c, mlx5_fs_mode_set: "not supported when eswitch offloads enabled"
//	roce of a PF             devlink.c, enable_roce is driverinit: a reload, which ends in legacy mode
//	roce, event-queues       eswitch_offloads.c, mlx5_devlink_port_fn_roce_set, ..._max_io_eqs_set: while the
//	                         function is not bound (Documentation/networking/devlink/devlink-port.rst)
//	node-guid, port-guid     drivers/infiniband/ulp/ipoib: ndo_set_vf_guid; read by the VF when it binds
//	trust, spoof-check,
//	link-state, vlan         esw/legacy.c: EOPNOTSUPP in switchdev mode
//	min-rate, max-rate       esw/legacy.c, mlx5_eswitch_set_vport_rate; esw/qos.c (devlink rate)
//	channels, rings          en_ethtool.c: the channels are opened anew (mlx5e_safe_switch_params)
//	gso-*, gro-*             net/core/rtnetlink.c, do_setlink: at most tso_max_size
//	vdpa                     drivers/vdpa/mlx5/net/mlx5_vnet.c: of VFs and SFs, never of a PF
func ruleOf(name nic.Setting) (rule, bool) {
	const all = ofPF | ofVF | ofSF
	switch name {
	case nic.InlineMode, nic.EncapMode, nic.SteeringMode:
		return rule{of: ofPF, phase: early}, true
	case nic.TCOffload:
		return rule{of: ofPF, phase: netdev}, true
	case nic.LinkMTU, nic.AdminLink:
		return rule{of: ofPF, phase: netdev, flaps: true}, true
	case nic.RoCE:
		return rule{of: all, phase: unbound}, true
	case nic.EventQueues:
		return rule{of: ofVF | ofSF, phase: unbound, mode: nic.Switchdev,
			where: "whose ports have them"}, true
	case nic.NodeGUID, nic.PortGUID:
		return rule{of: ofVF, phase: unbound, mode: nic.Legacy}, true
	case nic.Trust:
		return rule{of: ofVF, phase: anytime, mode: nic.Legacy,
			instead: "rules in Open vSwitch for what its representor may receive"}, true
	case nic.SpoofCheck:
		return rule{of: ofVF, phase: anytime, mode: nic.Legacy,
			instead: "port security as a rule in Open vSwitch or OVN"}, true
	case nic.LinkState:
		return rule{of: ofVF, phase: anytime, mode: nic.Legacy,
			instead: "its representor set up or down, which the VF's link follows"}, true
	case nic.VLAN:
		return rule{of: ofVF, phase: anytime, mode: nic.Legacy,
			instead: "the VLAN as the tag of the representor's port in Open vSwitch"}, true
	case nic.MinRate, nic.MaxRate:
		return rule{of: ofVF | ofSF, phase: anytime}, true
	case nic.Channels, nic.RxRing, nic.TxRing:
		return rule{of: all, phase: netdev, flaps: true, queues: true}, true
	case nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return rule{of: all, phase: netdev, clamped: true}, true
	case nic.VDPA:
		return rule{of: ofVF, phase: bound, mode: nic.Switchdev,
			where: "in which vDPA devices are made"}, true
	}
	return rule{}, false
}

// formOf answers the right form of a setting's value if value is not of it.
func formOf(name nic.Setting, value string) string {
	switch name {
	case nic.InlineMode:
		return word(value, "none", "link", "network", "transport")
	case nic.EncapMode:
		return word(value, "none", "basic")
	case nic.SteeringMode:
		return word(value, "dmfs", "smfs", "hmfs")
	case nic.TCOffload, nic.RoCE, nic.Trust, nic.SpoofCheck:
		return word(value, "on", "off")
	case nic.AdminLink:
		return word(value, "up", "down")
	case nic.LinkState:
		return word(value, "auto", "enable", "disable")
	case nic.VDPA:
		return word(value, "none", "vhost", "virtio")
	case nic.LinkMTU:
		return number(value, minMTU, maxMTU, "bytes")
	case nic.EventQueues:
		return number(value, 0, 1<<16-1, "queues")
	case nic.MinRate, nic.MaxRate:
		return number(value, 0, 1<<31-1, "Mbit/s")
	case nic.Channels:
		return number(value, 1, 1<<16-1, "channels")
	case nic.RxRing, nic.TxRing:
		return number(value, 1, 1<<20, "entries")
	case nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return number(value, 1, 1<<19, "bytes")
	case nic.NodeGUID, nic.PortGUID:
		return guid(value)
	case nic.VLAN:
		return vlan(value)
	}
	return "a setting that there is"
}

// at gives the rule for one kind of object: RoCE is a port function of VFs and
// SFs, and a parameter of the device for a PF.
func (r rule) at(k kind) rule {
	if r.of == ofPF|ofVF|ofSF && r.phase == unbound {
		if k == ofPF {
			r.phase = bare
		} else {
			r.mode, r.where = nic.Switchdev, "whose ports have it"
		}
	}
	return r
}

func word(s string, words ...string) string {
	if slices.Contains(words, s) {
		return ""
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func number(s string, low, high int, unit string) string {
	if n, err := strconv.Atoi(s); err == nil && n >= low && n <= high && s == strconv.Itoa(n) {
		return ""
	}
	return fmt.Sprintf("%d to %d %s", low, high, unit)
}

func guid(s string) string {
	const want = "eight octets, not all zero, for example 02:00:00:00:00:00:00:01"
	parts := strings.Split(s, ":")
	if len(parts) != 8 {
		return want
	}
	sum := uint64(0)
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 16, 8)
		if err != nil || len(p) != 2 || strings.ToLower(p) != p {
			return want
		}
		sum |= n
	}
	if sum == 0 {
		return want
	}
	return ""
}

// noGUID is what a VF has that was given none, and is nothing to wish for.
const noGUID = "00:00:00:00:00:00:00:00"

func vlan(s string) string {
	const want = "0 for none, or ID[/QOS][/802.1ad] with an ID of 1 to 4094 and a QOS of 0 to 7"
	parts := strings.Split(s, "/")
	if n := len(parts); n > 1 && parts[n-1] == "802.1ad" {
		parts = parts[:n-1]
	}
	if len(parts) > 2 || number(parts[0], 0, 4094, "") != "" || s != "0" && parts[0] == "0" {
		return want
	}
	if len(parts) == 2 && number(parts[1], 1, 7, "") != "" {
		return want
	}
	return ""
}

// within says that have has all of want.
func within(want, have nic.Settings) bool {
	for name, value := range want {
		if have[name] != value {
			return false
		}
	}
	return true
}

// asked is the value that name is to have, as far as it is known what the device
// takes.
func asked(want nic.Settings, limits nic.Limits, name nic.Setting) string {
	r, _ := ruleOf(name)
	n, err := strconv.Atoi(want[name])
	if most, ok := limits[name]; ok && r.clamped && err == nil && n > most {
		return strconv.Itoa(most)
	}
	return want[name]
}

// pending lists what of want is not so in have, of the given phase and in mode,
// in the order in which it can be set.
func pending(k kind, p phase, mode nic.Eswitch, want, have nic.Settings, limits nic.Limits) []nic.Setting {
	var out []nic.Setting
	if len(want) == 0 {
		return nil
	}
	for _, name := range want.Names() {
		r, ok := ruleOf(name)
		if r = r.at(k); !ok || r.phase != p || r.of&k == 0 || r.mode != "" && r.mode != legacyIfNone(mode) {
			continue
		}
		if asked(want, limits, name) != have[name] {
			out = append(out, name)
		}
	}
	// A maximum below the minimum that is there is refused.
	if i, j := slices.Index(out, nic.MaxRate), slices.Index(out, nic.MinRate); i >= 0 && j >= 0 &&
		atoi(want[nic.MaxRate]) != 0 && atoi(want[nic.MaxRate]) < atoi(have[nic.MinRate]) {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // a value that is none was refused before
	return n
}

// legacyIfNone: a device without an eswitch is like one in legacy mode.
func legacyIfNone(m nic.Eswitch) nic.Eswitch {
	if m == "" {
		return nic.Legacy
	}
	return m
}

// lasting is what of have is still worth having when the function has lost its
// driver, or has been made anew, and is then in mode.
func lasting(k kind, mode nic.Eswitch, have nic.Settings) nic.Settings {
	var out nic.Settings
	for name, value := range have {
		if r, ok := ruleOf(name); ok && (r.at(k).mode == "" || r.at(k).mode == legacyIfNone(mode)) {
			out = out.With(name, value)
		}
	}
	return out
}
