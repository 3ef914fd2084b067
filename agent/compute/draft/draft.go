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

// Draft is the config of one proxy while it is made. The order of its lists has no meaning: sealing
// sorts.
type Draft struct {
	Listeners []*Listener
	Clusters  []*Cluster
	Routes    []*routev3.RouteConfiguration // those served by RDS
	Endpoints []*endpointv3.ClusterLoadAssignment
	// Ready holds resources by rank that were sealed before and are taken as they are.
	Ready [NumTypes][]*Resource
	Pipes []Pipe // that loggers write to; one may be there more than once
}

// ListenerKind says what a listener is there for.
type ListenerKind int

const (
	Inbound ListenerKind = iota
	Outbound
	InboundPassthrough
	OutboundPassthrough
	DirectAccess
	API           // for gRPC clients
	OtherListener // what a policy needs for itself
)

// Service is the mesh name of what a listener or cluster leads to.
type Service struct {
	Kind     string // "" for a kuma.io/service tag, else the kind of the service resource
	Name     string // value of the tag, or the cluster name of the service resource
	Protocol string // "http", "http2", "grpc", "tcp" or "tls"
	// Resource, Section and Port are of a service resource: its key, the name of its port ("" for
	// none) and the number.
	Resource resource.Key
	Section  string
	Port     uint32
	External bool // its endpoints lie outside the mesh
	Upgrades bool // requests may become WebSockets on the way there
}

// Listener is one listener. Message holds everything but the filter chains.
type Listener struct {
	Kind    ListenerKind
	Origin  string  // who made it, where Kind does not say; see MadeBy
	Port    uint32  // of the inbound or outbound
	Inbound int     // index in networking.inbound of an Inbound, else 0
	Service Service // behind an outbound; of an inbound, by its tag
	// Tags are what the listener stands for; they become its metadata when it is sealed. Nil for none,
	// must not be changed.
	Tags    map[string]string
	Message *listenerv3.Listener
	Chains  []*Chain

	only [1]*listenerv3.FilterChain // room for the chain of most listeners
}

// Chain is one filter chain. Its filters are Network, then the terminal filter: HTTP or TCP.
type Chain struct {
	Message *listenerv3.FilterChain // match, name and transport socket; its filters stay empty; may be nil
	TLS     bool                    // the peers have shown a certificate of the mesh
	Network []Extension
	HTTP    *HTTP
	TCP     *tcpv3.TcpProxy

	last packedFilter // room for the terminal filter, which is the only one of most chains
	only [1]*listenerv3.Filter
}

// HTTP is an HTTP connection manager. Message holds everything but the filters and the inline
// routes.
type HTTP struct {
	Message *hcmv3.HttpConnectionManager
	Filters []Extension // the router comes last
	Routes  *routev3.RouteConfiguration
	Headers *Headers // added to requests besides those of Routes; nil for none
	// Origins are, by the name of a route, the route policies that made it, the strongest last. Nil
	// for none.
	Origins map[string][]resource.Key
}

// ClusterKind says what a cluster leads to.
type ClusterKind int

const (
	OutboundCluster ClusterKind = iota // a service, or a part of its endpoints
	InboundCluster                     // the workload
	PassthroughCluster
	OtherCluster // what a policy needs for itself
)

// Cluster is one cluster. Message holds everything but the HTTP protocol options.
type Cluster struct {
	Kind    ClusterKind
	Origin  string // who made it, where Kind does not say; see MadeBy
	Inbound int    // of an InboundCluster: index in networking.inbound of the first inbound in front of it
	Service Service
	Message *clusterv3.Cluster
	// HTTP is nil for clusters that speak no HTTP. It may be one of the shared values of this package:
	// use EditHTTP to change it.
	HTTP *httpv3.HttpProtocolOptions
}

// Extension is a named filter, logger or the like, packed or not.
type Extension struct {
	Name    string
	Message proto.Message // packed when the draft is sealed
	Packed  *anypb.Any    // taken as it is when Message is nil; must not be changed

	Discovery *corev3.ExtensionConfigSource // of a filter whose configuration Envoy asks for; then there is no other
	Optional  bool                          // of an HTTP filter
	Disabled  bool                          // of an HTTP filter
}

// EditHTTP returns the cluster's HTTP options for changing: a copy, when they are shared.
func (c *Cluster) EditHTTP() *httpv3.HttpProtocolOptions {
	switch c.HTTP {
	case nil:
		c.HTTP = &httpv3.HttpProtocolOptions{}
	case HTTP1Options, HTTP2Options:
		c.HTTP = proto.Clone(c.HTTP).(*httpv3.HttpProtocolOptions)
	}
	return c.HTTP
}
