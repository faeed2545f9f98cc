package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/nic"
)

// vfFields are the fields about what the PF lets the VF do, as sriov-cni calls them.
// VLANs and rates, which a bridge or devlink can do as well, are fields of both modes.
type vfFields struct {
	QoS        int    // vlanQoS, 0 to 7
	Proto      string // vlanProto: 802.1q, 802.1ad; "" 802.1q
	SpoofCheck string // spoofchk: on, off; "" as it is
	Trust      string // trust: on, off; "" as it is
	LinkState  string // link_state: auto, enable, disable; "" as it is
	MinRate    *int   // min_tx_rate, Mbit/s, 0 none; nil as it is
	MaxRate    *int   // max_tx_rate; runtimeConfig.bandwidth.egressRate goes before it

	// Of the VF's netdev, 0 as it is: channels and ring entries, and bytes, over 65536
	// for BIG TCP.
	Channels, RxRing, TxRing, GSOMax, GROMax, GSOMaxIPv4, GROMaxIPv4 int
}

func vfConfigFields() []field {
	oneOf := func(into func(*Config) *string, words ...string) func(*Config, json.RawMessage) error {
		return func(c *Config, raw json.RawMessage) error {
			return text(raw, into(c), func(s string) bool { return slices.Contains(words, s) })
		}
	}
	rate := func(into func(*Config) **int) func(*Config, json.RawMessage) error {
		return func(c *Config, raw json.RawMessage) error {
			n, err := number(raw, 0, mostRate)
			*into(c) = &n
			return err
		}
	}
	count := func(into func(*vfFields) *int) func(*Config, json.RawMessage) error {
		return func(c *Config, raw json.RawMessage) (err error) {
			*into(&c.VFFields), err = number(raw, 1, 1<<20)
			return err
		}
	}
	return []field{
		{"channels", "a number from 1", count(func(f *vfFields) *int { return &f.Channels })},
		{"rxRing", "a number of entries", count(func(f *vfFields) *int { return &f.RxRing })},
		{"txRing", "a number of entries", count(func(f *vfFields) *int { return &f.TxRing })},
		{"gsoMaxSize", "a number of bytes", count(func(f *vfFields) *int { return &f.GSOMax })},
		{"groMaxSize", "a number of bytes", count(func(f *vfFields) *int { return &f.GROMax })},
		{"gsoIPv4MaxSize", "a number of bytes", count(func(f *vfFields) *int { return &f.GSOMaxIPv4 })},
		{"groIPv4MaxSize", "a number of bytes", count(func(f *vfFields) *int { return &f.GROMaxIPv4 })},
		{"vlanQoS", "a number, 0 to 7", func(c *Config, raw json.RawMessage) (err error) {
			c.VFFields.QoS, err = number(raw, 0, 7)
			return err
		}},
		{"vlanProto", `"802.1q" or "802.1ad"`, func(c *Config, raw json.RawMessage) error {
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return err
			}
			c.VFFields.Proto = strings.ToLower(s) // sriov-cni takes 802.1Q as well
			if c.VFFields.Proto != "802.1q" && c.VFFields.Proto != "802.1ad" {
				return errForm
			}
			return nil
		}},
		{"spoofchk", `"on" or "off"`, oneOf(func(c *Config) *string { return &c.VFFields.SpoofCheck }, "on", "off")},
		{"trust", `"on" or "off"`, oneOf(func(c *Config) *string { return &c.VFFields.Trust }, "on", "off")},
		{"link_state", `"auto", "enable" or "disable"`,
			oneOf(func(c *Config) *string { return &c.VFFields.LinkState }, "auto", "enable", "disable")},
		{"min_tx_rate", rateForm, rate(func(c *Config) **int { return &c.VFFields.MinRate })},
		{"max_tx_rate", rateForm, rate(func(c *Config) **int { return &c.VFFields.MaxRate })},
	}
}

const (
	rateForm = "a number of Mbit/s, 0 for none"
	mostRate = 1_000_000 // Mbit/s, more than any NIC's
)

// readBandwidth reads runtimeConfig.bandwidth, in bits and bits per second. What
// leaves the pod is what the VF sends, and its rate is the hardware's; bursts are the
// hardware's own.
func readBandwidth(c *Config, raw json.RawMessage) error {
	members, err := object(raw)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("network configuration %q, runtimeConfig.bandwidth", c.Name)
	bits := func(into *uint64) func(*Config, json.RawMessage) error {
		return func(_ *Config, raw json.RawMessage) (err error) {
			*into, err = strconv.ParseUint(string(raw), 10, 64)
			return err
		}
	}
	var in, out, bursts uint64
	const form = "a number of bits per second, 0 for none"
	if err := readFields(c, where, members, []field{
		{"egressRate", form, bits(&out)}, {"egressBurst", "a number of bits", bits(&bursts)},
		{"ingressRate", form, bits(&in)}, {"ingressBurst", "a number of bits", bits(&bursts)},
	}); err != nil {
		return err
	}
	if in != 0 {
		return coded(types.ErrInvalidNetworkConfig,
			"%s: ingressRate = %d: a VF's hardware bounds only what the VF sends: want 0 or none, and egressRate at who sends to the pod", where, in)
	}
	if out == 0 {
		return nil
	}
	const mega = 1_000_000
	n := out/mega + min(out%mega, 1) // a limit is never rounded down to none
	if n > mostRate {
		return coded(types.ErrInvalidNetworkConfig, "%s: egressRate = %d: want at most %d", where, out, uint64(mostRate)*mega)
	}
	rate := int(n)
	c.VFFields.MaxRate = &rate
	return nil
}

