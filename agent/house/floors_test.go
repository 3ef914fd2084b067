package house

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// testSupport are the packages that only tests import.
var testSupport = []string{"agent/kindtest", "agent/agenttest", "agent/traffictest", "agent/secrettest", "agent/envoytest"}

const (
	// below stands for every package on a lower floor.
	below = "everything below"
	// parent stands for the package whose folder holds the one of the row.
	parent = "its plugin"
)

// floor is one row of the table of floors.
type floor struct {
	level int
	dir   string // a package, or "a/*" for all that lie directly below a
	may   []string
	why   string // said when the rule is broken
}

// floors is the table of ARCHITECTURE.md; TestArchitectureShowsTheFloors keeps the two alike.
var floors = []floor{
	{8, "cmd/agent", []string{"agent", "agent/client", "agent/clip", "agent/config", "agent/envoybin", "agent/hold", "agent/intercept", "agent/jsonpath", "agent/keyring", "agent/logread", "agent/offline", "agent/reachable", "agent/refusals", "agent/sockets", "agent/source/metadata", "agent/token"}, "main reads flags, prints results and sets the exit code; what it does is in packages that a test can start"},
	{8, "examples/*", []string{below}, "an example is a program of its own that shows the parts at work"},
	{8, "agent/house", nil, "the rules of the house are tests alone"},
	{8, "agent/agenttest", []string{below}, "test support starts agents as a user does"},
	{8, "agent/traffictest", []string{below}, "the tests of traffic use the agent as a user does"},
	{7, "agent", []string{below}, "the daemon puts the parts together and computes nothing"},
	{6, "agent/reconcile", []string{"agent/inspect", "agent/change", "agent/attribute", "agent/xds", "agent/generate", "agent/kinds", "agent/policy", "agent/store", "agent/mesh", "agent/draft", "agent/identity", "agent/node", "agent/envoy", "agent/envoy/*", "agent/resource", "agent/clip", "agent/files", "agent/debounce"}, "the loop puts pure functions together and publishes what they return"},
	{6, "agent/source/directory", []string{"agent/inspect", "agent/store", "agent/resource", "agent/files", "agent/debounce", "agent/access"}, "a source brings resources into the store and does not know what they do"},
	{6, "agent/source/peers", []string{"agent/inspect", "agent/identity", "agent/keyring", "agent/store", "agent/resource", "agent/files", "gossip", "gossip/engine"}, "a source brings resources into the store and does not know what they do"},
	{6, "agent/source/metadata", []string{"agent/inspect", "agent/xds", "agent/store", "agent/node", "agent/resource", "agent/clip", "agent/access"}, "a source brings resources into the store and does not know what they do"},
	{6, "agent/offline", []string{"agent/envoybin", "agent/inspect", "agent/change", "agent/explain", "agent/names", "agent/generate", "agent/kinds", "agent/policy", "agent/mesh", "agent/identity", "agent/node", "agent/jsonpatch", "agent/resource", "agent/files", "agent/workers"}, "offline work uses the functions that the loop uses"},
	{6, "agent/refusals", []string{"agent/explain", "agent/envoy", "agent/envoy/*", "agent/clip"}, "a proposal is made of lines and answers, wherever they come from"},
	{6, "agent/reachable", []string{"rotation", "agent/explain", "agent/mesh", "agent/resource", "agent/envoy", "agent/envoy/*", "agent/clip"}, "a proposal is made of lines and of what the mesh says of its services"},
	{6, "agent/logread", []string{"rotation", "agent/envoy", "agent/envoy/logline", "agent/clip"}, "lines are shown by what stands in them, wherever they come from"},
	{6, "agent/resolver", []string{"agent/inspect", "agent/names", "agent/config", "agent/generate", "agent/resource", "agent/sockets", "dns", "rotation"}, "the resolver answers from a table that others have made, and decides nothing about names"},
	{6, "agent/logs", []string{"accesslog", "rotation", "agent/config", "agent/envoyadmin", "agent/draft", "agent/access", "agent/node", "agent/clip"}, "logs are routed by values that others have made, and no policy is known here"},
	{6, "agent/envoybin", []string{"agent/inspect", "agent/change", "agent/generate", "agent/redact", "agent/envoy", "agent/envoy/finding"}, "a real Envoy is asked about a finished config"},
	{6, "agent/client", []string{"agent/inspect", "agent/change", "agent/explain", "agent/jsonpatch", "agent/policy", "agent/resource"}, "a client knows the API and the resources, never the inside of the agent"},
	{5, "agent/kindtest", []string{below}, "the cases of a kind are run through the whole corridor"},
	{5, "agent/inspect", []string{"agent/change", "agent/explain", "agent/names", "agent/generate", "agent/xds", "agent/envoy", "agent/envoy/*", "agent/policy", "agent/mesh", "agent/draft", "agent/store", "agent/node", "agent/resource", "agent/jsonpatch", "agent/audit", "agent/clip", "agent/access", "agent/token", "agent/workers"}, "the API shows what other packages have decided"},
	{5, "agent/change", []string{"agent/attribute", "agent/explain", "agent/generate", "agent/envoy", "agent/envoy/*", "agent/policy", "agent/mesh", "agent/draft", "agent/node", "agent/resource", "agent/jsonpatch"}, "what a change does is a pure function of two sets of resources"},
	{5, "agent/attribute", []string{"agent/generate", "agent/xds", "agent/envoy", "agent/envoy/*", "agent/draft", "agent/node", "agent/resource", "agent/jsonpatch"}, "the policies behind a config are found by making it without them, whatever they say"},
	{5, "agent/explain", []string{"agent/attribute", "agent/names", "dns", "agent/jsonpatch", "agent/generate", "agent/envoy", "agent/envoy/*", "agent/policy", "agent/mesh", "agent/draft", "agent/node", "agent/resource", "agent/clip"}, "an explanation reads finished config and decides nothing"},
	{4, "agent/generate", []string{"agent/draft", "agent/policy", "agent/mesh", "agent/resource", "agent/envoy", "agent/envoy/*", "agent/identity", "agent/node", "agent/redact", "agent/clip"}, "the corridor knows no policy by name and no store"},
	{4, "agent/xds", []string{"agent/envoy/finding", "agent/draft", "agent/node", "agent/clip", "agent/access", "agent/token"}, "the server serves bytes and decides nothing about policies"},
	{4, "agent/kinds", []string{"agent/policy", "agent/resource", "agent/kinds/*", "agent/kinds/*/legacy"}, "the list of kinds is a list, not a place for logic"},
	{3, "agent/kinds/*/legacy", []string{parent, "agent/kinds/toolkit", "agent/policy", "agent/draft", "agent/mesh", "agent/resource", "agent/envoy/*"}, "a legacy kind knows the plugin that replaces it and no other, so that it can be deleted alone"},
	{3, "agent/kinds/*", []string{"agent/kinds/toolkit", "agent/policy", "agent/draft", "agent/mesh", "agent/resource", "agent/envoy", "agent/envoy/*", "agent/jsonpatch", "agent/clip", "dns"}, "a plugin never knows another plugin, so that each can be added or deleted alone"},
	{3, "agent/kinds/toolkit", []string{"agent/policy", "agent/draft", "agent/mesh", "agent/resource", "agent/clip"}, "what plugins share knows none of them"},
	{3, "agent/names", []string{"agent/policy", "agent/mesh", "agent/resource", "dns"}, "which names there are is a pure function of the views"},
	{2, "agent/policy", []string{"agent/draft", "agent/mesh", "agent/resource", "agent/envoy/match", "agent/clip"}, "matching and merging are pure functions of resources and the view"},
	{2, "agent/host", []string{"agent/access", "agent/node", "agent/envoy/finding", "agent/clip"}, "it looks at processes and files of the host, and knows no resource and no mesh"},
	{2, "agent/envoyadmin", []string{"agent/access"}, "it asks one Envoy, and knows no config and no mesh"},
	{2, "agent/intercept", []string{"agent/sockets", "dns"}, "it redirects packets to a resolver, and knows no mesh"},
	{2, "agent/config", []string{"agent/mesh", "agent/resource", "agent/access"}, "the config is values, read and checked once"},
	{1, "agent/store", []string{"agent/resource"}, "the store keeps records and does not know what they do"},
	{1, "agent/mesh", []string{"agent/resource"}, "the view is a pure function of resources"},
	{1, "agent/draft", []string{"agent/resource", "agent/envoy"}, "a draft is Envoy's messages keyed by mesh names, nothing more"},
	{1, "agent/identity", []string{"agent/resource", "agent/files"}, "certificates do not depend on what they are used for"},
	{1, "agent/node", []string{"agent/resource"}, "names of clients are values"},
	{1, "agent/access", []string{"agent/token", "agent/resource", "agent/clip"}, "who may do what depends on the peer and the rules, never on what is asked for"},
	{2, "agent/auditlog", []string{"agent/audit", "agent/store", "agent/resource", "rotation"}, "the file of the audit log knows what changes, and not who may change it"},
	{1, "agent/audit", []string{"agent/clip"}, "events and profiles are values"},
	{1, "agent/sockets", []string{"dns"}, "it opens sockets for whoever serves them, and whoever holds them does not know what they are for"},
	{0, "agent/keyring", []string{"agent/files"}, "the keys of a pool are read and changed by whoever has the file"},
	{0, "agent/token", []string{"agent/files", "agent/clip"}, "a token is verified by whoever asks, and does not know what it opens"},
	{0, "agent/resource", []string{"agent/clip"}, "the ground floor stands on nothing"},
	{0, "agent/jsonpath", []string{}, "a query knows the document alone"},
	{0, "agent/jsonpatch", []string{"agent/clip"}, "RFC 6902 does not know the mesh"},
	{0, "agent/envoy", nil, "Envoy's rules do not know the mesh"},
	{0, "agent/envoy/finding", []string{"agent/envoy", "agent/clip"}, "Envoy's rules do not know the mesh"},
	{0, "agent/envoy/match", []string{"agent/envoy", "agent/envoy/finding", "agent/clip"}, "Envoy's rules do not know the mesh"},
	{0, "agent/envoy/load", []string{"agent/envoy", "agent/envoy/*", "agent/clip"}, "Envoy's rules do not know the mesh"},
	{0, "agent/envoy/substitution", []string{"agent/clip"}, "Envoy's rules do not know the mesh"},
	{0, "agent/envoy/logline", []string{"agent/envoy/substitution", "agent/clip"}, "Envoy's rules do not know the mesh"},
	{0, "agent/redact", nil, "what is secret in a message is declared by whoever asks"},
	{0, "agent/clip", nil, "shortened text is text"},
	{0, "agent/hold", nil, "what outlives the agent is kept by name, whatever it is for"},
	{0, "agent/files", nil, "files do not know what is in them"},
	{0, "agent/memory", nil, "who watches over memory does not know what it is used for"},
	{0, "agent/workers", nil, "who spreads work does not know what it is"},
	{0, "agent/debounce", nil, "a timer does not know what it is for"},
	{0, "agent/secrettest", nil, "tests of every floor look for keys"},
	{0, "agent/envoytest", nil, "tests of every floor ask a real Envoy"},
	{0, "gossip", []string{"gossip/engine"}, "a stand-alone library does not know the mesh"},
	{0, "gossip/engine", nil, "what replicates is a state machine, and does not know what carries its messages"},
	{0, "dns", nil, "a stand-alone library does not know the mesh"},
	{0, "accesslog", []string{"rotation"}, "a stand-alone library does not know the mesh; of the others it may use rotation alone"},
	{0, "rotation", nil, "a stand-alone library does not know the mesh"},
}

