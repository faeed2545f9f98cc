package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pods "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// DefaultPodResources is where the kubelet tells which pod has what.
const DefaultPodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Holder is a container that has a device.
type Holder struct{ Namespace, Pod, Container string }

func (h Holder) String() string { return h.Namespace + "/" + h.Pod + "/" + h.Container }

// holders is what the kubelet says of who has which device, by resource and ID.
type holders map[string]map[string]Holder

func (h holders) held(resource, id string) bool {
	_, ok := h[resource][id]
	return ok
}

// elsewhere is the other resource as which a device is held: of a pool that was renamed,
// or of another plugin. "" if it is held as this one, or as none.
func (h holders) elsewhere(resource, id string) string {
	if h.held(resource, id) {
		return ""
	}
	for _, other := range slices.Sorted(maps.Keys(h)) {
		if h.held(other, id) {
			return other
		}
	}
	return ""
}

// same says whether both name the same devices, whoever has them.
func (h holders) same(o holders) bool {
	count := func(h holders) (n int) {
		for _, ids := range h {
			n += len(ids)
		}
		return n
	}
	if count(h) != count(o) {
		return false
	}
	for resource, ids := range h {
		for id := range ids {
			if !o.held(resource, id) {
				return false
			}
		}
	}
	return true
}

// kubeletView is the answer to both questions.
type kubeletView struct {
	holders     holders
	allocatable map[string]map[string]bool // nil where the kubelet does not say (before 1.28)
}

// Holders asks the kubelet which container has which device, by the device's ID,
// whosever plugin offers it: a VF's is its PCI address everywhere. A kubelet that does
// not answer within two seconds is an error.
func Holders(ctx context.Context, socket string) (map[string]Holder, error) {
	view, err := askPods(ctx, socket, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return view.holders.byDevice(), nil
}

func (h holders) byDevice() map[string]Holder {
	out := map[string]Holder{}
	for _, devices := range h {
		maps.Copy(out, devices)
	}
	return out
}

// askPods asks the kubelet once, on a connection of its own: it is asked seldom,
// and may be another one each time.
func askPods(ctx context.Context, socket string, bound time.Duration) (kubeletView, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	const largest = 16 << 20 // bytes, as the kubelet's own clients take
	client, err := grpc.NewClient("passthrough:///pod-resources",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return kubeletView{}, err
	}
	lister := pods.NewPodResourcesListerClient(client)
	view, err := ask(ctx, lister)
	if err != nil {
		err = fmt.Errorf("ask the kubelet which pods have which devices: %w", err)
	}
	return view, errors.Join(err, client.Close())
}

func ask(ctx context.Context, lister pods.PodResourcesListerClient) (kubeletView, error) {
	list, err := lister.List(ctx, &pods.ListPodResourcesRequest{})
	if err != nil {
		return kubeletView{}, err
	}
	view := kubeletView{holders: holdersOf(list)}
	all, err := lister.GetAllocatableResources(ctx, &pods.AllocatableResourcesRequest{})
	if err != nil {
		return view, nil
	}
	view.allocatable = map[string]map[string]bool{}
	for _, d := range all.Devices {
		if view.allocatable[d.ResourceName] == nil {
			view.allocatable[d.ResourceName] = map[string]bool{}
		}
		for _, id := range d.DeviceIds {
			view.allocatable[d.ResourceName][id] = true
		}
	}
	return view, nil
}

// holdersOf takes devices as the sets that they are: newer kubelets list those of
// one container in several entries, one for each NUMA node, in any order.
func holdersOf(list *pods.ListPodResourcesResponse) holders {
	out := holders{}
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if out[d.ResourceName] == nil {
					out[d.ResourceName] = map[string]Holder{}
				}
				for _, id := range d.DeviceIds {
					out[d.ResourceName][id] = Holder{Namespace: p.Namespace, Pod: p.Name, Container: c.Name}
				}
			}
		}
	}
	return out
}
