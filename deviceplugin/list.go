package deviceplugin

import (
	"fmt"
	"slices"
	"strconv"

	"sluice.dev/sluice/pkg/nic"
)

// Node is what the pure half judges by: one observation of a machine.
type Node struct {
	State nic.State

	// RDMA is the character devices of each RDMA device, by its name
	// (host.RDMADevice), without rdma_cm, which is the machine's.
	RDMA map[string][]string

	// Exists says whether there is a file at an absolute path.
	Exists func(path string) bool
}

// Device is one VF as a pool offers it.
type Device struct {
	ID      string // PCI address
	VF      nic.VFID
	NUMA    int    // -1: not said
	Problem string // why it is unhealthy; "": healthy
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
func List(p Pool, n Node) (devices []Device, problems []string) {
	picks := slices.Clone(p.Select)
	slices.SortFunc(picks, func(a, b Selector) int {
		if c := a.PF.Compare(b.PF); c != 0 {
			return c
		}
		return a.VFs.All()[0].First - b.VFs.All()[0].First
	})
	for _, s := range picks {
		pf := n.State.PF(s.PF)
		if pf == nil {
			problems = append(problems, fmt.Sprintf("pool %s: there is no PF %s", p, s.PF))
			continue
		}
		for _, r := range s.VFs.All() {
			last := min(r.Last, len(pf.VFs)-1)
			for i := r.First; i <= last; i++ {
				v := &pf.VFs[i]
				devices = append(devices, Device{
					ID: v.Address, VF: nic.VFID{PF: pf.Handle, Index: i}, NUMA: pf.NUMA,
					Problem: p.problem(pf, v, s.Eswitch, n),
				})
			}
			if missing := (nic.Range{First: max(r.First, last+1), Last: r.Last}); len(s.VFs) > 0 && missing.First <= missing.Last {
				problems = append(problems, fmt.Sprintf("pool %s: %s has no VF %s: it has %d", p, s.PF, missing, len(pf.VFs)))
			}
		}
	}
	return devices, problems
}

// problem says why a pod must not get v, "" if it may.
func (p Pool) problem(pf *nic.PF, v *nic.VF, mode nic.Eswitch, n Node) string {
	if mode != "" && pf.Eswitch != mode {
		return fmt.Sprintf("eswitch of %s is %q, not yet %s", pf.Handle, pf.Eswitch, mode)
	}
	if pf.Eswitch == nic.Switchdev && !v.Rep.Exists() {
		return "no representor"
	}
	if got := nic.DriverOf(v.Driver); got != p.driver() {
		if v.Driver == "" {
			return fmt.Sprintf("bound to no driver, want %s", p.driver())
		}
		return fmt.Sprintf("bound to %s, want %s", v.Driver, p.driver())
	}
	// What follows moves to whoever uses the VF, so it says nothing of a VF in
	// use. A free one that lacks it would fail the pod that gets it.
	if v.InUse() != "" {
		return ""
	}
	if p.driver() == nic.DriverVFIO {
		_, _, problem := vfioGroup(v, n)
		return problem
	}
	if !v.Netdev.Exists() {
		return "no netdev"
	}
	if p.RDMA {
		_, problem := rdmaFiles(pf, v, n)
		return problem
	}
	return ""
}

// Character devices that do not belong to one VF.
const (
	vfioDir  = "/dev/vfio/"
	vfioCtl  = vfioDir + "vfio"
	rdmaCM   = "/dev/infiniband/rdma_cm"
	noIOMMU  = "noiommu-"
	uverbsIs = "uverbs"
	umadIs   = "umad"
)

// vfioGroup returns the file of v's IOMMU group on the host and its name in a
// container, or why there is none. Without an IOMMU the host's name carries a
// prefix (vfio_main.c, vfio_device_set_group), which containers do not see.
func vfioGroup(v *nic.VF, n Node) (onHost, inContainer, problem string) {
	if v.IOMMUGroup < 0 {
		return "", "", "no IOMMU group"
	}
	if !n.Exists(vfioCtl) {
		return "", "", "no " + vfioCtl
	}
	group := strconv.Itoa(v.IOMMUGroup)
	inContainer = vfioDir + group
	for _, onHost := range []string{inContainer, vfioDir + noIOMMU + group} {
		if n.Exists(onHost) {
			return onHost, inContainer, ""
		}
	}
	return "", "", "no " + inContainer
}

// rdmaFiles returns the files through which a container uses v's RDMA devices,
// or what is missing of them. Their modules load one after the other at boot, so
// a VF may have some files before others. What pf's device has tells that a module
// is loaded which is not loaded everywhere (infiniband/core/user_mad.c,
// ib_umad_add_one: device after device).
func rdmaFiles(pf *nic.PF, v *nic.VF, n Node) (files []string, problem string) {
	if len(v.RDMA) == 0 {
		return nil, "no RDMA device"
	}
	for _, name := range v.RDMA {
		own := n.RDMA[name]
		if !hasKind(own, uverbsIs) {
			return nil, fmt.Sprintf("RDMA device %s has no uverbs file", name)
		}
		for _, of := range pf.RDMA {
			if hasKind(n.RDMA[of], umadIs) && !hasKind(own, umadIs) {
				return nil, fmt.Sprintf("RDMA device %s has no umad file, and %s of its PF has one", name, of)
			}
		}
		for _, f := range own {
			if !n.Exists(f) {
				return nil, "no " + f
			}
		}
		files = append(files, own...)
	}
	if !n.Exists(rdmaCM) {
		return nil, "no " + rdmaCM
	}
	return append(files, rdmaCM), ""
}

func hasKind(files []string, kind string) bool {
	return slices.ContainsFunc(files, func(f string) bool { return kindOf(f) == kind })
}
