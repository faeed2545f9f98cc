package fleet

import (
	"fmt"
	"reflect"
	"strings"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
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

// shared notes VFs that two pools of different policies have, whatever their
// priorities: a VF is given away once.
func (w *wishing) shared(a, b offered) {
	if a.policy == b.policy {
		return
	}
	for _, x := range w.picks(a.pool) {
		for _, y := range w.picks(b.pool) {
			if both, yes := x.vfs.Shared(y.vfs); yes && x.pf == y.pf {
				w.fail(fmt.Errorf("policies %q and %q: %s: VFs %s are in pool %s and in pool %s: want each VF in one pool",
					a.policy, b.policy, x.pf, stretch(both), resource(a.pool), resource(b.pool)), a.policy, b.policy)
			}
		}
	}
}

func stretch(r nic.Range) string {
	if r.Last == nic.MaxVFIndex {
		return fmt.Sprintf("from %d on", r.First)
	}
	return r.String()
}

// pick is VFs of a PF.
type pick struct {
	pf  nic.Handle
	vfs nic.Ranges
}

// picks reads what a pool selects; what is wrong in it is said by who offers it.
func (w *wishing) picks(p v1alpha1.Pool) []pick {
	var out []pick
	for _, text := range policy.PoolPFs(p, w.state) {
		name, ranges, _ := strings.Cut(text, "#")
		vfs, err := nic.ParseRanges(ranges)
		if err != nil {
			continue
		}
		for _, h := range w.handles(name) {
			out = append(out, pick{h, vfs})
		}
	}
	return out
}

// handles is the PF of that name, or the PFs of the bond of that name.
func (w *wishing) handles(name string) []nic.Handle {
	if pf, err := policy.FindPF(w.state, name); err == nil {
		return []nic.Handle{pf.Handle}
	}
	var out []nic.Handle
	for _, b := range w.spec.Bonds {
		if b.Name != name {
			continue
		}
		for _, member := range b.PFs {
			if pf, err := policy.FindPF(w.state, member); err == nil {
				out = append(out, pf.Handle)
			}
		}
		return out
	}
	for _, b := range w.state.Bonds {
		if b.Name == name {
			return b.Members
		}
	}
	return nil
}
