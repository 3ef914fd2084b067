package draft

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Draft is the config of one proxy while it is generated. The order of its lists has no meaning,
// because sealing sorts them.
type Draft struct {
	Listeners []*Listener
	Clusters  []*Cluster
	Routes    []*routev3.RouteConfiguration // served by RDS
	Endpoints []*endpointv3.ClusterLoadAssignment
	// Ready holds resources by rank that are already sealed.
	Ready [NumTypes][]*Resource
	Pipes []Pipe // destinations of loggers, possibly with duplicates
}

// ListenerKind is the purpose of a listener.
type ListenerKind int

const (
	Inbound ListenerKind = iota
	Outbound
	InboundPassthrough
	OutboundPassthrough
	DirectAccess
	API           // for gRPC clients
	OtherListener // created by a policy
)

// Service is the service to which a listener or cluster leads.
type Service struct {
	Kind     string // "" for a kuma.io/service tag, else the kind of the service resource
	Name     string // value of the tag, or the cluster name of the service resource
	Protocol string // "http", "http2", "grpc", "tcp", or "tls"
	// Resource, Section, and Port identify a service resource: its key, the name of its port (""
	// for none), and the port number.
	Resource resource.Key
	Section  string
	Port     uint32
	External bool // its endpoints are outside the mesh
	Upgrades bool // its requests may be upgraded to WebSockets
}

// Listener is a listener. Message holds everything but the filter chains.
type Listener struct {
	Kind    ListenerKind
	Origin  string  // component that created it, if it does not follow from Kind; see MadeBy
	Port    uint32  // port of an inbound, else 0
	Inbound int     // index in networking.inbound of an Inbound, else 0
	Service Service // service of an outbound; for an inbound, the service of its tag
	// Tags become the metadata of the listener when it is sealed. Nil for none. They must not be
	// changed.
	Tags    map[string]string
	Message *listenerv3.Listener
	Chains  []*Chain

	only [1]*listenerv3.FilterChain // preallocated for the chain of most listeners
}

// Chain is a filter chain. Its filters are Network followed by the terminal filter, HTTP or TCP.
type Chain struct {
	Message *listenerv3.FilterChain // match, name, and transport socket without filters; may be nil
	TLS     bool                    // the peers have authenticated with a certificate of the mesh
	Network []Extension
	HTTP    *HTTP
	TCP     *tcpv3.TcpProxy

	last packedFilter // preallocated for the terminal filter, the only filter of most chains
	only [1]*listenerv3.Filter
}

// HTTP is an HTTP connection manager. Message holds everything but the filters and the inline
// routes.
type HTTP struct {
	Message *hcmv3.HttpConnectionManager
	Filters []Extension // the router is the last one
	Routes  *routev3.RouteConfiguration
	Headers *Headers // added to requests in addition to those of Routes; nil for none
	// Origins holds, by the name of a route, the route policies that created it, in ascending
	// precedence. Nil for none.
	Origins map[string][]resource.Key
}

// ClusterKind is the destination of a cluster.
type ClusterKind int

const (
	OutboundCluster ClusterKind = iota // a service or a subset of its endpoints
	InboundCluster                     // the workload
	PassthroughCluster
	OtherCluster // created by a policy
)

// Cluster is a cluster. Message holds everything but the HTTP protocol options.
type Cluster struct {
	Kind    ClusterKind
	Origin  string // component that created it, if it does not follow from Kind; see MadeBy
	Inbound int    // for an InboundCluster, the index in networking.inbound of its first inbound
	Service Service
	Message *clusterv3.Cluster
	// HTTP is nil for clusters that do not use HTTP. It may be a shared value of this package, so
	// use EditHTTP to change it.
	HTTP *httpv3.HttpProtocolOptions
}

// Extension is a named filter, logger, or similar extension, packed or not.
type Extension struct {
	Name    string
	Message proto.Message // packed when the draft is sealed
	Packed  *anypb.Any    // used if Message is nil; must not be changed

	Discovery *corev3.ExtensionConfigSource // of a filter whose config Envoy requests; excludes the others
	Optional  bool                          // for HTTP filters
	Disabled  bool                          // for HTTP filters
}

// EditHTTP returns the HTTP options of the cluster for editing. It copies shared ones.
func (c *Cluster) EditHTTP() *httpv3.HttpProtocolOptions {
	switch c.HTTP {
	case nil:
		c.HTTP = &httpv3.HttpProtocolOptions{}
	case HTTP1Options, HTTP2Options:
		c.HTTP = proto.Clone(c.HTTP).(*httpv3.HttpProtocolOptions)
	}
	return c.HTTP
}