// checkVFFields checks what no single field can.
func (c *Config) checkVFFields(where string) error {
	bad := func(format string, a ...any) error {
		return coded(types.ErrInvalidNetworkConfig, where+": "+format, a...)
	}
	f := c.VFFields
	switch {
	case f.MinRate != nil && f.MaxRate != nil && *f.MaxRate != 0 && *f.MinRate > *f.MaxRate:
		return bad("min_tx_rate = %d: want at most max_tx_rate, %d", *f.MinRate, *f.MaxRate)
	case c.VLAN == 0 && f.QoS != 0:
		return bad("vlanQoS = %d: there is no vlan: want vlan from 1 to 4094 with it", f.QoS)
	case c.VLAN == 0 && f.Proto == "802.1ad":
		return bad("vlanProto = %q: there is no vlan: want vlan from 1 to 4094 with it", f.Proto)
	case c.Bridge != "":
		return nil
	case c.Trunk != nil && c.Attach != AttachRep:
		return bad("trunk = %s: there is no bridge for the port, and a VF in legacy mode has no trunk: want bridge with it", offload.Ranges(c.Trunk))
	case c.IfaceID != "":
		return bad("ifaceID = %q: there is no bridge for the port: want bridge with it, br-int for OVN", c.IfaceID)
	}
	return nil
}

// legacyOnly lists the fields that are set and only a PF in legacy mode can do, as
// name, value and what to do instead.
func (f vfFields) legacyOnly() [][3]string {
	var out [][3]string
	add := func(name, value, instead string) {
		if value != "" {
			out = append(out, [3]string{name, strconv.Quote(value), instead})
		}
	}
	if f.QoS != 0 {
		out = append(out, [3]string{"vlanQoS", strconv.Itoa(f.QoS), "priorities are for flows of the bridge to set"})
	}
	if f.Proto == "802.1ad" {
		add("vlanProto", f.Proto, "an outer VLAN is for flows of the bridge to push")
	}
	add("spoofchk", f.SpoofCheck, "what the VF may send is for flows of the bridge to say")
	add("trust", f.Trust, "what the VF gets to see is for flows of the bridge to say")
	add("link_state", f.LinkState, "the VF's link follows its representor, which is up while it is attached")
	return out
}

// settings are those that are wanted of a VF, in the mode that its PF is in.
func (c *Config) settings(mode nic.Eswitch) nic.Settings {
	out := nic.Settings{}
	rate := func(name nic.Setting, n *int) {
		if n != nil {
			out[name] = strconv.Itoa(*n)
		}
	}
	rate(nic.MinRate, c.VFFields.MinRate)
	rate(nic.MaxRate, c.VFFields.MaxRate)
	for name, n := range c.VFFields.ofNetdev() {
		rate(name, &n)
	}
	if c.GUID != "" {
		out[nic.NodeGUID], out[nic.PortGUID] = c.GUID, c.GUID
	}
	if mode != nic.Switchdev {
		f := c.VFFields
		for name, value := range map[nic.Setting]string{
			nic.SpoofCheck: f.SpoofCheck, nic.Trust: f.Trust, nic.LinkState: f.LinkState, nic.VLAN: c.vlanSetting(),
		} {
			if value != "" {
				out[name] = value
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ofNetdev are the numbers that are set of the VF's netdev.
func (f vfFields) ofNetdev() map[nic.Setting]int {
	all := map[nic.Setting]int{
		nic.Channels: f.Channels, nic.RxRing: f.RxRing, nic.TxRing: f.TxRing, nic.GSOMax: f.GSOMax, nic.GROMax: f.GROMax,
		nic.GSOMaxIPv4: f.GSOMaxIPv4, nic.GROMaxIPv4: f.GROMaxIPv4,
	}
	maps.DeleteFunc(all, func(_ nic.Setting, n int) bool { return n == 0 })
	return all
}

// vlanSetting is the VLAN in nic.VLAN's form; "" without one, which leaves the VF's.
func (c *Config) vlanSetting() string {
	if c.VLAN == 0 {
		return ""
	}
	s := strconv.Itoa(int(c.VLAN))
	if c.VFFields.QoS != 0 {
		s += "/" + strconv.Itoa(c.VFFields.QoS)
	}
	if c.VFFields.Proto == "802.1ad" {
		s += "/802.1ad"
	}
	return s
}

// fieldOf is what the configuration calls a setting.
func fieldOf(name nic.Setting) string {
	switch name {
	case nic.NodeGUID, nic.PortGUID:
		return "guid"
	case nic.SpoofCheck:
		return "spoofchk"
	case nic.LinkState:
		return "link_state"
	case nic.MinRate:
		return "min_tx_rate"
	case nic.MaxRate:
		return "max_tx_rate"
	case nic.RxRing:
		return "rxRing"
	case nic.TxRing:
		return "txRing"
	case nic.GSOMaxIPv4:
		return "gsoIPv4MaxSize"
	case nic.GROMaxIPv4:
		return "groIPv4MaxSize"
	case nic.GSOMax:
		return "gsoMaxSize"
	case nic.GROMax:
		return "groMaxSize"
	}
	return string(name)
}
