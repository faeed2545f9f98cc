package convert

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// pool is the pool of a policy's resource.
func (s *set) pool(by *nodePolicy, picks []pick) v1alpha1.Pool {
	t := by.pool
	out := v1alpha1.Pool{
		Name: t.resource, Prefix: s.operatorPrefix(), Optional: true, RDMA: t.rdma, VDPA: t.vdpa,
		VhostNet: t.vhostNet, ExcludeTopology: t.excludeTopology,
	}
	if t.driver != kernelDriver {
		out.Driver = t.driver
	}
	var selects []pick
	for _, p := range picks {
		if p.choice.pf == "" {
			selects = append(selects, p)
			continue
		}
		out.PFs = append(out.PFs, portRange{p.choice.pf, p.vfs}.String())
	}
	if len(selects) == 0 {
		return out
	}
	out.Select, out.Range = clone(*selects[0].choice.choose), selects[0].vfs.String()
	for _, p := range selects[1:] {
		if !addTo(out.Select, *p.choice.choose) || p.vfs.String() != out.Range {
			by.spec.refuse("nicSelector", "the resource %s takes VFs of PFs that are chosen by different selectors, or different VFs of each, which a pool cannot: nearest is rootDevices or pfNames alone in nicSelector, or a resource for each", t.resource)
		}
	}
	return out
}

func clone(s v1alpha1.Select) *v1alpha1.Select {
	s.PFNames, s.Addresses = slices.Clone(s.PFNames), slices.Clone(s.Addresses)
	return &s
}

// addTo widens a selector by what more chooses, and says whether the two can be
// told by one: they differ in the names of PFs or in their addresses alone.
func addTo(s *v1alpha1.Select, more v1alpha1.Select) bool {
	if s.Vendor != more.Vendor || s.Device != more.Device || s.LinkType != more.LinkType {
		return false
	}
	names, addresses := slices.Equal(s.PFNames, more.PFNames), slices.Equal(s.Addresses, more.Addresses)
	switch {
	case names && addresses:
	case addresses && len(s.PFNames) > 0 && len(more.PFNames) > 0:
		s.PFNames = append(s.PFNames, more.PFNames...)
	case names && len(s.Addresses) > 0 && len(more.Addresses) > 0:
		s.Addresses = append(s.Addresses, more.Addresses...)
	default:
		return false
	}
	return true
}

// resourcePools turns the resources of a configuration into pools that need no
// look at the node. What only a look can say is refused.
func (s *set) resourcePools(c *config) []v1alpha1.Pool {
	var out []v1alpha1.Pool
	var before []dealt
	for _, r := range c.resources {
		if len(r.selectors) == 0 {
			continue // it was refused
		}
		sel, ok := oneSelector(r.selectors)
		if !ok {
			r.o.refuse("selectors", "they differ in more than one member, and a pool has one selector: nearest is a resource for each, or sluice agent --sriov-config, which takes them as they are")
			continue
		}
		left, some := s.after(before, r, sel)
		before = append(before, dealt{r, sel})
		if !some && !s.refused() {
			r.o.note(Left, "selectors", "every device that it chooses goes to a resource before it, and the plugin offers none of it")
		}
		if some {
			out = append(out, left.pool(r))
		}
	}
	return out
}

// dealt is a resource with what it chooses.
type dealt struct {
	r   *resource
	sel selector
}

// after is what sel chooses and nobody before; false if that is nothing. Where it
// cannot be said without a look at the devices, a note says so.
func (s *set) after(before []dealt, r *resource, sel selector) (selector, bool) {
	var first []string
	for _, d := range before {
		if d.r.sf != r.sf || !mayShare(d.sel, sel) {
			continue
		}
		if !d.sel.takesWhole(sel) {
			first = append(first, d.r.String())
			continue
		}
		some := len(d.sel.ports) > 0 || len(d.sel.roots) > 0 // else it takes all
		if len(d.sel.ports) > 0 {
			sel.ports, some = without(sel.ports, d.sel.ports)
		}
		if len(d.sel.roots) > 0 {
			sel.roots, some = without(sel.roots, d.sel.roots)
		}
		if !some {
			return sel, false
		}
	}
	if len(first) > 0 && !s.refused() {
		r.o.note(Changed, "selectors", "a device that also fits %s went there, which comes first; here it is refused on the node: want selectors that nothing fits twice, or sluice agent --sriov-config, which deals devices out as before", either(first))
	}
	return sel, true
}

// takesWhole says that s takes all of o's devices that are on ports of s, be it on
// all: what is not of ports is no narrower.
func (s selector) takesWhole(o selector) bool {
	wider := func(a, b []string) bool { return len(a) == 0 || slices.Equal(a, b) }
	return wider(s.vendors, o.vendors) && wider(s.devices, o.devices) && wider(s.drivers, o.drivers) && wider(s.addresses, o.addresses) &&
		(len(s.acpi) == 0 || slices.Equal(s.acpi, o.acpi)) && (s.linkType == "" || s.linkType == o.linkType) &&
		(!s.rdma || o.rdma) && (s.vdpa == "" || s.vdpa == o.vdpa) &&
		(len(s.ports) == 0 || len(o.ports) > 0 && len(s.roots) == 0) && (len(s.roots) == 0 || len(o.roots) > 0 && len(s.ports) == 0)
}

