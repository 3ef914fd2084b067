// Package draft holds a proxy's config while it is made, and its sealing.
//
// A draft is Envoy's own messages, not yet packed into Any, keyed by mesh names. It is edited in place by the steps
// that make it and sealed once: packed, sorted, validated and hashed. The package is pure.
package draft

// Type URLs of the resources that an agent serves.
const (
	TypeCluster  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	TypeEndpoint = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	TypeListener = "type.googleapis.com/envoy.config.listener.v3.Listener"
	TypeRoute    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	TypeSecret   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// Types lists the type URLs in make-before-break order: what is referred to comes before what refers to it
// (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, "Eventual consistency considerations").
// The index of a type in it is its rank.
var Types = [...]string{TypeSecret, TypeCluster, TypeEndpoint, TypeListener, TypeRoute}

// NumTypes is the number of types served.
const NumTypes = len(Types)

// Rank returns the index of a type URL in Types, -1 for a type that is not served.
func Rank(typeURL string) int {
	for i, t := range Types {
		if t == typeURL {
			return i
		}
	}
	return -1
}

// Resource is one sealed xDS resource. It is immutable and shared between proxies that have the same bytes.
type Resource struct {
	Name    string
	Version string // content hash: 16 hex digits over Body
	Body    []byte // deterministic wire form of the message
}

// Sealed is the finished config of one proxy, immutable.
type Sealed struct {
	// Resources holds the resources by rank of their type (see Types), each list sorted by name.
	Resources [NumTypes][]*Resource
	// Versions holds, by rank, a content hash over names and versions of the list; "" never occurs.
	Versions [NumTypes]string
}
