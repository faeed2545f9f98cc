package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long a thing may take on an emulated node with neighbours: a pod's start or
// end takes seconds there, a node's status travels every ten seconds.
const (
	podTime  = 3 * time.Minute
	nodeTime = 5 * time.Minute
)

const space = "default"

// run makes a pod that holds n devices of a resource and runs a shell script; with
// n 0 it holds none. It is taken away when the test ends.
func (w *world) run(t *testing.T, name, of string, n int64, script string) {
	t.Helper()
	var limits corev1.ResourceList
	if n > 0 {
		limits = corev1.ResourceList{corev1.ResourceName(of): *resource.NewQuantity(n, resource.DecimalSI)}
	}
	w.make(t, name, limits, script)
}

// make makes a pod with limits, which are its requests too.
func (w *world) make(t *testing.T, name string, limits corev1.ResourceList, script string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec(limits, script)}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	// Namespaces get their service account a moment after they were made.
	eventually(t, podTime, "pod "+name+" is made", func(ctx context.Context) (bool, string, error) {
		_, err := w.kube.CoreV1().Pods(space).Create(ctx, pod, metav1.CreateOptions{})
		return err == nil, "", err
	})
	t.Cleanup(func() { w.end(t, name) })
}

func podSpec(limits corev1.ResourceList, script string) corev1.PodSpec {
	grace, no := int64(1), false
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &no,
		Containers: []corev1.Container{{
			Name: "main", Image: toolsImage, ImagePullPolicy: corev1.PullNever,
			Command:   []string{"sh", "-c", script},
			Resources: corev1.ResourceRequirements{Limits: limits},
		}},
	}
}

// end takes a pod away and waits until it is gone.
func (w *world) end(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), podTime)
	defer cancel()
	err := w.kube.CoreV1().Pods(space).Delete(ctx, name, metav1.DeleteOptions{})
	for err == nil {
		select {
		case <-ctx.Done():
			t.Errorf("pod %s is not gone within %s", name, podTime)
			return
		case <-time.After(300 * time.Millisecond):
		}
		_, err = w.kube.CoreV1().Pods(space).Get(ctx, name, metav1.GetOptions{})
	}
	if !apierrors.IsNotFound(err) {
		t.Errorf("end of pod %s: %v", name, err)
	}
}

func (w *world) running(t *testing.T, name string) {
	t.Helper()
	eventually(t, podTime, "pod "+name+" runs", func(ctx context.Context) (bool, string, error) {
		pod, err := w.kube.CoreV1().Pods(space).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		return pod.Status.Phase == corev1.PodRunning, w.about(ctx, pod), nil
	})
}

// about says how a pod is, in words for a failing test.
func (w *world) about(ctx context.Context, pod *corev1.Pod) string {
	said := []string{string(pod.Status.Phase)}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			said = append(said, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			said = append(said, c.State.Waiting.Reason+" "+c.State.Waiting.Message)
		}
	}
	events, err := w.kube.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err == nil && len(events.Items) > 0 {
		said = append(said, "last event: "+events.Items[len(events.Items)-1].Message)
	}
	return strings.Join(said, "; ")
}

// said waits until a pod has said a line of that text, and answers all it said.
func (w *world) said(t *testing.T, name, line string) []string {
	t.Helper()
	var lines []string
	eventually(t, podTime, fmt.Sprintf("pod %s says %q", name, line), func(ctx context.Context) (bool, string, error) {
		out, err := w.kube.CoreV1().Pods(space).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		lines = strings.Split(strings.TrimSpace(string(out)), "\n")
		return slices.Contains(lines, line), string(out), err
	})
	return lines
}

// sh runs a script on the node.
func (w *world) sh(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := w.node.sh(ctx, script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// offered waits until the node has n devices of a resource to give, of total.
func (w *world) offered(t *testing.T, of string, n, total int64) {
	t.Helper()
	eventually(t, nodeTime, fmt.Sprintf("the node offers %d of %d %s", n, total, of), func(ctx context.Context) (bool, string, error) {
		node, err := w.kube.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		can, has := node.Status.Allocatable[corev1.ResourceName(of)], node.Status.Capacity[corev1.ResourceName(of)]
		return can.Value() == n && has.Value() == total, fmt.Sprintf("allocatable %s, capacity %s", can.String(), has.String()), nil
	})
}
