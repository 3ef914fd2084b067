package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tree is the parsed source of one module.
type tree struct {
	fsys     fs.FS
	module   string
	requires []string // module paths in go.mod, direct and indirect
	pkgs     []*pkg   // sorted by directory
}

// pkg is one directory with Go files.
type pkg struct {
	dir   string // slash-separated path relative to the module root; "." for the root
	files []*file
}

// file is one Go file.
type file struct {
	name  string // slash-separated path relative to the module root
	test  bool
	lines int
	src   []byte
	fset  *token.FileSet
	ast   *ast.File
}

// breach is a violation of a rule.
type breach struct {
	at  string // file:line, or a path
	why string // the rule, its reason, and the remedy
}

func (b breach) String() string { return b.at + ": " + b.why }

// at returns the position of a node as file:line.
func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, f.fset.Position(n.Pos()).Line)
}

// imports returns the import paths of a file by the name that the file uses. The names "_" and "."
// are unchanged.
func (f *file) imports() map[string]*ast.ImportSpec {
	out := make(map[string]*ast.ImportSpec, len(f.ast.Imports))
	for _, s := range f.ast.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err == nil {
			out[p] = s
		}
	}
	return out
}

// localName returns the identifier that a file uses for an import path, or "" if the file does not
// import it.
func (f *file) localName(importPath string) string {
	s, ok := f.imports()[importPath]
	switch {
	case !ok:
		return ""
	case s.Name != nil:
		return s.Name.Name
	}
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(importPath)) // math/rand/v2 is rand
	}
	return base
}

// selector returns the import path and name of a qualified identifier such as time.Sleep, or empty
// strings for other expressions.
func (f *file) selector(e ast.Expr) (importPath, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok || declaration(x) != nil { // a variable that shadows an import
		return "", ""
	}
	for p := range f.imports() {
		if f.localName(p) == x.Name {
			return p, sel.Sel.Name
		}
	}
	return "", ""
}

// declaration returns the node in the same file that declares an identifier. It returns nil for
// identifiers of other files, imports, and builtins.
func declaration(id *ast.Ident) any {
	// Rules about syntax need only resolution within a file, without types.
	if o := id.Obj; o != nil {
		return o.Decl
	}
	return nil
}

// load parses every Go file of the module at the root of fsys. It skips directories that the go
// command ignores, nested modules, and output of builds and runs.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fsys: fsys}
	if err := t.readGoMod(); err != nil {
		return nil, err
	}
	byDir := map[string]*pkg{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return t.enter(name)
		}
		if !d.Type().IsRegular() || path.Ext(name) != ".go" || strings.HasPrefix(path.Base(name), "_") {
			return nil
		}
		f, err := parse(fsys, name)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
			t.pkgs = append(t.pkgs, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, f)
		return nil
	})
	slices.SortFunc(t.pkgs, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return t, err
}

// enter decides whether the walk descends into a directory.
func (t *tree) enter(dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	switch {
	case strings.HasPrefix(base, "."), strings.HasPrefix(base, "_"):
		return fs.SkipDir
	case base == "testdata", base == "vendor", dir == "bin", dir == "dist", dir == "nearside-data":
		return fs.SkipDir
	}
	if _, err := fs.Stat(t.fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir // a nested module
	}
	return nil
}

func parse(fsys fs.FS, name string) (*file, error) {
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	a, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &file{
		name:  name,
		test:  strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(src, []byte("\n")),
		src:   src,
		fset:  fset,
		ast:   a,
	}, nil
}

// readGoMod reads the module path and the required modules. The go command writes the file, so its
// form is known: "module X" and lines of require blocks "path version [// indirect]".
func (t *tree) readGoMod() error {
	src, err := fs.ReadFile(t.fsys, "go.mod")
	if err != nil {
		return err
	}
	block := false
	for line := range strings.Lines(string(src)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "module" && len(words) > 1:
			t.module = words[1]
		case words[0] == "require" && len(words) > 1 && words[1] == "(":
			block = true
		case words[0] == "require" && len(words) > 2:
			t.requires = append(t.requires, words[1])
		case words[0] == ")":
			block = false
		case block:
			t.requires = append(t.requires, words[0])
		}
	}
	if t.module == "" {
		return fmt.Errorf("go.mod names no module")
	}
	return nil
}

// inModule returns the directory of an import path in this module.
func (t *tree) inModule(importPath string) (dir string, ok bool) {
	if importPath == t.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.module+"/")
}

// owner returns the required module of an external import path, or "" for the standard library.
func (t *tree) owner(importPath string) string {
	best := ""
	for _, m := range t.requires {
		if (importPath == m || strings.HasPrefix(importPath, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// each calls f for every file of the tree.
func (t *tree) each(f func(*pkg, *file)) {
	for _, p := range t.pkgs {
		for _, x := range p.files {
			f(p, x)
		}
	}
}

// matches reports whether a directory matches a pattern. A pattern "a/*" matches the direct
// subdirectories of a.
func matches(dir string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, dir)
		return ok && err == nil
	})
}

func TestLoadSkipsWhatTheGoCommandSkips(t *testing.T) {
	got, err := load(archiveFS(t, `
-- go.mod --
module example.org/m

require example.org/one v1.0.0

require (
	example.org/two v1.2.0 // indirect
	example.org/two/sub v0.1.0
)
-- agent/a.go --
package agent
-- agent/testdata/broken.go --
this is not Go
-- .ci/tools/x.go --
nor is this
-- other/go.mod --
module example.org/other
-- other/other.go --
nor this
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.pkgs) != 1 || got.pkgs[0].dir != "agent" {
		t.Errorf("packages: %v, want agent alone", got.pkgs)
	}
	for path, want := range map[string]string{
		"example.org/one/x":     "example.org/one",
		"example.org/two/sub/x": "example.org/two/sub",
		"example.org/twofold":   "",
		"net/http":              "",
	} {
		if m := got.owner(path); m != want {
			t.Errorf("owner(%s) = %q, want %q", path, m, want)
		}
	}
}
