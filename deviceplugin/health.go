package deviceplugin

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/nic"
)

// portProblem says why pods must get nothing of the PF, "" if they may.
func (o on) portProblem() string {
	if mode := o.pick.Eswitch; mode != "" && o.pf.Eswitch != mode {
		return fmt.Sprintf("eswitch of %s is %q, not yet %s", o.pf.Handle, o.pf.Eswitch, mode)
	}
	if len(o.pf.Failing) > 0 {
		return fmt.Sprintf("%s: devlink health reporter %s is in error", o.pf.Handle, strings.Join(o.pf.Failing, ", "))
	}
	if !o.pool.Carrier {
		return ""
	}
	// A bond has carrier while any of its ports has, and so have the VFs of all.
	link := o.pf.Uplink
	if b := o.node.State.BondOf(o.pf.Handle); b != nil {
		link = b.Netdev
	}
	switch {
	case !link.Exists():
		return fmt.Sprintf("%s has no uplink", o.pf.Handle)
	case !link.Carrier:
		return link.Name + " has no carrier"
	}
	return ""
}

// vfProblem says why a pod must not get v, "" if it may.
func (o on) vfProblem(v *nic.VF) string {
	if o.pf.Eswitch == nic.Switchdev && !v.Rep.Exists() {
		return "no representor"
	}
	if len(v.Failing) > 0 {
		return fmt.Sprintf("devlink health reporter %s is in error", strings.Join(v.Failing, ", "))
	}
	want, got := o.pool.WantedDriver(), nic.DriverOf(v.Driver)
	switch {
	case v.Driver == "":
		return fmt.Sprintf("bound to no driver, want %s", want)
	case want != nic.DriverAny && got != want:
		return fmt.Sprintf("bound to %s, want %s", v.Driver, want)
	case got == nic.DriverVFIO && o.pool.RDMA:
		return fmt.Sprintf("bound to %s, which leaves no RDMA device", v.Driver)
	}
	// The kubelet counts for each resource by itself, and would give it to a second pod.
	if other := o.elsewhere(v.Address); other != "" {
		return "a pod has it as " + other
	}
	// What follows moves to whoever uses the VF, so it says nothing of a VF in
	// use. A free one that lacks it would fail the pod that gets it.
	if v.InUse() != "" || o.held(v.Address) {
		return ""
	}
	problem := o.ofVF(nil, v)
	if problem == "" && got == nic.DriverKernel && o.pool.VDPA == "" && !v.Netdev.Exists() {
		problem = "no netdev"
	}
	return problem
}

// sfProblem says why a pod must not get f, "" if it may.
func (o on) sfProblem(f *nic.SF) string {
	switch {
	case !f.Active:
		return "it is not active"
	case !f.Attached:
		return "no driver is attached"
	case !f.Rep.Exists():
		return "no representor"
	case len(f.Failing) > 0:
		return fmt.Sprintf("devlink health reporter %s is in error", strings.Join(f.Failing, ", "))
	case o.elsewhere(f.Device) != "":
		return "a pod has it as " + o.elsewhere(f.Device)
	case f.InUse() != "" || o.held(f.Device):
		return ""
	case !f.Netdev.Exists():
		return "no netdev"
	}
	return o.ofSF(nil, f)
}

// hcaProblem says why pods must not share the PF's RDMA device, "" if they may.
func (o on) hcaProblem() string {
	if o.node.State.RDMA.Mode == nic.RDMAExclusive {
		return "RDMA devices belong to one network namespace each: want the RDMA subsystem in mode shared"
	}
	return o.addRDMA(nil, o.pf.RDMA)
}

func (o on) held(id string) bool {
	return o.node.Held != nil && o.node.Held(o.pool.Resource(), id)
}

func (o on) elsewhere(id string) string {
	if o.node.Elsewhere == nil {
		return ""
	}
	return o.node.Elsewhere(o.pool.Resource(), id)
}

// guidProblem says that a port of InfiniBand has no GUID: the subnet manager takes
// none without (mlx5 gives VFs zeros until somebody sets one).
func (o on) guidProblem(rdma []string) string {
	if !o.pf.InfiniBand {
		return ""
	}
	for _, name := range rdma {
		guid := o.node.RDMA[name].NodeGUID
		if guid != "" && strings.Trim(guid, "0:") == "" {
			return fmt.Sprintf("RDMA device %s has no GUID", name)
		}
	}
	return ""
}
