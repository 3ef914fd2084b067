package house

import (
	"go/ast"
	"strings"
)

// ruleZone requires that times have a zone: readers of a terminal, a log, and an alert are in
// different zones. Layouts of time.Format with an hour must contain the zone.
func ruleZone(t *tree) []breach {
	var out []breach
	t.each(func(_ *pkg, f *file) {
		if f.test {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			layout, literal := call.Args[0].(*ast.BasicLit)
			if ok && literal && method.Sel.Name == "Format" && strings.Contains(layout.Value, "15") &&
				!strings.ContainsAny(layout.Value, "Z") && !strings.Contains(layout.Value, "-07") {
				out = append(out, breach{f.at(call), "the time has no zone: use UTC and time.RFC3339"})
			}
			return true
		})
	})
	return out
}
