package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/deviceplugin"
	"sluice.dev/sluice/deviceplugin/kubelettest"
	"sluice.dev/sluice/pkg/devlink"
	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/netlink"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/plan"
	"sluice.dev/sluice/pkg/policy"
)

// BenchmarkWantedInLab measures how long a port takes to its wanted state: by
// sluice, with journal, looks and proof of each step, against the bare writes of
// the same steps in the same order.
func BenchmarkWantedInLab(b *testing.B) {
	n := labNode(b)
	ctx := b.Context()
	fewest := 0
	for _, vfs := range []int{4, 32, 64} {
		state, err := n.observe(ctx)
		if err != nil {
			b.Fatal(err)
		}
		doc, err := policy.Decode(fmt.Appendf(nil, `{"apiVersion": "sluice.dev/v1alpha1", "kind": "NodeNIC", "spec": {"pfs": [
			{"pf": %q, "eswitch": "switchdev", "numVfs": %d, "vfGroups": [{"mac": "stable", "mtu": 9000}]}]}}`, state.PFs[0].Handle, vfs))
		if err != nil {
			b.Fatal(err)
		}
		spec, err := policy.Resolve(doc, state)
		if err != nil {
			b.Fatal(err)
		}
		foreseen, _, err := n.runner(nil).Preview(ctx, spec)
		if err != nil {
			b.Fatal(err)
		}
		bare := timed(func() { newBare(b).all(foreseen) })
		back(b, n, state)
		sluice := timed(func() {
			if _, err := n.runner(nil).Run(ctx, spec); err != nil {
				b.Fatal(err)
			}
		})
		back(b, n, state)
		base := fmt.Sprintf("lab/bare-writes/%d", vfs)
		line(base, bare, base, bare)
		line(fmt.Sprintf("lab/wanted/%d", vfs), sluice, base, bare)
		if fewest == 0 {
			fewest = len(foreseen.Steps)
		}
		fmt.Printf("bench: lab/wanted/steps/%d %d steps (%.2f vs lab/wanted/steps/4)\n",
			vfs, len(foreseen.Steps), float64(len(foreseen.Steps))/float64(fewest))
	}
}

// BenchmarkToldInLab measures how long it takes from a change of the machine, a VF
// that loses its driver (of which the driver itself takes lab/unbind), until kubelet has
// the list, against one look at the machine.
func BenchmarkToldInLab(b *testing.B) {
	const vfs, rounds = 64, 100
	n := labNode(b)
	ctx, cancel := context.WithCancel(b.Context())
	state, err := n.observe(ctx)
	if err != nil {
		b.Fatal(err)
	}
	doc, err := policy.Decode(fmt.Appendf(nil, `{"apiVersion": "sluice.dev/v1alpha1", "kind": "NodeNIC", "spec": {"pfs": [
		{"pf": %q, "eswitch": "switchdev", "numVfs": %d}], "pools": [{"name": "fast", "pfs": [%[1]q]}]}}`, state.PFs[0].Handle, vfs))
	if err != nil {
		b.Fatal(err)
	}
	spec, err := policy.Resolve(doc, state)
	if err != nil {
		b.Fatal(err)
	}
	pools, err := policy.Pools(doc, state, spec)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := n.runner(nil).Run(ctx, spec); err != nil {
		b.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "dp") // sockets' paths are short
	if err != nil {
		b.Fatal(err)
	}
	told := make(chan int, 100) // healthy devices
	k, err := kubelettest.Start(kubelettest.Options{Dir: dir, Changed: func(_ string, devices []*api.Device) {
		healthy := 0
		for _, d := range devices {
			if d.Health == api.Healthy {
				healthy++
			}
		}
		told <- healthy
	}})
	if err != nil {
		b.Fatal(err)
	}
	plugin, err := deviceplugin.New(deviceplugin.Config{Dir: dir, Pools: pools, Look: n.see})
	if err != nil {
		b.Fatal(err)
	}
	changes, err := n.machine.Watch.Changes(ctx)
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- plugin.Run(ctx, changes) }()
	b.Cleanup(func() {
		cancel()
		<-ended
		k.Stop()
		os.RemoveAll(dir)
	})
	await := func(healthy int) {
		for <-told != healthy {
		}
	}
	await(vfs)
	now, err := n.observe(ctx)
	if err != nil {
		b.Fatal(err)
	}
	vf := now.PFs[0].VFs[5].Address
	var looks, unbinds, took []time.Duration
	for i := range rounds {
		if i%10 == 0 {
			looks = append(looks, timed(func() { _, err = n.observe(ctx) }))
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, timed(func() {
			unbinds = append(unbinds, timed(func() { err = n.machine.PCI.Unbind(ctx, vf) }))
			if err != nil {
				b.Fatal(err)
			}
			await(vfs - 1)
		}))
		if err := n.machine.PCI.Bind(ctx, vf, ""); err != nil {
			b.Fatal(err)
		}
		await(vfs)
	}
	slices.Sort(looks)
	slices.Sort(unbinds)
	slices.Sort(took)
	base := fmt.Sprintf("lab/look/%d", vfs)
	line(base, looks[len(looks)/2], base, looks[len(looks)/2])
	line(fmt.Sprintf("lab/unbind/%d", vfs), unbinds[rounds/2], base, looks[len(looks)/2])
	for _, percent := range []int{50, 99} {
		line(fmt.Sprintf("lab/kubelet-told-p%d/%d", percent, vfs), took[rounds*percent/100], base, looks[len(looks)/2])
	}
}

