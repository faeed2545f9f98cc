package e2e

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const sluiceSpace = "sluice-system"

const document = `apiVersion: sluice.dev/v1alpha1
kind: NodeNIC
metadata: {name: ` + nodeName + `}
spec:
  pfs:
  - {pf: "1000:00:00.0", eswitch: switchdev, numVfs: 4}
  - {pf: "1000:00:01.0", eswitch: switchdev, numVfs: 1}
  pools:
  - {name: fast, pfs: ["1000:00:00.0"]}
  - {name: far, pfs: ["1000:00:01.0"]}
`

// install puts the agent on the node, for the rest of the tests.
func (w *world) install(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	yes := true
	host := func(name, path string) corev1.Volume {
		kind := corev1.HostPathDirectoryOrCreate
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
	}
	both := corev1.MountPropagationHostToContainer
	labels := map[string]string{"app": "sluice-agent"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork: true,
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "agent", Image: sluiceImage, ImagePullPolicy: corev1.PullNever,
						Args:            []string{"agent", "-f", "/etc/sluice/node.yaml"},
						SecurityContext: &corev1.SecurityContext{Privileged: &yes},
						VolumeMounts: []corev1.VolumeMount{
							{Name: "document", MountPath: "/etc/sluice"},
							{Name: "state", MountPath: "/var/lib/sluice"},
							{Name: "plugins", MountPath: "/var/lib/kubelet/device-plugins"},
							{Name: "holders", MountPath: "/var/lib/kubelet/pod-resources"},
							{Name: "netns", MountPath: "/run/netns", MountPropagation: &both},
						},
					}},
					Volumes: []corev1.Volume{
						{Name: "document", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
							LocalObjectReference: corev1.LocalObjectReference{Name: "node"},
						}}},
						host("state", "/var/lib/sluice"),
						host("plugins", "/var/lib/kubelet/device-plugins"),
						host("holders", "/var/lib/kubelet/pod-resources"),
						host("netns", "/run/netns"),
					},
				},
			},
		},
	}
	if _, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sluiceSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Data: map[string]string{"node.yaml": document}}
	if _, err := w.kube.CoreV1().ConfigMaps(sluiceSpace).Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.AppsV1().DaemonSets(sluiceSpace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
