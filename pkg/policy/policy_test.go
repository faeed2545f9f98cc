package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nic"
)

// card is a dual-port node: p0 has two VFs, and a name that p0 is a prefix of is
// there to be confused with.
func card() nic.State {
	return nic.State{PFs: []nic.PF{
		{
			Handle: nic.PCI("0000:03:00.0"), Serial: "MT1", Eswitch: nic.Legacy, TotalVFs: 8,
			Uplink: nic.Netdev{Name: "p0", Ifindex: 2, MAC: nic.MAC{4, 0, 0, 0, 0, 1}},
			VFs: []nic.VF{
				{Index: 0, Address: "0000:03:00.2"},
				{Index: 1, Address: "0000:03:00.3"},
			},
		},
		{
			Handle: nic.PCI("0000:03:00.1"), Serial: "MT1", Eswitch: nic.Legacy, TotalVFs: 8,
			Uplink: nic.Netdev{Name: "p01", Ifindex: 3, MAC: nic.MAC{4, 0, 0, 0, 0, 2}},
		},
		{Handle: nic.PCI("0000:81:00.0"), TotalVFs: 8}, // no netdev: a user-space driver
	}}
}

const head = "apiVersion: sluice.dev/v1alpha1\nkind: NodeNIC\nspec:\n"

