package generate

import (
	"errors"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
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

// Without returns the mesh without the effect of a policy.
func (m *Mesh) Without(k resource.Key) *Mesh {
	out := *m
	out.options.Without = k
	out.Policies = policy.NewIndex(m.Policies.Plugins, m.set, m.View, out.options)
	return &out
}

// With returns the mesh with a policy replaced by another one of the same key.
func (m *Mesh) With(r *resource.Resource) *Mesh {
	all := m.set.All()
	if i := slices.IndexFunc(all, func(o *resource.Resource) bool { return o.Key == r.Key }); i >= 0 {
		all[i] = r
	}
	out := *m
	out.set = resource.NewSet(all)
	out.Policies = policy.NewIndex(m.Policies.Plugins, out.set, m.View, out.options)
	return &out
}
