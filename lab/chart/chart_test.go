// Package chart tries the Helm chart, deploy/chart, with Helm's own code.
package chart

import (
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/lab/kubetest"
)

const (
	deploy = "../../deploy"
	usual  = "sluice-system"
)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	slog.SetLogLoggerLevel(slog.LevelWarn) // the loader tells of each link
	c, err := loader.LoadDir(filepath.Join(deploy, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render is what Helm would install of the chart in a namespace with these values.
func render(c *chart.Chart, namespace, values string) ([]*unstructured.Unstructured, error) {
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "sluice", Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, crd := range c.CRDObjects() {
		texts = append(texts, string(crd.File.Data))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		texts = append(texts, files[name])
	}
	return objects(strings.Join(texts, "\n---\n"))
}

// objects is those of a text.
func objects(text string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

func must(t *testing.T, namespace, values string) []*unstructured.Unstructured {
	t.Helper()
	out, err := render(load(t), namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// named is each object by kind and name.
func named(t *testing.T, all []*unstructured.Unstructured) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range all {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = o.Object
	}
	return out
}

// With the usual values the chart has every object of deploy/sluice.yaml, field by
// field, and no other; but the namespace, which Helm makes.
func TestChartIsTheManifest(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(deploy, "sluice.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := objects(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	manifest := named(t, want)
	if manifest["Namespace /"+usual] == nil || len(manifest) < 12 {
		t.Fatalf("%d objects in the manifest, of which one is the namespace", len(manifest))
	}
	delete(manifest, "Namespace /"+usual)
	if diff := cmp.Diff(manifest, named(t, must(t, usual, ""))); diff != "" {
		t.Errorf("deploy/sluice.yaml (-) and the chart (+):\n%s", diff)
	}
}

const others = `
image: {repository: "registry.example:5000/net/sluice", tag: 1.2.3, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
agent:
  resources: {limits: {cpu: 1, memory: 256Mi}}
  nodeSelector: {nics: "yes"}
  tolerations: [{key: nics, operator: Equal, value: "yes", effect: NoExecute, tolerationSeconds: 5}]
  logLevel: debug
  logFormat: json
  metricsAddress: "[::]:9200"
  healthPort: 9201
  cniBinDir: /usr/libexec/cni
controller:
  replicas: 3
  resources: {requests: {memory: 128Mi}}
  nodeSelector: {}
  tolerations: []
  logLevel: warn
  logFormat: json
  metricsPort: 0
  northbound: tcp:ovn-nb.net.svc:6641
`

// at is what is at a path of keys and indexes.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			if l, _ := v.([]any); p < len(l) {
				v = l[p]
			} else {
				v = nil
			}
		}
	}
	return v
}

func list(s ...string) (out []any) {
	for _, s := range s {
		out = append(out, s)
	}
	return out
}

// What a value says is where it belongs, and nothing else is another.
func TestValues(t *testing.T) {
	const space = "net"
	usually, otherwise := named(t, must(t, space, "")), named(t, must(t, space, others))
	var changed []string
	for key, o := range usually {
		if cmp.Diff(o, otherwise[key]) != "" {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	if diff := cmp.Diff([]string{"DaemonSet net/sluice-agent", "Deployment net/sluice-controller"}, changed); diff != "" {
		t.Error(diff)
	}
	agent := at(otherwise["DaemonSet net/sluice-agent"], "spec", "template", "spec")
	controller := at(otherwise["Deployment net/sluice-controller"], "spec", "template", "spec")
	for what, c := range map[string]struct{ got, want any }{
		"agent's image":      {at(agent, "containers", 0, "image"), "registry.example:5000/net/sluice:1.2.3"},
		"installer's image":  {at(agent, "initContainers", 0, "image"), "registry.example:5000/net/sluice:1.2.3"},
		"controller's image": {at(controller, "containers", 0, "image"), "registry.example:5000/net/sluice:1.2.3"},
		"pull policy":        {at(agent, "containers", 0, "imagePullPolicy"), "Always"},
		"secrets to pull":    {at(controller, "imagePullSecrets", 0, "name"), "pull"},
		"agent's arguments": {at(agent, "containers", 0, "args"), list("agent", "--node=$(NODE_NAME)", "--health-address=127.0.0.1:9201",
			"--metrics-address=[::]:9200", "--log-level=debug", "--log-format=json")},
		"readiness":             {at(agent, "containers", 0, "readinessProbe", "httpGet", "port"), float64(9201)},
		"liveness":              {at(agent, "containers", 0, "livenessProbe", "httpGet", "port"), float64(9201)},
		"installer's arguments": {at(agent, "initContainers", 0, "args"), list("install-cni", "--dir=/usr/libexec/cni")},
		"installer's mount":     {at(agent, "initContainers", 0, "volumeMounts", 0, "mountPath"), "/usr/libexec/cni"},
		"plugins' folder":       {at(agent, "volumes", 0, "hostPath", "path"), "/usr/libexec/cni"},
		"agent's tolerations":   {at(agent, "tolerations", 0, "key"), "nics"},
		"agent's nodes":         {at(agent, "nodeSelector"), map[string]any{"kubernetes.io/os": "linux", "nics": "yes"}},
		"agent's limits":        {at(agent, "containers", 0, "resources", "limits", "memory"), "256Mi"},
		"controller's requests": {at(controller, "containers", 0, "resources", "requests", "memory"), "128Mi"},
		"controller's taints":   {at(controller, "tolerations"), []any{}},
		"controller's arguments": {at(controller, "containers", 0, "args"), list("controller", "--namespace=net", "--health-address=:8081",
			"--metrics-address=0", "--log-level=warn", "--log-format=json", "--northbound=tcp:ovn-nb.net.svc:6641")},
		"controller's ports": {at(controller, "containers", 0, "ports"), []any{map[string]any{"name": "health", "containerPort": float64(8081)}}},
		"replicas":           {at(otherwise["Deployment net/sluice-controller"], "spec", "replicas"), float64(3)},
		"who may":            {at(otherwise["ClusterRoleBinding /sluice-agent"], "subjects", 0, "namespace"), space},
		"whom admission knows": {at(otherwise["ValidatingAdmissionPolicy /sluice-agent-own-node"], "spec", "matchConditions", 0, "expression"),
			"request.userInfo.username == 'system:serviceaccount:net:sluice-agent'"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}

// A value that cannot be is refused before anything is made, by its name.
func TestWrongValuesAreRefused(t *testing.T) {
	for values, word := range map[string]string{
		"imgae: {tag: x}":                             "imgae",
		"image: {tag: 'a b'}":                         "/image/tag",
		"image: {tag: 1}":                             "/image/tag",
		"image: {repository: 'https://x/y'}":          "/image/repository",
		"image: {pullPolicy: Sometimes}":              "/image/pullPolicy",
		"imagePullSecrets: pull":                      "/imagePullSecrets",
		"agent: {logLevel: loud}":                     "/agent/logLevel",
		"agent: {logFormat: xml}":                     "/agent/logFormat",
		"agent: {metricsAddress: 9108}":               "/agent/metricsAddress",
		"agent: {metricsAddress: 'node:http'}":        "/agent/metricsAddress",
		"agent: {healthPort: 70000}":                  "/agent/healthPort",
		"agent: {healthPort: '9109'}":                 "/agent/healthPort",
		"agent: {cniBinDir: opt/cni/bin}":             "/agent/cniBinDir",
		"agent: {resources: {requests: {cpu: lots}}}": "/agent/resources/requests/cpu",
		"agent: {resources: {cpu: 1}}":                "/agent/resources",
		"agent: {tolerations: [{operator: Maybe}]}":   "/agent/tolerations/0/operator",
		"agent: {nodeSelector: [linux]}":              "/agent/nodeSelector",
		"agent: {privileged: true}":                   "/agent",
		"controller: {replicas: 0}":                   "/controller/replicas",
		"controller: {replicas: two}":                 "/controller/replicas",
		"controller: {metricsPort: -1}":               "/controller/metricsPort",
		"controller: {northbound: 'unix:/run/nb'}":    "/controller/northbound", // the pod has no such file
		"controller: {northbound: 'ovn-nb:6641'}":     "/controller/northbound",
	} {
		if _, err := render(load(t), usual, values); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v: want %q in it", values, err, word)
		}
	}
}

// A real API server takes every object as it is rendered, and knows every field: a dry
// run of what kubectl apply --server-side does.
func TestChartIsTakenByTheAPIServer(t *testing.T) {
	log.SetLogger(logr.Discard())
	c, err := client.New(kubetest.Start(t, filepath.Join(deploy, "crds")), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob(filepath.Join(deploy, "crds", "*.yaml"))
	if err != nil || len(crds) == 0 {
		t.Fatalf("%d kinds, %v", len(crds), err)
	}
	for space, values := range map[string]string{usual: "", "net": others} {
		n := &unstructured.Unstructured{}
		n.SetAPIVersion("v1")
		n.SetKind("Namespace")
		n.SetName(space)
		if err := c.Create(t.Context(), n); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, o := range must(t, space, values) {
			kinds[o.GetKind()]++
			err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.FieldOwner("installer"), client.ForceOwnership)
			if err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
		if kinds["DaemonSet"] != 1 || kinds["Deployment"] != 1 || kinds["CustomResourceDefinition"] != len(crds) || kinds["ValidatingAdmissionPolicy"] != 1 {
			t.Errorf("objects: %v", kinds)
		}
	}
}

// What runs is said once: the chart's manifests are links to those of deploy/.
func TestManifestsAreTheSource(t *testing.T) {
	links := 0
	err := filepath.WalkDir(filepath.Join(deploy, "chart", "manifests"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			links++
			if d.Type()&fs.ModeSymlink == 0 {
				t.Errorf("%s: want a link to the file in deploy/", path)
			}
		}
		return err
	})
	if err != nil || links != 4 {
		t.Errorf("%d files, %v", links, err)
	}
}
