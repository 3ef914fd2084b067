package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Everything returns a match for every request.
func Everything() *Match { return &Match{Path: &PathMatch{Value: "/", Type: pathPrefix}} }

// plan is a rule with its resolved destinations.
type plan struct {
	name    string
	matches []Match
	filters []filter
	refs    []BackendRef
	refers  bool // whether the rule sets destinations, even an empty list
	shares  []Share
	origins []resource.Key     // policies that define it, the strongest last
	from    *resource.Resource // policy that sets the destinations
	changes *resource.Resource // policy that sets the filters
}

// entry is a match of a rule.
type entry struct {
	match *Match
	plan  *plan
}

// filter is a filter with the cluster of its mirror.
type filter struct {
	*Filter
	mirror string // cluster
}

// http creates the chain for requests.
func (r *Router) http(rule *policy.Rule) {
	conf, ok := rule.Conf.(*HTTPConf)
	if !ok {
		conf = &HTTPConf{}
	}
	plans := r.plans(conf, rule)
	origins := make(map[string][]resource.Key, len(plans))
	entries := make([]entry, 0, len(plans)+1)
	for i := range plans {
		p := &plans[i]
		if !r.resolve(p, rule) {
			continue
		}
		origins[p.name] = p.origins
		for j := range p.matches {
			entries = append(entries, entry{&p.matches[j], p})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.match.Compare(b.match) })
	if last := slices.IndexFunc(entries, func(e entry) bool { return e.match.all() }); last >= 0 {
		r.warnUnreachable(rule, entries[last+1:])
	} else {
		all := Everything()
		p := &plan{name: RouteName([]Match{*all}), matches: []Match{*all}}
		if r.resolve(p, rule) {
			entries = append(entries, entry{all, p})
		}
	}
	routes := make([]*routev3.Route, 0, 2*len(entries))
	for _, e := range entries {
		for _, m := range e.match.envoy() {
			routes = append(routes, e.plan.route(m, e.match))
		}
	}
	m := r.Manager(routes, r.o.Service.Protocol)
	m.Origins = origins
	r.Chain(&draft.Chain{HTTP: m})
}

// plans returns the rules of a conf with the policies that define them. Of rules with the same
// matches the first takes precedence, and the others set its unset fields.
func (r *Router) plans(conf *HTTPConf, rule *policy.Rule) []plan {
	names := conf.RouteNames()
	out := make([]plan, 0, len(names))
	index := make(map[string]int, len(names))
	for i, name := range names {
		do := &conf.Rules[i].Default
		at, known := index[name]
		if !known {
			at = len(out)
			index[name] = at
			out = append(out, plan{name: name, matches: conf.Rules[i].Matches})
		}
		p := &out[at]
		if p.filters == nil && do.Filters != nil {
			p.filters = make([]filter, len(*do.Filters))
			for j := range p.filters {
				p.filters[j].Filter = &(*do.Filters)[j]
			}
		}
		if !p.refers && do.BackendRefs != nil {
			p.refs, p.refers = *do.BackendRefs, true
		}
	}
	for _, o := range rule.Origins {
		of := originConf(o)
		if of == nil {
			continue
		}
		originNames := names
		if len(rule.Origins) > 1 {
			originNames = of.RouteNames()
		}
		for i, name := range originNames {
			at, ok := index[name]
			if !ok {
				continue
			}
			p := &out[at]
			if n := len(p.origins); n == 0 || p.origins[n-1] != o.Policy.Key {
				p.origins = append(p.origins, o.Policy.Key)
			}
			if of.Rules[i].Default.BackendRefs != nil {
				p.from = o.Policy
			}
			if of.Rules[i].Default.Filters != nil {
				p.changes = o.Policy
			}
		}
	}
	return out
}

// originConf returns the conf of a policy's item, or nil.
func originConf(o policy.Origin) *HTTPConf {
	spec, ok := o.Policy.Spec.(*resource.Policy)
	if !ok || o.Item >= len(spec.To) {
		return nil
	}
	c, _ := spec.To[o.Item].Conf.(*HTTPConf)
	return c
}

// resolve resolves the destinations of a rule. It returns false if none is usable.
func (r *Router) resolve(p *plan, rule *policy.Rule) bool {
	from := p.from
	if from == nil {
		from = toolkit.Strongest(rule)
	}
	redirects := false
	for i := range p.filters {
		f := &p.filters[i]
		redirects = redirects || f.RequestRedirect != nil
		if f.RequestMirror != nil {
			if d, ok := r.Find(p.changes, f.RequestMirror.BackendRef.ref(), true); ok {
				f.mirror = d.Cluster
			}
		}
	}
	if len(p.refs) > 0 {
		p.shares = r.shares(from, p.refs, true)
	} else {
		p.shares = []Share{{r.o.Self(from), 1}}
	}
	if len(p.shares) > 0 || redirects {
		return true
	}
	if named(p.refs) {
		r.c.Host.Warn(from.Key, "%s: no destination of a rule is usable, so its requests match the next rule or go to the "+
			"service; Kuma 3.0 answers them with status 500: correct backendRefs", r.o.Service.Name)
	}
	return false
}

