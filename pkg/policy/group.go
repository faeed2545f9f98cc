package policy

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// vfGroup is an entry of vfGroups, read.
type vfGroup struct {
	path string
	text string     // the range as it was written
	vfs  nic.Ranges // empty: all
	bad  bool       // text is no range
	function
	driver     nic.Driver
	stableGUID bool
}

// function is what VFs and SFs have in common, read.
type function struct {
	mtu       int // 0: as it is
	stableMAC bool
	settings  nic.Settings
}

func (f *form) vfGroups(path string, groups []v1alpha1.VFGroup) []vfGroup {
	var out []vfGroup
	for i, g := range groups {
		v := f.vfGroup(fmt.Sprintf("%s.vfGroups[%d]", path, i), g)
		for j, other := range out {
			if both, yes := v.vfs.Shared(other.vfs); yes && !v.bad && !other.bad {
				f.fail(v.path+".range", "%s in vfGroups[%d] already: want ranges that do not overlap", areVFs(both), j)
				break
			}
		}
		out = append(out, v)
	}
	return out
}

func areVFs(r nic.Range) string {
	switch {
	case r.First == r.Last:
		return fmt.Sprintf("VF %d is", r.First)
	case r.Last == nic.MaxVFIndex:
		return fmt.Sprintf("all VFs from %d on are", r.First)
	}
	return fmt.Sprintf("VFs %s are", r)
}

func (f *form) vfGroup(path string, g v1alpha1.VFGroup) vfGroup {
	o := f.object(path)
	out := vfGroup{path: path, text: g.Range, driver: nic.Driver(g.Driver), stableGUID: g.GUID == stable}
	vfs, err := nic.ParseRanges(g.Range)
	if err != nil {
		o.fail(o.at("range"), "%v", err)
	}
	out.vfs, out.bad = vfs, err != nil
	o.word(o.at("driver"), g.Driver, string(nic.DriverKernel), string(nic.DriverVFIO), string(nic.DriverNone))
	out.function = o.function(g.FunctionSettings)
	o.word(o.at("guid"), g.GUID, stable, driver)
	o.onOff(nic.Trust, g.Trust)
	o.onOff(nic.SpoofCheck, g.SpoofCheck)
	o.oneOf(nic.LinkState, "linkState", g.LinkState, "auto", "enable", "disable")
	o.vlan(g.VLAN)
	o.oneOf(nic.VDPA, "vdpa", g.VDPA, "none", "vhost", "virtio")
	out.settings = o.out
	if !out.hasNetdev() {
		if fields := given(g.NetdevSettings); len(fields) > 0 {
			o.fail(o.at("driver"), "%q, with which the VF has no netdev for %s: want kernel, or no such fields", g.Driver, strings.Join(fields, ", "))
		}
		if g.VDPA == "vhost" || g.VDPA == "virtio" {
			o.fail(o.at("vdpa"), "%q with driver %s: want driver kernel, which makes the vDPA device, or vdpa none", g.VDPA, g.Driver)
		}
	}
	return out
}

// hasNetdev says whether the VF may have a netdev of its own: not if it is
// wanted to be bound to something else than the kernel's driver.
func (g *vfGroup) hasNetdev() bool {
	return g.driver != nic.DriverVFIO && g.driver != nic.DriverNone
}

// function reads what VFs and SFs have in common. The settings are o's, which
// more may be put into.
func (o *object) function(s v1alpha1.FunctionSettings) function {
	o.word(o.at("mac"), s.MAC, stable, driver)
	o.onOff(nic.RoCE, s.RoCE)
	o.count(nic.EventQueues, "eventQueues", s.EventQueues, 0, maxQueues, "")
	least := o.rate(nic.MinRate, "minRate", s.MinRate)
	most := o.rate(nic.MaxRate, "maxRate", s.MaxRate)
	if most > 0 && least > most {
		o.fail(o.at("minRate"), "%q is over maxRate %q: want no more than it", s.MinRate, s.MaxRate)
	}
	o.netdev(s.NetdevSettings)
	return function{mtu: o.mtu(o.at("mtu"), s.MTU), stableMAC: s.MAC == stable, settings: o.out}
}

// netdevField is one field of v1alpha1.NetdevSettings.
type netdevField struct {
	name        nic.Setting
	field       string
	value       *int
	least, most int
	unit        string
}

func netdevFields(s v1alpha1.NetdevSettings) []netdevField {
	return []netdevField{
		{nic.Channels, "channels", s.Channels, 1, maxQueues, ""},
		{nic.RxRing, "rxRing", s.RxRing, 1, maxRing, " entries"},
		{nic.TxRing, "txRing", s.TxRing, 1, maxRing, " entries"},
		{nic.GSOMax, "gsoMaxSize", s.GSOMaxSize, minGSO, maxGSO, " bytes"},
		{nic.GROMax, "groMaxSize", s.GROMaxSize, minGSO, maxGSO, " bytes"},
		{nic.GSOMaxIPv4, "gsoIPv4MaxSize", s.GSOIPv4MaxSize, minGSO, maxGSO, " bytes"},
		{nic.GROMaxIPv4, "groIPv4MaxSize", s.GROIPv4MaxSize, minGSO, maxGSO, " bytes"},
	}
}

