package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// port is what several policies want of the same PFs.
type port struct {
	choice choice
	by     *nodePolicy // of the highest priority
	numVFs int
	mtu    int
	groups []group // by their first VF, without overlap
}

// group is what one policy wants of some VFs of a port.
type group struct {
	by  *nodePolicy
	vfs nic.Ranges
}

// merge puts policies of the same nodes together as their operator does: from the
// lowest priority to the highest, by name among equals.
func (s *set) merge(policies []*nodePolicy) []*port {
	policies = slices.Clone(policies)
	slices.SortStableFunc(policies, func(a, b *nodePolicy) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), strings.Compare(a.name, b.name))
	})
	var ports []*port
	for _, p := range policies {
		for _, c := range p.choices {
			i := slices.IndexFunc(ports, func(q *port) bool { return q.choice.key() == c.key() })
			if i < 0 {
				ports = append(ports, &port{choice: c})
				i = len(ports) - 1
			}
			s.override(ports[i], p, c)
		}
	}
	s.checkNames(ports)
	return ports
}

// override lets p have its say over what policies of lower priority, or of the same,
// want of the port.
func (s *set) override(q *port, p *nodePolicy, c choice) {
	mine := group{by: p, vfs: c.vfs}
	if len(mine.vfs) == 0 && p.numVFs > 0 {
		mine.vfs = nic.Ranges{{First: 0, Last: p.numVFs - 1}}
	}
	groups, kept := []group{mine}, false
	for _, g := range q.groups {
		shared, overlap := g.vfs.Shared(mine.vfs)
		switch {
		case overlap && g.by.priority == p.priority:
			p.clash(g.by, fmt.Sprintf("both want VF %s of %s at the same priority", shared, q.choice.shown()))
		case overlap:
			g.by.left(fmt.Sprintf("it is not heard for %s: %s, of higher priority, has VF %s there", q.choice.shown(), p.spec.who, shared))
		case g.by.pool.resource == p.pool.resource:
			p.clash(g.by, fmt.Sprintf("both give VFs of %s to the resource %s, of which their operator keeps one policy's", q.choice.shown(), p.pool.resource))
		default:
			groups, kept = append(groups, g), true
		}
	}
	// Of what is said of the whole PF, the higher is heard, but for the numbers of
	// policies that share it: there the larger counts.
	shares := q.by != nil && (kept || q.by.priority == p.priority)
	if !shares {
		q.numVFs, q.mtu = 0, 0
	}
	q.numVFs, q.mtu = max(q.numVFs, p.numVFs), max(q.mtu, p.mtu)
	if q.by != nil && q.by.eswitch != p.eswitch {
		q.by.left(fmt.Sprintf("eSwitchMode %s of %s is not heard: %s says %s", q.by.eswitch, q.choice.shown(), p.spec.who, p.eswitch))
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.vfs[0].First, b.vfs[0].First) })
	q.by, q.groups = p, groups
}

// clash refuses two policies that cannot both be honoured, at both of them.
func (p *nodePolicy) clash(other *nodePolicy, what string) {
	for _, pair := range [][2]*nodePolicy{{p, other}, {other, p}} {
		at := pair[0].spec
		at.report.add(Note{Refused, at.who, at.at("nicSelector"), "", fmt.Sprintf("with %s: %s: want ranges apart, or one policy", pair[1].spec.who, what)})
	}
}

func (p *nodePolicy) left(what string) {
	p.spec.report.add(Note{Left, p.spec.who, p.spec.at("nicSelector"), "", what + ", as with their operator"})
}

// shown names a choice to people.
func (c choice) shown() string {
	if c.pf != "" {
		return c.pf
	}
	return "the PFs " + c.key()
}

// checkNames refuses a PF that is named alone by one policy and with more by
// another, and warns where names go before selectors.
func (s *set) checkNames(ports []*port) {
	first := map[string]*port{}
	for _, q := range ports {
		for _, name := range q.choice.names() {
			other := first[name]
			if other == nil {
				first[name] = q
				continue
			}
			q.by.clash(other.by, fmt.Sprintf("both choose %s, one with more in nicSelector than the other", name))
		}
	}
	for _, q := range ports {
		if !q.choice.broad() {
			continue
		}
		for _, named := range ports {
			if named.choice.pf == "" {
				continue
			}
			if named.by.priority > q.by.priority {
				q.by.clash(named.by, fmt.Sprintf("%s is named by the one of lower priority, and names win over selectors here", named.choice.pf))
				continue
			}
			at := q.by.spec
			at.report.add(Note{Changed, at.who, at.at("nicSelector"), "", fmt.Sprintf("it passes over %s, which %s names: names win over selectors", named.choice.pf, named.by.spec.who)})
		}
	}
}

func (c choice) names() []string {
	if c.pf != "" {
		return []string{c.pf}
	}
	return slices.Concat(c.choose.PFNames, c.choose.Addresses)
}

// pf is the port's entry in a document.
func (q *port) pf() v1alpha1.PF {
	out := v1alpha1.PF{PF: q.choice.pf, Select: q.choice.choose, Optional: true}
	if !q.by.external {
		out.Eswitch, out.NumVFs = q.by.eswitch, &q.numVFs
		if q.by.eswitch == "switchdev" {
			out.HWTCOffload = new(true)
		}
		if q.mtu > 0 {
			out.MTU = &q.mtu
		}
	}
	for _, g := range q.groups {
		out.VFGroups = append(out.VFGroups, q.vfGroup(g))
	}
	return out
}

func (q *port) vfGroup(g group) v1alpha1.VFGroup {
	p := g.by
	out := v1alpha1.VFGroup{Range: g.vfs.String(), Driver: p.pool.driver, GUID: p.guid, VDPA: p.vdpa}
	if p.mtu == 0 {
		return out
	}
	if p.pool.driver == vfioDriver && q.by.eswitch == "legacy" {
		p.spec.note(Changed, "mtu", "the PF gets it; a VF bound to vfio-pci in legacy mode has no netdev and no representor that could")
		return out
	}
	out.MTU = &p.mtu
	return out
}

// pools gathers what the ports' groups offer, by resource in the order of their
// policies' priorities.
func (s *set) pools(ports []*port) []v1alpha1.Pool {
	type offer struct {
		by    *nodePolicy
		picks []pick
	}
	var offers []*offer
	for _, q := range ports {
		for _, g := range q.groups {
			i := slices.IndexFunc(offers, func(o *offer) bool { return o.by.pool.resource == g.by.pool.resource })
			if i < 0 {
				offers = append(offers, &offer{by: g.by})
				i = len(offers) - 1
			}
			if o := offers[i]; o.by.pool != g.by.pool {
				g.by.clash(o.by, fmt.Sprintf("they say different things of the resource %s (deviceType, isRdma, needVhostNet, vdpaType, excludeTopology)", g.by.pool.resource))
			}
			offers[i].picks = append(offers[i].picks, pick{q.choice, g.vfs})
		}
	}
	var out []v1alpha1.Pool
	for _, o := range offers {
		out = append(out, s.pool(o.by, o.picks))
	}
	return out
}

// pick is VFs of a choice that a pool offers.
type pick struct {
	choice choice
	vfs    nic.Ranges
}
