package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

// inventory is a card of two ports with 16 VFs each, and one of another maker.
func inventory() *v1alpha1.Inventory {
	return &v1alpha1.Inventory{PFs: 3, Ports: []v1alpha1.Port{
		{Handle: "pci/0000:03:00.0", Netdev: "ens1f0", MAC: "02:00:00:00:00:01", Vendor: "15b3", Device: "1017", Serial: "S1", Driver: "mlx5_core", LinkType: "ethernet", TotalVFs: 16},
		{Handle: "pci/0000:03:00.1", Netdev: "ens1f1", MAC: "02:00:00:00:00:02", Vendor: "15b3", Device: "1017", Serial: "S1", Driver: "mlx5_core", LinkType: "ethernet", TotalVFs: 16},
		{Handle: "pci/0000:41:00.0", Netdev: "ens2f0", MAC: "02:00:00:00:00:03", Vendor: "8086", Device: "1592", Serial: "S2", Driver: "ice", LinkType: "ethernet", TotalVFs: 8, Carries: []string{"the default route"}},
	}}
}

func worker() Node {
	return Node{Name: "n1", Ready: true, Labels: map[string]string{"role": "worker"}, NIC: &v1alpha1.NodeNIC{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Generation: 1},
		Status:     v1alpha1.NodeNICStatus{Inventory: inventory()},
	}}
}

// policies reads policies, name to spec, of all nodes unless they say else.
func policies(t *testing.T, texts map[string]string) []v1alpha1.NICPolicy {
	t.Helper()
	var out []v1alpha1.NICPolicy
	for name, text := range texts {
		p := v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatalf("policy %s: %v", name, err)
		}
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = &metav1.LabelSelector{}
		}
		out = append(out, p)
	}
	return out
}

func resolved(t *testing.T, texts map[string]string) v1alpha1.NodeNICSpec {
	t.Helper()
	w, err := Resolve(policies(t, texts), worker())
	if err := errors.Join(err, w.Err()); err != nil {
		t.Fatal(err)
	}
	return w.Spec
}

func refused(t *testing.T, texts map[string]string) (Wish, string) {
	t.Helper()
	w, err := Resolve(policies(t, texts), worker())
	if err != nil {
		t.Fatal(err)
	}
	if w.Err() == nil {
		t.Fatalf("nothing is wrong with %v", texts)
	}
	return w, w.Err().Error()
}