func (o *object) netdev(s v1alpha1.NetdevSettings) {
	for _, n := range netdevFields(s) {
		o.count(n.name, n.field, n.value, n.least, n.most, n.unit)
	}
}

// given lists the fields that are there.
func given(s v1alpha1.NetdevSettings) []string {
	var out []string
	for _, n := range netdevFields(s) {
		if n.value != nil {
			out = append(out, n.field)
		}
	}
	return out
}

const (
	maxVLAN = 4094 // 4095 is reserved (VLAN_N_VID)
	maxQoS  = 7

	protoQ  = "802.1Q"
	protoAD = "802.1ad"
)

// vlan reads a VLAN into ID[/QOS][/802.1ad].
func (o *object) vlan(v *v1alpha1.VLAN) {
	if v == nil {
		return
	}
	at := o.at("vlan")
	before := len(o.problems)
	if v.ID == nil {
		o.fail(at+".id", "it is left out: want 1 to %d, or 0 for no VLAN", maxVLAN)
		return
	}
	if *v.ID < 0 || *v.ID > maxVLAN {
		o.fail(at+".id", "%d: want 1 to %d, or 0 for no VLAN", *v.ID, maxVLAN)
	}
	if v.QoS < 0 || v.QoS > maxQoS {
		o.fail(at+".qos", "%d: want 0 to %d", v.QoS, maxQoS)
	}
	o.word(at+".proto", v.Proto, protoQ, protoAD)
	if *v.ID == 0 && (v.QoS != 0 || v.Proto != "") {
		o.fail(at, "qos or proto beside id 0, which is no VLAN: want an id from 1 to %d, or id 0 alone", maxVLAN)
	}
	if len(o.problems) > before {
		return
	}
	text := strconv.Itoa(*v.ID)
	if v.QoS != 0 {
		text += "/" + strconv.Itoa(v.QoS)
	}
	if v.Proto == protoAD {
		text += "/" + protoAD
	}
	o.set(nic.VLAN, text)
}

// addVFs puts what g wants into the spec of pf, which has or will have count VFs
// and is or will be in mode.
func (r *resolver) addVFs(spec *nic.PFSpec, g vfGroup, pf *nic.PF, count int, mode nic.Eswitch) {
	switch last := g.vfs.Last(); {
	case g.bad:
		return
	case last < count:
	case count == 0:
		r.fail(g.path+".range", "%q names VFs of a PF without any, %s: want numVfs over %d first", g.text, pf.Handle, last)
		return
	default:
		r.fail(g.path+".range", "%q goes beyond the VFs of %s: there are %d, so want indexes up to %d", g.text, pf.Handle, count, count-1)
		return
	}
	r.known(g.path+".mac", g.stableMAC, pf)
	r.known(g.path+".guid", g.stableGUID, pf)
	if g.stableGUID && pf.Uplink.Exists() && !pf.InfiniBand {
		// do_setlink asks for ndo_set_vf_guid, which IPoIB alone has.
		r.fail(g.path+".guid", "stable, but %s (%s) is a port of Ethernet, whose VFs have no GUID: want no guid, or mac", pf.Handle, pf.Uplink.Name)
	}
	if g.mtu != 0 && !g.hasNetdev() && mode != nic.Switchdev {
		r.fail(g.path+".mtu", "%d, but with driver %s the VFs of %s have no netdev, and representors are in switchdev mode alone: want no mtu, driver kernel or eswitch switchdev", g.mtu, g.driver, pf.Handle)
	}
	for _, part := range g.vfs.All() {
		for i := part.First; i <= min(part.Last, count-1); i++ {
			for len(spec.VFs) <= i {
				spec.VFs = append(spec.VFs, nic.VFSpec{})
			}
			spec.VFs[i] = vfSpec(g, pf, i, mode)
		}
	}
}

// known refuses what is to follow from a card that does not say which it is.
func (r *resolver) known(path string, stable bool, pf *nic.PF) {
	switch {
	case !stable || pf.Serial != "":
	case cardOf(*pf) == "":
		r.fail(path, "stable follows from the card, and %s tells neither a serial number nor an address: want driver", pf.Handle)
	case r.bonded[pf.Handle]:
		// bond_enslave gives members the bond's address.
		r.fail(path, "stable follows from the address of %s, which tells no serial number, and a bond changes that: want driver", pf.Handle)
	}
}

func vfSpec(g vfGroup, pf *nic.PF, i int, mode nic.Eswitch) nic.VFSpec {
	out := nic.VFSpec{Driver: g.driver, Settings: maps.Clone(g.settings)}
	if g.hasNetdev() {
		out.MTU = g.mtu
	}
	if mode == nic.Switchdev {
		out.RepMTU = g.mtu
	}
	if g.stableMAC {
		mac := StableMAC(*pf, i)
		out.MAC = &mac
	}
	if g.stableGUID {
		guid := StableGUID(*pf, i)
		out.Settings = out.Settings.With(nic.NodeGUID, guid).With(nic.PortGUID, guid)
	}
	return out
}
