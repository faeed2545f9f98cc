package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// maxShare bounds how many pods use one HCA: each is a device in the kubelet's
// list.
const maxShare = 1000

// Pools turns the document's pools into those of the observed node, on which
// wanted is what Resolve made of the document. A PF that wanted gives an eswitch
// mode must be in it before its devices are healthy. All problems come at once,
// each with its path.
//
// What comes of names, selectors and bonds hangs on the node as it is, so whoever
// offers the pools resolves them again when it has changed.
func Pools(doc *v1alpha1.NodeNIC, state nic.State, wanted nic.Spec) ([]nic.Pool, error) {
	r := resolver{state: state, spec: wanted}
	pools := r.pools(doc.Spec.Pools)
	if err := r.err(); err != nil {
		return nil, err
	}
	return pools, nil
}

// Beyond says which VFs pools select that are not there, of PFs whose number of VFs
// wanted leaves as it is. It is no fault of theirs: VFs may be made by others.
func Beyond(pools []nic.Pool, state nic.State, wanted nic.Spec) []string {
	var out []string
	for _, p := range pools {
		for _, s := range p.Select {
			pf, w := state.PF(s.PF), wanted.PF(s.PF)
			if p.IsOf(nic.PoolOfVFs) && pf != nil && (w == nil || w.VFCount == nil) && s.Indexes.Last() >= len(pf.VFs) {
				out = append(out, fmt.Sprintf("pool %s: it selects VFs up to %d of %s, which has %d", p, s.Indexes.Last(), s.PF, len(pf.VFs)))
			}
		}
	}
	return out
}

// within refuses pools that select more VFs of a PF than the document makes.
func (r *resolver) within(pools []nic.Pool) {
	for i, p := range pools {
		for _, s := range p.Select {
			w := r.spec.PF(s.PF)
			if !p.IsOf(nic.PoolOfVFs) || w == nil || w.VFCount == nil || s.Indexes.Last() < *w.VFCount {
				continue
			}
			want := "no pool of it, or VFs"
			if n := *w.VFCount; n > 0 {
				want = nic.Range{First: 0, Last: n - 1}.String() + " at most, or more VFs"
			}
			r.fail(fmt.Sprintf("spec.pools[%d]", i), "it selects VFs up to %d of %s, whose numVfs is %d: want %s", s.Indexes.Last(), s.PF, *w.VFCount, want)
		}
	}
}

// Shared says which devices of the observed node two pools have both, beside bonds
// that are wanted: "VF 2-3 of pci/0000:03:00.0". What is wrong with either is for
// Resolve to say.
func Shared(bonds []v1alpha1.Bond, a, b v1alpha1.Pool, state nic.State) []string {
	r := newResolver(bonds, state)
	r.bonds(bonds)
	var out []string
	one, two := r.pool("", a), r.pool("", b)
	for _, s := range one.Select {
		for _, o := range two.Select {
			if what := (claim{0, one, s}).shared(claim{1, two, o}, &state); what != "" {
				out = append(out, what+" of "+s.PF.String())
			}
		}
	}
	return out
}

func (r *resolver) pools(pools []v1alpha1.Pool) []nic.Pool {
	before := len(r.problems)
	out := make([]nic.Pool, 0, len(pools))
	for i, p := range pools {
		out = append(out, r.pool(fmt.Sprintf("spec.pools[%d]", i), p))
	}
	// What is wrong with a pool as a whole is said of whole pools only: one that
	// lacks a selector here was complained of already.
	if len(r.problems) > before {
		return nil
	}
	for _, p := range poolProblems(out, &r.state) {
		r.fail(fmt.Sprintf("spec.pools[%d]", p.pool), "%s", p.text)
	}
	return out
}

func (r *resolver) pool(path string, p v1alpha1.Pool) nic.Pool {
	out := nic.Pool{
		Prefix: p.Prefix, Name: p.Name, Kind: nic.PoolKind(p.Type), Driver: nic.Driver(p.Driver),
		RDMA: p.RDMA || p.Type == string(nic.PoolOfHCAs), VDPA: nic.VDPAUse(p.VDPA), VhostNet: p.VhostNet,
		Carrier: p.Carrier, NoTopology: p.ExcludeTopology, Prefer: nic.Preference(p.Prefer), CDI: p.CDI,
		Share: r.number(path+".share", p.Share, 1, maxShare, " pods"),
	}
	r.poolForm(path, p)
	if p.Filter != nil {
		out.Filter = r.filter(path+".filter", *p.Filter)
	}
	out.Select = r.picks(path, p)
	for i := range out.Select {
		if pf := r.spec.PF(out.Select[i].PF); pf != nil {
			out.Select[i].Eswitch = pf.Eswitch
		}
	}
	return out
}

