package plan

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

func TestCheck(t *testing.T) {
	const (
		h   = "pci/0000:03:00.0: "
		vf0 = "pci/0000:03:00.0 vf 0: "
	)
	mlx5 := func(mode nic.Eswitch, n int) nic.PF { return pf(handle(0), "mlx5_core", mode, n) }
	multicast := nic.MAC{1, 0, 0x5e, 0, 0, 1}
	away := mlx5(nic.Legacy, 2)
	away.VFs[1].Netdev, away.VFs[1].Away = nic.Netdev{}, true
	held := mlx5(nic.Switchdev, 2)
	held.VFs[0].Owner = "default/web"
	bare := mlx5(nic.Legacy, 0)
	bare.Driver, bare.Eswitch, bare.Uplink = "", "", nic.Netdev{}
	noSRIOV := mlx5(nic.Legacy, 0)
	noSRIOV.TotalVFs = 0
	noUplink := mlx5(nic.Legacy, 0)
	noUplink.Uplink = nic.Netdev{}
	vfs := func(v ...nic.VFSpec) nic.PFSpec { return nic.PFSpec{VFs: v} }

	tests := map[string]struct {
		pf   nic.PF
		spec nic.PFSpec
		want []string
	}{
		"VF count over the limit": {mlx5(nic.Legacy, 0), nic.PFSpec{VFCount: ptr(129)},
			[]string{h + "VF count 129 is over the card's limit; want 0 to 128 (sriov_totalvfs)"}},
		"negative VF count": {mlx5(nic.Legacy, 0), nic.PFSpec{VFCount: ptr(-1)},
			[]string{h + "VF count -1 is negative; want 0 to 128 (sriov_totalvfs)"}},
		"no SR-IOV": {noSRIOV, nic.PFSpec{VFCount: ptr(1), Autoprobe: ptr(true)}, []string{
			h + "VF count 1, but the device has no SR-IOV; want 0, or SR-IOV enabled in its firmware",
			h + "autoprobe is wished for, but the device has no SR-IOV; want no autoprobe"}},
		"PF without driver": {bare, nic.PFSpec{VFCount: ptr(1), Eswitch: nic.Switchdev}, []string{
			h + `eswitch mode "switchdev", but the PF, which has no driver, has no eswitch that can be set; want no mode, or legacy`,
			h + "VF count 1, but the PF has no driver, which is what makes VFs; want a PF that is bound"}},
		"entry beyond the count wished for": {mlx5(nic.Legacy, 8),
			nic.PFSpec{VFCount: ptr(2), VFs: make([]nic.VFSpec, 3)},
			[]string{h + "has an entry for VF 2; want VFs 0 to 1, as the VF count is 2"}},
		"entry beyond the count there is": {mlx5(nic.Legacy, 2), vfs(make([]nic.VFSpec, 4)...),
			[]string{h + "has an entry for VF 3; want VFs 0 to 1, as the VF count is 2"}},
		"entry without VFs": {mlx5(nic.Legacy, 0), vfs(nic.VFSpec{}),
			[]string{h + "has an entry for VF 0; want no entries, as there are no VFs"}},
		"unknown mode": {mlx5(nic.Legacy, 0), nic.PFSpec{Eswitch: "switch"},
			[]string{h + `eswitch mode "switch" is none; want legacy or switchdev`}},
		"mode of a device without eswitch": {pf(handle(0), "igb", "", 0), nic.PFSpec{Eswitch: nic.Switchdev},
			[]string{h + `eswitch mode "switchdev", but igb has no eswitch that can be set; want no mode, or legacy`}},
		"legacy mode of a device without eswitch": {pf(handle(0), "igb", "", 0), nic.PFSpec{Eswitch: nic.Legacy}, nil},
		"unknown driver": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{Driver: "uio"}),
			[]string{vf0 + `driver "uio" is none that can be wished for; want none, kernel or vfio-pci`}},
		"multicast MAC": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{MAC: &multicast}),
			[]string{vf0 + "MAC 01:00:5e:00:00:01 is a multicast address; want a unicast address: the first octet even"}},
		"no MAC for a netdev": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{LinkMAC: &nic.MAC{}}),
			[]string{vf0 + "netdev MAC 00:00:00:00:00:00 is zero or a multicast address; want a unicast address: the first octet even"}},
		"zero MAC": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{MAC: &nic.MAC{}}), nil},
		"MTU too low": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{MTU: 67}),
			[]string{vf0 + "MTU 67; want 68 to 9978 bytes"}},
		"MTU too high": {mlx5(nic.Switchdev, 1), vfs(nic.VFSpec{RepMTU: 9979}),
			[]string{vf0 + "representor MTU 9979; want 68 to 9978 bytes"}},
		"representor in legacy mode": {mlx5(nic.Switchdev, 1),
			nic.PFSpec{Eswitch: nic.Legacy, VFs: []nic.VFSpec{{RepMTU: 9000}}},
			[]string{vf0 + "representor MTU 9000, but there are no representors in legacy mode; want no representor MTU, or eswitch mode switchdev"}},
		"MTU of a VF for programs": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{Driver: nic.DriverVFIO, MTU: 9000}),
			[]string{vf0 + "MTU or netdev MAC, but with driver vfio-pci the VF has no netdev; want driver kernel, or neither of them"}},
		"MTU of a VF that nothing binds": {mlx5(nic.Legacy, 0),
			nic.PFSpec{VFCount: ptr(1), Autoprobe: ptr(false), VFs: []nic.VFSpec{{MTU: 9000}}},
			[]string{vf0 + "MTU or netdev MAC, but with driver none the VF has no netdev; want driver kernel, or neither of them"}},
		"MAC without a netdev of the PF": {noUplink,
			nic.PFSpec{VFCount: ptr(1), VFs: []nic.VFSpec{{MAC: ptr(mac(1))}}},
			[]string{vf0 + "MAC 02:00:00:00:00:01, which is set through the PF's netdev in legacy mode, and there is none here; want a PF with its netdev in the host's namespace"}},
		"two MACs where one is the law": {pf(handle(0), "igb", "", 1),
			vfs(nic.VFSpec{MAC: ptr(mac(1)), LinkMAC: ptr(mac(2))}),
			[]string{vf0 + "netdev MAC 02:00:00:00:00:02 beside MAC 02:00:00:00:00:01, from which igb lets no VF depart; want the address as MAC"}},
		"two MACs elsewhere": {mlx5(nic.Legacy, 1), vfs(nic.VFSpec{MAC: ptr(mac(1)), LinkMAC: ptr(mac(2))}), nil},
		"mode change over a pod": {away, nic.PFSpec{Eswitch: nic.Switchdev}, []string{
			`pci/0000:03:00.0 vf 1: is in use (its netdev is in another network namespace), and to "unbind pci/0000:03:00.0 vf 1" would take it away; want it free first`}},
		"removing a VF in use": {held, nic.PFSpec{VFCount: ptr(4)}, []string{
			vf0 + `is in use (held by default/web), and to "remove all VFs of pci/0000:03:00.0" would take it away; want it free first`}},
		"rebinding a VF in use": {held, vfs(nic.VFSpec{Driver: nic.DriverVFIO}), []string{
			vf0 + `is in use (held by default/web), and to "unbind pci/0000:03:00.0 vf 0" would take it away; want it free first`}},
		"another MAC for a VF in use": {held, vfs(nic.VFSpec{MAC: ptr(mac(1))}), []string{
			vf0 + `is in use (held by default/web), and to "unbind pci/0000:03:00.0 vf 0" would take it away; want it free first`}},
		"the neighbour of a VF in use":   {held, vfs(nic.VFSpec{}, nic.VFSpec{Driver: nic.DriverVFIO}), nil},
		"the representor of a VF in use": {held, vfs(nic.VFSpec{RepMTU: 9000}), nil},
		"all at once": {mlx5(nic.Legacy, 0), nic.PFSpec{Eswitch: "x", VFCount: ptr(200)}, []string{
			h + `eswitch mode "x" is none; want legacy or switchdev`,
			h + "VF count 200 is over the card's limit; want 0 to 128 (sriov_totalvfs)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			checkIs(t, spec(tt.spec), one(tt.pf), tt.want)
			checkIs(t, Complete(spec(tt.spec), one(tt.pf)), one(tt.pf), tt.want)
		})
	}
}