func spec(t *testing.T, text string) v1alpha1.NodeNICSpec {
	t.Helper()
	var out v1alpha1.NodeNICSpec
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		policies map[string]string
		want     string
	}{
		"nothing is wanted of a node that no policy chooses": {
			map[string]string{"a": "{nodeSelector: {matchLabels: {role: other}}, pfs: [{pf: ens1f0, numVfs: 4}]}"},
			"{}",
		},
		"names become handles, and selectors all that they choose, but not named": {
			map[string]string{"a": "{pfs: [{pf: ens1f0, numVfs: 4}, {select: {vendor: 15b3}, eswitch: legacy}]}"},
			`{pfs: [{pf: "pci/0000:03:00.0", numVfs: 4}, {select: {handles: ["pci/0000:03:00.1"]}, eswitch: legacy}]}`,
		},
		"what does not contradict adds up": {
			map[string]string{
				"a": "{pfs: [{select: {vendor: 15b3}, eswitch: switchdev}]}",
				"b": "{pfs: [{pf: ens1f0, numVfs: 8, vfGroups: [{range: 0-3, driver: vfio-pci}]}]}",
				"c": "{pfs: [{pf: 0000:03:00.0, numVfs: 8, vfGroups: [{range: 4-7, mtu: 9000}]}]}",
			},
			`{pfs: [{pf: "pci/0000:03:00.0", eswitch: switchdev, numVfs: 8, vfGroups: [{range: 0-3, driver: vfio-pci}, {range: 4-7, mtu: 9000}]},
			        {select: {handles: ["pci/0000:03:00.1"]}, eswitch: switchdev}]}`,
		},
		"the higher priority is heard": {
			map[string]string{
				"low":  "{pfs: [{pf: ens1f0, numVfs: 4, mtu: 1500, channels: 2, vfGroups: [{driver: kernel}]}]}",
				"high": "{priority: 10, pfs: [{pf: ens1f0, numVfs: 8, channels: 4, vfGroups: [{range: '2,5-6', driver: vfio-pci}]}]}",
			},
			`{pfs: [{pf: "pci/0000:03:00.0", numVfs: 8, mtu: 1500, channels: 4, vfGroups: [{range: '2,5-6', driver: vfio-pci}, {range: '0-1,3-4,7', driver: kernel}]}]}`,
		},
		"groups that are the same may overlap": {
			map[string]string{
				"a": "{pfs: [{pf: ens1f0, numVfs: 8, vfGroups: [{range: 0-5, driver: vfio-pci}]}]}",
				"b": "{pfs: [{pf: ens1f0, vfGroups: [{range: 4-7, driver: vfio-pci}]}]}",
			},
			`{pfs: [{pf: "pci/0000:03:00.0", numVfs: 8, vfGroups: [{range: 0-5, driver: vfio-pci}, {range: 6-7, driver: vfio-pci}]}]}`,
		},
		"pools of one name over several PFs": {
			map[string]string{
				"a": "{pfs: [{pf: ens1f0, numVfs: 4}], pools: [{name: fast, pfs: ['ens1f0#0-1']}]}",
				"b": "{pfs: [{pf: ens1f1, numVfs: 4}], pools: [{name: fast, prefix: sluice.dev, pfs: [ens1f1]}]}",
			},
			`{pfs: [{pf: "pci/0000:03:00.0", numVfs: 4}, {pf: "pci/0000:03:00.1", numVfs: 4}], pools: [{name: fast, pfs: ['ens1f0#0-1', ens1f1]}]}`,
		},
		"what must hold adds up": {
			map[string]string{
				"a": "{protect: {routesTo: [192.0.2.1]}, probe: {connect: ['192.0.2.1:6443'], timeout: 40s}, drift: report, openVSwitch: {hwOffload: true}}",
				"b": "{priority: 1, protect: {routesTo: [192.0.2.2, 192.0.2.1]}, probe: {defaultRoute: true, timeout: 50s}, drift: mend, rdma: {netns: shared}, openVSwitch: {maxIdle: 30s}}",
			},
			"{protect: {routesTo: [192.0.2.2, 192.0.2.1]}, probe: {connect: ['192.0.2.1:6443'], defaultRoute: true, timeout: 50s}, drift: mend, rdma: {netns: shared}, openVSwitch: {hwOffload: true, maxIdle: 30s}}",
		},
		"what may not be there": {
			map[string]string{"a": "{pfs: [{pf: ens9f9, optional: true, numVfs: 1}, {select: {vendor: '1234'}, optional: true, numVfs: 1}]}"},
			"{}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(spec(t, c.want), resolved(t, c.policies)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Two policies over the same VFs, counts that differ, and what goes beyond the
// card: refused with both names, the field and the indexes, before and after
// either was ever applied.
func TestB51PoliciesOverTheSameVFs(t *testing.T) {
	for name, c := range map[string]struct {
		policies map[string]string
		want     string
	}{
		"ranges overlap": {
			map[string]string{
				"blue":  "{pfs: [{pf: ens1f0, numVfs: 8, vfGroups: [{range: 0-5, driver: vfio-pci}]}]}",
				"green": "{pfs: [{pf: '0000:03:00.0', vfGroups: [{range: 4-7, driver: kernel}]}]}",
			},
			`policies "blue" and "green", both of priority 0: pci/0000:03:00.0 vfGroups: VF 4-5 in both {"range":"0-5","driver":"vfio-pci"} and {"range":"4-7","driver":"kernel"}: want ranges that do not overlap, or different priorities`,
		},
		"all VFs and one of them": {
			map[string]string{
				"blue":  "{pfs: [{pf: ens1f0, numVfs: 8, vfGroups: [{driver: vfio-pci}]}]}",
				"green": "{pfs: [{select: {vendor: 15b3}, vfGroups: [{range: '7', trust: true}]}]}",
			},
			`policies "blue" and "green", both of priority 0: pci/0000:03:00.0 vfGroups: VF 7 in both {"driver":"vfio-pci"} and {"range":"7","trust":true}: want ranges that do not overlap, or different priorities`,
		},
		"numbers of VFs": {
			map[string]string{
				"blue":  "{priority: 5, pfs: [{pf: ens1f0, numVfs: 4}]}",
				"green": "{priority: 5, pfs: [{pf: ens1f0, numVfs: 8}]}",
			},
			`policies "blue" and "green", both of priority 5: pci/0000:03:00.0 numVfs: 4 and 8: want the same in both, or different priorities`,
		},
		"modes, by different selectors": {
			map[string]string{
				"blue":  "{pfs: [{select: {driver: mlx5_core}, eswitch: switchdev}]}",
				"green": "{pfs: [{select: {pfNames: [ens1f1]}, eswitch: legacy}]}",
			},
			`policies "blue" and "green", both of priority 0: pci/0000:03:00.1 eswitch: "switchdev" and "legacy": want the same in both, or different priorities`,
		},
		"a range beyond the VFs": {
			map[string]string{
				"blue":  "{pfs: [{pf: ens1f0, numVfs: 4}]}",
				"green": "{pfs: [{pf: ens1f0, vfGroups: [{range: 2-7, driver: vfio-pci}]}]}",
			},
			`pci/0000:03:00.0, as policies ["blue" "green"] have it together: vfGroups[0].range: "2-7" goes beyond the VFs of pci/0000:03:00.0: there are 4, so want indexes up to 3`,
		},
		"first over last": {
			map[string]string{
				"blue":  "{pfs: [{pf: ens1f0, numVfs: 4}]}",
				"green": "{pfs: [{pf: ens1f0, vfGroups: [{range: 3-2}]}]}",
			},
			`policy "green": pci/0000:03:00.0 vfGroups[0].range: "3-2" in "3-2" is no VF index or range: want indexes from 0 to 65535, for example 0-3,7`,
		},
		"more VFs than the card has": {
			map[string]string{"blue": "{pfs: [{pf: ens1f0, numVfs: 17}]}"},
			`pci/0000:03:00.0, as policy "blue" has it: numVfs: 17 is more or less than pci/0000:03:00.0 can have: want 0 to 16`,
		},
		"a VF in two pools": {
			map[string]string{
				"blue":  "{pfs: [{pf: ens1f0, numVfs: 8}], pools: [{name: fast, pfs: ['ens1f0#0-5']}]}",
				"green": "{priority: 3, pools: [{name: slow, select: {vendor: 15b3}, range: 4-7}]}",
			},
			`policies "green" and "blue": VF 4-5 of pci/0000:03:00.0 is in pool sluice.dev/slow and in pool sluice.dev/fast: want each in one pool`,
		},
		"a pool in two ways": {
			map[string]string{
				"blue":  "{pools: [{name: fast, pfs: [ens1f0]}]}",
				"green": "{pools: [{name: fast, pfs: [ens1f1], driver: vfio-pci}]}",
			},
			`policies "blue" and "green", both of priority 0: pool sluice.dev/fast: {"name":"fast","pfs":["ens1f0"]} and {"name":"fast","pfs":["ens1f1"],"driver":"vfio-pci"}: want the same in both, or different priorities`,
		},
		"a bond in two ways": {
			map[string]string{
				"blue":  "{bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: active-backup}]}",
				"green": "{bonds: [{name: bond0, pfs: [ens1f0, ens1f1], mode: balance-xor}]}",
			},
			`policies "blue" and "green", both of priority 0: bond bond0: {"name":"bond0","pfs":["ens1f0","ens1f1"],"mode":"active-backup"} and {"name":"bond0","pfs":["ens1f0","ens1f1"],"mode":"balance-xor"}: want the same in both, or different priorities`,
		},
		"a PF that is not there": {
			map[string]string{"blue": "{pfs: [{pf: ens9f9, numVfs: 1}]}"},
			`policy "blue": spec.pfs[0].pf: there is no PF "ens9f9": want a PCI address, a devlink handle or the name of an uplink netdev; this node has pci/0000:03:00.0 (ens1f0), pci/0000:03:00.1 (ens1f1), pci/0000:41:00.0 (ens2f0)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, got := refused(t, c.policies)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			for _, x := range w.Conflicts {
				if x.Other(x.A) != x.B || x.Other(x.B) != x.A {
					t.Errorf("%v: the other one is wrong", x)
				}
			}
		})
	}
}

// A selector's value that no PF has chooses none, and is said; it is never passed
// over, which would widen the rest.
func TestB53UnknownValuesChooseNothing(t *testing.T) {
	for text, want := range map[string]string{
		`{pfs: [{select: {vendor: 15b3, device: "1018"}, numVfs: 1}]}`:   "spec.pfs[0].select: it chooses no PF",
		`{pfs: [{select: {vendor: 15B3}, numVfs: 1}]}`:                   `"15B3" is no PCI id`,
		`{pfs: [{select: {vendor: "0x15b3"}, numVfs: 1}]}`:               `"0x15b3" is no PCI id`,
		`{pfs: [{select: {}, numVfs: 1}]}`:                               "it is empty, which would choose every PF",
		`{pools: [{name: a, select: {vendor: 15b3, device: "101e"}}]}`:   "spec.pools[0].select: it chooses no PF",
		`{pools: [{name: a, select: {vendor: 15b3, device: "0x1017"}}]}`: `"0x1017" is no PCI id`,
		`{nodeSelector: {matchExpressions: [{key: a, operator: Near}]}}`: `"Near" is not a valid label selector operator`,
		`{nodeSelector: {matchLabels: {a: "no such value!"}}, pfs: []}`:  "spec.nodeSelector",
	} {
		w, got := refused(t, map[string]string{"p": text})
		if !strings.Contains(got, want) || len(w.Spec.PFs) != 0 {
			t.Errorf("%s: %s, PFs %v; want %q and none", text, got, w.Spec.PFs, want)
		}
	}
}

// Without an inventory nothing is wanted of a node yet.
func TestNoInventory(t *testing.T) {
	all := policies(t, map[string]string{"a": "{pfs: [{pf: ens1f0, numVfs: 1}]}"})
	n := worker()
	n.NIC.Status.Inventory = nil
	if w, err := Resolve(all, n); !errors.Is(err, ErrNoInventory) || len(w.Policies) != 1 {
		t.Errorf("%v, %v", w, err)
	}
	if _, err := Resolve(nil, n); err != nil {
		t.Errorf("a node that nobody chooses: %v", err)
	}
}

// Over random policies: the order in which they come changes nothing; what is
// refused names its policies; and in what is not, each VF is as the loudest policy
// that speaks of it wants it, judged index by index.
func TestResolveLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	clean := 0
	for range 3000 {
		drawn := draw(r)
		w, err := Resolve(drawn, worker())
		if err != nil {
			t.Fatal(err)
		}
		shuffled := slices.Clone(drawn)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, err := Resolve(shuffled, worker())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(w.Spec, again.Spec); d != "" {
			t.Fatalf("in another order: %s\n%s", d, text(drawn))
		}
		if w.Err() != nil {
			if again.Err() == nil || sorted(w.Err()) != sorted(again.Err()) {
				t.Fatalf("in another order: %v, and %v", w.Err(), again.Err())
			}
			continue
		}
		clean++
		judge(t, drawn, w.Spec)
	}
	if clean < 300 {
		t.Errorf("only %d of the drawn were without a conflict", clean)
	}
}

func sorted(err error) string {
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func draw(r *rand.Rand) []v1alpha1.NICPolicy {
	var out []v1alpha1.NICPolicy
	for i := range 1 + r.IntN(3) {
		p := v1alpha1.NICPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}}
		p.Spec.NodeSelector = &metav1.LabelSelector{}
		p.Spec.Priority = int32(r.IntN(3))
		eight := 8
		e := v1alpha1.PF{PF: "ens1f0", NumVFs: &eight}
		if r.IntN(2) == 0 {
			e.PF, e.Select = "", &v1alpha1.Select{Vendor: "15b3"}
		}
		if r.IntN(3) == 0 {
			mtu := 1500 + 100*r.IntN(3)
			e.MTU = &mtu
		}
		first := 0
		for first < 8 && r.IntN(4) > 0 {
			last := first + r.IntN(8-first)
			e.VFGroups = append(e.VFGroups, v1alpha1.VFGroup{
				Range: fmt.Sprintf("%d-%d", first, last), Driver: []string{"kernel", "vfio-pci"}[r.IntN(2)],
			})
			first = last + 1
		}
		p.Spec.PFs = []v1alpha1.PF{e}
		out = append(out, p)
	}
	return out
}

func judge(t *testing.T, drawn []v1alpha1.NICPolicy, got v1alpha1.NodeNICSpec) {
	t.Helper()
	state, err := StateOf(inventory())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := policy.Resolve(&v1alpha1.NodeNIC{Spec: got}, state)
	if err != nil {
		t.Fatalf("not even a document: %v", err)
	}
	drivers := map[string]nic.Driver{"kernel": nic.DriverKernel, "vfio-pci": nic.DriverVFIO}
	for vf := range 8 {
		var want nic.Driver
		best := int32(-1)
		for _, p := range drawn {
			for _, g := range p.Spec.PFs[0].VFGroups {
				ranges, err := nic.ParseRanges(g.Range)
				if err != nil {
					t.Fatal(err)
				}
				if _, in := ranges.Shared(nic.Ranges{{First: vf, Last: vf}}); in && p.Spec.Priority > best {
					best, want = p.Spec.Priority, drivers[g.Driver]
				}
			}
		}
		var have nic.Driver
		if pf := spec.PF(nic.PCI("0000:03:00.0")); vf < len(pf.VFs) {
			have = pf.VFs[vf].Driver
		}
		if have != want {
			t.Fatalf("VF %d gets driver %q, want %q, of %s", vf, have, want, text(drawn))
		}
	}
}
