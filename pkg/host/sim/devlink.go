package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"syscall"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

type devlink struct{ hand }

func (s devlink) Devices(ctx context.Context) ([]host.DevlinkDevice, error) {
	var out []host.DevlinkDevice
	err := s.read(ctx, "list devlink devices", func() error {
		for i, p := range s.st.PFs {
			card := s.profile(i)
			if !card.devlink || !s.driven(i) {
				continue
			}
			d := host.DevlinkDevice{
				Handle: nic.PCI(p.Address), Eswitch: p.Mode, Driver: p.Driver,
			}
			if p.Mode != "" {
				d.Inline, d.MaxSFs = card.inline, p.MaxSFs
				if card.encap != "" {
					d.Encap = lookUp(p.Set, nic.EncapMode, card.encap)
				}
			}
			if card.devlinkInfo {
				d.Serial = p.Serial
			}
			out = append(out, d)
			for j, v := range p.VFs {
				if card.vfDevlink && v.Driver == card.vfDriver {
					out = append(out, host.DevlinkDevice{Handle: nic.PCI(s.vfAddress(i, j)), Driver: v.Driver})
				}
			}
			for _, o := range p.SFs {
				if o.Active {
					out = append(out, host.DevlinkDevice{Handle: s.sfHandle(o), Driver: "mlx5_core.sf"})
				}
			}
		}
		slices.SortFunc(out, func(a, b host.DevlinkDevice) int { return a.Handle.Compare(b.Handle) })
		return nil
	})
	return out, err
}

func (s *Sim) sfHandle(o *sf) nic.Handle { return nic.Handle{Bus: "auxiliary", Name: s.sfDevice(o)} }

// flavourVirtual is the port of a VF's or SF's own instance.
const flavourVirtual host.Flavour = "virtual"

func (s devlink) Ports(ctx context.Context) ([]host.DevlinkPort, error) {
	var out []host.DevlinkPort
	err := s.read(ctx, "list devlink ports", func() error {
		out = s.ports()
		return nil
	})
	return out, err
}

func (s devlink) Port(ctx context.Context, h nic.Handle, index uint32) (host.DevlinkPort, error) {
	var out host.DevlinkPort
	err := s.read(ctx, "read devlink port", func() error {
		for _, p := range s.ports() {
			if p.Handle == h && p.Index == index {
				out = p
				return nil
			}
		}
		return Op{Verb: "read devlink port", Object: fmt.Sprintf("%s/%d", h, index)}.fail(syscall.ENODEV)
	})
	return out, err
}

func (s *Sim) ports() []host.DevlinkPort {
	own, reps := map[functionID]*link{}, map[functionID]*link{}
	for _, l := range s.st.Links {
		// A port's netdev is told only to the namespace that it is in
		// (devlink_nl_port_fill).
		if l.Netns != hostNS || !s.there(l) {
			continue
		}
		if l.Role == representor || l.Role == sfRep {
			reps[l.id()] = l
		} else {
			own[l.id()] = l
		}
	}
	var out []host.DevlinkPort
	add := func(p host.DevlinkPort, l *link) {
		if l != nil {
			p.Ifindex, p.Netdev = l.Ifindex, l.Name
		}
		out = append(out, p)
	}
	for i, p := range s.st.PFs {
		card := s.profile(i)
		if !card.devlink || !s.driven(i) {
			continue
		}
		h := nic.PCI(p.Address)
		if p.InfiniBand {
			continue // only the Ethernet driver has ports
		}
		add(host.DevlinkPort{
			Handle: h, Index: card.uplinkPort(p.Port), Flavour: host.FlavourPhysical, PF: -1, VF: -1, SF: -1,
		}, own[pfID(i)])
		for j, v := range p.VFs {
			if p.Mode == nic.Switchdev {
				port := host.DevlinkPort{
					Handle: h, Index: card.vfPort(p.Port, j), Flavour: host.FlavourPCIVF, PF: p.Port, VF: j, SF: -1, HasMAC: card.portMAC,
				}
				if card.portMAC {
					port.MAC = v.MAC
				}
				add(port, reps[vfID(i, j)])
			}
			if card.vfDevlink && v.Driver == card.vfDriver {
				add(host.DevlinkPort{
					Handle: nic.PCI(s.vfAddress(i, j)), Index: card.vfPort(p.Port, j) << 16, Flavour: flavourVirtual, PF: -1, VF: -1, SF: -1,
				}, own[vfID(i, j)])
			}
		}
		for _, o := range p.SFs {
			add(host.DevlinkPort{
				Handle: h, Index: sfPort(p.Port, o.Slot), Flavour: host.FlavourPCISF, PF: p.Port, VF: -1, SF: o.Num,
				Active: o.Active, Attached: o.Active, HasMAC: true, MAC: o.MAC,
			}, reps[sfID(i, o.Num)])
			if o.Active {
				add(host.DevlinkPort{
					Handle: s.sfHandle(o), Index: sfPort(p.Port, o.Slot) << 16, Flavour: flavourVirtual, PF: -1, VF: -1, SF: -1,
				}, own[sfID(i, o.Num)])
			}
		}
	}
	slices.SortFunc(out, func(a, b host.DevlinkPort) int {
		return cmp.Or(a.Handle.Compare(b.Handle), cmp.Compare(a.Index, b.Index))
	})
	return out
}

