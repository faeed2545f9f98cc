package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"sluice.dev/sluice/pkg/disk"
	"sluice.dev/sluice/pkg/nic"
)

// Save writes the machine to a file, whole or not at all, readable by its owner
// only. Open namespace handles, Fault.Match and the log are not kept.
func (s *Sim) Save(path string) error {
	s.mu.Lock()
	b, err := json.MarshalIndent(s.st, "", " ")
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("save simulated machine: %w", err)
	}
	if err := disk.Replace(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("save simulated machine: %w", err)
	}
	return nil
}

// Load reads what Save wrote. A file that no machine could have written is an
// error that says what is wrong in it.
func Load(path string) (*Sim, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load simulated machine: %w", err)
	}
	defer f.Close()
	return loadFrom(f)
}

func loadFrom(f *os.File) (*Sim, error) {
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("load simulated machine: %w", err)
	}
	s, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("load simulated machine from %s: %w", f.Name(), err)
	}
	return s, nil
}

// Decode is Load of a file's content.
func Decode(b []byte) (*Sim, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	s := &Sim{clock: wallClock{}, handles: map[int]int{}}
	if err := d.Decode(&s.st); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, n := range slices.Clone(s.st.Netns) {
		s.reap(n.ID)
	}
	return s, nil
}

// check says what is wrong with a state that was read.
func (s *Sim) check() error {
	st := s.st
	if st.Version != stateVersion {
		return fmt.Errorf("version %d: want %d", st.Version, stateVersion)
	}
	if st.Delay < 0 || st.Writes < 0 {
		return fmt.Errorf("delay %v and writes %d: want 0 or more", st.Delay, st.Writes)
	}
	if !rdmaMode(st.RDMAMode) || st.RDMAAtBoot != "" && !rdmaMode(st.RDMAAtBoot) {
		return fmt.Errorf("RDMA modes %q and %q: want %s or %s", st.RDMAMode, st.RDMAAtBoot, nic.RDMAShared, nic.RDMAExclusive)
	}
	addresses, devices := map[string]bool{}, map[int]bool{}
	for i, p := range st.PFs {
		if p == nil {
			return fmt.Errorf("pfs[%d]: null", i)
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("pfs[%d]: %w", i, err)
		}
		if err := s.checkAddresses(i, addresses); err != nil {
			return fmt.Errorf("pfs[%d]: %w", i, err)
		}
		for _, o := range p.SFs {
			if o.Active && devices[o.Device] {
				return fmt.Errorf("pfs[%d]: device %d of SF %d is taken", i, o.Device, o.Num)
			}
			devices[o.Device] = devices[o.Device] || o.Active
		}
	}
	if err := s.checkNetns(); err != nil {
		return err
	}
	if err := s.checkLinks(); err != nil {
		return err
	}
	if err := s.checkBonds(); err != nil {
		return err
	}
	if err := s.checkLAGs(); err != nil {
		return err
	}
	return s.checkRDMA()
}

func (s *Sim) checkRDMA() error {
	names, verbs := map[string]bool{}, map[int]bool{}
	for i, d := range s.st.RDMA {
		switch {
		case d == nil:
			return fmt.Errorf("rdma[%d]: null", i)
		case !s.isFunction(d.id()):
			return fmt.Errorf("rdma[%d]: no function pf %d vf %d sf %d", i, d.PF, d.VF, d.SF)
		case d.Name == "" || names[d.Name] || d.Verbs < 0 || verbs[d.Verbs]:
			return fmt.Errorf("rdma[%d]: name %q or number %d is empty or taken", i, d.Name, d.Verbs)
		case s.netns(d.Netns) == nil || d.Netns != hostNS && s.st.RDMAMode != nic.RDMAExclusive:
			return fmt.Errorf("rdma[%d]: no namespace %d, or devices are shared", i, d.Netns)
		}
		names[d.Name], verbs[d.Verbs] = true, true
	}
	return nil
}

