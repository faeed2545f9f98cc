package v1alpha1

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// paths lists the fields of t as the pages write them: a list of objects ends in
// []. What other packages say of their types is on their pages.
func paths(prefix string, t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			out = append(out, paths(prefix, f.Type)...)
			continue
		}
		path, inner := prefix+name, f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			path, inner = path+"[]", inner.Elem()
		}
		out = append(out, path)
		if inner.Kind() == reflect.Struct && inner.PkgPath() == t.PkgPath() {
			out = append(out, paths(path+".", inner)...)
		}
	}
	return out
}

// onPage lists the fields that the page has a row for. The heading of a section
// says of what they are, which may be several things.
func onPage(page string) []string {
	code := regexp.MustCompile("`([^`]+)`")
	prefixes := []string{""}
	var out []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			prefixes = prefixes[:0]
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				prefixes = append(prefixes, m[1]+".")
			}
			if len(prefixes) == 0 {
				prefixes = append(prefixes, "")
			}
		}
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if m := code.FindStringSubmatch(cell); row && strings.HasPrefix(line, "| `") && m != nil {
			for _, prefix := range prefixes {
				out = append(out, prefix+m[1])
			}
		}
	}
	return out
}

// docs/document.md has a row for each field that people write, and for no other.
func TestPageHasEveryField(t *testing.T) {
	fields := []string{"metadata.name"}
	for _, f := range paths("", reflect.TypeFor[NodeNIC]()) {
		if !strings.HasPrefix(f, "status") {
			fields = append(fields, f)
		}
	}
	compare(t, "document.md", fields)
}

// docs/kubernetes.md has what is in Kubernetes only.
func TestKubernetesPageHasEveryField(t *testing.T) {
	shared := paths("spec.", reflect.TypeFor[NodeNICSpec]())
	var fields []string
	for _, f := range paths("", reflect.TypeFor[NICPolicy]()) {
		if strings.HasPrefix(f, "spec.") && !slices.Contains(shared, f) || strings.HasPrefix(f, "status.") {
			fields = append(fields, "NICPolicy."+f)
		}
	}
	for _, f := range paths("", reflect.TypeFor[NodeNIC]()) {
		if strings.HasPrefix(f, "status.") {
			fields = append(fields, "NodeNIC."+f)
		}
	}
	compare(t, "kubernetes.md", fields)
}

// docs/network.md has every field of a Network.
func TestNetworkPageHasEveryField(t *testing.T) {
	fields := []string{"Network.metadata.name"}
	for _, f := range paths("", reflect.TypeFor[Network]()) {
		if strings.HasPrefix(f, "spec.") || strings.HasPrefix(f, "status.") {
			fields = append(fields, "Network."+f)
		}
	}
	compare(t, "network.md", fields)
}

func compare(t *testing.T, name string, fields []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	rows := onPage(string(page))
	for _, f := range fields {
		switch n := count(rows, f); n {
		case 1:
		case 0:
			t.Errorf("docs/%s has no row for %s", name, f)
		default:
			t.Errorf("docs/%s has %d rows for %s", name, n, f)
		}
	}
	for _, r := range rows {
		if !slices.Contains(fields, r) {
			t.Errorf("docs/%s has a row for %s, which is no field", name, r)
		}
	}
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}
