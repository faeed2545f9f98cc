// Package promql holds what Prometheus and Grafana are to ask, deploy/alerts.yaml and
// deploy/grafana, against docs/metrics.md, which the metrics' own tests hold against what
// is counted.
package promql

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const tree = "../../"

// metric is a row of the page.
type metric struct {
	kind   string
	labels []string
	about  string // labels with their values, as the page has them
}

func metrics(t *testing.T) map[string]metric {
	t.Helper()
	raw, err := os.ReadFile(tree + "docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row, label := regexp.MustCompile("(?m)^\\| `(sluice_\\w+)` \\| (\\w+) \\|([^|]*)\\|"), regexp.MustCompile("`(\\w+)`")
	out := map[string]metric{}
	for _, m := range row.FindAllStringSubmatch(string(raw), -1) {
		is := metric{kind: m[2], about: m[3]}
		for _, l := range label.FindAllStringSubmatch(m[3], -1) {
			is.labels = append(is.labels, l[1])
		}
		out[m[1]] = is
	}
	if len(out) < 25 {
		t.Fatalf("only %d metrics are read of the page", len(out))
	}
	return out
}

// scraped are labels that whoever scrapes adds.
var scraped = []string{"instance", "job", "namespace", "node", "pod"}

// part finds the metric that a series is of: itself, or a histogram that it is a part of.
func part(all map[string]metric, name string) (m metric, labels []string, ok bool) {
	if m, ok = all[name]; ok {
		return m, m.labels, m.kind != "histogram"
	}
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if whole, cut := strings.CutSuffix(name, end); cut && all[whole].kind == "histogram" {
			m = all[whole]
			if labels = m.labels; end == "_bucket" {
				labels = append(slices.Clone(labels), "le")
			}
			return m, labels, true
		}
	}
	return m, nil, false
}

// ask reads an expression: what is wrong with it, and the labels of what it asks for.
func ask(all map[string]metric, expression string) (problems, labelled []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return []string{err.Error()}, nil
	}
	asked := 0
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		asked++
		m, known, ok := part(all, s.Name)
		if !ok {
			problems = append(problems, "no metric "+s.Name)
			return nil
		}
		labelled = append(labelled, known...)
		if counter := m.kind == "counter" || len(known) > 0 && slices.Contains(known, "le"); counter != rated(path) {
			problems = append(problems, fmt.Sprintf("%s is a %s: want a rate of counters, and of them alone", s.Name, m.kind))
		}
		for _, by := range s.LabelMatchers {
			problems = append(problems, matched(m, known, s.Name, by)...)
		}
		return nil
	})
	if asked == 0 {
		problems = append(problems, "it asks for no metric")
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(labelled, l) && !slices.Contains(scraped, l) {
					problems = append(problems, "nothing has the label "+l)
				}
			}
		}
		return nil
	})
	return problems, labelled
}

