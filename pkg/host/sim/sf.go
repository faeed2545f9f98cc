package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// SFs: mlx5/core/sf/devlink.c. Firmware and driver are quick: an SF that is active is
// attached.

func (p *pf) sf(num int) *sf {
	for _, o := range p.SFs {
		if o.Num == num {
			return o
		}
	}
	return nil
}

// sfDevice is the name of its auxiliary device.
func (s *Sim) sfDevice(o *sf) string { return fmt.Sprintf("mlx5_core.sf.%d", o.Device) }

func (s *Sim) addSF(f, num int) {
	p := s.st.PFs[f]
	o := &sf{Num: num}
	for slices.ContainsFunc(p.SFs, func(other *sf) bool { return other.Slot == o.Slot }) {
		o.Slot++
	}
	p.SFs = append(p.SFs, o)
	s.addLink(&link{Role: sfRep, PF: f, VF: -1, SF: num, MAC: s.randomMAC()})
}

// activateSF gives it a device, with the lowest number that is free on the machine
// (PFs' devices have the first ones), and lets the driver bind.
func (s *Sim) activateSF(f int, o *sf) {
	taken := map[int]bool{}
	for _, p := range s.st.PFs {
		for _, other := range p.SFs {
			taken[other.Device] = other.Active
		}
	}
	o.Active, o.Device = true, len(s.st.PFs)
	for taken[o.Device] {
		o.Device++
	}
	mac := o.MAC
	if !mac.IsUnicast() {
		mac = s.randomMAC()
	}
	s.addLink(&link{Role: sfNetdev, PF: f, VF: -1, SF: o.Num, MAC: mac})
	s.addRDMA(sfID(f, o.Num))
}

func (s *Sim) deactivateSF(f int, o *sf) {
	o.Active, o.Device = false, 0
	s.drop(func(l *link) bool { return l.Role == sfNetdev && l.id() == sfID(f, o.Num) })
	s.dropRDMA(sfID(f, o.Num))
}

// dropSF takes it away in whatever state it is (mlx5_sf_dealloc).
func (s *Sim) dropSF(f int, o *sf) {
	s.deactivateSF(f, o)
	s.drop(func(l *link) bool { return l.id() == sfID(f, o.Num) })
	p := s.st.PFs[f]
	p.SFs = slices.DeleteFunc(p.SFs, func(other *sf) bool { return other == o })
}

func (s pci) SFs(ctx context.Context) ([]host.SFDevice, error) {
	var out []host.SFDevice
	err := s.read(ctx, "list SF devices", func() error {
		out = s.sfDevices()
		return nil
	})
	return out, err
}

func (s *Sim) sfDevices() (out []host.SFDevice) {
	away := s.away()
	for i, p := range s.st.PFs {
		for _, o := range p.SFs {
			if o.Active {
				out = append(out, host.SFDevice{
					Name: s.sfDevice(o), PF: p.Address, Num: o.Num, Driver: "mlx5_core.sf", Away: away[sfID(i, o.Num)],
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b host.SFDevice) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (s devlink) AddSF(ctx context.Context, h nic.Handle, num int) error {
	op := Op{Verb: AddSF, Arg: strconv.Itoa(num), Object: h.String()}
	return s.set(ctx, op, func() (func(), error) {
		f, v, err := s.instance(h)
		if err != nil {
			return nil, err
		}
		p, card := s.st.PFs[f], s.profile(f)
		switch {
		case v >= 0 || card.maxSFs == 0 || p.MaxSFs == 0: // mlx5_devlink_sf_port_new
			return nil, refuse(syscall.EOPNOTSUPP, cmp.Or(card.noSFs, card.driver+": SF ports are not supported."))
		case p.Mode != nic.Switchdev:
			return nil, refuse(syscall.EOPNOTSUPP, card.driver+": SF ports are only supported in eswitch switchdev mode.")
		case num < 0:
			return nil, refuse(syscall.EINVAL, "")
		case p.sf(num) != nil: // mlx5_sf_alloc
			return nil, refuse(syscall.EEXIST, card.driver+": SF already exist. Choose different sfnum")
		case len(p.SFs) >= p.MaxSFs:
			return nil, refuse(syscall.ENOSPC, "") // mlx5_sf_hw_table_id_alloc
		}
		return func() { s.addSF(f, num) }, nil
	}, s.ofPF(h.Name))
}

// sfAt runs plan with the SF that a port is of.
func (s devlink) sfAt(ctx context.Context, verb Verb, arg string, h nic.Handle, port uint32, plan func(f int, o *sf) (func(), error)) error {
	op := Op{Verb: verb, Arg: arg, Object: fmt.Sprintf("%s/%d", h, port)}
	return s.set(ctx, op, func() (func(), error) {
		f, v, err := s.instance(h)
		if err != nil {
			return nil, err
		}
		if v < 0 {
			for _, o := range s.st.PFs[f].SFs {
				if port == sfPort(s.st.PFs[f].Port, o.Slot) {
					return plan(f, o)
				}
			}
		}
		for _, p := range s.ports() {
			if p.Handle == h && p.Index == port {
				return nil, refuse(syscall.EOPNOTSUPP, "Port doesn't support function attributes")
			}
		}
		return nil, refuse(syscall.ENODEV, "")
	}, s.ofPF(h.Name))
}

func (s devlink) DelSF(ctx context.Context, h nic.Handle, port uint32) error {
	return s.sfAt(ctx, DelSF, "", h, port, func(f int, o *sf) (func(), error) {
		return func() { s.dropSF(f, o) }, nil
	})
}

func (s devlink) SetSFActive(ctx context.Context, h nic.Handle, port uint32, active bool) error {
	arg := "inactive"
	if active {
		arg = "active"
	}
	return s.sfAt(ctx, SetSFActive, arg, h, port, func(f int, o *sf) (func(), error) {
		switch {
		case o.Active == active:
			return nil, nil
		case active:
			return func() { s.activateSF(f, o) }, nil
		}
		return func() { s.deactivateSF(f, o) }, nil
	})
}

// sfNamed finds the SF that an auxiliary device is of.
func (s *Sim) sfNamed(device string) (f int, o *sf, ok bool) {
	if !strings.HasPrefix(device, "mlx5_core.sf.") {
		return 0, nil, false
	}
	for i, p := range s.st.PFs {
		for _, o := range p.SFs {
			if o.Active && s.sfDevice(o) == device {
				return i, o, true
			}
		}
	}
	return 0, nil, false
}
