package sim

import (
	"context"
	"fmt"
	"math/rand/v2"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// Disturb does one thing to the machine by chance, refused or not, and says what: what
// an administrator, a container runtime, a driver or the wire may do. For tests of
// properties that hold whatever happens.
func (s *Sim) Disturb(ctx context.Context, r *rand.Rand) string {
	m := s.Machine()
	st, err := host.Observe(ctx, m)
	if err != nil || len(st.PFs) == 0 {
		return "nothing"
	}
	pf := st.PFs[r.IntN(len(st.PFs))]
	id := nic.VFID{PF: pf.Handle}
	var vf nic.VF
	if len(pf.VFs) > 0 {
		vf = pf.VFs[r.IntN(len(pf.VFs))]
		id.Index = vf.Index
	}
	var sf nic.SF
	if len(pf.SFs) > 0 {
		sf = pf.SFs[r.IntN(len(pf.SFs))]
	}
	anyLink := func() int {
		all := []int{pf.Uplink.Ifindex, vf.Netdev.Ifindex, vf.Rep.Netdev.Ifindex, sf.Netdev.Ifindex, sf.Rep.Ifindex}
		return all[r.IntN(len(all))]
	}
	ns := fmt.Sprint("/run/netns/pod", r.IntN(3))
	acts := []struct {
		what string
		do   func() error
	}{
		{"unbind", func() error { return m.PCI.Unbind(ctx, vf.Address) }},
		{"bind", func() error { return m.PCI.Bind(ctx, vf.Address, "") }},
		{"bind vfio-pci", func() error { return m.PCI.Bind(ctx, vf.Address, "vfio-pci") }},
		{"VFs", func() error { return m.PCI.SetVFs(ctx, pf.Handle.Name, r.IntN(pf.TotalVFs+1)) }},
		{"no VFs", func() error { return m.PCI.SetVFs(ctx, pf.Handle.Name, 0) }},
		{"vanish", func() error { return s.Vanish(id) }},
		{"switchdev", func() error { return m.Devlink.SetEswitch(ctx, pf.Handle, nic.Switchdev) }},
		{"legacy", func() error { return m.Devlink.SetEswitch(ctx, pf.Handle, nic.Legacy) }},
		{"carrier off", func() error { return s.SetCarrier(pf.Handle, false) }},
		{"carrier on", func() error { return s.SetCarrier(pf.Handle, true) }},
		{"up", func() error { return m.Links.SetUp(ctx, anyLink(), r.IntN(2) == 0) }},
		{"MTU", func() error { return m.Links.SetMTU(ctx, anyLink(), 1000+r.IntN(3000)) }},
		{"name", func() error { return m.Links.SetName(ctx, anyLink(), fmt.Sprint("new", r.IntN(1000))) }},
		{"netns", func() error { return s.AddNetns(ns) }},
		{"no netns", func() error { return s.DeleteNetns(ns) }},
		{"into a pod", func() error { return m.Links.Move(ctx, vf.Netdev.Ifindex, ns) }},
		{"SF into a pod", func() error { return m.Links.Move(ctx, sf.Netdev.Ifindex, ns) }},
		{"another interface", func() error { _, err := s.AddLink("", fmt.Sprint("veth", r.IntN(1000)), "veth"); return err }},
		{"port MAC", func() error { return m.Devlink.SetPortMAC(ctx, pf.Handle, vf.Rep.Port, nic.MAC{2, 0, 0, 0, 0, 9}) }},
		{"VF MAC", func() error {
			return m.Links.SetVFMAC(ctx, pf.Uplink.Ifindex, vf.Index, nic.MAC{2, 0, 0, 0, 0, byte(r.IntN(200))})
		}},
		{"SF", func() error { return m.Devlink.AddSF(ctx, pf.Handle, 1+r.IntN(4)) }},
		{"SF active", func() error { return m.Devlink.SetSFActive(ctx, pf.Handle, sf.Port, r.IntN(3) > 0) }},
		{"no SF", func() error { return m.Devlink.DelSF(ctx, pf.Handle, sf.Port) }},
		{"vDPA", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.VDPA, "vhost") }},
		{"no vDPA", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.VDPA, "none") }},
		{"rate", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.MaxRate, "100") }},
		{"GUID", func() error { return m.Settings.SetVF(ctx, pf, vf.Index, nic.NodeGUID, "00:11:22:33:44:55:66:77") }},
		{"bond", func() error { return m.Bonds.AddBond(ctx, nic.BondSpec{Name: "bond9", Mode: nic.ActiveBackup}) }},
		{"enslave", func() error {
			for _, b := range st.Bonds {
				return m.Bonds.Enslave(ctx, b.Ifindex, pf.Uplink.Ifindex)
			}
			return nil
		}},
		{"release", func() error {
			for _, b := range st.Bonds {
				return m.Bonds.Release(ctx, b.Ifindex, pf.Uplink.Ifindex)
			}
			return nil
		}},
		{"no bond", func() error { return m.Bonds.DelBond(ctx, "bond9") }},
		{"RDMA mode", func() error { return m.RDMA.SetMode(ctx, nic.RDMAExclusive) }},
	}
	a := acts[r.IntN(len(acts))]
	if a.do() != nil {
		return a.what + " (refused)"
	}
	return a.what
}
