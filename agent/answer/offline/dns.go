package offline

import (
	"cmp"
	"errors"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ExplainDNS says why a name resolves as it does on a node in a zone. The node has the default
// config and all meshes of the set.
func (o *Offline) ExplainDNS(zone string, q explain.DNSQuestion) (*explaindns.DNS, error) {
	table, meshes, err := o.table(zone, q.Mesh, q.Dataplane)
	if err != nil {
		return nil, err
	}
	if len(meshes) == 0 {
		return nil, errors.New("the given resources contain no Mesh; add one")
	}
	return explaindns.Name(explaindns.DNSInput{Meshes: meshes, Resolver: explaindns.Resolver{Table: table}}, &q)
}

// table returns the names of all meshes of the set for a node with a dataplane, or without one if
// dataplane is "".
func (o *Offline) table(zone, in, dataplane string) (*names.Table, map[string]*generate.Mesh, error) {
	meshes := map[string]*generate.Mesh{}
	var list []names.Mesh
	for _, r := range o.set.Kind("Mesh") {
		m, err := o.mesh(zone, r.Name)
		if err != nil {
			return nil, nil, err
		}
		meshes[r.Name] = m
		x := names.Mesh{View: m.View, Policies: m.Policies}
		if r.Name == cmp.Or(in, resource.DefaultMesh) && dataplane != "" {
			x.Local = []string{dataplane}
		}
		list = append(list, x)
	}
	options := names.DefaultOptions()
	options.ReachableOnly = o.ReachableOnly
	return names.Build(options, list, nil), meshes, nil
}
