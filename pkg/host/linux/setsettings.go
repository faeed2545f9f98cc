package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/ethtool"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/rtnl"
	"sluice.dev/sluice/pkg/vdpa"
)

// object is what a setting is set of.
type object struct {
	op, name string // for messages
	has      offers
	ifindex  int // of its own netdev; 0 none
	told     *told
}

// set checks what each setting needs checked, in the order in which it can be said
// what is wrong, and does it unless it is so already.
func (o object) set(name nic.Setting, value string, do func() error) error {
	was, ok := o.has.settings[name]
	if !ok {
		return refuse(o.op, o.name, 0, fmt.Errorf("it does not have it, or not as it is now: %w", host.ErrNotSupported))
	}
	if err := checkValue(name, value, o.has.limits); err != nil {
		return refuse(o.op, o.name, 0, err)
	}
	if was == value {
		return nil
	}
	return fail(o.op, o.name, do())
}

func (s settings) start(ctx context.Context, pf nic.PF, name nic.Setting, value, object string) (op string, err error) {
	op = fmt.Sprintf("set %s %s", name, value)
	if err := begin(ctx, op, object); err != nil {
		return op, err
	}
	if _, err := os.Stat(fmt.Sprintf("%s/bus/%s/devices/%s", s.eswitches.root, pf.Handle.Bus, pf.Handle.Name)); err != nil {
		return op, refuse(op, object, unix.ENODEV, fmt.Errorf("there is no %s: %w", pf.Handle, fs.ErrNotExist))
	}
	return op, nil
}

func (s settings) SetPF(ctx context.Context, pf nic.PF, name nic.Setting, value string) error {
	op, err := s.start(ctx, pf, name, value, pf.Handle.String())
	if err != nil {
		return err
	}
	t := s.tellPF(ctx, pf, partOf(name))
	o := object{op: op, name: pf.Handle.String(), has: t.pf(pf), ifindex: pf.Uplink.Ifindex, told: t}
	d, h := s.eswitches.devlink, pf.Handle
	return o.set(name, value, func() error {
		switch name {
		case nic.InlineMode:
			return d.SetInlineMode(h, value)
		case nic.EncapMode:
			return d.SetEncapMode(h, value)
		case nic.SteeringMode:
			return d.SetParam(h, paramSteering, devlink.Runtime, devlink.Value{Type: devlink.String, Text: value})
		case nic.RoCE:
			return s.setRoCE(ctx, pf, value == "on")
		case nic.TCOffload:
			return s.ethtool.SetFeature(o.ifindex, ethtool.TCOffload, value == "on")
		case nic.LinkMTU:
			n, _ := strconv.Atoi(value)
			return s.links.rtnl.Set(o.ifindex, netlink.Attr(unix.IFLA_MTU, nl.Uint32Attr(uint32(n))))
		case nic.AdminLink:
			return s.links.rtnl.SetUp(o.ifindex, value == "up")
		}
		return s.setNetdev(o, name, value)
	})
}

// setRoCE sets the parameter and reloads the device, as it is in force only then.
// That would end switchdev mode and leave VFs without their PF, so it is refused
// while there is either.
func (s settings) setRoCE(ctx context.Context, pf nic.PF, on bool) error {
	e, d, h := s.eswitches, s.eswitches.devlink, pf.Handle
	if n := e.numVFs(h); n > 0 {
		return fmt.Errorf("it takes a reload, and there are %d VFs: %w", n, unix.EBUSY)
	}
	if mode, err := e.mode(h); err != nil || mode == nic.Switchdev {
		return errors.Join(err, fmt.Errorf("it takes a reload, which ends switchdev mode: %w", unix.EBUSY))
	}
	value := func(on bool) devlink.Value {
		v := devlink.Value{Type: devlink.Bool}
		if on {
			v.Number = 1
		}
		return v
	}
	if err := d.SetParam(h, paramRoCE, devlink.DriverInit, value(on)); err != nil {
		return err
	}
	if err := d.Reload(h); err != nil {
		// Left as it is, it would come into force with whoever reloads next.
		return errors.Join(err, d.SetParam(h, paramRoCE, devlink.DriverInit, value(!on)))
	}
	return until(ctx, limit(0), func() (string, error) {
		list, err := s.links.Links(ctx)
		if err != nil || !pf.Uplink.Exists() || slices.ContainsFunc(list, func(l host.Link) bool { return l.Parent == h.Name }) {
			return "", err
		}
		return "the uplink has no netdev", nil
	})
}

