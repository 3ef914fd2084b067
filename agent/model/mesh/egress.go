package mesh

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// EgressService is the kuma.io/service value in the certificates of a zone's egresses, in every
// mesh.
const EgressService = "zone-egress"

// egresses returns the endpoints of the zone's egresses. It reuses the set of prev if nothing
// changed.
func (v *View) egresses(set *resource.Set, prev *View) *EndpointSet {
	out := noEndpoints
	for r, spec := range resource.Specs[*resource.ZoneEgress](set.Kind("ZoneEgress")) {
		if spec.Zone != "" && spec.Zone != v.Zone {
			continue
		}
		if _, err := netip.ParseAddr(spec.Networking.Address); err != nil {
			v.warnf(r.Key, "networking.address: %q is not an IP address, so proxies do not use this egress; "+
				"set the IP address on which it listens", spec.Networking.Address)
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

// Egresses returns the zone's egresses as endpoints, sorted by name. Views share the set until it
// changes. Callers must not modify it.
func (v *View) Egresses() *EndpointSet { return v.egress }

// ThroughEgress reports whether traffic that leaves the mesh, or goes to the ingress of another
// zone, passes through the zone's egresses. This requires that the Mesh asks for it and has mTLS.
// If it is true and the zone has no egress, no traffic leaves.
func (v *View) ThroughEgress() bool {
	return v.Spec.Routing != nil && v.Spec.Routing.ZoneEgress && v.Spec.MTLSEnabled() != nil
}

// ForbidsMeshExternalServices reports whether no proxy may use a MeshExternalService.
func (v *View) ForbidsMeshExternalServices() bool {
	return v.Spec.Routing != nil && v.Spec.Routing.DefaultForbidMeshExternalServiceAccess
}

// noteEgress warns about a Mesh that asks for egresses but cannot use them.
func (v *View) noteEgress() {
	if v.Spec.Routing == nil || !v.Spec.Routing.ZoneEgress {
		return
	}
	switch {
	case v.Spec.MTLSEnabled() == nil:
		v.warnf(v.mesh.Key, "routing.zoneEgress has no effect without mTLS, "+
			"which an egress needs to authenticate clients: traffic leaves the mesh directly; enable a backend in mtls")
	case len(v.egress.List) == 0:
		v.warnf(v.mesh.Key, "routing.zoneEgress is set, but zone %q has no ZoneEgress: destinations outside the mesh "+
			"and behind a ZoneIngress of another zone are unreachable; apply one, and start its proxy with nearside "+
			"bootstrap --proxy-type egress", v.Zone)
	}
}

// leaves sets the endpoints of a service outside the mesh: the egresses if through is true, else
// the outside endpoints themselves.
func (v *View) leaves(s *Service, outside []Endpoint, through bool) {
	s.Outside = &EndpointSet{List: outside}
	if s.Egress = through; through {
		s.Endpoints, s.Beyond = v.egress, nil
	}
}

// notReached returns the reason why no MeshExternalService is reachable, or "".
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

// outsideOf returns the endpoints that a MeshExternalService lists. It leaves the path of a Unix
// socket unchanged.
func outsideOf(r *resource.Resource, spec *resource.MeshExternalService) []Endpoint {
	out := make([]Endpoint, len(spec.Endpoints))
	for i, e := range spec.Endpoints {
		out[i] = Endpoint{Address: e.Address, Port: e.Port, Resource: r, Index: i}
	}
	return out
}
