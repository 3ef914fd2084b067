package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// Protocol is the application protocol of a service or an inbound.
type Protocol string

// Protocols that proxies are configured for. Any other protocol is treated as TCP.
const (
	ProtocolTCP   Protocol = "tcp"
	ProtocolTLS   Protocol = "tls" // opaque to the proxy, like tcp
	ProtocolHTTP  Protocol = "http"
	ProtocolHTTP2 Protocol = "http2"
	ProtocolGRPC  Protocol = "grpc"
)

// ParseProtocol parses the value of kuma.io/protocol or appProtocol. Unknown values are TCP.
func ParseProtocol(s string) Protocol {
	switch p := Protocol(s); p {
	case ProtocolTLS, ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC:
		return p
	}
	return ProtocolTCP
}

// HTTP reports whether proxies parse requests of that protocol.
func (p Protocol) HTTP() bool {
	return p == ProtocolHTTP || p == ProtocolHTTP2 || p == ProtocolGRPC
}

// Common returns the protocol that both sides understand: gRPC counts as HTTP/2, and everything as
// TCP. HTTP/1.1 and HTTP/2 have only TCP in common, since a server of one may not understand the
// other.
func Common(a, b Protocol) Protocol {
	switch {
	case a == b:
		return a
	case a == ProtocolGRPC && b == ProtocolHTTP2, a == ProtocolHTTP2 && b == ProtocolGRPC:
		return ProtocolHTTP2
	}
	return ProtocolTCP
}

// Kinds of services. A tag service is a value of kuma.io/service, not a resource.
const (
	KindTag                  = ""
	KindMeshService          = "MeshService"
	KindMeshExternalService  = "MeshExternalService"
	KindMeshMultiZoneService = "MeshMultiZoneService"
)

// ServiceID identifies a service, or one port of a service resource. Name is the name of its
// cluster.
type ServiceID struct {
	Kind string
	Name string
}

func (a ServiceID) compare(b ServiceID) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Service is one destination for which a proxy can have a cluster: a value of the tag
// kuma.io/service, or one port of a service resource (MeshService, MeshExternalService, or
// MeshMultiZoneService).
type Service struct {
	ID       ServiceID
	Tag      string       // value of kuma.io/service; "" for service resources
	Resource resource.Key // key of the service resource; zero for tag services
	FullName string       // name of a service resource in other zones: with its Kubernetes namespace, if it has one
	Labels   map[string]string
	Section  string // port name of a service resource; may be ""
	Protocol Protocol
	VIP      netip.Addr // virtual IPv4 address; the ports of a service resource share one
	VIP6     netip.Addr // virtual IPv6 address; proxies listen on it only if View.IPv6 is set
	// Endpoints are those that accept traffic. For an external service they are part of the cluster
	// and not of EDS.
	Endpoints *EndpointSet
	// Outside holds the real endpoints of an external service; nil for services of the mesh.
	Outside *EndpointSet
	// Beyond holds the endpoints behind the ingresses of other zones if traffic to them passes
	// through the egresses of this zone. Endpoints then holds the egresses. It is nil otherwise.
	Beyond *EndpointSet
	// Identities are the SPIFFE IDs accepted from endpoints with mTLS, sorted: the listed ones, or
	// else, as in Kuma, those of all services of the selected dataplanes. A tag service has the ID
	// of its tag.
	Identities []string
	// Index is the position of the service in View.Services. Views with the same Catalog have the
	// same services at each index. It is -1 for a service without instances.
	Index int
	// NotReady is the number of endpoints that do not accept traffic now. They are not in
	// Endpoints.
	NotReady int
	Port     uint32 // at the virtual address
	// Aliases are additional addresses of a tag service outside the mesh: the ports of its
	// ExternalServices, and their addresses where these are IPs. An alias without an address
	// applies to the virtual addresses. Sorted.
	Aliases  []netip.AddrPort
	Derived  bool // from kuma.io/service tags; the set has no such resource
	External bool // endpoints lie outside the mesh
	Egress   bool // an external service reached through the zone's egresses, which are in Endpoints
	// Denied means that the service is outside the mesh and no policy lets the proxy reach it. It
	// is never set in a View.
	Denied   bool
	TLSReady bool // by its status, every endpoint of the MeshService accepts mutual TLS
	// TLSNotReady means that, by the MeshService's status, not every endpoint accepts mutual TLS.
	TLSNotReady bool
	fixed       bool // depends only on from, through, res, and the Mesh, so the next view can reuse it

	claimed []resource.VIP            // addresses from the status of the resource
	res     *resource.Resource        // nil for tag services and derived ones
	port    *resource.MeshServicePort // of a MeshService
	from    []*inbound                // inbounds of its endpoints
	through *Endpoint                 // first ingress that leads to a tag service; may be nil
	warned  []Warning                 // about a MeshService; only in its first port
	again   bool                      // copied from the previous view; until it is sorted, Index is its position there
}

