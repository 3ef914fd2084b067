package generate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// unixScheme begins the address of a unix socket.
const unixScheme = "unix://"

// externalConnectTimeout is that of the reference for what lies outside the mesh.
const externalConnectTimeout = 5 * time.Second

// external adds the chains and clusters of one service outside a mesh: one for all its endpoints, and one for each choice
// of tags that a proxy of the mesh makes.
func (e *egress) external(m *egressMesh, s *mesh.Service) {
	for _, subset := range m.subsets(s) {
		o := &mesh.Outbound{Service: s, Subset: subset}
		sni := sniOf(m.view.Name, o)
		if sni == "" {
			e.warn(e.owner(s), "its server name, which is made of the mesh, the service and %d tags, is longer than %d bytes: it is not reachable through the egress; give shorter names", len(subset), maxSNI)
			continue
		}
		name := m.view.Name + ":" + clusterName(o)
		c := e.externalCluster(s, name, s.Outside.Subset(subset))
		if c == nil || !e.take(sni, e.owner(s)) {
			continue
		}
		c.Service = serviceOf(s)
		c.Message.AltStatName = statName(name)
		c.Message.ConnectTimeout = seconds(externalConnectTimeout)
		httpOptions(c, s.Protocol)
		e.d.Clusters = append(e.d.Clusters, c)
		chain := m.chain(name, sni)
		if s.Protocol.HTTP() {
			chain.HTTP = externalHTTP(s, name)
		} else {
			chain.TCP = externalTCP(name)
		}
		e.listener.Chains, m.used = append(e.listener.Chains, chain), true
	}
}

// owner is the resource that a service is made of, the first where there are several.
func (e *egress) owner(s *mesh.Service) resource.Key {
	if s.Resource != (resource.Key{}) {
		return s.Resource
	}
	if len(s.Outside.List) > 0 {
		return s.Outside.List[0].Resource.Key
	}
	return e.in.Resource.Key
}

// externalCluster makes the cluster of endpoints outside a mesh; nil where that cannot be as it was asked for.
func (e *egress) externalCluster(s *mesh.Service, name string, list []mesh.Endpoint) *draft.Cluster {
	if s.ID.Kind != mesh.KindMeshExternalService {
		return outsideCluster(name, list, e.spec.Networking.Address, e.warn)
	}
	if len(list) == 0 {
		e.warn(s.Resource, "spec.endpoints are missing: the service is not reachable; extensions are not known here")
		return nil
	}
	spec, ok := list[0].Resource.Spec.(*resource.MeshExternalService)
	if !ok {
		return nil
	}
	list, kind := e.oneKind(s.Resource, slices.Clone(list))
	c := &draft.Cluster{Message: &clusterv3.Cluster{Name: name}}
	if spec.TLS != nil && spec.TLS.Enabled {
		if err := externalTLS(c.Message, spec, list, e.in.SystemCA); err != nil {
			// Plain text, or a server that is not verified, would be worse than one service less.
			e.warn(s.Resource, "spec.tls: %v: the service is left out", err)
			return nil
		}
		if v := spec.TLS.Verification; v != nil && v.Mode == verifySkipCA {
			e.warn(s.Resource, "spec.tls.verification.mode: SkipCA believes every server: Envoy checks no names without authorities")
		}
	}
	resolve(c.Message, kind, e.spec.Networking.Address)
	group := &endpointv3.LocalityLbEndpoints{}
	for i := range list {
		group.LbEndpoints = append(group.LbEndpoints, externalEndpoint(&list[i]))
	}
	c.Message.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
	return c
}

// oneKind returns the endpoints that one cluster can have, since Envoy resolves names in clusters of names and addresses
// alone.
func (e *egress) oneKind(k resource.Key, list []mesh.Endpoint) ([]mesh.Endpoint, clusterv3.Cluster_DiscoveryType) {
	unix := func(ep mesh.Endpoint) bool { return strings.HasPrefix(ep.Address, unixScheme) }
	named := func(ep mesh.Endpoint) bool {
		_, err := netip.ParseAddr(ep.Address)
		return err != nil && !unix(ep)
	}
	if !slices.ContainsFunc(list, named) {
		return list, clusterv3.Cluster_STATIC
	}
	n := len(list)
	if list = slices.DeleteFunc(list, unix); len(list) < n {
		e.warn(k, "spec.endpoints: %d unix sockets stand beside host names, which one cluster cannot have: the sockets are left out; make them a service of their own", n-len(list))
	}
	return list, clusterv3.Cluster_STRICT_DNS
}

