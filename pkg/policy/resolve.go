package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// Resolve turns the document into a Spec for the observed node. It answers all
// problems of the document at once, each with its path, the wrong value and the
// right form.
//
// It judges the form alone: words, units, bounds that hold on any device, names,
// overlaps and counts. What a device or a mode cannot do is for plan.Check.
func Resolve(doc *v1alpha1.NodeNIC, state nic.State) (nic.Spec, error) {
	r := newResolver(doc.Spec.Bonds, state)
	r.pfs(doc.Spec.PFs)
	r.bonds(doc.Spec.Bonds)
	if rdma := doc.Spec.RDMA; rdma != nil {
		r.word("spec.rdma.netns", rdma.Netns, string(nic.RDMAShared), string(nic.RDMAExclusive))
		r.spec.RDMA = nic.RDMAMode(rdma.Netns)
	}
	r.within(r.pools(doc.Spec.Pools))
	r.conduct(doc.Spec)
	if err := r.err(); err != nil {
		return nic.Spec{}, err
	}
	return r.spec, nil
}

func newResolver(bonds []v1alpha1.Bond, state nic.State) *resolver {
	return &resolver{state: state, named: map[nic.Handle]int{}, selected: map[nic.Handle]int{}, bonded: bonded(bonds, state)}
}

type resolver struct {
	form
	state nic.State
	spec  nic.Spec

	// The entries of spec.pfs that have a PF, by its name or by a selector.
	named, selected map[nic.Handle]int

	// bonded is the PFs that are in a bond, or are to be.
	bonded map[nic.Handle]bool
}

// Entries answers which of pfs, by index, has each PF of the node: the one that
// names it, or else the one whose selector chooses it. The error has all that is
// wrong with names and selectors, each with its path.
func Entries(pfs []v1alpha1.PF, state nic.State) (named, selected map[nic.Handle]int, err error) {
	r := resolver{state: state, named: map[nic.Handle]int{}, selected: map[nic.Handle]int{}}
	r.choices(pfs)
	return r.named, r.selected, r.err()
}

// choices returns the PFs of each entry.
func (r *resolver) choices(entries []v1alpha1.PF) [][]*nic.PF {
	chosen := make([][]*nic.PF, len(entries))
	for i, e := range entries {
		if e.Select == nil {
			chosen[i] = r.byName(i, e)
		}
	}
	// Names first: selectors pass over what an entry names, be it a later one.
	for i, e := range entries {
		if e.Select != nil {
			chosen[i] = r.bySelector(i, e)
		}
	}
	return chosen
}

func (r *resolver) pfs(entries []v1alpha1.PF) {
	chosen := r.choices(entries)
	for i := range entries {
		w := r.wish(fmt.Sprintf("spec.pfs[%d]", i), &entries[i])
		for _, pf := range chosen[i] {
			r.spec.PFs = append(r.spec.PFs, r.forPF(w, pf))
		}
	}
}

func (r *resolver) byName(i int, e v1alpha1.PF) []*nic.PF {
	path := fmt.Sprintf("spec.pfs[%d].pf", i)
	pf, err := FindPF(r.state, e.PF)
	var none *NoPFError
	switch {
	case errors.As(err, &none) && e.Optional:
		return nil
	case e.PF == "":
		r.fail(path, "%v; or select in its place", err)
		return nil
	case err != nil:
		r.fail(path, "%v", err)
		return nil
	}
	if first, twice := r.named[pf.Handle]; twice {
		r.fail(path, "%q is %s, which spec.pfs[%d] names already: want one entry for each PF", e.PF, pf.Handle, first)
		return nil
	}
	r.named[pf.Handle] = i
	return []*nic.PF{pf}
}

