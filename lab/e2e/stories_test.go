package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStories tells one after the other. They share a cluster, and pods where one
// story can go on with those of the last: a pod with a VF stays through most of them.
// So the first that fails is the last that is told.
func TestStories(t *testing.T) {
	w := begin(t.Context(), t)
	for _, story := range []struct {
		name string
		tell func(*testing.T, *world)
	}{
		{"node is ready", nodeIsReady},
		{"sluice is installed from its manifest", installed},
		{"policy to Ready", policyToReady},
		{"pods see exactly their devices, and one too many waits", podsSeeTheirDevices},
		{"NUMA node counts", numaNodeCounts},
		{"kubelet is killed", kubeletKilled},
		{"container runtime is killed", runtimeKilled},
		{"agent is killed while the API server is away for two minutes", apiServerAway},
		{"agent of another version, and back", versionsChange},
		{"VF vanishes", vfVanishes},
		{"drain waits for a budget", drainIsBlocked},
		{"pods have their VFs inside, by sluice-cni", podsInTheSwitch},
		{"node loses its power with pods running", nodeLosesPower},
		{"uninstalled, nothing is left", uninstalled},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, w) }) {
			w.tell(t)
			t.FailNow()
		}
	}
}

// A pod that asks for nothing is there from the first to the last.
func nodeIsReady(t *testing.T, w *world) {
	eventually(t, nodeTime, "the node is Ready", w.ready)
	w.make(t, "bystander", nil)
	w.running(t, "bystander")
}

func podsSeeTheirDevices(t *testing.T, w *world) {
	w.make(t, "one", asks{fast: 1})
	w.make(t, "three", asks{fast: 3})
	one, three := w.hold(t, "one"), w.hold(t, "three")
	if len(one.vfs) != 1 || len(three.vfs) != 3 {
		t.Fatalf("the pods were given %q and %q: want one VF and three", one.vfs, three.vfs)
	}
	if none := w.given(t, "bystander"); len(none) > 0 {
		t.Errorf("a pod that asked for nothing was given %q", none)
	}
	all := slices.Sorted(slices.Values(slices.Concat(one.vfs, three.vfs)))
	// The truth is the kernel's: the VFs of the pool's PF.
	want := strings.Fields(w.sh(t, "for vf in /sys/bus/pci/devices/1000:00:00.0/virtfn*; do basename $(readlink $vf); done | sort"))
	if !slices.Equal(all, want) {
		t.Errorf("the pods have %q together: want %q, each once", all, want)
	}

	w.make(t, "more", asks{fast: 1})
	eventually(t, podTime, "the pod waits, and says for what", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, "more", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return pod.Status.Phase == corev1.PodPending && strings.Contains(c.Message, "Insufficient "+string(fast)), c.Message, nil
			}
		}
		return false, string(pod.Status.Phase), nil
	})
	w.end(t, "three")
	w.running(t, "more")
	w.end(t, "more")
	w.held = one
}

// The kubelet gives a pod devices of one NUMA node or refuses it, and those of fast are
// at node 1: so of the two others a pod gets that at node 1, and who comes then none.
func numaNodeCounts(t *testing.T, w *world) {
	w.make(t, "near", asks{fast: 1, either: 1})
	w.running(t, "near")
	given := w.given(t, "near")
	for _, of := range []string{"fast", "either"} {
		if len(given[of]) != 1 {
			t.Fatalf("the pod was given %q: want one of fast and one of either", given)
		}
		if node := w.sh(t, "cat /sys/bus/pci/devices/"+given[of][0]+"/numa_node"); node != "1" {
			t.Errorf("%s of %s is at NUMA node %s: want 1", given[of][0], of, node)
		}
	}
	w.make(t, "far", asks{fast: 1, either: 1})
	eventually(t, podTime, "a pod is refused whose VFs would be at two NUMA nodes", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, "far", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		return pod.Status.Reason == "TopologyAffinityError", w.about(ctx, pod), nil
	})
	w.end(t, "far")
	w.end(t, "near")
}
