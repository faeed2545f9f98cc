package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// This file is what drivers do when they bind, change the mode, and let go.

func (s *Sim) profile(f int) *profile {
	p := s.st.PFs[f]
	if p.card == nil {
		card, _ := profileNamed(p.Profile)
		p.card = &card
	}
	return p.card
}

// driven says whether PF f has its network driver.
func (s *Sim) driven(f int) bool { return s.st.PFs[f].Driver == s.profile(f).driver }

func (s *Sim) vfAddress(f, v int) string {
	p := s.st.PFs[f]
	if p.VFs[v].address == "" {
		p.VFs[v].address = s.profile(f).vfAddress(p.Address, p.Port, p.Ports, p.TotalVFs, v)
	}
	return p.VFs[v].address
}

// find looks a PCI address up; vf is -1 for a PF.
func (s *Sim) find(address string) (f, v int, ok bool) {
	for i, p := range s.st.PFs {
		if p.Address == address {
			return i, -1, true
		}
		for j := range p.VFs {
			if !p.VFs[j].Gone && s.vfAddress(i, j) == address {
				return i, j, true
			}
		}
	}
	return -1, -1, false
}

func (s *Sim) probePF(f int) {
	s.st.PFs[f].Driver = s.profile(f).driver
	s.addUplink(f, true)
	s.addRDMA(pfID(f))
}

func (s *Sim) addUplink(f int, up bool) {
	p := s.st.PFs[f]
	l := &link{Role: uplink, PF: f, VF: -1, SF: -1, MAC: p.MAC, Up: up}
	if p.InfiniBand {
		l.MAC = nic.MAC{} // 20 octets, which are no Ethernet address
	}
	s.addLink(l)
}

// reload is driver_reinit (devlink.c, mlx5_devlink_reload_up): the PF's netdev and
// RDMA device are made anew, and a bond loses its member.
func (s *Sim) reload(f int) {
	s.endLAG(s.st.PFs[f].Card)
	s.drop(func(l *link) bool { return l.Role == uplink && l.PF == f })
	s.dropRDMA(pfID(f))
	s.addUplink(f, false)
	s.addRDMA(pfID(f))
}

// makeVFs is the driver's sriov_configure with n > 0: the eswitch first, then the
// functions, then (autoprobe) their drivers.
func (s *Sim) makeVFs(f, n int) {
	p := s.st.PFs[f]
	for range n {
		p.VFs = append(p.VFs, &vf{})
	}
	if p.Mode == nic.Switchdev {
		s.addRepresentors(f)
	}
	if p.Autoprobe {
		for v := range n {
			s.probeVF(f, v, s.profile(f).vfDriver)
		}
	}
}

// dropVFs is sriov_configure(0): what was set of a VF is gone with it
// (mlx5_eswitch_clear_vf_vports_info).
func (s *Sim) dropVFs(f int) {
	s.drop(func(l *link) bool { return l.PF == f && l.VF >= 0 })
	s.st.RDMA = slices.DeleteFunc(s.st.RDMA, func(d *rdmaDevice) bool { return d.PF == f && d.VF >= 0 })
	s.st.PFs[f].VFs = nil
	if s.profile(f).modeAfterVFs && s.st.PFs[f].Mode == nic.Switchdev {
		s.setMode(f, nic.Legacy) // netdevsim/dev.c, nsim_drv_configure_vfs
	}
}

// probeVF binds a driver. A network driver takes the administrative address now,
// or draws one.
func (s *Sim) probeVF(f, v int, driver string) {
	p := s.profile(f)
	s.st.PFs[f].VFs[v].Driver = driver
	if driver != p.vfDriver {
		return
	}
	mac := s.st.PFs[f].VFs[v].MAC
	switch {
	case s.st.PFs[f].InfiniBand:
		mac = nic.MAC{}
	case !mac.IsUnicast():
		mac = s.randomMAC()
	}
	s.addLink(&link{Role: vfNetdev, PF: f, VF: v, SF: -1, MAC: mac})
	if p.vfRDMA {
		s.addRDMA(vfID(f, v))
	}
}

