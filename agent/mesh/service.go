package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
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

// common returns the protocol that both sides understand: gRPC is HTTP/2, HTTP/2 is HTTP, everything is TCP.
func common(a, b Protocol) Protocol {
	if a == b {
		return a
	}
	if a.HTTP() && b.HTTP() {
		if a == ProtocolHTTP || b == ProtocolHTTP {
			return ProtocolHTTP
		}
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

// ServiceID names a service, for real services one port of it. Name is the name of its cluster.
type ServiceID struct {
	Kind string
	Name string
}

func (a ServiceID) compare(b ServiceID) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Service is one destination that a proxy can have a cluster for.
type Service struct {
	ID       ServiceID
	Tag      string            // value of kuma.io/service, tag services only
	Resource resource.Key      // the real service; zero for tag services
	Derived  bool              // from kuma.io/service tags: Resource is not in the set
	FullName string            // of a real service, as other zones know it: with its Kubernetes namespace, where it has one
	Labels   map[string]string // of a real service, with those that all resources of the mesh have
	Port     uint32            // port at the virtual address
	Section  string            // name of the port of a real service, "" when it has none
	Protocol Protocol
	VIP      netip.Addr // virtual IPv4 address; real services share one between their ports
	VIP6     netip.Addr // virtual IPv6 address; proxies listen there only when View.IPv6 is set
	// External is true when endpoints lie outside the mesh: they are part of the cluster, not of EDS.
	External  bool
	Endpoints *EndpointSet
	// NotReady is how many endpoints there are beside those, which take no traffic now.
	NotReady int
	// Outside is where an external service really is; nil for services of the mesh.
	Outside *EndpointSet
	// Egress is true for an external service that is reached through the egresses of the zone, which Endpoints are then.
	Egress bool
	// Identities are, with mTLS, the SPIFFE IDs of which the endpoints of a real service prove one, sorted: those that it
	// lists, else those of all services of the dataplanes that it selects, as in the reference. Tag services have the one
	// of their tag.
	Identities []string
	// TLSReady says that every endpoint of a MeshService takes mutual TLS, by its status.
	TLSReady bool

	// Index is the place of the service in View.Services; views with the same Catalog have the same services there. It
	// is -1 for a service that nothing offers.
	Index int

	claimed []resource.VIP  // addresses from the status of the resource
	digest  resource.Digest // of the resource; zero for tag services
	res     *resource.Resource
	port    *resource.MeshServicePort
	from    []*inbound // of which its endpoints are made
	alone   bool       // of those and nothing else, so that the next view may take it over
}

// EndpointSet is the endpoints of a service. Views share it while it does not change, so that equal pointers mean
// equal endpoints.
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

// EachTag calls f with the tags that other proxies see of the endpoint, sorted: its own without the service, with its
// zone.
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
	return s == o || slices.EqualFunc(s.List, o.List, func(a, b Endpoint) bool {
		if a.Ingress() { // what else it leads to does not count
			return b.Ingress() && a.Resource.Key == b.Resource.Key && a.Weight == b.Weight && maps.Equal(a.Tags, b.Tags) &&
				a.Address == b.Address && a.Port == b.Port && a.Zone == b.Zone
		}
		return (a.Resource == b.Resource || a.Resource.Digest == b.Resource.Digest) && a.Index == b.Index &&
			a.Address == b.Address && a.Port == b.Port && a.Zone == b.Zone
	})
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

// contains reports whether tags has every entry of want; the value "*" matches any.
func contains(tags, want map[string]string) bool {
	for k, v := range want {
		if have, ok := tags[k]; !ok || (have != v && v != "*") {
			return false
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// PortSection is how the sectionName of a targetRef names a port of a real service that has no name.
func PortSection(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// Selects reports whether a MeshService of the mesh selects an inbound of a dataplane, ready or not.
func (v *View) Selects(service, dataplane *resource.Resource, in *resource.Inbound) bool {
	spec, ok := service.Spec.(*resource.MeshService)
	if !ok {
		return false
	}
	switch sel := &spec.Selector; {
	case len(sel.DataplaneTags) > 0:
		return contains(v.InboundTags(in.Tags), sel.DataplaneTags)
	case sel.DataplaneRef != nil:
		return dataplane.Name == sel.DataplaneRef.Name
	case sel.DataplaneLabels != nil:
		return contains(dataplane.Labels, sel.DataplaneLabels.MatchLabels)
	}
	return false
}
