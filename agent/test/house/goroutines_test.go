package house

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// starters returns the functions that start goroutines as "package: function", with the first
// location.
func starters(t *tree) map[string]string {
	out := map[string]string{}
	t.each(func(p *pkg, f *file) {
		if f.test || testSupport(p.dir) || strings.HasPrefix(p.dir, "examples/") {
			return
		}
		for _, d := range f.ast.Decls {
			name := "package level"
			if fn, ok := d.(*ast.FuncDecl); ok {
				name = funcName(fn)
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if n != nil && starts(f, n) {
					if key := p.dir + ": " + name; out[key] == "" {
						out[key] = f.at(n)
					}
				}
				return true
			})
		}
	})
	return out
}

// funcName returns "Server.Serve" for a method and "listen" for a function.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	for {
		switch x := recv.(type) {
		case *ast.StarExpr:
			recv = x.X
			continue
		case *ast.IndexExpr: // a type parameter
			recv = x.X
			continue
		case *ast.Ident:
			return x.Name + "." + fn.Name.Name
		}
		return fn.Name.Name
	}
}

// goroutineRow matches a row of the list of goroutines: package, functions in backquotes, and two
// more columns.
var goroutineRow = regexp.MustCompile("(?m)^\\| ((?:agent|gossip|dns|accesslog)[a-z/]*) ((?:`[A-Za-z.]+`(?:, " +
	")?)+) \\| [^|]+ \\| [^|]+ \\|$")

// listedStarters reads the list in goroutines.md.
func listedStarters(doc string) []string {
	var out []string
	for _, m := range goroutineRow.FindAllStringSubmatch(doc, -1) {
		for _, fn := range strings.Split(m[2], ", ") {
			out = append(out, m[1]+": "+strings.Trim(fn, "`"))
		}
	}
	return out
}

// unlistedGoroutines compares the functions that start goroutines with the list.
func unlistedGoroutines(t *tree, doc string) []breach {
	var out []breach
	listed, found := listedStarters(doc), starters(t)
	for s, at := range found {
		if !slices.Contains(listed, s) {
			out = append(out, breach{at,
				s + " starts a goroutine that goroutines.md does not have: add who it is and how it ends"})
		}
	}
	for _, s := range listed {
		if found[s] == "" {
			out = append(out, breach{"goroutines.md", s + " starts no goroutine any more: remove it from the list"})
		}
	}
	return sorted(out)
}

func TestEveryGoroutineIsListed(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("goroutines.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range unlistedGoroutines(tree, string(doc)) {
		t.Error(b)
	}
}

// TestUnlistedGoroutinesAreFound checks that the comparison finds missing and obsolete entries.
func TestUnlistedGoroutinesAreFound(t *testing.T) {
	tree, err := load(archiveFS(t, `
-- agent/deliver/ads/a.go --
package xds

type Server struct{}

func (s *Server) Serve() { go func() {}() }

func (s *Server) quiet() {}

func spawn(wg interface{ Go(func()) }) { wg.Go(func() {}) }
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range unlistedGoroutines(tree, "| agent/deliver/ads `Server.Serve`, `Server.quiet` | does | ends |\n") {
		got = append(got, b.at+" "+strings.Fields(b.why)[1])
	}
	if want := []string{"agent/deliver/ads/a.go:9 spawn", "goroutines.md Server.quiet"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
