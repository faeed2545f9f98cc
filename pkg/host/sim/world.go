package sim

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/nic"
)

// What others do to the machine: container runtimes, administrators, udev, the
// wire. None of it counts as a write.

// AddNetns makes a network namespace at path.
func (s *Sim) AddNetns(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == "" {
		return fmt.Errorf("add netns: the empty path is the host's")
	}
	if _, err := s.netnsAt(path); err == nil || slices.Contains(s.st.Files, path) {
		return fmt.Errorf("add netns %s: %w", path, fs.ErrExist)
	}
	s.st.NetnsID++
	ns := &netns{ID: s.st.NetnsID, Path: path}
	s.st.Netns = append(s.st.Netns, ns)
	s.addLoopback(ns)
	s.tell("netns " + path)
	return nil
}

// DeleteNetns takes the path away, as `ip netns delete` does when no process is
// left inside. The namespace ends with the last handle on it.
func (s *Sim) DeleteNetns(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ns, err := s.netnsAt(path)
	if err != nil || ns.ID == hostNS {
		return fmt.Errorf("delete netns %q: %w", path, fs.ErrNotExist)
	}
	ns.Path = ""
	s.reap(ns.ID)
	s.work()
	s.tell("netns " + path)
	return nil
}

// AddFile makes a path that is no namespace.
func (s *Sim) AddFile(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.st.Files, path) {
		s.st.Files = append(s.st.Files, path)
	}
}

// AddLink makes a software interface in the namespace at path ("" the host's).
func (s *Sim) AddLink(path, name, kind string) (ifindex int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ns, err := s.netnsAt(path)
	switch {
	case err != nil:
		return 0, fmt.Errorf("add link %s in %q: %w", name, path, err)
	case !validName(name):
		return 0, fmt.Errorf("add link %q: no name for an interface", name)
	case s.taken(ns.ID, name):
		return 0, fmt.Errorf("add link %s in %q: %w", name, path, fs.ErrExist)
	}
	ns.Last++
	s.st.Links = append(s.st.Links, &link{
		Netns: ns.ID, Ifindex: ns.Last, Name: name, Role: other, PF: -1, VF: -1, SF: -1, Kind: kind, MAC: s.randomMAC(), MTU: 1500,
	})
	s.tell("netdev " + name)
	return ns.Last, nil
}

// AddAltName gives an interface an alternative name.
func (s *Sim) AddAltName(path string, ifindex int, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ns, err := s.netnsAt(path)
	if err != nil {
		return fmt.Errorf("add altname %s in %q: %w", name, path, err)
	}
	if s.taken(ns.ID, name) {
		return fmt.Errorf("add altname %s: %w", name, fs.ErrExist)
	}
	for _, l := range s.st.Links {
		if l.Netns == ns.ID && l.Ifindex == ifindex {
			l.AltNames = append(l.AltNames, name)
			s.tell("netdev " + l.Name)
			return nil
		}
	}
	return fmt.Errorf("add altname %s to interface %d: %w", name, ifindex, fs.ErrNotExist)
}

// Reboot starts the machine anew: drivers bind, VFs, SFs, namespaces, settings and what
// sluice made are gone, and what others configure (their bonds, addresses, routes) is
// made again. The RDMA mode is the one that was written for it.
func (s *Sim) Reboot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.Boot = rand.Text()
	before := s.st.Links
	s.st.Links, s.st.RDMA, s.st.LAGs, s.handles, s.dead = nil, nil, nil, map[int]int{}, false
	s.st.Netns = []*netns{{ID: hostNS}}
	s.addLoopback(s.st.Netns[0])
	if s.st.RDMAMode = s.st.RDMAAtBoot; s.st.RDMAMode == "" {
		s.st.RDMAMode = nic.RDMAShared
	}
	for f, p := range s.st.PFs {
		p.VFs, p.SFs, p.Set, p.Autoprobe = nil, nil, nil, true
		if p.Mode != "" {
			p.Mode = nic.Legacy
		}
		s.probePF(f)
	}
	for _, l := range s.st.Links {
		l.Due = time.Time{}
	}
	for _, old := range before {
		switch {
		case old.Role == bonded && old.Netns == hostNS && !old.Bond.Ours:
			b := *old.Bond
			b.Active, b.Drawn = 0, true
			l := s.addBond(old.Name, &b)
			l.Addrs, l.Routes = old.Addrs, old.Routes
			for _, m := range before {
				if m.Role == uplink && m.Netns == hostNS && m.Master == old.Ifindex {
					s.enslave(l, s.netdevOf(Port{s.st.PFs[m.PF].Card, s.st.PFs[m.PF].Port}))
				}
			}
		case old.Role == uplink:
			l := s.netdevOf(Port{s.st.PFs[old.PF].Card, s.st.PFs[old.PF].Port})
			l.Addrs, l.Routes = old.Addrs, old.Routes
		}
	}
	s.startLAGs()
	s.tell("the machine has started")
}

// Vanish takes a VF from the bus, as remove of its device in sysfs does. It comes back
// with all VFs of its PF made anew.
func (s *Sim) Vanish(id nic.VFID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, v, ok := s.find(id.PF.Name)
	if !ok || v >= 0 || id.Index < 0 || id.Index >= len(s.st.PFs[f].VFs) || s.st.PFs[f].VFs[id.Index].Gone {
		return fmt.Errorf("vanish %s: %w", id, fs.ErrNotExist)
	}
	s.removeVF(f, id.Index)
	s.st.PFs[f].VFs[id.Index].Gone = true
	s.tell(id.String())
	return nil
}

// SetCarrier plugs or pulls the cable of a PF.
func (s *Sim) SetCarrier(h nic.Handle, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, v, ok := s.find(h.Name)
	if !ok || v >= 0 {
		return fmt.Errorf("set carrier of %s: %w", h, fs.ErrNotExist)
	}
	s.st.PFs[f].NoCarrier = !on
	s.retryLAG(f)
	s.work()
	s.tell("carrier of " + h.String())
	return nil
}
