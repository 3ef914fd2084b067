package house

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// avoided lists import path prefixes that must not be used, with the reason.
var avoided = map[string]string{
	"github.com/spf13/viper":             "it lower-cases keys and hides strict errors; agent reads its config itself",
	"sigs.k8s.io/controller-runtime":     "nearside needs no Kubernetes API",
	"k8s.io/":                            "nearside needs no Kubernetes API",
	"github.com/gin-gonic/gin":           "net/http routes by method and path",
	"github.com/labstack/echo":           "net/http routes by method and path",
	"github.com/gorilla/mux":             "net/http routes by method and path",
	"github.com/go-chi/chi":              "net/http routes by method and path",
	"github.com/emicklei/go-restful":     "net/http routes by method and path",
	"go.uber.org/fx":                     "what is built from what stands in agent, in order",
	"go.uber.org/dig":                    "what is built from what stands in agent, in order",
	"github.com/google/wire":             "what is built from what stands in agent, in order",
	"github.com/golang/mock":             "tests go through the public face with real neighbours",
	"go.uber.org/mock":                   "tests go through the public face with real neighbours",
	"github.com/stretchr/testify":        "go-cmp shows differences; a test says what it wants in its own words",
	"github.com/sirupsen/logrus":         "the log is log/slog",
	"go.uber.org/zap":                    "the log is log/slog",
	"gopkg.in/yaml.v2":                   "it is no longer kept; go.yaml.in/yaml/v3 has line numbers",
	"gopkg.in/yaml.v3":                   "it is no longer kept; go.yaml.in/yaml/v3 is its successor",
	"github.com/golang/protobuf":         "google.golang.org/protobuf is its successor",
	"github.com/pkg/errors":              "errors are wrapped with fmt.Errorf and %w",
	"github.com/kumahq/kuma":             "its formats are read, its code is not used",
	"github.com/hashicorp/go-multierror": "errors.Join",
}

// reflectors lists the packages that may use reflection, to convert documents to typed values and
// back.
var reflectors = []string{"agent/base/strict", "agent/model/resource", "agent/model/schema", "agent/model/secret",
	"agent/model/value", "agent/host/config", "agent/source/metadata"}

// ruleModules forbids rejected modules, and reflection outside reflectors.
func ruleModules(t *tree) []breach {
	var out []breach
	t.each(func(p *pkg, f *file) {
		for importPath, spec := range f.imports() {
			for prefix, why := range avoided {
				if isBelow(importPath, prefix) {
					out = append(out, breach{f.at(spec), importPath + " is not used here: " + why})
				}
			}
			if importPath == "log" {
				out = append(out, breach{f.at(spec), "the log is log/slog, one logger passed down"})
			}
			if importPath == "reflect" && !f.test && !matches(p.dir, reflectors) {
				out = append(out, breach{f.at(spec), "reflection outside " + listed(reflectors) +
					": documents are parsed into typed values at the edge, the middle knows its types"})
			}
		}
	})
	return out
}

// isBelow reports whether an import path equals a prefix or is below it.
func isBelow(importPath, prefix string) bool {
	if strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(importPath, prefix)
	}
	return importPath == prefix || strings.HasPrefix(importPath, prefix+"/")
}

const decisionsDir = "docs/decisions"

// moduleRow matches a table row that starts with a module in backquotes.
var moduleRow = regexp.MustCompile("(?m)^\\| `([^`]+\\.[^`]+/[^`]+)` \\|")

// ruleDecisions requires that docs/decisions contains a reason for every imported module, and that
// the tables there list no unused modules. Only imports count, not the comments in go.mod.
func ruleDecisions(t *tree) []breach {
	used := map[string]string{} // by module: first location of an import
	var out []breach
	t.each(func(_ *pkg, f *file) {
		for importPath, spec := range f.imports() {
			if m := t.owner(importPath); m != "" && used[m] == "" {
				used[m] = f.at(spec)
			}
		}
	})
	named := map[string]string{} // document by module
	names, err := fs.Glob(t.fsys, path.Join(decisionsDir, "*.md"))
	if err != nil {
		return []breach{{decisionsDir, err.Error()}}
	}
	for _, n := range names {
		text, err := fs.ReadFile(t.fsys, n)
		if err != nil {
			out = append(out, breach{n, err.Error()})
			continue
		}
		for _, m := range moduleRow.FindAllSubmatch(text, -1) {
			named[string(m[1])] = n
		}
	}
	for _, m := range slices.Sorted(maps.Keys(used)) {
		if named[m] == "" {
			out = append(out, breach{used[m], "module " + m + " is used without a reason: add a row for it to a table in " +
				decisionsDir + " that says what it is for, or do without it"})
		}
	}
	for _, m := range slices.Sorted(maps.Keys(named)) {
		if used[m] == "" {
			out = append(out, breach{named[m], "module " + m + " has a reason but is not imported any more: remove its row"})
		}
	}
	return out
}
