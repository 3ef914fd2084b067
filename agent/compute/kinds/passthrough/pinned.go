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

// A name that a client sends proves nothing about the address that it dials. With the label, the
// proxy ignores the address: its dynamic forward proxy resolves the name and connects to the
// result. This pins each name of a wildcard, like an exact domain on a port.
//
// The owner of a domain controls the result, and could direct the proxy to itself, to the metadata
// service of a cloud, or to a virtual address of the mesh. The proxy refuses these addresses. It
// permits private networks, because internal domains resolve to them.

// labelPinned is a label of a policy. Its values "true" and "false" define whether the domains of
// its matches are pinned where possible.
const labelPinned = "nearside.io/dns-pinned"

// pins parses the label. ok is false if the value is invalid.
func pins(labels map[string]string) (pinned, ok bool) {
	switch value, given := labels[labelPinned]; {
	case !given || value == "false":
		return false, true
	case value == "true":
		return true, true
	}
	return false, false
}

// forwarded reports whether the proxy resolves the client's name through the dynamic forward proxy.
// It does not do so for requests on all ports, because the port in Host may differ from the dialed
// port.
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

	// portState is the filter state key of the port for the dynamic forward proxy. Without it, the
	// port in the client's data would be used.
	portState  = "envoy.upstream.dynamic_port"
	dialedPort = "%DOWNSTREAM_LOCAL_PORT%"
)

// Settings of the DNS cache, which all pinned matches of a proxy share.
const (
	cacheName = "nearside_pinned"
	// maxNames limits the names used within the last 5 minutes. Further names are refused.
	maxNames = 4096
	// Delay before a failed name is resolved again. It doubles up to the maximum.
	retryName, maxRetryName = 2 * time.Second, 10 * time.Second
	// followTime limits how long a connection accepts new requests. Active requests can complete.
	followTime = time.Minute
)

// lookupFamily returns the address family that a proxy can dial.
func lookupFamily(dp *resource.Dataplane) clusterv3.Cluster_DnsLookupFamily {
	if a, err := netip.ParseAddr(dp.Networking.Address); err != nil || a.Is4() {
		return clusterv3.Cluster_V4_ONLY // without an IPv6 address a proxy cannot dial one
	}
	return clusterv3.Cluster_AUTO
}

// nameCache returns the config of the DNS cache. Envoy requires it to be equal in all uses.
func nameCache(dp *resource.Dataplane) *dnscachev3.DnsCacheConfig {
	return &dnscachev3.DnsCacheConfig{
		Name: cacheName, DnsLookupFamily: lookupFamily(dp), MaxHosts: wrapperspb.UInt32(maxNames),
		DnsFailureRefreshRate: &clusterv3.Cluster_RefreshRate{BaseInterval: durationpb.New(retryName),
			MaxInterval: durationpb.New(maxRetryName)},
	}
}

// forward makes a cluster connect to the addresses of the client's name.
func forward(c *clusterv3.Cluster, dp *resource.Dataplane) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: nameForwardCluster,
		TypedConfig: packed(&dfpclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dfpclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: nameCache(dp)},
			// This refers to TLS that Envoy originates. Envoy originates none here, it only
			// forwards the client's.
			AllowInsecureClusterOptions: true,
		}),
	}}
}

// followName limits the lifetime of upstream connections, so that new requests use the current
// addresses of a name.
func followName(c *draft.Cluster) {
	if c.HTTP == nil {
		c.HTTP = draft.HTTP1Options
	}
	c.EditHTTP().CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{MaxConnectionDuration: durationpb.New(followTime)}
}

// portOf returns the filter state with the port to dial: the port of the chain, or for all ports
// the port that the client dialed.
func portOf(c *chain) []*statev3.FilterStateValue {
	port := dialedPort
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

// forwardTLS returns the network filters of a chain with a forwarded rule.
func (m *chainMaker) forwardTLS(c *chain) []draft.Extension {
	return []draft.Extension{
		{Name: nameStateTCP, Message: &netstatev3.Config{OnNewConnection: portOf(c)}},
		{Name: nameForwardTLS, Message: &snidfpv3.FilterConfig{DnsCacheConfig: nameCache(m.dp), SaveUpstreamAddress: true}},
		{Name: nameRBACTCP, Message: &netrbacv3.RBAC{StatPrefix: cacheName + ".", Rules: noOwnAddress()}},
	}
}

// forwardHTTP enables name resolution for the chain's hosts with forwarded rules. Other hosts are
// not affected.
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
		// The rules are set only on the hosts, because Envoy would log each request without an
		// address.
		{Name: nameRBACHTTP, Message: &httprbacv3.RBAC{}},
	}, h.Filters...)
}

// deniedPolicy is the policy name of a refusal in access logs.
const deniedPolicy = "resolved-to-own-address"

// noOwnAddress returns rules that deny the addresses to which a name must not lead.
func noOwnAddress() *rbacv3.RBAC {
	prefixes := policy.OwnAddresses()
	list := make([]*rbacv3.Permission, len(prefixes))
	for i, p := range prefixes {
		list[i] = &rbacv3.Permission{Rule: &rbacv3.Permission_Matcher{Matcher: &corev3.TypedExtensionConfig{
			Name: nameUpstream,
			TypedConfig: packed(&upstreamv3.UpstreamIpPortMatcher{
				// #nosec G115 -- at most 128
				UpstreamIp: &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))},
			}),
		}}}
	}
	return &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{deniedPolicy: {
		Permissions: list, Principals: []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
	}}}
}

// packed packs a message of this package, which cannot fail.
func packed(m proto.Message) *anypb.Any {
	a, _ := draft.Extension{Message: m}.Pack()
	return a
}
