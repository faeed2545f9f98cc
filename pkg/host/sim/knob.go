package sim

import (
	"fmt"
	"math"
	"math/bits"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// knob is one setting of one kind of function: what the driver offers, keeps, takes
// and refuses.
type knob struct {
	name  nic.Setting
	form  string // of a value, for messages
	takes func(value string) bool
	has   func(t target) bool
	get   func(t target) string
	most  func(t target) int // nil: no limit is told
	set   func(s *Sim, t target, value string) (func(), error)
}

// knobs is the table of all settings. A setting that means different things of a PF
// and of a VF has a line for each.
func knobs() []knob {
	out := slices.Concat(eswitchKnobs(), uplinkKnobs(), functionKnobs(), legacyKnobs(), rateKnobs())
	return append(append(out, queueKnobs()...), sizeKnobs()...)
}

func (t target) isPF() bool { return t.vf == nil && t.sf == nil }

// driven: the PF has its network driver.
func (t target) driven() bool { return t.pf.Driver == t.card.driver }

func (t target) switchdev() bool { return t.pf.Mode == nic.Switchdev }

// kept is where values of a function itself are, which outlive its netdev.
func (t target) kept() *nic.Settings {
	switch {
	case t.vf != nil:
		return &t.vf.Set
	case t.sf != nil:
		return &t.sf.Set
	}
	return &t.pf.Set
}

func keep(set *nic.Settings, name nic.Setting, value string) func() {
	return func() {
		if *set == nil {
			*set = nic.Settings{}
		}
		(*set)[name] = value
	}
}

func lookUp(set nic.Settings, name nic.Setting, otherwise string) string {
	if v, ok := set[name]; ok {
		return v
	}
	return otherwise
}

// plain is a knob of the function itself that takes whatever is of its form.
func plain(name nic.Setting, form form, otherwise string, has func(t target) bool) knob {
	return knob{
		name: name, form: form.words, takes: form.takes, has: has,
		get: func(t target) string { return lookUp(*t.kept(), name, otherwise) },
		set: func(_ *Sim, t target, value string) (func(), error) { return keep(t.kept(), name, value), nil },
	}
}

// but puts a refusal before what a knob does.
func (k knob) but(refusal func(s *Sim, t target, value string) error) knob {
	set := k.set
	k.set = func(s *Sim, t target, value string) (func(), error) {
		if err := refusal(s, t, value); err != nil {
			return nil, err
		}
		return set(s, t, value)
	}
	return k
}

// form is what a value looks like.
type form struct {
	words string
	takes func(string) bool
}

func oneOf(words ...string) form {
	return form{strings.Join(words, ", "), func(v string) bool { return slices.Contains(words, v) }}
}

func onOff() form { return oneOf("on", "off") }

// number is a decimal of 32 bits without sign and leading zeros.
func number() form {
	return form{"a number", func(v string) bool {
		n, err := strconv.ParseUint(v, 10, 32)
		return err == nil && strconv.FormatUint(n, 10) == v
	}}
}

func guid() form {
	return form{"eight octets, for example 02:00:00:00:00:00:00:01", func(v string) bool {
		hw, err := net.ParseMAC(v)
		return err == nil && len(hw) == 8 && hw.String() == v
	}}
}

// vlan is ID[/QOS][/802.1ad] with what is 0 left out.
func vlan() form {
	return form{"ID[/QOS][/802.1ad], for example 7/3", func(v string) bool {
		id, rest, _ := strings.Cut(v, "/")
		n, err := strconv.Atoi(id)
		if err != nil || n < 0 || n > 4094 || strconv.Itoa(n) != id {
			return false
		}
		if rest == "" {
			return !strings.HasSuffix(v, "/")
		}
		qos, proto, two := strings.Cut(rest, "/")
		if qos == "802.1ad" {
			return !two && n != 0
		}
		return len(qos) == 1 && qos >= "1" && qos <= "7" && (!two || proto == "802.1ad")
	}}
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// eswitchKnobs: mlx5/core/eswitch_offloads.c and fs_core.c.
func eswitchKnobs() []knob {
	inline := plain(nic.InlineMode, oneOf("none", "link", "network", "transport"), "none", func(t target) bool {
		return t.isPF() && t.driven() && t.pf.Mode != "" && t.card.inline != ""
	}).but(func(_ *Sim, t target, _ string) error { // mlx5_devlink_eswitch_inline_mode_set
		return refuse(syscall.EOPNOTSUPP, t.card.driver+": Inline mode can't be set")
	})
	encap := plain(nic.EncapMode, oneOf("none", "basic"), "basic", func(t target) bool {
		return t.isPF() && t.driven() && t.pf.Mode != "" && t.card.encap != ""
	})
	steering := plain(nic.SteeringMode, oneOf("dmfs", "smfs", "hmfs"), "dmfs", func(t target) bool {
		return t.isPF() && t.driven() && t.pf.Mode != "" && t.card.steering != ""
	}).but(func(_ *Sim, t target, value string) error { // mlx5_fs_mode_validate
		switch {
		case t.switchdev():
			return refuse(syscall.EOPNOTSUPP, t.card.driver+": Changing fs mode is not supported when eswitch offloads enabled.")
		case value == "hmfs":
			return refuse(syscall.EOPNOTSUPP, t.card.driver+": Hardware steering is not supported by current device")
		}
		return nil
	})
	return []knob{inline, encap, steering}
}

// uplinkKnobs are of the PF's netdev, the uplink.
func uplinkKnobs() []knob {
	has := func(t target) bool { return t.isPF() && t.netdev != nil }
	return []knob{
		{
			name: nic.TCOffload, form: onOff().words, takes: onOff().takes,
			has: func(t target) bool { return has(t) && t.card.tcOffload != "" && !t.pf.InfiniBand },
			get: func(t target) string { return lookUp(t.netdev.Set, nic.TCOffload, t.card.tcOffload) },
			set: func(_ *Sim, t target, value string) (func(), error) {
				return keep(&t.netdev.Set, nic.TCOffload, value), nil
			},
		},
		{
			name: nic.LinkMTU, form: number().words, takes: number().takes, has: has,
			get: func(t target) string { return strconv.Itoa(t.netdev.MTU) },
			set: func(s *Sim, t target, value string) (func(), error) { return s.changeMTU(t.netdev, atoi(value)) },
			most: func(t target) int {
				if t.pf.InfiniBand {
					return ipoibMTU
				}
				return t.card.maxMTU
			},
		},
		{
			name: nic.AdminLink, form: "up, down", takes: oneOf("up", "down").takes, has: has,
			get: func(t target) string {
				if t.netdev.Up {
					return "up"
				}
				return "down"
			},
			set: func(s *Sim, t target, value string) (func(), error) { return s.changeUp(t.netdev, value == "up") },
		},
	}
}

// functionKnobs: capabilities of VF and SF ports, which the firmware keeps from being
// changed under a driver (eswitch_offloads.c), the PF's RoCE, GUIDs and vDPA.
func functionKnobs() []knob {
	hasCaps := func(t target) bool { return !t.isPF() && t.switchdev() && t.driven() && t.card.functionCaps }
	running := func(what string) func(*Sim, target, string) error {
		return func(_ *Sim, t target, _ string) error {
			if t.vf != nil && t.vf.Driver != "" || t.sf != nil && t.sf.Active {
				return refuse(syscall.EINVAL, t.card.driver+": "+what) // SET_HCA_CAP: bad resource state
			}
			return nil
		}
	}
	queues := plain(nic.EventQueues, number(), "", hasCaps).but(func(_ *Sim, t target, value string) error {
		if n, _ := strconv.ParseUint(value, 10, 64); n > math.MaxUint32-4 { // MLX5_ESW_MAX_CTRL_EQS
			return refuse(syscall.EINVAL, t.card.driver+": Supplied value out of range")
		}
		return nil
	}).but(running("Failed setting HCA caps"))
	queues.get = target.eventQueues
	infiniband := func(t target) bool { return t.vf != nil && t.pf.InfiniBand && t.uplink != nil }
	return []knob{
		pfRoCE(),
		plain(nic.RoCE, onOff(), "on", hasCaps).but(running("Failed setting HCA roce cap")),
		queues,
		plain(nic.NodeGUID, guid(), noGUID, infiniband), // drivers/infiniband/hw/mlx5/ib_virt.c
		plain(nic.PortGUID, guid(), noGUID, infiniband),
		plain(nic.VDPA, oneOf("none", "vhost", "virtio"), "none", func(t target) bool {
			return t.vf != nil && t.card.vdpa && t.switchdev() && t.vf.Driver == t.card.vfDriver
		}),
	}
}

// pfRoCE is param enable_roce with the reload that it takes (devlink.c).
func pfRoCE() knob {
	k := plain(nic.RoCE, onOff(), "on", func(t target) bool {
		return t.isPF() && t.driven() && t.card.roce && t.pf.Mode != ""
	})
	k.set = func(s *Sim, t target, value string) (func(), error) {
		switch l := s.lagOf(t.pf.Card); {
		case l != nil && l.Active: // mlx5_devlink_enable_roce_validate
			return nil, refuse(syscall.EOPNOTSUPP, t.card.driver+": Multi port slave/Lag device can't configure RoCE")
		case len(t.pf.VFs) > 0 || t.switchdev():
			return nil, &refusal{errno: syscall.EBUSY, ext: "it takes a reload, which VFs and switchdev mode do not outlive"}
		}
		return func() {
			keep(&t.pf.Set, nic.RoCE, value)()
			s.reload(t.id.pf)
		}, nil
	}
	return k
}

// legacyKnobs are VF attributes, by the netdev of the PF.
func legacyKnobs() []knob {
	var out []knob
	for _, k := range []struct {
		name      nic.Setting
		form      form
		otherwise string
	}{
		{nic.Trust, onOff(), "off"},
		{nic.SpoofCheck, onOff(), "off"},
		{nic.LinkState, oneOf("auto", "enable", "disable"), "auto"},
		{nic.VLAN, vlan(), "0"},
	} {
		knob := plain(k.name, k.form, k.otherwise, func(t target) bool {
			if t.pf.InfiniBand {
				return k.name == nic.LinkState && t.vf != nil && t.uplink != nil
			}
			return t.vf != nil && t.uplink != nil && !t.switchdev() && slices.Contains(t.card.vfAttributes, k.name)
		})
		if k.name == nic.VLAN {
			knob = knob.but(func(_ *Sim, t target, value string) error { // mlx5e_set_vf_vlan, igb_ndo_set_vf_vlan
				if strings.HasSuffix(value, "802.1ad") && t.card.name != "ice" {
					return refuse(syscall.EPROTONOSUPPORT, "")
				}
				return nil
			})
		}
		if k.name == nic.SpoofCheck {
			knob.get = func(t target) string { return lookUp(t.vf.Set, nic.SpoofCheck, t.card.spoofCheck()) }
		}
		out = append(out, knob)
	}
	return out
}

// spoofCheck is what a new VF has: mlx5_eswitch_clear_vf_vports_info clears it, others
// set it (ice_set_dflt_settings_vfs, igb_probe_vfs, __ixgbe_enable_sriov, i40e_alloc_vfs).
func (p profile) spoofCheck() string {
	switch p.name {
	case "ice", "igb", "ixgbe", "i40e":
		return "on"
	}
	return "off"
}

// boundsVFRate: igb_ndo_set_vf_bw, ixgbe_ndo_set_vf_bw and i40e_ndo_set_vf_bw look at
// the link's speed, and ixgbe's takes no 10 Mbit/s or less.
func (p profile) boundsVFRate() bool {
	switch p.name {
	case "igb", "ixgbe", "i40e":
		return true
	}
	return false
}

// rateKnobs: devlink rate in switchdev mode (esw/qos.c), VF attributes in legacy mode,
// which come in pairs (rtnetlink.c, rtnl_set_vf_rate).
func rateKnobs() []knob {
	rate := func(name nic.Setting) knob {
		return plain(name, number(), "0", func(t target) bool {
			switch {
			case t.isPF() || t.pf.InfiniBand || !t.driven():
				return false
			case t.switchdev():
				return t.card.devlinkRates
			}
			return t.vf != nil && t.uplink != nil && slices.Contains(t.card.vfAttributes, name)
		}).but(func(_ *Sim, t target, value string) error {
			low, high := atoi(lookUp(*t.kept(), nic.MinRate, "0")), atoi(lookUp(*t.kept(), nic.MaxRate, "0"))
			if name == nic.MinRate {
				low = atoi(value)
			} else {
				high = atoi(value)
			}
			switch {
			case t.switchdev() && max(low, high) > t.card.speed: // mlx5_esw_qos_link_speed_verify
				return refuse(syscall.EINVAL, t.card.driver+": TX rate value exceed link maximum speed")
			case !t.switchdev() && high > 0 && high < low:
				return refuse(syscall.EINVAL, "")
			case t.switchdev():
			case t.card.boundsVFRate() && high > t.card.speed, t.card.name == "ixgbe" && 0 < high && high <= 10:
				return refuse(syscall.EINVAL, "")
			}
			return nil
		})
	}
	return []knob{rate(nic.MinRate), rate(nic.MaxRate)}
}

// ofNetdev is a knob of the function's own netdev, kept with it.
func ofNetdev(name nic.Setting, has func(queues) bool, otherwise, most func(t target) int) knob {
	return knob{
		name: name, form: number().words, takes: number().takes, most: most,
		has: func(t target) bool { return t.netdev != nil && has(t.queues()) },
		get: func(t target) string { return lookUp(t.netdev.Set, name, strconv.Itoa(otherwise(t))) },
		set: func(_ *Sim, t target, value string) (func(), error) { return keep(&t.netdev.Set, name, value), nil },
	}
}

// queueKnobs: channels and rings, by ethtool.
func queueKnobs() []knob {
	channels := ofNetdev(nic.Channels, func(q queues) bool { return q.mostChannels > 0 }, target.channels, target.mostChannels).but(func(_ *Sim, t target, value string) error {
		if n := atoi(value); n < 1 || n > t.mostChannels() {
			return refuse(syscall.EINVAL, "requested channel count exceeds maximum") // ethtool_set_channels
		}
		return nil
	})
	ring := func(name nic.Setting, otherwise func(q queues) int) knob {
		k := ofNetdev(name, func(q queues) bool { return q.mostRing > 0 }, func(t target) int { return otherwise(t.queues()) },
			func(t target) int { return t.queues().mostRing })
		k.set = func(_ *Sim, t target, value string) (func(), error) {
			n, q := atoi(value), t.queues()
			switch {
			case n > q.mostRing:
				return nil, refuse(syscall.EINVAL, "requested ring size exceeds maximum") // ethnl_set_rings
			case n < q.minRing:
				return nil, refuse(syscall.EINVAL, fmt.Sprintf("%s (%d) < min (%d)", name, n, q.minRing))
			case q.rounded(n) != n:
				return nil, &refusal{err: host.ErrInvalid, ext: fmt.Sprintf("the driver would make it %d", q.rounded(n))}
			}
			return keep(&t.netdev.Set, name, value), nil
		}
		return k
	}
	return []knob{
		channels,
		ring(nic.RxRing, func(q queues) int { return q.rx }),
		ring(nic.TxRing, func(q queues) int { return q.tx }),
	}
}

// channels is how many the netdev has when nobody has set it.
func (t target) channels() int {
	q := t.queues()
	if t.isPF() && t.switchdev() && q.repChannels > 0 {
		return q.repChannels
	}
	return min(q.channels, t.mostChannels())
}

// mostChannels: of a VF or SF no more than it has event queues (en.h,
// mlx5e_get_max_num_channels).
func (t target) mostChannels() int {
	n := t.queues().mostChannels
	if t.card.functionCaps && !t.isPF() {
		n = min(n, max(1, atoi(t.eventQueues())))
	}
	return n
}

func (t target) eventQueues() string {
	if t.sf != nil {
		return lookUp(t.sf.Set, nic.EventQueues, "8") // MLX5_ESW_DEFAULT_SF_COMP_EQS
	}
	return lookUp(t.vf.Set, nic.EventQueues, "120")
}

// rounded is the number of entries that the driver makes of n.
func (q queues) rounded(n int) int {
	if q.ringStep == 0 {
		return 1 << bits.Len(uint(n-1))
	}
	return (n + q.ringStep - 1) / q.ringStep * q.ringStep
}

// sizeKnobs: rtnetlink.c, validate_linkmsg. (A size for IPv6 of 65536 or less is also
// given to IPv4, netif_set_gso_max_size; that for IPv4 goes in the same message, and
// so stays.)
func sizeKnobs() []knob {
	tso := func(t target) int { return t.queues().tso }
	gro := func(target) int { return coalesceMost }
	usual := func(target) int { return legacyMax }
	size := func(name nic.Setting, word string, most func(target) int) knob {
		return ofNetdev(name, func(queues) bool { return true }, usual, most).but(func(_ *Sim, t target, value string) error {
			if n, _ := strconv.ParseUint(value, 10, 64); n > uint64(most(t)) {
				return refuse(syscall.EINVAL, "too big "+word)
			}
			return nil
		})
	}
	return []knob{
		size(nic.GSOMax, "gso_max_size", tso),
		size(nic.GROMax, "gro_max_size", gro),
		size(nic.GSOMaxIPv4, "gso_ipv4_max_size", tso),
		size(nic.GROMaxIPv4, "gro_ipv4_max_size", gro),
	}
}
