package legacy

import (
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/route"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// router creates the chain of one outbound.
type router struct {
	*route.Router
	c *policy.Context
	o *policy.Outbound
}

// rule is one route of a TrafficRoute.
type rule struct {
	match  *Match // nil for every request
	modify *Modify
	shares []route.Share
}

// outbound creates the chain for the TrafficRoute of an outbound. It returns false if no
// destination is usable. The chain uses HTTP if all destinations do. If the mesh has TrafficRoutes
// and none applies to the outbound, the chain is closed.
func outbound(c *policy.Context, o *policy.Outbound) bool {
	superseding := c.Rules.Kind(route.KindTCP)
	if mesh.Protocol(o.Service.Protocol).HTTP() {
		superseding = c.Rules.Kind(route.KindHTTP)
	}
	if o.Service.Kind != mesh.KindTag || superseding != nil {
		return false
	}
	p := c.Rules.LegacyOutbound(kind, o.Service.Name)
	if p == nil && c.Rules.Legacy(kind) {
		c.Host.Warn(c.Proxy().Key, "connections to %s are closed, because the mesh has %ss and none of them applies to this "+
			"proxy and that service; add one, or a %s or %s that selects the proxy", o.Service.Name, kind, route.KindHTTP,
			route.KindTCP)
		route.NewRouter(c, o).Chain(&draft.Chain{TCP: route.TCPProxy(o.Service.Name,
			[]route.Share{{Destination: policy.Destination{Cluster: toolkit.ClusterEmpty}}})})
		return true
	}
	conf := toolkit.LegacyConf[Conf](p)
	if conf == nil {
		return false
	}
	r := &router{route.NewRouter(c, o), c, o}
	rest := r.shares(p, conf.Split, conf.Destination)
	if len(rest) == 0 {
		return false
	}
	rules := make([]rule, 0, len(conf.HTTP)+1)
	for i := range conf.HTTP {
		h := &conf.HTTP[i]
		if s := r.shares(p, h.Split, h.Destination); len(s) > 0 {
			rules = append(rules, rule{h.Match, h.Modify, s})
		}
	}
	rules = append(rules, rule{shares: rest})
	protocol, requests := r.commonProtocol(rules)
	if !requests {
		tcp := route.TCPProxy(o.Service.Name, rest)
		tcp.IdleTimeout = &durationpb.Duration{}
		r.Chain(&draft.Chain{TCP: tcp})
		return true
	}
	routes := make([]*routev3.Route, len(rules))
	for i := range rules {
		routes[i] = rules[i].envoy()
	}
	m := r.Manager(routes, protocol)
	m.Message.NormalizePath = nil
	m.Message.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: &durationpb.Duration{}}
	m.Message.StreamIdleTimeout = &durationpb.Duration{}
	r.Chain(&draft.Chain{HTTP: m})
	return true
}

// commonProtocol returns the protocol of all destinations, and whether it carries requests. It
// ignores destinations that no workload offers unless there are no others.
func (r *router) commonProtocol(rules []rule) (protocol string, requests bool) {
	requests = true
	for _, rule := range rules {
		for _, s := range rule.shares {
			if !r.Offered(s.Service) {
				continue
			}
			requests = requests && mesh.Protocol(s.Service.Protocol).HTTP()
			switch protocol {
			case "", s.Service.Protocol:
				protocol = s.Service.Protocol
			default:
				protocol = string(mesh.ProtocolHTTP)
			}
		}
	}
	return protocol, requests && protocol != ""
}

// shares returns the usable destinations.
func (r *router) shares(p *resource.Resource, split []Split, tags map[string]string) []route.Share {
	split = splitOf(split, tags)
	out := make([]route.Share, 0, len(split))
	for _, s := range split {
		if toolkit.Or(s.Weight, 1) == 0 {
			continue
		}
		ref := refOf(s.Destination, r.o.Tags)
		if ref.Name == "" {
			ref.Name = r.o.Service.Name
		}
		if d, ok := r.Find(p, ref, false); ok {
			out = append(out, route.Share{Destination: d, Weight: toolkit.Or(s.Weight, 1)})
		}
	}
	return out
}

