package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// untouched checks that a pod is the same that it was, running, without a restart,
// in the same sandbox.
func (w *world) untouched(t *testing.T, before *corev1.Pod) {
	t.Helper()
	eventually(t, podTime, "pod "+before.Name+" runs as before", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, "", err
		}
		was, is := before.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[0]
		return pod.UID == before.UID && pod.Status.Phase == corev1.PodRunning && is.ContainerID == was.ContainerID &&
			is.RestartCount == was.RestartCount, w.about(ctx, pod), nil
	})
}

// holder is a running pod that holds n VFs.
func (w *world) holder(t *testing.T, name string, n int64) *corev1.Pod {
	t.Helper()
	w.run(t, name, fast, n, tellEnv)
	w.running(t, name)
	pod, err := w.kube.CoreV1().Pods(space).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// usable checks that the node still gives what it offers: with one VF held, a pod
// with the other three starts, and has none that is held.
func (w *world) usable(t *testing.T, held []string, name string) {
	t.Helper()
	w.holder(t, name, 3)
	given := w.devices(t, name)
	if len(given) != 3 || slices.ContainsFunc(given, func(id string) bool { return slices.Contains(held, id) }) {
		t.Errorf("a second pod was given %q: want three VFs other than %q", given, held)
	}
	w.end(t, name)
}

// killed kills a program of the node with SIGKILL and waits until another runs.
func (w *world) killed(t *testing.T, name string) {
	t.Helper()
	before := w.sh(t, "pgrep -x "+name)
	w.sh(t, "kill -9 "+before)
	eventually(t, nodeTime, name+" was killed and runs again", func(ctx context.Context) (bool, string, error) {
		now, err := w.node.sh(ctx, "pgrep -x "+name+" || true")
		return now != "" && now != before+"\n", now, err
	})
}

func kubeletKilled(t *testing.T, w *world) {
	pod := w.holder(t, "holder", 1)
	held := w.devices(t, "holder")
	w.killed(t, "kubelet")
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	w.untouched(t, pod)
	w.usable(t, held, "next")
}

func agentKilled(t *testing.T, w *world) {
	pod := w.holder(t, "holder", 1)
	held := w.devices(t, "holder")
	w.killed(t, "sluice")
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	w.untouched(t, pod)
	w.usable(t, held, "next")
}

func runtimeRestarted(t *testing.T, w *world) {
	pod := w.holder(t, "holder", 1)
	held := w.devices(t, "holder")
	w.killed(t, "containerd")
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	w.untouched(t, pod)
	w.usable(t, held, "next")
}

// heartbeat waits until the kubelet has reported the node's status twice after now,
// so that what follows looks at no older one.
func (w *world) heartbeat(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	eventually(t, nodeTime, "the kubelet reports, Ready", func(ctx context.Context) (bool, string, error) {
		lease, err := w.kube.CoordinationV1().Leases("kube-node-lease").Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		seen[lease.Spec.RenewTime.String()] = true
		ready, why, err := w.ready(ctx)
		return ready && len(seen) > 2, fmt.Sprintf("%d renewals of its lease; %s", len(seen)-1, why), err
	})
}

// ready says whether the node is, and what it says of that.
func (w *world) ready(ctx context.Context) (bool, string, error) {
	node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return false, "", err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.Message, nil
		}
	}
	return false, "no condition Ready", nil
}

