package generate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/addresspattern"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// egressExit is a destination that some policy lets out of the mesh.
type egressExit struct {
	policy.Exit
	owner resource.Key // the first policy by name
}

// exitsOf returns the destinations that the policies of a mesh let out through egresses, sorted by
// server name and without duplicates.
func exitsOf(m *Mesh) []egressExit {
	if m.Policies == nil || !m.View.ThroughEgress() {
		return nil
	}
	var out []egressExit
	for _, plugin := range m.Policies.Plugins {
		if plugin.Exits == nil {
			continue
		}
		for _, d := range plugin.Kinds {
			for _, p := range m.Policies.Policies(d.Kind) {
				for _, x := range plugin.Exits(p) {
					out = append(out, egressExit{x, p.Key})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b egressExit) int {
		return cmp.Or(strings.Compare(a.ServerName, b.ServerName), a.owner.Compare(b.owner))
	})
	return slices.CompactFunc(out, func(a, b egressExit) bool { return a.ServerName == b.ServerName })
}

// exit adds the chain and the cluster of an exit.
func (e *egress) exit(m *egressMesh, x *egressExit) {
	name := m.view.Name + ":" + x.Name
	c := &draft.Cluster{Kind: draft.PassthroughCluster, Message: &clusterv3.Cluster{
		Name: name, AltStatName: draft.StatName(name), ConnectTimeout: seconds(passthroughConnectTimeout),
	}}
	sni := strings.ToLower(x.ServerName)
	chain := m.chain(name, sni)
	if x.Host != "" {
		kind := clusterv3.Cluster_STATIC
		if _, err := netip.ParseAddr(x.Host); err != nil {
			kind = clusterv3.Cluster_STRICT_DNS
			c.Message.WaitForWarmOnInit = sharedFalse // an external name that does not resolve must not delay other clusters
		}
		resolve(c.Message, kind, e.spec.Networking.Address)
		c.Message.LoadAssignment = assignmentOf(name, lbEndpoint(&mesh.Endpoint{Address: x.Host, Port: x.Port}))
		chain.TCP = tcpTo(name, name, seconds(localIdleTimeout))
	} else {
		routes, err := tunnelRoutes(&x.Exit, name)
		if err != nil {
			e.warn(x.owner, "%s: %v: nothing passes the egress under it", x.Name, err)
			return
		}
		c.Message.ClusterDiscoveryType = clusterType(clusterv3.Cluster_ORIGINAL_DST)
		c.Message.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		c.Message.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
			OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{UseHttpHeader: true},
		}
		chain.HTTP = tunnelEnd(name, routes)
	}
	if e.take(sni, x.owner) {
		e.listener.Chains, m.used = append(e.listener.Chains, chain), true
		e.d.Clusters = append(e.d.Clusters, c)
	}
}

// tunnelEnd returns the connection manager that terminates tunnels and forwards their content.
func tunnelEnd(name string, routes []*routev3.Route) *draft.HTTP {
	return &draft.HTTP{
		Filters: draft.PlainFilters,
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix: draft.StatName(name), InternalAddressConfig: draft.InternalAddresses,
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{AllowConnect: true},
			UpgradeConfigs:       []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: upgradeConnect}},
			StreamIdleTimeout:    seconds(localIdleTimeout),
		},
		Routes: routesOf(name, name, routes...),
	}
}

const upgradeConnect = "CONNECT"

// tunnelRoutes returns routes that let tunnels pass to the addresses and the port of an exit.
func tunnelRoutes(x *policy.Exit, cluster string) ([]*routev3.Route, error) {
	pass := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          seconds(0),
		UpgradeConfigs: []*routev3.RouteAction_UpgradeConfig{{
			UpgradeType: upgradeConnect, ConnectConfig: &routev3.RouteAction_UpgradeConfig_ConnectConfig{},
			Enabled: wrapperspb.Bool(true),
		}},
	}
	route := func(name, pattern string) *routev3.Route {
		return &routev3.Route{
			Name: name,
			Match: &routev3.RouteMatch{
				PathSpecifier: &routev3.RouteMatch_ConnectMatcher_{ConnectMatcher: &routev3.RouteMatch_ConnectMatcher{}},
				Headers: []*routev3.HeaderMatcher{{
					Name: policy.TunnelHeader,
					HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
						MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: pattern}},
					}},
				}},
			},
			Action: &routev3.Route_Route{Route: pass},
		}
	}
	port := "[1-9][0-9]{0,4}"
	if x.Port != 0 {
		port = fmt.Sprint(x.Port)
	}
	if x.Within.IsValid() {
		pattern, err := addresspattern.Of(x.Within)
		if err != nil {
			return nil, err
		}
		return []*routev3.Route{route("within", pattern+":"+port)}, nil
	}
	refused := route("own", addresspattern.Own+".*")
	refused.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 403}}
	return []*routev3.Route{refused,
		route("ipv4", addresspattern.AnyIPv4+":"+port), route("ipv6", addresspattern.AnyIPv6+":"+port)}, nil
}
