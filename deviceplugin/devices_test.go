package deviceplugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/host"
	"sluice.dev/sluice/pkg/nic"
)

// withSFs gives the first port SFs 0 to n-1, active and free.
func withSFs(n int) Node {
	node := card(2)
	pf := &node.State.PFs[0]
	for i := range n {
		device, rdma := "mlx5_core.sf."+string(rune('2'+i)), "mlx5_sf"+string(rune('0'+i))
		pf.SFs = append(pf.SFs, nic.SF{
			Num: i, Active: true, Attached: true, Device: device,
			Netdev: nic.Netdev{Name: "sf", Ifindex: 500 + i}, Rep: nic.Netdev{Name: "en1f0pf0sf" + string(rune('0'+i)), Ifindex: 600 + i},
			RDMA: []string{rdma},
		})
		files(node, rdma, "/dev/infiniband/uverbs9"+string(rune('0'+i)))
	}
	return node
}

func first(p nic.Pool) nic.Pool {
	p.Name, p.Select = "a", []nic.Pick{{PF: nic.PCI("0000:03:00.0")}}
	return p
}

func TestSFs(t *testing.T) {
	node := withSFs(4)
	p := first(nic.Pool{Kind: nic.PoolOfSFs, RDMA: true})
	p.Select[0].Indexes = nic.Ranges{{First: 1, Last: 3}}
	node.State.PFs[0].SFs[3].Device = "" // not attached yet: there is no name for it
	devices, problems := List(p, node)
	want := []Device{{ID: "mlx5_core.sf.3", PF: nic.PCI("0000:03:00.0"), Index: 1}, {ID: "mlx5_core.sf.4", PF: nic.PCI("0000:03:00.0"), Index: 2}}
	if d := cmp.Diff(want, devices); d != "" || len(problems) > 0 {
		t.Error(d, problems)
	}
	g, err := Allocate(p, node, []string{"mlx5_core.sf.4"})
	if err != nil {
		t.Fatal(err)
	}
	wantGrant := Grant{
		Env: map[string]string{
			"PCIDEVICE_SLUICE_DEV_A":      "mlx5_core.sf.4",
			"PCIDEVICE_SLUICE_DEV_A_INFO": `{"mlx5_core.sf.4":{"generic":{"deviceID":"mlx5_core.sf.4"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_sf2","uverbs":"/dev/infiniband/uverbs92"}}}`,
		},
		Files: []File{{"/dev/infiniband/uverbs92", "/dev/infiniband/uverbs92"}, {"/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm"}},
		Infos: map[string][]byte{"mlx5_core.sf.4": []byte(`{"type":"pci","version":"1.1.0","pci":{"rdma-device":"mlx5_sf2","pf-pci-address":"0000:03:00.0","representor-device":"en1f0pf0sf2"}}`)},
	}
	if d := cmp.Diff(wantGrant, g); d != "" {
		t.Error(d)
	}
	if _, err := Allocate(p, node, []string{"mlx5_core.sf.2"}); err == nil || !strings.Contains(err.Error(), "no SF of this pool") {
		t.Errorf("SF 0, which the pool has not: %v", err)
	}
	sf := &node.State.PFs[0].SFs[1]
	for _, c := range []struct {
		what   string
		change func()
		want   string
	}{
		{"no RDMA device", func() { sf.RDMA = nil }, "no RDMA device"},
		{"no netdev", func() { sf.Netdev = nic.Netdev{} }, "no netdev"},
		{"in a pod", func() { sf.Away = true }, ""},
		{"a reporter", func() { sf.Failing = []string{"tx"} }, "devlink health reporter tx is in error"},
		{"no representor", func() { sf.Rep = nic.Netdev{} }, "no representor"},
		{"detached", func() { sf.Attached = false }, "no driver is attached"},
		{"inactive", func() { sf.Active = false }, "it is not active"},
	} {
		c.change()
		if devices, _ := List(p, node); devices[0].Problem != c.want {
			t.Errorf("%s: %q, want %q", c.what, devices[0].Problem, c.want)
		}
	}
}

