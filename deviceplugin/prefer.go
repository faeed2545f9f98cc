package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/nic"
)

// Prefer picks size of the available devices: those of must, then by what how
// says. Within a PF it takes the lowest indexes. Devices that are not listed count
// for nothing, unless they are in must.
//
// Packed takes as few PFs as will do, beginning with the PFs of must. Of PFs that
// would do alone it takes the one with the fewest devices left over, so that large
// requests find room later.
//
// Spread takes from the PF of which it has taken the fewest, and of those from the
// one that has the most left.
//
// NearGPU takes only from PFs that are as near to a GPU as any that have devices
// left, and spreads over them. The kubelet does not say which GPUs the pod gets: a
// pod with all GPUs gets a port near each, and for one with a few the topology
// manager narrows down what is available to their NUMA nodes.
func Prefer(how nic.Preference, devices []Device, available, must []string, size int) ([]string, error) {
	if size < len(must) {
		return nil, fmt.Errorf("preferred allocation of %d devices: %d must be among them", size, len(must))
	}
	c := newChoice(devices, available, must)
	for len(c.out) < size {
		var i, n int
		if how == nic.Spread || how == nic.NearGPU {
			i, n = c.even(how), 1
		} else {
			i, n = c.packed(size-len(c.out)), size-len(c.out)
		}
		if i < 0 {
			return nil, fmt.Errorf("preferred allocation of %d devices: only %d are available", size, len(c.out))
		}
		c.take(i, n)
	}
	return c.out, nil
}

// choice is an allocation in the making.
type choice struct {
	out []string
	pfs []*port // ordered by handle
}

// port is what a PF has.
type port struct {
	pf    nic.Handle
	near  int // to a GPU: less is nearer
	taken int
	free  []Device
}

func newChoice(devices []Device, available, must []string) *choice {
	c := &choice{out: slices.Clone(must)}
	byID := make(map[string]Device, len(devices))
	for _, d := range devices {
		byID[d.ID] = d
	}
	ports := map[nic.Handle]*port{}
	of := func(d Device) *port {
		p := ports[d.PF]
		if p == nil {
			p = &port{pf: d.PF, near: rank(d.GPU)}
			ports[d.PF] = p
			c.pfs = append(c.pfs, p)
		}
		return p
	}
	for _, id := range must {
		if d, ok := byID[id]; ok {
			of(d).taken++
			delete(byID, id)
		}
	}
	for _, id := range available {
		if d, ok := byID[id]; ok {
			p := of(d)
			p.free = append(p.free, d)
			delete(byID, id) // whatever is named twice is there once
		}
	}
	for _, p := range c.pfs {
		slices.SortFunc(p.free, func(a, b Device) int { return a.Index - b.Index })
	}
	slices.SortFunc(c.pfs, func(a, b *port) int { return a.pf.Compare(b.pf) })
	return c
}

// rank orders nearness; what is not said is last.
func rank(n nic.Near) int {
	order := []nic.Near{nic.SameSwitch, nic.SameRootPort, nic.SameHostBridge, nic.SameNUMA, nic.Far}
	if i := slices.Index(order, n); i >= 0 {
		return i
	}
	return len(order)
}

func (c *choice) take(i, n int) {
	p := c.pfs[i]
	n = min(n, len(p.free))
	for _, d := range p.free[:n] {
		c.out = append(c.out, d.ID)
	}
	p.free, p.taken = p.free[n:], p.taken+n
}

// best is the index of the PF with free devices that comes first by order; -1 when
// none has any.
func (c *choice) best(order func(a, b *port) int) int {
	best := -1
	for i, p := range c.pfs {
		if len(p.free) > 0 && (best < 0 || order(p, c.pfs[best]) < 0) {
			best = i
		}
	}
	return best
}

// packed is the PF to take from when want devices are missing. Taking the largest
// while none suffices gives the fewest PFs.
func (c *choice) packed(want int) int {
	return c.best(func(a, b *port) int {
		switch {
		case (a.taken > 0) != (b.taken > 0):
			return b.taken - a.taken
		case len(a.free) >= want && len(b.free) >= want:
			return len(a.free) - len(b.free)
		}
		return len(b.free) - len(a.free)
	})
}

func (c *choice) even(how nic.Preference) int {
	return c.best(func(a, b *port) int {
		near := 0
		if how == nic.NearGPU {
			near = a.near - b.near
		}
		return cmp.Or(near, a.taken-b.taken, len(b.free)-len(a.free))
	})
}
