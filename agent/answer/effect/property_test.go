package effect_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// randomInputs are the random inputs, if they exist next to the repository.
const randomInputs = "../../../../shared/conformance/random*/*/input.yaml"

// oracle generates configs from sets of resources, without the code that it checks.
type oracle struct {
	mesh    string
	set     []*resource.Resource
	meshes  map[string]*generate.Mesh // by the policy that is left out and what replaces it
	configs map[string]string         // by these and the dataplane
	fields  map[string]fieldless      // by the policy and the path
}

// fieldless is a policy without a field; see withoutField.
type fieldless struct {
	policy *resource.Resource
	exact  bool
}

// variant returns the mesh with a policy left out, or replaced by another one. Without both, it is
// the mesh itself.
func (o *oracle) variant(key string, without, instead *resource.Resource) *generate.Mesh {
	m, ok := o.meshes[key]
	if !ok {
		list := slices.Clone(o.set)
		for i, r := range list {
			if r == without {
				list[i] = instead
			}
		}
		list = slices.DeleteFunc(list, func(r *resource.Resource) bool { return r == nil })
		m, _ = generate.NewMesh(resource.NewSet(list), o.mesh, mesh.Options{}, kinds.Plugins(), policy.Options{}, nil)
		o.meshes[key] = m
	}
	return m
}

// config returns a hash of the bytes of a proxy's config, or "" if there is none.
func (o *oracle) config(dataplane string, without, instead *resource.Resource) string {
	key := ""
	if without != nil {
		key = without.Key.String()
	}
	if instead != nil {
		key += string(instead.Digest[:])
	}
	of := key + "\x00" + dataplane
	c, ok := o.configs[of]
	if !ok {
		if m := o.variant(key, without, instead); m != nil {
			p, err := generate.Generate(generate.Input{Mesh: m, Name: dataplane, Flavor: node.FlavorEnvoy}, nil, nil)
			if err == nil {
				c = hashOf(p)
			}
		}
		o.configs[of] = c
	}
	return c
}

// hashOf returns a hash of the resources of a config in the order of their names.
func hashOf(p *generate.Proxy) string {
	h := sha256.New()
	for rank, resources := range p.Sealed.Resources {
		resources = slices.Clone(resources)
		slices.SortFunc(resources, func(a, b *draft.Resource) int { return strings.Compare(a.Name, b.Name) })
		for _, r := range resources {
			fmt.Fprintf(h, "%d %q %d\n", rank, r.Name, len(r.Body()))
			h.Write(r.Body())
		}
	}
	return string(h.Sum(nil))
}

// withoutField returns a policy without a field; see the function of this name.
func (o *oracle) withoutField(t *testing.T, r *resource.Resource, path []string) (out *resource.Resource, exact bool) {
	t.Helper()
	key := r.Key.String() + "\x00" + strings.Join(path, "\x00")
	f, ok := o.fields[key]
	if !ok {
		f.policy, f.exact = withoutField(t, r, path)
		o.fields[key] = f
	}
	return f.policy, f.exact
}

// withoutField returns a policy without a field, or without the smallest part with the field that
// can be removed. out is nil if only the whole policy can be. exact is true if only the field was
// removed.
func withoutField(t *testing.T, r *resource.Resource, path []string) (out *resource.Resource, exact bool) {
	t.Helper()
	text, err := resource.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(path); n > 0; n-- {
		doc, err := jsonpatch.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		doc, err = jsonpatch.Patch{{Op: jsonpatch.Remove, Path: jsonpatch.FormatPointer(path[:n])}}.Apply(doc)
		if err != nil {
			continue // a policy without a conf
		}
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := kinds.Registry().DecodeOne(b); err == nil && out.Key == r.Key {
			return out, n == len(path)
		}
	}
	return nil, false
}

// pathsOf returns the paths of the fields of a policy's confs by the names that items give them.
func pathsOf(t *testing.T, r *resource.Resource, item, field string) []string {
	t.Helper()
	out := strings.FieldsFunc(item, func(c rune) bool { return strings.ContainsRune(".[]", c) })
	for rest := field; rest != ""; {
		if quoted, ok := strings.CutPrefix(rest, "["); ok {
			end := strings.Index(quoted, "\"]")
			name, err := strconv.Unquote(quoted[:end+1])
			if err != nil {
				t.Fatal(err)
			}
			out, rest = append(out, name), strings.TrimPrefix(quoted[end+2:], ".")
			continue
		}
		name := rest
		if i := strings.IndexAny(rest, ".["); i >= 0 {
			name = rest[:i]
		}
		out, rest = append(out, name), strings.TrimPrefix(rest[len(name):], ".")
	}
	return out
}