func (r *resolver) bySelector(i int, e v1alpha1.PF) []*nic.PF {
	path := fmt.Sprintf("spec.pfs[%d].select", i)
	if e.PF != "" {
		r.fail(path, "it stands beside pf %q: want one of them", e.PF)
		return nil
	}
	if !r.choice(path, *e.Select) {
		return nil
	}
	all := choose(*e.Select, r.state)
	if len(all) == 0 && !e.Optional {
		r.fail(path, "it chooses no PF: want values that one has, or optional: true; this node has %s", describePFs(r.state))
	}
	var mine []*nic.PF
	for _, pf := range all {
		if _, named := r.named[pf.Handle]; named {
			continue
		}
		if first, twice := r.selected[pf.Handle]; twice {
			r.fail(path, "it chooses %s, and so does spec.pfs[%d].select: want selectors without a PF in common, or an entry that names this one", label(pf), first)
			continue
		}
		r.selected[pf.Handle] = i
		mine = append(mine, pf)
	}
	return mine
}

// describePFs is listPFs with what selectors compare.
func describePFs(state nic.State) string {
	if len(state.PFs) == 0 {
		return listPFs(state)
	}
	var out []string
	for i := range state.PFs {
		pf := &state.PFs[i]
		out = append(out, fmt.Sprintf("%s: vendor %s, device %s, driver %s, NUMA node %d", label(pf), pf.Vendor, pf.Device, cmp.Or(pf.Driver, "none"), pf.NUMA))
	}
	return strings.Join(out, "; ")
}

// wish is what an entry of spec.pfs wants whatever the PF.
type wish struct {
	path     string
	entry    *v1alpha1.PF
	settings nic.Settings
	vfs      []vfGroup
	sfs      []sfGroup
}

// none is the word for no bond.
const none = "none"

func (r *resolver) wish(path string, e *v1alpha1.PF) *wish {
	o := r.object(path)
	o.word(o.at("eswitch"), e.Eswitch, string(nic.Legacy), string(nic.Switchdev))
	o.oneOf(nic.InlineMode, "inlineMode", e.InlineMode, "none", "link", "network", "transport")
	o.oneOf(nic.EncapMode, "encapMode", e.EncapMode, "none", "basic")
	o.oneOf(nic.SteeringMode, "flowSteering", e.FlowSteering, "dmfs", "smfs", "hmfs")
	o.onOff(nic.TCOffload, e.HWTCOffload)
	o.count(nic.LinkMTU, "mtu", e.MTU, minMTU, maxMTU, " bytes")
	o.oneOf(nic.AdminLink, "link", e.Link, "up", "down")
	o.onOff(nic.RoCE, e.RoCE)
	o.netdev(e.NetdevSettings)
	if e.Bond != "" && e.Bond != none {
		o.fail(o.at("bond"), "%q: want none, or no bond here: the members of one are listed in spec.bonds[].pfs", e.Bond)
	}
	w := &wish{path: path, entry: e, settings: o.out}
	w.vfs = r.vfGroups(path, e.VFGroups)
	if e.SFs != nil {
		w.sfs = r.sfGroups(path, *e.SFs)
	}
	return w
}

// forPF is what w wants of pf.
func (r *resolver) forPF(w *wish, pf *nic.PF) nic.PFSpec {
	_, named := r.named[pf.Handle]
	spec := nic.PFSpec{
		Handle: pf.Handle, Eswitch: nic.Eswitch(w.entry.Eswitch), VFCount: w.entry.NumVFs, Named: named,
		Settings: maps.Clone(w.settings),
	}
	if w.entry.Bond == none {
		out := ""
		spec.Bond = &out
	}
	count := len(pf.VFs)
	if n := w.entry.NumVFs; n != nil {
		count = *n
		if count < 0 || count > pf.TotalVFs {
			r.fail(w.path+".numVfs", "%d is more or less than %s can have: want 0 to %d", count, pf.Handle, pf.TotalVFs)
			return spec
		}
	}
	mode := spec.Eswitch
	if mode == "" {
		mode = pf.Eswitch
	}
	for _, g := range w.vfs {
		r.addVFs(&spec, g, pf, count, mode)
	}
	if w.entry.SFs != nil {
		sfs := []nic.SFSpec{}
		for _, g := range w.sfs {
			sfs = append(sfs, r.specsOf(g, pf)...)
		}
		slices.SortFunc(sfs, func(a, b nic.SFSpec) int { return a.Num - b.Num })
		spec.SFs = &sfs
	}
	return spec
}
