package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// ports selects VFs of both ports of the first card.
func ports(ranges string) []nic.Pick {
	r, err := nic.ParseRanges(ranges)
	if err != nil {
		panic(err)
	}
	return []nic.Pick{{PF: nic.PCI("0000:03:00.0"), Indexes: r}, {PF: nic.PCI("0000:03:00.1"), Indexes: r}}
}

func pool(name string, ranges string) nic.Pool {
	return nic.Pool{Name: name, Select: ports(ranges)}
}

func TestCheckPoolsAccepts(t *testing.T) {
	pools := []nic.Pool{
		pool("fast", "0-3"),
		pool("Fast-2_x.y", "4"),
		{Prefix: "example.com", Name: "fast", Select: ports("5"), Driver: nic.DriverVFIO},
		{Prefix: "intel.com", Name: "0", Select: ports("6-127"), RDMA: true},
	}
	pools[0].Select[0].Eswitch = nic.Switchdev
	if err := CheckPools(pools); err != nil {
		t.Error(err)
	}
	if err := CheckPools(nil); err != nil {
		t.Error(err)
	}
}

func TestCheckPoolsRefuses(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		pools []nic.Pool
		want  []string
	}{
		"two ranges":      {[]nic.Pool{pool("a", "0-3"), pool("b", "2-5")}, []string{"sluice.dev/a and sluice.dev/b", "VF 2-3 of pci/0000:03:00.0", "pci/0000:03:00.1"}},
		"range and all":   {[]nic.Pool{pool("a", ""), pool("b", "7")}, []string{"sluice.dev/a and sluice.dev/b", "VF 7 of pci/0000:03:00.0"}},
		"all and all":     {[]nic.Pool{pool("a", ""), pool("b", "")}, []string{"all VFs from 0 on of pci/0000:03:00.0"}},
		"one pool twice":  {[]nic.Pool{{Name: "a", Select: append(ports("0-3"), ports("3")...)}}, []string{"pool sluice.dev/a names VF 3 of pci/0000:03:00.0 twice"}},
		"same name":       {[]nic.Pool{pool("a", "0"), pool("a", "1")}, []string{"sluice.dev/a: there are two of this name"}},
		"same variable":   {[]nic.Pool{pool("a.b", "0"), pool("A_b", "1")}, []string{"sluice.dev/a.b and sluice.dev/A_b", "PCIDEVICE_SLUICE_DEV_A_B"}},
		"variable's INFO": {[]nic.Pool{pool("a", "0"), pool("a_info", "1")}, []string{"PCIDEVICE_SLUICE_DEV_A_INFO"}},
		"no name":         {[]nic.Pool{pool("", "0")}, []string{`name ""`, "1 to 63"}},
		"long name":       {[]nic.Pool{pool(long, "0")}, []string{"1 to 63"}},
		"name's end":      {[]nic.Pool{pool("a-", "0")}, []string{`name "a-"`, "the first and the last"}},
		"slash":           {[]nic.Pool{pool("a/b", "0")}, []string{`name "a/b"`}},
		"upper prefix":    {[]nic.Pool{{Prefix: "Sluice.dev", Name: "a", Select: ports("")}}, []string{`prefix "Sluice.dev"`, "lower-case"}},
		"long prefix":     {[]nic.Pool{{Prefix: strings.Repeat("a.", 122) + "b", Name: "a", Select: ports("")}}, []string{"244 characters"}},
		"kubernetes":      {[]nic.Pool{{Prefix: "node.kubernetes.io", Name: "a", Select: ports("")}}, []string{`prefix "node.kubernetes.io"`, "Kubernetes' own"}},
		"requests":        {[]nic.Pool{{Prefix: "requests.dev", Name: "a", Select: ports("")}}, []string{`"requests."`}},
		"driver":          {[]nic.Pool{{Name: "a", Select: ports(""), Driver: "uio"}}, []string{`driver "uio"`, "kernel, vfio-pci or any"}},
		"driver none":     {[]nic.Pool{{Name: "a", Select: ports(""), Driver: nic.DriverNone}}, []string{`driver "none"`}},
		"rdma and vfio":   {[]nic.Pool{{Name: "a", Select: ports(""), Driver: nic.DriverVFIO, RDMA: true}}, []string{"no RDMA device"}},
		"no selector":     {[]nic.Pool{{Name: "a"}}, []string{"selects nothing", "pci/0000:03:00.0"}},
		"no PF":           {[]nic.Pool{{Name: "a", Select: []nic.Pick{{}}}}, []string{"names no PF"}},
		"eswitch":         {[]nic.Pool{{Name: "a", Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0"), Eswitch: "on"}}}}, []string{`eswitch "on"`, "legacy or switchdev"}},
		"unsorted":        {[]nic.Pool{{Name: "a", Select: []nic.Pick{{PF: nic.PCI("0000:03:00.0"), Indexes: nic.Ranges{{First: 3, Last: 4}, {First: 0, Last: 1}}}}}}, []string{`"3-4,0-1"`, "ascending"}},
	} {
		err := CheckPools(c.pools)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
}

// pools resolves the pools of a document on the node.
func pools(t *testing.T, text string, state nic.State) []nic.Pool {
	t.Helper()
	doc := decoded(t, text)
	spec, err := Resolve(doc, state)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Pools(doc, state, spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// picks writes out what a pool selects.
func picks(p nic.Pool) string {
	var out []string
	for _, s := range p.Select {
		out = append(out, s.String())
	}
	return strings.Join(out, " ")
}

func TestPools(t *testing.T) {
	got := pools(t, `
  pfs: [{pf: ens1f0, eswitch: switchdev, numVfs: 8}]
  pools:
  - {name: fast, pfs: ["0000:03:00.0#0-3,7", ens2f0], rdma: true, carrier: true, prefer: spread, excludeTopology: true, cdi: true}
  - {prefix: example.com, name: dpdk, pfs: ["pci/0000:03:00.0#4-6", "0000:ff:00.0"], driver: vfio-pci, vhostNet: true}
  - {name: hca, type: hca, pfs: [ens1f0, ens1f1], share: 100}
  - {name: sfs, type: sf, pfs: ["ens1f0#0-3"], filter: {addresses: [mlx5_core.sf.4]}}
  - {name: vm, pfs: ["ens1f1#0"], vdpa: vhost}
  - {name: own, filter: {vendors: ["15b3"], devices: ["1018"], drivers: [mlx5_core], linkType: infiniband, numa: [1], acpiIndexes: [3]}}
`, node())
	infiniband := true
	f0, f1 := nic.PCI("0000:03:00.0"), nic.PCI("0000:03:00.1")
	want := []nic.Pool{
		{Name: "fast", RDMA: true, Carrier: true, Prefer: nic.Spread, NoTopology: true, CDI: true, Select: []nic.Pick{
			{PF: f0, Indexes: nic.Ranges{{First: 0, Last: 3}, {First: 7, Last: 7}}, Eswitch: nic.Switchdev},
			{PF: nic.PCI("0000:41:00.0")},
		}},
		{Prefix: "example.com", Name: "dpdk", Driver: nic.DriverVFIO, VhostNet: true, Select: []nic.Pick{
			{PF: f0, Indexes: nic.Ranges{{First: 4, Last: 6}}, Eswitch: nic.Switchdev},
			{PF: nic.PCI("0000:ff:00.0")}, // not there now
		}},
		{Name: "hca", Kind: nic.PoolOfHCAs, RDMA: true, Share: 100, Select: []nic.Pick{{PF: f0, Eswitch: nic.Switchdev}, {PF: f1}}},
		{Name: "sfs", Kind: nic.PoolOfSFs, Filter: nic.Filter{Addresses: []string{"mlx5_core.sf.4"}},
			Select: []nic.Pick{{PF: f0, Indexes: nic.Ranges{{First: 0, Last: 3}}, Eswitch: nic.Switchdev}}},
		{Name: "vm", VDPA: nic.VDPAVhost, Select: []nic.Pick{{PF: f1, Indexes: nic.Ranges{{First: 0, Last: 0}}}}},
		{Name: "own", Filter: nic.Filter{
			Vendors: []string{"15b3"}, Devices: []string{"1018"}, Drivers: []string{"mlx5_core"}, InfiniBand: &infiniband,
			NUMA: []int{1}, ACPIIndexes: []int{3},
		}, Select: []nic.Pick{{PF: f0, Eswitch: nic.Switchdev}, {PF: f1}, {PF: nic.PCI("0000:41:00.0")}, {PF: nic.PCI("0000:42:00.0")}, {PF: nic.PCI("0000:81:00.0")}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Selectors are resolved each time: a card that came is in the pools that choose it.
func TestPoolsOfSelectors(t *testing.T) {
	text := `
  pools:
  - {name: a, pfs: ["ens2f0#0-3"], select: {vendor: 15b3, device: "1017"}, range: "0-1,4"}
  - {name: b, select: {acpiIndex: 7}}
`
	state := node()
	state.PFs[3].ACPIIndex = 7
	got := pools(t, text, state)
	if d := cmp.Diff([]string{"pci/0000:41:00.0#0-3 pci/0000:03:00.0#0-1,4 pci/0000:03:00.1#0-1,4", "pci/0000:42:00.0"}, []string{picks(got[0]), picks(got[1])}); d != "" {
		t.Error(d)
	}
	came := state.PFs[0].Clone()
	came.Handle, came.Uplink, came.VFs = nic.PCI("0000:c1:00.0"), nic.Netdev{Name: "ens9", Ifindex: 99}, nil
	state.PFs = append(state.PFs, came)
	if got := picks(pools(t, text, state)[0]); !strings.HasSuffix(got, " pci/0000:c1:00.0#0-1,4") {
		t.Errorf("%s: the card that came is not in it", got)
	}
}

// An optional pool has what there is of what it names and chooses, be it nothing;
// what no node can have is refused all the same.
func TestOptionalPools(t *testing.T) {
	got := pools(t, `
  pools:
  - {name: a, pfs: ["ens2f0#0-3", "nothere#0-3"], optional: true}
  - {name: b, select: {pfNames: [nothere]}, optional: true}
`, node())
	if d := cmp.Diff([]string{"pci/0000:41:00.0#0-3", ""}, []string{picks(got[0]), picks(got[1])}); d != "" {
		t.Error(d)
	}
	for _, pfs := range []string{"nothere#", "nothere#3-1", "0000:AF:00.0"} {
		doc := &v1alpha1.NodeNIC{Spec: v1alpha1.NodeNICSpec{Pools: []v1alpha1.Pool{{Name: "a", PFs: []string{pfs}, Optional: true}}}}
		if _, err := Pools(doc, node(), nic.Spec{}); err == nil || !strings.Contains(err.Error(), "spec.pools[0].pfs[0]") {
			t.Errorf("%s: got %v, want a refusal", pfs, err)
		}
	}
}

// A filter alone is of every PF, also of those that there will be.
func TestPoolOfAFilterWithoutPFs(t *testing.T) {
	if got := pools(t, "  pools: [{name: a, filter: {vendors: ['15b3']}}]\n", nic.State{}); len(got) != 1 || len(got[0].Select) != 0 {
		t.Errorf("%+v", got)
	}
}

// Case B53: a selector that is mistyped, empty or of nothing is an error or selects
// nothing, and never more than was meant.
func TestB53NothingIsNotEverything(t *testing.T) {
	for text, want := range map[string]string{
		`{name: a}`:             "spec.pools[0]: it selects nothing",
		`{name: a, pfs: []}`:    "spec.pools[0].pfs: it is an empty list",
		`{name: a, select: {}}`: "spec.pools[0].select: it is empty",
		`{name: a, select: {vendor: 15b3, pfNames: []}}`:      "spec.pools[0].select.pfNames: it is an empty list",
		`{name: a, select: {vendor: 15b3, addresses: []}}`:    "spec.pools[0].select.addresses: it is an empty list",
		`{name: a, select: {vendor: 15b3, handles: []}}`:      "spec.pools[0].select.handles: it is an empty list",
		`{name: a, select: {vendor: 15b3, device: "1019"}}`:   "spec.pools[0].select: it chooses no PF",
		`{name: a, select: {vendor: 15b3, device: "0x1017"}}`: `spec.pools[0].select.device: "0x1017" is no PCI id`,
		`{name: a, filter: {}}`:                               "spec.pools[0].filter: it is empty",
		`{name: a, filter: {vendors: []}}`:                    "spec.pools[0].filter.vendors: it is an empty list",
		`{name: a, filter: {vendors: ["15b3"], devices: []}}`: "spec.pools[0].filter.devices: it is an empty list",
		`{name: a, filter: {vendors: ["15B3"]}}`:              `spec.pools[0].filter.vendors[0]: "15B3" is no PCI id`,
		`{name: a, filter: {vendors: [""]}}`:                  "spec.pools[0].filter.vendors[0]: ",
		`{name: a, filter: {devices: ["0x1018"]}}`:            `spec.pools[0].filter.devices[0]: "0x1018" is no PCI id`,
		`{name: a, filter: {drivers: [mlx5/core]}}`:           `spec.pools[0].filter.drivers[0]: "mlx5/core"`,
		`{name: a, filter: {drivers: [""]}}`:                  "spec.pools[0].filter.drivers[0]: ",
		`{name: a, filter: {addresses: ["0000:AF:00.2"]}}`:    `want "0000:af:00.2"`,
		`{name: a, filter: {addresses: [ens1f0]}}`:            `spec.pools[0].filter.addresses[0]: "ens1f0" is no PCI address`,
		`{name: a, filter: {linkType: ether}}`:                `spec.pools[0].filter.linkType: "ether": want ethernet or infiniband`,
		`{name: a, filter: {numa: []}}`:                       "spec.pools[0].filter.numa: it is an empty list",
		`{name: a, filter: {numa: [-1]}}`:                     "spec.pools[0].filter.numa[0]: -1",
		`{name: a, filter: {acpiIndexes: [0]}}`:               "spec.pools[0].filter.acpiIndexes[0]: 0",
		`{name: a, pfs: [ens1f0], filter: {vendor: "15b3"}}`:  "spec.pools[0].filter.vendor: there is no such field",
		`{name: a, pfs: [ens1f0], isRdma: true}`:              "spec.pools[0].isRdma: there is no such field",
		`{name: a, pfs: [ens1f0], filter: {numa: ["1"]}}`:     "spec.pools[0].filter.numa[0]",
		`{name: a, select: {acpiIndex: 0}}`:                   "spec.pools[0].select.acpiIndex: 0",
	} {
		doc, err := Decode([]byte("apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec: {pools: [" + text + "]}\n"))
		if err == nil {
			_, err = Resolve(doc, node())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

func TestPoolsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{name: a, pfs: [ens9]}`:                                         `spec.pools[0].pfs[0]: there is no PF "ens9"`,
		`{name: a, pfs: ["0000:03:00.2"]}`:                               "is a VF (pci/0000:03:00.0 vf 0)",
		`{name: a, pfs: ["0000:03:00.0#"]}`:                              `spec.pools[0].pfs[0]: "0000:03:00.0#"`,
		`{name: a, pfs: ["0000:03:00.0#3-1"]}`:                           `"3-1"`,
		`{name: a, pfs: ["0000:AF:00.0#0-3"]}`:                           `want "0000:af:00.0"`,
		`{name: a, pfs: ["pci/0000:AF:00.1"]}`:                           `want "pci/0000:af:00.1"`,
		`{name: a, pfs: [""]}`:                                           `spec.pools[0].pfs[0]: ""`,
		`{name: a, pfs: [x]}, {name: b, pfs: [ens1f0, z]}`:               `spec.pools[1].pfs[1]: there is no PF "z"`,
		`{name: a, pfs: ["ens1f0#0-3"]}, {name: b, pfs: ["ens1f0#2-5"]}`: "spec.pools[1]: pools sluice.dev/a and sluice.dev/b both want VF 2-3 of pci/0000:03:00.0",
		`{name: a, pfs: [ens1f0], range: "0-3"}`:                         `spec.pools[0].range: "0-3" without select`,
		`{name: a, pfs: [ens1f0], type: pf}`:                             `spec.pools[0].type: "pf": want vf, sf or hca`,
		`{name: a, pfs: [ens1f0], driver: uio}`:                          `spec.pools[0].driver: "uio": want kernel, vfio-pci or any`,
		`{name: a, pfs: [ens1f0], type: sf, driver: vfio-pci}`:           `spec.pools[0].driver: "vfio-pci" of an sf`,
		`{name: a, pfs: [ens1f0], driver: vfio-pci, rdma: true}`:         "spec.pools[0]: pool sluice.dev/a: a VF bound to vfio-pci has no RDMA device",
		`{name: a, pfs: [ens1f0], driver: vfio-pci, vdpa: vhost}`:        "a VF bound to vfio-pci has no vDPA device",
		`{name: a, pfs: [ens1f0], vdpa: none}`:                           `spec.pools[0].vdpa: "none": want vhost or virtio`,
		`{name: a, pfs: [ens1f0], type: sf, vdpa: vhost}`:                `spec.pools[0].vdpa: "vhost" of an sf`,
		`{name: a, pfs: [ens1f0], prefer: near}`:                         `spec.pools[0].prefer: "near": want packed, spread or gpu`,
		`{name: a, pfs: [ens1f0], share: 3}`:                             "spec.pools[0].share: 3 of what one pod has for itself",
		`{name: a, pfs: [ens1f0], type: hca, share: 0}`:                  "spec.pools[0].share: 0: want 1 to 1000 pods",
		`{name: a, pfs: ["ens1f0#1"], type: hca}`:                        `spec.pools[0].pfs[0]: "ens1f0#1" has a range`,
		`{name: a, select: {numa: 0}, range: "1", type: hca}`:            `spec.pools[0].range: "1"`,
		`{name: a, pfs: [ens1f0], type: hca, vhostNet: true}`:            "spec.pools[0].vhostNet",
		`{name: "a/b", pfs: [ens1f0]}`:                                   `spec.pools[0]: name "a/b"`,
		`{name: "a\nb", pfs: [ens1f0]}, {name: "a\nb", pfs: [ens1f0]}`:   `spec.pools[1]: name "a\nb"`,
		`{name: a, prefix: kubernetes.io, pfs: [ens1f0]}`:                `spec.pools[0]: prefix "kubernetes.io"`,
	} {
		if got := refused(t, "  pools: ["+text+"]\n", node()); !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %q", text, got, want)
		}
	}
}

// Two pools may share the devices of a PF out by anything that tells them apart.
func TestOverlaps(t *testing.T) {
	for text, want := range map[string]string{
		`{name: a, pfs: [ens1f0], filter: {drivers: [mlx5_core]}}, {name: b, pfs: [ens1f0], filter: {drivers: [vfio-pci]}}`: "",
		`{name: a, pfs: [ens1f0], filter: {drivers: [mlx5_core, x]}}, {name: b, pfs: [ens1f0], filter: {drivers: [x]}}`:     "all VFs from 0 on of pci/0000:03:00.0",
		`{name: a, pfs: [ens1f0], driver: kernel}, {name: b, pfs: [ens1f0], driver: vfio-pci}`:                              "all VFs from 0 on",
		`{name: a, filter: {vendors: ["15b3"]}}, {name: b, filter: {vendors: ["8086"]}}`:                                    "",
		`{name: a, filter: {vendors: ["15b3"]}}, {name: b, pfs: ["0000:81:00.0"]}`:                                          "",
		`{name: a, filter: {vendors: ["15b3"]}}, {name: b, pfs: ["ens2f0#3"]}`:                                              "VF 3 of pci/0000:41:00.0",
		`{name: a, filter: {addresses: ["0000:03:00.3"]}}, {name: b, pfs: ["ens1f0#0"]}`:                                    "",
		`{name: a, filter: {addresses: ["0000:03:00.3"]}}, {name: b, pfs: ["ens1f0#0-1"]}`:                                  "VF 1 (0000:03:00.3) of pci/0000:03:00.0",
		`{name: a, filter: {addresses: ["0000:03:00.3"]}}, {name: b, filter: {addresses: ["0000:03:00.2"]}}`:                "",
		`{name: a, filter: {addresses: ["0000:ff:00.3"]}}, {name: b, pfs: [ens1f0]}`:                                        "",
		`{name: a, pfs: [ens1f0]}, {name: b, type: sf, pfs: [ens1f0]}, {name: c, type: hca, pfs: [ens1f0]}`:                 "",
		`{name: a, type: sf, pfs: ["ens1f0#0-4"]}, {name: b, type: sf, pfs: ["ens1f0#4-6"]}`:                                "SF 4 of pci/0000:03:00.0",
		`{name: a, type: hca, pfs: [ens1f0]}, {name: b, type: hca, select: {pfNames: [ens1f0]}}`:                            "the RDMA device of pci/0000:03:00.0",
		`{name: a, pfs: ["ens1f0#0", "ens1f0#0-1"]}`:                                                                        "pool sluice.dev/a names VF 0 of pci/0000:03:00.0 twice",
		`{name: a, filter: {linkType: infiniband}}, {name: b, filter: {linkType: ethernet}}`:                                "",
		`{name: a, filter: {numa: [0]}}, {name: b, filter: {numa: [1]}}`:                                                    "",
	} {
		doc := decoded(t, "  pools: ["+text+"]\n")
		_, err := Resolve(doc, node())
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// A bond in a pool is the VFs of all its ports: of one that is wanted, of one that
// somebody else has made, and if both, of the one that is wanted.
func TestPoolOfABond(t *testing.T) {
	state := node()
	p0, p1 := nic.PCI("0000:03:00.0"), nic.PCI("0000:03:00.1")
	state.Bonds = []nic.Bond{
		{Netdev: nic.Netdev{Name: "bond0", Ifindex: 9}, Members: []nic.Handle{p0}},
		{Netdev: nic.Netdev{Name: "bond1", Ifindex: 10}, Members: []nic.Handle{p0, p1}},
		{Netdev: nic.Netdev{Name: "bond2", Ifindex: 11}, Others: []string{"eth7"}},
	}
	wanted := nic.Spec{
		PFs:   []nic.PFSpec{{Handle: p0, Eswitch: nic.Switchdev}, {Handle: p1, Eswitch: nic.Switchdev}},
		Bonds: []nic.BondSpec{{Name: "bond0", Members: []nic.Handle{p0, p1}}},
	}
	for name, c := range map[string]struct {
		text   string
		wanted nic.Spec
		want   string
	}{
		"wanted":     {"bond0#0-3", wanted, "pci/0000:03:00.0#0-3 pci/0000:03:00.1#0-3"},
		"as it is":   {"bond0#0-3", nic.Spec{}, "pci/0000:03:00.0#0-3"},
		"all of all": {"bond1", nic.Spec{}, "pci/0000:03:00.0 pci/0000:03:00.1"},
	} {
		got, err := Pools(decoded(t, "  pools: [{name: a, pfs: ['"+c.text+"']}]\n"), state, c.wanted)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, picks(got[0])); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if name == "wanted" && got[0].Select[1].Eswitch != nic.Switchdev {
			t.Errorf("%s: %+v is not waited for", name, got[0].Select[1])
		}
	}
	for text, want := range map[string]string{
		"bond2": "bond0, bond1", // no PF is in it
		"bond":  "bond0, bond1",
	} {
		if _, err := ParsePicks(text, state, wanted); err == nil || !strings.HasSuffix(err.Error(), "or the name of a bond: "+want) {
			t.Errorf("%s: %v: want an error that lists %s", text, err, want)
		}
	}
	_, err := Pools(decoded(t, "  pools: [{name: a, pfs: ['bond0#0-3']}, {name: b, pfs: ['ens1f1#2']}]\n"), state, wanted)
	if err == nil || !strings.Contains(err.Error(), "both want VF 2 of pci/0000:03:00.1") {
		t.Errorf("%v: want the overlap of a bond and a port of it", err)
	}
}

// A pool has the VFs of the PF that it names and of no other: not of one whose
// name begins or ends alike, and not of one that has no name.
func TestB07PoolOfOnePF(t *testing.T) {
	state := node()
	state.PFs[0].Uplink.Name, state.PFs[1].Uplink.Name = "ens1f1", "ens1f10"
	state.PFs[4].Uplink = nic.Netdev{} // a user-space driver has it
	for text, want := range map[string]string{
		"ens1f1":      "pci/0000:03:00.0",
		"ens1f1#0-3":  "pci/0000:03:00.0#0-3",
		"ens1f10":     "pci/0000:03:00.1",
		"ens1f10#0-3": "pci/0000:03:00.1#0-3",
		"ens1f":       "",
		"ens1f0":      "",
		"":            "",
		"#0-3":        "",
	} {
		got, err := ParsePicks(text, state, nic.Spec{})
		if d := cmp.Diff(want, picks(nic.Pool{Select: got})); d != "" || (err != nil) != (want == "") {
			t.Errorf("%q: %v: %s", text, err, d)
		}
	}
}

// Whatever the text, pools that are accepted keep what CheckPools promises, and
// what they select can be written and read again.
func FuzzPools(f *testing.F) {
	f.Add("", "fast", "0000:03:00.0#0-3,7", "pci/0000:03:00.1", "kernel", "vf", "mlx5_core", false)
	f.Add("example.com", "a", "0000:03:00.0", "0000:03:00.0#1", "vfio-pci", "", "", true)
	f.Add("kubernetes.io", "-", "#", "ens1#-", "", "hca", "\n", true)
	f.Fuzz(func(t *testing.T, prefix, name, one, two, driver, kind, filter string, rdma bool) {
		doc := &v1alpha1.NodeNIC{}
		doc.Spec.Pools = []v1alpha1.Pool{
			{Prefix: prefix, Name: name, PFs: []string{one}, Driver: driver, Type: kind, RDMA: rdma, Filter: &v1alpha1.Filter{Drivers: []string{filter}}},
			{Name: "other", PFs: []string{two}},
		}
		got, err := Pools(doc, node(), nic.Spec{})
		if err != nil {
			if got != nil {
				t.Fatalf("pools and an error: %v", err)
			}
			return
		}
		if len(got) != 2 || CheckPools(got) != nil {
			t.Fatalf("accepted %v: %v", got, CheckPools(got))
		}
		for _, p := range got {
			for _, s := range p.Select {
				again, err := ParsePicks(s.String(), node(), nic.Spec{})
				if err != nil {
					t.Fatalf("%q is refused: %v", s, err)
				}
				if d := cmp.Diff([]nic.Pick{s}, again); d != "" {
					t.Fatal(d)
				}
			}
		}
	})
}
