package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/web"
)

// The golden file says for each route of the API whether the page may use it, except for those that
// only read with GET. A new route that is
// not a GET is refused without --write until someone has decided about it.
func TestReadOnly(t *testing.T) {
	list, err := os.ReadFile("../httpapi/testdata/routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	read := up(t, nil).login()
	write := up(t, func(o *web.Options) { o.Write = true }).login()
	var out strings.Builder
	routes := 0
	for line := range strings.Lines(string(list)) {
		route, _, _ := strings.Cut(line, ":")
		method, pattern, ok := strings.Cut(route, " ")
		if !ok {
			t.Fatalf("the line %q has no route", line)
		}
		routes++
		pattern = strings.TrimSpace(pattern)
		path := strings.NewReplacer("{$}", "", "{plural}", "meshtimeouts", "{mesh}", "default", "{name}", "web",
			"{kind}", "dataplane", "{item}", "log").Replace(pattern)
		if strings.ContainsAny(path, "{}") {
			t.Fatalf("the pattern %q has an unknown part", pattern)
		}
		passes := func(p *page, path string) bool {
			t.Helper()
			before := len(p.api.seen)
			a := p.send(method, "/api"+path, p.asPage(), "")
			passed := len(p.api.seen) > before
			if passed != (a.status == 200) || !passed && a.status != 403 {
				t.Errorf("%s %s: %d, passed: %v", method, path, a.status, passed)
			}
			return passed
		}
		now := "refused"
		switch plain, dry := passes(read, path), passes(read, path+"?dryRun=true"); {
		case plain:
			now = "read-only"
		case dry:
			now = "read-only with dryRun=true, else --write"
		case passes(write, path):
			now = "--write"
		}
		if !passes(write, path) && now != "refused" {
			t.Errorf("%s %s passes only without --write", method, path)
		}
		for _, trick := range []string{"?dryRun=false", "?dryRun=true&dryRun=false", "?dryRun=TRUE", "?x=dryRun=true",
			"?dryRun=true&%zz", "?dryRun=true;x"} {
			if now != "read-only" && passes(read, path+trick) {
				t.Errorf("%s %s%s passes without --write", method, path, trick)
			}
		}
		if method != "GET" || now != "read-only" {
			fmt.Fprintf(&out, "%-6s %s: %s\n", method, pattern, now)
		}
	}
	if routes < 80 {
		t.Errorf("only %d routes", routes)
	}
	golden := filepath.Join("testdata", "routes.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != out.String() {
		t.Errorf("routes have changed; review them, and run UPDATE_GOLDEN=1 go test ./agent/serve/web:\n%s", out.String())
	}
}