// poolForm checks words, and what does not go together.
func (r *resolver) poolForm(path string, p v1alpha1.Pool) {
	o := r.object(path)
	o.word(o.at("type"), p.Type, string(nic.PoolOfVFs), string(nic.PoolOfSFs), string(nic.PoolOfHCAs))
	o.word(o.at("driver"), p.Driver, string(nic.DriverKernel), string(nic.DriverVFIO), string(nic.DriverAny))
	o.word(o.at("vdpa"), p.VDPA, string(nic.VDPAVhost), string(nic.VDPAVirtio))
	o.word(o.at("prefer"), p.Prefer, string(nic.Packed), string(nic.Spread), string(nic.NearGPU))
	if len(p.PFs) == 0 && p.Select == nil && p.Filter == nil {
		o.fail(path, "it selects nothing: want at least one PF in pfs, for example pci/0000:03:00.0, or select, or filter")
	}
	o.filled(o.at("pfs"), p.PFs == nil, len(p.PFs))
	vfs := p.Type == "" || p.Type == string(nic.PoolOfVFs)
	if p.Driver != "" && !vfs {
		o.fail(o.at("driver"), "%q of an %s, which has the kernel's always: want no driver, or type vf", p.Driver, p.Type)
	}
	if p.VDPA != "" && !vfs {
		o.fail(o.at("vdpa"), "%q of an %s: want no vdpa, or type vf", p.VDPA, p.Type)
	}
	if hca := p.Type == string(nic.PoolOfHCAs); hca && p.VhostNet {
		o.fail(o.at("vhostNet"), "it is given for an hca, which brings no interface: want it left out")
	} else if !hca && p.Share != nil {
		o.fail(o.at("share"), "%d of what one pod has for itself: want no share, or type hca", *p.Share)
	}
}

// picks finds the PFs of a pool.
func (r *resolver) picks(path string, p v1alpha1.Pool) []nic.Pick {
	out := []nic.Pick{} // a pool may have nothing to choose from, and is there with nothing
	for i, text := range p.PFs {
		picks, err := ParsePicks(text, r.state, r.spec)
		var none *NoPFError
		if err != nil && (!p.Optional || !errors.As(err, &none)) {
			r.fail(fmt.Sprintf("%s.pfs[%d]", path, i), "%v", err)
		}
		if p.Type == string(nic.PoolOfHCAs) && strings.Contains(text, "#") {
			r.fail(fmt.Sprintf("%s.pfs[%d]", path, i), "%q has a range, and a PF one RDMA device for all: want no range with type hca", text)
		}
		out = append(out, picks...)
	}
	indexes, err := nic.ParseRanges(p.Range)
	switch {
	case err != nil:
		r.fail(path+".range", "%v", err)
	case p.Range != "" && p.Select == nil:
		r.fail(path+".range", "%q without select, to which it belongs: want it behind the PF in pfs, PF#%s", p.Range, p.Range)
	case p.Range != "" && p.Type == string(nic.PoolOfHCAs):
		r.fail(path+".range", "%q, and a PF has one RDMA device for all: want no range with type hca", p.Range)
	}
	switch {
	case p.Select != nil:
		if !r.choice(path+".select", *p.Select) {
			return out
		}
		chosen := choose(*p.Select, r.state)
		if len(chosen) == 0 && !p.Optional {
			r.fail(path+".select", "it chooses no PF: want values that one has; this node has %s", describePFs(r.state))
		}
		for _, pf := range chosen {
			out = append(out, nic.Pick{PF: pf.Handle, Indexes: slices.Clone(indexes)})
		}
	case len(p.PFs) == 0 && p.Filter != nil:
		out = []nic.Pick{} // also where there is no PF yet
		for i := range r.state.PFs {
			out = append(out, nic.Pick{PF: r.state.PFs[i].Handle})
		}
	}
	return out
}

