package main

import (
	"cmp"
	"slices"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/capability"
	"sluice.dev/sluice/pkg/nic"
)

// inventoryOf sums up what there is.
func inventoryOf(state nic.State) *v1alpha1.Inventory {
	out := &v1alpha1.Inventory{PFs: int32(len(state.PFs)), RDMA: string(state.RDMA.Mode)}
	for _, pf := range state.PFs {
		p := v1alpha1.Port{
			Handle: pf.Handle.String(), Netdev: pf.Uplink.Name, Carrier: pf.Uplink.Carrier,
			Vendor: pf.Vendor, Device: pf.Device, Product: pf.Product, Serial: pf.Serial, Firmware: pf.Firmware,
			Driver: pf.Driver, LinkType: "ethernet", NUMA: int32(pf.NUMA), Eswitch: string(pf.Eswitch),
			VFs: int32(len(pf.VFs)), TotalVFs: int32(pf.TotalVFs), SFs: int32(len(pf.SFs)), Carries: pf.Carries,
		}
		if pf.InfiniBand {
			p.LinkType = "infiniband"
		}
		if !pf.Uplink.MAC.IsZero() {
			p.MAC = pf.Uplink.MAC.String()
		}
		out.VFs += p.VFs
		out.SFs += p.SFs
		out.Ports = append(out.Ports, p)
	}
	for _, b := range state.Bonds {
		bond := v1alpha1.InventoryBond{Name: b.Name, Members: []string{}}
		for _, h := range b.Members {
			bond.Members = append(bond.Members, h.String())
		}
		out.Bonds = append(out.Bonds, bond)
	}
	return out
}

// abilitiesOf is what of a report networks count on.
func abilitiesOf(r capability.Report) []v1alpha1.Capability {
	const most = 512 // bytes of why
	var out []v1alpha1.Capability
	for _, name := range []string{capability.Flows, capability.FromWire, capability.Conntrack, capability.Geneve, capability.VXLAN, capability.OpenVSwitch} {
		c := r.Get(name)
		if c == nil {
			continue
		}
		var why []string
		for _, m := range c.Missing() {
			why = append(why, m.String())
		}
		text := strings.Join(why, "; ")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + " ..."
		}
		out = append(out, v1alpha1.Capability{Name: name, Answer: string(c.Answer), Why: text})
	}
	return out
}

// maxHolders is how many holders of a pool a status has.
const maxHolders = 256

// poolsOf says of each pool what it has, and which pod has what.
func (c *cluster) poolsOf(state nic.State) []v1alpha1.PoolStatus {
	c.mu.Lock()
	o := c.offer
	c.mu.Unlock()
	if o == nil {
		return nil
	}
	owners := ownersOf(state)
	var out []v1alpha1.PoolStatus
	for _, s := range o.plugin.Status() {
		p := v1alpha1.PoolStatus{Resource: s.Resource, Devices: int32(len(s.Devices))}
		for _, d := range s.Devices {
			if d.Healthy() {
				p.Healthy++
			}
			h := v1alpha1.Holder{Device: d.ID}
			if pod, ok := s.Pods[d.ID]; ok {
				h.Pod = pod.Namespace + "/" + pod.Pod
			} else if owners[d.ID] != "" {
				h.Pod, h.Why = c.podOf(d.ID), owners[d.ID]
			}
			if h.Pod == "" && h.Why == "" {
				continue
			}
			if h.Pod != "" {
				h.Why = ""
			}
			p.InUse++
			if len(p.Holders) < maxHolders {
				p.Holders = append(p.Holders, h)
			}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b v1alpha1.PoolStatus) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// ownersOf is who uses which device.
func ownersOf(state nic.State) map[string]string {
	out := map[string]string{}
	for _, pf := range state.PFs {
		for _, vf := range pf.VFs {
			out[vf.Address] = vf.InUse()
		}
		for _, sf := range pf.SFs {
			out[sf.Device] = sf.InUse()
		}
	}
	return out
}
