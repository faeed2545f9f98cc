package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// When the last policy of a node goes, nothing is wanted of it and no pool is offered;
// the next policy is taken up as the first was.
func TestLastPolicyGoes(t *testing.T) {
	const text = "{nodeSelector: {}, pfs: [{pf: '0000:03:00.0', numVfs: 2}], pools: [{name: fast, pfs: ['0000:03:00.0']}]}"
	k := newKube(t)
	k.node("n1")
	m := newMachine(t)
	k.agent("n1", m)
	k.controller()
	offers := func(o *v1alpha1.NodeNIC) bool { return ready(o) && len(o.Status.Pools) == 1 }
	k.policy("p", text)
	k.await("n1", "ready, with its pool", offers)
	k.do(k.Delete(t.Context(), &v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}))
	k.await("n1", "as nobody wants it", func(o *v1alpha1.NodeNIC) bool {
		return len(o.Spec.PFs) == 0 && len(o.Spec.Pools) == 0 && o.Status.LastGoodGeneration == o.Generation && len(o.Status.Pools) == 0
	})
	k.policy("q", text)
	k.await("n1", "ready again", offers)
}