func TestResolve(t *testing.T) {
	doc, err := Decode([]byte(head + `
  pfs:
  - pf: p0
    eswitch: switchdev
    numVfs: 3
    vfGroups:
    - {range: "0-1", mtu: 9000, mac: stable, driver: kernel}
    - {range: "2", driver: vfio-pci, mtu: 9000}
  - pf: pci/0000:03:00.1
    eswitch: legacy
`))
	if err != nil {
		t.Fatal(err)
	}
	state := card()
	got, err := Resolve(doc, state)
	if err != nil {
		t.Fatal(err)
	}
	three := 3
	mac0, mac1 := StableMAC(state.PFs[0], 0), StableMAC(state.PFs[0], 1)
	want := nic.Spec{PFs: []nic.PFSpec{
		{
			Handle: nic.PCI("0000:03:00.0"), Named: true, Eswitch: nic.Switchdev, VFCount: &three,
			VFs: []nic.VFSpec{
				{Driver: nic.DriverKernel, MAC: &mac0, MTU: 9000, RepMTU: 9000},
				{Driver: nic.DriverKernel, MAC: &mac1, MTU: 9000, RepMTU: 9000},
				{Driver: nic.DriverVFIO, RepMTU: 9000},
			},
		},
		{Handle: nic.PCI("0000:03:00.1"), Named: true, Eswitch: nic.Legacy},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestStableMACsAreUnicastLocalAndDistinct(t *testing.T) {
	state := card()
	seen := map[nic.MAC]string{}
	for _, pf := range state.PFs[:2] {
		for i := range 128 {
			mac := StableMAC(pf, i)
			name := fmt.Sprintf("%s vf %d", pf.Handle, i)
			if !mac.IsUnicast() || mac[0]&2 == 0 {
				t.Errorf("%s: %s is no locally administered unicast address", name, mac)
			}
			if other, twice := seen[mac]; twice {
				t.Errorf("%s and %s share %s", name, other, mac)
			}
			seen[mac] = name
		}
	}
	moved := state.PFs[0]
	moved.Handle = nic.PCI("0000:c1:00.0")
	if StableMAC(moved, 0) != StableMAC(state.PFs[0], 0) {
		t.Error("the address changes with the slot")
	}
}

// Every refusal names the path, the wrong value and the right form.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		want []string
	}{
		"empty":          {"  \n", []string{"empty", "NodeNIC"}},
		"no YAML":        {"a: [", []string{"no valid YAML"}},
		"unknown field":  {head + "  pfs:\n  - {pf: p0, numvf: 3}\n", []string{"spec.pfs[0].numvf: there is no such field", "numVfs"}},
		"slip of a case": {head + "  pfs:\n  - {pf: p0, numVFs: 3}\n", []string{"spec.pfs[0].numVFs", "numVfs may be meant"}},
		"slip of a sign": {head + "  pfs:\n  - {pf: p0, num_vfs: 3, mtuu: 1500, lin: up, roze: true}\n", []string{"numVfs may be meant", "mtu may be meant", "link may be meant", "roce may be meant"}},
		"a policy":       {"apiVersion: sluice.dev/v1alpha1\nkind: NICPolicy\nspec: {priority: 3}\n", []string{`kind "NICPolicy": want NodeNIC`, "kubectl apply"}},
		"kind a number":  {"apiVersion: sluice.dev/v1alpha1\nkind: 3\n", []string{`kind "3"`, "NodeNIC"}},
		"field twice":    {head + "  pfs:\n  - {pf: p0, numVfs: 3, numVfs: 4}\n", []string{"numVfs", "already"}},
		"wrong kind":     {"apiVersion: sluice.dev/v1alpha1\nkind: Node\n", []string{`kind "Node"`, "NodeNIC"}},
		"wrong type":     {head + "  pfs:\n  - {pf: p0, numVfs: four}\n", []string{"spec.pfs[0].numVfs", `"four"`, "a whole number"}},
		"in a group":     {head + "  pfs:\n  - {pf: p0, vfGroups: [{mtu: 1500, mtu: 9000}]}\n", []string{"mtu", "already"}},
		"in JSON":        {`{"apiVersion":"sluice.dev/v1alpha1","kind":"NodeNIC","spec":{"pfs":[{"pf":"p0","link":"up","link":"down"}]}}`, []string{"link", "already"}},
		"by a merge":     {head + "  pfs:\n  - &a {pf: p0, mtu: 1500}\n  - {<<: *a, pf: p01, pf: p0}\n", []string{"pf", "already"}},
		"text for a set": {head + "  pfs:\n  - {pf: p0, vfGroups: [{trust: maybe}]}\n", []string{"spec.pfs[0].vfGroups[0].trust", "true or false"}},
		"in common":      {head + "  pfs:\n  - {pf: p0, vfGroups: [{mtu: jumbo}]}\n", []string{"spec.pfs[0].vfGroups[0].mtu", "a whole number"}},
		"rate as number": {head + "  pfs:\n  - {pf: p0, vfGroups: [{maxRate: 500}]}\n", []string{"spec.pfs[0].vfGroups[0].maxRate", "a text"}},
		"id as number":   {head + "  pfs:\n  - {select: {vendor: 8086}}\n", []string{"spec.pfs[0].select.vendor", "8086", "in quotes"}},
		"many types":     {head + "  drift: [1]\n  pfs:\n  - {pf: 3, sfs: {}, roce: 1}\n", []string{"spec.drift: a list: want a text", "spec.pfs[0].pf: 3: want a text", "spec.pfs[0].sfs: an object: want a list", "spec.pfs[0].roce: 1: want true or false"}},
		"no object":      {"[]", []string{"the document is a list: want an object"}},
		"unknown PF":     {head + "  pfs:\n  - {pf: p9}\n", []string{"spec.pfs[0].pf", `"p9"`, "pci/0000:03:00.0 (p0)"}},
		"prefix of a PF": {head + "  pfs:\n  - {pf: p}\n", []string{`"p"`}},
		"two documents":  {head + "  pfs:\n  - {pf: p0}\n---\n" + head, []string{"document 2", "one NodeNIC"}},
		"half a VF":      {head + "  pfs:\n  - {pf: p0, numVfs: 4.5}\n", []string{"spec.pfs[0].numVfs", "4.5", "a whole number"}},
		"object for PFs": {head + "  pfs: {}\n", []string{"spec.pfs: an object: want a list"}},
		"empty PF name":  {head + "  pfs:\n  - {numVfs: 3}\n", []string{"spec.pfs[0].pf", `""`}},
		"a VF as PF":     {head + "  pfs:\n  - {pf: '0000:03:00.2'}\n", []string{"is a VF (pci/0000:03:00.0 vf 0)"}},
		"PF twice":       {head + "  pfs:\n  - {pf: p0}\n  - {pf: '0000:03:00.0'}\n", []string{"spec.pfs[1].pf", "spec.pfs[0]"}},
		"mode":           {head + "  pfs:\n  - {pf: p0, eswitch: swichdev}\n", []string{"spec.pfs[0].eswitch", `"swichdev"`, "legacy or switchdev"}},
		"negative":       {head + "  pfs:\n  - {pf: p0, numVfs: -1}\n", []string{"numVfs", "-1", "0 to 8"}},
		"over the limit": {head + "  pfs:\n  - {pf: p0, numVfs: 300, vfGroups: [{mtu: 1500}]}\n", []string{"spec.pfs[0].numVfs", "300", "0 to 8"}},
		"range beyond":   {head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{range: 2-4}]}\n", []string{"vfGroups[0].range", `"2-4"`, "there are 4"}},
		"range of none":  {head + "  pfs:\n  - {pf: p01, vfGroups: [{range: '0'}]}\n", []string{"without any"}},
		"bad range":      {head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{range: 3-1}]}\n", []string{`"3-1"`, "0-3,7"}},
		"overlap":        {head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{range: 0-2}, {range: 2-3}]}\n", []string{"vfGroups[1].range", "VF 2", "vfGroups[0]"}},
		"driver":         {head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{driver: uio}]}\n", []string{"driver", `"uio"`, "kernel, vfio-pci or none"}},
		"mac":            {head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{mac: same}]}\n", []string{"mac", `"same"`, "stable or driver"}},
		"mtu":            {head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{mtu: -5}]}\n", []string{"mtu", "-5"}},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := Decode([]byte(c.doc))
			if err == nil {
				_, err = Resolve(doc, card())
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q: %v", w, err)
				}
			}
		})
	}
}