// floorOf finds the row of a directory; an exact name goes before a pattern.
func floorOf(dir string) (floor, bool) {
	for _, f := range floors {
		if f.dir == dir {
			return f, true
		}
	}
	for _, f := range floors {
		if matches(dir, []string{f.dir}) {
			return f, true
		}
	}
	return floor{}, false
}

// allows reports whether the non-test files of a package on this floor, own, may import a directory of the module.
func (f floor) allows(own, dir string) bool {
	if slices.Contains(f.may, below) {
		o, ok := floorOf(dir)
		return ok && o.level < f.level
	}
	return matches(dir, f.may) || slices.Contains(f.may, parent) && dir == path.Dir(own)
}

// testsMay reports whether the test files of a package may import a directory: what the package may, whatever does not
// lie above it, since a test drives its package with real neighbours, and the list of kinds, to write its resources as
// documents. The stand-alone libraries stay alone.
func (f floor) testsMay(own, dir string) bool {
	if dir == own || f.allows(own, dir) || strings.HasPrefix(dir, own+"/") {
		return true
	}
	if (dir == "agent/secrettest" || dir == "agent/envoytest") && strings.HasPrefix(own, "agent/") {
		return true // they stand on nothing themselves
	}
	o, ok := floorOf(dir)
	return ok && f.level > 0 && (o.level <= f.level || dir == "agent/kinds" || matches(dir, testSupport))
}

