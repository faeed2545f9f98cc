package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Check compares an attachment with what ADD made and prevResult says. All that
// is wrong with it is told at once; nothing is changed.
func (p *Plugin) Check(ctx context.Context, args *skel.CmdArgs) error {
	return report(p.check(ctx, args))
}

func (p *Plugin) check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseConfig(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	if err := p.checkOne(ctx, c, args); err != nil {
		return err
	}
	return p.checkFurther(ctx, c, args)
}

// checkOne is Check of one interface.
func (p *Plugin) checkOne(ctx context.Context, c Config, args *skel.CmdArgs) error {
	made, err := madeOf(c, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limits.Run)
	defer cancel()

	store := record.In(c.StateDir)
	r, err := recorded(store, c, args)
	if err != nil {
		return err
	}
	j := p.resume(ctx, store, r, args)
	defer j.close()
	if j.pod == nil && !r.Userspace {
		return coded(ErrDamage, "%s: network namespace %s is not there any more", record.Name(r.VF), r.Netns)
	}
	// What is to be read of addresses and routes hangs on there being some.
	j.state.Lease = &made.Addressing
	if !r.Userspace {
		if err := j.tune(ctx, c); err != nil {
			return err
		}
	}
	state, err := j.read(ctx)
	if err != nil {
		return err
	}
	if r.OfRep {
		j.want.MAC, j.want.MTU = c.MAC, c.MTU
	} else {
		j.seek(c, j.pf.Eswitch, made.mac)
	}
	bad := damage(made, j.want, state)
	if !r.Pair {
		if why := j.fileDamage(made); why != "" {
			bad = append(bad, why)
		}
	}
	if len(bad) > 0 {
		return coded(ErrDamage, "%s of %s: %s", record.Name(r.VF), r.Holder(), strings.Join(bad, "; "))
	}
	if c.IPAM == "" {
		return nil
	}
	// The IPAM plugin is to see prevResult.
	j.call.Config, j.call.Args = c.Raw, c.Args
	return p.IPAM.Check(ctx, j.call)
}

// recorded is the record of the container's interface, found by whose it is: the
// order in which devices are named is no mapping.
func recorded(store record.Store, c Config, args *skel.CmdArgs) (*record.Record, error) {
	bad := func(vf, format string, a ...any) (*record.Record, error) {
		return nil, coded(ErrDamage, "%s is not attached to container %s (%s): "+format, append([]any{vf, args.ContainerID, args.IfName}, a...)...)
	}
	if c.VF != "" {
		r, err := store.Load(c.key())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return bad(record.Name(c.VF), "there is no record of it")
		case err != nil:
			return nil, err
		case !r.IsOf(args.ContainerID, args.IfName):
			return bad(record.Name(c.VF), "it is held by %s", r.Holder())
		case !r.Attached():
			return bad(record.Name(c.VF), "its record says %s", r.Progress())
		}
		return r, nil
	}
	mine, err := store.Find(args.ContainerID, args.IfName)
	switch {
	case err != nil:
		return nil, err
	case len(mine) == 0:
		return bad("a VF", "there is no record of one")
	case !mine[0].Attached():
		return bad(record.Name(mine[0].VF), "its record says %s", mine[0].Progress())
	}
	return mine[0], nil
}

// made is what the result of ADD says about the pod's interface.
type made struct {
	name string
	mac  nic.MAC
	mtu  int // 0: not said (before 1.1)
	Addressing
}

// madeOf finds the pod's interface in prevResult. Routes there belong to no
// interface in particular, so they are looked at only when no other interface
// has addresses.
func madeOf(c Config, args *skel.CmdArgs) (_ *made, err error) {
	bad := func(format string, a ...any) (*made, error) {
		return nil, coded(types.ErrInvalidNetworkConfig, "network configuration %q: prevResult "+format, append([]any{c.Name}, a...)...)
	}
	if c.Prev == nil {
		return bad("is missing: want the result of ADD")
	}
	i := slices.IndexFunc(c.Prev.Interfaces, func(f *current.Interface) bool {
		return f.Name == args.IfName && f.Sandbox == args.Netns
	})
	if i < 0 {
		return bad("has no interface %s in %s: want the result of ADD", args.IfName, args.Netns)
	}
	f := c.Prev.Interfaces[i]
	var mac nic.MAC // of what a program drives it may be the program's
	if f.Mac != "" {
		if mac, err = nic.ParseMAC(f.Mac); err != nil {
			return bad("interface %s: %w", f.Name, err)
		}
	}
	m := &made{name: f.Name, mac: mac, mtu: f.Mtu}
	if c.MTU != 0 {
		m.mtu = c.MTU
	}
	mine := &current.Result{}
	for _, ip := range c.Prev.IPs {
		if ip.Interface != nil && *ip.Interface == i {
			mine.IPs = append(mine.IPs, ip)
		}
	}
	if len(mine.IPs) == 0 {
		return m, nil
	}
	if len(mine.IPs) == len(c.Prev.IPs) {
		mine.Routes = c.Prev.Routes
	}
	a, err := addressing(c.IPAM, mine)
	if err != nil {
		return nil, err
	}
	m.Addresses, m.Routes = a.Addresses, a.Routes
	return m, nil
}

