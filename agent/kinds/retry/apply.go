package retry

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
)

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(kind)
	if k == nil {
		return
	}
	a := &applier{c: c, rules: k, made: map[*Conf]*retries{}}
	for _, l := range d.Listeners {
		if l.Kind == draft.Outbound {
			a.outbound(l)
		}
	}
}

// retries is a conf as Envoy's messages, which many routes share and nobody changes. Nil is for none.
type retries struct {
	attempts   *wrapperspb.UInt32Value
	http, grpc *routev3.RetryPolicy
	// speaksHTTP and speaksGRPC are true where the conf says something, be it that nothing is tried again.
	speaksHTTP, speaksGRPC bool
}

type applier struct {
	c     *policy.Context
	rules *policy.KindRules
	made  map[*Conf]*retries
}

func (a *applier) ofRule(r *policy.Rule) *retries {
	if r == nil {
		return nil
	}
	conf, ok := r.Conf.(*Conf)
	if !ok {
		return nil
	}
	out := a.made[conf]
	if out != nil {
		return out
	}
	warn := func(format string, args ...any) {
		if n := len(r.Origins); n > 0 { // the strongest policy
			a.c.Host.Warn(r.Origins[n-1].Policy.Key, format, args...)
		}
	}
	out = &retries{speaksHTTP: conf.HTTP != nil, speaksGRPC: conf.GRPC != nil}
	if t := conf.TCP; t != nil && t.MaxConnectAttempt != nil {
		out.attempts = wrapperspb.UInt32(*t.MaxConnectAttempt)
	}
	if conf.HTTP != nil {
		out.http = conf.HTTP.policy(warn)
	}
	if conf.GRPC != nil {
		out.grpc = conf.GRPC.policy(warn)
	}
	a.made[conf] = out
	return out
}

// of returns what the conf says about requests of a protocol; false when it says nothing.
func (r *retries) of(p mesh.Protocol) (*routev3.RetryPolicy, bool) {
	switch {
	case r == nil:
		return nil, false
	case p == mesh.ProtocolGRPC:
		return r.grpc, r.speaksGRPC
	}
	return r.http, r.speaksHTTP
}

func (a *applier) outbound(l *draft.Listener) {
	all := a.ofRule(a.rules.Outbound(l.Service))
	protocol := mesh.Protocol(l.Service.Protocol)
	for _, ch := range l.Chains {
		switch {
		case ch.HTTP != nil:
			a.routes(l.Service, protocol, ch.HTTP, all)
		case ch.TCP != nil && all != nil && all.attempts != nil:
			ch.TCP.MaxConnectAttempts = all.attempts
		}
	}
}

// routes sets the policy of each route: that about the route, else that about the destination.
func (a *applier) routes(s draft.Service, p mesh.Protocol, h *draft.HTTP, all *retries) {
	for _, vh := range h.Routes.GetVirtualHosts() {
		for _, r := range vh.GetRoutes() {
			action := r.GetRoute()
			if action == nil {
				continue
			}
			policy, ok := a.ofRule(a.rules.Route(s, r.GetName(), h.Origins[r.GetName()])).of(p)
			if !ok {
				policy, ok = all.of(p)
			}
			if ok {
				action.RetryPolicy = policy
			}
		}
	}
}
