package convert

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kyaml "sigs.k8s.io/yaml"

	"sluice.dev/sluice/cni"
	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/nic"
	"sluice.dev/sluice/pkg/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

// argsOf reads options as the command takes them.
func argsOf(t *testing.T, file string) Options {
	t.Helper()
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return Options{}
	}
	if err != nil {
		t.Fatal(err)
	}
	var o Options
	words := strings.Fields(string(raw))
	for i := 0; i+1 < len(words); i += 2 {
		into, ok := map[string]*string{
			"--node": &o.Node, "--bridge": &o.Bridge, "--network-suffix": &o.Suffix, "--resource-prefix": &o.Prefix,
			"--node-label": &o.NodeLabel,
		}[words[i]]
		if !ok {
			t.Fatalf("%s: no flag %s", file, words[i])
		}
		*into = words[i+1]
	}
	return o
}

// Each folder of testdata/golden has an input, and what comes of it: documents and
// report.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/golden/*/in.*")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, file := range inputs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			result := Convert([]Input{{filepath.Base(file), text}}, argsOf(t, filepath.Join(dir, "args")))
			var report, documents strings.Builder
			for _, n := range result.Notes {
				report.WriteString(n.String() + "\n")
			}
			for i, d := range result.Documents {
				if i > 0 {
					documents.WriteString("---\n")
				}
				documents.WriteString(asYAML(t, d))
				valid(t, d)
			}
			golden(t, filepath.Join(dir, "report.golden"), report.String())
			golden(t, filepath.Join(dir, "out.golden"), documents.String())
			refuses := strings.HasPrefix(filepath.Base(dir), "refused-")
			if got := result.Refused() > 0; got != refuses {
				t.Errorf("%d refused", result.Refused())
			}
		})
	}
}

func asYAML(t *testing.T, v any) string {
	t.Helper()
	raw, err := kyaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-update writes it anew):\n%s", file, d)
	}
}

// ports are those that the golden inputs name.
func ports() nic.State {
	var s nic.State
	for _, p := range []struct {
		address, name, device string
		infiniband            bool
	}{
		{"0000:03:00.0", "ens1f0np0", "1017", false},
		{"0000:03:00.1", "ens1f1np1", "1017", false},
		{"0000:42:00.0", "ib0", "101b", true},
		{"0000:42:00.1", "ib1", "101b", true},
		{"0000:82:00.0", "ens7f0np0", "101d", false},
		{"0000:83:00.0", "ens8f0np0", "101d", false},
		{"0000:84:00.0", "p0", "a2d6", false},
	} {
		pf := nic.PF{
			Handle: nic.PCI(p.address), Serial: p.address, Vendor: "15b3", Device: p.device, Driver: "mlx5_core",
			Eswitch: nic.Legacy, TotalVFs: 16, InfiniBand: p.infiniband, Uplink: nic.Netdev{Name: p.name, Ifindex: len(s.PFs) + 2},
		}
		for i := range 8 {
			pf.VFs = append(pf.VFs, nic.VF{Index: i, Address: fmt.Sprintf("%s0%c.%d", p.address[:8], p.address[11]+1, i), Driver: "mlx5_core"})
		}
		s.PFs = append(s.PFs, pf)
	}
	return s
}

// valid holds a document to what reads it: sluice-cni, or the reader of documents
// and what it makes of them on a node that has the ports.
func valid(t *testing.T, document any) {
	t.Helper()
	var spec v1alpha1.NodeNICSpec
	switch d := document.(type) {
	case NetworkAttachmentDefinition:
		validNetwork(t, d)
		return
	case v1alpha1.NodeNIC:
		spec = d.Spec
	case v1alpha1.NICPolicy:
		spec = d.Spec.NodeNICSpec
	default:
		t.Fatalf("a document is a %T", document)
	}
	// Unknown fields, wrong types and forms are told by the reader of files.
	doc := v1alpha1.NodeNIC{Spec: spec}
	doc.APIVersion, doc.Kind = v1alpha1.APIVersion, v1alpha1.KindNodeNIC
	read, err := policy.Decode([]byte(asYAML(t, doc)))
	if err != nil {
		t.Fatalf("the document is refused: %v\n%s", err, asYAML(t, doc))
	}
	if _, err := policy.Resolve(read, ports()); err != nil {
		t.Errorf("the document is refused on a node: %v\n%s", err, asYAML(t, doc))
	}
	// A policy may choose nodes that have nothing of it.
	other := nic.State{PFs: []nic.PF{{Handle: nic.PCI("0000:17:00.0"), Vendor: "8086", Device: "1592", Driver: "ice", Uplink: nic.Netdev{Name: "eno1", Ifindex: 2}}}}
	if _, err := policy.Resolve(read, other); err != nil {
		t.Errorf("the document is refused on a node with other cards: %v\n%s", err, asYAML(t, doc))
	}
}

