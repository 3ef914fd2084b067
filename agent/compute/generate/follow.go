package generate

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Snapshot returns the config in the form of package envoy.
func (p *Proxy) Snapshot() *envoy.Snapshot { return &p.Sealed.Resources }

// WithPolicies returns the mesh with these policies. Each is added or replaces the policy with the
// same key. They must belong to this mesh.
func (m *Mesh) WithPolicies(list ...*resource.Resource) *Mesh {
	out := *m
	out.set = resource.NewSet(slices.Concat(m.set.All(), list))
	if m.Policies != nil {
		out.Policies = policy.NewIndex(m.Policies.Plugins, out.set, m.View, m.options)
	}
	return &out
}

// CertificateNames returns the URIs in the certificate of a dataplane, sorted, or nil if the mesh
// has no mTLS or the dataplane gets no certificate.
func (m *Mesh) CertificateNames(dataplane *resource.Resource) []string {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok || m.View.Spec.MTLSEnabled() == nil {
		return nil
	}
	names, err := identity.Names(m.View.Name, m.View.ProxyTags(dp))
	if err != nil {
		return nil
	}
	return names
}