// externalEndpoint is one endpoint of a MeshExternalService.
func externalEndpoint(e *mesh.Endpoint) *endpointv3.LbEndpoint {
	path, unix := strings.CutPrefix(e.Address, unixScheme)
	if !unix {
		return lbEndpoint(e)
	}
	out := lbEndpoint(&mesh.Endpoint{Address: "0.0.0.0", Tags: e.Tags})
	out.GetEndpoint().Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	return out
}

// externalHTTP hands requests on to a service. Limits of time are the client's proxy's; those here end what it has
// forgotten.
func externalHTTP(s *mesh.Service, cluster string) *draft.HTTP {
	route := prefixRoute(routeName, cluster)
	route.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: sharedTrue}
	return &draft.HTTP{
		Filters: httpFilters(s.Protocol),
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix: statName(cluster), StreamIdleTimeout: seconds(inboundStreamIdleTimeout), InternalAddressConfig: draft.InternalAddresses,
		},
		Routes: &routev3.RouteConfiguration{
			Name: "outbound:" + s.ID.Name,
			// What proxies tell each other does not leave the mesh.
			RequestHeadersToRemove: []string{tagsHeader},
			ValidateClusters:       sharedFalse,
			VirtualHosts:           []*routev3.VirtualHost{{Name: s.ID.Name, Domains: anyDomain, Routes: []*routev3.Route{route}}},
		},
	}
}

func externalTCP(cluster string) *tcpv3.TcpProxy {
	return &tcpv3.TcpProxy{
		StatPrefix: statName(cluster), IdleTimeout: seconds(localIdleTimeout),
		ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster},
	}
}

// subsets are the choices of tags for which a service needs a chain, all endpoints first.
func (m *egressMesh) subsets(s *mesh.Service) []map[string]string {
	out := []map[string]string{nil}
	if s.ID.Kind == mesh.KindTag {
		out = append(out, m.chosen.Of(s.Tag)...)
	}
	return out
}

// maxEgressChains bounds the filter chains of an egress.
const maxEgressChains = 20_000

// take takes a server name. Envoy compares names in lower case, so that some services cannot be told apart.
func (e *egress) take(sni string, owner resource.Key) bool {
	lower := strings.ToLower(sni)
	switch other, taken := e.names[lower]; {
	case taken:
		e.warn(owner, "its server name %q is that of %s, or differs from it in the case of letters alone, which TLS does not tell apart: it is left out of the egress; rename one", clip.Text(sni, maxSNI), other)
		return false
	case strings.Contains(lower, "*"):
		e.warn(owner, "its server name %q has a *, which stands for more than itself: it is left out of the egress", clip.Text(sni, maxSNI))
		return false
	case len(e.names) == maxEgressChains:
		if !e.full {
			e.full = true
			e.warn(e.in.Resource.Key, "more than %d services and choices of tags: the others, from %s on, are not reachable through the egress", maxEgressChains, owner)
		}
		return false
	}
	e.names[lower] = owner
	return true
}

// chain makes a filter chain for connections of the proxies of the mesh that name a server.
func (m *egressMesh) chain(name, sni string) *draft.Chain {
	p := &egressChainParts{}
	p.chain = draft.Chain{TLS: true, Message: &p.message}
	p.message.Name, p.message.FilterChainMatch, p.message.TransportSocket = name, &p.match, m.tls.downstream
	p.match.TransportProtocol, p.match.ServerNames = transportTLS, []string{strings.ToLower(sni)}
	return &p.chain
}

func (e *egress) warn(k resource.Key, format string, args ...any) {
	w := mesh.Warning{Resource: k, Reason: fmt.Sprintf(format, args...)}
	if len(e.p.Warnings) < maxNotes && !e.noted[w] {
		e.noted[w] = true
		e.p.Warnings = append(e.p.Warnings, w)
	}
}
