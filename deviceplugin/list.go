package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Node is what the pure half judges by: one observation of a machine.
type Node struct {
	State nic.State

	// RDMA is the RDMA devices by name.
	RDMA map[string]host.RDMADevice

	// GPUs are what NICs may be near to.
	GPUs []host.GPU

	// Exists says whether there is a file at an absolute path.
	Exists func(path string) bool

	sight Sight // that State and RDMA are of

	// Held says whether a running pod has a device of a resource, by what the
	// kubelet says; nil: it says nothing.
	Held func(resource, id string) bool

	// Elsewhere is the other resource as which a running pod has a device, by the same
	// word; "" none, and nil: it says nothing.
	Elsewhere func(resource, id string) string
}

// Device is one of a pool's devices.
type Device struct {
	// ID is a VF's PCI address, the name of an SF's auxiliary device, or the PF's
	// address with a number for each pod that may use an HCA: 0000:03:00.0-7.
	ID string

	PF      nic.Handle
	Index   int    // of the VF; the SF's number; of an HCA the number in the ID
	NUMA    int    // -1: not said, or not to be said
	Problem string // why it is unhealthy; "": healthy

	// GPU is how near the nearest GPU is, of pools that prefer such devices.
	GPU nic.Near
}

// Healthy says whether pods may get it.
func (d Device) Healthy() bool { return d.Problem == "" }

func (d Device) String() string {
	if d.Healthy() {
		return d.ID + " healthy"
	}
	return d.ID + " unhealthy: " + d.Problem
}

// List returns the devices of p, ordered by PF and index, and what p selects
// that is not there. Both are the same for the same node.
func List(p nic.Pool, n Node) (devices []Device, problems []string) {
	picks := slices.Clone(p.Select)
	slices.SortFunc(picks, func(a, b nic.Pick) int {
		return cmp.Or(a.PF.Compare(b.PF), a.Indexes.All()[0].First-b.Indexes.All()[0].First)
	})
	for _, s := range picks {
		pf := n.State.PF(s.PF)
		if pf == nil {
			problems = append(problems, fmt.Sprintf("pool %s: there is no PF %s", p, s.PF))
			continue
		}
		if !p.Filter.FitsPF(pf) {
			continue
		}
		o := on{pool: p, node: n, pf: pf, pick: s}
		switch {
		case p.IsOf(nic.PoolOfHCAs):
			devices = append(devices, o.hcas()...)
		case p.IsOf(nic.PoolOfSFs):
			devices = append(devices, o.sfs()...)
		default:
			devices = append(devices, o.vfs()...)
			for _, i := range o.gone() {
				problems = append(problems, fmt.Sprintf("pool %s: VF %d of %s has gone from the bus; it comes back with all VFs made anew", p, i, s.PF))
			}
			for _, missing := range o.missing() {
				problems = append(problems, fmt.Sprintf("pool %s: %s has no VF %s: it has %d", p, s.PF, missing, len(pf.VFs)))
			}
		}
	}
	if len(devices) == 0 && len(problems) == 0 && !p.Filter.IsZero() {
		problems = append(problems, fmt.Sprintf("pool %s: nothing fits its filter", p))
	}
	return devices, problems
}

// on is a pool on one of its PFs.
type on struct {
	pool nic.Pool
	node Node
	pf   *nic.PF
	pick nic.Pick
}

func (o on) device(id string, index int, problem string) Device {
	d := Device{ID: id, PF: o.pf.Handle, Index: index, NUMA: o.pf.NUMA, Problem: problem}
	if o.pool.NoTopology {
		d.NUMA = -1
	}
	if o.pool.Prefer == nic.NearGPU {
		d.GPU = o.nearest()
	}
	return d
}

// nearest is how near the nearest GPU is to the PF.
func (o on) nearest() (best nic.Near) {
	for _, g := range o.node.GPUs {
		if near := nic.Distance(o.pf.Path, g.Path, o.pf.NUMA, g.NUMA); best == "" || rank(near) < rank(best) {
			best = near
		}
	}
	return best
}

func (o on) vfs() (out []Device) {
	problem := o.portProblem()
	for _, r := range o.pick.Indexes.All() {
		for i := r.First; i <= min(r.Last, len(o.pf.VFs)-1); i++ {
			if v := &o.pf.VFs[i]; !v.Gone && o.pool.Filter.FitsVF(o.pf, v) {
				out = append(out, o.device(v.Address, i, cmp.Or(problem, o.vfProblem(v))))
			}
		}
	}
	return out
}

// gone is the VFs of the pick that are on the bus no more.
func (o on) gone() (out []int) {
	for _, r := range o.pick.Indexes.All() {
		for i := r.First; i <= min(r.Last, len(o.pf.VFs)-1); i++ {
			if o.pf.VFs[i].Gone {
				out = append(out, i)
			}
		}
	}
	return out
}

// missing is what the pick names and the PF does not have.
func (o on) missing() (out []nic.Range) {
	for _, r := range o.pick.Indexes {
		if first := max(r.First, len(o.pf.VFs)); first <= r.Last {
			out = append(out, nic.Range{First: first, Last: r.Last})
		}
	}
	return out
}

// sfs are those that have a device: one that is not active has no name that a pod
// could know it by.
func (o on) sfs() (out []Device) {
	problem := o.portProblem()
	for i := range o.pf.SFs {
		f := &o.pf.SFs[i]
		if f.Device != "" && o.pick.Indexes.Has(f.Num) && o.pool.Filter.FitsSF(o.pf, f) {
			out = append(out, o.device(f.Device, f.Num, cmp.Or(problem, o.sfProblem(f))))
		}
	}
	return out
}

func (o on) hcas() (out []Device) {
	problem := cmp.Or(o.portProblem(), o.hcaProblem())
	if len(o.pool.Filter.Devices) > 0 && !slices.Contains(o.pool.Filter.Devices, o.pf.Device) {
		return nil
	}
	for i := range max(o.pool.Share, 1) {
		out = append(out, o.device(fmt.Sprintf("%s-%d", o.pf.Handle.Name, i), i, problem))
	}
	return out
}
