package host

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// View is one observation that can be followed: it keeps the lists that it was joined
// from. It is not changed any more.
type View struct {
	State nic.State
	lists lists
}

// RDMA is the RDMA devices, not to be written to.
func (v *View) RDMA() []RDMADevice { return v.lists.rdma }

// After is the view after changes: what they name is read again, at a cost that does
// not grow with the number of VFs, and all is joined anew. It is as of Look in whether
// functions, netdevs, representors, SFs and RDMA devices are there and whose they are,
// in drivers, carrier, health and vDPA devices. Other settings, limits, the mode of an
// eswitch without ports of functions, members of bonds, VF-LAG, what the host runs over ports, and the RDMA mode stay as
// they were. sure is false where more may have changed than was read: only Look knows.
func (v *View) After(ctx context.Context, m Machine, changes []Change) (next *View, sure bool, err error) {
	l := v.lists
	l.functions, l.sfs, l.devices = slices.Clone(l.functions), slices.Clone(l.sfs), slices.Clone(l.devices)
	l.ports, l.links, l.bonds = slices.Clone(l.ports), slices.Clone(l.links), slices.Clone(l.bonds)
	f := &following{m: m, lists: l, read: map[Thing]bool{}, sure: true}
	for _, c := range changes {
		if err := f.thing(ctx, c.Of); err != nil {
			return nil, false, err
		}
	}
	next = &View{lists: f.lists, State: newJoin(f.lists).state(f.lists.functions)}
	keep(&next.State, v.State)
	for _, address := range f.vdpa {
		id, vf := next.State.VFAt(address)
		if vf == nil || m.Settings == nil {
			continue
		}
		if err := m.Settings.ReadVF(ctx, next.State.PF(id.PF), id.Index); err != nil {
			return nil, false, err
		}
	}
	return next, f.sure, nil
}

// keep takes over what no list has.
func keep(to *nic.State, from nic.State) {
	to.RDMA = from.RDMA
	for i := range to.PFs {
		p := &to.PFs[i]
		old := from.PF(p.Handle)
		if old == nil {
			continue
		}
		p.Settings, p.Limits = old.Settings, old.Limits
		for j := range min(len(p.VFs), len(old.VFs)) {
			v, o := &p.VFs[j], &old.VFs[j]
			v.Settings, v.Limits, v.VDPA = o.Settings, o.Limits, o.VDPA
		}
		for j := range p.SFs {
			if o := old.SF(p.SFs[j].Num); o != nil {
				p.SFs[j].Settings, p.SFs[j].Limits = o.Settings, o.Limits
			}
		}
	}
}

// following is lists that are brought up to date.
type following struct {
	m Machine
	lists
	read map[Thing]bool
	vdpa []string // functions whose vDPA device has changed
	sure bool
}

func (f *following) thing(ctx context.Context, t Thing) (err error) {
	if f.read[t] {
		return nil
	}
	f.read[t] = true
	switch t.Kind {
	case OfInterface:
		return f.link(ctx, t.Ifindex)
	case OfFunction:
		return f.function(ctx, t.Function)
	case OfPart:
		return f.part(ctx, t.Function)
	case OfPort:
		return f.port(ctx, t.Handle, t.Port)
	case OfDevlink:
		if f.isPF(t.Handle.Name) {
			f.sure = false // with its mode
		}
		// Another's reporters, all that is of interest, are told of when they fail.
		f.devices = slices.DeleteFunc(f.devices, func(d DevlinkDevice) bool { return d.Handle == t.Handle && !f.isPF(t.Handle.Name) })
	case OfHealth:
		f.devices, err = f.m.Devlink.Devices(ctx)
	case OfSFs:
		f.sfs, err = f.m.PCI.SFs(ctx)
	case OfRDMA:
		if f.m.RDMA != nil {
			f.rdma, err = f.m.RDMA.Devices(ctx)
		}
		f.sure = f.sure && len(f.bonds) == 0 // VF-LAG has one for two ports
	case OfVDPA:
		f.vdpa = append(f.vdpa, t.Function)
	case OfFiles, OfUses:
	default:
		f.sure = false
	}
	return err
}

