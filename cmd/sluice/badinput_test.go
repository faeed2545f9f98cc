package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// blame is a condition that says what is wrong.
type blame struct {
	kind, reason string
	status       metav1.ConditionStatus
}

// What is wrong with policies only together, or only on a node, is said on each policy
// that has to do with it and on the node, by name; and nothing is done to any node.
func TestBadInputAcrossObjects(t *testing.T) {
	conflict := blame{v1alpha1.Conflicted, v1alpha1.ReasonConflict, metav1.ConditionTrue}
	invalid := blame{v1alpha1.Valid, v1alpha1.ReasonRefused, metav1.ConditionFalse}
	refused := blame{v1alpha1.Ready, v1alpha1.ReasonRefused, metav1.ConditionFalse}
	k := newKube(t)
	crowd := k.crowd(2)
	second := crowd.nodes["node-0001"]
	second.mu.Lock()
	second.state.PFs[1].Carries = []string{"the default route"}
	second.mu.Unlock()
	second.agent.Looked()
	k.counting()
	crowd.await(t, "known", func(o *v1alpha1.NodeNIC) bool {
		return o.Status.Inventory != nil && (o.Name == "node-0000" || len(o.Status.Inventory.Ports[1].Carries) == 1)
	})
	k.policy("base", "{nodeSelector: {}, maxUnavailable: 2, pfs: [{pf: '0000:03:00.0', numVfs: 4}]}")
	crowd.await(t, "of four VFs", asWanted(4))

	for name, c := range map[string]struct {
		policies map[string]string // beside base
		on       map[string]blame  // policy: what it says
		says     string            // each of these, and the node
		node     string            // which is refused: all if ""
		agent    bool              // that refuses, not the controller: then the spec is written
	}{
		"ranges that overlap": {
			policies: map[string]string{
				"blue":  "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{pf: '0000:03:00.0', vfGroups: [{range: 0-2, mtu: 1400}]}]}",
				"green": "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{pf: '0000:03:00.0', vfGroups: [{range: 2-3, mtu: 1300}]}]}",
			},
			on:   map[string]blame{"blue": conflict, "green": conflict},
			says: `policies "blue" and "green", both of priority 0: pci/0000:03:00.0 vfGroups: VF 2 in both`,
		},
		"one VF in two pools": {
			policies: map[string]string{
				"blue":  "{nodeSelector: {matchLabels: {case: bad}}, priority: 7, pools: [{name: fast, pfs: ['0000:03:00.0#0-2']}]}",
				"green": "{nodeSelector: {matchLabels: {case: bad}}, pools: [{name: slow, pfs: ['0000:03:00.0#2-3']}]}",
			},
			on:   map[string]blame{"blue": invalid, "green": invalid},
			says: `policies "blue" and "green": VF 2 of pci/0000:03:00.0 is in pool sluice.dev/fast and in pool sluice.dev/slow`,
		},
		"modes": {
			policies: map[string]string{
				"blue":  "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{select: {vendor: 15b3}, eswitch: switchdev}]}",
				"green": "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{pf: '0000:03:00.1', eswitch: legacy}]}",
			},
			on:   map[string]blame{"blue": conflict, "green": conflict},
			says: `policies "blue" and "green", both of priority 0: pci/0000:03:00.1 eswitch: "switchdev" and "legacy"`,
		},
		"a number with another policy": {
			policies: map[string]string{"blue": "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{pf: '0000:03:00.0', numVfs: 6}]}"},
			on:       map[string]blame{"blue": conflict, "base": conflict},
			says:     `policies "base" and "blue", both of priority 0: pci/0000:03:00.0 numVfs: 4 and 6`,
		},
		"a number that the NIC cannot make": {
			policies: map[string]string{"blue": "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{pf: '0000:03:00.1', numVfs: 9}]}"},
			on:       map[string]blame{"blue": invalid},
			says:     `pci/0000:03:00.1, as policy "blue" has it: numVfs: 9 is more or less than pci/0000:03:00.1 can have: want 0 to 8`,
		},
		"a driver that no PF has": {
			policies: map[string]string{"blue": "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{select: {driver: mlx9_core}, numVfs: 1}]}"},
			on:       map[string]blame{"blue": invalid},
			says:     `policy "blue": spec.pfs[0].select: it chooses no PF`,
		},
		"a PF over which the node is reached, by a selector": {
			policies: map[string]string{"blue": "{nodeSelector: {matchLabels: {case: bad}}, pfs: [{select: {vendor: 15b3}, eswitch: switchdev}]}"},
			on:       map[string]blame{"blue": refused, "base": refused},
			says:     `pci/0000:03:00.1: carries the default route, and to "set eswitch of pci/0000:03:00.1 to switchdev" would touch it`,
			node:     "node-0001",
			agent:    true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := map[string]*v1alpha1.NodeNIC{}
			for _, name := range crowd.names {
				before[name] = k.nicNow(name)
			}
			for name, text := range c.policies {
				k.policy(name, text)
			}
			// All of them are there before a node is theirs: the first alone would be done.
			k.label(crowd.names, "bad")
			for policy, b := range c.on {
				p := k.awaitPolicy(policy, "blamed", func(p *v1alpha1.NICPolicy) bool {
					is := meta.FindStatusCondition(p.Status.Conditions, b.kind)
					return is != nil && is.Status == b.status && is.Reason == b.reason
				})
				if is := meta.FindStatusCondition(p.Status.Conditions, b.kind); !strings.Contains(is.Message, c.says) {
					t.Errorf("policy %s says %q, want %q", policy, is.Message, c.says)
				}
				if b.kind == v1alpha1.Ready && (len(p.Status.NotReady) != 1 || p.Status.NotReady[0].Name != c.node) {
					t.Errorf("policy %s: %+v: want %s not ready", policy, p.Status.NotReady, c.node)
				}
			}
			for node, was := range before {
				if c.node != "" && node != c.node {
					continue
				}
				kind, status, generation := v1alpha1.Resolved, metav1.ConditionFalse, was.Generation
				if c.agent {
					kind, status, generation = v1alpha1.Degraded, metav1.ConditionTrue, generation+1
				}
				o := k.await(node, "refused", func(o *v1alpha1.NodeNIC) bool {
					is := meta.FindStatusCondition(o.Status.Conditions, kind)
					return is != nil && is.Status == status && strings.Contains(is.Message, c.says)
				})
				if d := cmp.Diff(was.Status.Inventory, o.Status.Inventory); d != "" || o.Generation != generation {
					t.Errorf("%s: generation %d: want %d, and nothing changed: %s", node, o.Generation, generation, d)
				}
			}
			for name := range c.policies {
				p := &v1alpha1.NICPolicy{}
				p.Name = name
				k.do(k.Delete(t.Context(), p))
			}
			k.label(crowd.names, "")
			k.awaitPolicy("base", "alone again", func(p *v1alpha1.NICPolicy) bool {
				return p.Status.ReadyNodes == 2 && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.Valid) && meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.Conflicted)
			})
		})
	}

	// What one object can tell by itself never gets as far as that.
	p := &v1alpha1.NICPolicy{}
	p.Name = "driver"
	p.Spec.NodeSelector = &metav1.LabelSelector{}
	p.Spec.PFs = []v1alpha1.PF{{PF: "0000:03:00.0", VFGroups: []v1alpha1.VFGroup{{Driver: "uio"}}}}
	if err := k.Create(t.Context(), p, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.pfs[0].vfGroups[0].driver") {
		t.Errorf("an unknown driver of VFs: %v", err)
	}
}

// label makes nodes those of a case, or of none: "".
func (k *kube) label(nodes []string, value string) {
	k.t.Helper()
	for _, name := range nodes {
		n := k.nodeNow(name)
		patch := client.MergeFrom(n.DeepCopy())
		delete(n.Labels, "case")
		if value != "" {
			n.Labels["case"] = value
		}
		k.do(k.Patch(k.t.Context(), n, patch))
	}
}
