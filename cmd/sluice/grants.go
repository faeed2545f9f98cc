package main

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/network/slots"
	"sluice.dev/sluice/pkg/policy"
)

// grants brings this node's blocks of the cluster's Networks to where the CNI plugin
// takes addresses from, so that no ADD asks anybody else.
type grants struct {
	*cluster
	store slots.Store
	said  map[string]string // what is wrong, by network
}

// heard makes the store what the Networks say, as far as OVN has been told of it. What
// was brought by hand stays.
func (g *grants) heard(all []v1alpha1.Network) {
	wrong := map[string]string{}
	have := map[string]bool{}
	for i := range all {
		o := &all[i]
		block, ok := blockOf(o, g.name)
		if !ok {
			continue
		}
		have[string(o.UID)] = true
		if !told(o) {
			continue // until then it is as it was
		}
		if err := g.put(o, block); err != nil {
			wrong[o.Name] = err.Error()
		}
	}
	names, err := g.store.Names()
	if err != nil {
		wrong[""] = err.Error()
	}
	for _, name := range names {
		if err := g.drop(name, have); err != nil {
			wrong[name] = err.Error()
		}
	}
	for name, text := range wrong {
		if g.said[name] != text {
			g.fault(faultState, "this node's part of a network is not as it should be", "network", name, "error", text)
		}
	}
	g.said = wrong
}

func blockOf(o *v1alpha1.Network, node string) (int, bool) {
	i := slices.IndexFunc(o.Status.Blocks, func(b v1alpha1.NetworkBlock) bool { return b.Node == node })
	if i < 0 {
		return 0, false
	}
	return o.Status.Blocks[i].Block, true
}

// told says that OVN has what the object wants now.
func told(o *v1alpha1.Network) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Ready)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.Generation
}

func (g *grants) put(o *v1alpha1.Network, block int) error {
	n, err := policy.ResolveNetwork(o)
	if err != nil {
		return err
	}
	before, _ := g.store.Get(o.Name)
	if err := g.store.Put(slots.Grant{Network: n, Block: block, Object: string(o.UID)}); err != nil {
		return err
	}
	if before.Object != string(o.UID) || before.Block != block {
		g.log.Info("this node has a part of a network", "network", n.Name, "block", block, "addresses", len(n.Slots(block)))
	}
	return nil
}

// drop forgets a network that is gone, or of which this node has no part any more, when
// its last pod is.
func (g *grants) drop(name string, have map[string]bool) error {
	grant, err := g.store.Get(name)
	if err != nil {
		return err
	}
	if grant.Object == "" || have[grant.Object] {
		return nil
	}
	if err := g.store.Drop(name); err != nil {
		return fmt.Errorf("it is gone from the cluster, and stays here: %w", err)
	}
	g.log.Info("this node has no part of a network any more", "network", name)
	return nil
}
