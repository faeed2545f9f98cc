package linux

import (
	"strconv"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/ethtool"
	"sluice.dev/sluice/pkg/nic"
	nldev "sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rtnl"
)

// The devlink parameters that are settings (Documentation/networking/devlink/
// mlx5.rst, devlink-params.rst).
const (
	paramSteering = "flow_steering_mode"
	paramRoCE     = "enable_roce"
)

// What the kernel takes of GRO (GRO_MAX_SIZE), and of GSO where it does not tell
// what the device takes (before Linux 5.19).
const (
	maxSize    = 8 * 65535
	legacySize = 65536
)

type portID struct {
	handle nic.Handle
	port   uint32
}

// told is what the kernel told, by what it is of: of the whole machine, or only of
// one function.
type told struct {
	eswitches map[nic.Handle]devlink.Eswitch
	params    map[nic.Handle]map[string]devlink.Param
	ports     map[portID]devlink.Port
	rates     map[portID]devlink.Rate
	links     map[int]rtnl.Link
	vfs       map[int]map[int]rtnl.VF // by the uplink's ifindex
	tc        map[int]ethtool.Feature
	channels  map[int]ethtool.Channels
	rings     map[int]ethtool.Rings
	vdpa      map[nic.Handle]string // nic.VDPA's value of what can have such a device
	devices   map[nic.Handle]nic.VDPADevice
}

func newTold() *told {
	return &told{
		eswitches: map[nic.Handle]devlink.Eswitch{}, params: map[nic.Handle]map[string]devlink.Param{},
		ports: map[portID]devlink.Port{}, rates: map[portID]devlink.Rate{},
		links: map[int]rtnl.Link{}, vfs: map[int]map[int]rtnl.VF{},
		tc: map[int]ethtool.Feature{}, channels: map[int]ethtool.Channels{}, rings: map[int]ethtool.Rings{},
		vdpa: map[nic.Handle]string{}, devices: map[nic.Handle]nic.VDPADevice{},
	}
}

func (t *told) addLink(l rtnl.Link) {
	t.links[l.Ifindex] = l
	if len(l.VFs) > 0 {
		t.vfs[l.Ifindex] = make(map[int]rtnl.VF, len(l.VFs))
		for _, v := range l.VFs {
			t.vfs[l.Ifindex][v.Index] = v
		}
	}
}

func (t *told) addParam(p devlink.Param) {
	if t.params[p.Handle] == nil {
		t.params[p.Handle] = map[string]devlink.Param{}
	}
	t.params[p.Handle][p.Name] = p
}

func (t *told) addRate(r devlink.Rate) {
	if r.Of.Node == "" {
		t.rates[portID{r.Handle, r.Of.Port}] = r
	}
}

// offers collects what one object offers.
type offers struct {
	settings nic.Settings
	limits   nic.Limits
}

func (o *offers) add(name nic.Setting, value string) {
	if o.settings == nil {
		o.settings = nic.Settings{}
	}
	o.settings[name] = value
}

func (o *offers) number(name nic.Setting, value, most int) {
	o.add(name, strconv.Itoa(value))
	if most > 0 {
		if o.limits == nil {
			o.limits = nic.Limits{}
		}
		o.limits[name] = most
	}
}

func (t *told) pf(p nic.PF) offers {
	var o offers
	e := t.eswitches[p.Handle]
	if e.Inline != "" {
		o.add(nic.InlineMode, e.Inline)
	}
	if e.Encap != "" {
		o.add(nic.EncapMode, e.Encap)
	}
	if v, ok := t.params[p.Handle][paramSteering].Values[devlink.Runtime]; ok {
		o.add(nic.SteeringMode, v.String())
	}
	if v, ok := t.params[p.Handle][paramRoCE].Values[devlink.DriverInit]; ok && v.Type == devlink.Bool {
		o.add(nic.RoCE, onOff(v.Number != 0))
	}
	l, ok := t.links[p.Uplink.Ifindex]
	if !ok {
		return o
	}
	o.number(nic.LinkMTU, l.MTU, 0)
	o.add(nic.AdminLink, upDown(l.Up))
	if f, ok := t.tc[l.Ifindex]; ok && !f.Fixed {
		o.add(nic.TCOffload, onOff(f.On))
	}
	t.netdev(&o, l.Ifindex)
	return o
}

