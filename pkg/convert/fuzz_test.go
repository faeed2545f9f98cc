package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/api/v1alpha1"
	"sluice.dev/sluice/pkg/policy"
)

// Whatever the input, it is converted into documents that are read again, or
// something of it is refused in a line each.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*/in.*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no inputs: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw), true)
		for doc := range strings.SplitSeq(string(raw), "---\n") {
			f.Add(doc, false)
		}
	}
	f.Fuzz(func(t *testing.T, text string, node bool) {
		o := Options{Bridge: "br-pods"}
		if node {
			o.Node = "worker-1"
		}
		result := Convert([]Input{{"in", []byte(text)}}, o)
		if result.Refused() > 0 && len(result.Documents) > 0 {
			t.Errorf("something is refused, and there are documents all the same: %v", result.Notes)
		}
		for _, n := range result.Notes {
			if n.Object == "" || n.Text == "" {
				t.Errorf("a note says nothing: %+v", n)
			}
		}
		for _, d := range result.Documents {
			if doc, ok := d.(v1alpha1.NodeNIC); ok {
				if _, err := policy.Decode([]byte(asYAML(t, doc))); err != nil {
					t.Errorf("the document is refused: %v", err)
				}
			}
		}
	})
}

// Whatever the configuration, it is refused with words or deals each device once.
func FuzzReadPlugin(f *testing.F) {
	for _, file := range []string{"device-plugin", "refused-device-plugin", "overlaps"} {
		raw, err := os.ReadFile(filepath.Join("testdata/golden", file, "in.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(raw))
	}
	f.Add(`{"resourceList": [{"resourceName": "a", "selectors": [{"pfNames": ["ens1f0np0#0,2"]}, {"vendors": ["15b3"]}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, _, err := ReadPlugin("in", []byte(text), "")
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		seen := map[string]string{}
		for _, pool := range p.Pools(machine()) {
			for _, pick := range pool.Select {
				for _, r := range pick.Indexes {
					for i := r.First; i <= r.Last; i++ {
						key := string(pool.Kind) + pick.PF.String() + "#" + string(rune(i))
						if other := seen[key]; other != "" {
							t.Errorf("%s has %s %d, which %s has", pool, pick.PF, i, other)
						}
						seen[key] = pool.Resource()
					}
				}
			}
		}
	})
}
