package generate

import (
	"errors"
	"maps"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ProxyID identifies the proxy of a dataplane and the kind of its client.
type ProxyID struct {
	Mesh, Name string
	Flavor     node.Flavor
}

// In generates the config of the proxy in a mesh for the Envoy of prev. It returns nil if m is nil
// or has no such dataplane. Otherwise it behaves like [Generate].
func (id ProxyID) In(m *Mesh, prev *Proxy, memo *Memo) (*Proxy, error) {
	if m == nil {
		return nil, nil
	}
	in := Input{Mesh: m, Name: id.Name, Flavor: id.Flavor}
	if prev != nil {
		in.Build = prev.Build
	}
	p, err := Generate(in, prev, memo)
	var missing *NotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	return p, err
}

// Without returns the mesh without the effect of policies.
func (m *Mesh) Without(keys ...resource.Key) *Mesh {
	return m.instead(keys, func(resource.Key) *resource.Resource { return nil })
}

// With returns the mesh with a policy replaced by another one of the same key.
func (m *Mesh) With(r *resource.Resource) *Mesh {
	return m.instead([]resource.Key{r.Key}, func(resource.Key) *resource.Resource { return r })
}

// instead returns the mesh with policies replaced by other ones, or without those for which by
// returns nil.
func (m *Mesh) instead(keys []resource.Key, by func(resource.Key) *resource.Resource) *Mesh {
	out := *m
	out.options.Instead = maps.Clone(m.options.Instead)
	if out.options.Instead == nil {
		out.options.Instead = map[resource.Key]*resource.Resource{}
	}
	for _, k := range keys {
		out.options.Instead[k] = by(k)
	}
	options := out.options
	options.Prev = m.Policies
	out.Policies = policy.NewIndex(m.Policies.Plugins, m.set, m.View, options)
	return &out
}

// Only returns the mesh in which every dataplane reaches only these outbounds.
func (m *Mesh) Only(outbounds []mesh.Outbound) *Mesh {
	out := *m
	out.only = &outbounds
	return &out
}
