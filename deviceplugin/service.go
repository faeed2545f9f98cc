package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/pkg/nic"
)

// service answers the kubelet for one pool, over one server.
type service struct {
	api.UnimplementedDevicePluginServer

	offer *offer
	desk  desk
	log   *slog.Logger

	mu      sync.Mutex
	streams int           // ListAndWatch streams that are open
	watched bool          // there was one
	counted chan struct{} // has a value after each change of streams
}

func newService(offer *offer, desk desk, log *slog.Logger) *service {
	return &service{offer: offer, desk: desk, log: log, counted: make(chan struct{}, 1)}
}

// desk is what the services of all pools have in common.
type desk interface {
	// observe reads the machine.
	observe(context.Context) (Node, error)

	// hand writes what belongs to an allocation before it is answered.
	hand(nic.Pool, Node, *Grant) error

	// allocated is told how an allocation went.
	allocated(resource string, took time.Duration, err error)
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
	begun, pool := time.Now(), s.offer.current()
	out, err := s.allocate(ctx, pool, r)
	s.desk.allocated(pool.Resource(), time.Since(begun), err)
	return out, err
}

func (s *service) allocate(ctx context.Context, pool nic.Pool, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	refuse := func(code codes.Code, err error) error {
		s.log.Error("allocation refused", "error", err)
		return status.Error(code, err.Error())
	}
	node, err := s.desk.observe(ctx)
	if err != nil {
		return nil, refuse(codes.Unavailable, fmt.Errorf("allocate of %s: %w", pool, err))
	}
	var grants []Grant
	given := map[string]bool{}
	for _, c := range r.ContainerRequests {
		grant, err := Allocate(pool, node, c.DevicesIds)
		if err != nil {
			return nil, refuse(codes.FailedPrecondition, err)
		}
		for _, id := range c.DevicesIds {
			if given[id] {
				return nil, refuse(codes.InvalidArgument, fmt.Errorf("allocate of %s: %q is asked for by two containers: want each device once", pool, id))
			}
			given[id] = true
		}
		grants = append(grants, grant)
	}
	out := &api.AllocateResponse{}
	for i, grant := range grants {
		if err := s.desk.hand(pool, node, &grant); err != nil {
			return nil, refuse(codes.Internal, fmt.Errorf("allocate of %s: %w", pool, err))
		}
		out.ContainerResponses = append(out.ContainerResponses, grant.response())
		s.log.Info("allocated", "devices", r.ContainerRequests[i].DevicesIds)
	}
	return out, nil
}

func (g Grant) response() *api.ContainerAllocateResponse {
	out := &api.ContainerAllocateResponse{Envs: g.Env}
	for _, f := range g.Files {
		out.Devices = append(out.Devices, &api.DeviceSpec{HostPath: f.Host, ContainerPath: f.Container, Permissions: "rw"})
	}
	for _, m := range g.Mounts {
		out.Mounts = append(out.Mounts, &api.Mount{HostPath: m.Host, ContainerPath: m.Container, ReadOnly: true})
	}
	for _, name := range g.CDI {
		out.CdiDevices = append(out.CdiDevices, &api.CDIDevice{Name: name})
	}
	return out
}

// GetPreferredAllocation is Prefer, by the list as it was told to the kubelet.
func (s *service) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	pool := s.offer.current()
	devices, _ := s.offer.get()
	out := &api.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids, err := Prefer(pool.Prefer, devices, c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize))
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", pool, err)
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
