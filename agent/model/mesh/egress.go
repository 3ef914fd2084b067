package mesh

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// EgressService is the value of kuma.io/service by which the egresses of a zone prove themselves in
// every mesh.
const EgressService = "zone-egress"

// egresses are the endpoints that the egresses of a zone offer. The set of prev is used again where
// it is the same.
func (v *View) egresses(set *resource.Set, prev *View) *EndpointSet {
	out := noEndpoints
	for r, spec := range resource.Specs[*resource.ZoneEgress](set.Kind("ZoneEgress")) {
		if spec.Zone != "" && spec.Zone != v.Zone {
			continue
		}
		if _, err := netip.ParseAddr(spec.Networking.Address); err != nil {
			v.warnf(r.Key, "networking.address: %q is not an IP address, so proxies do not use this egress; "+
				"give the IP address at which it listens", spec.Networking.Address)
			continue
		}
		if out == noEndpoints {
			out = &EndpointSet{}
		}
		out.List = append(out.List,
			Endpoint{Address: spec.Networking.Address, Port: spec.Networking.Port, Zone: v.Zone, Resource: r})
	}
	slices.SortFunc(out.List, func(a, b Endpoint) int { return a.Resource.Key.Compare(b.Resource.Key) })
	if prev != nil && prev.egress.equal(out) {
		return prev.egress
	}
	return out
}

// Egresses are the egresses of the zone as endpoints, sorted by name. Views share the set while it
// does not change. It must not be changed.
func (v *View) Egresses() *EndpointSet { return v.egress }

// ThroughEgress reports whether what leaves the mesh, or goes to the ingress of another zone, does
// so through the egresses of the zone: the Mesh asks for it, and its proxies can prove themselves
// there. Where the zone has no egress, nothing leaves.
func (v *View) ThroughEgress() bool {
	return v.Spec.Routing != nil && v.Spec.Routing.ZoneEgress && v.Spec.MTLSEnabled() != nil
}

// ForbidsMeshExternalServices reports whether no proxy may use a MeshExternalService.
func (v *View) ForbidsMeshExternalServices() bool {
	return v.Spec.Routing != nil && v.Spec.Routing.DefaultForbidMeshExternalServiceAccess
}

// noteEgress warns about a Mesh that asks for egresses and cannot have them.
func (v *View) noteEgress() {
	if v.Spec.Routing == nil || !v.Spec.Routing.ZoneEgress {
		return
	}
	switch {
	case v.Spec.MTLSEnabled() == nil:
		v.warnf(v.mesh.Key, "routing.zoneEgress has no effect without mTLS, "+
			"by which an egress authenticates clients: traffic leaves the mesh directly; enable a backend of mtls")
	case len(v.egress.List) == 0:
		v.warnf(v.mesh.Key, "routing.zoneEgress is set, and zone %q has no ZoneEgress: destinations outside the mesh, "+
			"and those behind a ZoneIngress of another zone, are not reachable; apply one, and start its proxy with nearside "+
			"bootstrap --proxy-type egress", v.Zone)
	}
}

// leaves makes a service that lies outside the mesh known: reached through the egresses, or
// directly.
func (v *View) leaves(s *Service, outside []Endpoint, through bool) {
	s.Outside = &EndpointSet{List: outside}
	if s.Egress = through; through {
		s.Endpoints, s.Beyond = v.egress, nil
	}
}

// notReached says why a MeshExternalService is not; "" where it is.
func (v *View) notReached() string {
	switch {
	case v.Spec.MTLSEnabled() == nil:
		return "traffic to a MeshExternalService leaves through a ZoneEgress, which authenticates clients by mTLS: it is " +
			"not reachable; enable a backend of mtls in the Mesh"
	case len(v.egress.List) == 0:
		return "traffic to a MeshExternalService leaves through a ZoneEgress, and zone " + strconv.Quote(v.Zone) +
			" has none: it is not reachable; apply one, and start its proxy with nearside bootstrap --proxy-type egress"
	}
	return ""
}

// outsideOf are the endpoints that a MeshExternalService lists. The address of a unix socket is
// written as there.
func outsideOf(r *resource.Resource, spec *resource.MeshExternalService) []Endpoint {
	out := make([]Endpoint, len(spec.Endpoints))
	for i, e := range spec.Endpoints {
		out[i] = Endpoint{Address: e.Address, Port: e.Port, Resource: r, Index: i}
	}
	return out
}
