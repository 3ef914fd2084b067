package offline

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ResourceKey names a resource.
type ResourceKey = resource.Key

// DiffOptions says what is compared with a set, and for which proxies.
type DiffOptions struct {
	Put       *Offline      // what would be created or changed; nil: nothing
	Delete    []ResourceKey // what would be deleted
	Shadow    bool          // afterwards shadow policies act like the others
	Mesh      string        // only proxies of this mesh; "": all
	Dataplane string        // only the proxies of this name; "": all
}

// Diff computes what would change on the proxies of a zone, as an agent with these resources would answer.
func (o *Offline) Diff(ctx context.Context, zone string, with DiffOptions) (*inspect.Diff, error) {
	c := inspect.Comparison{
		Set: o.set, Delete: with.Delete, Shadow: with.Shadow, Mesh: with.Mesh, Dataplane: with.Dataplane,
		NewMesh: func(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
			return generate.NewMesh(set, name, mesh.Options{Zone: zone, FlatNetwork: o.FlatNetwork}, kinds.Plugins(), policy.Options{AutoReachable: o.AutoReachable}, prev)
		},
	}
	if with.Put != nil {
		c.Put = with.Put.list
	}
	d, err := inspect.Compare(ctx, c)
	if err != nil {
		return nil, err
	}
	put := with.Put
	if put == nil {
		put = &Offline{}
	}
	after := *put
	after.AutoReachable, after.FlatNetwork = o.AutoReachable, o.FlatNetwork
	v, err := after.Verify(ctx, VerifyOptions{Zone: zone, Against: o, Delete: with.Delete, Shadow: with.Shadow, Only: func(mesh, name string) bool {
		return (with.Mesh == "" || with.Mesh == mesh) && (with.Dataplane == "" || with.Dataplane == name)
	}})
	if err != nil {
		return nil, err
	}
	d.Findings = v.Findings
	return d, nil
}
