package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/base/plural"
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

// Text is one file of resources, or what else holds them.
type Text struct {
	Name string // for faults
	Data []byte
	Mode fs.FileMode // of the file; 0: it is none
	// Shown is true for what an agent has shown, or is to get: a mark for a secret may stand there for
	// secrets.
	Shown bool
}

// Offline is a set of resources that is worked on without a running agent, by the same code.
type Offline struct {
	list []*resource.Resource // in the order given
	set  *resource.Set
	from map[resource.Key]place

	exposed map[string]string // files with secrets that others may read: what to do

	// AutoReachable derives from permissions what proxies reach, as mesh.autoReachableBackends of the
	// agent does.
	AutoReachable bool
	// FlatNetwork reaches the dataplanes of other zones directly, as mesh.flatNetwork of the agent
	// does.
	FlatNetwork bool
	// ReachableOnly hides names of services that a dataplane does not reach, as dns.reachableOnly of
	// the agent does.
	ReachableOnly bool
}

// place is where a resource stands. The document is its number in a file without faults.
type place struct {
	file     string
	document int
}

// in says where that is for who looks at a file.
func (p place) in(file string) string {
	if p.file == file {
		return fmt.Sprintf("document %d", p.document)
	}
	return fmt.Sprintf("document %d of %s", p.document, p.file)
}

// Read decodes texts in the order given. It returns every fault of every text; when there are any,
// the set holds what is good. A resource that stands twice is a fault.
func Read(texts []Text) (*Offline, resource.Faults) {
	o := &Offline{from: map[resource.Key]place{}, exposed: map[string]string{}}
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
				if at := (place{t.Name, i + 1}); first == at {
					faults = append(faults, resource.Fault{File: t.Name, Resource: r.Key.String(),
						Reason: fmt.Sprintf("%s stands twice, because the file is given twice", r.Key)})
					continue
				}
				faults = append(faults, resource.Fault{File: t.Name, Resource: r.Key.String(),
					Reason: fmt.Sprintf("%s stands in document %d here and in %s; keep one of the two", r.Key, i+1, first.in(t.Name))})
				continue
			}
			o.from[r.Key] = place{t.Name, i + 1}
			o.list = append(o.list, r)
		}
	}
	o.set = resource.NewSet(o.list)
	return o, faults
}

// Len is the number of resources.
func (o *Offline) Len() int { return len(o.list) }

// Keys returns the keys of the resources, in the order of the files.
func (o *Offline) Keys() []resource.Key {
	out := make([]resource.Key, len(o.list))
	for i, r := range o.list {
		out[i] = r.Key
	}
	return out
}

// Stream returns the resources as one stream of canonical documents, in the order given.
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

// mesh derives a mesh of the set.
func (o *Offline) mesh(zone, name string) (*generate.Mesh, error) {
	return o.newMesh(zone)(o.set, name, nil)
}

// newMesh derives meshes as an agent in a zone does.
func (o *Offline) newMesh(zone string) change.NewMesh {
	return func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
		return generate.NewMesh(set, name, mesh.Options{Zone: zone, FlatNetwork: o.FlatNetwork}, kinds.Plugins(),
			policy.Options{AutoReachable: o.AutoReachable}, prev)
	}
}

// Config computes what the Envoy of a dataplane in a zone would get, and what was left out of it
// and why.
func (o *Offline) Config(zone, meshName, dataplane string,
	include render.ConfigOptions) (*api.Config, []string, error) {
	return view(o, zone, meshName, func(m *generate.Mesh) (*api.Config, []mesh.Warning, error) {
		c, warnings, err := render.ProxyConfig(m, dataplane, nil, include)
		return c, slices.Concat(m.View.Warnings, m.Policies.Warnings, warnings), err
	})
}

// Rules computes what the policies say about a dataplane in a zone, and what is to be said beside
// the rules.
func (o *Offline) Rules(zone, meshName, dataplane string,
	include explain.RulesOptions) (*explain.Rules, []string, error) {
	return view(o, zone, meshName, func(m *generate.Mesh) (*explain.Rules, []mesh.Warning, error) {
		return explain.ProxyRules(m, dataplane, include)
	})
}

