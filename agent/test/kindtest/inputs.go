package kindtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ConformanceCases is the folder of the reference cases, if it exists next to the repository.
const ConformanceCases = "../../../../shared/conformance/cases"

// MeshInput is a set of resources for tests of all its proxies.
type MeshInput struct {
	Name      string
	Resources []*resource.Resource
}

// OwnInputs returns the inputs in the repository: the cases of the plugins and of the generator,
// and the examples.
func OwnInputs(tb testing.TB) []MeshInput {
	tb.Helper()
	var out []MeshInput
	for _, pattern := range []string{
		"../../compute/kinds/*/testdata/*.txtar", "../../compute/kinds/*/testdata/migrate/*.txtar",
		"../../compute/generate/testdata/generate/*.txtar",
	} {
		for _, file := range glob(tb, pattern) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			if len(a.Files) == 0 {
				tb.Fatalf("%s is empty", file)
			}
			out = append(out, InputOf(tb, file, a.Files[0].Data))
		}
	}
	base := concat(tb, glob(tb, "../../../examples/migration/base/*.yaml"))
	for _, file := range glob(tb, "../../../examples/migration/*.yaml") {
		out = append(out, InputOf(tb, file, concat(tb, []string{file}), base))
	}
	return append(out,
		InputOf(tb, "../../../examples/quickstart", concat(tb, glob(tb, "../../../examples/quickstart/resources/*.yaml"))))
}

// ConformanceInputs returns the reference cases. It skips the test if there are none.
func ConformanceInputs(tb testing.TB) []MeshInput {
	tb.Helper()
	files, err := ConformanceFiles()
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) == 0 {
		tb.Skipf("the reference cases (%s) do not exist next to this repository", ConformanceCases)
	}
	var out []MeshInput
	for _, file := range files {
		out = append(out, InputOf(tb, file, concat(tb, []string{file})))
	}
	return out
}

// ConformanceFiles returns the input files of the reference cases.
func ConformanceFiles() ([]string, error) {
	return filepath.Glob(filepath.Join(ConformanceCases, "*/input.yaml"))
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

// InputOf decodes documents and adds the Mesh "default" if they contain none.
func InputOf(tb testing.TB, name string, docs ...[]byte) MeshInput {
	tb.Helper()
	rs, faults := kinds.Registry().Decode(name, bytes.Join(docs, []byte("\n---\n")))
	if len(faults) > 0 {
		tb.Fatalf("%s: %v", name, faults)
	}
	if !slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Kind == "Mesh" }) {
		rs = append(rs,
			&resource.Resource{Key: resource.Key{Kind: "Mesh", Name: resource.DefaultMesh}, Spec: &resource.Mesh{}})
	}
	return MeshInput{name, rs}
}

// Proxies generates every proxy of an input, with and without shadow policies, and calls fn for
// each. It skips dataplanes without a config.
func (in MeshInput) Proxies(tb testing.TB, flavor node.Flavor, fn func(p *generate.Proxy)) {
	tb.Helper()
	set := resource.NewSet(in.Resources)
	for _, r := range in.Resources {
		if r.Kind != "Mesh" {
			continue
		}
		m, err := generate.NewMesh(set, r.Name, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			tb.Fatalf("%s: %v", in.Name, err)
		}
		both := []*generate.Mesh{m}
		if shadow := m.Shadow(); shadow != m {
			both = append(both, shadow)
		}
		for _, m := range both {
			for _, dp := range in.Resources {
				if dp.Kind != "Dataplane" || dp.Mesh != r.Name {
					continue
				}
				if p, err := generate.Generate(generate.Input{Mesh: m, Name: dp.Name, Flavor: flavor}, nil, nil); err == nil {
					fn(p)
				}
			}
		}
	}
}

// WithoutPolicies returns the input without policies.
func (in MeshInput) WithoutPolicies() MeshInput {
	return MeshInput{in.Name, slices.DeleteFunc(slices.Clone(in.Resources), func(r *resource.Resource) bool {
		return r.Kind != "Mesh" && r.Kind != "Dataplane" && !strings.HasSuffix(r.Kind, "Service") &&
			r.Kind != "HostnameGenerator"
	})}
}

// Documents lists the keys of an input's resources.
func (in MeshInput) Documents() []byte {
	var b bytes.Buffer
	for _, r := range in.Resources {
		fmt.Fprintln(&b, r.Key)
	}
	return b.Bytes()
}
