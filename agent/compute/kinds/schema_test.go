package kinds_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/schema"
)

// commentsIn collects the comments on the fields of all types below a directory of the agent.
func commentsIn(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Join("compute/kinds", filepath.Dir(path)))
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range st.Fields.List {
				text := f.Comment.Text()
				if text == "" {
					text = f.Doc.Text()
				}
				for _, name := range f.Names {
					if text = forPeople(name.Name, text); text != "" {
						out[dir+"."+spec.Name.Name+"."+name.Name] = text
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// forPeople returns a comment without the name of the Go field.
func forPeople(field, text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, verb := range []string{" is ", " are ", " says ", " lists "} {
		if rest, ok := strings.CutPrefix(text, field+verb); ok {
			return rest
		}
	}
	if rest, ok := strings.CutPrefix(text, "nil: "); ok {
		return "without it: " + rest
	}
	return text
}

// TestComments compares the file of comments with the sources. UPDATE_GOLDEN=1 updates it.
func TestComments(t *testing.T) {
	all := commentsIn(t, "../../model/resource")
	maps.Copy(all, commentsIn(t, "../../model/redirect"))
	maps.Copy(all, commentsIn(t, "."))
	used := map[string]bool{}
	for _, d := range kinds.Registry().All() {
		schema.Of(d, func(field string) string {
			used[field] = true
			return ""
		})
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if all[key] != "" {
			b.WriteString(key + "\t" + all[key] + "\n")
		}
	}
	const file = "comments.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Error("comments.txt differs from the sources: run make golden")
	}
}

// takes validates types, enums, and fields of a document against a schema. It returns the first
// problem, or "".
func takes(s map[string]any, v any, at string) string {
	if list, ok := s["enum"].([]string); ok {
		if text, isText := v.(string); !isText || !slices.Contains(list, text) {
			return at + ": not in the enum"
		}
	}
	switch v := v.(type) {
	case map[string]any:
		props, known := s["properties"].(map[string]any)
		extra, isMap := s["additionalProperties"].(map[string]any)
		for k, x := range v {
			p, ok := props[k].(map[string]any)
			switch {
			case ok:
			case isMap:
				p = extra
			case known && s["additionalProperties"] == false:
				return at + ": no field " + k
			default:
				continue
			}
			if bad := takes(p, x, at+"."+k); bad != "" {
				return bad
			}
		}
	case []any:
		items, ok := s["items"].(map[string]any)
		if typ := s["type"]; typ != nil && typ != "array" {
			return at + ": no list"
		}
		for _, x := range v {
			if ok {
				if bad := takes(items, x, at+"[]"); bad != "" {
					return bad
				}
			}
		}
	case string:
		if typ := s["type"]; typ == "integer" || typ == "number" || typ == "boolean" || typ == "object" || typ == "array" {
			return at + ": a text"
		}
	}
	return ""
}

// TestSchemaAcceptsExamples checks that the schemas accept all examples in the documentation, and
// that every kind has fields.
func TestSchemaAcceptsExamples(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/kinds/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	seen := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(text), "```") {
			if i%2 == 0 || !strings.HasPrefix(block, "yaml\n") {
				continue
			}
			rs, faults := kinds.Registry().Decode(page, []byte(strings.TrimPrefix(block, "yaml\n")))
			if len(faults) > 0 {
				continue // a part of a document; other tests look at these
			}
			for _, r := range rs {
				d, _ := kinds.Registry().Lookup(r.Kind)
				doc, err := resource.Shown(r)
				var v any
				if err == nil {
					err = json.Unmarshal(doc, &v)
				}
				if err != nil {
					t.Fatal(err)
				}
				seen[r.Kind] = true
				if bad := takes(kinds.Schema(d), v, r.Kind); bad != "" {
					t.Errorf("%s: %s: %s", page, bad, doc)
				}
			}
		}
	}
	for _, d := range kinds.Registry().All() {
		if fields := schema.Fields(kinds.Schema(d)); len(fields) < 5 {
			t.Errorf("%s has %d fields", d.Kind, len(fields))
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %v have examples", seen)
	}
}
