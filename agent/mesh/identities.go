package mesh

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// identities are what the endpoints of a MeshService prove themselves with.
func (v *View) identities(spec *resource.MeshService, selected []*inbound) []string {
	if len(spec.Identities) == 0 {
		return v.provedBy(selected)
	}
	if v.Spec.MTLSEnabled() == nil {
		return nil
	}
	var out []string
	for _, id := range spec.Identities {
		if id.Type == resource.IdentitySPIFFE {
			out = append(out, id.Value)
		} else {
			out = append(out, resource.SPIFFEID(v.Name, id.Value))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// provedBy are the identities of the dataplanes of inbounds: a proxy has one certificate, for all services of its
// inbounds.
func (v *View) provedBy(list []*inbound) []string {
	if v.Spec.MTLSEnabled() == nil {
		return nil
	}
	var out []string
	var last *resource.Resource
	for _, in := range list {
		spec, ok := in.dp.Spec.(*resource.Dataplane)
		if !ok || in.dp == last {
			continue // those of one dataplane stand together
		}
		last = in.dp
		for i := range spec.Networking.Inbound {
			if other := &spec.Networking.Inbound[i]; other.State != resource.InboundIgnored {
				out = append(out, other.Tags[resource.TagService])
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	for i, service := range out {
		out[i] = resource.SPIFFEID(v.Name, service)
	}
	return out
}
