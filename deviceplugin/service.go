package deviceplugin

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// service answers the kubelet for one pool, over one server.
type service struct {
	api.UnimplementedDevicePluginServer

	pool    Pool
	offer   *offer
	observe func(context.Context) (Node, error)
	log     *slog.Logger

	mu      sync.Mutex
	streams int           // ListAndWatch streams that are open
	watched bool          // there was one
	counted chan struct{} // has a value after each change of streams
}

func newService(pool Pool, offer *offer, observe func(context.Context) (Node, error), log *slog.Logger) *service {
	return &service{pool: pool, offer: offer, observe: observe, log: log, counted: make(chan struct{}, 1)}
}

// audience returns how many ListAndWatch streams are open, and whether there
// ever was one.
func (s *service) audience() (open int, ever bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams, s.watched
}

func (s *service) count(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams += by
	s.watched = true
	poke(s.counted)
}

// poke leaves a value in c, a channel of capacity 1, unless there is one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions is asked once a connection.
func (s *service) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends the list at once and then whenever it is another one. It
// ends with the kubelet's connection: a server that overlooks this keeps a
// goroutine for each reconnect.
func (s *service) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	s.count(+1)
	defer s.count(-1)
	for {
		devices, changed := s.offer.get()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: listed(devices)}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func listed(devices []Device) []*api.Device {
	out := make([]*api.Device, len(devices))
	for i, d := range devices {
		out[i] = &api.Device{ID: d.ID, Health: api.Healthy}
		if !d.Healthy() {
			out[i].Health = api.Unhealthy
		}
		if d.NUMA >= 0 {
			out[i].Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(d.NUMA)}}}
		}
	}
	return out
}

// Allocate observes the machine and answers for all containers, or for none.
func (s *service) Allocate(ctx context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	node, err := s.observe(ctx)
	if err != nil {
		s.log.Error("allocation refused", "error", err)
		return nil, status.Errorf(codes.Unavailable, "allocate of %s: %v", s.pool, err)
	}
	out := &api.AllocateResponse{}
	given := map[string]bool{}
	for _, c := range r.ContainerRequests {
		grant, err := Allocate(s.pool, node, c.DevicesIds)
		if err != nil {
			s.log.Error("allocation refused", "error", err)
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		for _, id := range c.DevicesIds {
			if given[id] {
				return nil, status.Errorf(codes.InvalidArgument, "allocate of %s: %q is asked for by two containers: want each device once", s.pool, id)
			}
			given[id] = true
		}
		out.ContainerResponses = append(out.ContainerResponses, grant.response())
	}
	for _, c := range r.ContainerRequests {
		s.log.Info("allocated", "devices", c.DevicesIds)
	}
	return out, nil
}

func (g Grant) response() *api.ContainerAllocateResponse {
	out := &api.ContainerAllocateResponse{Envs: g.Env}
	for _, f := range g.Files {
		out.Devices = append(out.Devices, &api.DeviceSpec{HostPath: f.Host, ContainerPath: f.Container, Permissions: "rw"})
	}
	return out
}

// GetPreferredAllocation is Prefer, by the list as it was told to the kubelet.
func (s *service) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	devices, _ := s.offer.get()
	out := &api.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids, err := Prefer(devices, c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize))
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", s.pool, err)
		}
		out.ContainerResponses = append(out.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// PreStartContainer has nothing to do (the options say that it need not be
// called): a VF is made ready by the CNI plugin, which knows the pod.
func (s *service) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}