func validNetwork(t *testing.T, d NetworkAttachmentDefinition) {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal([]byte(d.Spec.Config), &c); err != nil {
		t.Fatal(err)
	}
	if plugins, ok := c["plugins"].([]any); ok {
		first := plugins[0].(map[string]any)
		first["cniVersion"], first["name"] = c["cniVersion"], c["name"]
		c = first
	}
	c["runtimeConfig"] = map[string]any{"deviceID": "0000:03:00.2"}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cni.ParseConfig(raw, "")
	if err != nil {
		t.Errorf("sluice-cni refuses the configuration: %v\n%s", err, d.Spec.Config)
	}
	if got.Name != d.Metadata.Name {
		t.Errorf("the network is called %q, its definition %q", got.Name, d.Metadata.Name)
	}
}

// Case B51: two policies that want the same VFs are both told of it, with names and
// indexes; so are ranges that cannot be.
func TestB51(t *testing.T) {
	policy := func(name string, priority, vfs int, pf string) string {
		return fmt.Sprintf(`
---
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata: {name: %s, namespace: sriov}
spec: {resourceName: %s, nodeSelector: {}, priority: %d, numVfs: %d, nicSelector: {pfNames: ["%s"]}}`, name, name, priority, vfs, pf)
	}
	for _, c := range []struct {
		name, text string
		want       []string // in the lines of what is refused; none: it is taken
	}{
		{"apart", policy("a", 10, 8, "ens1f0#0-3") + policy("b", 10, 8, "ens1f0#4-7"), nil},
		{"overlapping", policy("a", 10, 8, "ens1f0#0-5") + policy("b", 10, 8, "ens1f0#4-7"), []string{
			"SriovNetworkNodePolicy sriov/a: spec.nicSelector: with SriovNetworkNodePolicy sriov/b: both want VF 4-5 of ens1f0",
			"SriovNetworkNodePolicy sriov/b: spec.nicSelector: with SriovNetworkNodePolicy sriov/a: both want VF 4-5 of ens1f0",
		}},
		{"all and some", policy("a", 10, 8, "ens1f0") + policy("b", 10, 8, "ens1f0#4-7"), []string{"both want VF 4-7 of ens1f0"}},
		{"by priority", policy("a", 10, 8, "ens1f0#0-5") + policy("b", 20, 8, "ens1f0#4-7"), nil},
		{"beyond numVfs", policy("a", 10, 4, "ens1f0#0-4"), []string{`"ens1f0#0-4": numVfs is 4: want VFs from 0 to 3`}},
		{"backwards", policy("a", 10, 8, "ens1f0#5-4"), []string{`"5-4"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			result := Convert([]Input{{"in.yaml", []byte(c.text)}}, Options{})
			var refused []string
			for _, n := range result.Notes {
				if n.Verdict == Refused {
					refused = append(refused, n.String())
				}
			}
			if len(c.want) == 0 && len(refused) > 0 || len(c.want) > 0 && len(result.Documents) > 0 {
				t.Errorf("%d documents, refused:\n%s", len(result.Documents), strings.Join(refused, "\n"))
			}
			for _, w := range c.want {
				if !strings.Contains(strings.Join(refused, "\n"), w) {
					t.Errorf("want %q in:\n%s", w, strings.Join(refused, "\n"))
				}
			}
		})
	}
}
