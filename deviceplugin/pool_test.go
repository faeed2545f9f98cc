package deviceplugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

func pool(name string, ranges string) Pool {
	return Pool{Name: name, Select: ports(ranges)}
}

func TestValidateAccepts(t *testing.T) {
	pools := []Pool{
		pool("fast", "0-3"),
		pool("Fast-2_x.y", "4"),
		{Prefix: "example.com", Name: "fast", Select: ports("5"), Driver: nic.DriverVFIO},
		{Prefix: "intel.com", Name: "0", Select: ports("6-127"), RDMA: true},
	}
	pools[0].Select[0].Eswitch = nic.Switchdev
	if err := Validate(pools); err != nil {
		t.Error(err)
	}
	if err := Validate(nil); err != nil {
		t.Error(err)
	}
}

func TestValidateRefuses(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		pools []Pool
		want  []string
	}{
		"two ranges":      {[]Pool{pool("a", "0-3"), pool("b", "2-5")}, []string{"sluice.dev/a and sluice.dev/b", "VF 2-3 of pci/0000:03:00.0", "pci/0000:03:00.1"}},
		"range and all":   {[]Pool{pool("a", ""), pool("b", "7")}, []string{"sluice.dev/a and sluice.dev/b", "VF 7 of pci/0000:03:00.0"}},
		"all and all":     {[]Pool{pool("a", ""), pool("b", "")}, []string{"all VFs from 0 on of pci/0000:03:00.0"}},
		"one pool twice":  {[]Pool{{Name: "a", Select: append(ports("0-3"), ports("3")...)}}, []string{"pool sluice.dev/a names VF 3 of pci/0000:03:00.0 twice"}},
		"same name":       {[]Pool{pool("a", "0"), pool("a", "1")}, []string{"sluice.dev/a: there are two of this name"}},
		"same variable":   {[]Pool{pool("a.b", "0"), pool("A_b", "1")}, []string{"sluice.dev/a.b and sluice.dev/A_b", "PCIDEVICE_SLUICE_DEV_A_B"}},
		"variable's INFO": {[]Pool{pool("a", "0"), pool("a_info", "1")}, []string{"PCIDEVICE_SLUICE_DEV_A_INFO"}},
		"no name":         {[]Pool{pool("", "0")}, []string{`name ""`, "1 to 63"}},
		"long name":       {[]Pool{pool(long, "0")}, []string{"1 to 63"}},
		"name's end":      {[]Pool{pool("a-", "0")}, []string{`name "a-"`, "the first and the last"}},
		"slash":           {[]Pool{pool("a/b", "0")}, []string{`name "a/b"`}},
		"upper prefix":    {[]Pool{{Prefix: "Sluice.dev", Name: "a", Select: ports("")}}, []string{`prefix "Sluice.dev"`, "lower-case"}},
		"long prefix":     {[]Pool{{Prefix: strings.Repeat("a.", 122) + "b", Name: "a", Select: ports("")}}, []string{"244 characters"}},
		"kubernetes":      {[]Pool{{Prefix: "node.kubernetes.io", Name: "a", Select: ports("")}}, []string{`prefix "node.kubernetes.io"`, "Kubernetes' own"}},
		"requests":        {[]Pool{{Prefix: "requests.dev", Name: "a", Select: ports("")}}, []string{`"requests."`}},
		"driver":          {[]Pool{{Name: "a", Select: ports(""), Driver: "uio"}}, []string{`driver "uio"`, "kernel or vfio-pci"}},
		"driver none":     {[]Pool{{Name: "a", Select: ports(""), Driver: nic.DriverNone}}, []string{`driver "none"`}},
		"rdma and vfio":   {[]Pool{{Name: "a", Select: ports(""), Driver: nic.DriverVFIO, RDMA: true}}, []string{"no RDMA device"}},
		"no selector":     {[]Pool{{Name: "a"}}, []string{"selects nothing", "pci/0000:03:00.0"}},
		"no PF":           {[]Pool{{Name: "a", Select: []Selector{{}}}}, []string{"names no PF"}},
		"eswitch":         {[]Pool{{Name: "a", Select: []Selector{{PF: nic.PCI("0000:03:00.0"), Eswitch: "on"}}}}, []string{`eswitch "on"`, "legacy or switchdev"}},
		"unsorted":        {[]Pool{{Name: "a", Select: []Selector{{PF: nic.PCI("0000:03:00.0"), VFs: nic.Ranges{{First: 3, Last: 4}, {First: 0, Last: 1}}}}}}, []string{`"3-4,0-1"`, "ascending"}},
	} {
		err := Validate(c.pools)
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

func TestResolve(t *testing.T) {
	node := card(8)
	node.State.PFs[1].Uplink = nic.Netdev{Name: "ens1f1np1", Ifindex: 5}
	texts := []Text{
		{Name: "fast", PFs: []string{"0000:03:00.0#0-3,7", "ens1f1np1"}, RDMA: true},
		{Prefix: "example.com", Name: "dpdk", PFs: []string{"pci/0000:03:00.0#4-6", "0000:81:00.0"}, Driver: "vfio-pci"},
	}
	wanted := nic.Spec{PFs: []nic.PFSpec{{Handle: nic.PCI("0000:03:00.0"), Eswitch: nic.Switchdev}}}
	got, err := Resolve(texts, node.State, wanted)
	if err != nil {
		t.Fatal(err)
	}
	want := []Pool{
		{Name: "fast", RDMA: true, Select: []Selector{
			{PF: nic.PCI("0000:03:00.0"), VFs: nic.Ranges{{First: 0, Last: 3}, {First: 7, Last: 7}}, Eswitch: nic.Switchdev},
			{PF: nic.PCI("0000:03:00.1")},
		}},
		{Prefix: "example.com", Name: "dpdk", Driver: nic.DriverVFIO, Select: []Selector{
			{PF: nic.PCI("0000:03:00.0"), VFs: nic.Ranges{{First: 4, Last: 6}}, Eswitch: nic.Switchdev},
			{PF: nic.PCI("0000:81:00.0")}, // not there now
		}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestResolveRefuses(t *testing.T) {
	node := card(8)
	for name, c := range map[string]struct {
		texts []Text
		want  []string
	}{
		"unknown netdev": {[]Text{{Name: "a", PFs: []string{"ens9"}}}, []string{"pools[0].pfs[0]", `"ens9"`, "pci/0000:03:00.0"}},
		"a VF":           {[]Text{{Name: "a", PFs: []string{node.vf(0, 1).Address}}}, []string{"is a VF", "pci/0000:03:00.0"}},
		"empty range":    {[]Text{{Name: "a", PFs: []string{"0000:03:00.0#"}}}, []string{`"0000:03:00.0#"`, "0-3,7"}},
		"bad range":      {[]Text{{Name: "a", PFs: []string{"0000:03:00.0#3-1"}}}, []string{`"3-1"`}},
		"upper case":     {[]Text{{Name: "a", PFs: []string{"0000:AF:00.0#0-3", "pci/0000:AF:00.1"}}}, []string{"pools[0].pfs[0]", `want "0000:af:00.0"`, "pools[0].pfs[1]", `want "pci/0000:af:00.1"`}},
		"nothing":        {[]Text{{Name: "a", PFs: []string{""}}}, []string{"pools[0].pfs[0]", `""`}},
		"all at once":    {[]Text{{Name: "a", PFs: []string{"x"}}, {Name: "b", PFs: []string{"0000:03:00.0", "y"}}}, []string{"pools[0].pfs[0]", "pools[1].pfs[1]"}},
		"overlap":        {[]Text{{Name: "a", PFs: []string{"0000:03:00.0#0-3"}}, {Name: "b", PFs: []string{"pci/0000:03:00.0#2-5"}}}, []string{"sluice.dev/a and sluice.dev/b", "VF 2-3"}},
	} {
		got, err := Resolve(c.texts, node.State, nic.Spec{})
		if err == nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
}

// A bond in a pool is the VFs of all its ports: of one that is wanted, of one that
// somebody else has made, and if both, of the one that is wanted.
func TestResolveBond(t *testing.T) {
	node := card(8)
	p0, p1 := nic.PCI("0000:03:00.0"), nic.PCI("0000:03:00.1")
	node.State.Bonds = []nic.Bond{
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
		want   []string
	}{
		"wanted":     {"bond0#0-3", wanted, []string{"pci/0000:03:00.0#0-3 switchdev", "pci/0000:03:00.1#0-3 switchdev"}},
		"as it is":   {"bond0#0-3", nic.Spec{}, []string{"pci/0000:03:00.0#0-3 "}},
		"all of all": {"bond1", nic.Spec{}, []string{"pci/0000:03:00.0 ", "pci/0000:03:00.1 "}},
	} {
		pools, err := Resolve([]Text{{Name: "a", PFs: []string{c.text}}}, node.State, c.wanted)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, s := range pools[0].Select {
			got = append(got, s.String()+" "+string(s.Eswitch))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	pools, err := Resolve([]Text{{Name: "a", PFs: []string{"bond0#0-3"}}}, node.State, wanted)
	if err != nil {
		t.Fatal(err)
	}
	node.State.PFs[0].Eswitch, node.State.PFs[1].Eswitch = nic.Switchdev, nic.Switchdev
	if devices, problems := List(pools[0], node); len(devices) != 8 || len(problems) > 0 {
		t.Errorf("%v, %v: want four VFs of each port", devices, problems)
	}
	for text, want := range map[string]string{
		"bond2": "bond0, bond1", // no PF is in it
		"bond":  "bond0, bond1",
	} {
		if _, err := ParseSelectors(text, node.State, wanted); err == nil || !strings.HasSuffix(err.Error(), "or the name of a bond: "+want) {
			t.Errorf("%s: %v: want an error that lists %s", text, err, want)
		}
	}
	_, err = Resolve([]Text{{Name: "a", PFs: []string{"bond0#0-3"}}, {Name: "b", PFs: []string{"0000:03:00.1#2"}}}, node.State, wanted)
	if err == nil || !strings.Contains(err.Error(), "both want VF 2 of pci/0000:03:00.1") {
		t.Errorf("%v: want the overlap of a bond and a port of it", err)
	}
}

// A pool has the VFs of the PF that it names and of no other: not of one whose
// name begins or ends alike, and not of one that has no name.
func TestB07PoolOfOnePF(t *testing.T) {
	node := card(8)
	node.State.PFs[0].Uplink = nic.Netdev{Name: "ens1f1", Ifindex: 5}
	node.State.PFs[1].Uplink = nic.Netdev{Name: "ens1f10", Ifindex: 6}
	bare := node.State.PFs[0].Clone()
	bare.Handle, bare.Uplink = nic.PCI("0000:81:00.0"), nic.Netdev{} // a user-space driver has it
	node.State.PFs = append(node.State.PFs, bare)
	for text, want := range map[string][]string{
		"ens1f1":      {"pci/0000:03:00.0"},
		"ens1f1#0-3":  {"pci/0000:03:00.0#0-3"},
		"ens1f10":     {"pci/0000:03:00.1"},
		"ens1f10#0-3": {"pci/0000:03:00.1#0-3"},
		"ens1f":       nil,
		"ens1f0":      nil,
		"":            nil,
		"#0-3":        nil,
	} {
		picks, err := ParseSelectors(text, node.State, nic.Spec{})
		var got []string
		for _, s := range picks {
			got = append(got, s.String())
		}
		if d := cmp.Diff(want, got); d != "" || (err != nil) != (want == nil) {
			t.Errorf("%q: %v: %s", text, err, d)
		}
	}
}

// Whatever the text, a pool that is accepted keeps what Validate promises, and
// its selectors can be written and read again.
func FuzzResolve(f *testing.F) {
	f.Add("", "fast", "0000:03:00.0#0-3,7", "pci/0000:03:00.1", "kernel", false)
	f.Add("example.com", "a", "0000:03:00.0", "0000:03:00.0#1", "vfio-pci", true)
	f.Add("kubernetes.io", "-", "#", "ens1#-", "", true)
	node := card(8)
	f.Fuzz(func(t *testing.T, prefix, name, one, two, driver string, rdma bool) {
		pools, err := Resolve([]Text{
			{Prefix: prefix, Name: name, PFs: []string{one}, Driver: driver, RDMA: rdma},
			{Name: "other", PFs: []string{two}},
		}, node.State, nic.Spec{})
		if err != nil {
			if pools != nil {
				t.Fatalf("pools and an error: %v", err)
			}
			return
		}
		if len(pools) != 2 || Validate(pools) != nil {
			t.Fatalf("accepted %v: %v", pools, Validate(pools))
		}
		seen := map[string]bool{}
		for _, p := range pools {
			for _, s := range p.Select {
				again, err := ParseSelectors(s.String(), node.State, nic.Spec{})
				if err != nil {
					t.Fatalf("%q is refused: %v", s, err)
				}
				if d := cmp.Diff([]Selector{s}, again); d != "" {
					t.Fatal(d)
				}
			}
			devices, _ := List(p, node)
			for _, d := range devices {
				if seen[d.ID] {
					t.Fatalf("%s is offered twice", d.ID)
				}
				seen[d.ID] = true
			}
		}
	})
}
