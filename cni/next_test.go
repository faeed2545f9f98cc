package cni

import (
	"net/netip"
	"testing"

	"sluice.dev/sluice/cni/record"
	"sluice.dev/sluice/offload"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// TestNextIsQuiet asks for nothing where all is so already.
func TestNextIsQuiet(t *testing.T) {
	port := offload.Port{Bridge: "br0", Representor: "rep", Owner: "c/net1", ExternalIDs: map[string]string{"sandbox": "c"}}
	others := port
	others.ExternalIDs = map[string]string{"sandbox": "c", "ovn-installed": "true"}
	attached := State{Place: InPod, VF: nic.Netdev{Name: "net1", Ifindex: 3, MTU: 1500, Up: true}, Rep: nic.Netdev{Name: "rep", Ifindex: 4, Up: true}, Port: &others, Told: true}
	if step, more := Next(Want{Goal: record.Attached, VF: "0000:03:00.2", IfName: "net1", Port: port}, attached); more {
		t.Errorf("attached: %s", step)
	}
	before := record.Before{Name: "vf0", MTU: 1500, RepMTU: 1500}
	detached := State{Place: AtHome, VF: nic.Netdev{Name: "vf0", Ifindex: 3, MTU: 1500}, Rep: nic.Netdev{Name: "rep", Ifindex: 4, MTU: 1500}, HasAdminMAC: true}
	if step, more := Next(Want{Goal: record.Detached, VF: "0000:03:00.2", Before: before}, detached); more {
		t.Errorf("detached: %s", step)
	}
	// There is no VF any more, nor anything else.
	if step, more := Next(Want{Goal: record.Detached, VF: "0000:03:00.2", Before: before}, State{}); more {
		t.Errorf("gone: %s", step)
	}
}

// TestVFIsNeverUpUnderWay sets a VF that is up down before it is changed or moved,
// and gives it its state back at the end.
func TestVFIsNeverUpUnderWay(t *testing.T) {
	up := State{Place: AtHome, VF: nic.Netdev{Name: "vf0", Ifindex: 3, MTU: 1500, Up: true}, Rep: nic.Netdev{Name: "rep", Ifindex: 4, Up: true}}
	if step, _ := Next(Want{Goal: record.Attached, MTU: 0, IfName: "net1"}, up); step != (SetUp{Dev{HostVF, "vf0", 3}, false}) {
		t.Errorf("attach: %v", step)
	}
	was := record.Before{Name: "vf0", MTU: 9000, Up: true, RepUp: true}
	for _, want := range []Step{
		SetUp{Dev{HostVF, "vf0", 3}, false}, SetMTU{Dev{HostVF, "vf0", 3}, 9000}, SetUp{Dev{HostVF, "vf0", 3}, true},
	} {
		step, _ := Next(Want{Goal: record.Detached, Before: was}, up)
		if step != want {
			t.Fatalf("detach: %v, want %v", step, want)
		}
		switch s := step.(type) {
		case SetUp:
			up.VF.Up = s.Up
		case SetMTU:
			up.VF.MTU = s.MTU
		}
	}
}

func TestTempName(t *testing.T) {
	for address, want := range map[string]string{"0000:03:00.2": "sl000003002", "1000:00:00.7": "sl100000007", "0001e240:ff:1f.7": "sl0001e240ff1f7"} {
		if got := TempName(address); got != want || len(got) > 15 {
			t.Errorf("TempName(%s) = %s", address, got)
		}
	}
}

// TestSameRoute leaves to the kernel what nobody asked for.
func TestSameRoute(t *testing.T) {
	dst := netip.MustParsePrefix("fd00::/64")
	for _, c := range []struct {
		have, want host.Route
		same       bool
	}{
		{host.Route{Dst: dst}, host.Route{Dst: dst}, true},
		{host.Route{Dst: dst, Priority: 7}, host.Route{Dst: dst}, true},
		{host.Route{Dst: dst}, host.Route{Dst: dst, Priority: 7}, false},
		{host.Route{Dst: dst}, host.Route{Dst: dst, Priority: 1024, Table: 254}, true},
		{host.Route{Dst: dst, MTU: 1400}, host.Route{Dst: dst, MTU: 1500}, false},
		{host.Route{Dst: dst, Table: 5}, host.Route{Dst: dst, Table: 6}, false},
		{host.Route{Dst: dst, Gateway: netip.MustParseAddr("fd00::1")}, host.Route{Dst: dst}, false},
	} {
		if got := sameRoute(c.have, c.want); got != c.same {
			t.Errorf("%+v as %+v: %v", c.have, c.want, got)
		}
	}
}
