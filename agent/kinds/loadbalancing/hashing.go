package loadbalancing

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
)

// hashing is what requests and connections are hashed by.
type hashing struct {
	requests    []*routev3.RouteAction_HashPolicy
	connections []*typev3.HashPolicy // Envoy takes one at most
}

// newHashing takes the policies of the algorithm that is chosen.
func newHashing(l *LoadBalancer) hashing {
	var list []HashPolicy
	switch {
	case l == nil:
	case l.Type == ringHash && l.RingHash != nil:
		list = toolkit.Or(l.RingHash.HashPolicies, nil)
	case l.Type == maglev && l.Maglev != nil:
		list = toolkit.Or(l.Maglev.HashPolicies, nil)
	}
	var out hashing
	for i := range list {
		p := &list[i]
		out.requests = append(out.requests, p.request())
		if c := p.connection(); c != nil && out.connections == nil {
			out.connections = []*typev3.HashPolicy{c}
		}
	}
	return out
}

// apply adds the policies to all routes of a chain that lead somewhere, or to its TCP proxy.
func (h hashing) apply(ch *draft.Chain) {
	switch {
	case len(h.requests) == 0:
	case ch.TCP != nil:
		ch.TCP.HashPolicy = h.connections
	case ch.HTTP != nil && ch.HTTP.Routes != nil:
		for r := range toolkit.Routes(ch.HTTP) {
			if action := r.GetRoute(); action != nil {
				action.HashPolicy = slices.Concat(action.HashPolicy, h.requests)
			}
		}
	}
}

// request is the policy as a route has it. The part that belongs to the type is there: that was validated.
func (p *HashPolicy) request() *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{Terminal: toolkit.Or(p.Terminal, false)}
	switch p.Type {
	case hashHeader:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: p.Header.Name}}
	case hashCookie:
		c := &routev3.RouteAction_HashPolicy_Cookie{Name: p.Cookie.Name, Ttl: toolkit.Duration(p.Cookie.TTL), Path: toolkit.Or(p.Cookie.Path, "")}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: c}
	case hashQuery:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: p.QueryParameter.Name}}
	case hashFilterState:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_FilterState_{FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: p.FilterState.Key}}
	default:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{
			SourceIp: p.bySource(),
		}}
	}
	return out
}

// connection is the policy as a TCP proxy has it; nil where it is about requests.
func (p *HashPolicy) connection() *typev3.HashPolicy {
	switch {
	case p.Type == hashFilterState:
		return &typev3.HashPolicy{PolicySpecifier: &typev3.HashPolicy_FilterState_{FilterState: &typev3.HashPolicy_FilterState{Key: p.FilterState.Key}}}
	case p.bySource():
		return &typev3.HashPolicy{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}
	}
	return nil
}

func (p *HashPolicy) bySource() bool {
	return (p.Type == hashConnection || p.Type == hashSourceIP) && toolkit.Or(p.Connection.SourceIP, false)
}