// What is empty before or behind a document is no second one.
func TestDecodeMarkers(t *testing.T) {
	for _, text := range []string{"---\n" + head, head + "---\n", head + "---\n# the end\n", head + "...\n"} {
		if _, err := Decode([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// An address is a text also without quotes, where YAML 1.1 has numbers to base 60.
func TestAddressesNeedNoQuotes(t *testing.T) {
	doc, err := Decode([]byte(head + "  pfs:\n  - pf: 0000:03:00.0\n  - pf: 0000:03:00.1\n    vfGroups: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(doc, card()); err != nil {
		t.Error(err)
	}
}

// All problems come at once, so that nobody mends a document one by one.
func TestAllProblemsAtOnce(t *testing.T) {
	doc, err := Decode([]byte(head + "  pfs:\n  - {pf: p9}\n  - {pf: p0, eswitch: x, numVfs: 4, vfGroups: [{mac: z}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Resolve(doc, card())
	for _, w := range []string{"spec.pfs[0].pf", "spec.pfs[1].eswitch", "spec.pfs[1].vfGroups[0]"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error lacks %q: %v", w, err)
		}
	}
}

// Whatever the text: it is refused with the place of each problem, or what comes
// out is whole.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(head + "  pfs:\n  - {pf: p0, numVfs: 4, vfGroups: [{range: 0-2, mac: stable}]}\n"))
	f.Add([]byte(`{"apiVersion":"sluice.dev/v1alpha1","kind":"NodeNIC"}`))
	for _, pattern := range []string{"testdata/refused/*.yaml", "../../docs/examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	state := node()
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := Decode(raw)
		if err != nil {
			return
		}
		spec, err := Resolve(doc, state)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "spec.") {
					t.Fatalf("a problem without its place: %s", line)
				}
			}
			return
		}
		if _, err := ConductOf(doc); err != nil {
			t.Fatalf("Resolve takes what ConductOf refuses: %v", err)
		}
		seen := map[nic.Handle]bool{}
		for _, p := range spec.PFs {
			if seen[p.Handle] || state.PF(p.Handle) == nil {
				t.Fatalf("%s is there twice, or no PF", p.Handle)
			}
			seen[p.Handle] = true
			if p.VFCount != nil && len(p.VFs) > *p.VFCount {
				t.Fatalf("%s: %d VF entries for %d VFs", p.Handle, len(p.VFs), *p.VFCount)
			}
			if p.Bond != nil && *p.Bond != "" && spec.BondOf(p.Handle) == nil {
				t.Fatalf("%s is in bond %q, which has not got it", p.Handle, *p.Bond)
			}
			for i := range p.VFs {
				wholeSettings(t, p.VFs[i].Settings)
			}
			if p.SFs != nil {
				for i, sf := range *p.SFs {
					if i > 0 && sf.Num <= (*p.SFs)[i-1].Num {
						t.Fatalf("%s: SF %d after SF %d", p.Handle, sf.Num, (*p.SFs)[i-1].Num)
					}
					wholeSettings(t, sf.Settings)
				}
			}
			wholeSettings(t, p.Settings)
		}
		for _, b := range spec.Bonds {
			for _, h := range b.Members {
				if p := spec.PF(h); p == nil || p.Bond == nil || *p.Bond != b.Name || !p.Named {
					t.Fatalf("%s of %s: %+v", h, b.Name, p)
				}
			}
		}
	})
}

func wholeSettings(t *testing.T, s nic.Settings) {
	t.Helper()
	for name, value := range s {
		if value == "" || strings.ContainsAny(value, " \n+-") {
			t.Fatalf("%s is %q", name, value)
		}
	}
}
