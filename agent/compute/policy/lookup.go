package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// tagRoute is the subset key for the route of a request. Rules of policies that target a
// MeshHTTPRoute use it with values from RouteConf.
const tagRoute = "__rule-matches-hash__"

// RouteConf is implemented by the conf of route policies whose routes other policies can target.
type RouteConf interface {
	// RouteNames returns the name of the routes of each rule.
	RouteNames() []string
}

// PathConf is implemented by the conf of route policies whose requests an inbound can identify by
// path.
type PathConf interface {
	// PathMatches returns the path condition of each match. A match without one has the prefix "/".
	PathMatches() []PathMatch
}

// PathMatch is a condition on the path of a request, excluding the query.
type PathMatch struct {
	Type  string // PathExact, PathPrefix or PathRegex
	Value string
}

// Types of PathMatch. A prefix consists of whole path segments: /a matches /a and /a/b but not /ab.
// A regular expression uses RE2 syntax and must match the whole path.
const (
	PathExact  = "Exact"
	PathPrefix = "PathPrefix"
	PathRegex  = "RegularExpression"
)

// ProtocolConf is implemented by confs with fields that apply to some protocols, if their sections
// do not show that.
type ProtocolConf interface {
	// Fits reports whether the field at a path applies to a protocol.
	Fits(path string, p mesh.Protocol) bool
}

// Fits reports whether the field at a path of a conf applies to a protocol. Without a ProtocolConf,
// fields in a section named http apply to http and http2, those in grpc to grpc, those in tcp to
// protocols other than these, and others to all.
func Fits(c resource.Conf, path string, p mesh.Protocol) bool {
	if f, ok := c.(ProtocolConf); ok {
		return f.Fits(path, p)
	}
	switch SectionOf(path) {
	case "http":
		return p.HTTP() && p != mesh.ProtocolGRPC
	case "grpc":
		return p == mesh.ProtocolGRPC
	case "tcp":
		return !p.HTTP()
	}
	return true
}

// SectionOf returns the section of a path that is named after a protocol: tcp, http, grpc, or "".
func SectionOf(path string) string {
	for token := range strings.SplitSeq(path, ".") {
		if token == "tcp" || token == "http" || token == "grpc" {
			return token
		}
	}
	return ""
}

// IdleConf is implemented by confs some of whose fields make others ineffective.
type IdleConf interface {
	// Idle says why other fields make the field at a path ineffective; "" if they do not.
	Idle(path string) string
}

// ShownConf is implemented by confs whose displayed form differs from the form in documents.
type ShownConf interface {
	// Shown returns a value that marshals to the displayed JSON.
	Shown() any
}

// Outbound returns the rule for a destination, or nil.
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

// Route returns the rule for the requests of one route to a destination. It falls back to the rule
// for the destination. name is the route's name, and origins are the policies behind the route, as
// in draft.HTTP.
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

// Inbound returns the rules for the clients of an inbound, given by index, or nil.
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

// InboundAll returns the rule for all clients of an inbound, or nil. It is for kinds that cannot
// distinguish clients.
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

// service returns the rule for a tag service.
func (k *KindRules) service(name string) *Rule { return cmp.Or(k.byService[name], k.byService[""]) }

// forAll returns the rule for resources without a specific rule.
func (k *KindRules) forAll() *Rule {
	for _, r := range k.ToResources {
		if r.Resource.Kind == kindMesh {
			return &r.Rule
		}
	}
	return nil
}

// LegacyOutbound returns the legacy policy of a kind for the proxy's connections to a
// kuma.io/service: the one whose sources and destinations match with the most tags. It returns nil
// if there is none or if a targetRef policy supersedes it.
func (r *Rules) LegacyOutbound(kind, service string) *resource.Resource {
	k := r.legacyKind(kind)
	to := []map[string]string{{resource.TagService: service}}
	var best precedence.Tags
	var out *resource.Resource
	for _, list := range [...][]legacyOut{k.out[service], k.out["*"]} {
		for i := range list {
			o := &list[i]
			tags, ok := precedence.Best(o.spec.Destinations, to)
			if !ok {
				continue
			}
			tags = tags.Add(o.from)
			if c := tags.Compare(best); out == nil || c > 0 || c == 0 && o.policy.Name < out.Name {
				best, out = tags, o.policy
			}
		}
	}
	return out
}

// LegacyInbound returns the legacy policies of a kind for the connections to an inbound, given by
// index. Policies whose destinations match with the most tags come first. It returns none if a
// targetRef policy supersedes them.
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

// LegacyProxy returns the legacy policy of a kind that selects whole proxies. It returns nil if
// there is none or if a targetRef policy supersedes it.
func (r *Rules) LegacyProxy(kind string) *resource.Resource {
	if k := r.legacyKind(kind); len(k.self) > 0 {
		return k.self[0].policy
	}
	return nil
}

// legacyKind returns the legacy policies of a kind; the zero value if none applies.
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

// Legacy reports whether the mesh has policies of a legacy kind, even if they do not select the
// proxy.
func (r *Rules) Legacy(kind string) bool {
	return r != nil && r.index != nil && len(r.index.legacyOf(kind)) > 0
}

// Resources returns the resources of a kind that a plugin declares in Refers, sorted by name: those
// of the mesh, or all of a global kind. Callers must not modify the slice.
func (r *Rules) Resources(kind string) []*resource.Resource {
	if r == nil || r.index == nil {
		return nil
	}
	return r.index.Refers[kind]
}