// key returns the owner of the names and virtual addresses of a service, which the ports of a
// service resource share.
func (s *Service) key() virtualip.Owner {
	if s.ID.Kind == KindTag {
		return virtualip.Owner{Kind: KindTag, Name: s.Tag}
	}
	return virtualip.Owner{Kind: s.ID.Kind, Name: s.Resource.Name}
}

// EndpointSet holds the endpoints of a service. Views share a set until it changes, so equal
// pointers mean equal endpoints.
type EndpointSet struct {
	List []Endpoint
}

// Endpoint is one address of a service.
type Endpoint struct {
	Address  string // IP; a host name only for external services
	Port     uint32
	Zone     string
	Tags     map[string]string  // as given, with kuma.io/service; must not be modified
	Resource *resource.Resource // the Dataplane, ExternalService, or MeshExternalService of the endpoint
	Index    int                // of the inbound or endpoint within the resource
	Weight   uint32             // 0 counts as 1; for an ingress, the number of instances behind it
}

// Dead reports whether the endpoint is on a node that does not respond.
func (e *Endpoint) Dead() bool {
	return e.Resource != nil && e.Resource.Labels[resource.LabelLiveness] == resource.LivenessDead
}

// EachTag calls f with the endpoint tags that other proxies see, sorted: its tags with its zone but
// without the service.
func (e *Endpoint) EachTag(f func(key, value string)) {
	var buf [16]string
	keys := buf[:0]
	for k := range e.Tags {
		if k != resource.TagService && k != resource.TagZone {
			keys = append(keys, k)
		}
	}
	if e.Zone != "" {
		keys = append(keys, resource.TagZone)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k == resource.TagZone {
			f(k, e.Zone)
		} else {
			f(k, e.Tags[k])
		}
	}
}

// has reports whether the endpoint has all the given tags; the value "*" matches any.
func (e *Endpoint) has(want map[string]string) bool {
	for k, v := range want {
		have, ok := e.Tags[k]
		if k == resource.TagZone {
			have, ok = e.Zone, e.Zone != ""
		}
		if !ok || (have != v && v != "*") {
			return false
		}
	}
	return true
}

func (s *EndpointSet) equal(o *EndpointSet) bool {
	return s == o || slices.EqualFunc(s.List, o.List, equalEndpoints)
}

func equalEndpoints(a, b Endpoint) bool {
	switch {
	case a.Address != b.Address || a.Port != b.Port || a.Zone != b.Zone:
		return false
	case a.Relay(): // other services behind an ingress do not matter
		return b.Relay() && a.Resource.Key == b.Resource.Key && a.Weight == b.Weight && maps.Equal(a.Tags, b.Tags)
	}
	return (a.Resource == b.Resource || a.Resource.Digest == b.Resource.Digest) && a.Index == b.Index
}

// Subset returns the endpoints whose tags contain all given tags.
func (s *EndpointSet) Subset(tags map[string]string) []Endpoint {
	if len(tags) == 0 {
		return s.List
	}
	var out []Endpoint
	for i := range s.List {
		if s.List[i].has(tags) {
			out = append(out, s.List[i])
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// SectionName returns the sectionName by which a targetRef names a port: the port's name, or its
// number if it has no name.
func SectionName(name string, port uint32) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(uint64(port), 10)
}
