package fleet

import (
	"fmt"
	"reflect"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// taken is a group that has its VFs.
type taken struct {
	voice
	group v1alpha1.VFGroup // as its policy wrote it
	vfs   nic.Ranges
}

// groups gives each group of VFs what no policy before has. A VF in two groups of
// equal priority that are not the same is a conflict.
func (w *wishing) groups(h nic.Handle, claims []claim, count int) []v1alpha1.VFGroup {
	var out []v1alpha1.VFGroup
	var all []taken
	alone := len(claims) == 1
	for _, c := range claims {
		var mine []taken
		for i, g := range c.value.VFGroups {
			vfs, err := nic.ParseRanges(g.Range)
			if err != nil {
				w.fail(fmt.Errorf("policy %q: %s vfGroups[%d].range: %w", c.policy, h, i, err), c.policy)
				continue
			}
			t := taken{c.voice, g, vfs}
			if alone {
				out = append(out, g)
				continue
			}
			// A range that goes beyond the VFs stays as it is, to be refused.
			if len(vfs) == 0 {
				t.vfs = vfs.Within(count)
			}
			if left, some := w.rest(h, t, all); some {
				g.Range = left.String()
				out = append(out, g)
			}
			mine = append(mine, t)
		}
		// Groups of one policy are compared where every document's are.
		all = append(all, mine...)
	}
	return out
}

// rest is what of t nobody in all has; false if that is nothing.
func (w *wishing) rest(h nic.Handle, t taken, all []taken) (nic.Ranges, bool) {
	left := t.vfs
	for _, o := range all {
		if len(left) == 0 || len(o.vfs) == 0 {
			continue
		}
		if t.priority == o.priority && !alike(t.group, o.group) {
			if both, yes := t.vfs.Shared(o.vfs); yes {
				w.overlap(h, o, t, both)
			}
		}
		left = left.Without(o.vfs)
	}
	return left, len(left) > 0
}

// alike says that two groups want the same of their VFs.
func alike(a, b v1alpha1.VFGroup) bool {
	a.Range, b.Range = "", ""
	return reflect.DeepEqual(a, b)
}

func (w *wishing) overlap(h nic.Handle, a, b taken, both nic.Range) {
	if a.policy > b.policy {
		a, b = b, a
	}
	w.conflicts.add(a.voice, b.voice, h.String()+" vfGroups", fmt.Sprintf("VF %s in both %s and %s", both, text(a.group), text(b.group)),
		"ranges that do not overlap, or different priorities")
}