// damage lists how an attachment differs from what was made.
func damage(m *made, w Want, s State) []string {
	var bad []string
	say := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	if w.Userspace {
		if s.HasAdminMAC && s.AdminMAC != m.mac {
			say("its administrative MAC is %s, want %s", s.AdminMAC, m.mac)
		}
	} else if s.Place != InPod {
		say("its netdev is not in the pod's network namespace")
	} else {
		if s.VF.Name != m.name {
			say("%s: its name is to be %s", s.vf(), m.name)
		}
		if s.VF.MAC != m.mac {
			say("%s: its MAC is %s, want %s", s.vf(), s.VF.MAC, m.mac)
		}
		if m.mtu != 0 && s.VF.MTU != m.mtu {
			say("%s: its MTU is %d, want %d", s.vf(), s.VF.MTU, m.mtu)
		}
		if !s.VF.Up {
			say("%s is down", s.vf())
		}
		for _, name := range slices.Sorted(maps.Keys(w.Sysctls)) {
			if have := s.Sysctls[name]; have != w.Sysctls[name] {
				say("%s: its %s is %s, want %s", s.vf(), name, have, w.Sysctls[name])
			}
		}
		for _, a := range m.Addresses {
			if !slices.Contains(s.Addresses, a) {
				say("%s lacks address %s", s.vf(), a)
			}
		}
		for _, r := range m.Routes {
			if !slices.ContainsFunc(s.Routes, func(have host.Route) bool { return sameRoute(have, r) }) {
				say("%s lacks route %s", s.vf(), r.Dst)
			}
		}
	}
	if name := firstLacking(w.RDMA, s.RDMA); name != "" {
		say("its RDMA device %s is not in the pod's network namespace", name)
	}
	if !w.Userspace && s.HasAdminMAC && !w.MAC.IsZero() && s.AdminMAC != m.mac {
		say("its administrative MAC is %s, want %s", s.AdminMAC, m.mac)
	}
	for _, name := range w.Settings.Names() {
		if have, ok := s.Settings[name]; ok && have != w.Settings[name] {
			say("its %s is %s, want %s", name, have, w.Settings[name])
		}
	}
	if w.GUID != "" && s.GUID != "" && s.GUID != w.GUID {
		say("its GUID in effect is %s, want %s", s.GUID, w.GUID)
	}
	if !w.plugged() {
		return bad
	}
	if !s.Rep.Exists() {
		say("its representor is gone")
	} else if !s.Rep.Up {
		say("%s is down", s.rep())
	}
	if s.Rep.Exists() && m.mtu != 0 && s.Rep.MTU != m.mtu && w.MTU != 0 {
		say("%s: its MTU is %d, want %d", s.rep(), s.Rep.MTU, m.mtu)
	}
	want := w.port(&m.Addressing)
	if s.Port == nil {
		say("representor %s is not plugged into bridge %s for it", want.Representor, want.Bridge)
		return bad
	}
	if s.Port.Bridge != want.Bridge || s.Port.VLAN != want.VLAN {
		say("representor %s is in bridge %s vlan %d, want bridge %s vlan %d",
			want.Representor, s.Port.Bridge, s.Port.VLAN, want.Bridge, want.VLAN)
	}
	if !slices.Equal(s.Port.Trunk, want.Trunk) {
		say("representor %s: its trunk has the VLANs %q, want %q", want.Representor, offload.Ranges(s.Port.Trunk), offload.Ranges(want.Trunk))
	}
	for _, k := range slices.Sorted(maps.Keys(want.ExternalIDs)) {
		if have := s.Port.ExternalIDs[k]; have != want.ExternalIDs[k] {
			say("representor %s: its external id %s is %q, want %q", want.Representor, k, have, want.ExternalIDs[k])
		}
	}
	return bad
}
