package offline

import (
	"errors"

	"github.com/nearside-mesh/nearside/agent/explain"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/names"
)

// ExplainDNS says why a name resolves as it does on a node in a zone whose config is the default, with all meshes of the set.
func (o *Offline) ExplainDNS(zone string, q explain.DNSQuestion) (*explain.DNS, error) {
	in := explain.DNSInput{Meshes: map[string]*generate.Mesh{}}
	var list []names.Mesh
	for _, r := range o.set.Kind("Mesh") {
		m, err := o.mesh(zone, r.Name)
		if err != nil {
			return nil, err
		}
		in.Meshes[r.Name] = m
		x := names.Mesh{View: m.View, Policies: m.Policies}
		if r.Name == q.Mesh && q.Dataplane != "" {
			x.Local = []string{q.Dataplane}
		}
		list = append(list, x)
	}
	if len(list) == 0 {
		return nil, errors.New("there is no Mesh among the resources given; add one")
	}
	in.Table = names.Build(names.Options{Suffixes: []string{"mesh"}, Generators: true, Ranges: mesh.DefaultVIPRanges().Prefixes(), ReachableOnly: o.ReachableOnly}, list, nil)
	return explain.Name(in, &q)
}
