package loadbalancing

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// hashing is what requests and connections are hashed by.
type hashing struct {
	requests    []*routev3.RouteAction_HashPolicy
	connections []*typev3.HashPolicy // Envoy takes one at most
}

// newHashing takes the policies of the algorithm that is chosen.
func newHashing(l *LoadBalancer) hashing {
	var list *[]HashPolicy
	switch {
	case l == nil:
	case l.Type == ringHash && l.RingHash != nil:
		list = l.RingHash.HashPolicies
	case l.Type == maglev && l.Maglev != nil:
		list = l.Maglev.HashPolicies
	}
	var out hashing
	if list == nil {
		return out
	}
	for i := range *list {
		p := &(*list)[i]
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
		for _, host := range ch.HTTP.Routes.VirtualHosts {
			for _, r := range host.Routes {
				if action, ok := r.Action.(*routev3.Route_Route); ok {
					action.Route.HashPolicy = slices.Concat(action.Route.HashPolicy, h.requests)
				}
			}
		}
	}
}

// request is the policy as a route has it. The part that belongs to the type is there: that was validated.
func (p *HashPolicy) request() *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{Terminal: p.Terminal != nil && *p.Terminal}
	switch p.Type {
	case hashHeader:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: p.Header.Name}}
	case hashCookie:
		c := &routev3.RouteAction_HashPolicy_Cookie{Name: p.Cookie.Name}
		if p.Cookie.TTL != nil {
			c.Ttl = durationpb.New(p.Cookie.TTL.Duration)
		}
		if p.Cookie.Path != nil {
			c.Path = *p.Cookie.Path
		}
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
	return (p.Type == hashConnection || p.Type == hashSourceIP) && p.Connection.SourceIP != nil && *p.Connection.SourceIP
}
