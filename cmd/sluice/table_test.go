package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// What `kubectl get` prints is made by the API server: whether a node is fine, and if
// not what it is about, is in one row; why, with -o wide.
func TestWhatKubectlPrints(t *testing.T) {
	k := newKube(t)
	now := metav1.Now()
	says := func(kind, status, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: now}
	}
	for name, s := range map[string]v1alpha1.NodeNICStatus{
		"fine": {Conditions: []metav1.Condition{
			says("Ready", "True", "AsWanted", ""), says("Resolved", "True", "AsWanted", ""), says("OffloadCapable", "True", "FlowsInHardware", ""),
		}, Inventory: &v1alpha1.Inventory{PFs: 2, VFs: 8}, Plan: &v1alpha1.Plan{Generation: 1, State: "done", Impact: "drain", Progress: "7/7"}},
		"drained": {Conditions: []metav1.Condition{says("Ready", "False", "WaitsForPods", "pci/0000:03:00.0 vf 1: a/b"), says("Resolved", "True", "AsWanted", "")},
			Plan: &v1alpha1.Plan{Generation: 1, State: "waiting", Impact: "drain", Progress: "0/7"}},
		"broken":     {Conditions: []metav1.Condition{says("Ready", "False", "Broken", "no room"), says("Resolved", "True", "AsWanted", "")}},
		"gone":       {Conditions: []metav1.Condition{says("Ready", "Unknown", "NodeAway", "Kubelet stopped posting node status."), says("Resolved", "True", "AsWanted", "")}},
		"quarrelled": {Conditions: []metav1.Condition{says("Ready", "True", "AsWanted", ""), says("Resolved", "False", "Conflict", "policies a and b")}},
	} {
		o := &v1alpha1.NodeNIC{}
		o.Name = name
		k.do(k.Create(t.Context(), o))
		o.Status = s
		k.do(k.Status().Update(t.Context(), o))
	}
	p := k.policy("p", "{nodeSelector: {}, priority: 5}")
	p.Status = v1alpha1.NICPolicyStatus{Nodes: 3, ReadyNodes: 2, Conditions: []metav1.Condition{
		says("Ready", "False", "HeldUp", "2 of 3 nodes are as wanted"), says("Progressing", "False", "HeldUp", ""),
	}}
	k.do(k.Status().Update(t.Context(), p))

	for kind, want := range map[string]string{
		"nodenics": `
NAME READY STATE POLICIES PFS VFS STEPS IMPACT OFFLOAD
broken False Broken AsWanted
drained False WaitsForPods AsWanted 0/7 drain
fine True AsWanted AsWanted 2 8 7/7 drain True
gone Unknown NodeAway AsWanted
quarrelled True AsWanted Conflict`,
		"nicpolicies": `
NAME READY STATE PRIORITY NODES READY_NODES
p False HeldUp 5 3 2`,
	} {
		if d := cmp.Diff(strings.TrimPrefix(want, "\n"), k.table(kind)); d != "" {
			t.Errorf("%s: %s", kind, d)
		}
	}
}

// table is what kubectl prints of a kind, without ages and what only -o wide has, with
// one space between columns.
func (k *kube) table(resource string) string {
	k.t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(k.config)
	k.do(err)
	raw, err := c.RESTClient().Get().AbsPath("/apis/sluice.dev/v1alpha1", resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(k.t.Context())
	k.do(err)
	var table metav1.Table
	k.do(json.Unmarshal(raw, &table))
	var lines []string
	var words []string
	shown := map[int]bool{}
	for i, column := range table.ColumnDefinitions {
		if shown[i] = column.Priority == 0 && column.Name != "Age"; shown[i] {
			words = append(words, strings.ToUpper(strings.ReplaceAll(column.Name, " ", "_")))
		}
	}
	lines = append(lines, strings.Join(words, " "))
	for _, row := range table.Rows {
		words = nil
		for i, cell := range row.Cells {
			raw, err := json.Marshal(cell)
			k.do(err)
			if text := strings.Trim(string(raw), `"`); shown[i] && text != "null" && text != "" {
				words = append(words, text)
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}
