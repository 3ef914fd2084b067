package kindtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const migratedFile = "migrated.yaml"

// RunMigrations runs the cases of migrations in a directory. A case is a txtar file:
//
//	A description of the case.
//	-- input.yaml --
//	resources in the universal format; the Mesh "default" is added if there is none
//	-- migrated.yaml --
//	the successors of the plugin's legacy policies, each after its notes, and why others have none
//
// Each policy must pass the strict decoder. If UPDATE_GOLDEN=1 is set, the last section is updated
// instead of compared.
func RunMigrations(t *testing.T, dir string, plugin policy.Plugin) {
	t.Helper()
	Each(t, dir, migratedFile, func(t *testing.T, _ string, input []byte) string { return migrated(t, input, plugin) })
}

// migrated returns the successors of a plugin's legacy policies.
func migrated(t *testing.T, input []byte, plugin policy.Plugin) string {
	t.Helper()
	reg, set := kinds.Registry(), resource.NewSet(InputOf(t, inputFile, input).Resources)
	v, err := mesh.Build(set, resource.DefaultMesh, mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := policy.NewIndex(kinds.Plugins(), set, v, policy.Options{})
	var b strings.Builder
	for _, l := range plugin.Legacy {
		m := l.Migrate(&policy.MigrateInput{Index: x, Policies: x.Policies(l.Kind), NameExists: func(kind, name string) bool {
			return set.Get(resource.Key{Kind: kind, Mesh: resource.DefaultMesh, Name: name}) != nil
		}})
		for i := range m.Policies {
			p := &m.Policies[i]
			b.WriteString("---\n")
			for _, n := range p.Notes {
				fmt.Fprintf(&b, "# note: %s\n", n)
			}
			var from []string
			for _, k := range p.From {
				from = append(from, k.Kind+"/"+k.Name)
			}
			fmt.Fprintf(&b, "# from %s\n%s", strings.Join(from, ", "), document(t, reg, p))
		}
		for _, w := range m.Without {
			fmt.Fprintf(&b, "# %s/%s: %s\n", w.Policy.Kind, w.Policy.Name, w.Why)
		}
	}
	return b.String()
}

// document encodes a policy as YAML. It fails the test if the decoder rejects the policy.
func document(t *testing.T, reg *resource.Registry, p *policy.Migrated) []byte {
	t.Helper()
	doc, err := resource.Marshal(
		&resource.Resource{Key: resource.Key{Kind: p.Kind, Mesh: resource.DefaultMesh, Name: p.Name}, Spec: p.Spec})
	if err != nil {
		t.Fatal(err)
	}
	if _, faults := reg.Decode("", doc); len(faults) > 0 {
		t.Errorf("%s/%s is not valid: %v", p.Kind, p.Name, faults)
	}
	var n yaml.Node
	if err := yaml.Unmarshal(doc, &n); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	var block func(*yaml.Node)
	block = func(n *yaml.Node) {
		n.Style = 0
		for _, c := range n.Content {
			block(c)
		}
	}
	block(&n)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
