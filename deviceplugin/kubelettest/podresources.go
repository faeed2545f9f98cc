package kubelettest

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pods "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Pod is a pod of one container with devices, by resource.
type Pod struct {
	Namespace, Name string
	Devices         map[string][]string
}

// SetPods says which pods there are, beside nothing: the kubelet's List answers
// these. They outlive it where they are given to the next one.
func (k *Kubelet) SetPods(pods ...Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = pods
}

// podResources is the kubelet's PodResources API.
type podResources struct {
	pods.UnimplementedPodResourcesListerServer
	k *Kubelet
}

// servePods begins to serve on the socket, whose folder is made.
func (k *Kubelet) servePods() error {
	path := k.options.PodResources
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	_ = os.Remove(path) // of a kubelet that was killed
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	k.resources = grpc.NewServer(grpc.WaitForHandlers(true))
	pods.RegisterPodResourcesListerServer(k.resources, podResources{k: k})
	k.running.Go(func() { _ = k.resources.Serve(l) }) // ends with Stop or Kill
	return nil
}

// List answers each device in an entry of its own, and the last one first: no
// reader may take a meaning from how devices are put together.
func (p podResources) List(context.Context, *pods.ListPodResourcesRequest) (*pods.ListPodResourcesResponse, error) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.k.asked++
	p.k.change()
	out := &pods.ListPodResourcesResponse{}
	for _, pod := range p.k.pods {
		c := &pods.ContainerResources{Name: "main"}
		for _, resource := range slices.Sorted(maps.Keys(pod.Devices)) {
			for _, id := range slices.Backward(pod.Devices[resource]) {
				c.Devices = append(c.Devices, &pods.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
			}
		}
		out.PodResources = append(out.PodResources, &pods.PodResources{Namespace: pod.Namespace, Name: pod.Name, Containers: []*pods.ContainerResources{c}})
	}
	return out, nil
}

// GetAllocatableResources answers the healthy devices.
func (p podResources) GetAllocatableResources(context.Context, *pods.AllocatableResourcesRequest) (*pods.AllocatableResourcesResponse, error) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	out := &pods.AllocatableResourcesResponse{}
	for resource, devices := range p.k.devices {
		for _, d := range devices {
			if d.Health == api.Healthy && !p.k.blind {
				out.Devices = append(out.Devices, &pods.ContainerDevices{ResourceName: resource, DeviceIds: []string{d.ID}})
			}
		}
	}
	return out, nil
}

// Blind makes GetAllocatableResources answer nothing, as a kubelet would that has
// lost a list.
func (k *Kubelet) Blind(yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blind = yes
}
