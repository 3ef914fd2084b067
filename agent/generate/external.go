package generate

import (
	"cmp"
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// externalCluster holds its endpoints itself: by name they are resolved by the proxy, else they are static.
func (g *generator) externalCluster(o *mesh.Outbound, name string, service draft.Service) {
	c := outsideCluster(name, o.Service.Endpoints.Subset(o.Subset), g.dp.Networking.Address, g.Warn)
	c.Service = service
	httpOptions(c, o.Service.Protocol)
	g.d.Clusters = append(g.d.Clusters, c)
}

// outsideCluster makes the cluster of endpoints outside the mesh for a proxy at an address.
func outsideCluster(name string, list []mesh.Endpoint, proxy string, warn warnFunc) *draft.Cluster {
	c := &draft.Cluster{Message: &clusterv3.Cluster{Name: name}}
	kind := clusterv3.Cluster_STATIC
	group := &endpointv3.LocalityLbEndpoints{}
	for _, e := range list {
		if spec, ok := e.Resource.Spec.(*resource.ExternalService); ok {
			if tls := spec.Networking.TLS; tls != nil && tls.Enabled {
				m, err := transportMatch(&e, tls)
				if err != nil {
					// Plain text where TLS was asked for would be worse than one endpoint less.
					warn(e.Resource.Key, "networking.tls: %v: the endpoint is left out", err)
					continue
				}
				c.Message.TransportSocketMatches = append(c.Message.TransportSocketMatches, m)
			}
		}
		if _, err := netip.ParseAddr(e.Address); err != nil {
			kind = clusterv3.Cluster_STRICT_DNS
		}
		group.LbEndpoints = append(group.LbEndpoints, lbEndpoint(&e))
	}
	resolve(c.Message, kind, proxy)
	c.Message.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name}
	if len(group.LbEndpoints) > 0 {
		c.Message.LoadAssignment.Endpoints = []*endpointv3.LocalityLbEndpoints{group}
	}
	return c
}

// warnFunc notes something that the owner of a resource should know.
type warnFunc func(k resource.Key, format string, args ...any)

// resolve says how the endpoints of a cluster are found by a proxy at an address.
func resolve(c *clusterv3.Cluster, kind clusterv3.Cluster_DiscoveryType, proxy string) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	if a, err := netip.ParseAddr(proxy); kind == clusterv3.Cluster_STRICT_DNS && (err != nil || a.Is4()) {
		c.DnsLookupFamily = clusterv3.Cluster_V4_ONLY // a proxy without an IPv6 address cannot dial one
	}
}

// transportMatch is the TLS context of one endpoint, chosen by the endpoint's tags. Envoy offers the ALPN protocol of
// the cluster's HTTP version by itself.
func transportMatch(e *mesh.Endpoint, t *resource.ExternalTLS) (*clusterv3.Cluster_TransportSocketMatch, error) {
	name := cmp.Or(t.ServerName, e.Address)
	ctx := &tlsv3.UpstreamTlsContext{Sni: name, AllowRenegotiation: t.AllowRenegotiation}
	if _, err := netip.ParseAddr(name); err == nil {
		ctx.Sni = "" // a server name is never an address (RFC 6066, section 3)
	}
	var common tlsv3.CommonTlsContext
	used := false
	if t.CACert != nil {
		ca, err := dataSource(t.CACert)
		if err != nil {
			return nil, err
		}
		v := &tlsv3.CertificateValidationContext{TrustedCa: ca}
		if !t.SkipHostnameVerify {
			exact := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}
			v.MatchTypedSubjectAltNames = []*tlsv3.SubjectAltNameMatcher{
				{SanType: tlsv3.SubjectAltNameMatcher_DNS, Matcher: exact},
				{SanType: tlsv3.SubjectAltNameMatcher_IP_ADDRESS, Matcher: exact},
			}
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}
		used = true
	}
	if t.ClientCert != nil && t.ClientKey != nil {
		cert, err := dataSource(t.ClientCert)
		if err != nil {
			return nil, err
		}
		key, err := dataSource(t.ClientKey)
		if err != nil {
			return nil, err
		}
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: cert, PrivateKey: key}}
		used = true
	}
	if used {
		ctx.CommonTlsContext = &common
	}
	a, err := (draft.Extension{Name: draft.NameTLS, Message: ctx}).Pack()
	if err != nil {
		return nil, err
	}
	return &clusterv3.Cluster_TransportSocketMatch{
		Name:  e.Address,
		Match: endpointTags(e),
		TransportSocket: &corev3.TransportSocket{
			Name: draft.NameTLS, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a},
		},
	}, nil
}