// An HCA is as many devices as pods may share it, each with all of its files. In
// exclusive mode nobody can share it. Case B25: the device of bonded ports is at
// one function of the two, and pods of either port get it.
func TestB25SharedHCA(t *testing.T) {
	node := card(1)
	node.State.RDMA.Mode = nic.RDMAShared
	for i := range node.State.PFs {
		node.State.PFs[i].RDMA = []string{"mlx5_bond_0"} // as host.Observe gives it to both
	}
	files(node, "mlx5_bond_0", "/dev/infiniband/issm0", "/dev/infiniband/umad9", "/dev/infiniband/uverbs9")
	p := nic.Pool{Name: "a", Kind: nic.PoolOfHCAs, RDMA: true, Share: 3, Select: ports("")}
	devices, _ := List(p, node)
	var got []string
	for _, d := range devices {
		got = append(got, d.String())
	}
	want := "0000:03:00.0-0 healthy, 0000:03:00.0-1 healthy, 0000:03:00.0-2 healthy, 0000:03:00.1-0 healthy, 0000:03:00.1-1 healthy, 0000:03:00.1-2 healthy"
	if d := cmp.Diff(want, strings.Join(got, ", ")); d != "" {
		t.Error(d)
	}
	g, err := Allocate(p, node, []string{"0000:03:00.1-2"})
	if err != nil || len(g.Infos) > 0 || g.Env["PCIDEVICE_SLUICE_DEV_A"] != "0000:03:00.1-2" {
		t.Errorf("%v, %v", g, err)
	}
	var paths []string
	for _, f := range g.Files {
		paths = append(paths, f.Container)
	}
	if d := cmp.Diff([]string{"/dev/infiniband/issm0", "/dev/infiniband/umad9", "/dev/infiniband/uverbs9", "/dev/infiniband/rdma_cm"}, paths); d != "" {
		t.Error(d)
	}
	for _, id := range []string{"0000:03:00.0-3", "0000:03:00.0", "0000:10:00.0"} {
		if _, err := Allocate(p, node, []string{id}); err == nil || !strings.Contains(err.Error(), "no HCA of this pool") {
			t.Errorf("%s: %v", id, err)
		}
	}
	// A VF of the same ports has its own device still.
	vfs := pool("b", "")
	vfs.RDMA = true
	if g, err := Allocate(vfs, node, []string{node.vf(0, 0).Address}); err != nil || g.Files[0].Host != "/dev/infiniband/umad0" {
		t.Errorf("%v, %v: want the VF's own files", g.Files, err)
	}
	node.State.RDMA.Mode = nic.RDMAExclusive
	if devices, _ := List(p, node); !strings.Contains(devices[0].Problem, "one network namespace each") {
		t.Errorf("exclusive: %v", devices[0])
	}
}