// matched says what is wrong with a matcher: a label that the metric has not, or a value
// that is not among those which the page lists.
func matched(m metric, known []string, name string, by *labels.Matcher) (problems []string) {
	switch {
	case by.Name == labels.MetricName || slices.Contains(scraped, by.Name) || by.Name == "le":
		return nil
	case !slices.Contains(known, by.Name):
		return []string{name + " has no label " + by.Name}
	}
	for value := range strings.SplitSeq(by.Value, "|") {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`).MatchString(m.about) {
			problems = append(problems, fmt.Sprintf("%s has no %s %q", name, by.Name, value))
		}
	}
	return problems
}

// rated says that a rate is taken of the selector at the end of the path.
func rated(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool {
		c, ok := n.(*parser.Call)
		return ok && slices.Contains([]string{"rate", "increase"}, c.Func.Name)
	})
}

// What is wrong with a question is seen.
func TestWrongQuestionsAreSeen(t *testing.T) {
	all := metrics(t)
	for expression, want := range map[string]string{
		"sluice_nodes >":                                    "parse error",
		"sluice_nodez > 0":                                  "no metric sluice_nodez",
		"up == 0":                                           "no metric up",
		"vector(1)":                                         "it asks for no metric",
		"sluice_runs_total > 0":                             "want a rate of counters",
		"rate(sluice_nodes[5m])":                            "of them alone",
		"sluice_run_duration_seconds > 1":                   "no metric sluice_run_duration_seconds",
		`sluice_policies{policy="a"}`:                       "has no label policy",
		`sluice_policies{state="brilliant"}`:                `has no state "brilliant"`,
		`increase(sluice_runs_total{outcome=~"lost"}[5m])`:  `has no outcome "lost"`,
		"sum by (node, pf) (rate(sluice_steps_total[5m]))":  "nothing has the label pf",
		"sum by (outcome) (rate(sluice_runs_total[5m])) > ": "parse error",
	} {
		problems, _ := ask(all, expression)
		if !strings.Contains(strings.Join(problems, "; "), want) {
			t.Errorf("%s: %q, want %q", expression, problems, want)
		}
	}
	good := `histogram_quantile(0.9, sum by (le, outcome) (rate(sluice_run_duration_seconds_bucket{outcome=~"reached|rolled back"}[5m])))`
	if problems, _ := ask(all, good); len(problems) > 0 {
		t.Errorf("%s: %q", good, problems)
	}
}

// Each alert asks for what there is, and says what to do: a command, with labels that
// there are.
func TestAlerts(t *testing.T) {
	raw, err := os.ReadFile(tree + "deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec struct {
			Groups []struct {
				Name  string
				Rules []struct {
					Alert, Expr, For    string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		t.Fatal(err)
	}
	if file.APIVersion != "monitoring.coreos.com/v1" || file.Kind != "PrometheusRule" {
		t.Errorf("%s %s", file.APIVersion, file.Kind)
	}
	all, seen := metrics(t), map[string]bool{}
	used := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, g := range file.Spec.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] {
				t.Errorf("%s is there twice", r.Alert)
			}
			seen[r.Alert] = true
			problems, labelled := ask(all, r.Expr)
			for _, p := range problems {
				t.Errorf("%s: %s", r.Alert, p)
			}
			for _, l := range used.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				if !slices.Contains(labelled, l[1]) && !slices.Contains(scraped, l[1]) {
					t.Errorf("%s: its summary has $labels.%s, which there is not", r.Alert, l[1])
				}
			}
			if s := r.Annotations["summary"]; len(s) < 40 || !regexp.MustCompile("`(kubectl|sluice|docs/)").MatchString(s) {
				t.Errorf("%s: %q does not say what to do, with a command", r.Alert, s)
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.For == "" {
				t.Errorf("%s: severity %q, for %q", r.Alert, r.Labels["severity"], r.For)
			}
		}
	}
	if len(seen) < 15 {
		t.Errorf("%d alerts", len(seen))
	}
}

// Each panel of the dashboard asks for what there is, and every metric is in one.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(tree, "deploy/grafana/sluice.json"))
	if err != nil {
		t.Fatal(err)
	}
	type target struct{ Expr string }
	var board struct {
		Title, UID string
		Panels     []struct {
			Title, Type string
			Targets     []target
			GridPos     struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	all := metrics(t)
	given := strings.NewReplacer("$__rate_interval", "5m", `instance=~"$instance"`, `instance=~".*"`)
	whole := ""
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if at := [2]int{x, y}; taken[at] != "" || x > 23 {
					t.Errorf("panel %s is over %q, or beyond the edge", p.Title, taken[at])
				} else {
					taken[at] = p.Title
				}
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			whole += q.Expr + "\n"
			problems, _ := ask(all, given.Replace(q.Expr))
			for _, problem := range problems {
				t.Errorf("panel %s: %s", p.Title, problem)
			}
		}
	}
	for name := range all {
		if !regexp.MustCompile(`\b` + name + `(_bucket|_sum|_count)?\b`).MatchString(whole) {
			t.Errorf("no panel asks for %s", name)
		}
	}
}
