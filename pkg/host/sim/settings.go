package sim

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"sluice.dev/sluice/pkg/nic"
)

type settings struct{ hand }

// target is a function whose settings are read or set, with what they hang on.
type target struct {
	id     functionID
	pf     *pf
	card   *profile
	vf     *vf   // of a VF
	sf     *sf   // of an SF
	netdev *link // its own, in the host's namespace; nil none
	uplink *link // its PF's own there, by which VF attributes are set; nil none
}

// queues are the kind of netdev that the function has.
func (t target) queues() queues {
	switch {
	case t.vf != nil:
		return t.card.vfNet
	case t.sf != nil:
		return t.card.sfNet
	}
	return t.card.pfNet
}

// netdevs are the functions' own in the host's namespace.
func (s *Sim) netdevs() map[functionID]*link {
	out := map[functionID]*link{}
	for _, l := range s.st.Links {
		if l.PF >= 0 && !l.isRep() && l.Netns == hostNS && s.there(l) {
			out[l.id()] = l
		}
	}
	return out
}

// target finds a function; ok is false when there is none.
func (s *Sim) target(id functionID, netdevs map[functionID]*link) (t target, ok bool) {
	if id.pf < 0 || id.pf >= len(s.st.PFs) {
		return t, false
	}
	t = target{
		id: id, pf: s.st.PFs[id.pf], card: s.profile(id.pf), netdev: netdevs[id], uplink: netdevs[pfID(id.pf)],
	}
	switch {
	case id.vf >= len(t.pf.VFs), id.vf < -1:
		return t, false
	case id.vf >= 0:
		t.vf = t.pf.VFs[id.vf]
	case id.sf >= 0:
		t.sf = t.pf.sf(id.sf)
		return t, t.sf != nil
	}
	return t, true
}

// byHandle finds PF number f of a handle; -1 if there is none.
func (s *Sim) byHandle(h nic.Handle) int {
	for f, p := range s.st.PFs {
		if h == nic.PCI(p.Address) {
			return f
		}
	}
	return -1
}

func (s settings) Read(ctx context.Context, st *nic.State) error {
	return s.read(ctx, "read settings", func() error {
		all, netdevs := s.knobs(), s.netdevs()
		at := map[nic.Handle]int{}
		for f, p := range s.st.PFs {
			at[nic.PCI(p.Address)] = f
		}
		for i := range st.PFs {
			p := &st.PFs[i]
			f, ok := at[p.Handle]
			if !ok {
				continue
			}
			fill := func(id functionID) (nic.Settings, nic.Limits) {
				if t, ok := s.target(id, netdevs); ok {
					return s.look(t, all)
				}
				return nil, nil
			}
			p.Settings, p.Limits = fill(pfID(f))
			for j := range p.VFs {
				v := &p.VFs[j]
				v.Settings, v.Limits = fill(vfID(f, v.Index))
				v.VDPA = vdpaDevice(f, *v)
			}
			for j := range p.SFs {
				p.SFs[j].Settings, p.SFs[j].Limits = fill(sfID(f, p.SFs[j].Num))
			}
		}
		return nil
	})
}

func (s settings) ReadVF(ctx context.Context, p *nic.PF, v int) error {
	op := Op{Verb: "read settings", Object: nic.VFID{PF: p.Handle, Index: v}.String()}
	return s.read(ctx, string(op.Verb), func() error {
		t, ok := s.target(vfID(s.byHandle(p.Handle), v), s.netdevs())
		if !ok || t.vf == nil || v >= len(p.VFs) {
			return op.fail(syscall.ENODEV)
		}
		p.VFs[v].Settings, p.VFs[v].Limits = s.look(t, s.knobs())
		p.VFs[v].VDPA = vdpaDevice(s.byHandle(p.Handle), p.VFs[v])
		return nil
	})
}

func (s settings) ReadSF(ctx context.Context, p *nic.PF, num int) error {
	op := Op{Verb: "read settings", Object: nic.SFID{PF: p.Handle, Num: num}.String()}
	return s.read(ctx, string(op.Verb), func() error {
		t, ok := s.target(sfID(s.byHandle(p.Handle), num), s.netdevs())
		f := p.SF(num)
		if !ok || f == nil {
			return op.fail(syscall.ENODEV)
		}
		f.Settings, f.Limits = s.look(t, s.knobs())
		return nil
	})
}

// vdpaDevice is the device that the setting tells of.
func vdpaDevice(f int, v nic.VF) nic.VDPADevice {
	name := "vdpa:" + v.Address
	switch v.Settings[nic.VDPA] {
	case "vhost":
		return nic.VDPADevice{Name: name, File: "/dev/vhost-vdpa-" + strconv.Itoa(f*maxVFsOfAny+v.Index)}
	case "virtio":
		return nic.VDPADevice{Name: name}
	}
	return nic.VDPADevice{}
}

// knobs is the table, made once.
func (s *Sim) knobs() []knob {
	if s.table == nil {
		s.table = knobs()
	}
	return s.table
}

// look reads what a function offers.
func (s *Sim) look(t target, all []knob) (nic.Settings, nic.Limits) {
	set, limits := nic.Settings{}, nic.Limits{}
	if s.st.Plain {
		return nil, nil
	}
	for _, k := range all {
		if k.has(t) {
			set[k.name] = k.get(t)
			if k.most != nil {
				limits[k.name] = k.most(t)
			}
		}
	}
	if len(set) == 0 {
		set = nil
	}
	if len(limits) == 0 {
		limits = nil
	}
	return set, limits
}

func (s settings) SetPF(ctx context.Context, p nic.PF, name nic.Setting, value string) error {
	return s.turn(ctx, p, p.Handle.String(), -1, -1, name, value)
}

func (s settings) SetVF(ctx context.Context, p nic.PF, v int, name nic.Setting, value string) error {
	return s.turn(ctx, p, nic.VFID{PF: p.Handle, Index: v}.String(), v, -1, name, value)
}

func (s settings) SetSF(ctx context.Context, p nic.PF, num int, name nic.Setting, value string) error {
	return s.turn(ctx, p, nic.SFID{PF: p.Handle, Num: num}.String(), -1, num, name, value)
}

// turn sets one setting of one function.
func (s settings) turn(ctx context.Context, p nic.PF, object string, v, num int, name nic.Setting, value string) error {
	op := Op{Verb: SetOf(name), Arg: value, Object: object}
	id := functionID{-1, v, num}
	return s.set(ctx, op, func() (func(), error) {
		id.pf = s.byHandle(p.Handle)
		t, ok := s.target(id, s.netdevs())
		if !ok {
			return nil, refuse(syscall.ENODEV, "")
		}
		for _, k := range s.knobs() {
			if k.name != name || s.st.Plain || !k.has(t) {
				continue
			}
			if !k.takes(value) {
				return nil, refuse(syscall.EINVAL, fmt.Sprintf("%q: want %s", value, k.form))
			}
			if k.get(t) == value {
				return nil, nil
			}
			return k.set(s.Sim, t, value)
		}
		return nil, refuse(syscall.EOPNOTSUPP, "")
	}, func(l *link) bool { return name == nic.RoCE && l.Role == uplink && l.id() == id })
}
