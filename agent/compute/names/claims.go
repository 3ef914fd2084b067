package names

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Claim is a claim to a name that did not succeed.
type Claim struct {
	Mesh      string
	Kind      string
	Service   string
	Origin    mesh.Origin
	Generator resource.Key
	Why       string
}

// Claims finds the claims to names and caches them by mesh. The zero value is ready to use. It is
// not safe for concurrent use.
type Claims struct {
	within map[*mesh.View]map[string][]Claim
}

// Of returns the other claims to a name and why they failed: those of other services of its mesh,
// then those of other meshes.
func (x *Claims) Of(n *Name) []Claim {
	if !n.Contested {
		return nil
	}
	out := slices.Clone(x.of(n.view)[n.Name])
	for _, o := range n.Others {
		why := "a name by " + string(n.Origin) + " takes precedence over one by " + string(o.Origin)
		switch {
		case n.rank != o.rank:
			why = "mesh " + n.Mesh + " has a proxy on this node, and mesh " + o.Mesh + " has none"
		case n.Origin == o.Origin:
			why = "mesh " + n.Mesh + " takes precedence over " + o.Mesh + " by its name"
		}
		out = append(out, Claim{o.Mesh, o.Kind, o.Service(), o.Origin, o.Generator, why})
	}
	return out
}

// of returns the unsuccessful claims to the names of a mesh by services of the same mesh.
func (x *Claims) of(v *mesh.View) map[string][]Claim {
	if out, known := x.within[v]; known {
		return out
	}
	out := map[string][]Claim{}
	var last mesh.ServiceID
	for _, s := range v.Services() {
		id := mesh.ServiceID{Kind: s.ID.Kind, Name: s.Resource.Name + s.Tag}
		if id == last {
			continue // another port
		}
		last = id
		for _, h := range v.HostnamesOf(s) {
			if !h.Generated && h.Reason == mesh.HostnameCollision {
				out[h.Hostname] = append(out[h.Hostname], Claim{v.Name, id.Kind, id.Name, h.Origin, h.Generator, h.Message})
			}
		}
	}
	if x.within == nil {
		x.within = map[*mesh.View]map[string][]Claim{}
	}
	x.within[v] = out
	return out
}
