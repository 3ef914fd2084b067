package generate

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// routeName is the name of an outbound's route, unless a policy adds other routes.
const routeName = "default"

// outboundMessages holds the messages of one outbound. They are allocated at once, because a proxy
// has thousands of outbounds.
type outboundMessages struct {
	draft    draft.Listener
	chain    draft.Chain
	chains   [1]*draft.Chain
	listener listenerv3.Listener
	match    listenerv3.FilterChain
	address  corev3.Address
	socket   corev3.Address_SocketAddress
	host     corev3.SocketAddress
	port     corev3.SocketAddress_PortValue

	tcp        tcpv3.TcpProxy
	tcpCluster tcpv3.TcpProxy_Cluster

	cluster     draft.Cluster
	clusterSpec clusterv3.Cluster
	clusterType clusterv3.Cluster_Type
	tlsSocket   corev3.TransportSocket
	tlsConfig   corev3.TransportSocket_TypedConfig
	tlsPacked   anypb.Any
}

// httpMessages holds the additional messages of an HTTP outbound.
type httpMessages struct {
	http     draft.HTTP
	manager  hcmv3.HttpConnectionManager
	routes   routev3.RouteConfiguration
	host     routev3.VirtualHost
	hosts    [1]*routev3.VirtualHost
	route    routev3.Route
	list     [1]*routev3.Route
	match    routev3.RouteMatch
	prefix   routev3.RouteMatch_Prefix
	action   routev3.RouteAction
	routeTo  routev3.Route_Route
	cluster  routev3.RouteAction_Cluster
	rewrite  routev3.RouteAction_AutoHostRewrite
	duration durationpb.Duration
}

// outboundBuffers holds the messages of a batch. The next batch reuses the memory.
type outboundBuffers struct {
	outbounds []outboundMessages
	http      []httpMessages
	used      int // maximum number used since the last clear
}

// outboundBuffers returns the buffers of a memo, or new ones for a nil Memo.
func (m *Memo) outboundBuffers() *outboundBuffers {
	if m == nil {
		return &outboundBuffers{}
	}
	return &m.buffers
}

// reset clears the memory for the next n outbounds.
func (r *outboundBuffers) reset(n int) {
	if r.outbounds == nil {
		r.outbounds, r.http = make([]outboundMessages, maxBatch), make([]httpMessages, maxBatch)
	}
	clear(r.outbounds[:n])
	clear(r.http[:n])
	r.used = max(r.used, n)
}

// clear drops all references from the messages.
func (r *outboundBuffers) clear() {
	clear(r.outbounds[:r.used])
	clear(r.http[:r.used])
	r.used = 0
}

// batchSize is the approximate number of outbounds in a batch; see cutBatches.
const batchSize = 64

// tagsHeader returns the header in which proxies send their tags, or nil if it cannot hold them.
func (g *generator) tagsHeader() *draft.Headers {
	tags := mesh.TagString(g.v.ProxyTags(g.dp))
	h, err := draft.NewHeaders(&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: tagsHeader, Value: tags}})
	if err != nil {
		g.warnf("the header %s cannot carry the tags: %v: it is left out", tagsHeader, err)
	}
	return h
}

// outbounds adds a listener for each address that the workload may dial, and the clusters behind
// them.
func (g *generator) outbounds() {
	g.sealer.Grow(draft.TypeListener, len(g.reachable))
	g.sealer.Grow(draft.TypeCluster, len(g.reachable))
	g.sealer.Grow(draft.TypeRoute, len(g.reachable))
	buffers := g.memo.outboundBuffers()
	defer buffers.clear()
	i := 0
	for list := range cutBatches(g.reachable) {
		key, first := g.keys[i], i == 0 // the first batch also contains everything that is not an outbound
		if i++; !first && g.batches.reuse(key, list) {
			continue
		}
		buffers.reset(len(list))
		if !first {
			g.batches.begin(key, list)
		}
		g.outboundBatch(list, buffers.outbounds, buffers.http)
		g.flush()
		if !first {
			g.batches.end()
		}
	}
}

