package deviceplugin

import (
	"context"
	"fmt"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// thirtyTwo divides 2 PFs of 128 VFs into 32 pools of 8.
func thirtyTwo() []nic.Pool {
	var pools []nic.Pool
	for i := range 32 {
		pools = append(pools, pool(fmt.Sprint("pool", i), fmt.Sprintf("%d-%d", 4*i, 4*i+3)))
	}
	return pools
}

func BenchmarkList(b *testing.B) {
	node, pools := card(128), thirtyTwo()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, p := range pools {
			devices, _ := List(p, node)
			n += len(devices)
		}
		if n != 256 {
			b.Fatal(n)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	pools := thirtyTwo()
	for b.Loop() {
		if err := policy.CheckPools(pools); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocate(b *testing.B) {
	node := card(128)
	p := pool("fast", "")
	p.RDMA = true
	ids := []string{node.vf(0, 5).Address, node.vf(0, 6).Address}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Allocate(p, node, ids); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrefer(b *testing.B) {
	node := card(128)
	devices, _ := List(pool("fast", ""), node)
	var available []string
	for _, d := range devices {
		available = append(available, d.ID)
	}
	for b.Loop() {
		if _, err := Prefer(nic.Packed, devices, available, available[:1], 4); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkService is what the kubelet waits for, without the observation.
func BenchmarkService(b *testing.B) {
	node := card(128)
	p, err := New(Config{Dir: "/d", Pools: []nic.Pool{pool("fast", "")}, Exists: node.Exists,
		Observe: func(context.Context) (nic.State, error) { return node.State, nil }})
	if err != nil {
		b.Fatal(err)
	}
	e := p.endpoints[0]
	s := newService(e.offer, p, e.log)
	r := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{node.vf(0, 5).Address}}}}
	for b.Loop() {
		if _, err := s.Allocate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