// removeVF unbinds. Its netdev goes, in whatever namespace it is.
func (s *Sim) removeVF(f, v int) {
	s.st.PFs[f].VFs[v].Driver = ""
	delete(s.st.PFs[f].VFs[v].Set, nic.VDPA) // it is a device of the driver's
	s.drop(func(l *link) bool { return l.Role == vfNetdev && l.PF == f && l.VF == v })
	s.dropRDMA(vfID(f, v))
}

// setMode changes the eswitch mode. VF state and VF netdevs stay, less the rates,
// which end with the vports' queues (eswitch.c, esw_vport_cleanup); the PF's RDMA
// device is made anew (rdma and rdma-rep are two auxiliary drivers, dev.c); LAG ends,
// to be looked at again after (lag.c, mlx5_lag_disable_change); SFs end with
// switchdev mode (mlx5_eswitch_disable_locked).
func (s *Sim) setMode(f int, m nic.Eswitch) {
	p := s.st.PFs[f]
	s.endLAG(p.Card)
	for _, o := range slices.Clone(p.SFs) {
		s.dropSF(f, o)
	}
	p.Mode = m
	for _, v := range p.VFs {
		delete(v.Set, nic.MinRate)
		delete(v.Set, nic.MaxRate)
	}
	s.dropRDMA(pfID(f))
	if m == nic.Switchdev {
		s.addRepresentors(f)
	} else {
		s.drop(func(l *link) bool { return l.Role == representor && l.PF == f })
	}
	if s.profile(f).newQueues {
		s.resetQueues(f)
	}
	s.addRDMA(pfID(f))
}

// resetQueues: the PF's netdev is the same in both modes, with another profile of the
// driver behind it, which starts with its own number and size of queues
// (en_rep.c, mlx5e_build_rep_params; en_main.c, mlx5e_netdev_change_profile).
func (s *Sim) resetQueues(f int) {
	for _, l := range s.st.Links {
		if l.Role == uplink && l.PF == f {
			for _, name := range []nic.Setting{nic.Channels, nic.RxRing, nic.TxRing} {
				delete(l.Set, name)
			}
		}
	}
}

func (s *Sim) addRepresentors(f int) {
	for v := range s.st.PFs[f].VFs {
		s.addLink(&link{Role: representor, PF: f, VF: v, SF: -1, MAC: s.randomMAC()})
	}
}

// addLink registers a netdev in the host's namespace with the next ifindex, the
// default MTU and the kernel's name for it, and lets udev rename it.
func (s *Sim) addLink(l *link) {
	ns := s.netns(hostNS)
	ns.Last++
	l.Ifindex = ns.Last
	kernel := "eth"
	if l.MTU == 0 {
		l.MTU = 1500
	}
	if l.PF >= 0 && s.st.PFs[l.PF].InfiniBand {
		kernel, l.MTU = "ib", 2044
	}
	if l.Name == "" {
		if name := s.pathName(l); s.st.Udev && name != "" && len(name) <= maxName && !s.taken(hostNS, name) {
			l.Name = name
		} else {
			l.Name = s.freeName(kernel)
		}
	}
	if s.st.Delay > 0 {
		l.Due = s.clock.Now().Add(s.st.Delay)
	}
	s.st.Links = append(s.st.Links, l)
}

// pathName is udev's name by path for a port of a card (systemd.net-naming-scheme).
// Where it is longer than a name may be, udev leaves the kernel's.
func (s *Sim) pathName(l *link) string {
	if l.PF < 0 {
		return ""
	}
	p := s.st.PFs[l.PF]
	_, bus, devfn := splitAddress(p.Address)
	name := fmt.Sprintf("enp%ds%d", bus, devfn>>3)
	if p.InfiniBand {
		name = "ib" + name[2:]
	}
	if p.Ports > 1 {
		name += fmt.Sprintf("f%d", devfn&7)
	}
	switch l.Role {
	case vfNetdev:
		return fmt.Sprintf("%sv%d", name, l.VF)
	case sfNetdev:
		return "" // auxiliary devices have no such name
	}
	if port := s.portName(l); port != "" {
		name += "n" + port
	}
	return name
}

