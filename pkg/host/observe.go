package host

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// Observe reads the machine once, each list a single time, and joins them by
// PCI address, devlink handle and ifindex. Its cost grows with the number of
// things, not with the product of any two of their numbers. Parts that m does not
// have (nil) have nothing.
func Observe(ctx context.Context, m Machine) (nic.State, error) {
	v, err := Look(ctx, m)
	if err != nil {
		return nic.State{}, err
	}
	return v.State, nil
}

// ObserveOne is Observe for who is to deal with the VF at a PCI address, or the SF of an
// auxiliary device: settings and limits are those of this function alone, and what of
// the host runs over interfaces, and bonds, are left out. On a node with hundreds of
// VFs most of Observe's time goes there, in lists of all interfaces that the kernel
// makes one after the other for all that ask.
func ObserveOne(ctx context.Context, m Machine, function string) (nic.State, error) {
	ctx = observing(ctx)
	l, err := readFunctions(ctx, m)
	if err != nil {
		return nic.State{}, err
	}
	out := newJoin(l).state(l.functions)
	if m.RDMA != nil {
		if out.RDMA, err = m.RDMA.System(ctx); err != nil {
			return nic.State{}, err
		}
	}
	if m.Settings != nil {
		err = readOne(ctx, m.Settings, &out, function)
	}
	return out, err
}

func readOne(ctx context.Context, s Settings, st *nic.State, function string) error {
	if id, vf := st.VFAt(function); vf != nil {
		return s.ReadVF(ctx, st.PF(id.PF), id.Index)
	}
	for i := range st.PFs {
		for _, f := range st.PFs[i].SFs {
			if f.Device == function {
				return s.ReadSF(ctx, &st.PFs[i], f.Num)
			}
		}
	}
	return nil // none has this name
}

// Look is Observe that keeps the lists, so that it can be followed (View.After).
func Look(ctx context.Context, m Machine) (*View, error) {
	ctx = observing(ctx)
	l, err := read(ctx, m)
	if err != nil {
		return nil, err
	}
	out := newJoin(l).state(l.functions)
	if m.RDMA != nil {
		if out.RDMA, err = m.RDMA.System(ctx); err != nil {
			return nil, err
		}
	}
	if m.Settings != nil {
		if err := m.Settings.Read(ctx, &out); err != nil {
			return nil, err
		}
	}
	return &View{State: out, lists: l}, nil
}

// lists is all that Observe joins.
type lists struct {
	functions []Function
	sfs       []SFDevice
	devices   []DevlinkDevice
	ports     []DevlinkPort
	links     []Link
	uses      []Use
	bonds     []Bond
	lag       map[string]nic.LAG
	rdma      []RDMADevice
}

func read(ctx context.Context, m Machine) (l lists, err error) {
	if l, err = readFunctions(ctx, m); err != nil {
		return l, err
	}
	if l.uses, err = uses(ctx, m); err != nil {
		return l, err
	}
	if m.Bonds != nil {
		if l.bonds, err = m.Bonds.Bonds(ctx); err != nil {
			return l, err
		}
		l.lag, err = m.Bonds.LAG(ctx)
	}
	return l, err
}

// readFunctions reads what functions are made of.
func readFunctions(ctx context.Context, m Machine) (l lists, err error) {
	if l.functions, err = m.PCI.Functions(ctx); err != nil {
		return l, err
	}
	if l.sfs, err = m.PCI.SFs(ctx); err != nil {
		return l, err
	}
	if l.devices, err = m.Devlink.Devices(ctx); err != nil {
		return l, err
	}
	if l.ports, err = m.Devlink.Ports(ctx); err != nil {
		return l, err
	}
	if l.links, err = m.Links.Links(ctx); err != nil {
		return l, err
	}
	if m.RDMA != nil {
		l.rdma, err = m.RDMA.Devices(ctx)
	}
	return l, err
}

// kindOVS is the kind of an Open vSwitch datapath and of its internal interfaces
// (net/openvswitch/vport-internal_dev.c).
const kindOVS = "openvswitch"

