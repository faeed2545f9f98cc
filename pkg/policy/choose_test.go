package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
)

// handles is the PFs of a spec, "named" where they are.
func handles(spec nic.Spec) []string {
	var out []string
	for _, p := range spec.PFs {
		text := p.Handle.Name
		if p.Named {
			text += " named"
		}
		out = append(out, text)
	}
	return out
}

func TestSelectors(t *testing.T) {
	for text, want := range map[string][]string{
		"{vendor: 15b3}":                                     {"0000:03:00.0", "0000:03:00.1", "0000:41:00.0", "0000:42:00.0"},
		"{vendor: 15b3, device: '1017'}":                     {"0000:03:00.0", "0000:03:00.1"},
		"{vendor: '8086'}":                                   {"0000:81:00.0"},
		"{driver: vfio-pci}":                                 {"0000:81:00.0"},
		"{linkType: infiniband}":                             {"0000:42:00.0"},
		"{linkType: ethernet, numa: 1}":                      {"0000:41:00.0"},
		"{numa: 0}":                                          {"0000:03:00.0", "0000:03:00.1"},
		"{pfNames: [ens1f1, ens2f0, ens9]}":                  {"0000:03:00.1", "0000:41:00.0"},
		"{addresses: ['0000:81:00.0', '0000:ff:00.0']}":      {"0000:81:00.0"},
		"{handles: [pci/0000:03:00.1]}":                      {"0000:03:00.1"},
		"{pfNames: [ens1f0, ens2f0], vendor: 15b3, numa: 1}": {"0000:41:00.0"},
	} {
		spec := resolved(t, "  pfs: [{select: "+text+"}]\n", node())
		if d := cmp.Diff(want, handles(spec)); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// A name wins over selectors wherever it stands, and its PF gets nothing of them.
func TestNamesWinOverSelectors(t *testing.T) {
	spec := resolved(t, `
  pfs:
  - {select: {vendor: 15b3, device: "1017"}, eswitch: switchdev, numVfs: 4}
  - {pf: ens1f1, numVfs: 2}
  - {select: {pfNames: [ens1f1]}, numVfs: 8}
`, node())
	four, two := 4, 2
	want := nic.Spec{PFs: []nic.PFSpec{
		{Handle: nic.PCI("0000:03:00.0"), Eswitch: nic.Switchdev, VFCount: &four},
		{Handle: nic.PCI("0000:03:00.1"), Named: true, VFCount: &two},
	}}
	if d := cmp.Diff(want, spec); d != "" {
		t.Error(d)
	}
}

func TestOptional(t *testing.T) {
	for _, text := range []string{
		"[{pf: ens9, optional: true, numVfs: 4}]",
		"[{pf: '0000:ff:00.0', optional: true}]",
		"[{select: {vendor: '14e4'}, optional: true}]",
	} {
		if spec := resolved(t, "  pfs: "+text+"\n", node()); len(spec.PFs) != 0 {
			t.Errorf("%s: %v", text, handles(spec))
		}
		if got := refused(t, "  pfs: "+strings.ReplaceAll(text, "true", "false")+"\n", node()); !strings.Contains(got, "spec.pfs[0]") {
			t.Error(got)
		}
	}
}

// What an entry gets wrong on each of the PFs that it chooses is said of each, and
// what has to do with none of them once.
func TestProblemsOfManyPFs(t *testing.T) {
	got := refused(t, "  pfs: [{select: {vendor: 15b3, device: '1017'}, numVfs: 9, link: middle}]\n", node())
	want := `spec.pfs[0].link: "middle": want up or down
spec.pfs[0].numVfs: 9 is more or less than pci/0000:03:00.0 can have: want 0 to 8
spec.pfs[0].numVfs: 9 is more or less than pci/0000:03:00.1 can have: want 0 to 8`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Names are compared whole: no beginning of a name is one, and a PF that has no
// name is none of any name.
func TestB07NamesAreWhole(t *testing.T) {
	state := node()
	state.PFs[0].Uplink.Name, state.PFs[1].Uplink.Name = "ens1f1", "ens1f10"
	for name, want := range map[string]string{"ens1f1": "0000:03:00.0", "ens1f10": "0000:03:00.1", "ens1f": "", "ens1f0": "", "e": "", "": ""} {
		pf, err := FindPF(state, name)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is %s", name, pf.Handle)
		case want != "" && (err != nil || pf.Handle.Name != want):
			t.Errorf("%q: %v, %v; want %s", name, pf, err, want)
		}
	}
	spec := resolved(t, "  pfs: [{select: {pfNames: [ens1f1]}}]\n", state)
	if d := cmp.Diff([]string{"0000:03:00.0"}, handles(spec)); d != "" {
		t.Error(d)
	}
	// An empty name must not become "every PF", nor "the PF without a name".
	if got := choose(v1alpha1.Select{PFNames: []string{""}}, state); len(got) != 0 {
		t.Errorf("an empty name chooses %s", got[0].Handle)
	}
	for _, names := range []string{"['']", "[]"} {
		if got := refused(t, "  pfs: [{select: {pfNames: "+names+"}}]\n", state); !strings.HasPrefix(got, "spec.pfs[0].select") {
			t.Error(got)
		}
	}
}
