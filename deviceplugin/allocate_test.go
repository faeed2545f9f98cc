package deviceplugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/sluice/pkg/nic"
)

func TestAllocateKernel(t *testing.T) {
	node := card(4)
	// In no order, as the kubelet sends them.
	got, err := Allocate(pool("fast", ""), node, []string{"0000:10:00.6", "0000:10:00.1"})
	if err != nil {
		t.Fatal(err)
	}
	want := Grant{Env: map[string]string{
		"PCIDEVICE_SLUICE_DEV_FAST":      "0000:10:00.1,0000:10:00.6",
		"PCIDEVICE_SLUICE_DEV_FAST_INFO": `{"0000:10:00.1":{"generic":{"deviceID":"0000:10:00.1"}},"0000:10:00.6":{"generic":{"deviceID":"0000:10:00.6"}}}`,
	}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Grant{}, "Infos")); d != "" {
		t.Error(d)
	}
}

func TestAllocateVFIO(t *testing.T) {
	node := card(4)
	vfio(node.vf(0, 0))
	vfio(node.vf(0, 1))
	node.Exists = func(p string) bool { return p != "/dev/vfio/41" } // group 41 has no IOMMU
	p := nic.Pool{Prefix: "example.com", Name: "dpdk-a.b", Driver: nic.DriverVFIO, Select: ports("")}
	got, err := Allocate(p, node, []string{"0000:10:00.0", "0000:10:00.1"})
	if err != nil {
		t.Fatal(err)
	}
	want := Grant{
		Env: map[string]string{
			"PCIDEVICE_EXAMPLE_COM_DPDK-A_B":      "0000:10:00.0,0000:10:00.1",
			"PCIDEVICE_EXAMPLE_COM_DPDK-A_B_INFO": `{"0000:10:00.0":{"generic":{"deviceID":"0000:10:00.0"},"vfio":{"dev-mount":"/dev/vfio/40","mount":"/dev/vfio/vfio"}},"0000:10:00.1":{"generic":{"deviceID":"0000:10:00.1"},"vfio":{"dev-mount":"/dev/vfio/41","mount":"/dev/vfio/vfio"}}}`,
		},
		Files: []File{{"/dev/vfio/vfio", "/dev/vfio/vfio"}, {"/dev/vfio/40", "/dev/vfio/40"}, {"/dev/vfio/noiommu-41", "/dev/vfio/41"}},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Grant{}, "Infos")); d != "" {
		t.Error(d)
	}
}

func TestAllocateRDMA(t *testing.T) {
	node := card(4)
	p := pool("fast", "")
	p.RDMA = true
	got, err := Allocate(p, node, []string{"0000:10:00.0", "0000:10:00.5"})
	if err != nil {
		t.Fatal(err)
	}
	want := Grant{
		Env: map[string]string{
			"PCIDEVICE_SLUICE_DEV_FAST":      "0000:10:00.0,0000:10:00.5",
			"PCIDEVICE_SLUICE_DEV_FAST_INFO": `{"0000:10:00.0":{"generic":{"deviceID":"0000:10:00.0"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_2","umad":"/dev/infiniband/umad0","uverbs":"/dev/infiniband/uverbs0"}},"0000:10:00.5":{"generic":{"deviceID":"0000:10:00.5"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_7","umad":"/dev/infiniband/umad5","uverbs":"/dev/infiniband/uverbs5"}}}`,
		},
		Files: []File{
			{"/dev/infiniband/umad0", "/dev/infiniband/umad0"},
			{"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0"},
			{"/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm"},
			{"/dev/infiniband/umad5", "/dev/infiniband/umad5"},
			{"/dev/infiniband/uverbs5", "/dev/infiniband/uverbs5"},
		},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Grant{}, "Infos")); d != "" {
		t.Error(d)
	}
}

func TestAllocateOfNothing(t *testing.T) {
	got, err := Allocate(pool("fast", ""), card(1), nil)
	want := Grant{Env: map[string]string{"PCIDEVICE_SLUICE_DEV_FAST": "", "PCIDEVICE_SLUICE_DEV_FAST_INFO": "{}"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

// A VF that the kubelet hands on before the last pod's CNI DEL has run.
func TestAllocateOfVFInUse(t *testing.T) {
	node := card(2)
	inPod(node.vf(0, 0))
	if _, err := Allocate(pool("fast", ""), node, []string{"0000:10:00.0"}); err != nil {
		t.Errorf("kernel: %v", err)
	}
	p := pool("fast", "")
	p.RDMA = true
	_, err := Allocate(p, node, []string{"0000:10:00.0"})
	if err == nil || !strings.Contains(err.Error(), "0000:10:00.0 cannot be given: no RDMA device") {
		t.Errorf("RDMA: %v", err)
	}
}

func TestAllocateRefuses(t *testing.T) {
	node := card(8)
	node.vf(0, 3).Driver = ""
	p := nic.Pool{Name: "fast", Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0"), Indexes: nic.Ranges{{First: 0, Last: 3}}}}}
	for name, c := range map[string]struct {
		ids  []string
		want []string
	}{
		"unhealthy":  {[]string{"0000:10:00.0", "0000:10:00.3"}, []string{"sluice.dev/fast", "0000:10:00.3 is unhealthy", "bound to no driver"}},
		"other pool": {[]string{"0000:10:00.4"}, []string{`"0000:10:00.4" is no VF of this pool`}},
		"a PF":       {[]string{"0000:03:00.0"}, []string{`"0000:03:00.0" is no VF of this pool`, "PCI address"}},
		"gone":       {[]string{"0000:99:00.0"}, []string{`"0000:99:00.0"`}},
		"twice":      {[]string{"0000:10:00.0", "0000:10:00.0"}, []string{`"0000:10:00.0" is asked for twice`}},
		"empty":      {[]string{""}, []string{`"" is no VF`}},
	} {
		g, err := Allocate(p, node, c.ids)
		if err == nil || g.Env != nil || g.Files != nil {
			t.Errorf("%s: %v, %v", name, g, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
}
