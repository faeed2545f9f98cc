package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Allocate takes n healthy devices that nobody has, by the plugin's preference
// if it offers one, and asks the plugin what the container gets. A refusal gives
// the devices back.
func (k *Kubelet) Allocate(ctx context.Context, resource string, n int) (ids []string, r *api.ContainerAllocateResponse, err error) {
	k.mu.Lock()
	e := k.endpoints[resource]
	var available []string
	for _, d := range k.devices[resource] {
		if d.Health == api.Healthy && !k.allocated[resource][d.ID] {
			available = append(available, d.ID)
		}
	}
	k.mu.Unlock()
	switch {
	case e == nil:
		return nil, nil, fmt.Errorf("cannot allocate unregistered device %s", resource)
	case n < 1:
		return nil, nil, fmt.Errorf("%d devices of %s: want 1 or more", n, resource)
	case len(available) < n:
		return nil, nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", resource, n, len(available))
	}
	ids, err = prefer(ctx, e, available, n)
	if err != nil {
		return nil, nil, err
	}
	if err := k.take(resource, ids); err != nil {
		return nil, nil, err
	}
	r, err = k.ask(ctx, e, ids)
	if err != nil {
		k.Release(resource, ids)
		return nil, nil, err
	}
	return ids, r, nil
}

// AllocateThese asks the plugin for devices by name, whatever the kubelet thinks
// of them, and records nothing: what a kubelet that restores an old pod does.
func (k *Kubelet) AllocateThese(ctx context.Context, resource string, ids []string) (*api.ContainerAllocateResponse, error) {
	k.mu.Lock()
	e := k.endpoints[resource]
	k.mu.Unlock()
	if e == nil {
		return nil, fmt.Errorf("cannot allocate unregistered device %s", resource)
	}
	return k.ask(ctx, e, ids)
}

func prefer(ctx context.Context, e *client, available []string, n int) ([]string, error) {
	var ids []string
	if e.options.GetPreferredAllocationAvailable {
		r, err := e.plugin.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{
			ContainerRequests: []*api.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: available, AllocationSize: int32(n)}},
		})
		if err != nil {
			return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
		}
		if len(r.ContainerResponses) > 0 {
			ids = r.ContainerResponses[0].DeviceIDs
		}
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !slices.Contains(available, id) })
	for _, id := range available {
		if len(ids) < n && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids[:n], nil
}

func (k *Kubelet) take(resource string, ids []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.allocated[resource] == nil {
		k.allocated[resource] = map[string]bool{}
	}
	for _, id := range ids {
		if k.allocated[resource][id] {
			return fmt.Errorf("%s of %s was taken meanwhile", id, resource)
		}
	}
	for _, id := range ids {
		k.allocated[resource][id] = true
	}
	return nil
}

func (k *Kubelet) ask(ctx context.Context, e *client, ids []string) (*api.ContainerAllocateResponse, error) {
	k.mu.Lock()
	stopped := e.stopped
	k.mu.Unlock()
	if stopped {
		return nil, fmt.Errorf("endpoint %s of %s has been stopped", e.path, e.resource)
	}
	r, err := e.plugin.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(r.ContainerResponses) != 1 {
		return nil, errors.New("allocate of one container was not answered for one")
	}
	return r.ContainerResponses[0], nil
}

// Release gives devices back.
func (k *Kubelet) Release(resource string, ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		delete(k.allocated[resource], id)
	}
}
