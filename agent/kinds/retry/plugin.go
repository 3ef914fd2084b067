// Package retry is the plugin of MeshRetry: which requests a proxy tries again, how often and after which pause, and how
// often it dials for a connection.
//
// Its policies act on the routes of HTTP and gRPC outbounds and on the TCP proxies of the others. Where conditions are
// not given, those of Kuma are in force.
package retry

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshRetry"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshretries", "mr", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			To:        toolkit.Destinations("MeshHTTPRoute"),
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     func(p *resource.Policy, v *resource.Validator) { toolkit.RouteItems(p, v, (*Conf).checkRoute) },
		})},
		Shapes: []match.Level{match.LevelRoute},
		Apply:  apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(kind)
	if k == nil {
		return
	}
	memo := map[*Conf]*retries{}
	of := func(r *policy.Rule) *retries {
		return toolkit.Once(memo, toolkit.Conf[Conf](r), func(conf *Conf) *retries {
			return retriesOf(conf, func(format string, args ...any) { toolkit.WarnStrongest(c, r, format, args...) })
		})
	}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		all, protocol := of(k.Outbound(l.Service)), mesh.Protocol(l.Service.Protocol)
		for _, ch := range l.Chains {
			switch {
			case ch.HTTP != nil:
				for r := range toolkit.Routes(ch.HTTP) {
					own := of(k.Route(l.Service, r.GetName(), ch.HTTP.Origins[r.GetName()]))
					if !own.put(r.GetRoute(), protocol) {
						all.put(r.GetRoute(), protocol)
					}
				}
			case ch.TCP != nil && all != nil && all.conf.TCP != nil && all.conf.TCP.MaxConnectAttempt != nil:
				ch.TCP.MaxConnectAttempts = toolkit.UInt32(all.conf.TCP.MaxConnectAttempt)
			}
		}
	}
}

// retries is a conf with Envoy's messages for it, which many routes share and nobody changes. Nil is for none.
type retries struct {
	conf       *Conf
	http, grpc *routev3.RetryPolicy
}

func retriesOf(conf *Conf, warn func(format string, args ...any)) *retries {
	out := &retries{conf: conf}
	if conf.HTTP != nil {
		out.http = conf.HTTP.policy(warn)
	}
	if conf.GRPC != nil {
		out.grpc = conf.GRPC.policy(warn)
	}
	return out
}

// put sets the policy of a route that leads to a cluster, be it that nothing is tried again. It returns false where the
// conf says nothing about requests of the protocol.
func (r *retries) put(action *routev3.RouteAction, p mesh.Protocol) bool {
	switch {
	case r == nil || p == mesh.ProtocolGRPC && r.conf.GRPC == nil || p != mesh.ProtocolGRPC && r.conf.HTTP == nil:
		return false
	case action == nil:
	case p == mesh.ProtocolGRPC:
		action.RetryPolicy = r.grpc
	default:
		action.RetryPolicy = r.http
	}
	return true
}
