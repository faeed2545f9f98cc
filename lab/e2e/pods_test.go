package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How long a thing may take on an emulated node with neighbours: a pod's start or
// end takes seconds there, and minutes while many others are busy.
const (
	podTime  = 6 * time.Minute
	nodeTime = 10 * time.Minute
)

const space = "default"

// asks is what a pod asks for: how many of which resource.
type asks map[corev1.ResourceName]int64

// podSpec is of a pod that tells its environment and stays.
func podSpec(a asks) corev1.PodSpec {
	limits := corev1.ResourceList{}
	for name, n := range a {
		limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	grace, no := int64(1), false
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &no,
		Containers: []corev1.Container{{
			Name: "main", Image: toolsImage, ImagePullPolicy: corev1.PullNever,
			Command:   []string{"sh", "-c", "env; echo that was all; exec sleep 100000"},
			Resources: corev1.ResourceRequirements{Limits: limits},
		}},
	}
}

// make makes a pod.
func (w *world) make(t *testing.T, name string, a asks) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec(a)}
	// Namespaces get their service account a moment after they were made.
	eventually(t, podTime, "pod "+name+" is made", func(ctx context.Context) (bool, string, error) {
		_, err := w.kube.CoreV1().Pods(space).Create(ctx, pod, metav1.CreateOptions{})
		return err == nil, "", err
	})
}

// end takes a pod away. Who needs what it had, or its name, waits for that.
func (w *world) end(t *testing.T, name string) {
	t.Helper()
	if err := w.kube.CoreV1().Pods(space).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// gone waits until there are no pods whose names begin so.
func (w *world) gone(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, nodeTime, fmt.Sprintf("there is no pod of %q", names), func(ctx context.Context) (bool, string, error) {
		list, err := w.kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		seen := ""
		for i := range list.Items {
			p := &list.Items[i]
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(p.Name, name) }) {
				seen += p.Name + ": " + w.about(ctx, p) + "\n"
			}
		}
		return seen == "", seen, nil
	})
}

func (w *world) running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, podTime, "pod "+name+" runs", func(ctx context.Context) (bool, string, error) {
		var err error
		if pod, err = w.kube.CoreV1().Pods(space).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, "", err
		}
		return pod.Status.Phase == corev1.PodRunning, w.about(ctx, pod), nil
	})
	return pod
}

// about says how a pod is, in words for a failing test.
func (w *world) about(ctx context.Context, pod *corev1.Pod) string {
	said := []string{string(pod.Status.Phase), pod.Status.Reason, pod.Status.Message}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			said = append(said, c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil {
			said = append(said, c.Name+" "+c.State.Waiting.Reason+" "+c.State.Waiting.Message)
		}
		if end := c.LastTerminationState.Terminated; end != nil {
			said = append(said, fmt.Sprintf("%s ended with %d: %s", c.Name, end.ExitCode, end.Message))
		}
	}
	events, err := w.kube.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err == nil && len(events.Items) > 0 {
		said = append(said, "last event: "+events.Items[len(events.Items)-1].Message)
	}
	return strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), "; ")
}

// given are the devices of each resource that a pod was given, by its environment.
func (w *world) given(t *testing.T, pod string) map[string][]string {
	t.Helper()
	var out map[string][]string
	eventually(t, podTime, "pod "+pod+" tells what it was given", func(ctx context.Context) (bool, string, error) {
		said, err := w.kube.CoreV1().Pods(space).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		out = map[string][]string{}
		for line := range strings.Lines(string(said)) {
			line = strings.TrimSpace(line)
			if line == "that was all" {
				return true, "", nil
			}
			name, value, _ := strings.Cut(line, "=")
			if resource, ours := strings.CutPrefix(name, "PCIDEVICE_SLUICE_DEV_"); ours && !strings.HasSuffix(name, "_INFO") {
				out[strings.ToLower(resource)] = strings.Split(value, ",")
			}
		}
		return false, string(said), err
	})
	return out
}

// held is a pod that runs, with all that must stay as it is whatever happens to
// others.
type held struct {
	pod       *corev1.Pod
	vfs       []string // of pool fast
	processes string   // ids on the node
}

