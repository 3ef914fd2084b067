package house

import (
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// corridor lists the packages that process all policies. They must not name any policy kind.
var corridor = []string{
	"agent/model/mesh", "agent/compute/policy", "agent/compute/draft", "agent/compute/bootstrap",
	"agent/compute/generate", "agent/deliver/ads",
	"agent/deliver/reconcile", "agent/answer/attribute", "agent/answer/change", "agent/answer/explain",
	"agent/answer/explaindns",
	"agent/serve/httpapi", "agent/answer/offline",
}

// ruleKinds requires that the corridor names no policy kind, and that only the list of kinds and
// the plugin's own folder import a plugin. A kind can then be added or deleted with its folder and
// its line in the list.
func ruleKinds(t *tree) []breach {
	var out []breach
	policies := kinds.Policies()
	t.each(func(p *pkg, f *file) {
		for importPath, spec := range f.imports() {
			dir, ok := t.inModule(importPath)
			if plugin := pluginFolder(dir); ok && plugin != "" && plugin != pluginFolder(p.dir) &&
				p.dir != "agent/compute/kinds" {
				out = append(out, breach{f.at(spec), "imports the plugin " + plugin +
					", which then cannot be deleted by its folder and its line: reach it through the list in agent/compute/kinds"})
			}
		}
		if f.test || !matches(p.dir, corridor) {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err == nil && slices.ContainsFunc(policies, func(d resource.Descriptor) bool { return d.Kind == text }) {
				out = append(out, breach{f.at(n), "names the kind " + text +
					": what is special about a kind is said by its plugin, through a field of policy.Plugin"})
			}
			return true
		})
	})
	return out
}

// pluginFolder returns the plugin folder that contains a directory, or "" if there is none.
func pluginFolder(dir string) string {
	rest, ok := strings.CutPrefix(dir, "agent/compute/kinds/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || name == "toolkit" {
		return ""
	}
	return "agent/compute/kinds/" + name
}

// TestPluginIsDeletedByItsFolderAndLine compiles the list of kinds without the MeshPassthrough
// plugin, or, if NEARSIDE_DELETE_ALL_PLUGINS is set, without each plugin in turn. This covers all
// packages: by ruleKinds no other package or test imports a plugin, and without it the list still
// declares the same names.
func TestPluginIsDeletedByItsFolderAndLine(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the list of kinds once more")
	}
	folders := []string{"agent/compute/kinds/passthrough"}
	if os.Getenv("NEARSIDE_DELETE_ALL_PLUGINS") != "" {
		dirs, err := filepath.Glob(filepath.Join(root, "agent/compute/kinds/*/plugin.go"))
		if err != nil || len(dirs) == 0 {
			t.Fatalf("no plugins: %v", err)
		}
		folders = nil
		for _, d := range dirs {
			folders = append(folders, "agent/compute/kinds/"+filepath.Base(filepath.Dir(d)))
		}
	}
	for _, folder := range folders {
		t.Run(path.Base(folder), func(t *testing.T) { buildWithout(t, folder) })
	}
}

// buildWithout compiles the list of kinds and its tests without a plugin's folder and lines.
func buildWithout(t *testing.T, folder string) {
	at, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(at, "agent/compute/kinds/kinds.go")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	without := withoutPlugin(string(text), folder)
	if before, after := declared(t, text), declared(t, without); !slices.Equal(before, after) {
		t.Fatalf("without %s, agent/compute/kinds declares %q instead of %q, and packages that use it may not compile",
			folder, after, before)
	}
	edited := filepath.Join(t.TempDir(), "kinds.go")
	if err := os.WriteFile(edited, without, 0o600); err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{list: edited}
	for _, pattern := range []string{"*.go", "*/*.go"} {
		files, err := filepath.Glob(filepath.Join(at, folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			replace[f] = "" // hides the file
		}
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	doc, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	// go vet compiles the dependencies, and checks the package and its tests. One analyzer is
	// enough.
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-overlay="+overlay, "-buildtag", "./agent/compute/kinds")
	cmd.Dir = at
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("without %s: %v\n%s", folder, err, out)
	}
}

// declared returns the signatures of functions and the other declarations of a file, without
// imports and function bodies.
func declared(t *testing.T, text []byte) []string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "kinds.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		if fn, ok := d.(*ast.FuncDecl); ok {
			fn.Body, fn.Doc = nil, nil
		}
		var b strings.Builder
		if err := format.Node(&b, fset, d); err != nil {
			t.Fatal(err)
		}
		out = append(out, b.String())
	}
	return out
}

// withoutPlugin removes the lines of a plugin and of the legacy kinds in its folder from the list
// of kinds.
func withoutPlugin(text, folder string) []byte {
	var names, kept []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "/"+folder+"\"") || strings.Contains(line, "/"+folder+"/") {
			name, _, named := strings.Cut(strings.TrimSpace(line), " ")
			if !named {
				name = path.Base(folder)
			}
			names = append(names, name)
			continue
		}
		if !slices.ContainsFunc(names, func(n string) bool {
			return strings.Contains(line, n+".Plugin(") || strings.Contains(line, n+".Kind()")
		}) {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}
