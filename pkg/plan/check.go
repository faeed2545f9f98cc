package plan

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// The MTUs that can be wished for: ETH_MIN_MTU, and the most that a ConnectX
// takes (10 kB on the wire, mlx5_core's max_mtu). A device that takes less
// refuses by itself.
const (
	minMTU = 68
	maxMTU = 9978
)

// Problem is one reason why a spec is refused before anything is touched.
type Problem struct {
	Object string `json:"object"` // "pci/0000:03:00.0", "pci/0000:03:00.0 vf 3"
	Wrong  string `json:"wrong"`  // what is wrong, with the value
	Want   string `json:"want"`   // the right form, or what to do
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s: %s; want %s", p.Object, p.Wrong, p.Want)
}

// Check lists everything in spec that cannot or must not be done on state, none
// if it can be begun: PFs that are not there or named twice, counts and entries
// over the limit, modes, drivers, addresses and MTUs that are none or do not go
// together, and steps that would take a VF from somebody who uses it. What only
// the driver knows (firmware, ADQ, traps) shows when it is tried.
//
// The spec may be as it was given or completed.
func Check(spec nic.Spec, state nic.State) []Problem {
	var c checker
	seen := map[nic.Handle]bool{}
	for _, want := range spec.PFs {
		switch h := want.Handle; {
		case h.IsZero():
			c.add("the spec", "an entry names no PF", "a handle, for example pci/0000:03:00.0")
		case seen[h]:
			c.add(h.String(), "is named twice", "one entry a PF")
		default:
			seen[h] = true
			c.entry(want, spec, state)
		}
	}
	for _, want := range spec.Bonds {
		c.bond(want, spec, state)
	}
	if len(c.problems) == 0 {
		c.shaken(spec, state)
	}
	c.rdma(spec, state)
	// A plan of nonsense says nothing.
	if len(c.problems) == 0 {
		for _, scope := range Scopes(Complete(spec, state)) {
			c.scope(scope, spec, state)
		}
	}
	return c.problems
}

type checker struct{ problems []Problem }

func (c *checker) add(object, wrong, want string) {
	c.problems = append(c.problems, Problem{object, wrong, want})
}

func (c *checker) entry(want nic.PFSpec, spec nic.Spec, state nic.State) {
	pf := state.PF(want.Handle)
	if pf == nil {
		c.unknown(want.Handle, state)
		return
	}
	c.pf(want, *pf)
	g := goalIn(spec, goalIn(spec, want, *pf, state).complete(), *pf, state)
	c.portSettings(g, want)
	for i := range want.VFs {
		if i < g.endCount {
			c.vf(g, i, want.VFs[i])
		}
	}
	c.subfunctions(g, want)
}

func (c *checker) unknown(h nic.Handle, state nic.State) {
	if id, vf := state.VFAt(h.Name); vf != nil && h.Bus == "pci" {
		c.add(h.String(), fmt.Sprintf("is no PF but VF %d of %s", id.Index, id.PF), "the PF, "+id.PF.String())
		return
	}
	var have []string
	for _, p := range state.PFs {
		have = append(have, p.Handle.String())
	}
	want := "a PF of this node, and it has none"
	if len(have) > 0 {
		want = "one of " + strings.Join(have, ", ")
	}
	c.add(h.String(), "there is no such PF", want)
}

func (c *checker) pf(want nic.PFSpec, pf nic.PF) {
	h := pf.Handle.String()
	switch {
	case want.Eswitch == "" || want.Eswitch == nic.Legacy && pf.Eswitch == "":
	case want.Eswitch != nic.Legacy && want.Eswitch != nic.Switchdev:
		c.add(h, fmt.Sprintf("eswitch mode %q is none", want.Eswitch), "legacy or switchdev")
	case pf.Eswitch == "":
		c.add(h, fmt.Sprintf("eswitch mode %q, but %s has no eswitch that can be set", want.Eswitch, driverOr(pf)),
			"no mode, or legacy")
	}
	c.count(want, pf)
	if want.Autoprobe != nil && pf.TotalVFs == 0 {
		c.add(h, "autoprobe is wished for, but the device has no SR-IOV", "no autoprobe")
	}
	count := len(pf.VFs)
	if want.VFCount != nil {
		count = *want.VFCount
	}
	if n := len(want.VFs); n > max(count, 0) {
		c.add(h, fmt.Sprintf("has an entry for VF %d", n-1), vfRange(count))
	}
}

