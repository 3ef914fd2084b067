package house

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// wings maps folders to their floor. The longest prefix of a package's folder applies. A package
// may import packages of the same wing and of lower floors, so data flows in one direction through
// the tree.
var wings = map[string]int{
	"accesslog": 0, "dns": 0, "gossip": 0, "rotation": 0, // libraries without knowledge of meshes
	"agent/base":    1,                // utilities without knowledge of meshes
	"agent/model":   2,                // resources and data types
	"agent/host":    3,                // the node
	"agent/compute": 4,                // resources to sealed config
	"agent/source":  5,                // sources of resources
	"agent/answer":  5,                // questions about resources and config
	"agent/deliver": 6,                // delivery of config to proxies
	"agent/serve":   7,                // for users and programs
	"agent":         8,                // wiring
	"cmd":           9, "examples": 9, // programs
	"agent/test": 9, // test support and tests of the whole agent
}

// exceptions lists imports that the floors do not allow, each with its reason. The number of
// exceptions is limited to maxExceptions.
var exceptions = map[[2]string]string{}

const maxExceptions = 0

// wingOf returns the wing of a folder and its floor; ok is false for a folder outside all wings.
func wingOf(dir string) (wing string, floor int, ok bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		if f, found := wings[d]; found {
			return d, f, d != "agent" || dir == "agent"
		}
	}
	return "", 0, false
}

// mayImport reports whether files of package from may import package to. Tests use the real
// dependencies of their package: a test may also import packages in its folder and on the same
// floor, test support, and the list of kinds, which lets it write resources as documents. A test
// of a library stays within its floor.
func mayImport(from, to string, test bool) bool {
	own, floor, _ := wingOf(from)
	wing, below, ok := wingOf(to)
	switch {
	case !ok:
		return false
	case floor == 0 && !test, floor == 0 && below == 0:
		return wing == own || wing == "rotation" && own == "accesslog"
	case floor == 0:
		return false
	case wing == own && wing != "examples", below < floor && wing != "agent/test":
		return true
	}
	return test && (wing == "agent/test" || below == floor || to == kindList)
}

// kindList is the package with the list of policy kinds.
const kindList = "agent/compute/kinds"

// ruleFloors requires that a package imports only its own wing and lower floors.
func ruleFloors(t *tree) []breach {
	var out []breach
	for _, p := range t.pkgs {
		wing, floor, ok := wingOf(p.dir)
		if !ok {
			out = append(out, breach{p.dir, "the folder is in no wing: move the package into the wing of its stage (" +
				"see ARCHITECTURE.md), which sets what it may import"})
			continue
		}
		for _, f := range p.files {
			for importPath, spec := range f.imports() {
				dir, ok := t.inModule(importPath)
				if !ok || mayImport(p.dir, dir, f.test) || exceptions[[2]string{p.dir, dir}] != "" {
					continue
				}
				other, above, _ := wingOf(dir)
				out = append(out, breach{f.at(spec), fmt.Sprintf("%s (floor %d) must not import %s (%s, floor %d): "+
					"a package imports its own wing and lower floors only; move the shared code down, or this code up",
					wing, floor, dir, other, above)})
			}
		}
	}
	return append(out, ruleExceptions(t)...)
}

// ruleExceptions requires that each exception is in use and that there are few of them.
func ruleExceptions(t *tree) []breach {
	var out []breach
	if len(exceptions) > maxExceptions {
		out = append(out, breach{"exceptions", fmt.Sprintf("%d exceptions from the floors, at most %d are allowed",
			len(exceptions), maxExceptions)})
	}
	if !slices.ContainsFunc(t.pkgs, func(p *pkg) bool { return p.dir == "agent/test/house" }) {
		return out // a small tree from testdata
	}
	for e := range exceptions {
		used := false
		t.each(func(p *pkg, f *file) {
			for importPath := range f.imports() {
				dir, _ := t.inModule(importPath)
				used = used || p.dir == e[0] && dir == e[1]
			}
		})
		if !used {
			out = append(out, breach{e[0], "the exception for " + e[1] + " is not used: delete it"})
		}
	}
	return out
}

// testSupport reports whether only tests import a package.
func testSupport(dir string) bool {
	return strings.HasPrefix(dir, "agent/test/") || dir == "accesslog/accesslogtest"
}

func listed(s []string) string {
	if len(s) == 0 {
		return "nothing of this module"
	}
	return strings.Join(s, ", ")
}
