package sim_test

import (
	"fmt"
	"syscall"
	"testing"

	"sluice.dev/sluice/pkg/host/hosttest"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

func TestContract(t *testing.T) {
	const never = "this kind of card cannot"
	for _, c := range []struct {
		spec  string
		lacks map[hosttest.Capability]string
	}{
		{"mlx5:cards=2,vfs=16", nil},
		{"mlx5:vfs=128+machine:udev=off,iommu=off,delay=1ms,lag=5ms", map[hosttest.Capability]string{
			hosttest.VFIO: "the machine has no IOMMU",
		}},
		{"ice:vfs=16", map[hosttest.Capability]string{
			hosttest.ModeWithVFs: never, hosttest.PortMAC: never, hosttest.RDMA: never,
			hosttest.FunctionSettings: never, hosttest.SFs: never, hosttest.LAG: never,
		}},
		{"igb", map[hosttest.Capability]string{
			hosttest.Eswitch: never, hosttest.ModeWithVFs: never, hosttest.PortMAC: never,
			hosttest.RDMA: never, hosttest.TwoPorts: "the card has one port",
			hosttest.FunctionSettings: never, hosttest.Rates: never, hosttest.SFs: never, hosttest.LAG: never,
			hosttest.RDMAModes: "nothing has loaded the subsystem",
		}},
		{"i40e+machine:netkit=off", map[hosttest.Capability]string{
			hosttest.Eswitch: never, hosttest.ModeWithVFs: never, hosttest.PortMAC: never,
			hosttest.RDMA:             never,
			hosttest.FunctionSettings: never, hosttest.Rates: never, hosttest.SFs: never, hosttest.LAG: never,
			hosttest.Netkit:    "such a kernel",
			hosttest.RDMAModes: "nothing has loaded the subsystem",
		}},
		{"ixgbe", map[hosttest.Capability]string{
			hosttest.Eswitch: never, hosttest.ModeWithVFs: never, hosttest.PortMAC: never,
			hosttest.RDMA:             never,
			hosttest.FunctionSettings: never, hosttest.Rates: never, hosttest.SFs: never, hosttest.LAG: never,
			hosttest.RDMAModes: "nothing has loaded the subsystem",
		}},
	} {
		t.Run(c.spec, func(t *testing.T) {
			hosttest.Run(t, func(t *testing.T) hosttest.Fixture {
				s, err := sim.Parse(c.spec)
				if err != nil {
					t.Fatal(err)
				}
				return fixture(t, s, c.lacks)
			})
		})
	}
}

func fixture(t *testing.T, s *sim.Sim, lacks map[hosttest.Capability]string) hosttest.Fixture {
	f := hosttest.Fixture{Machine: s.Machine(), Lacks: lacks, NotNetns: "/etc/hostname", Writes: s.Writes}
	s.AddFile(f.NotNetns)
	functions, err := f.Machine.PCI.Functions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range functions {
		f.PFs, f.TotalVFs = append(f.PFs, nic.PCI(o.Address)), o.TotalVFs
	}
	namespaces := 0
	f.AddNetns = func(t *testing.T) string {
		namespaces++
		path := fmt.Sprintf("/run/netns/contract%d", namespaces)
		if err := s.AddNetns(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f.DeleteNetns = func(t *testing.T, path string) {
		if err := s.DeleteNetns(path); err != nil {
			t.Fatal(err)
		}
	}
	f.AddLink = func(t *testing.T, path, name string) int {
		ifindex, err := s.AddLink(path, name, "dummy")
		if err != nil {
			t.Fatal(err)
		}
		return ifindex
	}
	f.AddAltName = func(t *testing.T, path string, ifindex int, name string) {
		if err := s.AddAltName(path, ifindex, name); err != nil {
			t.Fatal(err)
		}
	}
	f.Inject = func(_ *testing.T, errno syscall.Errno) {
		s.Inject(sim.Fault{Match: func(o sim.Op) bool { return o.Verb == sim.SetVFs || o.Verb == sim.SetEswitch }, Errno: errno})
	}
	return f
}
