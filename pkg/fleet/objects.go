package fleet

import (
	"fmt"
	"reflect"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/policy"
)

// bonds takes the bonds of all policies, of one name the one that is heard first.
func (w *wishing) bonds() {
	var kept []said[v1alpha1.Bond]
next:
	for _, p := range w.policies {
		for _, b := range p.value.Spec.Bonds {
			for _, k := range kept {
				if k.value.Name != b.Name {
					continue
				}
				if k.priority == p.priority && !reflect.DeepEqual(k.value, b) {
					w.conflicts.differ(k.voice, p.voice, "bond "+b.Name, text(k.value), text(b))
				}
				continue next
			}
			kept = append(kept, said[v1alpha1.Bond]{p.voice, b})
			w.spec.Bonds = append(w.spec.Bonds, b)
		}
	}
}

// offered is a pool with the policies that it comes from.
type offered struct {
	voice
	pool v1alpha1.Pool
}

// pools takes the pools of all policies. Those of one resource that differ in
// nothing but PFs are one pool over all of these; else the one that is heard first
// counts.
func (w *wishing) pools() {
	var kept []offered
	for _, p := range w.policies {
		for _, pool := range p.value.Spec.Pools {
			kept = w.pool(kept, offered{p.voice, *pool.DeepCopy()})
		}
	}
	for i, a := range kept {
		for _, b := range kept[:i] {
			w.shared(b, a)
		}
		w.spec.Pools = append(w.spec.Pools, a.pool)
	}
}

func (w *wishing) pool(kept []offered, o offered) []offered {
	for i := range kept {
		k := &kept[i]
		if resource(k.pool) != resource(o.pool) || k.policy == o.policy {
			continue
		}
		a, b := k.pool, o.pool
		a.PFs, b.PFs, a.Prefix, b.Prefix = nil, nil, "", ""
		switch {
		case reflect.DeepEqual(a, b):
			k.pool.PFs = join(k.pool.PFs, o.pool.PFs)
		case k.priority == o.priority:
			w.conflicts.differ(k.voice, o.voice, "pool "+resource(o.pool), text(k.pool), text(o.pool))
		}
		return kept
	}
	return append(kept, o)
}

func resource(p v1alpha1.Pool) string {
	if p.Prefix == "" {
		return v1alpha1.Group + "/" + p.Name
	}
	return p.Prefix + "/" + p.Name
}

// shared notes devices that two pools of different policies have, whatever their
// priorities: each is given away once.
func (w *wishing) shared(a, b offered) {
	if a.policy == b.policy {
		return
	}
	for _, both := range policy.Shared(w.spec.Bonds, a.pool, b.pool, w.state) {
		w.fail(fmt.Errorf("policies %q and %q: %s is in pool %s and in pool %s: want each in one pool",
			a.policy, b.policy, both, resource(a.pool), resource(b.pool)), a.policy, b.policy)
	}
}
