package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// machine has two ports of a card with four VFs each, of which VF 3 of the first is
// bound to vfio-pci and VF 2 is in a pod, with its RDMA device; and on the second
// port two SFs. VF 1 of the second port has a vDPA device, and VF 0 no RDMA.
func machine() nic.State {
	pf := func(function int, name string) nic.PF {
		p := nic.PF{
			Handle: nic.PCI(fmt.Sprintf("0000:03:00.%d", function)), Vendor: "15b3", Device: "1017", VFDevice: "1018",
			Driver: "mlx5_core", Uplink: nic.Netdev{Name: name, Ifindex: function + 2}, RDMA: []string{"mlx5_" + fmt.Sprint(function)},
			ACPIIndex: 101 + function,
		}
		for i := range 4 {
			p.VFs = append(p.VFs, nic.VF{
				Index: i, Address: fmt.Sprintf("0000:03:0%d.%d", function+1, i), Driver: "mlx5_core",
				RDMA: []string{fmt.Sprintf("mlx5_v%d%d", function, i)}, Settings: nic.Settings{},
			})
		}
		return p
	}
	s := nic.State{PFs: []nic.PF{pf(0, "ens1f0np0"), pf(1, "ens1f1np1")}}
	vfs := s.PFs[0].VFs
	vfs[3].Driver, vfs[3].RDMA = "vfio-pci", nil
	vfs[2].Away, vfs[2].RDMA = true, nil
	second := &s.PFs[1]
	second.VFs[0].RDMA = nil
	second.VFs[1].Settings[nic.VDPA] = "vhost"
	second.SFs = []nic.SF{
		{Num: 1, Device: "mlx5_core.sf.4", RDMA: []string{"mlx5_s1"}},
		{Num: 9, Device: "mlx5_core.sf.5"},
		{Num: 10, Device: ""}, // not attached
	}
	return s
}

