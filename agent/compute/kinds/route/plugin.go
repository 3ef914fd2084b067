// Package route implements the kinds that route requests and connections: MeshHTTPRoute,
// MeshTCPRoute, and TrafficRoute, which they replace.
//
// It creates the filter chains of outbounds with a policy. MeshHTTPRoute routes requests,
// MeshTCPRoute connections; for an HTTP service, MeshHTTPRoute takes precedence. If a policy of one
// of these kinds selects a proxy, it supersedes TrafficRoute for the traffic that the kind routes.
//
// Unusable destinations are dropped with a warning, as are rules without another destination; their
// requests match the next rule. An outbound always has a route to its own service.
package route

import (
	"maps"
	"slices"
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	KindHTTP = "MeshHTTPRoute"
	KindTCP  = "MeshTCPRoute"

	kindMesh    = "Mesh"
	kindGateway = "MeshGateway"
	kindSubset  = "MeshServiceSubset"
)

// Plugin declares the kinds with the legacy kinds that they replace.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	proxies, services := toolkit.Proxies(kindGateway), toolkit.Destinations()
	return policy.Plugin{
		Kinds: []resource.Descriptor{
			resource.PolicyDescriptor(KindHTTP, "meshhttproutes", "mhttpr", resource.PolicyShape{
				Top: proxies, To: services, Inline: true, Check: checkHTTP,
				NewConf: func() resource.Conf { return new(HTTPConf) },
			}),
			resource.PolicyDescriptor(KindTCP, "meshtcproutes", "mtcpr", resource.PolicyShape{
				Top: proxies, To: services, Inline: true, Check: checkTCP,
				NewConf: func() resource.Conf { return new(TCPConf) },
			}),
		},
		Legacy:       legacy,
		Causes:       behind(legacy),
		Suggest:      suggest,
		Outbound:     outbound,
		Destinations: destinations,
	}
}

// outbound creates the chain of an outbound with a policy.
func outbound(c *policy.Context, o *policy.Outbound) bool {
	requests, connections := c.Rules.Kind(KindHTTP), c.Rules.Kind(KindTCP)
	http, tcp := requests.Outbound(o.Service), connections.Outbound(o.Service)
	speaksHTTP := mesh.Protocol(o.Service.Protocol).HTTP()
	r := NewRouter(c, o)
	if http != nil && speaksHTTP {
		r.http(http)
		return true
	}
	if http != nil {
		toolkit.WarnStrongest(c, http,
			"the rules for %s have no effect, because it uses %s and has no requests to route; set "+
				"the protocol of its ports to http, http2, or grpc, or use a MeshTCPRoute", o.Service.Name, o.Service.Protocol)
	}
	return tcp != nil && r.tcp(tcp)
}

// Router creates the chain of one outbound.
type Router struct {
	c     *policy.Context
	o     *policy.Outbound
	known map[string]destination
}

// NewRouter returns a router for an outbound.
func NewRouter(c *policy.Context, o *policy.Outbound) *Router { return &Router{c: c, o: o} }

// destination is the cached result for a reference.
type destination struct {
	policy.Destination
	ok bool
}

// Share is a destination with its weight.
type Share struct {
	policy.Destination
	Weight uint32
}

// Find returns the destination of a reference. It returns false if the destination is not usable.
// For requests, the destination must use HTTP. from is the policy with the reference.
func (r *Router) Find(from *resource.Resource, ref policy.BackendRef, requests bool) (policy.Destination, bool) {
	key := refKey(from, ref)
	d, known := r.known[key]
	if !known {
		if r.known == nil {
			r.known = map[string]destination{}
		}
		if d.ok = !requests || r.takesRequests(from, ref); d.ok {
			d.Destination, d.ok = r.c.Host.Destination(from, ref)
		}
		r.known[key] = d
	}
	return d.Destination, d.ok
}

// takesRequests reports whether the service of a reference exists and uses HTTP.
func (r *Router) takesRequests(from *resource.Resource, ref policy.BackendRef) bool {
	s, ok := r.c.Host.Lookup(from, ref)
	if !ok || mesh.Protocol(s.Protocol).HTTP() {
		return ok
	}
	why := "it uses " + s.Protocol
	if !r.Offered(s) {
		why = "no workload offers it, so its protocol is unknown"
	}
	r.c.Host.Warn(from.Key, "the destination %s was dropped, because %s; use a destination with http, http2, or grpc",
		s.Name, why)
	return false
}

// Offered reports whether a workload offers a service, so that its protocol is known.
func (r *Router) Offered(s draft.Service) bool {
	return r.c.View.Service(mesh.ServiceID{Kind: s.Kind, Name: s.Name}) != nil
}

