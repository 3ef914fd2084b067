package meshtls

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// apply sets the mode of each inbound, and the versions and ciphers on both sides of the proxy.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil {
		return
	}
	if c.View.Spec.MTLSEnabled() == nil {
		if c.Last {
			for _, p := range rules.Policies {
				c.Host.Warn(p.Key, "mesh %s has no mTLS, so the policy has no effect: enable mtls of the Mesh", c.View.Name)
			}
		}
		return
	}
	conf, owners := ofMesh(c, rules)
	if p := conf.clientParams(); p != nil {
		for _, cl := range d.Clusters {
			if cl.Kind == draft.OutboundCluster && !cl.Service.External {
				s, err := withParams(cl.Message.TransportSocket, &tlsv3.UpstreamTlsContext{}, p)
				if err != nil {
					warn(c, owners, "cluster %s keeps its TLS: %v", cl.Message.Name, err)
				}
				cl.Message.TransportSocket = s
			}
		}
	}
	p := conf.params()
	for _, l := range d.Listeners {
		if l.Kind != draft.Inbound {
			continue
		}
		if rule := rules.InboundAll(l.Inbound); rule != nil {
			if own, ok := rule.Conf.(*Conf); ok && own.Mode != nil {
				if err := setMode(l, *own.Mode); err != nil {
					warn(c, rules.Policies, "listener %s keeps its mode: %v", l.Message.Name, err)
				}
			}
		}
		for _, ch := range l.Chains {
			if p == nil || !ch.TLS || ch.Message == nil {
				continue
			}
			s, err := withParams(ch.Message.TransportSocket, &tlsv3.DownstreamTlsContext{}, p)
			if err != nil {
				warn(c, owners, "listener %s keeps its TLS: %v", l.Message.Name, err)
			}
			ch.Message.TransportSocket = s
		}
	}
}

// ofMesh merges what the policies on the whole mesh say, which alone have versions and ciphers: so they hold for a
// proxy without inbounds too. It is never nil.
func ofMesh(c *policy.Context, rules *policy.KindRules) (*Conf, []*resource.Resource) {
	var confs []resource.Conf
	var owners []*resource.Resource
	for _, p := range rules.Policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok || !wholeMesh(spec) {
			continue
		}
		owners = append(owners, p)
		for i := range spec.From {
			if spec.From[i].Conf != nil {
				confs = append(confs, spec.From[i].Conf)
			}
		}
	}
	merged, ok := resource.Merge(confs...).(*Conf)
	if !ok {
		return &Conf{}, owners
	}
	if v := merged.TLSVersion; v.contradicts() {
		warn(c, owners, "the policies on the mesh together allow TLS from %s to %s, which is no version: both bounds are left out", *v.Min, *v.Max)
		left := *merged
		left.TLSVersion = nil
		merged = &left
	}
	return merged, owners
}

func warn(c *policy.Context, owners []*resource.Resource, format string, args ...any) {
	for _, p := range owners {
		c.Host.Warn(p.Key, format, args...)
	}
}