// link: the function that an interface is of says whether it has one elsewhere.
func (f *following) link(ctx context.Context, ifindex int) error {
	i := slices.IndexFunc(f.links, func(l Link) bool { return l.Ifindex == ifindex })
	var old Link
	if i >= 0 {
		old = f.links[i]
	}
	now, err := f.m.Links.Link(ctx, ifindex)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if i >= 0 {
			f.links = slices.Delete(f.links, i, i+1)
		}
	case err != nil:
		return err
	default:
		if now.VFMACs == nil {
			now.VFMACs = old.VFMACs
		}
		if i < 0 {
			f.links = append(f.links, now)
		} else {
			f.links[i] = now
		}
	}
	f.bonded(old, now)
	for _, l := range []Link{old, now} {
		if err := f.part(ctx, l.Parent); err != nil {
			return err
		}
	}
	return nil
}

// bonded sees to bonds. Which they are and who is in them only Look knows.
func (f *following) bonded(old, now Link) {
	if i := slices.IndexFunc(f.bonds, func(b Bond) bool { return b.Ifindex == old.Ifindex }); old.Ifindex != 0 && i >= 0 {
		f.bonds[i].Link = now
		f.sure = f.sure && now.Exists()
		return
	}
	isBond := func(ifindex int) bool {
		return slices.ContainsFunc(f.links, func(l Link) bool { return l.Ifindex == ifindex && l.Kind == kindBond })
	}
	if now.Kind == kindBond || old.Master != now.Master && (isBond(old.Master) || isBond(now.Master)) {
		f.sure = false
	}
}

// kindBond is drivers/net/bonding/bond_netlink.c's.
const kindBond = "bond"

// part is a VF of which something has come or gone. Of a PF all that is of interest
// has lists of its own.
func (f *following) part(ctx context.Context, address string) error {
	i := f.at(address)
	if i < 0 || f.functions[i].PF == "" {
		return nil
	}
	return f.thing(ctx, Thing{Kind: OfFunction, Function: address})
}

func (f *following) at(address string) int {
	return slices.IndexFunc(f.functions, func(o Function) bool { return o.Address == address })
}

func (f *following) isPF(address string) bool {
	i := f.at(address)
	return i >= 0 && f.functions[i].PF == ""
}

// function reads a function, and with a VF that comes or goes its PF, which counts it.
func (f *following) function(ctx context.Context, address string) error {
	i := f.at(address)
	now, err := f.m.PCI.Function(ctx, address)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if i < 0 || f.functions[i].PF == "" {
			f.sure = false
			return nil
		}
		pf := f.functions[i].PF
		f.functions = slices.Delete(f.functions, i, i+1)
		return f.thing(ctx, Thing{Kind: OfFunction, Function: pf})
	case err != nil:
		return err
	case i >= 0:
		f.functions[i] = now
	case f.isPF(now.PF):
		f.functions = append(f.functions, now)
		return f.thing(ctx, Thing{Kind: OfFunction, Function: now.PF})
	default:
		f.sure = false
	}
	return nil
}

// port: of others than PFs no ports are looked at. Those of VFs come and go with the
// mode, which nothing else tells of.
func (f *following) port(ctx context.Context, h nic.Handle, index uint32) error {
	if !f.isPF(h.Name) {
		return nil
	}
	i := slices.IndexFunc(f.ports, func(p DevlinkPort) bool { return p.Handle == h && p.Index == index })
	now, err := f.m.Devlink.Port(ctx, h, index)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if i >= 0 {
			f.sure = false
			f.ports = slices.Delete(f.ports, i, i+1)
		}
	case err != nil:
		return err
	case i >= 0:
		f.ports[i] = now
	default:
		f.sure = f.sure && now.Flavour == FlavourPCISF
		f.ports = append(f.ports, now)
	}
	return nil
}
