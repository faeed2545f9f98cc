package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

const sluiceSpace = "sluice-system"

func (w *world) read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.node.tree, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// manifest is the objects of deploy/sluice.yaml, in order.
func (w *world) manifest(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(w.read(t, "deploy/sluice.yaml"), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// What docs/howto/install.md says, with nothing changed: the manifest and the image.
func installed(t *testing.T, w *world) {
	// An image that is not there when a pod is made would be looked for elsewhere.
	eventually(t, nodeTime, "the node has sluice's image", func(ctx context.Context) (bool, string, error) {
		out, err := w.node.sh(ctx, "ctr -n k8s.io images ls -q")
		return strings.Contains(out, sluiceImage+"\n"), out, err
	})
	for _, o := range w.manifest(t) {
		w.apply(t, o)
	}
	w.agentRuns(t, sluiceImage)
	eventually(t, nodeTime, "both controllers are ready", func(ctx context.Context) (bool, string, error) {
		d, err := w.kube.AppsV1().Deployments(sluiceSpace).Get(ctx, "sluice-controller", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		return d.Status.ReadyReplicas == 2, w.aboutSluice(ctx, "sluice-controller"), nil
	})
}

// A policy makes VFs where there were none, and pools of them.
func policyToReady(t *testing.T, w *world) {
	w.policy(t, 4)
	w.nic(t, "the node's NodeNIC is Ready", good(0))
	eventually(t, nodeTime, "the policy is Ready on one node", func(ctx context.Context) (bool, string, error) {
		var p v1alpha1.NICPolicy
		err := w.api.Get(ctx, types.NamespacedName{Name: "all"}, &p)
		return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.Ready) && p.Status.ReadyNodes == 1, fmt.Sprintf("%+v", p.Status), err
	})
	w.offered(t, fast, 4, 4)
	w.offered(t, either, 2, 2)
}

func (w *world) sluicePods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := w.kube.CoreV1().Pods(sluiceSpace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (w *world) aboutSluice(ctx context.Context, app string) string {
	pods, err := w.sluicePods(ctx, app)
	seen := fmt.Sprintf("%d pods of %s (%v)", len(pods), app, err)
	for i := range pods {
		seen += fmt.Sprintf("\n%s (%s): %s", pods[i].Name, pods[i].Spec.Containers[0].Image, w.about(ctx, &pods[i]))
	}
	return seen
}

// agentRuns waits until there is one agent, which runs from that image.
func (w *world) agentRuns(t *testing.T, image string) {
	t.Helper()
	eventually(t, nodeTime, "the agent runs from "+image, func(ctx context.Context) (bool, string, error) {
		pods, err := w.sluicePods(ctx, "sluice-agent")
		if err != nil || len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 {
			return false, w.aboutSluice(ctx, "sluice-agent"), err
		}
		c := pods[0].Status.ContainerStatuses[0]
		return pods[0].Spec.Containers[0].Image == image && c.Image == image && c.State.Running != nil, w.aboutSluice(ctx, "sluice-agent"), nil
	})
}

// The next version of the agent comes and goes under a pod that has a VF.
func versionsChange(t *testing.T, w *world) {
	h := w.holding(t)
	for _, next := range []struct{ image, program string }{
		{nextImage, "build/e2e/next/sluice"},
		{sluiceImage, "build/bin/sluice"},
	} {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"initContainers":[{"name":"cni","image":%q}],"containers":[{"name":"agent","image":%[1]q}]}}}}`, next.image)
		_, err := w.kube.AppsV1().DaemonSets(sluiceSpace).Patch(t.Context(), "sluice-agent", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.agentRuns(t, next.image)
		version := w.version(t, next.program)
		w.nic(t, "the agent says that it is "+version, func(n *v1alpha1.NodeNIC) bool { return n.Status.Version == version && good(0)(n) })
		w.heartbeat(t)
		w.offered(t, fast, 4, 4)
		w.untouched(t, h)
	}
	w.usable(t, h, 4)
}

// version is what a program of this tree says that it is.
func (w *world) version(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(w.node.tree, program), "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Version string }
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return said.Version
}

// What docs/howto/install.md says of taking it away leaves nothing of sluice in the
// cluster and on the node.
func uninstalled(t *testing.T, w *world) {
	ctx := t.Context()
	w.gone(t, "kept", "next")
	if err := w.api.Delete(ctx, &v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}); err != nil {
		t.Fatal(err)
	}
	w.offered(t, fast, 0, 0)
	w.offered(t, either, 0, 0)
	objects := w.manifest(t)
	for _, o := range objects {
		if err := w.api.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			t.Fatalf("delete %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	eventually(t, nodeTime, "nothing of the manifest is left", func(ctx context.Context) (bool, string, error) {
		for _, o := range objects {
			err := w.api.Get(ctx, client.ObjectKeyFromObject(o), o)
			if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
				return false, o.GetKind() + " " + o.GetName(), err
			}
		}
		return true, "", nil
	})
	w.sh(t, w.script(t, "docs/howto/install.md", "On each node"))

	if left := w.sh(t, "tree="+w.node.tree+"\n"+leftOnNode); left != "" {
		t.Errorf("left on the node:\n%s", left)
	}
	w.heartbeat(t)
	node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range node.Status.Capacity {
		// The kubelet goes on naming a resource that it had, with none of it.
		if strings.HasPrefix(string(name), "sluice.dev/") && !n.IsZero() {
			t.Errorf("the node has %s of %s", n.String(), name)
		}
	}
	for key := range node.Annotations {
		if strings.Contains(key, "sluice") {
			t.Errorf("the node is annotated with %s", key)
		}
	}
	eventually(t, podTime, "the API server does not know sluice.dev", func(context.Context) (bool, string, error) {
		groups, err := w.kube.ServerGroups()
		if err != nil {
			return false, "", err
		}
		return !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "sluice.dev" }), "", nil
	})
}

// leftOnNode lists what is named after sluice, or was made by it, beside images and
// logs of containers, which the kubelet clears away in its time, and the lab's own.
const leftOnNode = `find / \( -path /proc -o -path /sys -o -path /node -o -path /run/bin -o -path "$tree" \
	-o -path /var/lib/containerd -o -path /run/containerd -o -path /var/log \) -prune -o -name '*sluice*' -print |
	while read -r path; do [[ $tree = "$path"/* ]] || echo "$path"; done
find /var/run/k8s.cni.cncf.io /var/run/cdi -type f 2>/dev/null || true
pgrep -a sluice || true`

// script is the indented block of a page that follows the line with these words.
func (w *world) script(t *testing.T, page, words string) string {
	t.Helper()
	_, after, _ := strings.Cut(w.read(t, page), words)
	var out []string
	for line := range strings.Lines(after) {
		code, indented := strings.CutPrefix(line, "       ")
		if indented {
			out = append(out, code)
		} else if len(out) > 0 && strings.TrimSpace(line) != "" {
			break
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no commands after %q", page, words)
	}
	return strings.Join(out, "")
}