// outboundBatch builds the outbounds of one batch in the given memory.
func (g *generator) outboundBatch(list []mesh.Outbound, messages []outboundMessages, http []httpMessages) {
	bind := g.bindToPort()
	for i := range list {
		o, p := &list[i], &messages[i]
		service := g.serviceOf(o.Service)
		p.host.Address, p.host.PortSpecifier = o.Address.String(), &p.port
		p.port.PortValue = o.Port
		p.socket.SocketAddress = &p.host
		p.address.Address = &p.socket
		p.listener.Name = draft.Address{IP: o.Address, Port: o.Port}.Name()
		p.listener.Address = &p.address
		p.listener.TrafficDirection = corev3.TrafficDirection_OUTBOUND
		p.listener.BindToPort = bind
		p.draft = draft.Listener{Kind: draft.Outbound, Service: service, Tags: o.Tags, Message: &p.listener}
		if o.Tags == nil {
			p.draft.Tags = noTags
		}
		g.d.Listeners = append(g.d.Listeners, &p.draft)
		if g.routed(o, &p.draft) {
			continue
		}
		cluster := clusterName(o)
		p.chain.Message = &p.match
		if o.Service.Protocol.HTTP() {
			p.chain.HTTP = http[i].fill(o, cluster, g.headers, service.Upgrades)
		} else {
			p.tcpCluster.Cluster = cluster
			p.tcp.StatPrefix, p.tcp.ClusterSpecifier = draft.StatName(cluster), &p.tcpCluster
			if o.Service.Denied {
				p.tcp.StatPrefix = draft.ClosedStatName(cluster)
			}
			p.chain.TCP = &p.tcp
		}
		p.chains[0] = &p.chain
		p.draft.Chains = p.chains[:]
		g.serviceCluster(o, p, cluster, service)
	}
}

// serviceOf returns a service in the form of a draft.
func (g *generator) serviceOf(s *mesh.Service) draft.Service {
	out := namedService(s)
	// Proxies of the mesh use HTTP/2 between each other, and inbounds accept upgrades over HTTP/2
	// only if the mesh enables it.
	out.Upgrades = s.Protocol == mesh.ProtocolHTTP && (s.External || s.Egress || g.v.WebSockets)
	return out
}

func namedService(s *mesh.Service) draft.Service {
	return draft.Service{
		Kind: s.ID.Kind, Name: s.ID.Name, Protocol: string(s.Protocol), Resource: s.Resource, Section: s.Section,
		Port: s.Port, External: s.External,
	}
}

// fill builds the connection manager of an outbound.
func (p *httpMessages) fill(o *mesh.Outbound, cluster string, headers *draft.Headers, upgrades bool) *draft.HTTP {
	name := o.Service.ID.Name
	p.prefix.Prefix = "/"
	p.match.PathSpecifier = &p.prefix
	p.cluster.Cluster = cluster
	p.action.ClusterSpecifier, p.action.Timeout = &p.cluster, &p.duration
	if o.Service.External {
		p.rewrite.AutoHostRewrite = sharedTrue
		p.action.HostRewriteSpecifier = &p.rewrite
	}
	p.routeTo.Route = &p.action
	p.route.Name, p.route.Match, p.route.Action = routeName, &p.match, &p.routeTo
	p.list[0] = &p.route
	p.host.Name, p.host.Domains, p.host.Routes = name, anyDomain, p.list[:]
	p.hosts[0] = &p.host
	p.routes.Name = "outbound:" + name
	p.routes.ValidateClusters, p.routes.VirtualHosts = sharedFalse, p.hosts[:]
	p.manager.StatPrefix, p.manager.NormalizePath = draft.StatName(name), sharedTrue
	p.manager.InternalAddressConfig, p.manager.HttpProtocolOptions = draft.InternalAddresses, draft.HTTP10
	if upgrades {
		p.manager.UpgradeConfigs = draft.WebSockets
	}
	p.http = draft.HTTP{Message: &p.manager, Filters: httpFilters(o.Service.Protocol), Routes: &p.routes, Headers: headers}
	return &p.http
}