// join holds the lists, each indexed by what the next one refers to.
type join struct {
	devices  map[nic.Handle]DevlinkDevice
	ports    map[nic.Handle][]DevlinkPort
	sfs      map[string][]SFDevice // by the PF's address
	byIndex  map[int]Link
	byParent map[string][]Link
	orphans  map[nic.SwitchID][]Link // ports of a switch that have no parent
	switches map[nic.SwitchID]int    // how many PFs' uplinks are of a switch
	above    map[int][]int           // ifindexes of what is built on an interface
	ovs      []int                   // ifindexes of Open vSwitch's own interfaces
	uses     map[int][]string        // by ifindex
	bonds    []Bond
	lag      map[string]nic.LAG
	rdma     map[string][]string // by PCI address or auxiliary device
	soft     map[string][]string // RDMA devices without these, by netdev
}

func newJoin(l lists) join {
	j := join{
		devices:  make(map[nic.Handle]DevlinkDevice, len(l.devices)),
		ports:    make(map[nic.Handle][]DevlinkPort, len(l.devices)),
		sfs:      map[string][]SFDevice{},
		byIndex:  make(map[int]Link, len(l.links)),
		byParent: make(map[string][]Link, len(l.links)),
		orphans:  map[nic.SwitchID][]Link{},
		switches: map[nic.SwitchID]int{},
		above:    map[int][]int{},
		uses:     map[int][]string{},
		bonds:    l.bonds,
		lag:      l.lag,
		rdma:     make(map[string][]string, len(l.rdma)),
		soft:     map[string][]string{},
	}
	for _, d := range l.devices {
		j.devices[d.Handle] = d
	}
	for _, f := range l.sfs {
		j.sfs[f.PF] = append(j.sfs[f.PF], f)
	}
	for _, u := range l.uses {
		j.uses[u.Ifindex] = append(j.uses[u.Ifindex], u.What)
	}
	// Whatever order the lists came in, the answer is the same.
	ports, links, rdma := slices.Clone(l.ports), slices.Clone(l.links), slices.Clone(l.rdma)
	slices.SortFunc(ports, func(a, b DevlinkPort) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(links, func(a, b Link) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	slices.SortFunc(rdma, func(a, b RDMADevice) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range ports {
		j.ports[p.Handle] = append(j.ports[p.Handle], p)
	}
	for _, l := range links {
		j.byIndex[l.Ifindex] = l
		switch {
		case l.Parent != "":
			j.byParent[l.Parent] = append(j.byParent[l.Parent], l)
		case l.SwitchID != "" && l.Kind == "":
			j.orphans[l.SwitchID] = append(j.orphans[l.SwitchID], l)
		}
		if l.Kind == kindOVS {
			j.ovs = append(j.ovs, l.Ifindex)
		}
		if l.Master != 0 {
			j.above[l.Ifindex] = append(j.above[l.Ifindex], l.Master)
		}
		if l.Lower != 0 {
			j.above[l.Lower] = append(j.above[l.Lower], l.Ifindex)
		}
	}
	for _, r := range rdma {
		switch {
		case r.Parent != "":
			j.rdma[r.Parent] = append(j.rdma[r.Parent], r.Name)
		case r.Netdev != "" && !r.elsewhere():
			j.soft[r.Netdev] = append(j.soft[r.Netdev], r.Name)
		}
	}
	return j
}

// portCarries is what of the host runs over a port: over its uplink, and over VFs
// and SFs that the host keeps for itself.
func (j join) portCarries(p nic.PF) []string {
	var out []string
	if p.Uplink.Exists() {
		out = j.carries(p.Uplink.Ifindex)
	}
	for _, v := range p.VFs {
		if v.Netdev.Exists() {
			for _, what := range j.carries(v.Netdev.Ifindex) {
				out = append(out, fmt.Sprintf("%s (vf %d)", what, v.Index))
			}
		}
	}
	for _, f := range p.SFs {
		if f.Netdev.Exists() {
			for _, what := range j.carries(f.Netdev.Ifindex) {
				out = append(out, fmt.Sprintf("%s (sf %d)", what, f.Num))
			}
		}
	}
	return out
}

// carries is what runs over an interface or over what is built on it: a VLAN on a
// bond of it, say. Of an Open vSwitch bridge the kernel does not say which internal
// interface hangs together with which port, so a port carries what runs over any.
func (j join) carries(ifindex int) []string {
	var out []string
	seen := map[int]bool{0: true}
	for todo := []int{ifindex}; len(todo) > 0; todo = todo[1:] {
		if i := todo[0]; !seen[i] {
			seen[i] = true
			out = append(out, j.uses[i]...)
			todo = append(todo, j.above[i]...)
			if j.byIndex[i].Kind == kindOVS {
				todo = append(todo, j.ovs...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (j join) state(functions []Function) nic.State {
	vfs := map[string][]Function{}
	for _, f := range functions {
		if f.PF != "" {
			vfs[f.PF] = append(vfs[f.PF], f)
		}
	}
	for _, f := range functions {
		if f.PF == "" && len(j.orphans) > 0 {
			j.switches[j.uplink(nic.PCI(f.Address), f.Address).SwitchID]++
		}
	}
	var out nic.State
	for _, f := range functions {
		if f.PF == "" {
			out.PFs = append(out.PFs, j.pf(f, vfs[f.Address]))
		}
	}
	slices.SortFunc(out.PFs, func(a, b nic.PF) int { return a.Handle.Compare(b.Handle) })
	out.Bonds = j.bondsOf(out.PFs)
	shareRDMA(&out)
	return out
}

func (j join) pf(f Function, vfs []Function) nic.PF {
	h := nic.PCI(f.Address)
	d := j.devices[h]
	p := nic.PF{
		Handle: h, Vendor: f.Vendor, Device: f.Device, Product: f.Product, Serial: f.Serial,
		Driver: f.Driver, NUMA: f.NUMA, Eswitch: d.Eswitch,
		TotalVFs: f.TotalVFs, Autoprobe: f.Autoprobe, VFVectors: f.VFVectors,
		VFDevice: f.VFDevice, ACPIIndex: f.ACPIIndex, Failing: d.Failing,
		Firmware: d.Firmware, PSID: d.PSID, Path: f.Path, MaxSFs: d.MaxSFs,
	}
	if d.Serial != "" {
		p.Serial = d.Serial
	}
	uplink := j.uplink(h, f.Address)
	p.Uplink, p.PortName, p.SwitchID = uplink.Netdev, uplink.PortName, uplink.SwitchID
	p.InfiniBand, p.LAG = uplink.InfiniBand, j.lag[f.Address]
	p.SFs = j.subfunctions(h, f.Address)
	p.RDMA = j.rdmaOf(f.Address, uplink.Netdev)
	reps := j.representors(h, f.Address, uplink)
	slices.SortFunc(vfs, func(a, b Function) int { return a.VFIndex - b.VFIndex })
	for _, v := range vfs {
		p.VFs = j.gone(p.VFs, v.VFIndex, reps)
		p.VFs = append(p.VFs, j.vf(v, reps[v.VFIndex], uplink, d.Eswitch))
	}
	p.VFs = j.gone(p.VFs, f.NumVFs, reps)
	p.Carries = j.portCarries(p)
	return p
}

// gone fills vfs up to n with VFs that the PF counts and the bus does not have. The
// kernel counts VFs after it has made them all, and until it has removed them all
// (drivers/pci/iov.c, sriov_enable and sriov_disable): so one of them has been taken
// away, or somebody is removing all.
func (j join) gone(vfs []nic.VF, n int, reps map[int]representor) []nic.VF {
	for i := len(vfs); i < n; i++ {
		vfs = append(vfs, nic.VF{Index: i, Gone: true, IOMMUGroup: -1, Rep: reps[i].Representor})
	}
	return vfs
}

func (j join) vf(f Function, rep representor, uplink Link, mode nic.Eswitch) nic.VF {
	v := nic.VF{
		Index: f.VFIndex, Address: f.Address, Driver: f.Driver, Away: f.Away,
		IOMMUGroup: f.IOMMUGroup, VFIO: f.VFIO, Failing: j.devices[nic.PCI(f.Address)].Failing, Rep: rep.Representor,
	}
	if own := j.byParent[f.Address]; len(own) > 0 {
		v.Netdev = own[0].Netdev
	}
	v.RDMA = j.rdmaOf(f.Address, v.Netdev)
	if mode == nic.Switchdev && rep.hasMAC {
		v.MAC = rep.mac
	} else {
		v.MAC = uplink.VFMACs[f.VFIndex]
	}
	return v
}

// uplink finds the PF's own netdev among all that its PCI device is the parent
// of (in switchdev mode the representors are, too): by devlink's physical port,
// else by phys_port_name pN, else the one that has no port name. Entry order and
// netdev names never matter.
func (j join) uplink(h nic.Handle, address string) Link {
	for _, p := range j.ports[h] {
		if p.Flavour == FlavourPhysical && p.Ifindex != 0 {
			if l, ok := j.byIndex[p.Ifindex]; ok {
				return l
			}
		}
	}
	var unnamed Link
	for _, l := range j.byParent[address] {
		if uplinkName.MatchString(l.PortName) {
			return l
		}
		if l.PortName == "" && !unnamed.Exists() {
			unnamed = l
		}
	}
	return unnamed
}

// Forms of phys_port_name: net/devlink/port.c, __devlink_port_phys_port_name_get.
// A "cN" prefix marks another host's port and does not match.
var (
	uplinkName = regexp.MustCompile(`^p\d+$`)
	vfRepName  = regexp.MustCompile(`^pf(\d+)vf(\d+)$`)
	oldRepName = regexp.MustCompile(`^\d{1,5}$`) // drivers without devlink ports: the VF's number
)

type representor struct {
	nic.Representor
	mac    nic.MAC
	hasMAC bool
	own    bool // its pfnum is the PF's function number
}

// representors are looked for only under the PF's own devlink handle, or among
// netdevs whose parent is the PF: the switch id is the card's, and both of its
// PFs have a VF 0. What tells pfnum is no more than a tie-break: it is the
// function number, save where a PF is passed through to a virtual machine, and
// mlx5 has ports of another PF's VFs ("adjacent") beside its own.
//
// Before Linux 5.8 representors of mlx5 had no parent. There they are those of the
// uplink's switch, and pfnum is all that tells whose they are; names without it are
// believed only where the switch has one PF.
func (j join) representors(h nic.Handle, address string, uplink Link) map[int]representor {
	out := map[int]representor{}
	function := int(address[len(address)-1] - '0')
	add := func(vf int, r representor) {
		if had, ok := out[vf]; !ok || r.own && !had.own {
			out[vf] = r
		}
	}
	for _, p := range j.ports[h] {
		if p.Flavour != FlavourPCIVF || p.External || p.VF < 0 {
			continue
		}
		r := representor{mac: p.MAC, hasMAC: p.HasMAC, own: p.PF == function}
		r.Port = p.Index
		if l, ok := j.byIndex[p.Ifindex]; ok {
			r.Netdev = l.Netdev
		}
		add(p.VF, r)
	}
	if len(out) > 0 {
		return out
	}
	for _, l := range j.byParent[address] {
		if pf, vf, ok := VFOfPortName(l.PortName); ok {
			add(vf, representor{Representor: nic.Representor{Netdev: l.Netdev}, own: pf == function || pf < 0})
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, l := range j.orphans[uplink.SwitchID] {
		pf, vf, ok := VFOfPortName(l.PortName)
		if ok && (pf == function || pf < 0 && j.switches[uplink.SwitchID] == 1) {
			add(vf, representor{Representor: nic.Representor{Netdev: l.Netdev}, own: true})
		}
	}
	return out
}

// VFOfPortName reads the port name of a VF's representor; pf is -1 when it does not
// say which PF's VF it is.
func VFOfPortName(name string) (pf, vf int, ok bool) {
	if m := vfRepName.FindStringSubmatch(name); m != nil {
		return atoi(m[1]), atoi(m[2]), true
	}
	if oldRepName.MatchString(name) {
		return -1, atoi(name), true
	}
	return 0, 0, false
}

func atoi(digits string) int {
	n := 0
	for _, c := range digits {
		n = n*10 + int(c-'0')
	}
	return n
}