// labNode is the machine of the lab, with a state folder of its own.
func labNode(b *testing.B) *node {
	b.Helper()
	if os.Getenv("SLUICE_LAB") == "" {
		b.Skip("needs the lab's NIC")
	}
	o := &options{stateDir: b.TempDir(), output: "table"}
	n, err := o.open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.close() })
	return n
}

// line prints one line for lab/bench.
func line(name string, took time.Duration, base string, baseTook time.Duration) {
	fmt.Printf("bench: %s %.1f ms (%.2f vs %s)\n", name, float64(took.Microseconds())/1000, took.Seconds()/baseTook.Seconds(), base)
}

func timed(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}

// back takes the node to what it was, whoever has changed it.
func back(b *testing.B, n *node, before nic.State) {
	b.Helper()
	if _, err := n.runner(nil).Run(b.Context(), plan.Back(before, nic.Spec{PFs: []nic.PFSpec{{Handle: before.PFs[0].Handle}}})); err != nil {
		b.Fatal(err)
	}
}

// bareWrites does steps with one write each, and reads only what the next write
// must know: names that the kernel gave.
type bareWrites struct {
	*testing.B
	devlink *devlink.Client
	ports   map[int]uint32 // of VFs, read once
	reps    map[string]string
}

func newBare(b *testing.B) *bareWrites {
	b.Helper()
	c, err := devlink.New(func() (*netlink.Conn, error) { return netlink.Dial(unix.NETLINK_GENERIC) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return &bareWrites{B: b, devlink: c}
}

func (w *bareWrites) all(p plan.Plan) {
	for _, s := range p.Steps {
		if err := w.do(s.Action); err != nil {
			w.Fatalf("%s: %v", s, err)
		}
	}
}

func (w *bareWrites) do(a plan.Action) error {
	device := func(elem ...string) string {
		return filepath.Join(append([]string{"/sys/bus/pci/devices", a.Object().Name}, elem...)...)
	}
	write := func(path, value string) error { return os.WriteFile(path, []byte(value), 0) }
	virtfn := func(id nic.VFID) string { return device("virtfn" + strconv.Itoa(id.Index)) }
	switch a := a.(type) {
	case plan.SetVFs:
		return write(device("sriov_numvfs"), strconv.Itoa(a.To))
	case plan.SetAutoprobe:
		return write(device("sriov_drivers_autoprobe"), map[bool]string{true: "1", false: "0"}[a.To])
	case plan.SetEswitch:
		return w.devlink.SetEswitchMode(a.PF, a.To)
	case plan.SetVFMAC:
		return w.devlink.SetPortFunction(a.VF.PF, w.port(a.VF), devlink.FunctionChange{MAC: &a.To})
	case plan.Bind:
		vf, err := filepath.EvalSymlinks(virtfn(a.VF))
		if err != nil {
			return err
		}
		return write("/sys/bus/pci/drivers_probe", filepath.Base(vf))
	case plan.SetVFMTU:
		return write(filepath.Join(own(filepath.Join(virtfn(a.VF), "net")), "mtu"), strconv.Itoa(a.To))
	case plan.SetRepMTU:
		port := fmt.Sprintf("pf%svf%d", a.VF.PF.Name[len(a.VF.PF.Name)-1:], a.VF.Index)
		return write(filepath.Join(w.rep(device("net"), port), "mtu"), strconv.Itoa(a.To))
	}
	return fmt.Errorf("no bare write for it")
}

// port is the devlink port of a VF.
func (w *bareWrites) port(id nic.VFID) uint32 {
	if w.ports == nil {
		ports, err := w.devlink.Ports(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		w.ports = map[int]uint32{}
		for _, p := range ports {
			if p.Handle == id.PF && p.Flavour == string(host.FlavourPCIVF) {
				w.ports[p.VF] = p.Index
			}
		}
	}
	return w.ports[id.Index]
}

// rep is the folder of the netdev of a port of the function in folder.
func (w *bareWrites) rep(folder, port string) string {
	if w.reps == nil {
		names, err := os.ReadDir(folder)
		if err != nil {
			w.Fatal(err)
		}
		w.reps = map[string]string{}
		for _, n := range names {
			if raw, err := os.ReadFile(filepath.Join(folder, n.Name(), "phys_port_name")); err == nil {
				w.reps[strings.TrimSpace(string(raw))] = filepath.Join(folder, n.Name())
			}
		}
	}
	return w.reps[port]
}

// own is the folder of the netdev of the function in folder.
func own(folder string) string {
	names, err := os.ReadDir(folder)
	if err != nil || len(names) == 0 {
		return folder
	}
	return filepath.Join(folder, names[0].Name())
}

// BenchmarkInventoryInLab measures what all of a node with many VFs takes to read
// and join, against plain reads of the same attributes, each a file in sysfs: what a
// script does who knows beforehand where everything is.
func BenchmarkInventoryInLab(b *testing.B) {
	n := labNode(b)
	state, err := n.observe(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	vfs := state.PFs[0].TotalVFs
	var spec nic.Spec
	for _, pf := range state.PFs {
		spec.PFs = append(spec.PFs, nic.PFSpec{Handle: pf.Handle, Named: true, Eswitch: nic.Switchdev, VFCount: &vfs})
	}
	if _, err := n.runner(nil).Run(b.Context(), spec); err != nil {
		b.Fatal(err)
	}
	least := func(do func()) time.Duration {
		best := timed(do)
		for range 4 {
			best = min(best, timed(do))
		}
		return best
	}
	files := 0
	plain := least(func() { files = plainReads(b) })
	observe := least(func() {
		if _, err := n.observe(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	base := fmt.Sprintf("lab/plain-reads/%d-files", files)
	line(base, plain, base, plain)
	line(fmt.Sprintf("lab/observe/2x%d", vfs), observe, base, plain)
}

// plainReads reads of each network function and netdev one file or link for each
// attribute that the inventory has from sysfs, and tells how many.
func plainReads(b *testing.B) (files int) {
	b.Helper()
	each := func(folder string, names ...string) {
		for _, name := range names {
			path := filepath.Join(folder, name)
			if _, err := os.Readlink(path); err != nil {
				_, _ = os.ReadFile(path) // some refuse to be read, which takes its time too
			}
			files++
		}
	}
	functions, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range functions {
		class, err := os.ReadFile(filepath.Join(f, "class"))
		if err != nil || !strings.HasPrefix(string(class), "0x02") {
			continue
		}
		files++
		each(f, "vendor", "device", "driver", "physfn", "numa_node", "iommu_group", "sriov_totalvfs", "sriov_numvfs", "sriov_drivers_autoprobe")
		netdevs, err := os.ReadDir(filepath.Join(f, "net"))
		if err != nil {
			continue
		}
		for _, d := range netdevs {
			each(filepath.Join(f, "net", d.Name()), "ifindex", "address", "mtu", "flags", "carrier", "phys_port_name", "phys_switch_id")
		}
	}
	return files
}