// without is list without what is in taken; false if nothing is left.
func without(list, taken []portRange) ([]portRange, bool) {
	var out []portRange
	for _, p := range list {
		vfs, some := p.vfs, true
		for _, t := range taken {
			if t.port != p.port || !some {
				continue
			}
			left := vfs.All().Without(t.vfs.All())
			vfs, some = left, len(left) > 0
		}
		if some {
			out = append(out, portRange{p.port, vfs})
		}
	}
	return out, len(out) > 0
}

// oneSelector joins selectors that differ in one member at most.
func oneSelector(list []selector) (selector, bool) {
	out := list[0]
	for _, s := range list[1:] {
		if out.rdma != s.rdma || out.vhostNet != s.vhostNet || out.vdpa != s.vdpa {
			return out, false
		}
		var differ int
		out.vendors = either2(out.vendors, s.vendors, &differ)
		out.devices = either2(out.devices, s.devices, &differ)
		out.drivers = either2(out.drivers, s.drivers, &differ)
		out.addresses = either2(out.addresses, s.addresses, &differ)
		out.acpi = either2(out.acpi, s.acpi, &differ)
		out.ports = eitherPorts(out.ports, s.ports, &differ)
		out.roots = eitherPorts(out.roots, s.roots, &differ)
		if out.linkType != s.linkType {
			out.linkType = "" // any
			differ++
		}
		if differ > 1 {
			return out, false
		}
	}
	return out, true
}

// either2 is the values of a or b, where none is any; differ counts.
func either2[T comparable](a, b []T, differ *int) []T {
	if slices.Equal(a, b) {
		return a
	}
	*differ++
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	out := slices.Clone(a)
	for _, v := range b {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func eitherPorts(a, b []portRange, differ *int) []portRange {
	same := func(p, q portRange) bool { return p.String() == q.String() }
	if slices.EqualFunc(a, b, same) {
		return a
	}
	*differ++
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	out := slices.Clone(a)
	for _, p := range b {
		out = join(out, p)
	}
	return out
}

// mayShare says whether some device could fit both.
func mayShare(a, b selector) bool {
	if a.filter().Apart(b.filter()) || portsApart(a.ports, b.ports) || portsApart(a.roots, b.roots) {
		return false
	}
	return a.vdpa == "" || b.vdpa == "" || a.vdpa == b.vdpa
}

func portsApart(a, b []portRange) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	for _, p := range a {
		for _, q := range b {
			if _, shared := p.vfs.Shared(q.vfs); p.port == q.port && shared {
				return false
			}
		}
	}
	return true
}

// filter is the part of a selector that each device is asked for by itself.
func (s selector) filter() nic.Filter {
	f := nic.Filter{Vendors: s.vendors, Devices: s.devices, Drivers: s.drivers, Addresses: s.addresses, ACPIIndexes: s.acpi}
	if s.linkType != "" {
		infiniband := s.linkType == "infiniband"
		f.InfiniBand = &infiniband
	}
	return f
}

// pool is the pool of a resource with that selector.
func (s selector) pool(r *resource) v1alpha1.Pool {
	out := v1alpha1.Pool{
		Name: r.name, Prefix: r.prefix, Optional: len(s.ports) > 0, RDMA: s.rdma, VDPA: s.vdpa, VhostNet: s.vhostNet,
		ExcludeTopology: r.excludeTopology,
	}
	if r.sf {
		out.Type = "sf"
	} else if len(s.drivers) == 0 {
		out.Driver = "any"
	}
	if !s.filter().IsZero() {
		out.Filter = &v1alpha1.Filter{
			Vendors: s.vendors, Devices: s.devices, Drivers: s.drivers, Addresses: s.addresses,
			LinkType: s.linkType, ACPIIndexes: s.acpi,
		}
	}
	s.choosePFs(r, &out)
	if out.Filter == nil && out.PFs == nil && out.Select == nil {
		s.o.refuseSelf("a pool wants more than that: nearest is vendors beside it, or sluice agent --sriov-config, which takes it as it is")
	}
	return out
}

func (s selector) choosePFs(r *resource, out *v1alpha1.Pool) {
	ranged := func(p portRange) bool { return len(p.vfs) > 0 }
	switch {
	case len(s.ports) == 0:
		out.PFs = texts(s.roots)
	case len(s.roots) == 0:
		out.PFs = texts(s.ports)
	case slices.ContainsFunc(s.ports, ranged) || slices.ContainsFunc(s.roots, ranged):
		s.o.refuse("rootDevices", "beside pfNames, with ranges, a pool cannot have it: nearest is one of the two, or sluice agent --sriov-config, which takes it as it is")
	default:
		out.Select = &v1alpha1.Select{}
		for _, p := range s.ports {
			out.Select.PFNames = append(out.Select.PFNames, p.port)
		}
		for _, p := range s.roots {
			out.Select.Addresses = append(out.Select.Addresses, p.port)
		}
	}
}

func texts(list []portRange) []string {
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprint(p))
	}
	return out
}
