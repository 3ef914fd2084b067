package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// pureTrees are the folders whose packages depend only on their arguments.
var pureTrees = []string{
	"agent/model", "agent/compute", "agent/answer", "agent/serve/audit", "gossip/engine",
	"agent/base/clip", "agent/base/jsonpatch", "agent/base/jsonpath", "agent/base/plural", "agent/base/redact",
	"agent/base/strict", "agent/base/yamltext",
}

// impurePackages are packages below pureTrees that access the environment, each with its reason.
var impurePackages = map[string]string{
	"agent/model/store":     "the shared state, and its file",
	"agent/model/identity":  "makes keys and stores them",
	"agent/model/token":     "makes keys, stores them, and reads the clock",
	"agent/model/access":    "identifies the processes behind sockets",
	"agent/answer/offline":  "reads files",
	"agent/answer/envoybin": "runs Envoy",
	"agent/answer/traffic":  "reads files",
}

// isPure reports whether the result of a package must depend only on its arguments.
func isPure(dir string) bool {
	return impurePackages[dir] == "" && slices.ContainsFunc(pureTrees, func(tree string) bool {
		return dir == tree || strings.HasPrefix(dir, tree+"/")
	})
}

// impure lists standard packages that access the environment, with the names that a pure package
// may use. An empty list allows none.
var impure = map[string][]string{
	"bufio":        {"Scanner", "NewScanner", "Reader", "NewReader", "Writer", "NewWriter", "ScanLines", "ErrTooLong"},
	"crypto/rand":  nil,
	"log":          nil,
	"log/slog":     nil,
	"math/rand":    nil,
	"math/rand/v2": nil,
	"net": {"IP", "IPNet", "IPMask", "CIDRMask", "ParseIP", "ParseCIDR", "SplitHostPort", "JoinHostPort", "IPv4",
		"IPv4len", "IPv6len"},
	"net/http":    nil,
	"os":          nil,
	"os/exec":     nil,
	"os/signal":   nil,
	"sync":        nil,
	"sync/atomic": nil,
	"syscall":     nil,
	"time": {"Duration", "ParseDuration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Time",
		"Parse", "Unix", "UnixMilli", "RFC3339", "RFC3339Nano", "UTC", "Month", "Weekday", "Date"},
}

// rulePure forbids clocks, files, sockets, locks, and randomness in packages that shadow, diff, and
// explain run on other resource sets.
func rulePure(t *tree) []breach {
	var out []breach
	t.each(func(p *pkg, f *file) {
		if f.test || !isPure(p.dir) {
			return
		}
		for importPath, spec := range f.imports() {
			if may, ok := impure[importPath]; ok && len(may) == 0 || strings.HasPrefix(importPath, "golang.org/x/sys/") {
				out = append(out, breach{f.at(spec), "a pure package imports " + importPath +
					": the same input must give the same output on every node, so pass in what it needs as a value"})
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			path, name := f.selector(e)
			if may := impure[path]; len(may) > 0 && !slices.Contains(may, name) {
				out = append(out, breach{f.at(n), "a pure package uses " + path + "." + name +
					": the same input must give the same output on every node, so pass in what it needs as a value"})
			}
			return true
		})
	})
	return out
}

// shared lists packages whose types have mutable zero values. At package level, two agents in one
// process would share them.
var shared = map[string]bool{"sync": true, "sync/atomic": true}

// ruleState forbids changes of package variables after their declaration, so that two agents can
// run in one process.
func ruleState(t *tree) []breach {
	var out []breach
	for _, p := range t.pkgs {
		vars := map[string]bool{}
		for _, f := range p.files {
			if f.test {
				continue
			}
			packageVars(f, func(s *ast.ValueSpec) {
				for _, n := range s.Names {
					vars[n.Name] = n.Name != "_"
				}
				if holdsState(f, s) {
					out = append(out, breach{f.at(s), "a lock, counter, channel or map to be filled at package level is shared by " +
						"every agent in the process: make it a field"})
				}
			})
		}
		for _, f := range p.files {
			if !f.test {
				out = append(out, assignments(f, vars)...)
			}
		}
	}
	return out
}

// packageVars calls fn for each package-level var declaration.
func packageVars(f *file, fn func(*ast.ValueSpec)) {
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				fn(s.(*ast.ValueSpec))
			}
		}
	}
}

// holdsState reports whether a declaration creates mutable state.
func holdsState(f *file, s *ast.ValueSpec) bool {
	stateful := func(e ast.Expr) bool {
		if p, _ := f.selector(e); shared[p] {
			return true
		}
		if ix, ok := e.(*ast.IndexExpr); ok { // atomic.Pointer[T]
			p, _ := f.selector(ix.X)
			return shared[p]
		}
		_, isChan := e.(*ast.ChanType)
		return isChan
	}
	if s.Type != nil && stateful(s.Type) {
		return true
	}
	for _, v := range s.Values {
		switch v := v.(type) {
		case *ast.CompositeLit:
			if stateful(v.Type) {
				return true
			}
		case *ast.UnaryExpr:
			if c, ok := v.X.(*ast.CompositeLit); ok && stateful(c.Type) {
				return true
			}
		case *ast.CallExpr:
			if id, ok := v.Fun.(*ast.Ident); ok && (id.Name == "make" || id.Name == "new") {
				return true
			}
		}
	}
	return false
}

// assignments finds statements that change a package-level variable of this or another package.
func assignments(f *file, vars map[string]bool) []breach {
	var out []breach
	report := func(n ast.Node, name string) {
		out = append(out, breach{f.at(n), "the package-level variable " + name +
			" changes here: two agents in one process would share it; make it a field or a parameter"})
	}
	check := func(n ast.Node, e ast.Expr) {
		if p, name := f.selector(e); p != "" {
			report(n, p+"."+name)
			return
		}
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				e = x.X
				continue
			case *ast.StarExpr:
				e = x.X
				continue
			case *ast.ParenExpr:
				e = x.X
				continue
			case *ast.Ident:
				if vars[x.Name] && (declaration(x) == nil || packageLevel(f, declaration(x))) {
					report(n, x.Name)
				}
			}
			return
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, l := range n.Lhs {
					check(n, l)
				}
			}
		case *ast.IncDecStmt:
			check(n, n.X)
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && declaration(id) == nil && (id.Name == "delete" || id.Name == "clear") &&
				len(n.Args) > 0 {
				check(n, n.Args[0])
			}
		}
		return true
	})
	return out
}

// packageLevel reports whether a declaration is a package-level var of the file.
func packageLevel(f *file, decl any) bool {
	found := false
	packageVars(f, func(s *ast.ValueSpec) { found = found || decl == s })
	return found
}