// filter checks the form of a filter. Values that nothing here has are none to
// refuse: what fits may come.
func (r *resolver) filter(path string, f v1alpha1.Filter) nic.Filter {
	out := nic.Filter{
		Vendors: f.Vendors, Devices: f.Devices, Drivers: f.Drivers, Addresses: f.Addresses,
		NUMA: f.NUMA, ACPIIndexes: f.ACPIIndexes,
	}
	r.filled(path+".vendors", f.Vendors == nil, len(f.Vendors))
	r.filled(path+".devices", f.Devices == nil, len(f.Devices))
	r.filled(path+".drivers", f.Drivers == nil, len(f.Drivers))
	r.filled(path+".addresses", f.Addresses == nil, len(f.Addresses))
	r.filled(path+".numa", f.NUMA == nil, len(f.NUMA))
	r.filled(path+".acpiIndexes", f.ACPIIndexes == nil, len(f.ACPIIndexes))
	r.word(path+".linkType", f.LinkType, linkEthernet, linkInfiniBand)
	if f.LinkType != "" {
		infiniband := f.LinkType == linkInfiniBand
		out.InfiniBand = &infiniband
	}
	if out.IsZero() {
		r.fail(path, "it is empty, which would let every device pass: want at least one of vendors, devices, drivers, addresses, linkType, numa, acpiIndexes")
	}
	for i, id := range f.Vendors {
		r.pciIDs(fmt.Sprintf("%s.vendors[%d]", path, i), id)
	}
	for i, id := range f.Devices {
		r.pciIDs(fmt.Sprintf("%s.devices[%d]", path, i), id)
	}
	for i, name := range f.Drivers {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			r.fail(fmt.Sprintf("%s.drivers[%d]", path, i), "%q: want the kernel's name of a driver, for example mlx5_core or vfio-pci", name)
		}
	}
	for i, a := range f.Addresses {
		if !nic.IsPCIAddress(a) && !nic.IsSFDevice(a) {
			r.fail(fmt.Sprintf("%s.addresses[%d]", path, i), "%v, or the name of an SF's device, for example mlx5_core.sf.4", notPCI(a))
		}
	}
	for i, n := range f.NUMA {
		if n < 0 {
			r.fail(fmt.Sprintf("%s.numa[%d]", path, i), "%d: want the number of a NUMA node, 0 or more", n)
		}
	}
	for i, n := range f.ACPIIndexes {
		if n < 1 {
			r.fail(fmt.Sprintf("%s.acpiIndexes[%d]", path, i), "%d: want the number that firmware gives to a built-in PF, 1 or more", n)
		}
	}
	return out
}

// pciIDs is pciID of a list, in which none may be left out.
func (f *form) pciIDs(path, id string) {
	f.pciID(path, cmp.Or(id, `""`))
}

// ParsePicks reads PF or PF#RANGES, for example 0000:03:00.0#0-3,7, where PF is a
// PCI address, a devlink handle or the name of an uplink netdev. The name of a
// bond, wanted or there, stands for each of its PFs, and the ranges are of each:
// under a bond the ports are one switch, so their VFs are alike.
//
// An address or handle that no PF has is kept, and matches nothing until the PF
// is there. A netdev name must be known now, since it is no identity that could be
// kept.
func ParsePicks(text string, state nic.State, wanted nic.Spec) ([]nic.Pick, error) {
	name, ranges, some := strings.Cut(text, "#")
	if some && ranges == "" {
		return nil, fmt.Errorf("%q names no VF after the #: want PF#RANGES, for example 0000:03:00.0#0-3,7, or the PF alone for all", text)
	}
	indexes, err := nic.ParseRanges(ranges)
	if err != nil {
		return nil, err
	}
	pf, err := FindPF(state, name)
	var none *NoPFError
	switch {
	case err == nil:
		return []nic.Pick{{PF: pf.Handle, Indexes: indexes}}, nil
	case !errors.As(err, &none):
		return nil, err
	case !none.Handle.IsZero():
		return []nic.Pick{{PF: none.Handle, Indexes: indexes}}, nil
	}
	members, bonds := bondMembers(name, state, wanted)
	if members == nil && len(bonds) > 0 {
		return nil, fmt.Errorf("%w; or the name of a bond: %s", err, strings.Join(bonds, ", "))
	}
	if members == nil {
		return nil, err
	}
	var out []nic.Pick
	for _, h := range members {
		out = append(out, nic.Pick{PF: h, Indexes: slices.Clone(indexes)})
	}
	return out, nil
}

// bondMembers returns the PFs of the bond of that name: as it is wanted, else as
// it is; nil if there is none with PFs. bonds is the names that there are.
func bondMembers(name string, state nic.State, wanted nic.Spec) (members []nic.Handle, bonds []string) {
	for _, b := range wanted.Bonds {
		bonds = append(bonds, b.Name)
		if b.Name == name {
			return b.Members, nil
		}
	}
	for _, b := range state.Bonds {
		if len(b.Members) == 0 {
			continue
		}
		if !slices.Contains(bonds, b.Name) {
			bonds = append(bonds, b.Name)
		}
		if b.Name == name {
			return b.Members, nil
		}
	}
	return nil, bonds
}