// holder is a running pod that has VFs of pool fast.
func (w *world) holder(t *testing.T, name string, vfs int64) *held {
	t.Helper()
	w.make(t, name, asks{fast: vfs})
	return w.hold(t, name)
}

func (w *world) hold(t *testing.T, name string) *held {
	t.Helper()
	h := &held{pod: w.running(t, name)}
	h.vfs = w.given(t, name)["fast"]
	h.processes = w.processes(t, h.pod)
	return h
}

// processes are those of a pod.
func (w *world) processes(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	return w.sh(t, "cd /proc; { grep -ls pod"+string(pod.UID)+" [0-9]*/cgroup || true; } | sort")
}

// untouched checks that a pod is the same that it was, and has what it had: by the
// node's kernel, by the kubelet and by what its NodeNIC says.
func (w *world) untouched(t *testing.T, h *held) {
	t.Helper()
	if now := w.processes(t, h.pod); now != h.processes {
		t.Fatalf("processes of pod %s are %q and were %q", h.pod.Name, now, h.processes)
	}
	eventually(t, podTime, "pod "+h.pod.Name+" runs as before", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, h.pod.Name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, "", err
		}
		was, is := h.pod.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[0]
		return pod.UID == h.pod.UID && pod.Status.Phase == corev1.PodRunning && is.ContainerID == was.ContainerID &&
			is.RestartCount == was.RestartCount, w.about(ctx, pod), nil
	})
	if len(h.vfs) > 0 {
		w.allocated(t, h)
	}
}

// usable checks that the node gives what it offers: a pod with all the others of so
// many VFs starts, and has none that h has.
func (w *world) usable(t *testing.T, h *held, total int) {
	t.Helper()
	next := w.holder(t, "next", int64(total-len(h.vfs)))
	if len(next.vfs)+len(h.vfs) != total || slices.ContainsFunc(next.vfs, func(id string) bool { return slices.Contains(h.vfs, id) }) {
		t.Errorf("a second pod was given %q: want the %d VFs that are not %q", next.vfs, total-len(h.vfs), h.vfs)
	}
	w.end(t, "next")
}

// offered waits until the node has n devices of a resource to give, of total.
func (w *world) offered(t *testing.T, of corev1.ResourceName, n, total int64) {
	t.Helper()
	eventually(t, nodeTime, fmt.Sprintf("the node offers %d of %d %s", n, total, of), func(ctx context.Context) (bool, string, error) {
		node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		can, has := node.Status.Allocatable[of], node.Status.Capacity[of]
		return can.Value() == n && has.Value() == total, fmt.Sprintf("allocatable %s, capacity %s", can.String(), has.String()), nil
	})
}

// capacity is how many devices of a resource the node has.
func (w *world) capacity(t *testing.T, of corev1.ResourceName) int64 {
	t.Helper()
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := node.Status.Capacity[of]
	return has.Value()
}

// service is a Deployment of one pod, which is brought back wherever it ends.
type service struct {
	*world
	name string
}

func (w *world) service(t *testing.T, name string, a asks) *service {
	t.Helper()
	one := int32(1)
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(a)},
		},
	}
	if _, err := w.kube.AppsV1().Deployments(space).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &service{w, name}
}

func (s *service) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{LabelSelector: "app=" + s.name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// runs waits until a pod of the service runs that is not the one given, or was
// started after it, and answers it.
func (s *service) runs(t *testing.T, not types.UID, since time.Time) *corev1.Pod {
	t.Helper()
	var out *corev1.Pod
	eventually(t, nodeTime, "the pod of "+s.name+" runs", func(ctx context.Context) (bool, string, error) {
		pods, err := s.pods(ctx)
		seen := ""
		for i := range pods {
			p := &pods[i]
			seen += p.Name + ": " + s.about(ctx, p) + "\n"
			if p.UID == not || p.DeletionTimestamp != nil || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			if run := p.Status.ContainerStatuses[0].State.Running; run != nil && run.StartedAt.After(since) {
				out = p
				return true, seen, nil
			}
		}
		return false, seen, err
	})
	return out
}

// end takes the service away, and so its pod.
func (s *service) end(t *testing.T) {
	t.Helper()
	if err := s.kube.AppsV1().Deployments(space).Delete(t.Context(), s.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