// ruleFloors: a package imports only what its row of the table allows.
func ruleFloors(t *tree) []breach {
	var out []breach
	for _, p := range t.pkgs {
		own, ok := floorOf(p.dir)
		if !ok {
			out = append(out, breach{p.dir, "the package is on no floor: add it to the tables in agent/house/floors_test.go and ARCHITECTURE.md with what it may import and why, or move its code to where it is at home"})
			continue
		}
		for _, f := range p.files {
			for importPath, spec := range f.imports() {
				dir, ok := t.inModule(importPath)
				if !ok {
					continue
				}
				if f.test && own.testsMay(p.dir, dir) || !f.test && own.allows(p.dir, dir) {
					continue
				}
				out = append(out, breach{f.at(spec), fmt.Sprintf("%s (floor %d) must not import %s: %s; it may import: %s",
					p.dir, own.level, dir, own.why, listed(own.may))})
			}
		}
	}
	return out
}

func listed(s []string) string {
	if len(s) == 0 {
		return "nothing of this module"
	}
	return strings.Join(s, ", ")
}

// TestFloorsAreAHouse checks the table itself: no package rests on a higher floor, and no row names a package that is
// on no floor.
func TestFloorsAreAHouse(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range floors {
		if seen[f.dir] {
			t.Errorf("%s stands twice in the table", f.dir)
		}
		seen[f.dir] = true
		for _, d := range f.may {
			if d == below || d == parent {
				continue
			}
			o, ok := floorOf(d)
			if strings.HasSuffix(d, "/*") {
				continue
			}
			if !ok {
				t.Errorf("%s may import %s, which is on no floor", f.dir, d)
			} else if o.level > f.level {
				t.Errorf("%s (floor %d) may import %s from floor %d above it", f.dir, f.level, d, o.level)
			}
		}
	}
	for _, alone := range []string{"gossip", "dns", "accesslog", "rotation"} {
		if !seen[alone] {
			t.Errorf("%s is missing in the table (it has %v)", alone, slices.Sorted(maps.Keys(seen)))
		}
	}
}