func (c *checker) count(want nic.PFSpec, pf nic.PF) {
	if want.VFCount == nil {
		return
	}
	n, h := *want.VFCount, pf.Handle.String()
	switch {
	case n < 0:
		c.add(h, fmt.Sprintf("VF count %d is negative", n), countRange(pf))
	case n > pf.TotalVFs && pf.TotalVFs == 0:
		c.add(h, fmt.Sprintf("VF count %d, but the device has no SR-IOV", n), "0, or SR-IOV enabled in its firmware")
	case n > pf.TotalVFs:
		c.add(h, fmt.Sprintf("VF count %d is over the card's limit", n), countRange(pf))
	case n != len(pf.VFs) && pf.Driver == "":
		c.add(h, fmt.Sprintf("VF count %d, but the PF has no driver, which is what makes VFs", n), "a PF that is bound")
	}
}

func driverOr(pf nic.PF) string {
	if pf.Driver == "" {
		return "the PF, which has no driver,"
	}
	return pf.Driver
}

func countRange(pf nic.PF) string {
	return fmt.Sprintf("0 to %d (sriov_totalvfs)", pf.TotalVFs)
}

func vfRange(count int) string {
	if count <= 0 {
		return "no entries, as there are no VFs"
	}
	return fmt.Sprintf("VFs 0 to %d, as the VF count is %d", count-1, count)
}

// vf checks the entry as it was given; g has the completed one.
func (c *checker) vf(g *goal, i int, w nic.VFSpec) {
	id := g.id(i).String()
	if d := w.Driver; !slices.Contains([]nic.Driver{"", nic.DriverNone, nic.DriverKernel, nic.DriverVFIO}, d) {
		c.add(id, fmt.Sprintf("driver %q is none that can be wished for", d), "none, kernel or vfio-pci")
		return
	}
	if w.MAC != nil && !w.MAC.IsZero() && !w.MAC.IsUnicast() {
		c.add(id, fmt.Sprintf("MAC %s is a multicast address", w.MAC), "a unicast address: the first octet even")
	}
	if w.LinkMAC != nil && !w.LinkMAC.IsUnicast() {
		c.add(id, fmt.Sprintf("netdev MAC %s is zero or a multicast address", w.LinkMAC), "a unicast address: the first octet even")
	}
	c.mtu(id, "MTU", w.MTU)
	c.mtu(id, "representor MTU", w.RepMTU)
	if w.RepMTU != 0 && g.endMode != nic.Switchdev {
		c.add(id, fmt.Sprintf("representor MTU %d, but there are no representors in %s mode", w.RepMTU, modeName(g.endMode)),
			"no representor MTU, or eswitch mode switchdev")
	}
	if d := g.driverAtEnd(i); d != nic.DriverKernel && (w.MTU != 0 || w.LinkMAC != nil) {
		c.add(id, fmt.Sprintf("MTU or netdev MAC, but with driver %s the VF has no netdev", d),
			"driver kernel, or neither of them")
	}
	if g.setsMAC(i) && g.endMode != nic.Switchdev && !g.pf.Uplink.Exists() {
		c.add(id, fmt.Sprintf("MAC %s, which is set through the PF's netdev in %s mode, and there is none here", w.MAC, modeName(g.endMode)),
			"a PF with its netdev in the host's namespace")
	}
	admin := w.MAC
	if admin == nil && i < len(g.pf.VFs) && g.endCount == len(g.pf.VFs) {
		admin = &g.pf.VFs[i].MAC
	}
	if w.LinkMAC != nil && !g.prof.mayChoose(admin, *w.LinkMAC) {
		c.add(id, fmt.Sprintf("netdev MAC %s beside MAC %s, from which %s lets no VF depart", w.LinkMAC, admin, driverOr(g.pf)),
			"the address as MAC")
	}
	c.vfSettings(g, i, w)
}