// inputs returns all inputs of the property.
func inputs(t *testing.T) []kindtest.MeshInput {
	t.Helper()
	out := kindtest.OwnInputs(t)
	files, err := kindtest.ConformanceFiles()
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(randomInputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, more...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rs, _ := kinds.Registry().Decode(file, data) // without documents that this version refuses
		if !slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Kind == "Mesh" }) {
			rs = append(rs, decode(t, "{type: Mesh, name: default}")...)
		}
		out = append(out, kindtest.MeshInput{Name: file, Resources: rs})
	}
	return out
}

// TestInForceIsTrue checks over all inputs that a policy is in force on a proxy exactly where
// leaving it out changes the proxy's config, and a field where removing it does.
func TestInForceIsTrue(t *testing.T) {
	before := debug.SetGCPercent(400) // most configs are short-lived garbage
	t.Cleanup(func() { debug.SetGCPercent(before) })
	policies, fields := map[bool]int{}, map[string]int{}
	for _, in := range inputs(t) {
		for _, m := range in.Resources {
			if m.Kind == "Mesh" {
				checkMesh(t, in, m.Name, policies, fields)
			}
		}
	}
	t.Logf("policies in force: %v, fields by effect: %v", policies, fields)
}

func checkMesh(t *testing.T, in kindtest.MeshInput, name string, policies map[bool]int, fields map[string]int) {
	t.Helper()
	all := resource.NewSet(in.Resources).All()
	o := &oracle{mesh: name, set: all, meshes: map[string]*generate.Mesh{}, configs: map[string]string{},
		fields: map[string]fieldless{}}
	m := meshOf(t, all, name)
	x := effect.New(m, options())
	coarse := effect.New(m, effect.Options{Trials: 1 << 20}) // has larger classes of proxies
	for _, r := range all {
		if r.Mesh != name || r.Shadow() || !slices.ContainsFunc(kinds.Policies(), func(d resource.Descriptor) bool {
			return d.Kind == r.Kind
		}) {
			continue
		}
		for _, d := range m.View.Dataplanes() {
			with := o.config(d.Name, nil, nil)
			if with == "" {
				continue
			}
			v := x.On(r, d.Name)
			want := with != o.config(d.Name, r, nil)
			policies[want]++
			if v.InForce() != want {
				t.Errorf("%s: %s on %s: in force is %t (%+v), and leaving it out changes the config: %t", in.Name, r.Key, d.Name,
					v.InForce(), v, want)
			}
			if v := coarse.On(r, d.Name); v.InForce() != want {
				t.Errorf("%s: %s on %s: in force without fields is %t (%+v), want %t", in.Name, r.Key, d.Name, v.InForce(), v,
					want)
			}
			if v.Selected {
				checkFields(t, in.Name, o, x, r, d.Name, with, fields)
			}
		}
	}
}

func checkFields(t *testing.T, input string, o *oracle, x *effect.Examiner, r *resource.Resource, dataplane string,
	with string, fields map[string]int) {
	t.Helper()
	for _, it := range x.Fields(r, dataplane) {
		effects := map[string][]string{}
		for _, p := range it.Places {
			for _, f := range p.Fields {
				effects[f.Path] = append(effects[f.Path], f.Effect)
				fields[f.Effect]++
			}
		}
		for path, list := range effects {
			without, exact := o.withoutField(t, r, pathsOf(t, r, it.Field, path))
			changes := with != o.config(dataplane, r, without)
			inForce := slices.Contains(list, api.EffectAll) || slices.Contains(list, api.EffectPart)
			// If the document needs the field, other fields of the removed part may be the cause.
			if inForce && !changes || exact && inForce != changes {
				t.Errorf("%s: %s %s %s on %s: the effects are %v, and removing it changes the config: %t\n%s", input, r.Key,
					it.Field, path, dataplane, list, changes, shown([]effect.Item{it}))
			}
		}
	}
}