func (t *told) vf(p nic.PF, v nic.VF) offers {
	var o offers
	switch {
	case p.Eswitch != nic.Switchdev:
		t.legacy(&o, p, v.Index)
	case v.Rep.Port != 0:
		t.function(&o, portID{p.Handle, v.Rep.Port})
	}
	if value, ok := t.vdpa[nic.PCI(v.Address)]; ok {
		o.add(nic.VDPA, value)
	}
	t.netdev(&o, v.Netdev.Ifindex)
	return o
}

func (t *told) sf(p nic.PF, f nic.SF) offers {
	var o offers
	t.function(&o, portID{p.Handle, f.Port})
	t.netdev(&o, f.Netdev.Ifindex)
	return o
}

// legacy are the VF attributes of the PF's netdev. Ethernet's are told of InfiniBand
// as well, and of each driver all.
func (t *told) legacy(o *offers, p nic.PF, index int) {
	v, ok := t.vfs[p.Uplink.Ifindex][index]
	if !ok {
		return
	}
	add := func(name nic.Setting, value string) {
		if !cannot(p.Driver, name) {
			o.add(name, value)
		}
	}
	add(nic.LinkState, v.LinkState)
	if p.InfiniBand {
		add(nic.NodeGUID, nldev.GUID(v.NodeGUID))
		add(nic.PortGUID, nldev.GUID(v.PortGUID))
		return
	}
	if v.Trust != nil {
		add(nic.Trust, onOff(*v.Trust))
	}
	if v.SpoofCheck != nil {
		add(nic.SpoofCheck, onOff(*v.SpoofCheck))
	}
	add(nic.VLAN, vlanText(v.VLAN))
	add(nic.MinRate, strconv.Itoa(v.MinRate))
	add(nic.MaxRate, strconv.Itoa(v.MaxRate))
}

// cannot says which VF attributes a driver has no way to set, which the kernel does
// not tell: igb has no ndo_set_vf_link_state, and refuses each least rate
// (intel/igb/igb_main.c, igb_netdev_ops and igb_ndo_set_vf_bw).
func cannot(driver string, name nic.Setting) bool {
	return driver == "igb" && (name == nic.LinkState || name == nic.MinRate)
}

// bytesPerMbit: devlink rates are in bytes a second.
const bytesPerMbit = 1000 * 1000 / 8

// function are the port function's and its rate.
func (t *told) function(o *offers, id portID) {
	if f := t.ports[id].Function; f != nil {
		if f.RoCE != nil {
			o.add(nic.RoCE, onOff(*f.RoCE))
		}
		if f.MaxIOEQs != nil {
			o.number(nic.EventQueues, int(*f.MaxIOEQs), 0)
		}
	}
	if r, ok := t.rates[id]; ok {
		o.number(nic.MinRate, int(r.Share/bytesPerMbit), 0)
		o.number(nic.MaxRate, int(r.Max/bytesPerMbit), 0)
	}
}

// netdev are those of a function's own interface.
func (t *told) netdev(o *offers, ifindex int) {
	l, ok := t.links[ifindex]
	if !ok {
		return
	}
	if c := t.channels[ifindex].Combined; c.Max > 0 {
		o.number(nic.Channels, int(c.N), int(c.Max))
	}
	r := t.rings[ifindex]
	if r.RX.Max > 0 {
		o.number(nic.RxRing, int(r.RX.N), int(r.RX.Max))
	}
	if r.TX.Max > 0 {
		o.number(nic.TxRing, int(r.TX.N), int(r.TX.Max))
	}
	most := l.Sizes.TSO
	if most == 0 {
		most = legacySize
	}
	for _, s := range []struct {
		name    nic.Setting
		n, most int
	}{
		{nic.GSOMax, l.Sizes.GSO, most}, {nic.GSOMaxIPv4, l.Sizes.GSOIPv4, most},
		{nic.GROMax, l.Sizes.GRO, maxSize}, {nic.GROMaxIPv4, l.Sizes.GROIPv4, maxSize},
	} {
		if s.n > 0 {
			o.number(s.name, s.n, s.most)
		}
	}
}
