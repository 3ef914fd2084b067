package accesslog

import (
	"regexp"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
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

// ownRule is a rule about the requests of some routes.
type ownRule struct {
	rule  *policy.Rule
	names []string // of the routes, sorted
}

// routes returns the routes of a chain that have rules of their own, by their rule, and the names of all of them: what
// is logged by the rule about the service is then the rest.
func (w *writer) routes(s draft.Service, h *draft.HTTP, rule *policy.Rule) (own []ownRule, every []string) {
	at := map[*policy.Rule]int{}
	for route := range toolkit.Routes(h) {
		name := route.GetName()
		r := w.rules.Route(s, name, h.Origins[name])
		if r == rule || r == nil || name == "" {
			continue
		}
		i, ok := at[r]
		if !ok {
			i = len(own)
			own, at[r] = append(own, ownRule{rule: r}), i
		}
		own[i].names = append(own[i].names, name)
		every = append(every, name)
	}
	for i := range own {
		own[i].names = unique(own[i].names)
	}
	return own, unique(every)
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// byPath is the condition that a request that arrives for a service goes by a route: a condition on its path. The list is
// empty where the route takes every path. False where nothing is known of the route's paths.
func byPath(route *resource.Resource, service string) ([]*accesslogv3.AccessLogFilter, bool) {
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
		return nil, false
	}
	filters := make([]*accesslogv3.AccessLogFilter, 0, len(own))
	for _, m := range own {
		re := pathRegex(m)
		if re == "" {
			return nil, true
		}
		filters = append(filters, headerFilter(toolkit.Header(":path", toolkit.Regex(re))))
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
