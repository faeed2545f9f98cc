package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

func TestListIsOrderedAndComplete(t *testing.T) {
	node := card(4)
	node.State.PFs[1].NUMA = -1
	p := nic.Pool{Name: "a", Select: []nic.Pick{
		{PF: nic.PCI("0000:03:00.1"), Indexes: nic.Ranges{{First: 1, Last: 1}}},
		{PF: nic.PCI("0000:03:00.0"), Indexes: nic.Ranges{{First: 3, Last: 3}}},
		{PF: nic.PCI("0000:03:00.0"), Indexes: nic.Ranges{{First: 0, Last: 1}}},
	}}
	got, problems := List(p, node)
	want := []Device{
		{ID: node.vf(0, 0).Address, PF: nic.PCI("0000:03:00.0"), Index: 0},
		{ID: node.vf(0, 1).Address, PF: nic.PCI("0000:03:00.0"), Index: 1},
		{ID: node.vf(0, 3).Address, PF: nic.PCI("0000:03:00.0"), Index: 3},
		{ID: node.vf(1, 1).Address, PF: nic.PCI("0000:03:00.1"), Index: 1, NUMA: -1},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(problems) > 0 {
		t.Error(problems)
	}
}

func TestListReportsWhatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		pool    nic.Pool
		devices int
		want    []string
	}{
		"unknown PF":    {nic.Pool{Name: "a", Select: []nic.Pick{{PF: nic.PCI("0000:81:00.0")}}}, 0, []string{"pool sluice.dev/a: there is no PF pci/0000:81:00.0"}},
		"beyond":        {pool("a", "2-5"), 4, []string{"pool sluice.dev/a: pci/0000:03:00.0 has no VF 4-5: it has 4", "pool sluice.dev/a: pci/0000:03:00.1 has no VF 4-5: it has 4"}},
		"all beyond":    {nic.Pool{Name: "a", Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0"), Indexes: nic.Ranges{{First: 9, Last: 9}}}}}, 0, []string{"pool sluice.dev/a: pci/0000:03:00.0 has no VF 9: it has 4"}},
		"all is enough": {pool("a", ""), 8, nil},
	} {
		devices, problems := List(c.pool, card(4))
		if len(devices) != c.devices {
			t.Errorf("%s: %d devices, want %d", name, len(devices), c.devices)
		}
		if d := cmp.Diff(c.want, problems); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestVFThatHasGone(t *testing.T) {
	n := card(2)
	n.State.PFs[0].VFs[0] = nic.VF{Gone: true}
	devices, problems := List(nic.Pool{Name: "a", Select: []nic.Pick{{PF: n.State.PFs[0].Handle}}}, n)
	if len(devices) != 1 || devices[0].Index != 1 || len(problems) != 1 || !strings.Contains(problems[0], "VF 0 of pci/0000:03:00.0 has gone") {
		t.Errorf("devices %+v, problems %q: want the other VF, and said that this one has gone", devices, problems)
	}
}

func TestHealth(t *testing.T) {
	without := func(paths ...string) func(string) bool {
		return func(p string) bool { return !slices.Contains(paths, p) }
	}
	for name, c := range map[string]struct {
		pool   nic.Pool
		change func(n *Node, v *nic.VF)
		want   string
	}{
		"free":                   {nic.Pool{}, func(*Node, *nic.VF) {}, ""},
		"in a pod":               {nic.Pool{}, func(_ *Node, v *nic.VF) { inPod(v) }, ""},
		"held":                   {nic.Pool{}, func(_ *Node, v *nic.VF) { v.Owner = "pod default/a"; v.Netdev = nic.Netdev{} }, ""},
		"no driver":              {nic.Pool{}, func(_ *Node, v *nic.VF) { v.Driver = "" }, "bound to no driver, want kernel"},
		"other driver":           {nic.Pool{}, func(_ *Node, v *nic.VF) { vfio(v) }, "bound to vfio-pci, want kernel"},
		"driver lost in a pod":   {nic.Pool{}, func(_ *Node, v *nic.VF) { inPod(v); v.Driver = "" }, "bound to no driver, want kernel"},
		"no representor":         {nic.Pool{}, func(_ *Node, v *nic.VF) { v.Rep = nic.Representor{} }, "no representor"},
		"port without netdev":    {nic.Pool{}, func(_ *Node, v *nic.VF) { v.Rep = nic.Representor{Port: 3} }, "no representor"},
		"legacy":                 {nic.Pool{}, func(n *Node, v *nic.VF) { n.State.PFs[0].Eswitch = nic.Legacy; v.Rep = nic.Representor{} }, ""},
		"no eswitch":             {nic.Pool{}, func(n *Node, v *nic.VF) { n.State.PFs[0].Eswitch = ""; v.Rep = nic.Representor{} }, ""},
		"netdev late":            {nic.Pool{}, func(_ *Node, v *nic.VF) { v.Netdev = nic.Netdev{} }, "no netdev"},
		"switchdev not yet":      {nic.Pool{Select: []nic.Pick{{Eswitch: nic.Switchdev}}}, func(n *Node, v *nic.VF) { n.State.PFs[0].Eswitch = nic.Legacy; v.Rep = nic.Representor{} }, `eswitch of pci/0000:03:00.0 is "legacy", not yet switchdev`},
		"switchdev":              {nic.Pool{Select: []nic.Pick{{Eswitch: nic.Switchdev}}}, func(*Node, *nic.VF) {}, ""},
		"vfio":                   {nic.Pool{Driver: nic.DriverVFIO}, func(_ *Node, v *nic.VF) { vfio(v) }, ""},
		"vfio wanted":            {nic.Pool{Driver: nic.DriverVFIO}, func(*Node, *nic.VF) {}, "bound to mlx5_core, want vfio-pci"},
		"vfio without IOMMU":     {nic.Pool{Driver: nic.DriverVFIO}, func(_ *Node, v *nic.VF) { vfio(v); v.IOMMUGroup = -1 }, "no IOMMU group"},
		"vfio without group":     {nic.Pool{Driver: nic.DriverVFIO}, func(n *Node, v *nic.VF) { vfio(v); n.Exists = without("/dev/vfio/40", "/dev/vfio/noiommu-40") }, "no /dev/vfio/40"},
		"vfio noiommu":           {nic.Pool{Driver: nic.DriverVFIO}, func(n *Node, v *nic.VF) { vfio(v); n.Exists = without("/dev/vfio/40") }, ""},
		"vfio without container": {nic.Pool{Driver: nic.DriverVFIO}, func(n *Node, v *nic.VF) { vfio(v); n.Exists = without("/dev/vfio/vfio") }, "no /dev/vfio/vfio"},
		"rdma":                   {nic.Pool{RDMA: true}, func(*Node, *nic.VF) {}, ""},
		"rdma in a pod":          {nic.Pool{RDMA: true}, func(_ *Node, v *nic.VF) { inPod(v) }, ""},
		"rdma away":              {nic.Pool{RDMA: true}, func(_ *Node, v *nic.VF) { v.RDMA = nil }, "no RDMA device"},
		"rdma not asked for":     {nic.Pool{}, func(_ *Node, v *nic.VF) { v.RDMA = nil }, ""},
	} {
		node := card(1)
		c.change(&node, node.vf(0, 0))
		c.pool.Name = "a"
		if len(c.pool.Select) == 0 {
			c.pool.Select = []nic.Pick{{}}
		}
		c.pool.Select[0].PF = nic.PCI("0000:03:00.0")
		got, _ := List(c.pool, node)
		if len(got) != 1 {
			t.Errorf("%s: listed %v", name, got)
			continue
		}
		if got[0].Problem != c.want {
			t.Errorf("%s: problem %q, want %q", name, got[0].Problem, c.want)
		}
	}
}

// Case B21: the files of a VF's RDMA device appear one after the other while
// modules load. The VF is healthy from the last one on, and never given before.
func TestB21RDMAFilesAppearInSteps(t *testing.T) {
	node := card(1)
	there := map[string]bool{}
	node.Exists = func(p string) bool { return there[p] }
	own := node.vf(0, 0).RDMA
	node.vf(0, 0).RDMA = nil
	files(node, "mlx5_2")
	p := nic.Pool{Name: "a", RDMA: true, Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0")}}}
	id := node.vf(0, 0).Address
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"nothing", func() {}, "no RDMA device"},
		{"the device", func() { node.vf(0, 0).RDMA = own }, "RDMA device mlx5_2 has no uverbs file"},
		{"umad", func() { files(node, "mlx5_2", "/dev/infiniband/umad0") }, "RDMA device mlx5_2 has no uverbs file"},
		{"uverbs in sysfs", func() { files(node, "mlx5_2", "/dev/infiniband/umad0", "/dev/infiniband/uverbs0") }, "no /dev/infiniband/umad0"},
		{"uverbs' file", func() { there["/dev/infiniband/umad0"] = true }, "no /dev/infiniband/uverbs0"},
		{"umad's file", func() { there["/dev/infiniband/uverbs0"] = true }, "no /dev/infiniband/rdma_cm"},
		{"rdma_cm", func() { there["/dev/infiniband/rdma_cm"] = true }, ""},
	} {
		step.do()
		got, _ := List(p, node)
		if got[0].Problem != step.want {
			t.Errorf("after %s: problem %q, want %q", step.what, got[0].Problem, step.want)
		}
		g, err := Allocate(p, node, []string{id})
		if (err == nil) != (step.want == "") {
			t.Errorf("after %s: allocate: %v, %v", step.what, g, err)
		}
		if err == nil && len(g.Files) != 3 {
			t.Errorf("after %s: files %v", step.what, g.Files)
		}
	}
}

// Case B21: ib_umad gives its files device by device. Where the PF has its own, a VF
// without is not complete yet; where no device has one, none is missing.
func TestB21UmadComesLast(t *testing.T) {
	uverbs, umad := []string{"/dev/infiniband/uverbs0"}, []string{"/dev/infiniband/umad0", "/dev/infiniband/uverbs0"}
	for _, c := range []struct {
		pf, vf []string
		want   string
	}{
		{nil, uverbs, ""},
		{uverbs, uverbs, ""},
		{umad, uverbs, "RDMA device mlx5_2 has no umad file, and mlx5_0 of its PF has one"},
		{umad, umad, ""},
		{uverbs, umad, ""},
	} {
		node := card(1)
		node.State.PFs[0].RDMA = []string{"mlx5_0"}
		files(node, "mlx5_0", c.pf...)
		files(node, "mlx5_2", c.vf...)
		p := nic.Pool{Name: "a", RDMA: true, Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0")}}}
		got, _ := List(p, node)
		if got[0].Problem != c.want {
			t.Errorf("PF %q, VF %q: problem %q, want %q", c.pf, c.vf, got[0].Problem, c.want)
		}
		if g, err := Allocate(p, node, []string{got[0].ID}); (err == nil) != (c.want == "") {
			t.Errorf("PF %q, VF %q: allocate: %v, %v", c.pf, c.vf, g, err)
		}
	}
}

// What the kubelet sees of a healthy node does not depend on which VFs sit in
// pods: a restart of the plugin among running pods leaves the capacity alone.
func TestCapacityDoesNotDependOnPods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		p := pool("a", "")
		p.RDMA = r.IntN(2) == 0
		free := card(1 + r.IntN(32))
		if r.IntN(3) == 0 {
			p.RDMA, p.Driver = false, nic.DriverVFIO
			for port := range 2 {
				for i := range free.State.PFs[port].VFs {
					vfio(free.vf(port, i))
				}
			}
		}
		used := free
		used.State = free.State.Clone()
		for port := range 2 {
			for i := range used.State.PFs[port].VFs {
				switch r.IntN(3) {
				case 0:
					if p.Driver == nic.DriverVFIO {
						used.vf(port, i).Owner = "vm"
					} else {
						inPod(used.vf(port, i))
					}
				case 1:
					used.vf(port, i).Owner = fmt.Sprintf("pod %d", i)
				}
			}
		}
		before, _ := List(p, free)
		after, _ := List(p, used)
		if d := cmp.Diff(before, after); d != "" {
			t.Fatalf("round %d: %s", round, d)
		}
	}
}

func TestDeviceString(t *testing.T) {
	node := card(1)
	node.vf(0, 0).Driver = ""
	devices, _ := List(pool("a", ""), node)
	var lines []string
	for _, d := range devices {
		lines = append(lines, d.String())
	}
	want := "0000:10:00.0 unhealthy: bound to no driver, want kernel\n0000:10:00.1 healthy"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
