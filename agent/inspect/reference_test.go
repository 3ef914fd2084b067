package inspect_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/store"
)

// TestReferencePaths asks for every path that docs/api.md lists with every method: exactly those of its row are possible.
func TestReferencePaths(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
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
		return strings.NewReplacer("{mesh}", "default", "{plural}", plural, "{name}", name).Replace(path)
	}
	for _, row := range rows {
		methods := strings.Split(strings.ReplaceAll(row[1], `\|`, "|"), "|")
		for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
			// The body is none that is taken, and so is the condition, so that nothing changes.
			got := a.do(m, fill(row[2]), "[", `If-Match: "none"`)
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
