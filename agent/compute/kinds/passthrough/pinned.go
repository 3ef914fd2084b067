package passthrough

import (
	"net/netip"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	dfpclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dnscachev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	httpdfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	netstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	snidfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/rbac/matchers/upstream_ip_port/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// A name that a client gives proves nothing about the address that it dials. With the label, the
// proxy does not go by that address: it resolves the name itself, by its dynamic forward proxy, and
// connects to what that gives. So the names of a wildcard are pinned as an exact domain on a port
// is, each by itself.
//
// What a name resolves to is up to the owner of the domain, who could lead the proxy to itself, to
// the metadata service of a cloud or to a virtual address of the mesh. These are refused. Private
// networks are not: domains of an organisation lead there.

// labelPinned of a policy says, with "true" or "false", whether its matches by domain are pinned
// wherever that can be.
const labelPinned = "nearside.io/dns-pinned"

// pins reads the label; ok is false for a value that is neither.
func pins(labels map[string]string) (pinned, ok bool) {
	switch value, given := labels[labelPinned]; {
	case !given || value == "false":
		return false, true
	case value == "true":
		return true, true
	}
	return false, false
}

// forwarded reports whether the proxy resolves whatever name a client gives, within the rule.
// Requests on all ports are not: what Host says of a port is not what was dialled.
func (r *rule) forwarded() bool {
	return r.pin && r.named() && !r.pinned() && !r.anywhere() && !r.never() &&
		(r.protocol.class() == secure || r.port != 0)
}

// Names of Envoy's extensions.
const (
	nameForwardCluster = "envoy.clusters.dynamic_forward_proxy"
	nameForwardTLS     = "envoy.filters.network.sni_dynamic_forward_proxy"
	nameForwardHTTP    = "envoy.filters.http.dynamic_forward_proxy"
	nameStateTCP       = "envoy.filters.network.set_filter_state"
	nameStateHTTP      = "envoy.filters.http.set_filter_state"
	nameRBACTCP        = "envoy.filters.network.rbac"
	nameRBACHTTP       = "envoy.filters.http.rbac"
	nameUpstream       = "envoy.rbac.matchers.upstream_ip_port"

	// portState is where the dynamic forward proxy looks for the port; what the client says would
	// count otherwise.
	portState   = "envoy.upstream.dynamic_port"
	dialledPort = "%DOWNSTREAM_LOCAL_PORT%"
)

// Of the cache of names, which all pinned matches of a proxy share.
const (
	cacheName = "nearside_pinned"
	// maxNames bounds the names that clients have used within the last 5 minutes. Further ones are
	// refused.
	maxNames = 4096
	// A name that has failed is tried again after this time, twice as much each time, up to the most.
	retryName, retryNameMost = 2 * time.Second, 10 * time.Second
	// followTime is how long new requests go over one connection. Requests that are under way end in
	// peace.
	followTime = time.Minute
)

// lookupFamily is that of the addresses that a proxy dials.
func lookupFamily(dp *resource.Dataplane) clusterv3.Cluster_DnsLookupFamily {
	if a, err := netip.ParseAddr(dp.Networking.Address); err != nil || a.Is4() {
		return clusterv3.Cluster_V4_ONLY // a proxy without an IPv6 address cannot dial one
	}
	return clusterv3.Cluster_AUTO
}

// nameCache is the same in all places that use the cache, as Envoy requires.
func nameCache(dp *resource.Dataplane) *dnscachev3.DnsCacheConfig {
	return &dnscachev3.DnsCacheConfig{
		Name: cacheName, DnsLookupFamily: lookupFamily(dp), MaxHosts: wrapperspb.UInt32(maxNames),
		DnsFailureRefreshRate: &clusterv3.Cluster_RefreshRate{BaseInterval: durationpb.New(retryName),
			MaxInterval: durationpb.New(retryNameMost)},
	}
}

// forward makes a cluster lead to what the name of a connection or request resolves to.
func forward(c *clusterv3.Cluster, dp *resource.Dataplane) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: nameForwardCluster,
		TypedConfig: packed(&dfpclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dfpclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: nameCache(dp)},
			// It means TLS that Envoy begins, and there is none: what clients encrypt is passed on.
			AllowInsecureClusterOptions: true,
		}),
	}}
}

