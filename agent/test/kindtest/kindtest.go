// Package kindtest runs the test cases of a policy kind: from resources to the changes that the
// kind makes to a proxy's config.
//
// A case is a txtar file (https://pkg.go.dev/golang.org/x/tools/txtar):
//
//	A description of the case. A line "dataplane: NAME" selects the proxy; the default is the first Dataplane. A line
//	"zone: NAME" sets the zone.
//	-- input.yaml --
//	resources in the universal format; the Mesh "default" is added if there is none
//	-- changes.txt --
//	+ TYPE/NAME/path/to/field = value     present only with the policies of the kind
//	- TYPE/NAME/path/to/field = value     present only without them
//	! KIND/MESH/NAME: reason              a warning
//
// List items with a name are identified by it, others by their index. If UPDATE_GOLDEN=1 is set,
// the last section is updated instead of compared.
package kindtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	inputFile   = "input.yaml"
	changesFile = "changes.txt"
)

// Run runs the cases in a directory for the kinds of a plugin.
func Run(t *testing.T, dir string, plugin policy.Plugin) {
	t.Helper()
	Each(t, dir, changesFile, func(t *testing.T, comment string, input []byte) string {
		return changes(t, comment, input, plugin)
	})
}

// Each compares the result of each case in a directory with a section of its file.
func Each(t *testing.T, dir, expected string, of func(t *testing.T, comment string, input []byte) string) {
	t.Helper()
	Cases(t, filepath.Join(dir, "*.txtar"), func(t *testing.T, file string, a *txtar.Archive) {
		golden(t, file, a, expected, of)
	})
}

// Cases runs a test for each file that matches a pattern.
func Cases(t *testing.T, pattern string, run func(t *testing.T, file string, a *txtar.Archive)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s (%v)", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			run(t, file, a)
		})
	}
}

// golden compares the result of a case with a section of its file.
func golden(t *testing.T, file string, a *txtar.Archive, expected string,
	of func(t *testing.T, comment string, input []byte) string) {
	t.Helper()
	in := section(a, inputFile)
	if in == nil {
		t.Fatalf("%s has no section %s", file, inputFile)
	}
	got := of(t, string(a.Comment), in.Data)
	out := section(a, expected)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if out == nil {
			a.Files = append(a.Files, txtar.File{Name: expected})
			out = &a.Files[len(a.Files)-1]
		}
		out.Data = []byte(got)
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := ""
	if out != nil {
		want = string(out.Data)
	}
	if diff := gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s: UPDATE_GOLDEN=1 updates it (-want +got):\n%s", expected, diff)
	}
}

func section(a *txtar.Archive, name string) *txtar.File {
	for i := range a.Files {
		if a.Files[i].Name == name {
			return &a.Files[i]
		}
	}
	return nil
}

// option returns the value of a line "name: value" of the comment.
func option(comment, name string) string {
	for line := range strings.Lines(comment) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// changes returns the changes that the policies of a plugin make to the config of one proxy.
func changes(t *testing.T, comment string, input []byte, plugin policy.Plugin) string {
	t.Helper()
	rs := InputOf(t, inputFile, input).Resources
	tested := map[string]bool{}
	for _, d := range slices.Concat(plugin.Kinds, plugin.Refers) {
		tested[d.Kind] = true
	}
	for _, l := range plugin.Legacy {
		tested[l.Kind] = true
	}
	name := option(comment, "dataplane")
	var base []*resource.Resource
	for _, r := range rs {
		if r.Kind == "Dataplane" && name == "" {
			name = r.Name
		}
		if !tested[r.Kind] {
			base = append(base, r)
		}
	}
	zone := option(comment, "zone")
	before, _ := config(t, base, zone, name)
	after, warnings := config(t, rs, zone, name)
	var b strings.Builder
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		was, had := before[path]
		is, has := after[path]
		if had && (!has || is != was) {
			fmt.Fprintf(&b, "- %s = %s\n", path, was)
		}
		if has && (!had || is != was) {
			fmt.Fprintf(&b, "+ %s = %s\n", path, is)
		}
	}
	for _, w := range warnings {
		if tested[w.Resource.Kind] {
			fmt.Fprintf(&b, "! %s: %s\n", w.Resource, w.Reason)
		}
	}
	return b.String()
}

// config returns the fields of a proxy's config by path, and the warnings about its resources.
func config(t *testing.T, rs []*resource.Resource, zone, name string) (map[string]string, []mesh.Warning) {
	t.Helper()
	m, err := generate.NewMesh(resource.NewSet(rs), resource.DefaultMesh, mesh.Options{Zone: zone}, kinds.Plugins(),
		policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := proxyOf(t, m, name)
	doc, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for url, list := range doc {
		for resourceName, body := range list {
			var v any
			d := json.NewDecoder(bytes.NewReader(body))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			flatten(out, url[strings.LastIndexByte(url, '.')+1:]+"/"+resourceName, v)
		}
	}
	warnings := slices.Concat(m.Policies.Warnings, p.Warnings)
	slices.SortFunc(warnings, func(a, b mesh.Warning) int {
		return cmp.Or(a.Resource.Compare(b.Resource), strings.Compare(a.Reason, b.Reason))
	})
	return out, slices.Compact(warnings)
}

// flatten adds every field below a value with its path.
func flatten(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[path] = "{}"
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			flatten(out, path+"/"+k, v[k])
		}
	case []any:
		if len(v) == 0 {
			out[path] = "[]"
		}
		seen := map[string]bool{}
		for i, item := range v {
			key := fmt.Sprint(i)
			if o, ok := item.(map[string]any); ok {
				if n, ok := o["name"].(string); ok && !seen[n] {
					key = n
				}
			}
			seen[key] = true
			flatten(out, path+"/"+key, item)
		}
	default:
		b, err := json.Marshal(v)
		if err != nil {
			b = fmt.Append(nil, v)
		}
		out[path] = string(b)
	}
}

// Generator decodes resources in the universal format, adds the Mesh "default" if there is none,
// and returns a function that generates the config of a dataplane with inline routes. It is for
// tests of properties that the cases do not show, such as the order of routes.
func Generator(t testing.TB, input []byte, dataplane string) func() *generate.Proxy {
	t.Helper()
	rs := InputOf(t, inputFile, input).Resources
	m, err := generate.NewMesh(resource.NewSet(rs), resource.DefaultMesh, mesh.Options{}, kinds.Plugins(),
		policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() *generate.Proxy { return proxyOf(t, m, dataplane) }
}

// proxyOf generates the config of a dataplane with inline routes.
func proxyOf(t testing.TB, m *generate.Mesh, dataplane string) *generate.Proxy {
	t.Helper()
	p, err := generate.Generate(generate.Input{Mesh: m, Name: dataplane, Flavor: node.FlavorEnvoy, Inline: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
