package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/pkg/api/v1alpha1"
)

// How the command lines of programs on the node begin.
const (
	kubeletLine = "/node/bin/kubelet "
	runtimeLine = "containerd$"
	agentLine   = "/sluice agent "
)

// holding is a pod that has one VF, which stays from story to story.
func (w *world) holding(t *testing.T) *held {
	t.Helper()
	if w.held == nil {
		w.held = w.holder(t, "one", 1)
	}
	return w.held
}

// killed kills a program of the node with SIGKILL and waits until another runs.
func (w *world) killed(t *testing.T, line string) {
	t.Helper()
	before := w.sh(t, "pgrep -f '^"+line+"'")
	w.sh(t, "kill -9 "+before)
	eventually(t, nodeTime, line+" was killed and runs again", func(ctx context.Context) (bool, string, error) {
		now, err := w.node.sh(ctx, "pgrep -f '^"+line+"' || true")
		return now != "" && strings.TrimSpace(now) != before, now, err
	})
}

// heartbeat waits until the kubelet has reported the node's status twice from now on,
// so that what follows looks at no older one.
func (w *world) heartbeat(t *testing.T) {
	t.Helper()
	seen := map[time.Time]bool{}
	eventually(t, nodeTime, "the kubelet reports, Ready", func(ctx context.Context) (bool, string, error) {
		c, err := w.readyCondition(ctx)
		if err != nil {
			return false, "", err
		}
		seen[c.LastHeartbeatTime.Time] = true
		return c.Status == corev1.ConditionTrue && len(seen) > 2, fmt.Sprintf("%d reports; %s", len(seen)-1, c.Message), err
	})
}

// ready says whether the node is, and what it says of that.
func (w *world) ready(ctx context.Context) (bool, string, error) {
	c, err := w.readyCondition(ctx)
	return c.Status == corev1.ConditionTrue, c.Message, err
}

func (w *world) readyCondition(ctx context.Context) (corev1.NodeCondition, error) {
	node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c, nil
		}
	}
	return corev1.NodeCondition{Message: "no condition Ready"}, nil
}

func kubeletKilled(t *testing.T, w *world) { w.restarted(t, kubeletLine) }

func runtimeKilled(t *testing.T, w *world) { w.restarted(t, runtimeLine) }

// restarted kills a program of the node, which takes nothing from a pod that has a VF.
func (w *world) restarted(t *testing.T, line string) {
	t.Helper()
	h := w.holding(t)
	w.killed(t, line)
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	w.untouched(t, h)
}

