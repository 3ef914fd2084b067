// Package trace is the plugin of MeshTrace: which requests are traced, and where the spans are sent.
//
// The HTTP connection managers of inbounds and outbounds get a tracer, and the proxy one cluster that leads to the
// collector. Envoy has one tracer for a connection manager, so a policy has one backend, or none: an empty list
// switches tracing off for what it selects. The certificate of a collector reached by https is not verified, as the
// policy has no place to name an authority.
package trace

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshTrace"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshtraces", "mtr", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Apply: apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil || rules.Proxy == nil {
		return
	}
	conf := toolkit.Conf[Conf](rules.Proxy)
	if conf == nil || len(toolkit.Or(conf.Backends, nil)) == 0 {
		return
	}
	t := newTracer(conf, serviceName(c))
	if err := t.applyAll(d); err != nil {
		toolkit.WarnOrigins(c, rules.Proxy, "the tracer cannot be encoded: %v: nothing is traced", err)
		return
	}
	if name := t.cluster; c.Last && c.Host.Claim(draft.TypeCluster, name) {
		cluster, err := t.collector(c.Dataplane.Networking.Address)
		if err != nil {
			toolkit.WarnOrigins(c, rules.Proxy, "the cluster %s cannot be encoded: %v: spans are dropped", name, err)
			return
		}
		d.Clusters = append(d.Clusters, cluster)
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

// collector is the cluster that leads to the backend.
func (t *tracer) collector(proxyAddress string) (*draft.Cluster, error) {
	c := toolkit.HostCluster(t.cluster, "mesh-trace", t.at.Collector, proxyAddress) // the origin as patches match it
	if t.backend.Type == typeOpenTelemetry {
		c.HTTP = draft.HTTP2Options
	}
	if t.at.tls {
		ctx := &tlsv3.UpstreamTlsContext{AllowRenegotiation: true}
		if c.Message.GetType() == clusterv3.Cluster_STRICT_DNS {
			ctx.Sni = t.at.Host // a server name is never an address (RFC 6066, section 3)
		}
		a, err := draft.Extension{Name: draft.NameTLS, Message: ctx}.Pack()
		if err != nil {
			return nil, err
		}
		c.Message.TransportSocket = &corev3.TransportSocket{Name: draft.NameTLS, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}
	}
	return c, nil
}
