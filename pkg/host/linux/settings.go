package linux

import (
	"context"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/ethtool"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/vdpa"
)

// settings reads and sets what functions have beside mode, number and addresses.
type settings struct {
	eswitches eswitches
	links     *links
	ethtool   *ethtool.Client
	vdpa      *vdpa.Client
	bus       vdpa.Sys
	dev       string // device files
}

// Read takes each list once, whatever the number of functions: interfaces with
// their VFs, ports, parameters, rates, features, channels, rings, vDPA. What one
// driver makes fail, beyond the first two, is absent.
func (s settings) Read(ctx context.Context, state *nic.State) error {
	const op, what = "read", "settings"
	if err := begin(ctx, op, what); err != nil {
		return err
	}
	t := newTold()
	links, err := s.links.list(ctx)
	if err != nil {
		return fail(op, what, err)
	}
	for _, l := range links {
		t.addLink(l)
	}
	ports, err := s.eswitches.list(ctx)
	if err != nil {
		return fail(op, what, err)
	}
	for _, p := range ports {
		t.ports[portID{p.Handle, p.Index}] = p
	}
	for _, p := range state.PFs {
		if e, err := s.eswitches.eswitch(ctx, p.Handle); err == nil {
			t.eswitches[p.Handle] = e
		}
	}
	s.listParams(ctx, t, state)
	if rates, err := s.eswitches.devlink.Rates(ctx); err == nil {
		for _, r := range rates {
			t.addRate(r)
		}
	}
	s.listQueues(ctx, t, state)
	s.listVDPA(ctx, t)
	if err := begin(ctx, op, what); err != nil {
		return err // what is absent may be so for that
	}
	for i := range state.PFs {
		p := &state.PFs[i]
		take(&p.Settings, &p.Limits, t.pf(*p))
		for j := range p.VFs {
			v := &p.VFs[j]
			take(&v.Settings, &v.Limits, t.vf(*p, *v))
			v.VDPA = t.devices[nic.PCI(v.Address)]
		}
		for j := range p.SFs {
			take(&p.SFs[j].Settings, &p.SFs[j].Limits, t.sf(*p, p.SFs[j]))
		}
	}
	return nil
}

func take(settings *nic.Settings, limits *nic.Limits, o offers) {
	*settings, *limits = o.settings, o.limits
}

// listParams reads those of one PF after the other where one device's make the
// list of all fail (devlink_nl_param_get_dump_one).
func (s settings) listParams(ctx context.Context, t *told, state *nic.State) {
	all, err := s.eswitches.devlink.Params(ctx)
	for _, p := range all {
		t.addParam(p)
	}
	if err != nil {
		for _, p := range state.PFs {
			s.readParams(t, p.Handle)
		}
	}
}

func (s settings) readParams(t *told, h nic.Handle) {
	for _, name := range []string{paramSteering, paramRoCE} {
		if p, err := s.eswitches.devlink.Param(h, name); err == nil {
			t.addParam(p)
		}
	}
}

// listQueues reads those of one interface after the other where one whose device
// is not there for the moment makes the list of all fail.
func (s settings) listQueues(ctx context.Context, t *told, state *nic.State) {
	features, err := s.ethtool.Features(ctx, ethtool.TCOffload)
	channels, errChannels := s.ethtool.Channels(ctx)
	rings, errRings := s.ethtool.Rings(ctx)
	if err == nil && errChannels == nil && errRings == nil {
		t.tc, t.channels, t.rings = features, channels, rings
		return
	}
	for _, p := range state.PFs {
		s.readFeature(t, p.Uplink.Ifindex)
		s.readQueues(t, p.Uplink.Ifindex)
		for _, v := range p.VFs {
			s.readQueues(t, v.Netdev.Ifindex)
		}
		for _, f := range p.SFs {
			s.readQueues(t, f.Netdev.Ifindex)
		}
	}
}

func (s settings) readFeature(t *told, ifindex int) {
	if f, err := s.ethtool.Feature(ifindex, ethtool.TCOffload); ifindex != 0 && err == nil {
		t.tc[ifindex] = f
	}
}

func (s settings) readQueues(t *told, ifindex int) {
	if ifindex == 0 {
		return
	}
	if ch, err := s.ethtool.ChannelsOf(ifindex); err == nil {
		t.channels[ifindex] = ch
	}
	if r, err := s.ethtool.RingsOf(ifindex); err == nil {
		t.rings[ifindex] = r
	}
}

// listVDPA: most machines have no vDPA, and answer with an empty list.
func (s settings) listVDPA(ctx context.Context, t *told) {
	parents, err := s.vdpa.Parents(ctx)
	if err != nil || len(parents) == 0 {
		return
	}
	for _, p := range parents {
		if p.Net {
			t.vdpa[p.Handle] = vdpaNone
		}
	}
	devices, err := s.vdpa.Devices(ctx)
	if err != nil {
		return
	}
	for _, d := range devices {
		if _, ok := t.vdpa[d.Parent]; ok {
			t.vdpa[d.Parent] = vdpaValue(s.bus.Driver(d.Name))
			one := nic.VDPADevice{Name: d.Name}
			if file := s.bus.File(d.Name); file != "" {
				one.File = s.dev + "/" + file
			}
			t.devices[d.Parent] = one
		}
	}
}