// Two minutes, in which the agent is killed, too. The new one has heard of no policy,
// and keeps the node as the last one wanted it: what a stranger changes is mended. After
// that, and after all that was killed before, a pod can have what is free.
func apiServerAway(t *testing.T, w *world) {
	h := w.holding(t)
	if err := w.plane.kill("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	back := time.Now().Add(2 * time.Minute)
	w.killed(t, agentLine)
	free := w.sh(t, `for vf in /sys/bus/pci/devices/1000:00:00.0/virtfn*; do basename $(readlink $vf); done | grep -v `+h.vfs[0]+` | head -n 1`)
	driver := "/sys/bus/pci/devices/" + free + "/driver"
	w.sh(t, "echo "+free+" >"+driver+"/unbind; ! [ -e "+driver+" ]")
	eventually(t, nodeTime, "the agent has bound the VF that a stranger has unbound", func(ctx context.Context) (bool, string, error) {
		out, err := w.node.sh(ctx, "basename $(readlink "+driver+") || true")
		return strings.TrimSpace(out) == "mlx5_core", out, err
	})
	eventually(t, nodeTime, "two minutes without an API server have passed", func(context.Context) (bool, string, error) {
		return time.Now().After(back), "", nil
	})
	if now := w.processes(t, h.pod); now != h.processes {
		t.Fatalf("processes of the pod are %q and were %q", now, h.processes)
	}
	w.sh(t, "pgrep -f '^"+agentLine+"' && ls /var/lib/kubelet/device-plugins/sluice-*.sock")
	if err := w.plane.start("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := w.plane.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	w.untouched(t, h)
	w.usable(t, h, 4)
	w.nic(t, "the node's NodeNIC is Ready", good(0))
}

// The kubelet hears of it, the NodeNIC says it, and a pod keeps its VF of the same port.
// The card brings the other back only with a new set of VFs, for which the pod's would
// have to go: so the agent has that made when the pod has gone.
func vfVanishes(t *testing.T, w *world) {
	h := w.holding(t)
	free := w.sh(t, `cd /sys/bus/pci/devices/1000:00:00.0
		for i in 3 2; do [ "$(basename $(readlink virtfn$i))" = `+h.vfs[0]+` ] || { echo $i; break; }; done`)
	w.sh(t, "echo "+free+" >/sys/kernel/debug/twin/1000:00:00.0/vf_vanish")
	w.offered(t, fast, 3, 3)
	said := "pci/1000:00:00.0 vf " + free + " went from the bus"
	w.nic(t, "the NodeNIC says which VF has gone", func(n *v1alpha1.NodeNIC) bool {
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.Ready)
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonDeviceGone && strings.Contains(c.Message, said)
	})
	w.event(t, v1alpha1.ReasonDeviceGone, said)
	w.heartbeat(t)
	w.offered(t, fast, 3, 3)
	w.untouched(t, h)
	w.end(t, h.pod.Name)
	w.held = nil
	w.offered(t, fast, 4, 4)
	w.nic(t, "the node's NodeNIC is Ready", good(0))
}

// Another number of VFs needs those that are there gone, and so the pods that have
// them. A budget keeps one; when it is gone the pod goes, and only it.
func drainIsBlocked(t *testing.T, w *world) {
	ctx := t.Context()
	bystander := w.hold(t, "bystander")
	w.kept = w.service(t, "kept", asks{fast: 1})
	before := w.kept.runs(t, "", time.Time{})
	minimum := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &minimum, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
		},
	}
	if _, err := w.kube.PolicyV1().PodDisruptionBudgets(space).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	last := w.generation(t)
	w.policy(t, 6)
	w.nic(t, "the node waits, and says for which pod", func(n *v1alpha1.NodeNIC) bool {
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.Draining)
		return meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.DrainRequired) &&
			c != nil && c.Reason == v1alpha1.ReasonBlocked && strings.Contains(c.Message, before.Name)
	})
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	if pods, err := w.kept.pods(ctx); err != nil || len(pods) != 1 || pods[0].UID != before.UID || pods[0].DeletionTimestamp != nil {
		t.Fatalf("the pod that its budget keeps is no longer alone: %d pods, %v", len(pods), err)
	}
	if err := w.kube.PolicyV1().PodDisruptionBudgets(space).Delete(ctx, "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.nic(t, "the node is as the policy wants it", good(last))
	w.offered(t, fast, 6, 6)
	w.kept.runs(t, before.UID, time.Time{})
	w.untouched(t, bystander)
	eventually(t, nodeTime, "the node takes pods again", func(ctx context.Context) (bool, string, error) {
		node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil && !node.Spec.Unschedulable, "", err
	})
}

// A boot begins without VFs: the agent makes them, and pods that had some have some
// again, be it in a new pod that their service brings.
func nodeLosesPower(t *testing.T, w *world) {
	ctx := t.Context()
	if w.kept == nil {
		w.kept = w.service(t, "kept", asks{fast: 1})
	}
	w.kept.runs(t, "", time.Time{})
	before, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(-time.Second).Truncate(time.Second)
	if err := w.node.cut(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.node.on(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, nodeTime, "the node says that it was started anew", func(ctx context.Context) (bool, string, error) {
		node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil && node.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID, "", err
	})
	pod := w.kept.runs(t, "", now)
	w.heartbeat(t)
	capacity := before.Status.Capacity[fast]
	w.offered(t, fast, capacity.Value(), capacity.Value())
	if vfs := w.given(t, pod.Name)["fast"]; len(vfs) != 1 {
		t.Errorf("the pod was given %q: want one VF", vfs)
	}
	w.nic(t, "the node's NodeNIC is Ready", good(0))
	w.kept.end(t)
}
