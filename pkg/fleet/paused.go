package fleet

import "sluice.dev/sluice/pkg/api/v1alpha1"

// Paused answers the policies, by name, of which nodes wait that will not get their
// turn by themselves (Rollout.Held). Somebody has to look at those that they wait for,
// or let more be unavailable.
func Paused(policies []v1alpha1.NICPolicy, nodes []Node) map[string]bool {
	out := map[string]bool{}
	turns := Turns(policies, nodes)
	for i := range policies {
		p := &policies[i]
		if chosen, err := Chosen(p, nodes); err == nil && RolloutOf(chosen, turns).Held {
			out[p.Name] = true
		}
	}
	return out
}
