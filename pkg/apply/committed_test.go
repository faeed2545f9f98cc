package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// What came later lies over a wish PF by PF; a bond whose ports came later stays with
// them, and one that they left goes.
func TestLaterOverAWish(t *testing.T) {
	bond0, none := "bond0", ""
	in := func(name *string, vfs int) []nic.PFSpec {
		return []nic.PFSpec{{Handle: port(0), VFCount: &vfs, Bond: name}, {Handle: port(1), VFCount: &vfs, Bond: name}}
	}
	bonds := []nic.BondSpec{{Name: bond0, Mode: nic.BalanceXOR, Members: []nic.Handle{port(0), port(1)}}}
	base := nic.Spec{PFs: in(&bond0, 4), Bonds: bonds}

	if l := Later(base, base); !Nothing(l) {
		t.Errorf("nothing has come: %+v", l)
	}
	other := nic.Spec{PFs: in(&bond0, 4), Bonds: bonds}
	other.PFs[1].VFCount = ptr(2)
	if d := cmp.Diff(other, ordered(Onto(base, Later(base, other)))); d != "" {
		t.Errorf("another number of VFs: %s", d)
	}
	apart := nic.Spec{PFs: in(&none, 4)}
	if d := cmp.Diff(apart, ordered(Onto(base, Later(base, apart)))); d != "" {
		t.Errorf("out of the bond: %s", d)
	}
	// What the document says of another PF is not touched by it.
	wish := nic.Spec{PFs: append(in(&bond0, 8), nic.PFSpec{Handle: port(2), VFCount: ptr(1)}), Bonds: bonds}
	want := wish
	want.PFs = append(in(&bond0, 4), wish.PFs[2])
	want.PFs[0].VFCount, want.PFs[1].VFCount = ptr(8), ptr(2)
	if d := cmp.Diff(want, ordered(Onto(wish, Later(base, other)))); d != "" {
		t.Errorf("over another wish: %s", d)
	}
}

func ordered(s nic.Spec) nic.Spec {
	out := s
	out.PFs = nil
	for i := range 3 {
		if w := s.PF(port(i)); w != nil {
			out.PFs = append(out.PFs, *w)
		}
	}
	return out
}
