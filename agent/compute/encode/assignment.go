package encode

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Field numbers of envoy.config.endpoint.v3 and the messages in it, for the encoder below.
const (
	fieldClusterName = 1 // ClusterLoadAssignment
	fieldEndpoints   = 2
	fieldLocality    = 1 // LocalityLbEndpoints
	fieldLbEndpoints = 2
	fieldPolicy      = 4
	fieldGroupWeight = 3
	fieldPriority    = 5
	fieldZone        = 2 // core.Locality
	fieldSubZone     = 3
	fieldFactor      = 3 // ClusterLoadAssignment.Policy
	fieldEndpoint    = 1 // LbEndpoint
	fieldHealth      = 2
	fieldMetadata    = 3
	fieldWeight      = 4
	fieldAddress     = 1 // Endpoint
	fieldSocket      = 1 // core.Address
	fieldHost        = 2 // core.SocketAddress
	fieldPort        = 3
	fieldUInt32      = 1 // google.protobuf.UInt32Value
)

// The same tags of an endpoint select subsets and TLS contexts.
var endpointMetadata = []string{"envoy.lb", "envoy.transport_socket_match"}

// labelsMetadata is the metadata for the labels of an endpoint's dataplane. Formats of access logs
// and patches can read it.
const labelsMetadata = "io.kuma.labels"

const labelProxyType = "kuma.io/proxy-type"

