package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/host/sim"
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
		Look: looking(func(context.Context) (nic.State, error) { return node.State, nil })})
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

// observed is a plugin with 32 pools over 256 VFs of a simulated machine, and who
// changes that machine.
func observed(b *testing.B, dir string) (*Plugin, host.Machine) {
	b.Helper()
	made, err := sim.Parse("mlx5:cards=1,vfs=128,numvfs=128,mode=switchdev")
	if err != nil {
		b.Fatal(err)
	}
	m := made.Machine()
	state, err := host.Observe(b.Context(), m)
	if err != nil {
		b.Fatal(err)
	}
	var pools []nic.Pool
	for i := range 32 {
		p := nic.Pool{Name: fmt.Sprint("pool", i)}
		for _, pf := range state.PFs {
			p.Select = append(p.Select, nic.Pick{PF: pf.Handle, Indexes: nic.Ranges{{First: 4 * i, Last: 4*i + 3}}})
		}
		pools = append(pools, p)
	}
	p, err := New(Config{
		Dir: dir, Pools: pools, Exists: func(string) bool { return true }, Look: viewing(m),
	})
	if err != nil {
		b.Fatal(err)
	}
	return p, m
}

// percentiles runs do until there are readings enough, and reports each percentile
// as a benchmark of its own.
func percentiles(b *testing.B, do func(i int) time.Duration) {
	b.Helper()
	var all []time.Duration
	for i := range 300 {
		all = append(all, do(i))
	}
	slices.Sort(all)
	for _, p := range []int{50, 99} {
		b.Run(fmt.Sprint("p", p), func(b *testing.B) {
			for b.Loop() { // it was measured above
			}
			b.ReportMetric(float64(all[len(all)*p/100].Nanoseconds()), "ns/op")
		})
	}
}

// BenchmarkServe is what the kubelet waits for at an allocation, with the
// observation of all 256 VFs.
func BenchmarkServe(b *testing.B) {
	p, m := observed(b, "/d")
	state, err := host.Observe(b.Context(), m)
	if err != nil {
		b.Fatal(err)
	}
	e := p.endpoints[1]
	s := newService(e.offer, p, e.log)
	r := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{state.PFs[0].VFs[5].Address}}}}
	percentiles(b, func(int) time.Duration {
		begun := time.Now()
		if _, err := s.Allocate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	})
}

// BenchmarkTold is how long it takes from a change of the machine until the kubelet
// has the list, over sockets, with 256 VFs in 32 pools.
func BenchmarkTold(b *testing.B) {
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	p, m := observed(b, dir)
	told := make(chan string, 1000)
	k, err := kubelettest.Start(kubelettest.Options{Dir: dir, Changed: func(resource string, _ []*api.Device) { told <- resource }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	changes, err := m.Watch.Changes(ctx)
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- p.Run(ctx, changes) }()
	b.Cleanup(func() { cancel(); <-ended; k.Stop() })
	for range 32 {
		<-told
	}
	state, err := host.Observe(ctx, m)
	if err != nil {
		b.Fatal(err)
	}
	vf := state.PFs[0].VFs[5].Address
	percentiles(b, func(i int) time.Duration {
		time.Sleep(20 * time.Millisecond) // changes come one by one
		begun := time.Now()
		if i%2 == 0 {
			err = m.PCI.Unbind(ctx, vf)
		} else {
			err = m.PCI.Bind(ctx, vf, "")
		}
		if err != nil {
			b.Fatal(err)
		}
		if r := <-told; r != "sluice.dev/pool1" {
			b.Fatal(r)
		}
		return time.Since(begun)
	})
}

// BenchmarkReconnect prints how many goroutines there are before and after a
// thousand lost connections.
func BenchmarkReconnect(b *testing.B) {
	const r, rounds = "sluice.dev/fast", 1000
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	node := card(128)
	p, err := New(Config{Dir: dir, Pools: []nic.Pool{pool("fast", "")}, Exists: node.Exists,
		Look: looking(func(context.Context) (nic.State, error) { return node.State, nil })})
	if err != nil {
		b.Fatal(err)
	}
	quick(p)
	k, err := kubelettest.Start(kubelettest.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx, nil) }()
	b.Cleanup(func() { cancel(); <-ended; k.Stop() })
	served := func(n int) {
		err := k.Wait(r, 5*time.Second, func(devices []*api.Device, served bool) bool {
			return served && k.Registrations(r) > n && len(devices) == 256 && devices[0].Health == api.Healthy
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	served(0)
	before := runtime.NumGoroutine()
	for range rounds {
		n := k.Registrations(r)
		k.BreakStreams(r)
		served(n)
	}
	time.Sleep(time.Second) // the last ones are about to end
	after := runtime.NumGoroutine()
	fmt.Printf("\nbench: kubelet/goroutines %d goroutines (1.00 vs kubelet/goroutines)\n", before)
	fmt.Printf("bench: kubelet/goroutines/%d-reconnects %d goroutines (%.2f vs kubelet/goroutines)\n", rounds, after, float64(after)/float64(before))
	for b.Loop() { // it is counted, not timed
	}
}
