package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/schema"
)

// Text is a file or another source of resource documents.
type Text struct {
	Name string // for errors
	Data []byte
	Mode fs.FileMode // of the file; 0 if it is not a file
	// Shown is true if an agent printed the text or is going to read it: a placeholder may replace
	// secrets.
	Shown bool
}

// Offline is a set of resources to work on without a running agent, with the same code.
type Offline struct {
	list []*resource.Resource // in input order
	set  *resource.Set
	from map[resource.Key]origin

	exposed map[string]string // what to do about files with secrets that others can read, by file

	// AutoReachable derives reachability from permissions, like mesh.autoReachableBackends of the
	// agent.
	AutoReachable bool
	// FlatNetwork makes dataplanes of other zones directly reachable, like mesh.flatNetwork of the
	// agent.
	FlatNetwork bool
	// ReachableOnly hides names of services that a dataplane does not reach, like dns.reachableOnly
	// of the agent.
	ReachableOnly bool
}

// origin is where a resource is defined. document counts only the valid documents of the file from
// 1.
type origin struct {
	file     string
	document int
}

// in describes the origin in an error about file.
func (p origin) in(file string) string {
	if p.file == file {
		return fmt.Sprintf("document %d", p.document)
	}
	return fmt.Sprintf("document %d of %s", p.document, p.file)
}

// Read decodes texts in order. It returns all faults of all texts; the set contains the valid
// resources. A duplicate resource is a fault.
func Read(texts []Text) (*Offline, resource.Faults) {
	o := &Offline{from: map[resource.Key]origin{}, exposed: map[string]string{}}
	var faults resource.Faults
	reg := kinds.Registry().On(workers.All(), workers.Each)
	for _, t := range texts {
		decode := reg.Decode
		if t.Shown {
			decode = reg.DecodeShown
		}
		rs, faulty := decode(t.Name, t.Data)
		faults = append(faults, faulty...)
		if why := files.Exposed(t.Mode); why != "" &&
			slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.HasSecrets }) {
			o.exposed[t.Name] = why
		}
		for i, r := range rs {
			if first, twice := o.from[r.Key]; twice {
				if at := (origin{t.Name, i + 1}); first == at {
					faults = append(faults, resource.Fault{File: t.Name, Resource: r.Key.String(),
						Reason: fmt.Sprintf("%s is a duplicate, because the file is given twice", r.Key)})
					continue
				}
				faults = append(faults, resource.Fault{File: t.Name, Resource: r.Key.String(),
					Reason: fmt.Sprintf("%s is defined in document %d and in %s; remove one of them",
						r.Key, i+1, first.in(t.Name))})
				continue
			}
			o.from[r.Key] = origin{t.Name, i + 1}
			o.list = append(o.list, r)
		}
	}
	o.set = resource.NewSet(o.list)
	return o, faults
}

// Len returns the number of resources.
func (o *Offline) Len() int { return len(o.list) }

// Resources returns the resources in input order. Callers must not modify them.
func (o *Offline) Resources() []*resource.Resource { return o.list }

// Keys returns the keys of the resources in input order.
func (o *Offline) Keys() []resource.Key {
	out := make([]resource.Key, len(o.list))
	for i, r := range o.list {
		out[i] = r.Key
	}
	return out
}

// Stream returns the resources as a stream of canonical documents in input order.
func (o *Offline) Stream() ([]byte, error) {
	var out []byte
	for _, r := range o.list {
		doc, err := resource.Marshal(r)
		if err != nil {
			return nil, err
		}
		out = append(append(out, doc...), "\n---\n"...)
	}
	return out, nil
}

// mesh returns a mesh of the set as seen in a zone.
func (o *Offline) mesh(zone, name string) (*generate.Mesh, error) {
	return o.newMesh(zone)(o.set, name, nil)
}

// newMesh returns a function that derives meshes like an agent in a zone.
func (o *Offline) newMesh(zone string) change.NewMesh {
	return func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
		return generate.NewMesh(set, name, mesh.Options{Zone: zone, FlatNetwork: o.FlatNetwork}, kinds.Plugins(),
			policy.Options{AutoReachable: o.AutoReachable}, prev)
	}
}

// Config computes the config for a dataplane's Envoy in a zone. It also returns the warnings.
func (o *Offline) Config(zone, meshName, dataplane string,
	include render.ConfigOptions) (*api.Config, []string, error) {
	return view(o, zone, meshName, func(m *generate.Mesh) (*api.Config, []mesh.Warning, error) {
		c, warnings, err := render.ProxyConfig(m, dataplane, nil, include)
		return c, slices.Concat(m.View.Warnings, m.Policies.Warnings, effect.MeshTargets(m), warnings), err
	})
}

