package proxypatch

import (
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// What Envoy refuses although the rules for its fields are kept, as far as patches bring it about easily.

// checkEnvoy checks a message that is added.
func checkEnvoy(v *resource.Validator, m proto.Message) {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		checkCluster(v, m)
	case *listenerv3.Listener:
		l := &draft.Listener{}
		if err := l.SetWhole(proto.Clone(m).(*listenerv3.Listener)); err != nil {
			v.Faultf("%v", err)
			return
		}
		checkListener(v, l)
	}
}

// checkCluster checks that type, load balancing and endpoints go together.
func checkCluster(v *resource.Validator, c *clusterv3.Cluster) {
	provided := c.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED
	endpoints := c.GetLoadAssignment().GetEndpoints()
	if c.GetClusterType() != nil {
		return // a type of an extension has rules of its own
	}
	switch t := c.GetType(); t {
	case clusterv3.Cluster_ORIGINAL_DST:
		if !provided && c.LoadBalancingPolicy == nil {
			v.Field("lbPolicy").Faultf("a cluster of type ORIGINAL_DST finds its endpoints itself: give CLUSTER_PROVIDED")
		}
		if c.LoadAssignment != nil {
			v.Field("loadAssignment").Faultf("a cluster of type ORIGINAL_DST has no endpoints of its own: remove it")
		}
		return
	case clusterv3.Cluster_EDS:
		if c.GetEdsClusterConfig().GetEdsConfig() == nil {
			v.Field("edsClusterConfig").Faultf("a cluster of type EDS needs the source of its endpoints: give edsConfig with ads, resourceApiVersion V3")
		}
	case clusterv3.Cluster_LOGICAL_DNS:
		if len(endpoints) != 1 || len(endpoints[0].LbEndpoints) != 1 {
			v.Field("loadAssignment").Faultf("a cluster of type LOGICAL_DNS has exactly one endpoint")
		}
	case clusterv3.Cluster_STATIC:
		for i, group := range endpoints {
			for j, e := range group.LbEndpoints {
				s := e.GetEndpoint().GetAddress().GetSocketAddress()
				if s == nil {
					continue
				}
				if _, err := netip.ParseAddr(s.Address); err != nil {
					v.Field("loadAssignment").Field("endpoints").Index(i).Field("lbEndpoints").Index(j).
						Faultf("%q is not an IP address: a cluster of type STATIC resolves no names, give the type STRICT_DNS", clip(s.Address))
				}
			}
		}
	}
	if provided {
		v.Field("lbPolicy").Faultf("CLUSTER_PROVIDED goes with the type ORIGINAL_DST: give another one, or leave it out")
	}
}

// checkListener checks a listener that is added or was patched.
func checkListener(v *resource.Validator, l *draft.Listener) {
	m := l.Message
	if m.ApiListener != nil || m.GetInternalListener() != nil {
		return
	}
	socket := m.GetAddress().GetSocketAddress()
	switch {
	case m.Address == nil:
		v.Field("address").Faultf("the address is missing: Envoy listens at one")
	case len(l.Chains) == 0 && m.DefaultFilterChain == nil && (socket == nil || socket.Protocol == corev3.SocketAddress_TCP):
		v.Field("filterChains").Faultf("the list is empty: Envoy takes no listener without a filter chain")
	}
	list := v.Field("filterChains")
	for i, c := range l.Chains {
		at := list.Index(i)
		if m.FilterChainMatcher == nil {
			for j, other := range l.Chains[:i] {
				if proto.Equal(matchOf(c), matchOf(other)) {
					at.Field("filterChainMatch").Faultf("it is the same as that of filter chain %d: Envoy takes no two chains for the same connections", j)
					break
				}
			}
		}
		for j, name := range c.Message.GetFilterChainMatch().GetServerNames() {
			if strings.Contains(strings.TrimPrefix(name, "*."), "*") {
				at.Field("filterChainMatch").Field("serverNames").Index(j).Faultf("%q: a star stands alone before the first dot, as in *.example.com", clip(name))
			}
		}
		checkChain(at.Field("filters"), c)
	}
}

// matchOf is the match of a chain; one that is not given is like an empty one.
func matchOf(c *draft.Chain) *listenerv3.FilterChainMatch {
	if m := c.Message.GetFilterChainMatch(); m != nil {
		return m
	}
	return &listenerv3.FilterChainMatch{}
}

// The packages of filters that end a list, and of those that cannot. Others may do either.
var (
	endNetwork = []string{"http_connection_manager", "tcp_proxy", "echo", "direct_response", "redis_proxy", "thrift_proxy", "dubbo_proxy", "generic_proxy"}
	midNetwork = []string{"rbac", "ratelimit", "local_ratelimit", "ext_authz", "ext_proc", "mongo_proxy", "zookeeper_proxy", "connection_limit",
		"sni_cluster", "sni_dynamic_forward_proxy", "set_filter_state", "wasm"}
	endHTTP  = []string{"router"}
	openHTTP = []string{"dynamic_modules"} // may end the list
)

// checkChain checks the order of filters. A chain without any closes the connection, which is allowed.
func checkChain(v *resource.Validator, c *draft.Chain) {
	n := len(c.Network)
	for i, e := range c.Network {
		pkg := packageOf(e)
		last := i == n-1 && c.HTTP == nil && c.TCP == nil
		switch {
		case !last && slices.Contains(endNetwork, pkg):
			v.Index(i).Faultf("%s ends a connection, but other filters follow: it must be the last", clip(e.Name))
		case last && slices.Contains(midNetwork, pkg):
			v.Index(i).Faultf("%s is the last filter, but does not end the connection: a filter such as tcp_proxy must follow", clip(e.Name))
		}
	}
	if c.HTTP == nil {
		return
	}
	at := v.Index(n).Field("typedConfig")
	list := at.Field("httpFilters")
	last := len(c.HTTP.Filters) - 1
	end := slices.IndexFunc(c.HTTP.Filters, func(e draft.Extension) bool { return slices.Contains(endHTTP, packageOf(e)) })
	switch {
	case last < 0:
		list.Faultf("the list is empty: the router must be there")
	case end >= 0 && end < last:
		list.Index(end).Faultf("%s answers or forwards every request, but other filters follow: it must be the last", clip(c.HTTP.Filters[end].Name))
	case end < 0 && c.HTTP.Filters[last].Discovery == nil && !slices.Contains(openHTTP, packageOf(c.HTTP.Filters[last])):
		list.Index(last).Faultf("%s is the last filter, but the router must be", clip(c.HTTP.Filters[last].Name))
	}
	if c.HTTP.Routes != nil {
		checkDomains(at.Field("routeConfig"), c.HTTP.Routes)
	}
}

// packageOf is the last part of the package of a filter's configuration before the version: local_ratelimit of
// envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit.
func packageOf(e draft.Extension) string {
	name := e.Packed.GetTypeUrl()
	if e.Message != nil {
		name = string(e.Message.ProtoReflect().Descriptor().FullName())
	}
	parts := strings.Split(name, ".")
	if len(parts) < 3 {
		return ""
	}
	return parts[len(parts)-3]
}

// checkDomains checks that no domain stands twice in a route configuration.
func checkDomains(v *resource.Validator, r *routev3.RouteConfiguration) {
	seen := map[string]string{}
	for i, h := range r.VirtualHosts {
		for j, d := range h.Domains {
			if first, ok := seen[d]; ok {
				v.Field("virtualHosts").Index(i).Field("domains").Index(j).Faultf("the domain %q stands in the virtual host %q already: Envoy takes each once", clip(d), clip(first))
				continue
			}
			seen[d] = h.Name
		}
	}
}
