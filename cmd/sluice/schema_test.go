package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/lab/kubetest"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// schema is an API server that judges objects and keeps none.
type schema struct {
	t *testing.T
	client.Client
}

func newSchema(t *testing.T) *schema {
	t.Helper()
	config := kubetest.Start(t, "../../deploy/crds")
	config.QPS, config.Burst = 2000, 2000
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &schema{t, c}
}

// judge is what the API server says of an object with that spec.
func (s *schema) judge(kind string, spec any) error {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(v1alpha1.APIVersion)
	o.SetKind(kind)
	o.SetName("x")
	return s.Create(s.t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
}

// said is a spec as YAML has it.
func said(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// One API server will do: none of these keeps anything there.
func TestSchema(t *testing.T) {
	s := newSchema(t)
	t.Run("refuses", s.refuses)
	t.Run("takes the examples", s.takesTheExamples)
	t.Run("under hostile values", s.underHostileValues)
}

// What is wrong whatever the node is refused by the API server, at the field that is
// wrong, and with the right form.
func (s *schema) refuses(t *testing.T) {
	for text, want := range map[string]string{
		"{pfs: [{}]}": "want either pf or select",
		"{pfs: [{pf: ens1f0, select: {vendor: 15b3}}]}":                                "want either pf or select",
		"{pfs: [{pf: '0000:AF:00.0'}]}":                                                "spec.pfs[0].pf",
		"{pfs: [{pf: a}, {pf: b}, {pf: a}]}":                                           "want one entry for each PF",
		"{pfs: [{pf: a, eswitch: swichdev}]}":                                          `spec.pfs[0].eswitch: Unsupported value: "swichdev": supported values: "legacy", "switchdev"`,
		"{pfs: [{pf: a, mtu: 67}]}":                                                    "spec.pfs[0].mtu",
		"{pfs: [{pf: a, numVfs: -1}]}":                                                 "spec.pfs[0].numVfs",
		"{pfs: [{pf: a, numVFs: 4}]}":                                                  `unknown field "spec.pfs[0].numVFs"`,
		"{pfs: [{pf: a, channels: 0}]}":                                                "spec.pfs[0].channels",
		"{pfs: [{pf: a, vfGroups: [{range: 0-}]}]}":                                    "spec.pfs[0].vfGroups[0].range",
		"{pfs: [{pf: a, vfGroups: [{range: 'all'}]}]}":                                 "spec.pfs[0].vfGroups[0].range",
		"{pfs: [{pf: a, vfGroups: [{driver: vfio}]}]}":                                 "spec.pfs[0].vfGroups[0].driver",
		"{pfs: [{pf: a, vfGroups: [{driver: vfio-pci, channels: 4}]}]}":                "want driver kernel",
		"{pfs: [{pf: a, vfGroups: [{driver: vfio-pci, vdpa: vhost}]}]}":                "want driver kernel, or vdpa none",
		"{pfs: [{pf: a, vfGroups: [{vlan: {}}]}]}":                                     "spec.pfs[0].vfGroups[0].vlan.id: Required",
		"{pfs: [{pf: a, vfGroups: [{vlan: {id: 4095}}]}]}":                             "spec.pfs[0].vfGroups[0].vlan.id",
		"{pfs: [{pf: a, vfGroups: [{vlan: {id: 0, qos: 3}}]}]}":                        "id 0 is no VLAN",
		"{pfs: [{pf: a, vfGroups: [{maxRate: 5G}]}]}":                                  "spec.pfs[0].vfGroups[0].maxRate",
		"{pfs: [{pf: a, sfs: [{}]}]}":                                                  "spec.pfs[0].sfs[0].range: Required",
		"{pfs: [{select: {}}]}":                                                        "spec.pfs[0].select",
		"{pfs: [{select: {vendor: 15B3}}]}":                                            "spec.pfs[0].select.vendor",
		"{pfs: [{select: {vendor: '0x15b3'}}]}":                                        "spec.pfs[0].select.vendor",
		"{pfs: [{select: {device: '1017'}}]}":                                          "want vendor too",
		"{pfs: [{select: {vendor: 15b3, devise: '1017'}}]}":                            `unknown field "spec.pfs[0].select.devise"`,
		"{pfs: [{select: {vendor: [15b3]}}]}":                                          "spec.pfs[0].select.vendor",
		"{bonds: [{name: bond0, pfs: [a], mode: active-backup}]}":                      "spec.bonds[0].pfs",
		"{bonds: [{name: lo, pfs: [a, b], mode: active-backup}]}":                      "want another, for example bond0",
		"{bonds: [{name: b, pfs: [a, b], mode: round-robin}]}":                         "spec.bonds[0].mode",
		"{bonds: [{name: b, pfs: [a, b], mode: active-backup, hash: layer2}]}":         "hashes nothing",
		"{bonds: [{name: b, pfs: [a, b], mode: balance-xor, lacpRate: fast}]}":         "speaks no LACP",
		"{bonds: [{name: b, pfs: [a, b], mode: balance-xor, adopt: true, mtu: 9000}]}": "somebody else makes this bond",
		"{pools: [{pfs: [a]}]}":                                                        "spec.pools[0].name: Required",
		"{pools: [{name: a}]}":                                                         "want at least one of pfs, select and filter",
		"{pools: [{name: 'a b', pfs: [a]}]}":                                           "spec.pools[0].name",
		"{pools: [{name: a, prefix: node.kubernetes.io, pfs: [a]}]}":                   "Kubernetes' own",
		"{pools: [{name: a, prefix: requests.example.org, pfs: [a]}]}":                 "stands for quotas",
		"{pools: [{name: a, select: {driver: ''}}]}":                                   "spec.pools[0].select.driver",
		"{pools: [{name: a, select: {vendor: 15b3, pfNames: []}}]}":                    "spec.pools[0].select.pfNames",
		"{pools: [{name: a, filter: {addresses: [ens1f0]}}]}":                          "spec.pools[0].filter.addresses[0]",
		"{pfs: [{select: {driver: ../x}}]}":                                            "spec.pfs[0].select.driver",
		"{pfs: [{select: {handles: []}}]}":                                             "spec.pfs[0].select.handles",
		"{pfs: [{select: {numa: 1024}}]}":                                              "spec.pfs[0].select.numa",
		"{pfs: [{pf: \"a\\0b\"}]}":                                                     "spec.pfs[0].pf",
		"{pfs: [{pf: \"\\u202e\"}]}":                                                   "spec.pfs[0].pf",
		"{bonds: [{name: none, pfs: [a, b], mode: active-backup}]}":                    "want another name",
		"{bonds: [{name: \"a\\0b\", pfs: [a, b], mode: active-backup}]}":               "spec.bonds[0].name",
		"{bonds: [{name: b, pfs: [a, a], mode: active-backup}]}":                       "want each PF once",
		"{pools: [{name: a, prefix: 'No_DNS', pfs: [a]}]}":                             "spec.pools[0].prefix",
		"{probe: {addresses: [192.0.2.0/24]}}":                                         "want an IP address",
		"{probe: {connect: [192.0.2.1]}}":                                              "want an IP address and a port",
		"{probe: {timeout: 11m}}":                                                      "want a duration from 1s to 10m",
		"{protect: {routesTo: [api.example]}}":                                         "want an IP address",
		"{drift: mendd}":                                                               "spec.drift",
		"{rdma: {netns: none}}":                                                        "spec.rdma.netns",
	} {
		spec := said(t, text)
		for _, kind := range []string{v1alpha1.KindNodeNIC, v1alpha1.KindNICPolicy} {
			if kind == v1alpha1.KindNICPolicy {
				spec["nodeSelector"] = map[string]any{}
			}
			err := s.judge(kind, spec)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v: want %q", kind, text, err, want)
			}
		}
	}
	for text, want := range map[string]string{
		"{}":                                       "spec.nodeSelector: Required",
		"{nodeSelector: {}, priority: -1}":         "spec.priority",
		"{nodeSelector: {}, maxUnavailable: 0}":    "want a number of nodes from 1 on",
		"{nodeSelector: {}, maxUnavailable: '0%'}": "want a number of nodes from 1 on",
		"{nodeSelector: {}, maxUnavailable: half}": "want a number of nodes from 1 on",
	} {
		if err := s.judge(v1alpha1.KindNICPolicy, said(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %q", text, err, want)
		}
	}
}

// What a file may say a NodeNIC may say, too.
func (s *schema) takesTheExamples(t *testing.T) {
	paths, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("examples: %v, %v", paths, err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := yaml.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		if doc["kind"] != v1alpha1.KindNodeNIC {
			continue
		}
		if err := s.judge(v1alpha1.KindNodeNIC, doc["spec"]); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// Every field with values that it has no use for: the API server answers each with a
// refusal that names the field, or takes it; and what it takes, sluice can read, and
// judges without a fault of its own.
func (s *schema) underHostileValues(t *testing.T) {
	hostile := []any{
		"", " ", "x", "-1", "0", "../../etc/passwd", "0-3,2", "3-1", "a\x00b", strings.Repeat("9", 300), "\u202e", "none", "1e3",
		int64(-1), int64(0), int64(1), int64(65536), int64(math.MaxInt64), 1.5, true, false, nil,
		[]any{}, []any{nil}, []any{"x", "x"}, []any{int64(1)}, map[string]any{}, map[string]any{"x": "y"},
	}
	taken, refused := 0, 0
	for _, path := range leaves(reflect.TypeFor[v1alpha1.NodeNICSpec](), nil) {
		for _, value := range hostile {
			spec, ok := put(map[string]any{}, path, value).(map[string]any)
			if !ok {
				t.Fatalf("%v: no object", path)
			}
			err := s.judge(v1alpha1.KindNodeNIC, whole(spec))
			switch {
			case err == nil:
				taken++
				readable(t, spec)
			case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
				t.Errorf("%v = %#v: %v: want a refusal", path, value, err)
			default:
				refused++
				if first := path[0]; !strings.Contains(err.Error(), first) {
					t.Errorf("%v = %#v: %v: want the field named", path, value, err)
				}
			}
		}
	}
	t.Logf("%d taken, %d refused", taken, refused)
	if taken < 100 || refused < 500 {
		t.Errorf("%d taken, %d refused: want many of both", taken, refused)
	}
}

// whole adds what an entry must have besides.
func whole(spec map[string]any) map[string]any {
	fill := func(list string, fields map[string]any) {
		entries, _ := spec[list].([]any)
		for _, e := range entries {
			entry, ok := e.(map[string]any)
			if !ok {
				continue
			}
			for name, value := range fields {
				if _, there := entry[name]; !there {
					entry[name] = value
				}
			}
		}
	}
	fill("bonds", map[string]any{"name": "bond7", "pfs": []any{"a", "b"}, "mode": "802.3ad"})
	fill("pools", map[string]any{"name": "pool", "pfs": []any{"a"}})
	pfs, _ := spec["pfs"].([]any)
	for _, e := range pfs {
		if pf, ok := e.(map[string]any); ok && pf["select"] == nil {
			fill("pfs", map[string]any{"pf": "a"})
		}
	}
	return spec
}

// readable asks what the agent asks of a document.
func readable(t *testing.T, spec map[string]any) {
	t.Helper()
	raw, err := yaml.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindNodeNIC, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := policy.Decode(raw)
	if err != nil {
		t.Errorf("the API server takes what is no document: %v\n%s", err, raw)
		return
	}
	if _, err := policy.Resolve(doc, nic.State{}); err != nil && !strings.Contains(err.Error(), "spec.") {
		t.Errorf("%v: want the field named", err)
	}
}

// leaves lists the paths to all fields that are no objects; "[]" goes into a list.
func leaves(t reflect.Type, path []string) [][]string {
	var out [][]string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			out = append(out, leaves(f.Type, path)...)
			continue
		}
		at, inner := append(append([]string(nil), path...), name), f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
				at = append(at, "[]")
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			out = append(out, leaves(inner, at)...)
			continue
		}
		out = append(out, at)
	}
	return out
}

// put is object with value at path.
func put(object any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "[]" {
		return []any{put(map[string]any{}, path[1:], value)}
	}
	m, ok := object.(map[string]any)
	if !ok {
		panic(fmt.Sprintf("%v in %T", path, object))
	}
	m[path[0]] = put(map[string]any{}, path[1:], value)
	return m
}
