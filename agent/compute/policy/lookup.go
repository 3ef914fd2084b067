package policy

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// tagRoute stands in subsets for the route of a request: rules of policies that target a
// MeshHTTPRoute have it. Its values are those of RouteConf.
const tagRoute = "__rule-matches-hash__"

// RouteConf is implemented by the conf of route policies whose routes other policies can be about.
type RouteConf interface {
	// RouteNames returns, for each of the rules, the name that the plugin gives to its routes.
	RouteNames() []string
}

// PathConf is implemented by the conf of route policies whose requests can be told by their path
// where they arrive.
type PathConf interface {
	// PathMatches returns what is said of the path, once for each match; a match that says nothing of
	// it is one with the prefix "/".
	PathMatches() []PathMatch
}

// PathMatch is a condition on the path of a request, without the query.
type PathMatch struct {
	Type  string // PathExact, PathPrefix or PathRegex
	Value string
}

// Types of PathMatch. A prefix is of whole elements: /a takes /a and /a/b but not /ab. A regular
// expression, in the syntax of RE2, is about the whole path.
const (
	PathExact  = "Exact"
	PathPrefix = "PathPrefix"
	PathRegex  = "RegularExpression"
)

// ShownConf is implemented by a conf that rules are shown with in another form than documents have
// it in.
type ShownConf interface {
	// Shown returns what has the JSON to show.
	Shown() any
}

// Outbound returns the rule about a destination, nil for none.
func (k *KindRules) Outbound(s draft.Service) *Rule {
	if k == nil {
		return nil
	}
	if s.Kind == mesh.KindTag {
		return k.service(s.Name)
	}
	for _, section := range [...]string{mesh.SectionName(s.Section, s.Port), ""} {
		if r := k.byResource[resourceID{s.Resource, section}]; r != nil {
			return &r.Rule
		}
	}
	return k.forAll()
}

// Route returns the rule about the requests of one route to a destination: that about the route
// when there is one, else that about the destination. name is the route's, origins are the policies
// that made it, as draft.HTTP has them.
func (k *KindRules) Route(s draft.Service, name string, origins []resource.Key) *Rule {
	if k == nil {
		return nil
	}
	for _, o := range slices.Backward(origins) {
		if r := k.byResource[resourceID{key: o}]; r != nil {
			return &r.Rule
		}
	}
	if name != "" && s.Kind == mesh.KindTag {
		want := Subset{{Key: resource.TagService, Value: s.Name}, {Key: tagRoute, Value: name}}
		for _, r := range k.To {
			if len(r.Subset) > 1 && r.Subset.Holds(want) {
				return r
			}
		}
	}
	return k.Outbound(s)
}

// Inbound returns the rules about the clients of an inbound by its index, nil for none.
func (k *KindRules) Inbound(i int) *InboundRules {
	if k == nil {
		return nil
	}
	for j := range k.From {
		if k.From[j].Inbound == i {
			return &k.From[j]
		}
	}
	return nil
}

// InboundAll returns the rule about all clients of an inbound, nil when there is none: for kinds
// that cannot tell clients apart.
func (k *KindRules) InboundAll(i int) *Rule {
	rules := k.Inbound(i)
	if rules == nil {
		return nil
	}
	for _, r := range rules.Rules {
		if len(r.Subset) == 0 {
			return r
		}
	}
	return nil
}

// service returns the rule about a tag service.
func (k *KindRules) service(name string) *Rule { return cmp.Or(k.byService[name], k.byService[""]) }

// forAll is the rule about resources that have none of their own.
func (k *KindRules) forAll() *Rule {
	for _, r := range k.ToResources {
		if r.Resource.Kind == kindMesh {
			return &r.Rule
		}
	}
	return nil
}

// LegacyOutbound returns the legacy policy of a kind for the connections of the proxy to a
// kuma.io/service: the one whose sources and destinations name most tags. Nil for none, and when a
// targetRef policy supersedes it.
func (r *Rules) LegacyOutbound(kind, service string) *resource.Resource {
	k := r.legacyKind(kind)
	to := []map[string]string{{resource.TagService: service}}
	var best rank
	var out *resource.Resource
	for _, list := range [...][]legacyOut{k.out[service], k.out["*"]} {
		for i := range list {
			o := &list[i]
			tags, ok := bestOf(o.spec.Destinations, to)
			if !ok {
				continue
			}
			tags = tags.add(o.from)
			if c := tags.compare(best); out == nil || c > 0 || c == 0 && o.policy.Name < out.Name {
				best, out = tags, o.policy
			}
		}
	}
	return out
}

// LegacyInbound returns the legacy policies of a kind for the connections to an inbound by its
// index, the one whose destinations name most tags first. It is empty when a targetRef policy
// supersedes them.
func (r *Rules) LegacyInbound(kind string, inbound int) []*resource.Resource {
	k := r.legacyKind(kind)
	if inbound < 0 || inbound >= len(k.in) {
		return nil
	}
	out := make([]*resource.Resource, len(k.in[inbound]))
	for i, in := range k.in[inbound] {
		out[i] = in.policy
	}
	return out
}

// LegacyProxy returns the legacy policy of a kind that selects proxies as a whole. Nil for none,
// and when a targetRef policy supersedes it.
func (r *Rules) LegacyProxy(kind string) *resource.Resource {
	if k := r.legacyKind(kind); len(k.self) > 0 {
		return k.self[0].policy
	}
	return nil
}

// legacyKind returns the legacy policies of a kind, which are empty where none acts.
func (r *Rules) legacyKind(kind string) legacyKind {
	if r != nil {
		for _, k := range r.legacy {
			if k.kind == kind {
				return k
			}
		}
	}
	return legacyKind{}
}

// Legacy reports whether the mesh has policies of a legacy kind, whether or not they select the
// proxy.
func (r *Rules) Legacy(kind string) bool {
	return r != nil && r.index != nil && len(r.index.legacyOf(kind)) > 0
}

// Resources returns the resources of a kind that a plugin declares in Refers, sorted by name: those
// of the mesh, or all of a global kind. The slice must not be changed.
func (r *Rules) Resources(kind string) []*resource.Resource {
	if r == nil || r.index == nil {
		return nil
	}
	return r.index.refers[kind]
}
