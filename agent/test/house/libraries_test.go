package house

import (
	"go/ast"
	"os"
	"slices"
	"testing"
)

// TestNamedLibrariesAreUsed checks that the packages named in the decisions use the chosen
// libraries (0035 for lumberjack, 0044 for miekg/dns), and that no other product package does.
func TestNamedLibrariesAreUsed(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for library, want := range map[string][]string{
		"gopkg.in/natefinch/lumberjack.v2": {"rotation"},
		"github.com/miekg/dns":             {"agent/answer/explaindns", "agent/serve/cli/node", "dns", "dns/forward"},
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
	// miekg/dns reads and writes responses of name servers and messages over TCP.
	for dir, want := range map[string][]string{"dns": {"Conn", "Msg"}, "dns/forward": {"Conn", "Msg", "UnpackRR"}} {
		used := tree.uses(dir, "github.com/miekg/dns")
		for _, name := range want {
			if !used[name] {
				t.Errorf("%s does not use dns.%s of miekg/dns", dir, name)
			}
		}
	}
	// The query log uses lumberjack. Logs that must not lose lines do not.
	for dir, want := range map[string][2]string{
		"agent/deliver/resolver": {"OpenPlain", "Open"}, "agent/deliver/logs": {"Open", "OpenPlain"},
		"agent/serve/auditlog": {"Open", "OpenPlain"},
	} {
		used := tree.uses(dir, tree.module+"/rotation")
		if !used[want[0]] || used[want[1]] {
			t.Errorf("%s opens files by %v, want rotation.%s only", dir, used, want[0])
		}
	}
}

// uses returns the names of an import path that the product files of a directory use.
func (t *tree) uses(dir, importPath string) map[string]bool {
	out := map[string]bool{}
	t.each(func(p *pkg, f *file) {
		if p.dir != dir || f.test {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if path, name := f.selector(e); path == importPath {
					out[name] = true
				}
			}
			return true
		})
	})
	return out
}