// instance finds the PF that a devlink handle names; vf >= 0 is a VF's own
// instance.
func (s *Sim) instance(h nic.Handle) (f, v int, err error) {
	if h.Bus == "pci" {
		f, v, ok := s.find(h.Name)
		if ok && s.profile(f).devlink && s.driven(f) &&
			(v < 0 || s.profile(f).vfDevlink && s.st.PFs[f].VFs[v].Driver == s.profile(f).vfDriver) {
			return f, v, nil
		}
	}
	if f, _, ok := s.sfNamed(h.Name); ok && h.Bus == "auxiliary" {
		return f, notPF, nil
	}
	return 0, 0, refuse(syscall.ENODEV, "")
}

// notPF stands for an SF where instance answers with a VF: what is asked of a PF is
// not for it.
const notPF = 1 << 20

func (s devlink) SetEswitch(ctx context.Context, h nic.Handle, m nic.Eswitch) error {
	op := Op{Verb: SetEswitch, Arg: string(m), Object: h.String()}
	return s.set(ctx, op, func() (func(), error) {
		f, v, err := s.instance(h)
		if err != nil {
			return nil, err
		}
		p, card := s.st.PFs[f], s.profile(f)
		switch {
		case v >= 0:
			return nil, refuse(syscall.EPERM, "") // mlx5_eswitch_check: not the eswitch manager
		case p.Mode == "": // mlx5_eswitch_check: InfiniBand
			return nil, refuse(syscall.EOPNOTSUPP, "")
		case m != nic.Legacy && m != nic.Switchdev:
			return nil, refuse(syscall.EINVAL, "")
		case p.Mode == m:
			return nil, nil
		case !card.modeWithVFs && len(p.VFs) > 0: // ice_eswitch_mode_set
			return nil, refuse(syscall.EOPNOTSUPP, card.driver+": Changing eswitch mode is allowed only if there is no VFs created")
		case card.modeAfterVFs && m == nic.Switchdev && len(p.VFs) == 0: // bnxt_vfr.c of Linux 6.1, bnxt_dl_eswitch_mode_set
			return nil, refuse(syscall.EPERM, card.driver+": Enable VFs before setting switchdev mode")
		case m == nic.Switchdev && card.name == "mlx5" && s.uplinkAway(f):
			return nil, refuse(syscall.EINVAL, "mlx5_core: Can't change E-Switch mode to switchdev when netdev net namespace has diverged from the devlink's.")
		}
		return func() { s.setMode(f, m) }, nil
	}, s.ofPF(h.Name))
}

func (s *Sim) uplinkAway(f int) bool {
	return slices.ContainsFunc(s.st.Links, func(l *link) bool {
		return l.Role == uplink && l.PF == f && l.Netns != hostNS
	})
}

func (s devlink) SetPortMAC(ctx context.Context, h nic.Handle, port uint32, mac nic.MAC) error {
	op := Op{Verb: SetPortMAC, Arg: mac.String(), Object: fmt.Sprintf("%s/%d", h, port)}
	return s.set(ctx, op, func() (func(), error) {
		f, v, err := s.instance(h)
		if err != nil {
			return nil, err
		}
		p, card := s.st.PFs[f], s.profile(f)
		const unsupported = "Port doesn't support function attributes"
		if v >= 0 { // its only port is the virtual one
			for _, o := range s.ports() {
				if o.Handle == h && o.Index == port {
					return nil, refuse(syscall.EOPNOTSUPP, unsupported)
				}
			}
			return nil, refuse(syscall.ENODEV, "")
		}
		if port == card.uplinkPort(p.Port) {
			return nil, refuse(syscall.EOPNOTSUPP, unsupported)
		}
		for j, v := range p.VFs {
			if p.Mode != nic.Switchdev || port != card.vfPort(p.Port, j) {
				continue
			}
			switch {
			case !card.portMAC:
				return nil, refuse(syscall.EOPNOTSUPP, unsupported)
			case mac[0]&1 != 0:
				return nil, refuse(syscall.EINVAL, "Non-unicast hardware address unsupported")
			case v.MAC == mac:
				return nil, nil
			}
			return func() { v.MAC = mac }, nil
		}
		for _, o := range p.SFs {
			switch {
			case port != sfPort(p.Port, o.Slot):
				continue
			case mac[0]&1 != 0:
				return nil, refuse(syscall.EINVAL, "Non-unicast hardware address unsupported")
			case o.MAC == mac:
				return nil, nil
			}
			return func() { o.MAC = mac }, nil
		}
		return nil, refuse(syscall.ENODEV, "")
	}, nil)
}
