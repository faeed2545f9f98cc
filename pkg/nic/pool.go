package nic

import (
	"cmp"
	"slices"
)

// DefaultPrefix is the first part of the resource names of pools that name none.
const DefaultPrefix = "sluice.dev"

// PoolKind says what the devices of a pool are.
type PoolKind string

// The kinds. An HCA is the RDMA device of a PF itself, which any number of pods
// use side by side.
const (
	PoolOfVFs  PoolKind = "vf"
	PoolOfSFs  PoolKind = "sf"
	PoolOfHCAs PoolKind = "hca"
)

// DriverAny says that a VF may be bound to any driver, if only to one.
const DriverAny Driver = "any"

// VDPAUse says who drives the vDPA device that a pod gets.
type VDPAUse string

// The uses, which are values of the setting VDPA too.
const (
	VDPAVhost  VDPAUse = "vhost"
	VDPAVirtio VDPAUse = "virtio"
)

// Preference says which devices go together, where the kubelet has a choice.
type Preference string

// The preferences: as few PFs as will do, as many, or those near a GPU first.
const (
	Packed  Preference = "packed"
	Spread  Preference = "spread"
	NearGPU Preference = "gpu"
)

// Pool is the devices that pods ask for under one resource name, resolved: it
// names PFs by their handles. The zero value of a field is what its comment says
// first.
type Pool struct {
	Prefix string // DefaultPrefix
	Name   string
	Kind   PoolKind // PoolOfVFs

	// Select says of which PFs, and Filter what each device must be besides. A
	// device must not be in two pools.
	Select []Pick
	Filter Filter

	// Driver that a VF must have to be healthy: DriverKernel, or with a filter of
	// drivers DriverAny; DriverVFIO, DriverAny.
	Driver Driver

	// RDMA adds the device's RDMA files to the container, and makes one without
	// them unhealthy while it is free. (In use they may be in the pod's namespace,
	// in exclusive mode, if whoever attached the VF moved them too.)
	RDMA bool

	// VDPA: each VF needs a vDPA device that is driven so; "" none.
	VDPA VDPAUse

	// VhostNet adds /dev/vhost-net and /dev/net/tun.
	VhostNet bool

	Share      int  // of an HCA: how many pods at a time may use it; 0 is 1
	Carrier    bool // only healthy with carrier on the uplink, or on its bond
	NoTopology bool // the kubelet is not told of NUMA nodes
	Prefer     Preference
	CDI        bool // files are given by CDI names, in place of paths
}

// Pick is devices of one PF.
type Pick struct {
	PF      Handle
	Indexes Ranges // of VFs, or numbers of SFs; empty: all

	// Eswitch is the mode that the PF must be in for its devices to be healthy; ""
	// is any. It keeps VFs from pods before their switch is ready.
	Eswitch Eswitch
}

// String is what people write: handle, and #ranges if not all.
func (s Pick) String() string {
	if len(s.Indexes) == 0 {
		return s.PF.String()
	}
	return s.PF.String() + "#" + s.Indexes.String()
}

// Filter is what each device of a pool must be. Of each list it must fit one
// value, compared whole; an empty list asks for nothing. What a device does not
// tell fits nothing.
type Filter struct {
	Vendors     []string // PCI ids
	Devices     []string // PCI ids, of the VF itself; of an SF or HCA the PF's
	Drivers     []string // that a VF is bound to, by the kernel's name
	Addresses   []string // PCI addresses of VFs, auxiliary devices of SFs
	InfiniBand  *bool
	NUMA        []int
	ACPIIndexes []int // of the PF
}

// IsZero says that the filter asks for nothing.
func (f Filter) IsZero() bool {
	return len(f.Vendors) == 0 && len(f.Devices) == 0 && len(f.Drivers) == 0 && len(f.Addresses) == 0 &&
		f.InfiniBand == nil && len(f.NUMA) == 0 && len(f.ACPIIndexes) == 0
}

// Resource is the name that pods ask for, prefix/name.
func (p Pool) Resource() string { return cmp.Or(p.Prefix, DefaultPrefix) + "/" + p.Name }

func (p Pool) String() string { return p.Resource() }

// IsOf says whether the devices are of that kind.
func (p Pool) IsOf(k PoolKind) bool { return cmp.Or(p.Kind, PoolOfVFs) == k }

// WantedDriver is what a VF must be bound to.
func (p Pool) WantedDriver() Driver {
	switch {
	case p.Driver != "":
		return p.Driver
	case len(p.Filter.Drivers) > 0:
		return DriverAny
	}
	return DriverKernel
}

// FitsPF says whether devices of pf can fit, by what is the PF's.
func (f Filter) FitsPF(pf *PF) bool {
	return in(f.Vendors, pf.Vendor) && in(f.NUMA, pf.NUMA) && in(f.ACPIIndexes, pf.ACPIIndex) &&
		(f.InfiniBand == nil || *f.InfiniBand == pf.InfiniBand)
}

// FitsVF says whether v, of a PF that fits, does.
func (f Filter) FitsVF(pf *PF, v *VF) bool {
	return in(f.Devices, pf.VFDevice) && in(f.Drivers, v.Driver) && in(f.Addresses, v.Address)
}

// FitsSF says whether s, of a PF that fits, does.
func (f Filter) FitsSF(pf *PF, s *SF) bool {
	return in(f.Devices, pf.Device) && in(f.Addresses, s.Device)
}

// in says whether has is among what is wanted, if anything is. Nobody wants what
// stands for not told.
func in[T comparable](want []T, has T) bool {
	return len(want) == 0 || slices.Contains(want, has)
}

// Apart says that no device fits both filters, whatever it is.
func (f Filter) Apart(o Filter) bool {
	return apart(f.Vendors, o.Vendors) || apart(f.Devices, o.Devices) || apart(f.Drivers, o.Drivers) ||
		apart(f.Addresses, o.Addresses) || apart(f.NUMA, o.NUMA) || apart(f.ACPIIndexes, o.ACPIIndexes) ||
		f.InfiniBand != nil && o.InfiniBand != nil && *f.InfiniBand != *o.InfiniBand
}

func apart[T comparable](a, b []T) bool {
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(v T) bool { return slices.Contains(b, v) })
}
