package proof_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/offload/proof"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

// TestSF: the representor of an SF is found by its name, among all, and by the namespace
// that the SF is in; the SF's own netdev is refused with the representor's name.
func TestSF(t *testing.T) {
	s, err := sim.Parse("mlx5:cards=1,ports=1,vfs=4,numvfs=1,numsfs=2,mode=switchdev")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddNetns(pod); err != nil {
		t.Fatal(err)
	}
	m := s.Machine()
	state, err := host.Observe(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	pf, sf := state.PFs[0], state.PFs[0].SFs[1]
	want := proof.Port{Netdev: sf.Rep.Name, Ifindex: sf.Rep.Ifindex, SF: &nic.SFID{PF: pf.Handle, Num: sf.Num}, Address: sf.Device}
	r := proof.Reader{Machine: m, Rules: kernel{}}
	got, err := r.Port(t.Context(), sf.Rep.Name)
	if d := cmp.Diff(want, got.Port); err != nil || d != "" {
		t.Errorf("by name: %v %s", err, d)
	}
	if text := got.Port.String(); text != sf.Rep.Name+" (representor of pci/0000:03:00.0 sf 2, "+sf.Device+")" {
		t.Errorf("in words: %s", text)
	}
	if all, err := r.All(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("all: %v, %v", all, err)
	}
	itself := sf.Netdev.Name + " is the netdev of pci/0000:03:00.0 sf 2 itself: its rules are on the representor " + sf.Rep.Name
	if _, err := r.Port(t.Context(), sf.Netdev.Name); err == nil || err.Error() != itself {
		t.Errorf("itself: %v", err)
	}
	if err := m.Links.Move(t.Context(), sf.Netdev.Ifindex, pod); err != nil {
		t.Fatal(err)
	}
	want.PodDev = sf.Netdev.Name
	in, err := r.Netns(t.Context(), pod)
	if err != nil || len(in) != 1 {
		t.Fatalf("%v %v", in, err)
	}
	if d := cmp.Diff(want, in[0].Port); d != "" {
		t.Error(d)
	}
}
