package house

import (
	"go/ast"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// rule is a named check of the tree.
type rule struct {
	name  string
	check func(*tree) []breach
}

// rules lists all rules. Each has at least one tree with a violation in testdata.
var rules = []rule{
	{"layout", ruleLayout},
	{"floors", ruleFloors},
	{"http", ruleHTTP},
	{"goroutines", ruleGoroutines},
	{"leaks", ruleLeaks},
	{"pure", rulePure},
	{"decode", ruleDecode},
	{"docs", rulePackageDocs},
	{"length", ruleLength},
	{"columns", ruleColumns},
	{"size", ruleSize},
	{"identifiers", ruleIdentifiers},
	{"init", ruleInit},
	{"state", ruleState},
	{"modules", ruleModules},
	{"kinds", ruleKinds},
	{"decisions", ruleDecisions},
	{"sleep", ruleSleep},
	{"exit", ruleExit},
	{"zone", ruleZone},
	{"page", rulePage},
}

// folders lists the allowed top-level folders. make creates bin, dist, and nearside-data, and git
// ignores them.
var folders = []string{"accesslog", "agent", "bin", "cmd", "dist", "dns", "docs", "examples", "gossip", "nearside-data",
	"packaging", "rotation"}

// ruleLayout requires that the top-level folders are those in folders.
func ruleLayout(t *tree) []breach {
	var out []breach
	entries, err := fs.ReadDir(t.fsys, ".")
	if err != nil {
		return []breach{{".", err.Error()}}
	}
	for _, e := range entries {
		switch {
		case e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(folders, e.Name()):
			out = append(out, breach{e.Name(),
				"the folders at the top are given (" + listed(folders) + "): find the one that this is at home in"})
		case path.Ext(e.Name()) == ".go":
			out = append(out, breach{e.Name(), "there is no package at the top: commands live in cmd, the daemon in agent"})
		}
	}
	return out
}

// goers lists the packages that may start goroutines.
var goers = []string{"agent", "agent/source/*", "agent/deliver/*", "agent/serve/httpapi", "agent/serve/events",
	"agent/serve/web", "agent/serve/webhook", "agent/host/asuser", "agent/host/hold", "agent/host/intercept",
	"agent/host/pods", "agent/base/workers", "agent/test/agenttest", "agent/test/disktest", "agent/test/envoytest",
	"agent/test/uitest/*", "gossip", "dns", "dns/*",
	"accesslog/*", "examples/*"}

// starts reports whether a node starts a goroutine, with a go statement or a call that contains
// one.
func starts(f *file, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		if p, name := f.selector(n.Fun); p != "" {
			return (p == "time" || p == "context") && name == "AfterFunc"
		}
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && (sel.Sel.Name == "Go" || sel.Sel.Name == "TryGo") && len(n.Args) == 1 // sync.WaitGroup, errgroup.Group
	}
	return false
}

// ruleGoroutines limits the packages that start goroutines, so that the list in goroutines.md can
// be complete.
func ruleGoroutines(t *tree) []breach {
	var out []breach
	t.each(func(p *pkg, f *file) {
		if f.test || matches(p.dir, goers) {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if n != nil && starts(f, n) {
				out = append(out, breach{f.at(n), "a goroutine starts here, but only " + listed(goers) +
					" may start one: code below them is called, so that its caller knows when it has ended"})
			}
			return true
		})
	})
	return out
}

// ruleLeaks requires a leak check at the end of the tests of each package that starts goroutines.
func ruleLeaks(t *tree) []breach {
	const goleak = "go.uber.org/goleak"
	var out []breach
	for _, p := range t.pkgs {
		starter, checked, tested := "", false, false
		for _, f := range p.files {
			tested = tested || f.test
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if n == nil {
					return true
				}
				if !f.test && starter == "" && starts(f, n) {
					starter = f.at(n)
				}
				if call, ok := n.(*ast.CallExpr); ok && f.test {
					if path, name := f.selector(call.Fun); path == goleak && name == "VerifyTestMain" {
						checked = true
					}
				}
				return true
			})
		}
		if starter != "" && tested && !checked {
			out = append(out, breach{p.dir, "the package starts goroutines (" + starter +
				"): its TestMain must end in goleak.VerifyTestMain, so that one that outlives its test is seen"})
		}
	}
	return out
}