// followName bounds how long requests go over a connection to an address that a name resolved to
// once: Envoy would use it on and on.
func followName(c *draft.Cluster) {
	if c.HTTP == nil {
		c.HTTP = draft.HTTP1Options
	}
	c.EditHTTP().CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxConnectionDuration: durationpb.New(followTime)}
}

// portOf sets the port that is dialled: that of the chain, or for all ports the one that the client
// has dialled.
func portOf(c *chain) []*statev3.FilterStateValue {
	port := dialledPort
	if c.port != 0 {
		port = strconv.FormatUint(uint64(c.port), 10)
	}
	return []*statev3.FilterStateValue{{
		Key: &statev3.FilterStateValue_ObjectKey{ObjectKey: portState},
		Value: &statev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineString{InlineString: port},
			}},
		}},
	}}
}

// forwardTLS are the filters in front of the TCP proxy of a chain whose rule is forwarded.
func (m *chainMaker) forwardTLS(c *chain) []draft.Extension {
	return []draft.Extension{
		{Name: nameStateTCP, Message: &netstatev3.Config{OnNewConnection: portOf(c)}},
		{Name: nameForwardTLS, Message: &snidfpv3.FilterConfig{DnsCacheConfig: nameCache(m.dp), SaveUpstreamAddress: true}},
		{Name: nameRBACTCP, Message: &netrbacv3.RBAC{StatPrefix: cacheName + ".", Rules: noOwnAddress()}},
	}
}

// forwardHTTP lets hosts whose rules are forwarded be resolved. The others of the chain are left
// alone.
func (m *chainMaker) forwardHTTP(c *chain, h *draft.HTTP) {
	guard := map[string]*anypb.Any{
		nameRBACHTTP: packed(&httprbacv3.RBACPerRoute{Rbac: &httprbacv3.RBAC{Rules: noOwnAddress()}}),
	}
	found := false
	for i, r := range c.hosts {
		if r.forwarded() {
			h.Routes.VirtualHosts[i].TypedPerFilterConfig, found = guard, true
		}
	}
	if !found {
		return
	}
	h.Filters = append([]draft.Extension{
		{Name: nameStateHTTP, Message: &httpstatev3.Config{OnRequestHeaders: portOf(c)}},
		{Name: nameForwardHTTP, Message: &httpdfpv3.FilterConfig{
			ImplementationSpecifier:         &httpdfpv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: nameCache(m.dp)},
			SaveUpstreamAddress:             true,
			AllowDynamicHostFromFilterState: true,
		}},
		// rules stand at the hosts: Envoy would log each request without an address
		{Name: nameRBACHTTP, Message: &httprbacv3.RBAC{}},
	}, h.Filters...)
}

// ownPolicy is the name that access logs have for a refusal.
const ownPolicy = "resolved-to-own-address"

// noOwnAddress denies what a name must not lead to.
func noOwnAddress() *rbacv3.RBAC {
	own := policy.OwnAddresses()
	list := make([]*rbacv3.Permission, len(own))
	for i, p := range own {
		list[i] = &rbacv3.Permission{Rule: &rbacv3.Permission_Matcher{Matcher: &corev3.TypedExtensionConfig{
			Name: nameUpstream,
			TypedConfig: packed(&upstreamv3.UpstreamIpPortMatcher{
				// #nosec G115 -- at most 128
				UpstreamIp: &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))},
			}),
		}}}
	}
	return &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{ownPolicy: {
		Permissions: list, Principals: []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
	}}}
}

// packed packs a message of this package, which always has a wire form.
func packed(m proto.Message) *anypb.Any {
	a, _ := draft.Extension{Message: m}.Pack()
	return a
}