// Policies lists the policies that select a dataplane in a zone and says what it reaches, of
// services by the name backend each, and what is to be said beside the list.
func (o *Offline) Policies(zone, meshName, dataplane, backend string) (*explain.Policies, []string, error) {
	return view(o, zone, meshName, func(m *generate.Mesh) (*explain.Policies, []mesh.Warning, error) {
		return explain.ProxyPolicies(m, dataplane, backend)
	})
}

// Backends lists the services of a mesh in a zone as a dataplane sees them.
func (o *Offline) Backends(zone, meshName, dataplane string) (*explain.Backends, error) {
	m, err := o.mesh(zone, meshName)
	if err != nil {
		return nil, err
	}
	return explain.ProxyBackends(m, dataplane)
}

// view shows something of a mesh in a zone, with warnings as commands show them.
func view[T any](o *Offline, zone, name string,
	show func(*generate.Mesh) (*T, []mesh.Warning, error)) (*T, []string, error) {
	m, err := o.mesh(zone, name)
	if err != nil {
		return nil, nil, err
	}
	out, warnings, err := show(m)
	return out, lines(warnings), err
}

// ExplainPolicy says what a policy does on a dataplane in a zone. The type is the name of its kind.
func (o *Offline) ExplainPolicy(zone string, q explain.PolicyQuestion) (*explain.Policy, error) {
	m, err := o.mesh(zone, q.Mesh)
	if err != nil {
		return nil, err
	}
	key := resource.Key{Kind: q.Type, Mesh: q.Mesh, Name: q.Name}
	r := o.set.Get(key)
	if r == nil {
		return nil, fmt.Errorf("%s does not exist: it is not among the %s given", key, plural.Count(o.Len(), "resource"))
	}
	return explain.PolicyOn(m, r, q.Dataplane, q.Backend)
}

// ExplainConnection says what becomes of a connection of a dataplane in a zone.
func (o *Offline) ExplainConnection(zone string, q explain.ConnectionQuestion) (*explain.Flow, error) {
	m, err := o.mesh(zone, q.Mesh)
	if err != nil {
		return nil, err
	}
	return o.traffic(zone, m).Connection(&q)
}

// ExplainRequest says what becomes of an HTTP request of a dataplane in a zone.
func (o *Offline) ExplainRequest(zone string, q explain.RequestQuestion) (*explain.Flow, error) {
	m, err := o.mesh(zone, q.Mesh)
	if err != nil {
		return nil, err
	}
	return o.traffic(zone, m).Request(&q)
}

func (o *Offline) traffic(zone string, m *generate.Mesh) *explain.Traffic {
	t := explain.NewTraffic(m)
	t.Names = func() *names.Table {
		table, _, _ := o.table(zone, "", "") // a mesh that cannot be made has no names
		return table
	}
	return t
}

// Kinds lists the kinds that this program knows.
func Kinds() []api.Kind { return render.Kinds(kinds.Registry()) }

// SchemaField is one field of a kind.
type SchemaField = schema.Field

// Schema describes a kind as JSON Schema, and as a list of its fields. It is false for a kind that
// does not exist.
func Schema(kind string) (map[string]any, []SchemaField, bool) {
	d, ok := kinds.Registry().Lookup(kind)
	if !ok {
		return nil, nil, false
	}
	s := kinds.Schema(d)
	return s, schema.Fields(s), true
}

// lines writes warnings as commands show them, each once.
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

// Dataplane returns the JSON of the one Dataplane that the set must hold, for the node metadata of
// its Envoy.
func (o *Offline) Dataplane(meshName, name string) ([]byte, error) {
	if len(o.list) != 1 {
		return nil, fmt.Errorf("%d resources are given; give the Dataplane alone", len(o.list))
	}
	want := resource.Key{Kind: "Dataplane", Mesh: meshName, Name: name}
	if r := o.list[0]; r.Key != want {
		return nil, fmt.Errorf("%s is given, %s is wanted; fix the file, or --name and --mesh", r.Key, want)
	}
	doc, err := resource.Marshal(o.list[0])
	if err != nil {
		return nil, errors.Join(errors.New("the Dataplane cannot be encoded"), err)
	}
	return doc, nil
}