// portName is phys_port_name (net/devlink/port.c,
// __devlink_port_phys_port_name_get); "" where there is no devlink port or it has
// none.
func (s *Sim) portName(l *link) string {
	if l.PF < 0 || !s.profile(l.PF).devlink || s.st.PFs[l.PF].InfiniBand {
		return ""
	}
	switch l.Role {
	case uplink:
		return fmt.Sprintf("p%d", s.st.PFs[l.PF].Port)
	case representor:
		return fmt.Sprintf("pf%dvf%d", s.st.PFs[l.PF].Port, l.VF)
	case sfRep:
		return fmt.Sprintf("pf%dsf%d", s.st.PFs[l.PF].Port, l.SF)
	}
	return ""
}

// maxName is IFNAMSIZ less the terminating zero.
const maxName = 15

// taken says whether a name is in use in a namespace, be it as an alternative one
// (netdev_name_in_use).
func (s *Sim) taken(ns int, name string) bool {
	return slices.ContainsFunc(s.st.Links, func(l *link) bool {
		return l.Netns == ns && (l.Name == name || slices.Contains(l.AltNames, name))
	})
}

// freeName is the first of prefix0, prefix1, ... that is free in the host's
// namespace (dev_alloc_name).
func (s *Sim) freeName(prefix string) string {
	return firstFree(prefix, func(yield func(string) bool) {
		for _, l := range s.st.Links {
			if l.Netns != hostNS {
				continue
			}
			for _, name := range append(l.AltNames[:len(l.AltNames):len(l.AltNames)], l.Name) {
				if !yield(name) {
					return
				}
			}
		}
	})
}

func firstFree(prefix string, taken iter.Seq[string]) string {
	used := map[int]bool{}
	for name := range taken {
		if digits, ok := strings.CutPrefix(name, prefix); ok {
			if n, err := strconv.Atoi(digits); err == nil && digits == strconv.Itoa(n) {
				used[n] = true
			}
		}
	}
	n := 0
	for used[n] {
		n++
	}
	return prefix + strconv.Itoa(n)
}

func (s *Sim) drop(gone func(*link) bool) { s.st.Links = slices.DeleteFunc(s.st.Links, gone) }

// addRDMA registers a function's RDMA device.
func (s *Sim) addRDMA(id functionID) {
	if prefix := s.profile(id.pf).rdma; prefix != "" {
		d := &rdmaDevice{PF: id.pf, VF: id.vf, SF: id.sf}
		if p := s.st.PFs[id.pf]; p.InfiniBand && id.vf >= 0 {
			d.GUID = p.VFs[id.vf].Set[nic.NodeGUID] // what is set later waits for the next bind
		}
		s.registerRDMA(prefix, d)
	}
}

func (s *Sim) dropRDMA(id functionID) {
	s.st.RDMA = slices.DeleteFunc(s.st.RDMA, func(d *rdmaDevice) bool { return d.id() == id })
}

func (d *rdmaDevice) id() functionID { return functionID{d.PF, d.VF, d.SF} }

// registerRDMA gives the lowest free names.
func (s *Sim) registerRDMA(prefix string, d *rdmaDevice) {
	verbs := map[int]bool{}
	d.Name = firstFree(prefix, func(yield func(string) bool) {
		for _, d := range s.st.RDMA {
			verbs[d.Verbs] = true
			if !yield(d.Name) {
				return
			}
		}
	})
	for verbs[d.Verbs] {
		d.Verbs++
	}
	s.st.RDMA = append(s.st.RDMA, d)
}

// draw returns the next number by chance.
func (s *Sim) draw() uint64 {
	s.st.Draws++
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], s.st.Seed)
	binary.LittleEndian.PutUint64(b[8:], s.st.Draws)
	h.Write(b[:])
	return h.Sum64()
}

// randomMAC is eth_random_addr: unicast, locally administered.
func (s *Sim) randomMAC() nic.MAC {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], s.draw())
	m := nic.MAC(b[:6])
	m[0] = m[0]&^1 | 2
	return m
}

// there says whether a netdev has appeared.
func (s *Sim) there(l *link) bool {
	return l.Due.IsZero() || !s.clock.Now().Before(l.Due)
}

func (s *Sim) addLoopback(ns *netns) {
	ns.Last++
	s.st.Links = append(s.st.Links, &link{
		Netns: ns.ID, Ifindex: ns.Last, Name: "lo", Role: loopback, PF: -1, VF: -1, SF: -1, MTU: 65536, Up: ns.ID == hostNS,
	})
}