// Rules computes the merged rules for a dataplane in a zone. It also returns the warnings that are
// not part of the rules.
func (o *Offline) Rules(zone, meshName, dataplane string,
	include explain.RulesOptions) (*explain.Rules, []string, error) {
	return view(o, zone, meshName, func(m *generate.Mesh) (*explain.Rules, []mesh.Warning, error) {
		include.Effects = effects()
		return explain.ProxyRules(m, dataplane, include)
	})
}

// Policies lists the policies that select a dataplane in a zone and the services it reaches.
// backend selects services by name to explain. It also returns the warnings that are not part of
// the list.
func (o *Offline) Policies(zone, meshName, dataplane, backend string) (*explain.Policies, []string, error) {
	return view(o, zone, meshName, func(m *generate.Mesh) (*explain.Policies, []mesh.Warning, error) {
		return explain.ProxyPolicies(m, dataplane, backend, effects())
	})
}

// Backends lists the services of a mesh in a zone as seen by a dataplane.
func (o *Offline) Backends(zone, meshName, dataplane string) (*explain.Backends, error) {
	m, err := o.mesh(zone, meshName)
	if err != nil {
		return nil, err
	}
	return explain.ProxyBackends(m, dataplane)
}

// effects returns the inputs for the effect of policies.
func effects() effect.Options { return effect.Question(kinds.Registry().DecodeOne) }

// view calls show with a mesh in a zone and formats the warnings.
func view[T any](o *Offline, zone, name string,
	show func(*generate.Mesh) (*T, []mesh.Warning, error)) (*T, []string, error) {
	m, err := o.mesh(zone, name)
	if err != nil {
		return nil, nil, err
	}
	out, warnings, err := show(m)
	return out, lines(warnings), err
}

// ExplainPolicy explains the effect of a policy on a dataplane in a zone.
func (o *Offline) ExplainPolicy(zone string, q explain.PolicyQuestion) (*explain.Policy, error) {
	m, err := o.mesh(zone, q.Mesh)
	if err != nil {
		return nil, err
	}
	key := resource.Key{Kind: q.Type, Mesh: q.Mesh, Name: q.Name}
	r := o.set.Get(key)
	if r == nil {
		return nil, fmt.Errorf("%s does not exist in the given resources", key)
	}
	return explain.PolicyOn(m, r, q.Dataplane, q.Backend, effects())
}

// ExplainConnection explains a connection of a dataplane in a zone.
func (o *Offline) ExplainConnection(zone string, q explain.ConnectionQuestion) (*explain.Flow, error) {
	m, err := o.mesh(zone, q.Mesh)
	if err != nil {
		return nil, err
	}
	return o.traffic(zone, m).Connection(&q)
}

// ExplainRequest explains an HTTP request of a dataplane in a zone.
func (o *Offline) ExplainRequest(zone string, q explain.RequestQuestion) (*explain.Flow, error) {
	m, err := o.mesh(zone, q.Mesh)
	if err != nil {
		return nil, err
	}
	return o.traffic(zone, m).Request(&q)
}

func (o *Offline) traffic(zone string, m *generate.Mesh) *explain.Traffic {
	t := explain.NewTraffic(m)
	t.Names = func(dataplane string) *names.Table {
		table, _, _ := o.table(zone, m.View.Name, dataplane) // nil names if a mesh cannot be derived
		return table
	}
	return t
}

// Kinds lists the known kinds.
func Kinds() []api.Kind { return render.Kinds(kinds.Registry()) }

// Schema returns the JSON Schema of a kind and a list of its fields. It returns false if the kind
// does not exist.
func Schema(kind string) (map[string]any, []schema.Field, bool) {
	d, ok := kinds.Registry().Lookup(kind)
	if !ok {
		return nil, nil, false
	}
	s := kinds.Schema(d)
	return s, schema.Fields(s), true
}

// lines formats warnings for output without duplicates.
func lines(warnings []mesh.Warning) []string {
	var out []string
	seen := map[string]bool{}
	for _, w := range warnings {
		if line := w.Resource.String() + ": " + w.Reason; !seen[line] {
			seen[line] = true
			out = append(out, line)
		}
	}
	return out
}

// Dataplane returns the JSON of a Dataplane for the node metadata of its Envoy. The set must
// contain only this Dataplane.
func (o *Offline) Dataplane(meshName, name string) ([]byte, error) {
	if len(o.list) != 1 {
		return nil, fmt.Errorf("%d resources are given, but only the Dataplane is allowed", len(o.list))
	}
	want := resource.Key{Kind: "Dataplane", Mesh: meshName, Name: name}
	if r := o.list[0]; r.Key != want {
		return nil, fmt.Errorf("%s is given, %s is expected; fix the file or --name and --mesh", r.Key, want)
	}
	doc, err := resource.Marshal(o.list[0])
	if err != nil {
		return nil, errors.Join(errors.New("the Dataplane cannot be encoded"), err)
	}
	return doc, nil
}
