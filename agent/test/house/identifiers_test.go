package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// unclearNames are identifiers that say nothing about the thing that they name, in lower case.
var unclearNames = []string{
	"again", "alike", "elsewhere", "judge", "keep", "made", "part", "past", "place", "room", "settle",
	"spared", "spoken", "together", "told", "took", "trouble", "troubles", "written",
}

// documentTypes are names of types that are schemas in docs/openapi.yaml.
var documentTypes = []string{"agent/model/api.Written", "agent/answer/effect.Place", "agent/answer/explain.Place"}

// declaredNames calls fn with each identifier that a file declares, except fields, which have the
// name of their struct.
func declaredNames(f *ast.File, fn func(id *ast.Ident)) {
	each := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id != nil {
				fn(id)
			}
		}
	}
	defined := func(tok token.Token, exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok && tok == token.DEFINE {
				each(id)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			each(n.Name)
		case *ast.TypeSpec:
			each(n.Name)
		case *ast.ValueSpec:
			each(n.Names...)
		case *ast.FuncType:
			for _, list := range []*ast.FieldList{n.Params, n.Results} {
				if list != nil {
					for _, f := range list.List {
						each(f.Names...)
					}
				}
			}
		case *ast.AssignStmt:
			defined(n.Tok, n.Lhs...)
		case *ast.RangeStmt:
			defined(n.Tok, n.Key, n.Value)
		}
		return true
	})
}

// ruleIdentifiers rejects identifiers whose name could mean anything, and every type with the name
// Keeper after the first one.
func ruleIdentifiers(t *tree) (out []breach) {
	keepers := 0
	t.each(func(p *pkg, f *file) {
		declaredNames(f.ast, func(id *ast.Ident) {
			if slices.Contains(unclearNames, strings.ToLower(id.Name)) && !slices.Contains(documentTypes, p.dir+"."+id.Name) {
				out = append(out, breach{f.at(id), id.Name + " does not say what it names: use the field's noun " +
					"(cache, index, pending, ready, holder, slot, remaining, diff)"})
			}
			if id.Name == "Keeper" {
				if keepers++; keepers > 1 {
					out = append(out, breach{f.at(id), "a second type Keeper: name it after what it holds"})
				}
			}
		})
	})
	return out
}
