// Package pkg holds no code of its own, only the tests that keep the tree in the
// order that docs/architecture.md promises.
package pkg

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "sluice.dev/sluice/"

type listed struct {
	ImportPath string
	Imports    []string
}

// packages lists the module's packages outside lab/, and what each imports.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		if p.ImportPath != "pkg" && !strings.HasPrefix(p.ImportPath, "lab/") {
			all = append(all, p)
		}
	}
	return all
}

// layerTable reads the table under "## Layers".
func layerTable(t *testing.T) (layer map[string]int, also map[string][]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	layer, also = map[string]int{}, map[string][]string{}
	row := regexp.MustCompile(`(?m)^\| (\d+) \|([^|]*)\|([^|]*)\|$`)
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(m[2], ",") {
			layer[strings.TrimSpace(name)] = int(m[1][0] - '0')
		}
		for rule := range strings.SplitSeq(m[3], ";") {
			if from, to, ok := strings.Cut(rule, ":"); ok {
				from = strings.TrimSpace(from)
				for name := range strings.SplitSeq(to, ",") {
					also[from] = append(also[from], strings.TrimSpace(name))
				}
			}
		}
	}
	if len(layer) < 5 {
		t.Fatalf("docs/architecture.md: found %d packages in the layer table", len(layer))
	}
	return layer, also
}

func TestImportsOnlyGoDown(t *testing.T) {
	layer, also := layerTable(t)
	seen := map[string]bool{}
	for _, p := range packages(t) {
		seen[p.ImportPath] = true
		mine, known := layer[p.ImportPath]
		if !known {
			t.Errorf("%s is in no layer of docs/architecture.md", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			name, ours := strings.CutPrefix(imported, module)
			if !ours || slices.Contains(also[p.ImportPath], name) {
				continue
			}
			if theirs, known := layer[name]; !known || theirs >= mine {
				t.Errorf("%s (layer %d) imports %s (layer %d)", p.ImportPath, mine, name, theirs)
			}
		}
	}
	for name := range layer {
		if !seen[name] {
			t.Errorf("docs/architecture.md lists %s, which does not exist", name)
		}
	}
}

// Foreign vocabularies stay in the rooms that translate them.
func TestForeignTypesStayInTheirRooms(t *testing.T) {
	rooms := map[string][]string{
		"k8s.io/kubelet/":                       {"deviceplugin"},
		"google.golang.org/grpc":                {"deviceplugin"},
		"github.com/ovn-kubernetes/libovsdb":    {"pkg/ovsdb", "offload"},
		"github.com/containernetworking/":       {"cni", "cmd/sluice-cni"},
		"github.com/vishvananda/netlink":        {"pkg/netlink", "pkg/devlink", "pkg/ethtool", "pkg/rtnl", "pkg/rdma", "pkg/vdpa", "pkg/tc", "pkg/host/linux"},
		"github.com/spf13/cobra":                {"cmd/sluice"},
		"sluice.dev/sluice/pkg/api":             {"pkg/policy", "pkg/convert", "pkg/fleet", "pkg/nodeapi", "pkg/controller", "cmd/sluice"},
		"k8s.io/client-go":                      {"pkg/nodeapi", "pkg/controller", "cmd/sluice"},
		"sigs.k8s.io/controller-runtime":        {"pkg/nodeapi", "pkg/controller", "cmd/sluice"},
		"sluice.dev/sluice/pkg/host/linux":      {"cmd/sluice", "cmd/sluice-cni"},
		"sluice.dev/sluice/pkg/ovsdb/ovsdbtest": {},
	}
	for _, p := range packages(t) {
		for prefix, allowed := range rooms {
			inside := strings.HasPrefix(module+p.ImportPath, prefix) || slices.ContainsFunc(allowed, func(a string) bool {
				return p.ImportPath == a || strings.HasPrefix(p.ImportPath, a+"/")
			})
			if inside {
				continue
			}
			for _, imported := range p.Imports {
				if strings.HasPrefix(imported, prefix) {
					t.Errorf("%s imports %s, which belongs to %v", p.ImportPath, imported, allowed)
				}
			}
		}
	}
}

// goFiles calls f for each Go file of the tree outside lab/ and build/.
func goFiles(t *testing.T, f func(path string, src []byte)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"../lab", "../build", "../.git"}, path) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		f(path, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 10 {
		t.Fatalf("found only %d Go files", n)
	}
}

// The product never knows which NIC the lab gives it.
func TestProductDoesNotKnowTheLab(t *testing.T) {
	word := regexp.MustCompile(`(?i)\bt` + `win\b`)
	goFiles(t, func(path string, src []byte) {
		if at := word.FindIndex(src); at != nil {
			t.Errorf("%s: line %d names the lab's NIC", path, 1+strings.Count(string(src[:at[0]]), "\n"))
		}
	})
}

// The agent and the CNI speak to the kernel and to OVS themselves. Tests may run
// programs; package-level state may not be written.
func TestNoProgramsAreRunAndNoGlobalsWritten(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if i.Path.Value == `"os/exec"` {
				t.Errorf("%s imports os/exec", path)
			}
		}
		globals := map[string]bool{}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for _, n := range v.Names {
					if len(v.Values) == 0 && n.Name != "_" && !strings.Contains(g.Doc.Text(), "ldflags") && !embedded(g) {
						t.Errorf("%s: var %s has no value: package-level state", path, n.Name)
					}
					globals[n.Name] = true
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Tok == token.DEFINE {
				return true
			}
			for _, l := range a.Lhs {
				if id, ok := l.(*ast.Ident); ok && globals[id.Name] {
					t.Errorf("%s: package-level var %s is assigned", path, id.Name)
				}
			}
			return true
		})
	})
}

func embedded(g *ast.GenDecl) bool {
	return g.Doc != nil && slices.ContainsFunc(g.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed") })
}
