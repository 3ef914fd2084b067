package house

import (
	"go/ast"
	"os"
	"slices"
	"testing"
)

// TestNamedLibrariesAreUsed: the libraries that the design names are used by the packages that the
// decisions name (0035 for lumberjack, 0002 for miekg/dns), and by no other product package.
func TestNamedLibrariesAreUsed(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for library, want := range map[string][]string{
		"gopkg.in/natefinch/lumberjack.v2": {"rotation"},
		"github.com/miekg/dns":             {"agent/serve/cli/node", "dns"},
	} {
		var got []string
		tree.each(func(p *pkg, f *file) {
			if !f.test && f.imports()[library] != nil && !slices.Contains(got, p.dir) {
				got = append(got, p.dir)
			}
		})
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s is imported by %q, the decisions say %q", library, got, want)
		}
	}
	// The query log is written through lumberjack, and what must not lose a line is not.
	for dir, want := range map[string][2]string{
		"agent/deliver/resolver": {"OpenPlain", "Open"}, "agent/deliver/logs": {"Open", "OpenPlain"},
		"agent/serve/auditlog": {"Open", "OpenPlain"},
	} {
		used := map[string]bool{}
		tree.each(func(p *pkg, f *file) {
			if p.dir == dir && !f.test {
				for _, name := range uses(f, tree.module+"/rotation") {
					used[name] = true
				}
			}
		})
		if !used[want[0]] || used[want[1]] {
			t.Errorf("%s opens files by %v, want rotation.%s only", dir, used, want[0])
		}
	}
}

// uses returns the names that a file uses of an import path.
func uses(f *file, importPath string) (out []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if path, name := f.selector(e); path == importPath {
				out = append(out, name)
			}
		}
		return true
	})
	return out
}
