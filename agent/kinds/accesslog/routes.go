package accesslog

import (
	"regexp"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kindRoute = "MeshHTTPRoute"

// aboutRoutes reports whether some rule is about the requests of a route.
func aboutRoutes(k *policy.KindRules) bool {
	if k == nil {
		return false
	}
	return slices.ContainsFunc(k.ToResources, func(r *policy.ResourceRule) bool { return r.Resource.Kind == kindRoute }) ||
		slices.ContainsFunc(k.To, func(r *policy.Rule) bool { return len(r.Subset) > 1 })
}

// routes logs the requests of the routes of a chain that have rules of their own, and returns the names of these
// routes: what is logged by the rule about the service is then the rest.
func (w *writer) routes(l *draft.Listener, ch *draft.Chain, rule *policy.Rule, v *values) []string {
	var rules []*policy.Rule // in the order of the routes
	names := map[*policy.Rule][]string{}
	var every []string
	for _, vh := range ch.HTTP.Routes.GetVirtualHosts() {
		for _, route := range vh.GetRoutes() {
			name := route.GetName()
			r := w.rules.Route(l.Service, name, ch.HTTP.Origins[name])
			if r == rule || r == nil || name == "" || slices.Contains(names[r], name) {
				continue
			}
			if names[r] == nil {
				rules = append(rules, r)
			}
			names[r] = append(names[r], name)
			every = append(every, name)
		}
	}
	for _, r := range rules {
		slices.Sort(names[r])
		w.log(ch, w.plan(r, "to"), v, ofRoutes(names[r], false))
	}
	slices.Sort(every)
	return every
}

// path is the condition that a request that arrives for a service goes by a route: a condition on its path. The list is
// empty where the route takes every path. False, with a warning, where nothing is known of the route's paths.
func (w *writer) path(route *resource.Resource, service string) ([]*accesslogv3.AccessLogFilter, bool) {
	var own, others []policy.PathMatch
	if spec, ok := route.Spec.(*resource.Policy); ok {
		for i := range spec.To {
			conf, ok := spec.To[i].Conf.(policy.PathConf)
			if !ok {
				continue
			}
			if spec.To[i].TargetRef.Name == service {
				own = append(own, conf.PathMatches()...)
			} else {
				others = append(others, conf.PathMatches()...)
			}
		}
	}
	if len(own) == 0 { // it names its services otherwise than by the tag
		own = others
	}
	if len(own) == 0 {
		w.c.Host.Warn(route.Key, "the route has no paths that access logs of its requests could be told by: they are left out")
		return nil, false
	}
	filters := make([]*accesslogv3.AccessLogFilter, 0, len(own))
	for _, m := range own {
		re := pathRegex(m)
		if re == "" {
			return nil, true
		}
		filters = append(filters, headerFilter(&routev3.HeaderMatcher{
			Name: ":path",
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: re}},
			}},
		}))
	}
	if len(filters) == 1 {
		return filters, true
	}
	return []*accesslogv3.AccessLogFilter{{FilterSpecifier: &accesslogv3.AccessLogFilter_OrFilter{
		OrFilter: &accesslogv3.OrFilter{Filters: filters},
	}}}, true
}

// pathRegex matches the whole of a :path header, whose query is not part of what routes match. It is "" where every
// path matches.
func pathRegex(m policy.PathMatch) string {
	switch m.Type {
	case policy.PathExact:
		return regexp.QuoteMeta(m.Value) + `(\?.*)?`
	case policy.PathPrefix:
		prefix := strings.TrimSuffix(m.Value, "/")
		if prefix == "" {
			return ""
		}
		return regexp.QuoteMeta(prefix) + `([/?].*)?`
	default:
		return "(?:" + m.Value + `)(\?.*)?`
	}
}
