package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/fleet"
)

// counted is what m says, each as name{labels} value, and each name as in a row of
// docs/metrics.md: name, type, labels.
func counted(t *testing.T, m *meters) (values, rows []string) {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := m.register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var labels []string
		for _, metric := range f.GetMetric() {
			var pairs []string
			labels = nil
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName())
				pairs = append(pairs, l.GetValue())
			}
			values = append(values, fmt.Sprintf("%s%q %v", f.GetName(), pairs, metric.GetGauge().GetValue()+metric.GetCounter().GetValue()+float64(metric.GetHistogram().GetSampleCount())))
		}
		rows = append(rows, fmt.Sprint(f.GetName(), " ", strings.ToLower(f.GetType().String()), " ", labels))
	}
	return values, rows
}

func TestMeters(t *testing.T) {
	m := newMeters()
	good := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue}
	bad := metav1.Condition{Type: v1alpha1.Degraded, Status: metav1.ConditionTrue, ObservedGeneration: 2}
	node := func(name string, c ...metav1.Condition) fleet.Node {
		o := &v1alpha1.NodeNIC{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}}
		o.Status.Conditions = c
		return fleet.Node{Name: name, Ready: true, NIC: o}
	}
	waits := node("n3")
	waits.NIC.Status.Plan = &v1alpha1.Plan{Generation: 2, State: v1alpha1.PlanWaiting}
	nodes := []fleet.Node{node("n1", good), node("n2", bad), waits}
	policy := func(name string, selector *metav1.LabelSelector, conditions ...metav1.Condition) v1alpha1.NICPolicy {
		p := v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.NodeSelector = selector
		p.Status.Conditions = conditions
		return p
	}
	all := policy("all", &metav1.LabelSelector{}, metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse})
	all.Status.Nodes, all.Status.ReadyNodes, all.Status.Conflicts = 3, 1, make([]v1alpha1.PolicyConflict, 2)
	none := policy("none", &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, good)
	odd := policy("odd", nil, metav1.Condition{Type: v1alpha1.Valid, Status: metav1.ConditionFalse})
	m.fleet.tallied([]v1alpha1.NICPolicy{all, none, odd}, nodes)

	fails := m.loop("pace", func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("no")
	})
	if _, err := fails(t.Context(), reconcile.Request{}); err == nil {
		t.Error("the loop's error is lost")
	}
	m.moves.WithLabelValues(string(fleet.LetGo), resultOf(nil)).Inc()
	m.evictions.WithLabelValues("blocked").Inc()

	values, rows := counted(t, m)
	for _, want := range []string{
		`sluice_policies["ready"] 1`, `sluice_policies["not ready"] 1`, `sluice_policies["refused"] 1`, `sluice_policies["conflicted"] 0`,
		`sluice_policy_nodes["all"] 3`, `sluice_policy_ready_nodes["all"] 1`, `sluice_policy_conflicts["all"] 2`,
		`sluice_policy_paused["all"] 1`, `sluice_policy_paused["none"] 0`,
		`sluice_nodes[] 3`, `sluice_node_conditions["Ready" "True"] 1`, `sluice_node_conditions["Ready" "Unknown"] 2`, `sluice_node_conditions["Degraded" "True"] 1`,
		`sluice_reconciles_total["pace" "error"] 1`, `sluice_reconciles_total["pace" "ok"] 0`, `sluice_reconcile_duration_seconds["pace"] 1`,
		`sluice_node_moves_total["let go" "ok"] 1`, `sluice_evictions_total["blocked"] 1`, `sluice_controller_leads[] 0`,
	} {
		if !slices.Contains(values, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(values, "\n"))
		}
	}

	// A policy that has gone is not told of any more.
	m.fleet.tallied([]v1alpha1.NICPolicy{none}, nodes)
	values, _ = counted(t, m)
	if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, `"all"`) }) {
		t.Errorf("of a policy that has gone:\n%s", strings.Join(values, "\n"))
	}

	// docs/metrics.md lists what is counted, and nothing else.
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "\n## Of the controller\n")
	part, _, _ = strings.Cut(part, "\n## ")
	row, label := regexp.MustCompile("(?m)^\\| `(sluice_\\w+)` \\| (\\w+) \\|([^|]*)\\|"), regexp.MustCompile("`(\\w+)`")
	var documented []string
	for _, found := range row.FindAllStringSubmatch(part, -1) {
		var labels []string
		for _, l := range label.FindAllStringSubmatch(found[3], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		documented = append(documented, fmt.Sprint(found[1], " ", found[2], " ", labels))
	}
	slices.Sort(documented)
	if diff := cmp.Diff(rows, documented); diff != "" {
		t.Errorf("counted (-) and in docs/metrics.md (+):\n%s", diff)
	}
	every := make(chan *prometheus.Desc, 100)
	r := prometheus.NewRegistry()
	if err := m.register(r); err != nil {
		t.Fatal(err)
	}
	r.Describe(every)
	if len(every) != len(rows) {
		t.Errorf("%d are registered, of which %d count something here", len(every), len(rows))
	}
}