func nodeRestarted(t *testing.T, w *world) {
	ctx := t.Context()
	replicas := int32(2)
	labels := map[string]string{"app": "service"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "service"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(corev1.ResourceList{fast: *resource.NewQuantity(2, resource.DecimalSI)}, tellEnv),
			},
		},
	}
	if _, err := w.kube.AppsV1().Deployments(space).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.gone(t, "service", labels) })
	available := func(what string, since time.Time) {
		t.Helper()
		eventually(t, 2*nodeTime, what, func(ctx context.Context) (bool, string, error) {
			pods, err := w.kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{LabelSelector: "app=service"})
			if err != nil {
				return false, "", err
			}
			n, seen := 0, ""
			for i := range pods.Items {
				p := &pods.Items[i]
				seen += p.Name + ": " + w.about(ctx, p) + "\n"
				for _, c := range p.Status.ContainerStatuses {
					if p.DeletionTimestamp == nil && c.State.Running != nil && c.State.Running.StartedAt.After(since) {
						n++
					}
				}
			}
			return n == 2, seen, nil
		})
	}
	available("both pods of the service run", time.Time{})

	boot := w.bootID(t)
	now := time.Now().Add(-time.Second).Truncate(time.Second)
	if err := w.node.cut(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.node.on(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, nodeTime, "the node says that it was started anew", func(ctx context.Context) (bool, string, error) {
		node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil && node.Status.NodeInfo.BootID != boot, boot, err
	})
	w.offered(t, fast, 4, 4)
	available("both pods of the service run again", now)
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
}

func (w *world) bootID(t *testing.T) string {
	t.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Status.NodeInfo.BootID
}

// gone deletes a deployment, and waits until no pod of it is left.
func (w *world) gone(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), podTime)
	defer cancel()
	foreground := metav1.DeletePropagationForeground
	if err := w.kube.AppsV1().Deployments(space).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Error(err)
	}
	for {
		pods, err := w.kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})})
		if err == nil && len(pods.Items) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("pods of %s are not gone within %s (%v)", name, podTime, err)
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// Two minutes, in which the agent is killed, too: what runs on the node does not
// notice, and what is needed of the agent is there again before the API server is.
func apiServerAway(t *testing.T, w *world) {
	w.run(t, "holder", fast, 1, "env; echo that was all; exec sleep 86399")
	w.running(t, "holder")
	held := w.devices(t, "holder")
	pod, err := w.kube.CoreV1().Pods(space).Get(t.Context(), "holder", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	process := w.sh(t, "pgrep -f '^sleep 86399'")

	if err := w.plane.kill("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	back := time.Now().Add(2 * time.Minute)
	w.killed(t, "sluice")
	eventually(t, nodeTime, "two minutes without an API server have passed", func(ctx context.Context) (bool, string, error) {
		if now := w.sh(t, "pgrep -f '^sleep 86399' || true"); now != process {
			t.Fatalf("the pod's process was %s and is now %q", process, now)
		}
		return time.Now().After(back), "", nil
	})
	w.sh(t, "pgrep -x sluice && ls /var/lib/kubelet/device-plugins/*.sock")
	if err := w.plane.start("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := w.plane.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.heartbeat(t)
	w.offered(t, fast, 4, 4)
	w.untouched(t, pod)
	w.usable(t, held, "next")
}

// The next version of the agent comes and goes under a pod that holds a VF.
func versionsChange(t *testing.T, w *world) {
	pod := w.holder(t, "holder", 1)
	held := w.devices(t, "holder")
	for _, image := range []string{nextImage, sluiceImage} {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":%q}]}}}}`, image)
		_, err := w.kube.AppsV1().DaemonSets(sluiceSpace).Patch(t.Context(), "sluice-agent", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, nodeTime, "the agent runs from "+image, func(ctx context.Context) (bool, string, error) {
			pods, err := w.kube.CoreV1().Pods(sluiceSpace).List(ctx, metav1.ListOptions{LabelSelector: "app=sluice-agent"})
			if err != nil {
				return false, "", err
			}
			seen := ""
			for i := range pods.Items {
				p := &pods.Items[i]
				seen += p.Name + " " + p.Spec.Containers[0].Image + ": " + w.about(ctx, p) + "\n"
				if len(pods.Items) == 1 && p.Spec.Containers[0].Image == image && p.Status.Phase == corev1.PodRunning {
					return true, seen, nil
				}
			}
			return false, seen, nil
		})
		w.heartbeat(t)
		w.offered(t, fast, 4, 4)
		w.untouched(t, pod)
		w.usable(t, held, "next")
	}
}
