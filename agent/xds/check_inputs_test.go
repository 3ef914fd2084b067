package xds_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// conformanceCases is the folder of the reference cases, where it lies beside the repository.
const conformanceCases = "../../../shared/conformance/cases"

// meshInput is a set of resources of which every proxy is looked at.
type meshInput struct {
	name      string
	resources []*resource.Resource
}

// ownInputs are those in the repository: the cases of the plugins and of the generator, and the examples.
func ownInputs(tb testing.TB) []meshInput {
	tb.Helper()
	var out []meshInput
	for _, pattern := range []string{"../kinds/*/testdata/*.txtar", "../kinds/*/testdata/migrate/*.txtar", "../generate/testdata/generate/*.txtar"} {
		for _, file := range glob(tb, pattern) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			if len(a.Files) == 0 {
				tb.Fatalf("%s holds nothing", file)
			}
			out = append(out, inputOf(tb, file, a.Files[0].Data))
		}
	}
	base := concat(tb, glob(tb, "../../examples/migration/base/*.yaml"))
	for _, file := range glob(tb, "../../examples/migration/*.yaml") {
		out = append(out, inputOf(tb, file, concat(tb, []string{file}), base))
	}
	return append(out, inputOf(tb, "../../examples/quickstart", concat(tb, glob(tb, "../../examples/quickstart/resources/*.yaml"))))
}

// conformanceInputs are those of the reference cases; the test is skipped where there are none.
func conformanceInputs(tb testing.TB) []meshInput {
	tb.Helper()
	files, err := conformanceFiles()
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) == 0 {
		tb.Skipf("the reference cases (%s) are not beside this repository", conformanceCases)
	}
	var out []meshInput
	for _, file := range files {
		out = append(out, inputOf(tb, file, concat(tb, []string{file})))
	}
	return out
}

func conformanceFiles() ([]string, error) {
	return filepath.Glob(filepath.Join(conformanceCases, "*/input.yaml"))
}

func glob(tb testing.TB, pattern string) []string {
	tb.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		tb.Fatalf("no files %s (%v)", pattern, err)
	}
	return files
}

func concat(tb testing.TB, files []string) []byte {
	tb.Helper()
	var b bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		b.Write(data)
		b.WriteString("\n---\n")
	}
	return b.Bytes()
}

func inputOf(tb testing.TB, name string, docs ...[]byte) meshInput {
	tb.Helper()
	rs, faults := kinds.Registry().Decode(name, bytes.Join(docs, []byte("\n---\n")))
	if len(faults) > 0 {
		tb.Fatalf("%s: %v", name, faults)
	}
	if !slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Kind == "Mesh" }) {
		rs = append(rs, &resource.Resource{Key: resource.Key{Kind: "Mesh", Name: resource.DefaultMesh}, Spec: &resource.Mesh{}})
	}
	return meshInput{name, rs}
}

// proxies generates every proxy of an input, as it is and with the shadow policies in force, and calls fn with each. A
// dataplane that cannot be served at all has no config to look at.
func (in meshInput) proxies(tb testing.TB, flavor xds.Flavor, fn func(p *xds.Proxy)) {
	tb.Helper()
	set := resource.NewSet(in.resources)
	for _, r := range in.resources {
		if r.Kind != "Mesh" {
			continue
		}
		m, err := xds.NewMesh(set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			tb.Fatalf("%s: %v", in.name, err)
		}
		both := []*xds.Mesh{m}
		if shadow := m.Shadow(); shadow != m {
			both = append(both, shadow)
		}
		for _, m := range both {
			for _, dp := range in.resources {
				if dp.Kind != "Dataplane" || dp.Mesh != r.Name {
					continue
				}
				if p, err := xds.Generate(xds.Input{Mesh: m, Name: dp.Name, Flavor: flavor}, nil, nil); err == nil {
					fn(p)
				}
			}
		}
	}
}

// withoutPolicies is an input of which no kind of the plugins acts.
func (in meshInput) withoutPolicies() meshInput {
	return meshInput{in.name, slices.DeleteFunc(slices.Clone(in.resources), func(r *resource.Resource) bool {
		return r.Kind != "Mesh" && r.Kind != "Dataplane" && !strings.HasSuffix(r.Kind, "Service") && r.Kind != "HostnameGenerator"
	})}
}

// documents are the kinds and names of an input.
func (in meshInput) documents() []byte {
	var b bytes.Buffer
	for _, r := range in.resources {
		fmt.Fprintln(&b, r.Key)
	}
	return b.Bytes()
}