// The values of nic.VDPA.
const (
	vdpaNone   = "none"
	vdpaVhost  = "vhost"
	vdpaVirtio = "virtio"
)

func vdpaValue(driver string) string {
	switch driver {
	case vdpa.Vhost:
		return vdpaVhost
	case vdpa.Virtio:
		return vdpaVirtio
	}
	return vdpaNone
}

func (s settings) ReadVF(ctx context.Context, pf *nic.PF, vf int) error {
	const op = "read settings"
	if err := begin(ctx, op, pf.Handle.String()); err != nil {
		return err
	}
	if vf < 0 || vf >= len(pf.VFs) {
		return refuse(op, pf.Handle.String(), 0, noVF(*pf, vf))
	}
	v := &pf.VFs[vf]
	t := s.tellVF(ctx, *pf, *v, everything)
	take(&v.Settings, &v.Limits, t.vf(*pf, *v))
	v.VDPA = t.devices[nic.PCI(v.Address)]
	return nil
}

func (s settings) ReadSF(ctx context.Context, pf *nic.PF, num int) error {
	const op = "read settings"
	if err := begin(ctx, op, pf.Handle.String()); err != nil {
		return err
	}
	f := pf.SF(num)
	if f == nil {
		return refuse(op, nic.SFID{PF: pf.Handle, Num: num}.String(), unix.ENODEV, fmt.Errorf("there is no such SF: %w", fs.ErrNotExist))
	}
	take(&f.Settings, &f.Limits, s.tellSF(*pf, *f, everything).sf(*pf, *f))
	return nil
}

func noVF(pf nic.PF, vf int) error {
	return fmt.Errorf("it has %d VFs, and no VF %d: %w", len(pf.VFs), vf, fs.ErrNotExist)
}

// part is where a setting is, so that nobody reads everything to set one thing.
type part int

const (
	ofEswitch part = 1 << iota
	ofParams
	ofLink
	ofFeature
	ofQueues
	ofUplinkVFs
	ofFunction
	ofRate
	ofVDPA

	everything = 1<<iota - 1
)

// partOf: rates are the port's in switchdev mode, of the uplink's VFs in legacy mode.
func partOf(name nic.Setting) part {
	switch name {
	case nic.InlineMode, nic.EncapMode:
		return ofEswitch
	case nic.SteeringMode:
		return ofParams
	case nic.RoCE:
		return ofParams | ofFunction
	case nic.TCOffload:
		return ofLink | ofFeature
	case nic.LinkMTU, nic.AdminLink, nic.GSOMax, nic.GROMax, nic.GSOMaxIPv4, nic.GROMaxIPv4:
		return ofLink
	case nic.Channels, nic.RxRing, nic.TxRing:
		return ofLink | ofQueues
	case nic.EventQueues:
		return ofFunction
	case nic.MinRate, nic.MaxRate:
		return ofUplinkVFs | ofRate
	case nic.VDPA:
		return ofVDPA
	}
	return ofUplinkVFs
}

func (s settings) tellPF(ctx context.Context, p nic.PF, of part) *told {
	t := newTold()
	if of&ofEswitch != 0 {
		if e, err := s.eswitches.eswitch(ctx, p.Handle); err == nil {
			t.eswitches[p.Handle] = e
		}
	}
	if of&ofParams != 0 {
		s.readParams(t, p.Handle)
	}
	s.tellNetdev(t, p.Uplink.Ifindex, of)
	return t
}

func (s settings) tellVF(ctx context.Context, p nic.PF, v nic.VF, of part) *told {
	t := newTold()
	if of&ofUplinkVFs != 0 && p.Eswitch != nic.Switchdev && p.Uplink.Exists() {
		if l, err := s.links.rtnl.GetWithVFs(p.Uplink.Ifindex); err == nil {
			t.addLink(l)
		}
	}
	if p.Eswitch == nic.Switchdev && v.Rep.Port != 0 {
		s.tellFunction(t, p.Handle, v.Rep.Port, of)
	}
	if of&ofVDPA != 0 {
		s.listVDPA(ctx, t)
	}
	s.tellNetdev(t, v.Netdev.Ifindex, of)
	return t
}

func (s settings) tellSF(p nic.PF, f nic.SF, of part) *told {
	t := newTold()
	s.tellFunction(t, p.Handle, f.Port, of)
	s.tellNetdev(t, f.Netdev.Ifindex, of)
	return t
}

func (s settings) tellFunction(t *told, h nic.Handle, port uint32, of part) {
	if of&ofFunction != 0 {
		if p, err := s.eswitches.devlink.Port(h, port); err == nil {
			t.ports[portID{h, port}] = p
		}
	}
	if of&ofRate != 0 {
		if r, err := s.eswitches.devlink.Rate(h, devlink.RateOf{Port: port}); err == nil {
			t.addRate(r)
		}
	}
}

func (s settings) tellNetdev(t *told, ifindex int, of part) {
	if ifindex == 0 {
		return
	}
	if of&ofLink != 0 {
		if l, err := s.links.rtnl.Get(ifindex); err == nil {
			t.addLink(l)
		}
	}
	if of&ofFeature != 0 {
		s.readFeature(t, ifindex)
	}
	if of&ofQueues != 0 {
		s.readQueues(t, ifindex)
	}
}

var _ host.Settings = settings{}