// What makes a device unhealthy beside what TestHealth has.
func TestHealthOfPorts(t *testing.T) {
	up, down := nic.Netdev{Name: "p0", Ifindex: 3, Carrier: true}, nic.Netdev{Name: "p0", Ifindex: 3}
	bond := func(n *Node, carrier bool) {
		n.State.Bonds = []nic.Bond{{Netdev: nic.Netdev{Name: "bond0", Ifindex: 9, Carrier: carrier}, Members: []nic.Handle{n.State.PFs[0].Handle}}}
	}
	for name, c := range map[string]struct {
		pool   nic.Pool
		change func(n *Node, pf *nic.PF, v *nic.VF)
		want   string
	}{
		"no carrier, not asked for": {nic.Pool{}, func(_ *Node, pf *nic.PF, _ *nic.VF) { pf.Uplink = down }, ""},
		"no carrier":                {nic.Pool{Carrier: true}, func(_ *Node, pf *nic.PF, _ *nic.VF) { pf.Uplink = down }, "p0 has no carrier"},
		"carrier":                   {nic.Pool{Carrier: true}, func(_ *Node, pf *nic.PF, _ *nic.VF) { pf.Uplink = up }, ""},
		"no uplink":                 {nic.Pool{Carrier: true}, func(*Node, *nic.PF, *nic.VF) {}, "pci/0000:03:00.0 has no uplink"},
		"bond has carrier":          {nic.Pool{Carrier: true}, func(n *Node, pf *nic.PF, _ *nic.VF) { pf.Uplink = down; bond(n, true) }, ""},
		"bond has none":             {nic.Pool{Carrier: true}, func(n *Node, pf *nic.PF, _ *nic.VF) { pf.Uplink = up; bond(n, false) }, "bond0 has no carrier"},
		"no carrier in a pod":       {nic.Pool{Carrier: true}, func(_ *Node, pf *nic.PF, v *nic.VF) { pf.Uplink = down; inPod(v) }, "p0 has no carrier"},
		"reporter of the PF":        {nic.Pool{}, func(_ *Node, pf *nic.PF, _ *nic.VF) { pf.Failing = []string{"fw", "fw_fatal"} }, "pci/0000:03:00.0: devlink health reporter fw, fw_fatal is in error"},
		"reporter of the VF":        {nic.Pool{}, func(_ *Node, _ *nic.PF, v *nic.VF) { v.Failing = []string{"tx"} }, "devlink health reporter tx is in error"},
		"GUID of zeros":             {nic.Pool{RDMA: true}, func(n *Node, pf *nic.PF, _ *nic.VF) { pf.InfiniBand = true; guid(n, "00:00:00:00:00:00:00:00") }, "RDMA device mlx5_2 has no GUID"},
		"GUID":                      {nic.Pool{RDMA: true}, func(n *Node, pf *nic.PF, _ *nic.VF) { pf.InfiniBand = true; guid(n, "02:00:00:00:00:00:00:01") }, ""},
		"GUID not said":             {nic.Pool{RDMA: true}, func(_ *Node, pf *nic.PF, _ *nic.VF) { pf.InfiniBand = true }, ""},
		"GUID of zeros, Ethernet":   {nic.Pool{RDMA: true}, func(n *Node, _ *nic.PF, _ *nic.VF) { guid(n, "00:00:00:00:00:00:00:00") }, ""},
		"any driver, none":          {nic.Pool{Driver: nic.DriverAny}, func(_ *Node, _ *nic.PF, v *nic.VF) { v.Driver = "" }, "bound to no driver, want any"},
		"any driver, vfio":          {nic.Pool{Driver: nic.DriverAny}, func(_ *Node, _ *nic.PF, v *nic.VF) { vfio(v) }, ""},
		"any driver, no group":      {nic.Pool{Driver: nic.DriverAny}, func(_ *Node, _ *nic.PF, v *nic.VF) { vfio(v); v.IOMMUGroup = -1 }, "no IOMMU group"},
		"any driver and RDMA":       {nic.Pool{Driver: nic.DriverAny, RDMA: true}, func(_ *Node, _ *nic.PF, v *nic.VF) { vfio(v) }, "bound to vfio-pci, which leaves no RDMA device"},
		"held by the kubelet's word": {nic.Pool{RDMA: true}, func(n *Node, _ *nic.PF, v *nic.VF) {
			v.Netdev, v.RDMA = nic.Netdev{}, nil
			n.Held = func(resource, id string) bool { return resource == "sluice.dev/a" && id == v.Address }
		}, ""},
		"no vDPA":         {nic.Pool{VDPA: nic.VDPAVhost}, func(*Node, *nic.PF, *nic.VF) {}, `its vDPA device is "", want vhost`},
		"vDPA of another": {nic.Pool{VDPA: nic.VDPAVhost}, func(_ *Node, _ *nic.PF, v *nic.VF) { vdpa(v, "virtio", "") }, `its vDPA device is "virtio", want vhost`},
		"vDPA, no file":   {nic.Pool{VDPA: nic.VDPAVhost}, func(_ *Node, _ *nic.PF, v *nic.VF) { vdpa(v, "vhost", "") }, "its vDPA device has no file"},
		"vDPA":            {nic.Pool{VDPA: nic.VDPAVhost}, func(_ *Node, _ *nic.PF, v *nic.VF) { vdpa(v, "vhost", "/dev/vhost-vdpa-3"); v.Netdev = nic.Netdev{} }, ""},
		"vDPA of virtio":  {nic.Pool{VDPA: nic.VDPAVirtio}, func(_ *Node, _ *nic.PF, v *nic.VF) { vdpa(v, "virtio", "") }, ""},
		"no vhost-net":    {nic.Pool{VhostNet: true}, func(n *Node, _ *nic.PF, _ *nic.VF) { n.Exists = func(p string) bool { return p != "/dev/vhost-net" } }, "no /dev/vhost-net"},
		"no tun":          {nic.Pool{VhostNet: true}, func(n *Node, _ *nic.PF, _ *nic.VF) { n.Exists = func(p string) bool { return p != "/dev/net/tun" } }, "no /dev/net/tun"},
		"iommufd, no group": {nic.Pool{Driver: nic.DriverVFIO}, func(n *Node, _ *nic.PF, v *nic.VF) {
			vfio(v)
			v.VFIO = "vfio3"
			n.Exists = func(p string) bool { return p == "/dev/iommu" || p == "/dev/vfio/devices/vfio3" }
		}, ""},
	} {
		node := card(1)
		c.change(&node, &node.State.PFs[0], node.vf(0, 0))
		got, _ := List(first(c.pool), node)
		if len(got) != 1 || got[0].Problem != c.want {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
	}
}

func guid(n *Node, guid string) {
	d := n.RDMA["mlx5_2"]
	d.NodeGUID = guid
	n.RDMA["mlx5_2"] = d
}

func vdpa(v *nic.VF, use, file string) {
	v.Settings = nic.Settings{nic.VDPA: use}
	v.VDPA = nic.VDPADevice{Name: "vdpa:" + v.Address, File: file}
}

// What virtual machines get.
func TestAllocateForVMs(t *testing.T) {
	node := card(2)
	vfio(node.vf(0, 0))
	node.vf(0, 0).VFIO = "vfio3"
	vdpa(node.vf(0, 1), "vhost", "/dev/vhost-vdpa-3")
	vm := first(nic.Pool{Driver: nic.DriverVFIO, VhostNet: true})
	g, err := Allocate(vm, node, []string{"0000:10:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	want := []File{
		{"/dev/vfio/vfio", "/dev/vfio/vfio"}, {"/dev/vfio/40", "/dev/vfio/40"},
		{"/dev/iommu", "/dev/iommu"}, {"/dev/vfio/devices/vfio3", "/dev/vfio/devices/vfio3"},
		{"/dev/vhost-net", "/dev/vhost-net"}, {"/dev/net/tun", "/dev/net/tun"},
	}
	if d := cmp.Diff(want, g.Files); d != "" {
		t.Error(d)
	}
	wantInfo := `{"0000:10:00.0":{"generic":{"deviceID":"0000:10:00.0"},"vfio":{"cdev":"/dev/vfio/devices/vfio3","dev-mount":"/dev/vfio/40","iommufd":"/dev/iommu","mount":"/dev/vfio/vfio"},"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}}}`
	if d := cmp.Diff(wantInfo, g.Env["PCIDEVICE_SLUICE_DEV_A_INFO"]); d != "" {
		t.Error(d)
	}
	g, err = Allocate(first(nic.Pool{VDPA: nic.VDPAVhost}), node, []string{"0000:10:00.1"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]File{{"/dev/vhost-vdpa-3", "/dev/vhost-vdpa-3"}}, g.Files); d != "" {
		t.Error(d)
	}
	wantText := `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa:0000:10:00.1","driver":"vhost","path":"/dev/vhost-vdpa-3","pci-address":"0000:10:00.1","pf-pci-address":"0000:03:00.0","representor-device":"rep1"}}`
	if d := cmp.Diff(wantText, string(g.Infos["0000:10:00.1"])); d != "" {
		t.Error(d)
	}
}

// A filter lets through what fits all of it, and says when that is nothing.
func TestFilters(t *testing.T) {
	infiniband := true
	for name, c := range map[string]struct {
		filter nic.Filter
		want   int
	}{
		"vendor":            {nic.Filter{Vendors: []string{"15b3"}}, 8},
		"other vendor":      {nic.Filter{Vendors: []string{"8086"}}, 0},
		"the VFs' device":   {nic.Filter{Devices: []string{"101e", "1018"}}, 8},
		"the PF's device":   {nic.Filter{Devices: []string{"101d"}}, 0},
		"driver":            {nic.Filter{Drivers: []string{"vfio-pci"}}, 1},
		"no driver":         {nic.Filter{Drivers: []string{""}}, 0},
		"addresses":         {nic.Filter{Addresses: []string{"0000:10:00.1", "0000:10:00.6", "0000:99:00.0"}}, 2},
		"NUMA":              {nic.Filter{NUMA: []int{1, 2}}, 4},
		"InfiniBand":        {nic.Filter{InfiniBand: &infiniband}, 0},
		"ACPI index":        {nic.Filter{ACPIIndexes: []int{7}}, 4},
		"driver and device": {nic.Filter{Drivers: []string{"mlx5_core"}, Devices: []string{"101e"}, NUMA: []int{0}}, 3},
	} {
		node := card(4)
		for i := range node.State.PFs {
			pf := &node.State.PFs[i]
			pf.Vendor, pf.Device, pf.VFDevice = "15b3", "101d", "101e"
		}
		node.State.PFs[1].ACPIIndex = 7
		vfio(node.vf(0, 0))
		p := pool("a", "")
		p.Filter = c.filter
		got, problems := List(p, node)
		if len(got) != c.want || (c.want == 0) != (len(problems) > 0) {
			t.Errorf("%s: %d devices, want %d; %v", name, len(got), c.want, problems)
		}
	}
}

func TestNoTopology(t *testing.T) {
	p := pool("a", "")
	p.NoTopology = true
	devices, _ := List(p, card(1))
	if devices[1].NUMA != -1 || listed(devices)[1].Topology != nil {
		t.Errorf("%v", devices[1])
	}
}

// Devices near a GPU come first, one PF after the other.
func TestPreferSpreadAndNear(t *testing.T) {
	for _, c := range []struct {
		how             nic.Preference
		available, must string
		size            int
		want            string
	}{
		{nic.Spread, "a0 a1 b0 b1 c0", "", 2, "a0 b0"},
		{nic.Spread, "a0 b0 b1 c0 c1", "", 4, "b0 c0 a0 b1"}, // who has most left, first
		{nic.Spread, "a0 a1 b0", "a2", 2, "a2 b0"},
		{nic.Spread, "a0 a1", "", 2, "a0 a1"},
		{nic.NearGPU, "a0 a1 b0 b1 c0 c1", "", 1, "b0"},
		{nic.NearGPU, "a0 a1 b0 b1 c0 c1", "", 3, "b0 c0 b1"}, // a is far
		{nic.NearGPU, "a0 a1 b0 c0", "", 3, "b0 c0 a0"},
		{nic.NearGPU, "a0 b0 c0", "b1", 2, "b1 c0"},
	} {
		devices := three(4, 4, 4)
		for i := range devices {
			devices[i].GPU = nic.SameSwitch
			if devices[i].PF == nic.PCI("a") {
				devices[i].GPU = nic.Far
			}
		}
		got, err := Prefer(c.how, devices, strings.Fields(c.available), strings.Fields(c.must), c.size)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %d of %q with %q: %v, %v; want %s", c.how, c.size, c.available, c.must, got, err, c.want)
		}
		if _, err := Prefer(c.how, devices, strings.Fields(c.available), nil, 9); err == nil {
			t.Errorf("%s: more than there are", c.how)
		}
	}
}

// The nearest of all GPUs counts.
func TestNearestGPU(t *testing.T) {
	node := card(1)
	node.State.PFs[0].Path = "pci0000:00/0000:00:01.0/0000:01:00.0"
	node.State.PFs[1].Path = "pci0000:80/0000:80:01.0"
	node.GPUs = []host.GPU{{Address: "0000:81:00.0", NUMA: 1, Path: "pci0000:90/0000:90:01.0"}, {Address: "0000:02:00.0", Path: "pci0000:00/0000:00:01.0/0000:01:00.0"}}
	p := pool("a", "")
	p.Prefer = nic.NearGPU
	devices, _ := List(p, node)
	if devices[0].GPU != nic.SameSwitch || devices[1].GPU != nic.SameNUMA {
		t.Errorf("%v: %s, %s", devices, devices[0].GPU, devices[1].GPU)
	}
	node.GPUs = nil
	if devices, _ := List(p, node); devices[0].GPU != "" {
		t.Errorf("without a GPU: %q", devices[0].GPU)
	}
}