func TestCheckNames(t *testing.T) {
	state := one(pf(handle(0), "mlx5_core", nic.Legacy, 1))
	of := func(h ...nic.Handle) (out nic.Spec) {
		for _, h := range h {
			out.PFs = append(out.PFs, nic.PFSpec{Handle: h})
		}
		return out
	}
	checkIs(t, of(handle(0)), state, nil)
	checkIs(t, of(handle(0), handle(0)), state, []string{"pci/0000:03:00.0: is named twice; want one entry a PF"})
	checkIs(t, of(handle(7)), state, []string{"pci/0000:03:00.7: there is no such PF; want one of pci/0000:03:00.0"})
	checkIs(t, of(handle(7)), nic.State{}, []string{"pci/0000:03:00.7: there is no such PF; want a PF of this node, and it has none"})
	checkIs(t, of(nic.Handle{}), state, []string{"the spec: an entry names no PF; want a handle, for example pci/0000:03:00.0"})
	checkIs(t, of(nic.PCI("0000:03:01.0")), state, []string{
		"pci/0000:03:01.0: is no PF but VF 0 of pci/0000:03:00.0; want the PF, pci/0000:03:00.0"})
}

func checkIs(t *testing.T, s nic.Spec, state nic.State, want []string) {
	t.Helper()
	var got []string
	for _, p := range Check(s, state) {
		got = append(got, p.Error())
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