// refKey returns a unique key of a reference within one outbound.
func refKey(from *resource.Resource, ref policy.BackendRef) string {
	b := []byte(from.Name + "\x00" + from.Kind + "\x00" + ref.Kind + "\x00" + ref.Name + "\x00" + ref.Namespace + "\x00")
	b = strconv.AppendUint(b, uint64(ref.Port), 10)
	for _, tags := range []map[string]string{ref.Tags, ref.Labels} {
		b = append(b, 0)
		for _, k := range slices.Sorted(maps.Keys(tags)) {
			b = append(b, k+"\x00"+tags[k]+"\x00"...)
		}
	}
	return string(b)
}

// shares returns the usable destinations of a rule.
func (r *Router) shares(from *resource.Resource, refs []BackendRef, requests bool) []Share {
	out := make([]Share, 0, len(refs))
	for i := range refs {
		w := toolkit.Or(refs[i].Weight, 1)
		if w == 0 {
			continue
		}
		if d, ok := r.Find(from, refs[i].ref(), requests); ok {
			out = append(out, Share{d, w})
		}
	}
	return out
}

// tcp creates the chain for connections. It returns false if no destination is usable.
func (r *Router) tcp(rule *policy.Rule) bool {
	conf, ok := rule.Conf.(*TCPConf)
	if !ok || len(conf.Rules) == 0 {
		return false
	}
	shares := r.shares(toolkit.Strongest(rule), toolkit.Or(conf.Rules[0].Default.BackendRefs, nil), false)
	if len(shares) == 0 {
		return false
	}
	r.Chain(&draft.Chain{TCP: TCPProxy(r.o.Service.Name, shares)})
	return true
}

// Chain adds a filter chain for all connections to the listener.
func (r *Router) Chain(c *draft.Chain) {
	c.Message = &listenerv3.FilterChain{}
	r.o.Listener.Chains = append(r.o.Listener.Chains, c)
}

// TCPProxy returns a TCP proxy with weighted destinations. name determines the statistics prefix.
func TCPProxy(name string, shares []Share) *tcpv3.TcpProxy {
	out := &tcpv3.TcpProxy{StatPrefix: draft.StatName(name)}
	if len(shares) == 1 {
		out.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: shares[0].Cluster}
		return out
	}
	w := &tcpv3.TcpProxy_WeightedCluster{Clusters: make([]*tcpv3.TcpProxy_WeightedCluster_ClusterWeight, len(shares))}
	for i, s := range shares {
		w.Clusters[i] = &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: s.Cluster, Weight: s.Weight}
	}
	out.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: w}
	return out
}

// Manager returns the HTTP connection manager for routes, in the form of outbounds without
// policies.
func (r *Router) Manager(routes []*routev3.Route, protocol string) *draft.HTTP {
	name := r.o.Service.Name
	config := "outbound:" + name
	if r.o.Service.Kind == mesh.KindMeshExternalService {
		config = name
	}
	out := &draft.HTTP{
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix: draft.StatName(name), NormalizePath: wrapperspb.Bool(true),
			InternalAddressConfig: draft.InternalAddresses, HttpProtocolOptions: draft.HTTP10,
		},
		Filters: draft.PlainFilters,
		Routes: &routev3.RouteConfiguration{
			Name: config, ValidateClusters: wrapperspb.Bool(false),
			VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: routes}},
		},
		Headers: r.o.Headers,
	}
	if protocol == string(mesh.ProtocolGRPC) {
		out.Filters = draft.GRPCFilters
	}
	upgrade(out.Message, routes)
	return out
}

// upgrade enables WebSockets if some route leads to a destination that supports them. Redirects
// also respond to upgrade requests.
func upgrade(m *hcmv3.HttpConnectionManager, routes []*routev3.Route) {
	disabled := func(r *routev3.Route) bool { return r.GetRoute() == nil || r.GetRoute().UpgradeConfigs != nil }
	if slices.ContainsFunc(routes, func(r *routev3.Route) bool { return !disabled(r) }) {
		m.UpgradeConfigs = draft.WebSockets
		return
	}
	for _, r := range routes { // disabled by default
		if a := r.GetRoute(); a != nil {
			a.UpgradeConfigs = nil
		}
	}
}

// destinations lists the destinations of a MeshHTTPRoute or MeshTCPRoute, including mirrors.
func destinations(p *resource.Resource) []policy.BackendRef {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return nil
	}
	var out []policy.BackendRef
	add := func(refs []BackendRef) {
		for i := range refs {
			if toolkit.Or(refs[i].Weight, 1) > 0 {
				out = append(out, refs[i].ref())
			}
		}
	}
	for i := range spec.To {
		switch conf := spec.To[i].Conf.(type) {
		case *TCPConf:
			for j := range conf.Rules {
				add(toolkit.Or(conf.Rules[j].Default.BackendRefs, nil))
			}
		case *HTTPConf:
			for j := range conf.Rules {
				do := &conf.Rules[j].Default
				add(toolkit.Or(do.BackendRefs, nil))
				for _, f := range toolkit.Or(do.Filters, nil) {
					if f.RequestMirror != nil {
						out = append(out, f.RequestMirror.BackendRef.ref())
					}
				}
			}
		}
	}
	return out
}
