package house

import (
	"fmt"
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// maxWalk is the maximum number of functions that process a changed policy file, from the watcher
// to the xDS response.
const maxWalk = 35

// walkStep matches a line of the walk in ARCHITECTURE.md: a package, one of its functions, and its
// purpose.
var walkStep = regexp.MustCompile("(?m)^\\d+\\. `([a-z/]+) ([A-Za-z.]+)` (.+)$")

// wrongSteps compares the walk of a document with the sources: each function must exist and be
// called by an earlier one. Functions that a channel wakes are not called. Their lines contain
// "woken".
func wrongSteps(t *tree, doc string) []breach {
	steps := walkStep.FindAllStringSubmatch(doc, -1)
	var out []breach
	if len(steps) == 0 || len(steps) > maxWalk {
		out = append(out, breach{"ARCHITECTURE.md", fmt.Sprintf("the walk has %d functions, 1 to %d are expected",
			len(steps), maxWalk)})
	}
	called := map[string]bool{}
	for i, s := range steps {
		fn := findFunc(t, s[1], s[2])
		if fn == nil {
			out = append(out, breach{"ARCHITECTURE.md", s[1] + " has no function " + s[2] + ": correct the walk"})
			continue
		}
		if i > 0 && !called[fn.Name.Name] && !strings.Contains(s[3], "woken") {
			out = append(out, breach{"ARCHITECTURE.md", "no earlier function of the walk calls " + s[1] + " " + s[2]})
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // a call or a function value
				called[n.Sel.Name] = true
			case *ast.Ident:
				called[n.Name] = true
			}
			return true
		})
	}
	return sorted(out)
}

// findFunc returns a function or method ("Type.Name") of a package, or nil if there is none.
func findFunc(t *tree, dir, name string) *ast.FuncDecl {
	var found *ast.FuncDecl
	t.each(func(p *pkg, f *file) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && p.dir == dir && !f.test && funcName(fn) == name {
				found = fn
			}
		}
	})
	return found
}

func TestArchitectureWalksToTheWire(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range wrongSteps(tree, string(doc)) {
		t.Error(b)
	}
}

// TestWrongStepsAreFound checks that the comparison finds errors.
func TestWrongStepsAreFound(t *testing.T) {
	tree, err := load(archiveFS(t, `
-- agent/a.go --
package agent

type Loop struct{}

func (l *Loop) Run() { first() }

func first() {}

func second() {}

func third() {}
`))
	if err != nil {
		t.Fatal(err)
	}
	doc := "1. `agent Loop.Run` begins.\n2. `agent first` follows.\n3. `agent second` is not called.\n" +
		"4. `agent third` is woken.\n5. `agent Loop.Stop` is missing.\n"
	got := wrongSteps(tree, doc)
	if len(got) != 2 || !strings.Contains(got[0].why, "agent has no function Loop.Stop") ||
		!strings.Contains(got[1].why, "calls agent second") {
		t.Errorf("found %v", got)
	}
	if got := wrongSteps(tree, strings.Repeat("1. `agent first` follows.\n", maxWalk+1)); len(got) == 0 {
		t.Error("a walk that is too long is not found")
	}
}
