package house

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
)

// texts calls fn for each string literal in the non-test files of matching packages.
func texts(t *testing.T, tree *tree, dirs []string, fn func(f *file, lit ast.Node, text string)) {
	t.Helper()
	tree.each(func(p *pkg, f *file) {
		if f.test || !matches(p.dir, dirs) {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					fn(f, lit, s)
				}
			}
			return true
		})
	})
}

// TestReferenceNamesWhatTheSourcesName checks that docs/api.md lists exactly the API paths and
// problem types of the sources, and docs/metrics.md exactly their metrics.
func TestReferenceNamesWhatTheSourcesName(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	var (
		pattern = regexp.MustCompile(`^/(v1|meshes|livez|readyz|metrics)[a-zA-Z0-9/{}_]*$|^/problems/[a-z-]+$`)
		shown   = regexp.MustCompile("`(?:[A-Z|\\\\]+ )?(/v1/[a-z/{}]+|/problems/[a-z-]+)")
		metric  = regexp.MustCompile(`^nearside_[a-z_]+$`)
	)
	for _, c := range []struct {
		doc   string
		dirs  []string
		named *regexp.Regexp // in the sources
		shown *regexp.Regexp // in the document
	}{
		{"docs/api.md", []string{"agent/serve/httpapi", "agent/model/api"}, pattern, shown},
		{"docs/metrics.md", []string{"agent", "agent/*/*"}, metric, regexp.MustCompile("`(nearside_[a-z_]+)")},
	} {
		doc, err := fs.ReadFile(tree.fsys, c.doc)
		if err != nil {
			t.Error(err)
			continue
		}
		found := map[string]bool{}
		texts(t, tree, c.dirs, func(f *file, lit ast.Node, text string) {
			if !c.named.MatchString(text) {
				return
			}
			found[text] = true
			if !regexp.MustCompile("[` ]" + regexp.QuoteMeta(text) + "[`{?]").Match(doc) {
				t.Errorf("%s: %s is not in %s", f.at(lit), text, c.doc)
			}
		})
		rows := c.shown.FindAllSubmatch(doc, -1)
		if len(found) == 0 || len(rows) == 0 {
			t.Errorf("%d names in %v and %d in %s: has their form changed?", len(found), c.dirs, len(rows), c.doc)
		}
		for _, m := range rows {
			if !found[string(m[1])] {
				t.Errorf("%s: nothing in %v is named %s any more", c.doc, c.dirs, m[1])
			}
		}
	}
}

// TestExamplesAreValid decodes every resource file below examples.
func TestExamplesAreValid(t *testing.T) {
	registry := kinds.Registry()
	fsys := os.DirFS(root)
	decoded := 0
	err := fs.WalkDir(fsys, "examples", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" || !strings.Contains(name, "resources/") {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		rs, faults := registry.Decode(name, data)
		for _, f := range faults {
			t.Error(f)
		}
		decoded += len(rs)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if decoded < 9 {
		t.Errorf("only %d resources found below examples", decoded)
	}
}