func (p *pf) check() error {
	card, ok := profileNamed(p.Profile)
	switch {
	case !ok:
		return fmt.Errorf("no profile %q: want one of %q", p.Profile, profileNames())
	case p.Card < 0 || p.Card >= maxCards || p.Ports < 1 || p.Ports > card.maxPorts || p.Port < 0 || p.Port >= p.Ports:
		return fmt.Errorf("no port %d of %d on card %d of a machine", p.Port, p.Ports, p.Card)
	case p.Address != pfAddress(p.Card, p.Port):
		return fmt.Errorf("address %q: want %s", p.Address, pfAddress(p.Card, p.Port))
	case p.TotalVFs < 1 || p.TotalVFs > card.maxVFs || len(p.VFs) > p.TotalVFs:
		return fmt.Errorf("%d of %d VFs: a port of %s has 1 to %d", len(p.VFs), p.TotalVFs, p.Profile, card.maxVFs)
	case p.Driver != "" && p.Driver != card.driver && p.Driver != vfioDriver:
		return fmt.Errorf("driver %q: want %s, %s or none", p.Driver, card.driver, vfioDriver)
	case len(p.VFs) > 0 && p.Driver != card.driver:
		return fmt.Errorf("VFs of a PF without driver %s", card.driver)
	case p.InfiniBand && !card.infiniband:
		return fmt.Errorf("a %s has no InfiniBand ports", p.Profile)
	case (card.devlink && !p.InfiniBand) != (p.Mode == nic.Legacy || p.Mode == nic.Switchdev), p.InfiniBand && p.Mode != "",
		card.modeAfterVFs && p.Mode == nic.Switchdev && len(p.VFs) == 0:
		return fmt.Errorf("mode %q of a %s", p.Mode, p.Profile)
	case p.MaxSFs < 0 || p.MaxSFs > card.maxSFs || len(p.SFs) > p.MaxSFs:
		return fmt.Errorf("%d of %d SFs: a port of %s has 0 to %d", len(p.SFs), p.MaxSFs, p.Profile, card.maxSFs)
	case len(p.SFs) > 0 && (p.Mode != nic.Switchdev || p.Driver != card.driver):
		return fmt.Errorf("SFs of a PF that is not in switchdev mode, or has no driver %s", card.driver)
	}
	if err := checkSet(p.Set); err != nil {
		return err
	}
	slots, nums := map[int]bool{}, map[int]bool{}
	for i, o := range p.SFs {
		if o == nil || o.Num < 0 || nums[o.Num] || o.Slot < 0 || o.Slot >= card.maxSFs || slots[o.Slot] || o.Device < 0 {
			return fmt.Errorf("sfs[%d]: null, or a number or place that is out of range or taken", i)
		}
		if err := checkSet(o.Set); err != nil {
			return fmt.Errorf("sfs[%d]: %w", i, err)
		}
		slots[o.Slot], nums[o.Num] = true, true
	}
	for i, v := range p.VFs {
		if v == nil || v.Driver != "" && v.Driver != card.vfDriver && v.Driver != vfioDriver {
			return fmt.Errorf("vfs[%d]: null, or a driver that is neither %s nor %s", i, card.vfDriver, vfioDriver)
		}
		if err := checkSet(v.Set); err != nil {
			return fmt.Errorf("vfs[%d]: %w", i, err)
		}
	}
	return nil
}

// checkSet says which setting is none, or has a value that it does not take.
func checkSet(set nic.Settings) error {
	for _, name := range set.Names() {
		if !slices.ContainsFunc(knobs(), func(k knob) bool { return k.name == name && k.takes(set[name]) }) {
			return fmt.Errorf("no setting %q, or not with value %q", name, set[name])
		}
	}
	return nil
}

// checkAddresses says whether PF i or a VF of it is where another function is.
func (s *Sim) checkAddresses(i int, seen map[string]bool) error {
	all := []string{s.st.PFs[i].Address}
	for v := range s.st.PFs[i].VFs {
		all = append(all, s.vfAddress(i, v))
	}
	for _, a := range all {
		if seen[a] {
			return fmt.Errorf("address %s is taken", a)
		}
		seen[a] = true
	}
	return nil
}

func (s *Sim) isFunction(id functionID) bool {
	return id.pf >= 0 && id.pf < len(s.st.PFs) && id.vf >= -1 && id.vf < len(s.st.PFs[id.pf].VFs) &&
		(id.sf == -1 || id.vf == -1 && s.st.PFs[id.pf].sf(id.sf) != nil)
}

func (s *Sim) checkNetns() error {
	ids, paths := map[int]bool{}, map[string]bool{}
	for i, n := range s.st.Netns {
		switch {
		case n == nil:
			return fmt.Errorf("netns[%d]: null", i)
		case n.ID < 0 || n.ID > s.st.NetnsID || ids[n.ID] || n.Last < 0:
			return fmt.Errorf("netns[%d]: number %d or ifindex %d is out of range or taken", i, n.ID, n.Last)
		case n.Path != "" && (paths[n.Path] || slices.Contains(s.st.Files, n.Path)):
			return fmt.Errorf("netns[%d]: path %s is taken", i, n.Path)
		case n.ID == hostNS && n.Path != "":
			return fmt.Errorf("netns[%d]: the host's has no path", i)
		}
		ids[n.ID], paths[n.Path] = true, true
	}
	if !ids[hostNS] {
		return errors.New("netns: none is the host's (number 0)")
	}
	return nil
}

