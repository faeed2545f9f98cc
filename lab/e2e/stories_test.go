package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const fast = "sluice.dev/fast"

// TestStories tells one after the other; each leaves the cluster as it found it: the
// node ready, the agent running, four VFs free. The first two make it so.
func TestStories(t *testing.T) {
	w := begin(t.Context(), t)
	for _, first := range []struct {
		name string
		tell func(*testing.T, *world)
	}{
		{"node is ready", nodeIsReady},
		{"agent offers a pool", agentOffersPool},
	} {
		if !t.Run(first.name, func(t *testing.T) { first.tell(t, w) }) {
			t.FailNow()
		}
	}
	for _, story := range []struct {
		name string
		tell func(*testing.T, *world)
	}{
		{"pods see exactly their devices", podsSeeTheirDevices},
		{"one pod too many waits", onePodTooMany},
		{"NUMA node counts", numaNodeCounts},
		{"kubelet is killed", kubeletKilled},
		{"agent is killed", agentKilled},
		{"container runtime is restarted", runtimeRestarted},
		{"agent of another version", versionsChange},
		{"API server is away", apiServerAway},
		{"node is started anew with pods running", nodeRestarted},
		// From here on the agent follows a policy, not its file.
		{"policy takes over, to Ready", policyToReady},
		{"drain waits for a budget", drainIsBlocked},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(t, w) })
	}
}

func nodeIsReady(t *testing.T, w *world) {
	eventually(t, nodeTime, "the node is Ready", w.ready)
	w.run(t, "first", "", 0, "echo hello; exec sleep 100000")
	w.running(t, "first")
	w.said(t, "first", "hello")
}

func agentOffersPool(t *testing.T, w *world) {
	w.install(t)
	w.offered(t, fast, 4, 4)
}

// devices are the VFs that a pod was given, by its environment.
func (w *world) devices(t *testing.T, pod string) []string {
	t.Helper()
	for _, line := range w.said(t, pod, "that was all") {
		if list, ok := strings.CutPrefix(line, "PCIDEVICE_SLUICE_DEV_FAST="); ok {
			return strings.Split(list, ",")
		}
	}
	return nil
}

const tellEnv = "env; echo that was all; exec sleep 100000"

func podsSeeTheirDevices(t *testing.T, w *world) {
	w.run(t, "one", fast, 1, tellEnv)
	w.run(t, "three", fast, 3, tellEnv)
	w.run(t, "none", "", 0, tellEnv)
	for _, name := range []string{"one", "three", "none"} {
		w.running(t, name)
	}
	one, three := w.devices(t, "one"), w.devices(t, "three")
	if len(one) != 1 || len(three) != 3 {
		t.Fatalf("the pods were given %q and %q: want one VF and three", one, three)
	}
	if none := w.devices(t, "none"); none != nil {
		t.Errorf("a pod that asked for nothing was given %q", none)
	}
	all := slices.Sorted(slices.Values(slices.Concat(one, three)))
	// The truth is the kernel's: the VFs of the pool's PF.
	want := strings.Fields(w.sh(t, "for vf in /sys/bus/pci/devices/1000:00:00.0/virtfn*; do basename $(readlink $vf); done | sort | head -n 4"))
	if !slices.Equal(all, want) {
		t.Errorf("the pods hold %q together: want %q, each once", all, want)
	}
}

func onePodTooMany(t *testing.T, w *world) {
	w.holder(t, "full-3", 3)
	w.holder(t, "full-1", 1)
	w.run(t, "more", fast, 1, tellEnv)
	eventually(t, podTime, "the pod waits, and says for what", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, "more", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return pod.Status.Phase == corev1.PodPending && strings.Contains(c.Message, "Insufficient "+fast), c.Message, nil
			}
		}
		return false, string(pod.Status.Phase), nil
	})
	w.end(t, "full-1")
	w.running(t, "more")
}

// The kubelet gives a pod CPUs and devices of one NUMA node or refuses it, and what
// CPU it has to give is node 1's. So a VF of the card there fits, the other card's not.
func numaNodeCounts(t *testing.T, w *world) {
	limits := func(of corev1.ResourceName) corev1.ResourceList {
		return corev1.ResourceList{
			of:                    *resource.NewQuantity(1, resource.DecimalSI),
			corev1.ResourceCPU:    *resource.NewQuantity(1, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(32<<20, resource.BinarySI),
		}
	}
	w.make(t, "near", limits(fast), tellEnv)
	w.running(t, "near")
	w.end(t, "near")
	w.make(t, "far", limits("sluice.dev/far"), tellEnv)
	eventually(t, podTime, "the pod with a VF of the other NUMA node is refused", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, "far", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		return pod.Status.Reason == "TopologyAffinityError", w.about(ctx, pod) + " " + pod.Status.Reason, nil
	})
}
