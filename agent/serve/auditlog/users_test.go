package auditlog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// constants returns the string constants of a file whose names have a prefix.
func constants(t *testing.T, path, prefix string) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, prefix) && len(spec.Values) == 1 {
			if value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err == nil {
				out = append(out, value)
			}
		}
		return true
	})
	if len(out) < 5 {
		t.Fatalf("%s has only the constants %v", path, out)
	}
	return out
}

// TestUsersAreDocumented: docs/audit.md has each name of a user that is not a user of the host or
// of a token, and each source of changes has such a name.
func TestUsersAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	names := constants(t, "../audit/event.go", "User")
	for _, name := range names {
		if !strings.Contains(string(page), "\n| `"+name) && !strings.Contains(string(page), "; `"+name) {
			t.Errorf("docs/audit.md does not name the user %s", name)
		}
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	l, stop := run(t, auditlog.Options{Path: path, Profile: audit.ProfileDefault})
	defer stop()
	var sources []string
	for _, kind := range constants(t, "../../model/store/source.go", "Source") {
		if kind != store.SourceAPI { // its event is that of the request
			sources = append(sources, kind)
			change := store.Change{Key: resource.Key{Kind: "Mesh", Name: kind},
				Revision: store.Revision{Time: time.Now(), Source: store.Source{Kind: kind, Detail: "x"}}}
			l.Changed([]store.Change{change}, func(string) string { return "meshes" },
				func() func(string, sign.ID) api.Author { return nil })
		}
	}
	stop()
	for i, line := range lines(t, path) {
		_, user, _ := strings.Cut(line, `"username":"`)
		user = user[:strings.IndexByte(user, '"')]
		known := false
		for _, name := range names {
			known = known || user == name || user == name+"x"
		}
		if !known {
			t.Errorf("the user of the source %s is %s, which is none of %v", sources[i], user, names)
		}
	}
}

// TestRefusedWriteAfterRefusedReads: a flood of refused reads hides no refused write.
func TestRefusedWriteAfterRefusedReads(t *testing.T) {
	var limits auditlog.Refusals
	now := time.Now()
	recorded := 0
	for range 5000 {
		if _, ok := limits.Allow("uid 1000", false, now); ok {
			recorded++
		}
	}
	if recorded != 200 {
		t.Errorf("%d refused reads have events, want 200", recorded)
	}
	if n, ok := limits.Allow("uid 1000", true, now); !ok || n != 0 {
		t.Error("the refused write has no event")
	}
	if n, ok := limits.Allow("uid 1000", false, now.Add(time.Second)); !ok || n != 4800 {
		t.Errorf("%v: %d suppressed reads, want 4800", ok, n)
	}
}