// eachLabel calls f with the labels of the endpoint's dataplane and those that Kuma derives,
// sorted. Without labels of its own it has none: the derived ones are equal for the whole zone.
func eachLabel(e *mesh.Endpoint, f func(key, value string)) {
	if e.Resource == nil || !mesh.Labeled(e.Resource) {
		return
	}
	dp, ok := e.Resource.Spec.(*resource.Dataplane)
	if !ok {
		return
	}
	labels := e.Resource.Labels
	var buf [24]string
	keys := buf[:0]
	for k := range labels {
		if !strings.HasPrefix(k, mesh.AgentLabels) {
			keys = append(keys, k)
		}
	}
	derived := [...][2]string{{resource.LabelEnv, "universal"}, {resource.LabelMesh, e.Resource.Key.Mesh},
		{resource.LabelOrigin, "zone"}, {labelProxyType, "sidecar"}, {resource.LabelZone, e.Zone}}
	if labels[resource.LabelNamespace] != "" {
		derived[0][1] = "kubernetes"
	}
	if dp.Networking.Gateway != nil {
		derived[3][1] = "gateway"
	}
	for _, d := range derived {
		if _, explicit := labels[d[0]]; !explicit {
			keys = append(keys, d[0])
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		value, explicit := labels[k]
		for i := 0; !explicit; i++ { // every other key is derived
			value, explicit = derived[i][1], derived[i][0] == k
		}
		f(k, value)
	}
}

// Assignment encodes a ClusterLoadAssignment with its endpoints grouped by zone, in the order of
// zone names. Endpoints are the largest and most often rebuilt part of a mesh, and encoding them
// directly takes a third of the time of building and marshaling messages. TestAssignmentIsCanonical
// compares the two. The zero value is ready. It is not safe for concurrent use.
//
// Endpoints on unresponsive nodes are unhealthy, unless all nodes are unresponsive.
type Assignment struct {
	some                               bool   // some node with endpoints responds
	out, group, lb, inner, tags, entry []byte // scratch buffers
}

// Encode returns the bytes of the load assignment of a cluster with some endpoints. The localities,
// which may be nil, group and order them.
func (a *Assignment) Encode(cluster string, list []mesh.Endpoint, l *policy.Localities, f node.Flavor) []byte {
	a.out = appendString(a.out[:0], fieldClusterName, cluster)
	list = mesh.Distinct(list)
	a.some = slices.ContainsFunc(list, func(e mesh.Endpoint) bool { return !e.Dead() })
	if l != nil { // set by a policy, and policies apply only to Envoys
		a.placed(list, l)
		return slices.Clone(a.out)
	}
	for i, zones := 0, zonesOf(list); i < len(zones); i++ {
		a.inner = a.inner[:0]
		if zones[i] != "" {
			a.inner = appendString(a.inner, fieldZone, zones[i])
		}
		a.group = appendBytes(a.group[:0], fieldLocality, a.inner)
		n := uint64(0)
		for j := range list {
			if list[j].Zone == zones[i] {
				a.endpoint(&list[j])
				a.group = appendBytes(a.group, fieldLbEndpoints, a.lb)
				n += uint64(max(list[j].Weight, 1))
			}
		}
		if f == node.FlavorGRPC {
			// gRPC ignores localities without a weight (gRFC A27); Envoy counts endpoints instead.
			a.inner = appendVarint(a.inner[:0], fieldUInt32, n)
			a.group = appendBytes(a.group, fieldGroupWeight, a.inner)
		}
		a.out = appendBytes(a.out, fieldEndpoints, a.group)
	}
	return slices.Clone(a.out)
}

// placed appends the endpoints grouped by localities, in the order of priority and position.
func (a *Assignment) placed(list []mesh.Endpoint, l *policy.Localities) {
	places, of := placesOf(list, l)
	for _, p := range places {
		a.inner = a.inner[:0]
		if p.Zone != "" {
			a.inner = appendString(a.inner, fieldZone, p.Zone)
		}
		if p.SubZone != "" {
			a.inner = appendString(a.inner, fieldSubZone, p.SubZone)
		}
		a.group = appendBytes(a.group[:0], fieldLocality, a.inner)
		for j := range list {
			if of[j].Locality == p && of[j].ok {
				a.endpoint(&list[j])
				a.group = appendBytes(a.group, fieldLbEndpoints, a.lb)
			}
		}
		if p.Weight > 0 {
			a.inner = appendVarint(a.inner[:0], fieldUInt32, uint64(p.Weight))
			a.group = appendBytes(a.group, fieldGroupWeight, a.inner)
		}
		if p.Priority > 0 {
			a.group = appendVarint(a.group, fieldPriority, uint64(p.Priority))
		}
		a.out = appendBytes(a.out, fieldEndpoints, a.group)
	}
	if l.Overprovisioning > 0 {
		a.inner = appendVarint(a.inner[:0], fieldUInt32, uint64(l.Overprovisioning))
		a.entry = appendBytes(a.entry[:0], fieldFactor, a.inner)
		a.out = appendBytes(a.out, fieldPolicy, a.entry)
	}
}

// placement is the group of an endpoint, if it has one.
type placement struct {
	policy.Locality
	ok bool
}

// placesOf returns the groups in order, and the placement of each endpoint.
func placesOf(list []mesh.Endpoint, l *policy.Localities) (places []policy.Locality, of []placement) {
	of = make([]placement, len(list))
	for i := range list {
		var labels map[string]string
		if r := list[i].Resource; r != nil {
			labels = r.Labels
		}
		of[i].Locality, of[i].ok = l.Assign(list[i].Zone, list[i].Tags, labels)
		if of[i].ok && !slices.Contains(places, of[i].Locality) {
			places = append(places, of[i].Locality)
		}
	}
	slices.SortFunc(places, policy.Locality.Compare)
	return places, of
}

func zonesOf(list []mesh.Endpoint) []string {
	var zones []string
	for i := range list {
		if !slices.Contains(zones, list[i].Zone) {
			zones = append(zones, list[i].Zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// endpoint encodes one LbEndpoint into a.lb. Members of a oneof come last, as in the output of the
// protobuf library.
func (a *Assignment) endpoint(e *mesh.Endpoint) {
	a.lb = a.lb[:0]
	if a.some && e.Dead() {
		a.lb = appendVarint(a.lb, fieldHealth, uint64(corev3.HealthStatus_UNHEALTHY))
	}
	a.tags = a.tags[:0]
	e.EachTag(func(k, v string) { a.tags = draft.AppendTag(a.tags, k, v) })
	a.inner = a.inner[:0]
	if len(a.tags) > 0 {
		for _, name := range endpointMetadata {
			a.inner = draft.AppendNamespace(a.inner, name, a.tags)
		}
	}
	a.tags = a.tags[:0]
	eachLabel(e, func(k, v string) { a.tags = draft.AppendTag(a.tags, k, v) })
	if len(a.tags) > 0 {
		a.inner = draft.AppendNamespace(a.inner, labelsMetadata, a.tags)
	}
	if len(a.inner) > 0 {
		a.lb = appendBytes(a.lb, fieldMetadata, a.inner)
	}
	a.inner = appendVarint(a.inner[:0], fieldUInt32, uint64(max(e.Weight, 1)))
	a.lb = appendBytes(a.lb, fieldWeight, a.inner)

	a.inner = appendString(a.inner[:0], fieldHost, e.Address)
	a.inner = appendVarint(a.inner, fieldPort, uint64(e.Port))
	a.entry = appendBytes(a.entry[:0], fieldSocket, a.inner)
	a.inner = appendBytes(a.inner[:0], fieldAddress, a.entry)
	a.lb = appendBytes(a.lb, fieldEndpoint, a.inner)
}
