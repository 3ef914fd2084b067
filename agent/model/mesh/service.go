package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Protocol is the application protocol of a service or an inbound.
type Protocol string

// Protocols that proxies are configured for. Everything else is treated as TCP.
const (
	ProtocolTCP   Protocol = "tcp"
	ProtocolTLS   Protocol = "tls" // opaque to the proxy, as tcp
	ProtocolHTTP  Protocol = "http"
	ProtocolHTTP2 Protocol = "http2"
	ProtocolGRPC  Protocol = "grpc"
)

// ParseProtocol reads the value of kuma.io/protocol or appProtocol; what is unknown is TCP.
func ParseProtocol(s string) Protocol {
	switch p := Protocol(s); p {
	case ProtocolTLS, ProtocolHTTP, ProtocolHTTP2, ProtocolGRPC:
		return p
	}
	return ProtocolTCP
}

// HTTP reports whether proxies understand the requests of that protocol.
func (p Protocol) HTTP() bool {
	return p == ProtocolHTTP || p == ProtocolHTTP2 || p == ProtocolGRPC
}

// common returns the protocol that both sides understand: gRPC is HTTP/2, everything is TCP. A
// server of HTTP/1.1 need not understand HTTP/2, and one of HTTP/2 alone need not understand
// HTTP/1.1, so that of both nothing but bytes are known.
func common(a, b Protocol) Protocol {
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

// ServiceID names a service, for service resources one port of it. Name is the name of its cluster.
type ServiceID struct {
	Kind string
	Name string
}

func (a ServiceID) compare(b ServiceID) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Service is one destination that a proxy can have a cluster for: a value of the tag
// kuma.io/service, or one port of a service resource (MeshService, MeshExternalService or
// MeshMultiZoneService).
type Service struct {
	ID       ServiceID
	Tag      string       // value of kuma.io/service; "" for service resources
	Resource resource.Key // of the service resource; zero for tag services
	FullName string       // of a service resource, as other zones know it: with its Kubernetes namespace, where it has one
	Labels   map[string]string
	Section  string // name of the port of a service resource, "" when it has none
	Protocol Protocol
	VIP      netip.Addr // virtual IPv4 address; the ports of a service resource share one
	VIP6     netip.Addr // virtual IPv6 address; proxies listen there only when View.IPv6 is set
	// Endpoints are ready to take traffic. Those of an external service are part of its cluster, not
	// of EDS.
	Endpoints *EndpointSet
	// Outside is where an external service really is; nil for services of the mesh.
	Outside *EndpointSet
	// Beyond is what lies behind the ingresses of other zones, where traffic goes there through the
	// egresses of this zone: Endpoints has these in its place. Nil where there is none, or where it is
	// reached directly.
	Beyond *EndpointSet
	// Identities are, with mTLS, the SPIFFE IDs of which the endpoints of a service resource prove
	// one, sorted: those that it lists, else those of all services of the dataplanes that it selects,
	// as in the reference. Tag services have the one of their tag.
	Identities []string
	// Index is the place of the service in View.Services; views with the same Catalog have the same
	// services there. It is -1 for a service that nothing offers.
	Index int
	// NotReady is how many endpoints there are beside Endpoints, which take no traffic now.
	NotReady int
	Port     uint32 // at the virtual address
	// Aliases are where a tag service outside of the mesh is dialled beside that: at the ports that
	// its ExternalServices name, and at their addresses where these are IPs. An alias without an
	// address is at the virtual ones. Sorted.
	Aliases  []netip.AddrPort
	Derived  bool // from kuma.io/service tags: Resource is not in the set
	External bool // endpoints lie outside the mesh
	Egress   bool // an external service that is reached through the egresses of the zone, which Endpoints are then
	// it lies outside the mesh, and no policy lets the proxy that the service is for go there; never
	// set in a View
	Denied   bool
	TLSReady bool // every endpoint of a MeshService takes mutual TLS, by its status
	// TLSNotReady says that not every endpoint takes mutual TLS, by the status of the MeshService.
	TLSNotReady bool
	fixed       bool // it depends on nothing but from, through, res and the Mesh, so that the next view can reuse it

	claimed []resource.VIP            // addresses from the status of the resource
	res     *resource.Resource        // nil for tag services and derived ones
	port    *resource.MeshServicePort // of a MeshService
	from    []*inbound                // of which its endpoints are made
	through *Endpoint                 // the first of the ingresses that lead to a tag service; nil for none
}

// serviceKey is what has names and virtual addresses: a tag service, or a service resource with all
// its ports.
type serviceKey struct{ kind, name string }

func (k serviceKey) compare(o serviceKey) int {
	return cmp.Or(strings.Compare(k.kind, o.kind), strings.Compare(k.name, o.name))
}

func (s *Service) key() serviceKey {
	if s.ID.Kind == KindTag {
		return serviceKey{KindTag, s.Tag}
	}
	return serviceKey{s.ID.Kind, s.Resource.Name}
}

// EndpointSet is the endpoints of a service. Views share it while it does not change, so that equal
// pointers mean equal endpoints.
type EndpointSet struct {
	List []Endpoint
}

// Endpoint is one address of a service.
type Endpoint struct {
	Address  string // IP; a host name only for external services
	Port     uint32
	Zone     string
	Tags     map[string]string  // as written, with kuma.io/service; must not be changed
	Resource *resource.Resource // Dataplane, ExternalService or MeshExternalService it comes from
	Index    int                // of the inbound or endpoint in it
	Weight   uint32             // 0 counts as 1; an ingress has the number of instances behind it
}

// Dead reports whether the endpoint is on a node that does not answer.
func (e *Endpoint) Dead() bool {
	return e.Resource != nil && e.Resource.Labels[resource.LabelLiveness] == resource.LivenessDead
}

// EachTag calls f with the tags that other proxies see of the endpoint, sorted: its own without the
// service, with its zone.
func (e *Endpoint) EachTag(f func(key, value string)) {
	var room [16]string
	keys := room[:0]
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
	case a.Relay(): // what else it leads to does not count
		return b.Relay() && a.Resource.Key == b.Resource.Key && a.Weight == b.Weight && maps.Equal(a.Tags, b.Tags)
	}
	return (a.Resource == b.Resource || a.Resource.Digest == b.Resource.Digest) && a.Index == b.Index
}

// Subset returns the endpoints whose tags contain all the given ones.
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

// SectionName is how the sectionName of a targetRef names a port of a service: by its name, or by
// its number where it has none.
func SectionName(name string, port uint32) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(uint64(port), 10)
}
