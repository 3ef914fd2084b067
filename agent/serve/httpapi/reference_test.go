package httpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// TestReferencePaths asks for every path that docs/api.md lists with every method: exactly those of
// its row are possible.
func TestReferencePaths(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([A-Z|\\\\]+) (/[^`]*)` \\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 15 {
		t.Fatalf("only %d paths found in docs/api.md: has the form of the table changed?", len(rows))
	}
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, meshDoc+"\n---\n"+web)
	a.reconcile()
	fill := func(path string) string {
		plural, name := "dataplanes", "web"
		if !strings.Contains(path, "{mesh}") {
			plural, name = "meshes", "default"
		}
		return strings.NewReplacer("{mesh}", "default", "{plural}", plural, "{kind}", plural, "{name}", name).Replace(path)
	}
	for _, row := range rows {
		methods := strings.Split(strings.ReplaceAll(row[1], `\|`, "|"), "|")
		for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
			// The body is none that is taken, and so is the condition, so that nothing changes.
			path := fill(row[2])
			if path == "/v1/events" {
				path += "?types=x" // a stream has no end
			}
			got := a.do(m, path, "[", `If-Match: "none"`)
			switch {
			case slices.Contains(methods, m) && (got.status == 404 || got.status == 405):
				t.Errorf("docs/api.md lists %s %s: %d %s", m, row[2], got.status, got.body)
			case !slices.Contains(methods, m) && got.status != 405:
				t.Errorf("%s %s is possible and not in docs/api.md: %d %s", m, row[2], got.status, got.body)
			case got.status == 405:
				for _, x := range methods {
					if !strings.Contains(got.header.Get("Allow"), x) {
						t.Errorf("%s: Allow is %q, without %s", got.request, got.header.Get("Allow"), x)
					}
				}
			}
		}
	}
	a.want(a.do("GET", "/meshes/default/dataplanes/web", ""), 200) // nothing was deleted
}

// TestReferenceDocuments: each document that docs/api.md shows has the fields of a schema of
// docs/openapi.yaml, or some of them, and no others.
func TestReferenceDocuments(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	b := newSpecification(t)
	for _, op := range operations {
		b.of(op.body)
		b.of(op.answer)
	}
	b.of(api.Error{})
	b.partial = true
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) < 15 {
		t.Fatalf("only %d documents found in docs/api.md", len(blocks))
	}
	for _, m := range blocks {
		var v any
		d := json.NewDecoder(bytes.NewReader(m[1]))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Errorf("%v: %s", err, m[1])
			continue
		}
		fields, _ := v.(map[string]any)
		var nearest error // of the schema that has most of the fields
		most, fits := 0, false
		for name, of := range b.defined {
			if name == "Resource" || strings.HasPrefix(name, "PageOf") {
				continue // they take anything
			}
			err := b.fits(v, &schema{ref: name}, name)
			fits = fits || err == nil
			known := 0
			for _, f := range of.fields {
				if _, there := fields[f.name]; there {
					known++
				}
			}
			if known > most {
				most, nearest = known, err
			}
		}
		if !fits {
			t.Errorf("docs/api.md: no schema has the fields of this document: %v\n%s", nearest, m[1])
		}
	}
}

// TestReferenceProblems compares the problems that docs/api.md lists with those of operations in
// docs/openapi.yaml.
func TestReferenceProblems(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	none := []string{"405 method-not-allowed", "502 unreachable"} // of no operation, and of the page
	shown := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `/problems/([a-z-]+)` \\| ([0-9, ]+) \\|").
		FindAllStringSubmatch(string(text), -1) {
		for status := range strings.SplitSeq(row[2], ", ") {
			shown[status+" "+row[1]] = true
		}
	}
	used := map[string]bool{}
	spec().each(func(_, _ string, op *specOperation) {
		for status, r := range op.Responses {
			for _, typ := range r.problems() {
				used[status+" "+strings.TrimPrefix(typ, "/problems/")] = true
			}
		}
	})
	for p := range used {
		if !shown[p] {
			t.Errorf("docs/api.md does not list the problem %s", p)
		}
	}
	for p := range shown {
		if !slices.Contains(none, p) && !used[p] {
			t.Errorf("docs/api.md lists the problem %s, which no operation has", p)
		}
	}
	for p := range problems {
		if !used[p] {
			t.Errorf("no operation has the problem %s", p)
		}
	}
}
