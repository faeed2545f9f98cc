package policy

import (
	"fmt"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// pools checks selectors of pools. Their names, ranges and overlaps are for who
// offers them.
func (r *resolver) pools(pools []v1alpha1.Pool) {
	for i, p := range pools {
		path := fmt.Sprintf("spec.pools[%d]", i)
		if p.Range != "" && p.Select == nil {
			r.fail(path+".range", "%q without select, to which it belongs: want it behind the PF in pfs, PF#%s", p.Range, p.Range)
		}
		if _, err := nic.ParseRanges(p.Range); err != nil {
			r.fail(path+".range", "%v", err)
		}
		if p.Select == nil || !r.choice(path+".select", *p.Select) {
			continue
		}
		if len(choose(*p.Select, r.state)) == 0 {
			r.fail(path+".select", "it chooses no PF: want values that one has; this node has %s", describePFs(r.state))
		}
	}
}

// PoolPFs is what p selects on the observed node, each as PF or PF#RANGE: what
// pfs lists, and then the PFs that select chooses. The document must be one that
// Resolve accepts.
func PoolPFs(p v1alpha1.Pool, state nic.State) []string {
	out := append([]string(nil), p.PFs...)
	if p.Select == nil {
		return out
	}
	for _, pf := range choose(*p.Select, state) {
		text := pf.Handle.String()
		if p.Range != "" {
			text += "#" + p.Range
		}
		out = append(out, text)
	}
	return out
}