func (s settings) SetVF(ctx context.Context, pf nic.PF, vf int, name nic.Setting, value string) error {
	id := nic.VFID{PF: pf.Handle, Index: vf}.String()
	op, err := s.start(ctx, pf, name, value, id)
	if err != nil {
		return err
	}
	if vf < 0 || vf >= len(pf.VFs) {
		return refuse(op, id, 0, noVF(pf, vf))
	}
	v := pf.VFs[vf]
	t := s.tellVF(ctx, pf, v, partOf(name))
	o := object{op: op, name: id, has: t.vf(pf, v), ifindex: v.Netdev.Ifindex, told: t}
	return o.set(name, value, func() error {
		if name == nic.VDPA {
			return s.setVDPA(ctx, v, value)
		}
		if pf.Eswitch == nic.Switchdev {
			return s.setFunction(o, portID{pf.Handle, v.Rep.Port}, name, value)
		}
		change, ok := vfChange(name, value, t.vfs[pf.Uplink.Ifindex][vf])
		if !ok {
			return s.setNetdev(o, name, value)
		}
		err := s.links.rtnl.SetVF(pf.Uplink.Ifindex, vf, change)
		if change.Rate == nil || !errors.Is(err, unix.EINVAL) {
			return err
		}
		return errors.Join(s.awaitCarrier(ctx, pf), s.links.rtnl.SetVF(pf.Uplink.Ifindex, vf, change))
	})
}

// awaitCarrier waits for the carrier of an uplink that is up. Making VFs restarts
// igb's link, and until it is there igb refuses each rate as invalid, whatever it is
// (intel/igb/igb_main.c: igb_sriov_reinit, igb_ndo_set_vf_bw).
func (s settings) awaitCarrier(ctx context.Context, pf nic.PF) error {
	return until(ctx, limit(0), func() (string, error) {
		k, err := s.links.Link(ctx, pf.Uplink.Ifindex)
		if err != nil || k.Carrier || !k.Up {
			return "", err
		}
		return fmt.Sprintf("uplink %s has no carrier", k.Name), nil
	})
}

// vfChange makes a VF attribute of a setting that is one. A rate is set together
// with the other.
func vfChange(name nic.Setting, value string, was rtnl.VF) (c rtnl.VFChange, ok bool) {
	on := value == "on"
	n, _ := strconv.Atoi(value)
	switch name {
	case nic.Trust:
		c.Trust = &on
	case nic.SpoofCheck:
		c.SpoofCheck = &on
	case nic.LinkState:
		c.LinkState = value
	case nic.VLAN:
		v, _ := parseVLAN(value)
		c.VLAN = &v
	case nic.MinRate:
		c.Rate = &rtnl.Rate{Min: n, Max: was.MaxRate}
	case nic.MaxRate:
		c.Rate = &rtnl.Rate{Min: was.MinRate, Max: n}
	case nic.NodeGUID:
		g, _ := parseGUID(value)
		c.NodeGUID = &g
	case nic.PortGUID:
		g, _ := parseGUID(value)
		c.PortGUID = &g
	default:
		return c, false
	}
	return c, true
}

func (s settings) SetSF(ctx context.Context, pf nic.PF, num int, name nic.Setting, value string) error {
	id := nic.SFID{PF: pf.Handle, Num: num}.String()
	op, err := s.start(ctx, pf, name, value, id)
	if err != nil {
		return err
	}
	f := pf.SF(num)
	if f == nil {
		return refuse(op, id, unix.ENODEV, fmt.Errorf("there is no such SF: %w", fs.ErrNotExist))
	}
	t := s.tellSF(pf, *f, partOf(name))
	o := object{op: op, name: id, has: t.sf(pf, *f), ifindex: f.Netdev.Ifindex, told: t}
	return o.set(name, value, func() error { return s.setFunction(o, portID{pf.Handle, f.Port}, name, value) })
}

