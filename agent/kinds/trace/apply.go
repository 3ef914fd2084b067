package trace

import (
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	origin         = "mesh-trace" // as patches match it
	connectTimeout = 5 * time.Second
)

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil || rules.Proxy == nil {
		return
	}
	conf, ok := rules.Proxy.Conf.(*Conf)
	if !ok || conf.Backends == nil || len(*conf.Backends) == 0 {
		return
	}
	t := newTracer(conf, serviceName(c))
	if err := t.applyAll(d); err != nil {
		warn(c, rules.Proxy, "the tracer cannot be encoded: %v: nothing is traced", err)
		return
	}
	if name := t.cluster; c.Last && c.Host.Claim(draft.TypeCluster, name) {
		cluster, err := t.collector(c.Dataplane.Networking.Address)
		if err != nil {
			warn(c, rules.Proxy, "the cluster %s cannot be encoded: %v: spans are dropped", name, err)
			return
		}
		d.Clusters = append(d.Clusters, cluster)
	}
}

func warn(c *policy.Context, r *policy.Rule, format string, args ...any) {
	for _, o := range r.Origins {
		c.Host.Warn(o.Policy.Key, format, args...)
	}
}

// applyAll gives a tracer to every connection manager in front of a service.
func (t *tracer) applyAll(d *draft.Draft) error {
	for _, l := range d.Listeners {
		if l.Kind != draft.Inbound && l.Kind != draft.Outbound {
			continue
		}
		var tracing *hcmv3.HttpConnectionManager_Tracing
		for _, ch := range l.Chains {
			if ch.HTTP == nil {
				continue
			}
			if tracing == nil {
				var err error
				if tracing, err = t.tracing(l); err != nil {
					return err
				}
			}
			ch.HTTP.Message.Tracing = tracing
		}
	}
	return nil
}

// serviceName is how spans name the proxy: by the first of its services in the order of their names.
func serviceName(c *policy.Context) string {
	if names := c.View.ProxyTags(c.Dataplane)[resource.TagService]; len(names) > 0 && names[0] != "" {
		return names[0]
	}
	return "unknown"
}

// collector is the cluster that leads to the backend. A proxy without an IPv6 address asks for IPv4 addresses alone.
func (t *tracer) collector(proxyAddress string) (*draft.Cluster, error) {
	kind := clusterv3.Cluster_STRICT_DNS
	_, err := netip.ParseAddr(t.at.host)
	if err == nil {
		kind = clusterv3.Cluster_STATIC
	}
	c := &draft.Cluster{Kind: draft.OtherCluster, Origin: origin, Message: &clusterv3.Cluster{
		Name:                 t.cluster,
		AltStatName:          strings.ReplaceAll(t.cluster, ":", "_"),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: t.cluster,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
					Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: t.at.host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: t.at.port},
					}},
				}}},
			}}}},
		},
	}}
	if a, err := netip.ParseAddr(proxyAddress); kind == clusterv3.Cluster_STRICT_DNS && (err != nil || a.Is4()) {
		c.Message.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
	}
	if t.backend.Type == typeOpenTelemetry {
		c.HTTP = draft.HTTP2Options
	}
	if t.at.tls {
		ctx := &tlsv3.UpstreamTlsContext{AllowRenegotiation: true}
		if kind == clusterv3.Cluster_STRICT_DNS {
			ctx.Sni = t.at.host // a server name is never an address (RFC 6066, section 3)
		}
		a, err := draft.Extension{Name: draft.NameTLS, Message: ctx}.Pack()
		if err != nil {
			return nil, err
		}
		c.Message.TransportSocket = &corev3.TransportSocket{Name: draft.NameTLS, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}
	}
	return c, nil
}
