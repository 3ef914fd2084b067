// Package draft holds a proxy's config while it is made, and its sealing.
//
// A draft is Envoy's own messages, not yet packed into Any, keyed by mesh names. It is edited in place by the steps
// that make it and sealed once: packed, sorted, validated and hashed. The package is pure.
package draft

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/envoy"
)

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

// Ranks of the types.
const (
	RankSecret   = int(envoy.KindSecret)
	RankCluster  = int(envoy.KindCluster)
	RankEndpoint = int(envoy.KindEndpoint)
	RankListener = int(envoy.KindListener)
	RankRoute    = int(envoy.KindRoute)
)

// Resource is one sealed xDS resource. It is immutable and shared between proxies that have the same bytes.
type Resource = envoy.Resource

// ResourceID names a resource of a proxy's config.
type ResourceID struct {
	TypeURL string
	Name    string
}

// Sealed is the finished config of one proxy, immutable.
type Sealed struct {
	// Resources holds the resources by rank of their type (see Types), each list sorted by name.
	Resources envoy.Snapshot
	// Versions holds, by rank, a content hash over names and versions of the list; "" never occurs.
	Versions [NumTypes]string
}

// Compare calls f for every name whose bytes differ between two lists that are sorted by name, in the order of the names.
// A resource is nil where its list has none of that name.
func Compare(a, b []*Resource, f func(a, b *Resource)) {
	for len(a) > 0 || len(b) > 0 {
		var x, y *Resource
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = strings.Compare(a[0].Name, b[0].Name)
		}
		if order <= 0 {
			x, a = a[0], a[1:]
		}
		if order >= 0 {
			y, b = b[0], b[1:]
		}
		if order != 0 || x != y && x.Version != y.Version {
			f(x, y)
		}
	}
}