func (c *checker) mtu(object, what string, mtu int) {
	if mtu != 0 && (mtu < minMTU || mtu > maxMTU) {
		c.add(object, fmt.Sprintf("%s %d", what, mtu), fmt.Sprintf("%d to %d bytes", minMTU, maxMTU))
	}
}

func modeName(m nic.Eswitch) string {
	if m == "" {
		return string(nic.Legacy)
	}
	return string(m)
}

// setsMAC says whether the administrative address of VF i is going to be set.
func (g *goal) setsMAC(i int) bool {
	if i < len(g.pf.VFs) && !g.removes() {
		return g.wantsMAC(i)
	}
	m := g.want.VF(i).MAC
	return m != nil && !m.IsZero()
}

// driverAtEnd is what VF i is bound to when the completed spec is reached.
func (g *goal) driverAtEnd(i int) nic.Driver {
	switch w := g.want.VF(i); {
	case w.Driver != "":
		return w.Driver
	case i < len(g.pf.VFs) && !g.removes():
		return nic.DriverOf(g.pf.VFs[i].Driver)
	case g.autoprobeForNew():
		return nic.DriverKernel
	}
	return nic.DriverNone
}

// scope walks through the plan of a scope. It names each VF and SF that is taken
// from somebody, with the first step that does it, and each PF that carries the
// host's own traffic and was not named.
func (c *checker) scope(scope, spec nic.Spec, state nic.State) {
	state = part(state, scope)
	var p Plan
	if err := p.unfold(scope, state.Clone()); err != nil {
		c.add(Key(scope).String(), err.Error(), "a plan that ends (this is a fault of sluice)")
		return
	}
	c.problems = append(c.problems, Taken(p, state)...)
	if len(p.Steps) > 0 {
		c.protect(scope, spec, state, p.Steps[0])
	}
}

// Taken names each VF and SF that the steps of p, begun in state, take from
// somebody who uses it, with the first step that does.
func Taken(p Plan, state nic.State) []Problem {
	var c checker
	each(p, state, func(s Step, u Use) {
		c.add(u.Object, fmt.Sprintf("is in use (%s), and to %q would take it away", u.Why, s), "it free first")
	})
	return c.problems
}

// Uses lists what Taken names, and why it is in use.
func Uses(p Plan, state nic.State) []Use {
	var out []Use
	each(p, state, func(_ Step, u Use) { out = append(out, u) })
	return out
}

// each calls f for everything in use that p takes, once, with the first step that
// does.
func each(p Plan, state nic.State, f func(Step, Use)) {
	state = state.Clone()
	named := map[string]bool{}
	for _, s := range p.Steps {
		for _, u := range s.Takes(state) {
			if !named[u.Object] {
				named[u.Object] = true
				f(s, u)
			}
		}
		s.predict(&state)
	}
}

// protect refuses to touch what the host itself runs over, unless it was named.
func (c *checker) protect(scope, spec nic.Spec, before nic.State, first Step) {
	for _, want := range scope.PFs {
		pf := before.PF(want.Handle)
		asked := spec.PF(want.Handle)
		if pf == nil || len(pf.Carries) == 0 || asked != nil && asked.Named {
			continue
		}
		c.add(want.Handle.String(), fmt.Sprintf("carries %s, and to %q would touch it", strings.Join(pf.Carries, ", "), first),
			"an entry that names the PF itself, if that is meant")
	}
}
