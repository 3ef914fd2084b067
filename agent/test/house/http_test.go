package house

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// speakHTTP lists the packages that may depend on net/http: the API with its client and commands,
// Envoy's admin interface, the sender of OTLP over HTTP, and the packages that start them.
var speakHTTP = []string{"agent", "agent/serve/*", "agent/serve/cli/*", "agent/host/envoyadmin", "accesslog/otlp",
	"agent/test/*", "cmd/*", "examples/*"}

// Only the wiring package imports the API handlers.
const handlers, wiring = "agent/serve/httpapi", "agent"

// ruleHTTP requires that no other package of the module imports net/http directly or indirectly,
// and that only the wiring package imports the handlers. Tests, test support, and other modules are
// exempt.
func ruleHTTP(t *tree) []breach {
	var out []breach
	edges := map[string]map[string]ast.Node{} // imports of each package, by folder
	at := map[ast.Node]*file{}
	speaks := map[string]string{} // chain of imports that leads to net/http, by folder
	t.each(func(p *pkg, f *file) {
		for importPath, spec := range f.imports() {
			dir, inModule := t.inModule(importPath)
			switch {
			case f.test:
			case importPath == "net/http" || strings.HasPrefix(importPath, "net/http/"):
				speaks[p.dir] = importPath
				at[spec] = f
				add(edges, p.dir, importPath, spec)
			case inModule:
				if dir == handlers && p.dir != wiring && !testSupport(p.dir) {
					out = append(out, breach{f.at(spec), "only " + wiring + " imports the handlers of the API: " +
						"move what is needed into a package of a lower floor"})
				}
				at[spec] = f
				add(edges, p.dir, dir, spec)
			}
		}
	})
	for more := true; more; {
		more = false
		for _, dir := range slices.Sorted(maps.Keys(edges)) {
			for _, to := range slices.Sorted(maps.Keys(edges[dir])) {
				if speaks[to] != "" && speaks[dir] == "" {
					speaks[dir], more = to, true
				}
			}
		}
	}
	for dir, to := range speaks {
		spec := edges[dir][to]
		if matches(dir, speakHTTP) {
			continue
		}
		way := to
		for next := speaks[to]; next != ""; next = speaks[next] {
			way += ", which imports " + next
		}
		out = append(out, breach{at[spec].at(spec), "HTTP is a leaf, and this package imports " + way + ": only " +
			listed(speakHTTP) + " may depend on net/http; move documents into agent/model/api"})
	}
	return out
}

func add(edges map[string]map[string]ast.Node, from, to string, spec ast.Node) {
	if edges[from] == nil {
		edges[from] = map[string]ast.Node{}
	}
	edges[from][to] = spec
}