// rulePackageDocs requires a package comment in every package.
func rulePackageDocs(t *tree) []breach {
	var out []breach
	for _, p := range t.pkgs {
		i := slices.IndexFunc(p.files, func(f *file) bool { return !f.test })
		if i < 0 {
			out = append(out, breach{p.dir, "a directory of tests alone has no package comment: add a doc.go"})
			continue
		}
		begin := []string{"Package " + p.files[i].ast.Name.Name}
		if p.files[i].ast.Name.Name == "main" {
			base := path.Base(p.dir)
			begin = []string{"Command " + base, strings.ToUpper(base[:1]) + base[1:]}
		}
		ok := slices.ContainsFunc(p.files, func(f *file) bool {
			return !f.test && f.ast.Doc != nil &&
				slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(f.ast.Doc.Text(), b+" ") })
		})
		if !ok {
			out = append(out, breach{p.dir, "no package comment that begins with \"" + strings.Join(begin, "\" or \"") +
				"\": say what the package is for and what it promises"})
		}
	}
	return out
}

// ruleInit forbids init functions.
func ruleInit(t *tree) []breach {
	var out []breach
	t.each(func(_ *pkg, f *file) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				out = append(out,
					breach{f.at(fn), "func init acts on import, in an order nobody reads: construct it where it is used"})
			}
		}
	})
	return out
}

// ruleSleep forbids sleeps that no event or context can interrupt, in tests and in packages that
// run with a context. Tests may sleep with the fake clock of testing/synctest.
func ruleSleep(t *tree) []breach {
	var out []breach
	t.each(func(p *pkg, f *file) {
		if !f.test && !matches(p.dir, goers) {
			return
		}
		var bubbles []ast.Node // the calls of synctest.Test that enclose the current node
		var walk func(n ast.Node) bool
		walk = func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch p, name := f.selector(call.Fun); {
			case f.test && p == "testing/synctest" && name == "Test":
				bubbles = append(bubbles, call)
				for _, a := range call.Args {
					ast.Inspect(a, walk)
				}
				bubbles = bubbles[:len(bubbles)-1]
				return false
			case p == "time" && name == "Sleep" && len(bubbles) == 0:
				out = append(out, breach{f.at(call), "time.Sleep: wait for an event with a context that can end it; " +
					"in tests use a channel or the fake clock inside synctest.Test"})
			}
			return true
		}
		ast.Inspect(f.ast, walk)
	})
	return out
}

// ruleExit requires that only main exits the process and that nothing panics intentionally.
// Rethrowing a recovered value is allowed. A function may panic if its doc comment states the
// condition, which must be an error in the caller's code, never in input.
func ruleExit(t *tree) []breach {
	var out []breach
	t.each(func(_ *pkg, f *file) {
		if f.test {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch fn := n.(type) {
			case *ast.FuncLit:
				if recovers(fn) {
					return false
				}
			case *ast.FuncDecl:
				if strings.Contains(fn.Doc.Text(), " panics ") {
					return false
				}
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if isBuiltin(call, "panic") {
				out = append(out,
					breach{f.at(call), "panic: one bad input would take all proxies' config with it; return an error"})
			}
			if path, name := f.selector(call.Fun); path == "os" && name == "Exit" && f.ast.Name.Name != "main" {
				out = append(out,
					breach{f.at(call), "os.Exit skips every deferred cleanup: return an error, main sets the exit code"})
			}
			return true
		})
	})
	return out
}

// recovers reports whether a function literal calls recover directly.
func recovers(fn *ast.FuncLit) bool {
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if _, nested := n.(*ast.FuncLit); nested {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isBuiltin(call, "recover")
		return true
	})
	return found
}

func isBuiltin(call *ast.CallExpr, name string) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == name && declaration(id) == nil
}
