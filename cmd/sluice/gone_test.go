package main

import (
	"testing"

	"sluice.dev/sluice/pkg/nic"
)

// What is said of VFs that went from the bus: which, whose others keep them away, and
// of no port of which no number of VFs is wanted.
func TestGoneVFsAreSaid(t *testing.T) {
	state := nic.State{PFs: []nic.PF{
		{Handle: nic.PCI("0000:03:00.0"), VFs: []nic.VF{{Index: 0, Owner: "pod default/a"}, {Index: 1, Gone: true}, {Index: 2, Away: true}}},
		{Handle: nic.PCI("0000:03:00.1"), VFs: []nic.VF{{Index: 0, Gone: true}}},
		{Handle: nic.PCI("0000:04:00.0"), VFs: []nic.VF{{Index: 0}, {Index: 1, Gone: true}}},
	}}
	three, two := 3, 2
	spec := nic.Spec{PFs: []nic.PFSpec{
		{Handle: nic.PCI("0000:03:00.0"), VFCount: &three},
		{Handle: nic.PCI("0000:03:00.1")},
		{Handle: nic.PCI("0000:04:00.0"), VFCount: &two},
		{Handle: nic.PCI("0000:05:00.0"), VFCount: &two},
	}}
	want := "pci/0000:03:00.0 vf 1 went from the bus; it is made anew, with all of its port, when none of these is in use: " +
		"pci/0000:03:00.0 vf 0 held by pod default/a, pci/0000:03:00.0 vf 2 its netdev is in another network namespace; " +
		"pci/0000:04:00.0 vf 1 went from the bus"
	if got := gone(spec, state); got != want {
		t.Errorf("said is\n%s\nwant\n%s", got, want)
	}
	state.PFs[0].VFs[1].Gone, state.PFs[2].VFs[1].Gone = false, false
	if got := gone(spec, state); got != "" {
		t.Errorf("%q is said of a node that has all its VFs", got)
	}
}
