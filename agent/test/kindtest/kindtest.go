// Package kindtest runs the cases of a policy kind: resources in, what the kind changes of the
// proxy's config out.
//
// A case is a txtar file (https://pkg.go.dev/golang.org/x/tools/txtar):
//
//	What the case shows, in words. A line "dataplane: NAME" names the proxy, else it is the first Dataplane; a line
//	"zone: NAME" the zone.
//	-- input.yaml --
//	resources in the universal format; where there is no Mesh the mesh "default" is added
//	-- changes.txt --
//	+ TYPE/NAME/path/to/field = value     is there with the policies of the kind
//	- TYPE/NAME/path/to/field = value     is there without them
//	! KIND/MESH/NAME: reason              a warning
//
// Items of lists that have a name stand under it, others under their index. With UPDATE_GOLDEN=1 in
// the environment the last part is written instead of compared.
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

// Run runs the cases in a directory. The kinds are those of the plugin that is tested.
func Run(t *testing.T, dir string, plugin policy.Plugin) {
	t.Helper()
	each(t, dir, changesFile, func(t *testing.T, comment string, input []byte) string {
		return changes(t, comment, input, plugin)
	})
}

// each compares what is made of the input of each case in a directory with one of its parts.
func each(t *testing.T, dir, expected string, of func(t *testing.T, comment string, input []byte) string) {
	t.Helper()
	Cases(t, filepath.Join(dir, "*.txtar"), func(t *testing.T, file string, a *txtar.Archive) {
		golden(t, file, a, expected, of)
	})
}

// Cases runs a test for each file of a pattern, with the archive in it.
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

// golden compares what is made of the input of a case with one of its parts.
func golden(t *testing.T, file string, a *txtar.Archive, expected string,
	of func(t *testing.T, comment string, input []byte) string) {
	t.Helper()
	in := part(a, inputFile)
	if in == nil {
		t.Fatalf("%s has no part %s", file, inputFile)
	}
	got := of(t, string(a.Comment), in.Data)
	out := part(a, expected)
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
		t.Errorf("%s, UPDATE_GOLDEN=1 takes it over (-want +got):\n%s", expected, diff)
	}
}

func part(a *txtar.Archive, name string) *txtar.File {
	for i := range a.Files {
		if a.Files[i].Name == name {
			return &a.Files[i]
		}
	}
	return nil
}

// option reads a line "name: value" of the comment.
func option(comment, name string) string {
	for line := range strings.Lines(comment) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// changes are what the policies of a plugin change of the config of one proxy.
func changes(t *testing.T, comment string, input []byte, plugin policy.Plugin) string {
	t.Helper()
	rs := InputOf(t, inputFile, input).Resources
	own := map[string]bool{}
	for _, d := range slices.Concat(plugin.Kinds, plugin.Refers) {
		own[d.Kind] = true
	}
	for _, l := range plugin.Legacy {
		own[l.Kind] = true
	}
	name := option(comment, "dataplane")
	var base []*resource.Resource
	for _, r := range rs {
		if r.Kind == "Dataplane" && name == "" {
			name = r.Name
		}
		if !own[r.Kind] {
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
		if own[w.Resource.Kind] {
			fmt.Fprintf(&b, "! %s: %s\n", w.Resource, w.Reason)
		}
	}
	return b.String()
}

// config returns the fields of a proxy's config by their path, and the warnings about its
// resources.
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

// flatten writes every field below a value under its path.
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

// Generator reads resources in the universal format, adds the Mesh "default" where there is none,
// and returns what makes the config of a dataplane, with the routes in their listeners: for tests
// of what the cases do not show, such as the order of routes.
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

// proxyOf makes the config of a dataplane, with the routes in their listeners.
func proxyOf(t testing.TB, m *generate.Mesh, dataplane string) *generate.Proxy {
	t.Helper()
	p, err := generate.Generate(generate.Input{Mesh: m, Name: dataplane, Flavor: node.FlavorEnvoy, Inline: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
