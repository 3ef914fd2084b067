package route_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// TestRoutes checks the order of routes of the proxy web-01, which TestCases does not, because it
// identifies items by name. Each line is a route with its match, its action, and the first letters
// of its name. The endpoints of clusters and the warnings follow.
func TestRoutes(t *testing.T) {
	kindtest.Cases(t, "testdata/routes/*.txtar", func(t *testing.T, file string, a *txtar.Archive) {
		if len(a.Files) != 2 {
			t.Fatalf("%d sections, want input.yaml and routes.txt", len(a.Files))
		}
		got := show(t, a.Files[0].Data)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			a.Files[1].Data = []byte(got)
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(strings.Split(string(a.Files[1].Data), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("routes: UPDATE_GOLDEN=1 updates them (-want +got):\n%s", diff)
		}
	})
}

func show(t *testing.T, input []byte) string {
	t.Helper()
	p := kindtest.Generator(t, input, "web-01")()
	doc, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, url := range slices.Sorted(maps.Keys(doc)) {
		for _, name := range slices.Sorted(maps.Keys(doc[url])) {
			var v map[string]any
			if err := json.Unmarshal(doc[url][name], &v); err != nil {
				t.Fatal(err)
			}
			switch url[strings.LastIndexByte(url, '.')+1:] {
			case "Listener":
				if strings.HasPrefix(name, "outbound:") {
					showListener(&b, name, v)
				}
			case "ClusterLoadAssignment":
				fmt.Fprintf(&b, "%s:%s\n", name, addresses(v))
			}
		}
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "! %s: %s\n", w.Resource, w.Reason)
	}
	return b.String()
}

func showListener(b *strings.Builder, name string, v map[string]any) {
	for _, chain := range v["filterChains"].([]any) {
		for _, f := range chain.(map[string]any)["filters"].([]any) {
			config := f.(map[string]any)["typedConfig"].(map[string]any)
			delete(config, "@type")
			routes, ok := config["routeConfig"].(map[string]any)
			if !ok {
				fmt.Fprintf(b, "%s %s\n", name, line(config))
				continue
			}
			for _, h := range routes["virtualHosts"].([]any) {
				host := h.(map[string]any)
				fmt.Fprintf(b, "%s %v %v\n", name, routes["name"], host["name"])
				for _, r := range host["routes"].([]any) {
					route := r.(map[string]any)
					match, id := route["match"], fmt.Sprint(route["name"])
					delete(route, "match")
					delete(route, "name")
					fmt.Fprintf(b, "  %s %s %.6s\n", line(match), line(route), id)
				}
			}
		}
	}
}

// line formats JSON on one line.
func line(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// addresses lists all addresses in a value.
func addresses(v any) string {
	out := ""
	switch v := v.(type) {
	case map[string]any:
		if a, ok := v["address"].(string); ok {
			return fmt.Sprintf(" %s:%v", a, v["portValue"])
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out += addresses(v[k])
		}
	case []any:
		for _, x := range v {
			out += addresses(x)
		}
	}
	return out
}
