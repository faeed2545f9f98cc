package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const deploy = "../../deploy/"

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The file that installs everything is made of the files beside it.
func TestManifestIsCurrent(t *testing.T) {
	crds, err := filepath.Glob(deploy + "crds/*.yaml")
	if err != nil || len(crds) == 0 {
		t.Fatalf("%d kinds, %v", len(crds), err)
	}
	files := slices.Concat([]string{deploy + "namespace.yaml"}, crds,
		[]string{deploy + "rbac.yaml", deploy + "admission.yaml", deploy + "agent.yaml", deploy + "controller.yaml"})
	var want []string
	for _, f := range files {
		want = append(want, strings.TrimPrefix(readFile(t, f), "---\n"))
	}
	if diff := cmp.Diff(strings.Join(want, "---\n"), readFile(t, deploy+"sluice.yaml")); diff != "" {
		t.Errorf("deploy/sluice.yaml is not current, make manifests (-want +got):\n%s", diff)
	}
}

// manifest is the objects of the file that installs everything.
func manifest(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(readFile(t, deploy+"sluice.yaml"), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

// A real API server takes every object of the installation and knows every field of
// it, twice as well as once.
func TestManifestIsTakenByTheAPIServer(t *testing.T) {
	k := newKube(t)
	kinds := map[string]int{}
	for range 2 {
		for _, o := range manifest(t) {
			kinds[o.GetKind()]++
			o.SetManagedFields(nil)
			err := k.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("installer"), client.ForceOwnership)
			if err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
	if kinds["DaemonSet"] != 2 || kinds["Deployment"] != 2 || kinds["CustomResourceDefinition"] != 6 {
		t.Errorf("objects: %v", kinds)
	}
}

// No container is privileged, and what the agent may do and see is on the page that
// says why.
func TestPrivilegesAreExplained(t *testing.T) {
	page := readFile(t, "../../docs/howto/install.md")
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict([]byte(readFile(t, deploy+"agent.yaml")), &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	said := 0
	explained := func(what string) {
		said++
		if !strings.Contains(page, "| `"+what+"` |") {
			t.Errorf("docs/howto/install.md has no row for %s", what)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.Privileged != nil && *s.Privileged || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("container %s: want no privilege but named capabilities", c.Name)
			continue
		}
		for _, name := range s.Capabilities.Add {
			explained("CAP_" + string(name))
		}
	}
	for _, v := range pod.Volumes {
		explained(v.HostPath.Path)
	}
	if said < 15 {
		t.Errorf("only %d privileges are read", said)
	}
}