func (s *Sim) checkLinks() error {
	type in struct {
		ns   int
		what any
	}
	type netdev struct {
		role role
		id   functionID
	}
	seen := map[any]bool{}
	for i, l := range s.st.Links {
		if l == nil {
			return fmt.Errorf("links[%d]: null", i)
		}
		ns := s.netns(l.Netns)
		if ns == nil || l.Ifindex < 1 || l.Ifindex > ns.Last {
			return fmt.Errorf("links[%d]: no namespace %d, or ifindex %d out of its range", i, l.Netns, l.Ifindex)
		}
		keys := []any{in{l.Netns, l.Ifindex}, in{l.Netns, l.Name}}
		for _, a := range l.AltNames {
			keys = append(keys, in{l.Netns, a})
		}
		if err := s.checkRole(l); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
		if l.PF >= 0 {
			keys = append(keys, netdev{l.Role, l.id()})
		}
		for _, k := range keys {
			if seen[k] {
				return fmt.Errorf("links[%d]: %q, its ifindex or its function is there twice", i, l.Name)
			}
			seen[k] = true
		}
		if !validName(l.Name) {
			return fmt.Errorf("links[%d]: %q is no name for an interface", i, l.Name)
		}
		if err := checkSet(l.Set); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
	}
	return nil
}

// checkBonds says which bond is none, and which interface is in none that there is.
func (s *Sim) checkBonds() error {
	bonds := map[[2]int]bool{}
	for i, l := range s.st.Links {
		if (l.Role == bonded) != (l.Bond != nil) {
			return fmt.Errorf("links[%d]: a bond without options, or options without a bond", i)
		}
		if l.Bond == nil {
			continue
		}
		b := *l.Bond
		if _, err := bondOf(nic.BondSpec{Name: l.Name, Mode: b.Mode, Hash: b.Hash, Miimon: b.Miimon, LACPRate: b.LACPRate}); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
		bonds[[2]int{l.Netns, l.Ifindex}] = true
	}
	for i, l := range s.st.Links {
		if l.Master != 0 && (!bonds[[2]int{l.Netns, l.Master}] || l.Role == bonded || l.Role == loopback) {
			return fmt.Errorf("links[%d]: %s cannot be in a bond %d", i, l.Name, l.Master)
		}
	}
	return nil
}

// checkLAGs says which card has no bond that hardware could take.
func (s *Sim) checkLAGs() error {
	seen := map[int]bool{}
	for i, l := range s.st.LAGs {
		ok := l != nil && !seen[l.Card]
		if ok {
			seen[l.Card] = true
			f := slices.IndexFunc(s.st.PFs, func(p *pf) bool { return p.Card == l.Card && p.Port == 0 })
			ok = f >= 0 && s.profile(f).lag && s.unfit(f) == ""
		}
		if !ok {
			return fmt.Errorf("lags[%d]: null, of no card, or of one whose ports are not in a bond that it takes", i)
		}
	}
	for i, d := range s.st.RDMA {
		if d != nil && d.LAG && (d.PF < 0 || d.PF >= len(s.st.PFs) || !seen[s.st.PFs[d.PF].Card]) {
			return fmt.Errorf("rdma[%d]: of a LAG that there is not", i)
		}
	}
	return nil
}

// checkRole says whether the machine can have such a netdev.
func (s *Sim) checkRole(l *link) error {
	if l.Role == loopback || l.Role == other || l.Role == bonded {
		if l.id() != (functionID{-1, -1, -1}) {
			return fmt.Errorf("a %s interface of a function", l.Role)
		}
		return nil
	}
	if !s.isFunction(l.id()) || !s.driven(l.PF) {
		return fmt.Errorf("no function pf %d vf %d sf %d with a driver", l.PF, l.VF, l.SF)
	}
	p, card := s.st.PFs[l.PF], s.profile(l.PF)
	ok := false
	switch l.Role {
	case uplink:
		ok = l.VF == -1 && l.SF == -1 && (p.Mode != nic.Switchdev || l.Netns == hostNS)
	case vfNetdev:
		ok = l.VF >= 0 && p.VFs[l.VF].Driver == card.vfDriver
	case representor:
		ok = l.VF >= 0 && p.Mode == nic.Switchdev && (l.Netns == hostNS || s.st.Reps == RepsFree)
	case sfNetdev:
		ok = l.SF >= 0 && p.sf(l.SF).Active
	case sfRep:
		ok = l.SF >= 0 && (l.Netns == hostNS || s.st.Reps == RepsFree)
	}
	if !ok {
		return fmt.Errorf("a netdev %q of pf %d vf %d sf %d cannot be there", l.Role, l.PF, l.VF, l.SF)
	}
	return nil
}
