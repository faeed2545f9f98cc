package fleet

import "sluice.dev/sluice/pkg/api/v1alpha1"

// Paused answers the policies, by name, of which nodes wait that will not get their
// turn by themselves: as many nodes as may be unavailable are, and none of these is on
// its way to what is wanted. Somebody has to look at them, or let more be unavailable.
func Paused(policies []v1alpha1.NICPolicy, nodes []Node) map[string]bool {
	out := map[string]bool{}
	for i := range policies {
		p := &policies[i]
		size, waiting, away, moving := 0, 0, 0, 0
		for _, n := range nodes {
			if yes, err := Chooses(p, n.Labels); err != nil || !yes {
				continue
			}
			size++
			switch {
			case n.unavailable() && n.phase() == goes:
				moving++
			case n.unavailable():
				away++
			case n.phase() == asks:
				waiting++
			}
		}
		if waiting > 0 && moving == 0 && away >= most(p.Spec.MaxUnavailable, size) {
			out[p.Name] = true
		}
	}
	return out
}