// clusterName returns the name of the service, with a hash of the tags if the outbound selects a
// subset of its endpoints.
func clusterName(o *mesh.Outbound) string {
	if len(o.Subset) == 0 {
		return o.Service.ID.Name
	}
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(o.Subset)) {
		h.Write([]byte(k + "\x00" + o.Subset[k] + "\x00"))
	}
	return o.Service.ID.Name + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// serviceCluster adds the cluster of an outbound once. Services of the mesh use EDS; other clusters
// hold their endpoints.
func (g *generator) serviceCluster(o *mesh.Outbound, p *outboundMessages, name string, service draft.Service) {
	if !g.claim(name) {
		return
	}
	if o.Service.External {
		g.externalCluster(o, name, service)
		return
	}
	p.clusterType.Type = clusterv3.Cluster_EDS
	p.clusterSpec.Name, p.clusterSpec.ClusterDiscoveryType, p.clusterSpec.EdsClusterConfig = name,
		&p.clusterType, draft.EDS
	g.tls.service(o, p)
	if o.Service.Egress {
		// The egress forwards the service's protocol and knows no subsets by tags: the server name
		// selects them.
		p.cluster = draft.Cluster{Service: service, Message: &p.clusterSpec}
		httpOptions(&p.cluster, o.Service.Protocol)
		g.d.Clusters = append(g.d.Clusters, &p.cluster)
		g.refs = append(g.refs, refTo(name, o.Service, nil))
		return
	}
	// Proxies of a mesh send requests to each other over HTTP/2, whatever the workloads use.
	p.cluster = draft.Cluster{Service: service, Message: &p.clusterSpec, HTTP: draft.HTTP2Options}
	g.d.Clusters = append(g.d.Clusters, &p.cluster)
	g.refs = append(g.refs, refTo(name, o.Service, o.Subset))
}

// apiListeners serves a proxyless gRPC client: for xds:///SERVICE it requests a listener of that
// name (gRFC A27), then the routes, the cluster, and the endpoints.
func (g *generator) apiListeners() {
	for i := range g.reachable {
		o := &g.reachable[i]
		if o.Service.External {
			g.warnf("service %s lies outside the mesh: gRPC clients without a proxy cannot reach it", o.Service.ID.Name)
			continue
		}
		cluster := clusterName(o)
		if !g.claim(cluster) {
			continue
		}
		service := draft.Service{Kind: o.Service.ID.Kind, Name: o.Service.ID.Name, Protocol: string(o.Service.Protocol)}
		route := "outbound:" + cluster
		h := &draft.HTTP{
			Filters: draft.PlainFilters,
			Message: &hcmv3.HttpConnectionManager{
				StatPrefix: draft.StatName(cluster),
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
					ConfigSource: draft.ADS, RouteConfigName: route,
				}},
			},
		}
		api, err := h.Pack()
		if err != nil {
			g.warnf("service %s: %v: it is left out", cluster, err)
			continue
		}
		g.d.Listeners = append(g.d.Listeners, &draft.Listener{
			Kind: draft.API, Port: o.Port, Service: service,
			Message: &listenerv3.Listener{Name: cluster, ApiListener: &listenerv3.ApiListener{ApiListener: api}},
		})
		g.d.Routes = append(g.d.Routes, routesOf(route, cluster, prefixRoute(routeName, cluster)))
		g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Service: service, Message: &clusterv3.Cluster{
			Name:                 cluster,
			ClusterDiscoveryType: clusterType(clusterv3.Cluster_EDS),
			EdsClusterConfig:     draft.EDS,
		}})
		g.refs = append(g.refs, refTo(cluster, o.Service, o.Subset))
	}
}
