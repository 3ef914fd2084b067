// Command lint runs the analyzers of go vet and staticcheck in one pass over each package, as a
// tool for "go vet -vettool". The go command caches the results like those of the build, by
// content, so a fresh clone analyzes only changed packages. The staticcheck command would
// type-check the module and its dependencies again for each new folder.
package main

import (
	"go/ast"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// vet are the analyzers of go vet.
var vet = []*analysis.Analyzer{
	appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer,
	composite.Analyzer, copylock.Analyzer, defers.Analyzer, directive.Analyzer, errorsas.Analyzer,
	framepointer.Analyzer, hostport.Analyzer, httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer,
	lostcancel.Analyzer, nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer,
	stdmethods.Analyzer, stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer,
	tests.Analyzer, timeformat.Analyzer, unmarshal.Analyzer, unreachable.Analyzer, unsafeptr.Analyzer,
	unusedresult.Analyzer, waitgroup.Analyzer,
}

// extra lists staticcheck checks that are off by default: doc comments start with the name of the
// documented identifier.
var extra = []string{"ST1020", "ST1021", "ST1022"}

func main() {
	all := slices.Clone(vet)
	for _, set := range [][]*lint.Analyzer{simple.Analyzers, staticcheck.Analyzers, stylecheck.Analyzers} {
		for _, a := range set {
			if !a.Doc.NonDefault || slices.Contains(extra, a.Analyzer.Name) {
				all = append(all, a.Analyzer)
			}
		}
	}
	for _, a := range all {
		honorIgnores(a)
	}
	unitchecker.Main(append(all, unusedCode)...)
}

// honorIgnores drops findings on the line after a comment "//lint:ignore CHECK REASON", and in
// files with a comment "//lint:file-ignore CHECK REASON".
func honorIgnores(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		inner, report := *pass, pass.Report
		inner.Report = func(d analysis.Diagnostic) {
			if !ignored(pass, a.Name, d) {
				report(d)
			}
		}
		return run(&inner)
	}
}

func ignored(pass *analysis.Pass, check string, d analysis.Diagnostic) bool {
	at := pass.Fset.Position(d.Pos)
	names := func(text, directive string) bool {
		rest, ok := strings.CutPrefix(text, directive)
		checks, reason, _ := strings.Cut(rest, " ")
		return ok && reason != "" && slices.Contains(strings.Split(checks, ","), check)
	}
	for _, f := range pass.Files {
		if pass.Fset.Position(f.FileStart).Filename != at.Filename {
			continue
		}
		for _, g := range f.Comments {
			for _, c := range g.List {
				if names(c.Text, "//lint:file-ignore ") ||
					pass.Fset.Position(c.Pos()).Line == at.Line-1 && names(c.Text, "//lint:ignore ") {
					return true
				}
			}
		}
	}
	return false
}

// unusedCode reports unused code of a package (U1000). Tests count as users: if a folder has tests
// of the same package, only the package variant with tests is analyzed.
var unusedCode = &analysis.Analyzer{
	Name: "U1000", Doc: "Unused code", Run: reportUnused,
	Requires:   []*analysis.Analyzer{unused.Analyzer.Analyzer},
	ResultType: reflect.TypeFor[struct{}](),
}

func reportUnused(pass *analysis.Pass) (any, error) {
	if len(pass.Files) == 0 || !hasItsTests(pass) {
		return struct{}{}, nil
	}
	result := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result)
	used := map[string]bool{}
	for _, o := range result.Used {
		used[o.Position.String()] = true
	}
	for _, o := range result.Unused {
		if used[o.Position.String()] {
			continue
		}
		for _, f := range pass.Files {
			file := pass.Fset.File(f.FileStart)
			if file.Name() == o.Position.Filename && !ast.IsGenerated(f) && o.Position.Line <= file.LineCount() {
				pass.Reportf(file.LineStart(o.Position.Line), "%s %s is unused", o.Kind, o.Name)
			}
		}
	}
	return struct{}{}, nil
}

// hasItsTests reports whether a pass includes the tests of its package, or the folder has none.
func hasItsTests(pass *analysis.Pass) bool {
	inTests := func(name string) bool { return strings.HasSuffix(name, "_test.go") }
	dir := filepath.Dir(pass.Fset.Position(pass.Files[0].FileStart).Filename)
	for _, f := range pass.Files {
		if inTests(pass.Fset.Position(f.FileStart).Filename) {
			return true
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !inTests(e.Name()) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || strings.Contains(string(src), "\npackage "+pass.Pkg.Name()+"\n") ||
			strings.HasPrefix(string(src), "package "+pass.Pkg.Name()+"\n") {
			return false
		}
	}
	return true
}