// deal reads a configuration and answers each resource with its devices.
func deal(t *testing.T, resources string) map[string]string {
	t.Helper()
	p, _, err := ReadPlugin("config.json", []byte(`{"resourceList": [`+resources+`]}`), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, pool := range p.Pools(machine()) {
		var picks []string
		for _, pick := range pool.Select {
			picks = append(picks, strings.TrimPrefix(pick.String(), "pci/0000:03:00."))
		}
		out[pool.Resource()] = strings.Join(picks, " ")
	}
	return out
}

func TestDevicesGoToTheFirstPoolThatTheyFit(t *testing.T) {
	for _, c := range []struct {
		name, resources string
		want            map[string]string
	}{
		{
			"a list in order",
			`{"resourceName": "some", "selectors": {"pfNames": ["ens1f0np0#0-1"]}},
			 {"resourceName": "rest", "selectors": {"vendors": ["15b3"]}},
			 {"resourceName": "late", "selectors": {"vendors": ["15b3"]}}`,
			map[string]string{"intel.com/some": "0#0-1", "intel.com/rest": "0#2-3 1#0-3", "intel.com/late": ""},
		},
		{
			"several entries of one PF",
			`{"resourceName": "x", "selectors": {"pfNames": ["ens1f0np0#0", "ens1f0np0#2-3"]}}`,
			map[string]string{"intel.com/x": "0#0,2-3"},
		},
		{
			"several selectors",
			`{"resourceName": "x", "selectors": [{"drivers": ["vfio-pci"], "vendors": ["15b3"]}, {"rootDevices": ["0000:03:00.1#2"], "devices": ["1018"], "vendors": ["15b3"]}]}`,
			map[string]string{"intel.com/x": "0#3 1#2"},
		},
		{
			"all members together",
			`{"resourceName": "x", "selectors": {"pfNames": ["ens1f0np0#0-2"], "rootDevices": ["0000:03:00.0#1-3", "0000:03:00.1"], "drivers": ["mlx5_core"], "linkTypes": ["ether"], "acpiIndexes": ["101"]}}`,
			map[string]string{"intel.com/x": "0#1-2"},
		},
		{
			"addresses",
			`{"resourceName": "x", "selectors": {"pciAddresses": ["0000:03:01.2", "0000:03:02.0", "0000:99:00.0"]}}`,
			map[string]string{"intel.com/x": "0#2 1#0"},
		},
		{
			// One in a pod has its RDMA device there, in exclusive mode, and the count is
			// the same after a restart.
			"RDMA",
			`{"resourceName": "x", "selectors": {"vendors": ["15b3"], "isRdma": true}}`,
			map[string]string{"intel.com/x": "0#0-2 1#1-3"},
		},
		{
			"vDPA",
			`{"resourceName": "x", "selectors": {"vendors": ["15b3"], "vdpaType": "vhost"}},
			 {"resourceName": "y", "selectors": {"vendors": ["15b3"], "vdpaType": "virtio"}}`,
			map[string]string{"intel.com/x": "1#1", "intel.com/y": ""},
		},
		{
			"InfiniBand",
			`{"resourceName": "x", "selectors": {"linkTypes": ["infiniband"]}}`,
			map[string]string{"intel.com/x": ""},
		},
		{
			"SFs beside VFs",
			`{"resourceName": "sf", "resourcePrefix": "nvidia.com", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"], "vendors": ["15b3"], "devices": ["1017"], "pfNames": ["ens1f1np1#1-9"]}},
			 {"resourceName": "vf", "selectors": {"pfNames": ["ens1f1np1#1-9"]}}`,
			map[string]string{"nvidia.com/sf": "1#1,9", "intel.com/vf": "1#1-3"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, deal(t, c.resources)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestPoolsKeepWhatPodsGet(t *testing.T) {
	p, notes, err := ReadPlugin("config.json", []byte(`{"resourceList": [
		{"resourceName": "a", "selectors": {"vendors": ["15b3"], "isRdma": true, "needVhostNet": true}, "excludeTopology": true},
		{"resourceName": "b", "resourcePrefix": "example.com", "selectors": {"vendors": ["15b3"], "vdpaType": "virtio"}}]}`), "acme.com")
	if err != nil || len(notes) != 0 {
		t.Fatalf("%v, %v", notes, err)
	}
	got := p.Pools(nic.State{})
	want := []nic.Pool{
		{Prefix: "acme.com", Name: "a", Select: []nic.Pick{}, Driver: nic.DriverAny, RDMA: true, VhostNet: true, NoTopology: true},
		{Prefix: "example.com", Name: "b", Select: []nic.Pick{}, Driver: nic.DriverAny, VDPA: nic.VDPAVirtio},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReadPluginRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a manifest", `{"apiVersion": "sriovnetwork.openshift.io/v1", "kind": "OVSNetwork", "metadata": {"name": "a"}, "spec": {"resourceName": "a", "bridge": "b"}}`, "want one configuration"},
		{"nothing", ``, "it is empty"},
		{"flags that differ", `{"resourceList": [{"resourceName": "a", "selectors": [{"vendors": ["15b3"]}, {"vendors": ["8086"], "needVhostNet": true}]}]}`, "want the same in all"},
		{"a member twice", `{"resourceList": [], "resourceList": []}`, `duplicate field "resourceList"`},
		{"one that is not known", `{"resourceList": [{"resourceName": "a", "selectors": {"vendor": ["15b3"]}}]}`, "selectors.vendor: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, err := ReadPlugin("config.json", []byte(c.text), "")
			if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// Case B53: a mistake in a selector is an error, and never a pool of everything.
func TestB53(t *testing.T) {
	for _, c := range []struct{ name, resource, place, form string }{
		{"unknown key", `{"resourceName": "a", "selectors": {"vendors": ["15b3"], "deviceIDs": ["1018"]}}`, "resource intel.com/a: resourceList[0].selectors.deviceIDs", "want acpiIndexes"},
		{"unknown key of the resource", `{"resourceName": "a", "selector": {"vendors": ["15b3"]}, "selectors": {"vendors": ["15b3"]}}`, "resource intel.com/a: resourceList[0].selector", "want additionalInfo"},
		{"wrong type", `{"resourceName": "a", "selectors": {"vendors": "15b3"}}`, "resourceList[0].selectors.vendors", "want a list"},
		{"number for text", `{"resourceName": "a", "selectors": {"vendors": [8086]}}`, "resourceList[0].selectors.vendors[0]: 8086", "in quotes"},
		{"upper case", `{"resourceName": "a", "selectors": {"vendors": ["15B3"]}}`, `resourceList[0].selectors.vendors[0]: "15B3"`, `want "15b3"`},
		{"0x", `{"resourceName": "a", "selectors": [{"vendors": ["15b3"]}, {"vendors": ["15b3"], "devices": ["0x1018"]}]}`, `resourceList[0].selectors[1].devices[0]: "0x1018"`, `want "1018"`},
		{"empty list", `{"resourceName": "a", "selectors": {"vendors": []}}`, "resourceList[0].selectors.vendors: []", "at least one"},
		{"empty selector", `{"resourceName": "a", "selectors": [{}]}`, "resourceList[0].selectors[0]: {}", "at least one"},
		{"no selector", `{"resourceName": "a"}`, "resourceList[0].selectors", "at least one"},
		{"null", `{"resourceName": "a", "selectors": {"vendors": null}}`, "resourceList[0].selectors", "at least one"},
		{"trailing comma", `{"resourceName": "a", "selectors": {"vendors": ["15b3",]}}`, "line 1, column", "comma"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, notes, err := ReadPlugin("config.json", []byte(`{"resourceList": [`+c.resource+`]}`), "")
			if err == nil {
				t.Fatalf("it is taken: %v", p.Pools(machine()))
			}
			if !strings.Contains(err.Error(), c.place) || !strings.Contains(err.Error(), c.form) {
				t.Errorf("%v\nwant the place %q and the form %q", err, c.place, c.form)
			}
			if !slices.ContainsFunc(notes, func(n Note) bool { return n.Verdict == Refused }) {
				t.Error("the report does not have it")
			}
		})
	}
}