// setFunction sets what the port's function or its rate has, else the netdev.
func (s settings) setFunction(o object, id portID, name nic.Setting, value string) error {
	d := s.eswitches.devlink
	n, _ := strconv.ParseUint(value, 10, 32)
	switch name {
	case nic.RoCE:
		on := value == "on"
		return d.SetPortFunction(id.handle, id.port, devlink.FunctionChange{RoCE: &on})
	case nic.EventQueues:
		queues := uint32(n)
		return d.SetPortFunction(id.handle, id.port, devlink.FunctionChange{MaxIOEQs: &queues})
	case nic.MinRate, nic.MaxRate:
		rate := n * bytesPerMbit
		change := devlink.RateChange{Max: &rate}
		if name == nic.MinRate {
			change = devlink.RateChange{Share: &rate}
		}
		return d.SetRate(id.handle, devlink.RateOf{Port: id.port}, change)
	}
	return s.setNetdev(o, name, value)
}

func (s settings) setNetdev(o object, name nic.Setting, value string) error {
	number, _ := strconv.Atoi(value)
	n := uint32(number)
	switch name {
	case nic.Channels:
		return s.ethtool.SetChannels(o.ifindex, ethtool.ChannelsChange{Combined: &n})
	case nic.RxRing:
		return s.setRings(o, ethtool.RingsChange{RX: &n})
	case nic.TxRing:
		return s.setRings(o, ethtool.RingsChange{TX: &n})
	}
	// A size of IPv6's that becomes IPv4's, too, would be another setting's change.
	is := o.told.links[o.ifindex].Sizes
	var want rtnl.Sizes
	switch name {
	case nic.GSOMax:
		want = rtnl.Sizes{GSO: number, GSOIPv4: is.GSOIPv4}
	case nic.GROMax:
		want = rtnl.Sizes{GRO: number, GROIPv4: is.GROIPv4}
	case nic.GSOMaxIPv4:
		want.GSOIPv4 = number
	case nic.GROMaxIPv4:
		want.GROIPv4 = number
	default:
		return host.ErrNotSupported
	}
	return s.links.rtnl.SetSizes(o.ifindex, want)
}

// setRings looks at what the driver made of a number, which it may round
// (mlx5e_ethtool_set_ringparam: to a power of two), and takes back what is not the
// one that was asked for: the next look would find it wrong, for ever.
func (s settings) setRings(o object, want ethtool.RingsChange) error {
	if err := s.ethtool.SetRings(o.ifindex, want); err != nil {
		return err
	}
	got, err := s.ethtool.RingsOf(o.ifindex)
	if err != nil {
		return err
	}
	was := o.told.rings[o.ifindex]
	if want.RX != nil && got.RX.N != *want.RX {
		return errors.Join(rounded(got.RX.N), s.ethtool.SetRings(o.ifindex, ethtool.RingsChange{RX: &was.RX.N}))
	}
	if want.TX != nil && got.TX.N != *want.TX {
		return errors.Join(rounded(got.TX.N), s.ethtool.SetRings(o.ifindex, ethtool.RingsChange{TX: &was.TX.N}))
	}
	return nil
}

func rounded(n uint32) error {
	return fmt.Errorf("the driver makes %d of it: %w", n, unix.EINVAL)
}

// vqPairs is what is asked of a new vDPA device first; mlx5 takes as many as its VF
// has, and other drivers refuse a number.
const vqPairs = 32

// setVDPA makes, removes or gives the device of a VF, which has its VF's name.
func (s settings) setVDPA(ctx context.Context, v nic.VF, value string) error {
	parent, name := nic.PCI(v.Address), "vdpa:"+v.Address
	devices, err := s.vdpa.Devices(ctx)
	if err != nil {
		return err
	}
	have := ""
	for _, d := range devices {
		if d.Parent == parent {
			have = d.Name
		}
	}
	if value == vdpaNone {
		return s.vdpa.Del(have)
	}
	if have == "" {
		err := s.vdpa.Add(name, parent, vdpa.Config{MAC: v.MAC, MaxVQP: vqPairs})
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			err = s.vdpa.Add(name, parent, vdpa.Config{MAC: v.MAC})
		}
		if err != nil {
			return err
		}
		have = name
	}
	driver := vdpa.Vhost
	if value == vdpaVirtio {
		driver = vdpa.Virtio
	}
	return s.bus.Bind(have, driver)
}