// named reports whether a destination has a weight above 0.
func named(refs []BackendRef) bool {
	return slices.ContainsFunc(refs, func(b BackendRef) bool { return toolkit.Or(b.Weight, 1) > 0 })
}

// warnUnreachable warns about matches that no request reaches. As in Kuma, a rule for / takes
// precedence over patterns and over matches without a path.
func (r *Router) warnUnreachable(rule *policy.Rule, entries []entry) {
	hidden := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.match.all() })
	if len(hidden) == 0 {
		return
	}
	first := "no path"
	if p := hidden[0].match.Path; p != nil {
		first = fmt.Sprintf("path %q (%s)", p.Value, p.Type)
	}
	toolkit.WarnStrongest(r.c, rule, "%s: no request reaches %d of the matches, the first with %s, because matches of "+
		"type %s and matches without a path have lower precedence than the rule for /; use path type %s",
		r.o.Service.Name, len(hidden), first, pattern, pathPrefix)
}

// route returns one route. It shares no message, because later policies edit them.
func (p *plan) route(m *routev3.RouteMatch, of *Match) *routev3.Route {
	out := &routev3.Route{Name: p.name, Match: m}
	action := Forward(p.shares)
	out.Action = &routev3.Route_Route{Route: action}
	for i := range p.filters {
		p.filters[i].apply(out, action, of)
	}
	return out
}

// Forward returns an action that forwards requests to weighted destinations.
func Forward(shares []Share) *routev3.RouteAction {
	out := &routev3.RouteAction{Timeout: &durationpb.Duration{}}
	if len(shares) == 1 {
		out.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: shares[0].Cluster}
	} else {
		w := &routev3.WeightedCluster{Clusters: make([]*routev3.WeightedCluster_ClusterWeight, len(shares))}
		for i, s := range shares {
			w.Clusters[i] = &routev3.WeightedCluster_ClusterWeight{Name: s.Cluster, Weight: wrapperspb.UInt32(s.Weight)}
		}
		out.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: w}
	}
	if slices.ContainsFunc(shares, func(s Share) bool { return !s.Service.Upgrades }) {
		out.UpgradeConfigs = draft.NoWebSockets
	}
	if slices.ContainsFunc(shares, func(s Share) bool { return s.Service.External }) {
		out.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(true)}
	}
	return out
}

// all reports whether the match is the one for every request by path.
func (m *Match) all() bool {
	return m.Path != nil && *m.Path == PathMatch{Value: "/", Type: pathPrefix} && m.Method == "" &&
		len(m.QueryParams) == 0 && len(m.Headers) == 0
}

// Compare orders matches by the precedence of the Gateway API
// (https://gateway-api.sigs.k8s.io/reference/spec/#httprouterule): exact paths, then prefixes, then
// patterns, longer ones first; matches with a method before others; more headers before fewer, then
// more parameters. Equal matches remain in the order of the rules.
func (m *Match) Compare(o *Match) int {
	some := func(set bool) int {
		if set {
			return 0
		}
		return 1
	}
	return cmp.Or(
		m.Path.compare(o.Path),
		cmp.Compare(some(m.Method != ""), some(o.Method != "")),
		cmp.Compare(len(o.Headers), len(m.Headers)),
		cmp.Compare(len(o.QueryParams), len(m.QueryParams)),
	)
}

func (p *PathMatch) compare(o *PathMatch) int {
	rank := func(p *PathMatch) int {
		switch {
		case p == nil:
			return 3
		case p.Type == exact:
			return 0
		case p.Type == pathPrefix:
			return 1
		}
		return 2
	}
	a, b := rank(p), rank(o)
	if a != b || a == 0 || a == 3 {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(len(o.Value), len(p.Value))
}

// envoy returns Envoy's matches that are together equivalent to m.
func (m *Match) envoy() []*routev3.RouteMatch {
	out := m.Path.envoy()
	for _, e := range out {
		if m.Method != "" {
			e.Headers = append(e.Headers, toolkit.Header(":method", toolkit.Exactly(m.Method)))
		}
		e.Headers = append(e.Headers, toolkit.Matchers(m.Headers)...)
		for i := range m.QueryParams {
			q := &m.QueryParams[i]
			text := toolkit.Exactly(q.Value)
			if q.Type == pattern {
				text = toolkit.Regex(q.Value)
			}
			e.QueryParameters = append(e.QueryParameters, &routev3.QueryParameterMatcher{
				Name: q.Name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: text},
			})
		}
	}
	return out
}

// envoy returns the alternatives for a path. A prefix requires two: a rewrite with Envoy's matcher
// for path segments results in a double slash (https://github.com/envoyproxy/envoy/issues/23130).
func (p *PathMatch) envoy() []*routev3.RouteMatch {
	switch {
	case p == nil || p.Type == pathPrefix && p.Value == "/":
		return []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}}
	case p.Type == pathPrefix:
		path := strings.TrimSuffix(p.Value, "/")
		return []*routev3.RouteMatch{
			{PathSpecifier: &routev3.RouteMatch_Path{Path: path}},
			{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: path + "/"}},
		}
	case p.Type == pattern:
		return []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: regex(p.Value)}}}
	}
	return []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_Path{Path: p.Value}}}
}

func regex(s string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: s} }