// splitOf returns the split, or a split with the single destination.
func splitOf(split []Split, tags map[string]string) []Split {
	if len(split) == 0 && len(tags) > 0 {
		return []Split{{Destination: tags}}
	}
	return split
}

// refOf returns a reference to the endpoints with some tags. Missing tags and "*" have the
// outbound's values.
func refOf(tags, outbound map[string]string) policy.BackendRef {
	all := make(map[string]string, len(tags)+len(outbound))
	maps.Copy(all, tags)
	for k, v := range outbound {
		if have, ok := all[k]; !ok || have == "*" {
			all[k] = v
		}
	}
	maps.DeleteFunc(all, func(_, v string) bool { return v == "*" })
	out := policy.BackendRef{Kind: kindSubset, Name: all[resource.TagService]}
	delete(all, resource.TagService)
	if len(all) > 0 {
		out.Tags = all
	}
	return out
}

func (l *rule) envoy() *routev3.Route {
	do := route.Forward(l.shares)
	out := &routev3.Route{Match: l.match.envoy(), Action: &routev3.Route_Route{Route: do}}
	if l.modify != nil {
		l.modify.apply(out, do)
	}
	return out
}

func (m *Match) envoy() *routev3.RouteMatch {
	out := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	if m == nil {
		return out
	}
	if p := m.Path; p != nil {
		switch {
		case p.Prefix != nil:
			out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: *p.Prefix}
		case p.Exact != nil:
			out.PathSpecifier = &routev3.RouteMatch_Path{Path: *p.Exact}
		case p.Regex != nil:
			out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regex(*p.Regex)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		s := m.Headers[name]
		out.Headers = append(out.Headers, s.envoy(name))
	}
	if m.Method != nil {
		out.Headers = append(out.Headers, m.Method.envoy(":method"))
	}
	return out
}

func (s *String) envoy(header string) *routev3.HeaderMatcher {
	switch {
	case s.Prefix != nil:
		return toolkit.Header(header, toolkit.Prefix(*s.Prefix))
	case s.Exact != nil:
		return toolkit.Header(header, toolkit.Exactly(*s.Exact))
	case s.Regex != nil:
		return toolkit.Header(header, toolkit.Regex(*s.Regex))
	}
	return &routev3.HeaderMatcher{Name: header}
}

func (m *Modify) apply(out *routev3.Route, do *routev3.RouteAction) {
	if p := m.Path; p != nil {
		if p.RewritePrefix != nil {
			do.PrefixRewrite = *p.RewritePrefix
		}
		do.RegexRewrite = p.Regex.envoy()
	}
	if h := m.Host; h != nil {
		switch {
		case h.Value != nil:
			do.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: *h.Value}
		case h.FromPath != nil:
			do.HostRewriteSpecifier = &routev3.RouteAction_HostRewritePathRegex{HostRewritePathRegex: h.FromPath.envoy()}
		}
	}
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = m.RequestHeaders.envoy()
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = m.ResponseHeaders.envoy()
}

func (r *Regex) envoy() *matcherv3.RegexMatchAndSubstitute {
	if r == nil {
		return nil
	}
	return &matcherv3.RegexMatchAndSubstitute{Pattern: regex(r.Pattern), Substitution: r.Substitution}
}

func (h *Headers) envoy() (add []*corev3.HeaderValueOption, remove []string) {
	if h == nil {
		return nil, nil
	}
	for _, a := range h.Add {
		how := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		if a.Append {
			how = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
		add = append(add, route.HeaderOption(a.Name, a.Value, how))
	}
	for _, r := range h.Remove {
		remove = append(remove, r.Name)
	}
	return add, remove
}

func regex(s string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: s} }
