package convert

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The least of each kind that is converted.
const (
	leastPolicy     = `{"resourceName": "fast", "nodeSelector": {"rack": "a"}, "numVfs": 4, "nicSelector": {"pfNames": ["ens1f0np0"]}}`
	leastPoolConfig = `{"nodeSelector": {"matchLabels": {"rack": "a"}}, "maxUnavailable": 1}`
	leastNetwork    = `{"resourceName": "fast", "bridge": "br-pods"}`
	leastResource   = `{"resourceName": "fast", "selectors": {"vendors": ["15b3"]}}`
	leastSF         = `{"resourceName": "fast", "deviceType": "auxNetDevice", "selectors": {"vendors": ["15b3"], "auxTypes": ["sf"]}}`
)

// least is a document of that kind without the field and with it.
func withField(t *testing.T, kind, path string, value any) (before, after []byte) {
	t.Helper()
	text := map[string]string{
		"SriovNetworkNodePolicy": leastPolicy, "SriovNetworkPoolConfig": leastPoolConfig, "OVSNetwork": leastNetwork,
		"SriovNetwork": `{"resourceName": "fast"}`, "SriovIBNetwork": `{"resourceName": "fast"}`,
		"netDevice": leastResource, "auxNetDevice": leastSF,
	}[kind]
	var inner map[string]any
	if err := json.Unmarshal([]byte(text), &inner); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	document := func() []byte {
		var v any = map[string]any{"resourceList": []any{inner}}
		if strings.HasPrefix(path, "spec.") {
			v = map[string]any{
				"apiVersion": operatorVersion, "kind": kind, "metadata": map[string]any{"name": "a", "namespace": "b"}, "spec": inner,
			}
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	before = document()
	names := strings.Split(strings.TrimPrefix(path, "spec."), ".")
	at := inner
	for _, name := range names[:len(names)-1] {
		if at[name] == nil {
			at[name] = map[string]any{}
		}
		at = at[name].(map[string]any)
	}
	at[names[len(names)-1]] = value
	return before, document()
}

// Each field of each object of the peers is carried over, or something is said of
// it by name: none is passed over.
func TestEveryFieldOfThePeers(t *testing.T) {
	raw, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		kind, path := words[0], words[1]
		tried[kind]++
		t.Run(kind+" "+path, func(t *testing.T) {
			var value any
			if err := json.Unmarshal([]byte(words[2]), &value); err != nil {
				t.Fatal(err)
			}
			before, after := withField(t, kind, path, value)
			was, is := Convert([]Input{{"in", before}}, Options{Bridge: "br"}), Convert([]Input{{"in", after}}, Options{Bridge: "br"})
			if kind != "SriovIBNetwork" && was.Refused() > 0 {
				t.Fatalf("the least document is refused: %v", was.Notes)
			}
			said := slices.ContainsFunc(is.Notes, func(n Note) bool { return speaksOf(n, path) && !slices.Contains(was.Notes, n) })
			switch {
			case said:
			case is.Refused() > 0 && kind != "SriovIBNetwork":
				t.Errorf("it is refused, and not by name: %v", is.Notes)
			case kind == "SriovIBNetwork": // refused as a whole
			case asYAMLs(t, was.Documents) == asYAMLs(t, is.Documents):
				t.Errorf("nothing came of it, and nothing is said of it")
			}
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(tried)) {
		t.Logf("%s: %d fields", kind, tried[kind])
	}
	if len(tried) != 7 {
		t.Errorf("fields of %d kinds: want 7", len(tried))
	}
}

// speaksOf says whether n is of the field at path, of a part of it, or of what it is
// in where that is refused as a whole.
func speaksOf(n Note, path string) bool {
	field := strings.NewReplacer("resourceList[0].", "", "[0]", "").Replace(n.Field)
	return strings.HasPrefix(field, path) || n.Verdict == Refused && field != "" && field != "spec" && strings.HasPrefix(path, field+".")
}

func asYAMLs(t *testing.T, documents []any) string {
	t.Helper()
	var out strings.Builder
	for _, d := range documents {
		out.WriteString(asYAML(t, d))
	}
	return out.String()
}

// Every field that is read is on the list: a field that a new version brings is
// added to both.
func TestListHasEveryField(t *testing.T) {
	raw, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{
		"SriovNetworkNodePolicy", "SriovNetworkPoolConfig", "SriovNetwork", "SriovIBNetwork", "OVSNetwork",
	} {
		_, document := withField(t, kind, "spec.noSuchField", 1)
		result := Convert([]Input{{"in", document}}, Options{Bridge: "br"})
		i := slices.IndexFunc(result.Notes, func(n Note) bool { return n.Field == "spec.noSuchField" && n.Verdict == Refused })
		if i < 0 {
			t.Errorf("%s: a field that there is not is not refused: %v", kind, result.Notes)
			continue
		}
		_, list, _ := strings.Cut(result.Notes[i].Text, "want ")
		for _, name := range strings.Split(strings.ReplaceAll(list, " or ", ", "), ", ") {
			if !strings.Contains(string(raw), "\n"+kind+" spec."+name) {
				t.Errorf("%s: spec.%s is read and not on the list", kind, name)
			}
		}
	}
}
