package generate

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// unixScheme is the prefix of a unix socket's address.
const unixScheme = "unix://"

// externalConnectTimeout is Kuma's timeout for destinations outside the mesh.
const externalConnectTimeout = 5 * time.Second

// external adds the chains and clusters of a service outside a mesh: one for all its endpoints, and
// one for each tag combination that proxies of the mesh select.
func (e *egress) external(m *egressMesh, s *mesh.Service) {
	for _, subset := range m.subsets(s) {
		o := &mesh.Outbound{Service: s, Subset: subset}
		sni := e.serverName(m.view.Name, o, e.owner(s))
		if sni == "" {
			continue
		}
		name := m.view.Name + ":" + clusterName(o)
		c := e.externalCluster(s, name, s.Outside.Subset(subset))
		if c == nil || !e.take(sni, e.owner(s)) {
			continue
		}
		c.Service = namedService(s)
		c.Message.AltStatName = draft.StatName(name)
		c.Message.ConnectTimeout = seconds(externalConnectTimeout)
		httpOptions(c, s.Protocol)
		e.d.Clusters = append(e.d.Clusters, c)
		chain := m.chain(name, sni)
		if s.Protocol.HTTP() {
			chain.HTTP = externalHTTP(s, name)
		} else {
			chain.TCP = tcpTo(name, name, seconds(localIdleTimeout))
		}
		e.decide(m, chain, s.Outside.Subset(subset))
		e.listener.Chains, m.used = append(e.listener.Chains, chain), true
	}
}

// decide adds the policies of the destinations to a chain: RBAC filters that admit only clients
// with access to all endpoints, and legacy policies.
func (e *egress) decide(m *egressMesh, ch *draft.Chain, list []mesh.Endpoint) {
	var to []*policy.Outside
	for i := range list {
		if o := m.Policies.Outside(list[i].Resource.Key); o != nil && !slices.Contains(to, o) {
			o.Guard(e.listener, ch)
			to = append(to, o)
		}
	}
	m.Policies.AtEgress(to, ch, e.warn)
}

// owner returns the resource that defines a service, or the first one if there are several.
func (e *egress) owner(s *mesh.Service) resource.Key {
	if s.Resource != (resource.Key{}) {
		return s.Resource
	}
	if len(s.Outside.List) > 0 {
		return s.Outside.List[0].Resource.Key
	}
	return e.in.Resource.Key
}

// externalCluster returns the cluster of endpoints outside a mesh, or nil if its TLS settings
// cannot be honored.
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
			// Omitting a service is better than plain text or an unverified server.
			e.warn(s.Resource, "spec.tls: %v: the service is left out", err)
			return nil
		}
		if v := spec.TLS.Verification; v != nil && v.Mode == verifySkipCA {
			e.warn(s.Resource,
				"spec.tls.verification.mode: SkipCA believes every server: Envoy checks no names without authorities")
		}
	}
	resolve(c.Message, kind, e.spec.Networking.Address)
	c.Message.LoadAssignment = byPriority(name, spec, list)
	return c
}

// byPriority returns the endpoints of a MeshExternalService, grouped by their priority. Envoy
// expects priorities without gaps, so the groups are numbered from 0.
func byPriority(cluster string, spec *resource.MeshExternalService, list []mesh.Endpoint) (
	out *endpointv3.ClusterLoadAssignment) {
	groups := map[uint32][]*endpointv3.LbEndpoint{}
	for i := range list {
		p := spec.Endpoints[list[i].Index].Priority
		groups[p] = append(groups[p], externalEndpoint(&list[i]))
	}
	out = &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	for i, p := range slices.Sorted(maps.Keys(groups)) {
		out.Endpoints = append(out.Endpoints, &endpointv3.LocalityLbEndpoints{
			LbEndpoints: groups[p], Priority: uint32(i)}) // #nosec G115 -- at most 129 groups
	}
	return out
}

// oneKind returns the endpoints that fit into one cluster, because Envoy resolves names only in
// clusters without addresses.
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
		e.warn(k, "spec.endpoints: %d unix sockets stand beside host names, which one cluster cannot have: the sockets are "+
			"left out; make them a service of their own", n-len(list))
	}
	return list, clusterv3.Cluster_STRICT_DNS
}

// externalEndpoint returns one endpoint of a MeshExternalService.
func externalEndpoint(e *mesh.Endpoint) *endpointv3.LbEndpoint {
	path, unix := strings.CutPrefix(e.Address, unixScheme)
	if !unix {
		return lbEndpoint(e)
	}
	out := lbEndpoint(&mesh.Endpoint{Address: "0.0.0.0", Tags: e.Tags})
	out.GetEndpoint().Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	return out
}

// externalHTTP returns a connection manager that forwards requests to a service. The client's proxy
// sets the timeouts. The idle timeout here only ends abandoned requests.
func externalHTTP(s *mesh.Service, cluster string) *draft.HTTP {
	route := prefixRoute(routeName, cluster)
	route.GetRoute().HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: sharedTrue}
	routes := routesOf("outbound:"+s.ID.Name, s.ID.Name, route)
	routes.RequestHeadersToRemove = []string{tagsHeader} // the mesh's internal headers must not leave it
	return &draft.HTTP{
		Filters: httpFilters(s.Protocol),
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix: draft.StatName(cluster), StreamIdleTimeout: seconds(inboundStreamIdleTimeout),
			InternalAddressConfig: draft.InternalAddresses, UpgradeConfigs: draft.WebSockets,
		},
		Routes: routes,
	}
}

// subsets returns the tag combinations of a service that need a chain. The first one selects all
// endpoints.
func (m *egressMesh) subsets(s *mesh.Service) []map[string]string {
	out := []map[string]string{nil}
	if s.ID.Kind == mesh.KindTag {
		out = append(out, m.chosen.Of(s.Tag)...)
	}
	return out
}

// chain returns a filter chain for connections of the mesh's proxies with a server name.
func (m *egressMesh) chain(name, sni string) *draft.Chain {
	p := &egressChainParts{}
	p.chain = draft.Chain{TLS: true, Message: &p.message}
	p.message.Name, p.message.FilterChainMatch, p.message.TransportSocket = name, &p.match, m.tls.downstream
	p.match.TransportProtocol, p.match.ServerNames = transportTLS, []string{sni}
	return &p.chain
}
