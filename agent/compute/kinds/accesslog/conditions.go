package accesslog

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	nameCEL = "envoy.access_loggers.extension_filters.cel"

	fieldExpression = 1 // of envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter
)

var urlCEL = typeURL(&celv3.ExpressionFilter{})

// celFilter returns a condition in the Common Expression Language. An entry is dropped if an
// attribute in the expression does not exist, so expressions check this first.
func celFilter(expression string) *accesslogv3.AccessLogFilter {
	b := protowire.AppendTag(nil, fieldExpression, protowire.BytesType)
	b = protowire.AppendString(b, expression)
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       nameCEL,
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: urlCEL, Value: b}},
		},
	}}
}

// ofClients returns a condition that the client's certificate belongs to a subset; nil for all
// clients.
func ofClients(mesh string, s policy.Subset) *accesslogv3.AccessLogFilter {
	if len(s) == 0 {
		return nil
	}
	expressions := make([]string, len(s))
	for i, t := range s {
		expressions[i] = hasTag(mesh, t)
	}
	return celFilter(strings.Join(expressions, " && "))
}

// ofMatch returns the conditions of a match; none for all clients. For a connection Envoy knows
// only the first SPIFFE ID of a certificate; for a request, the inbound's header contains all.
func ofMatch(m *resource.ClientMatch, request bool) []*accesslogv3.AccessLogFilter {
	var out []*accesslogv3.AccessLogFilter
	switch id := m.SpiffeID; {
	case id == nil:
	case request:
		for _, h := range toolkit.OfMatch(m) {
			out = append(out, headerFilter(h))
		}
	case id.Type == resource.MatchPrefix:
		out = append(out, celFilter("connection.mtls && connection.uri_san_peer_certificate.startsWith("+
			celString(id.Value)+")"))
	default:
		out = append(out, celFilter("connection.mtls && connection.uri_san_peer_certificate == "+celString(id.Value)))
	}
	if m.SNI != nil {
		out = append(out, celFilter("has(connection.requested_server_name) && connection.requested_server_name == "+
			celString(m.SNI.Value)))
	}
	return out
}

// forConnections reduces a subset to the conditions that can be evaluated for connections. Envoy
// provides only the first URI of the certificate, the SPIFFE ID with the service. Other tags are
// known only for requests, from the header that the inbound sets. If the subset requires such a
// tag, forConnections returns the tag. It drops conditions that exclude such a tag.
func forConnections(s policy.Subset) (policy.Subset, string) {
	out := make(policy.Subset, 0, len(s))
	for _, t := range s {
		switch {
		case t.Key == resource.TagService:
			out = append(out, t)
		case !t.Not:
			return nil, t.Key
		}
	}
	return out, ""
}

// hasTag returns a condition that the client's certificate has a tag.
func hasTag(mesh string, t policy.Tag) string {
	var e string
	if t.Key == resource.TagService {
		e = fmt.Sprintf("connection.mtls && connection.uri_san_peer_certificate == %s",
			celString("spiffe://"+mesh+"/"+t.Value))
	} else {
		const header = `request.headers["x-forwarded-client-cert"]`
		uri := "URI=kuma://" + t.Key + "/" + t.Value
		e = fmt.Sprintf("connection.mtls && (%s.contains(%s) || %s.endsWith(%s))", header, celString(uri+";"), header,
			celString(uri))
	}
	if t.Not {
		return "!(" + e + ")"
	}
	return e
}

// onlyMesh returns the rule for clients that no other item selects, which comes from items for the
// whole mesh, or nil.
func onlyMesh(rules []*policy.Rule) *policy.Rule {
	for _, r := range rules {
		positive := false
		for _, t := range r.Subset {
			positive = positive || !t.Not
		}
		if !positive {
			return r
		}
	}
	return nil
}

// ofRoutes returns a condition that a request used, or did not use, one of some routes.
func ofRoutes(names []string, not bool) *accesslogv3.AccessLogFilter {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = celString(n)
	}
	e := "has(xds.route_name) && xds.route_name == " + quoted[0]
	if len(names) > 1 {
		e = "has(xds.route_name) && xds.route_name in [" + strings.Join(quoted, ", ") + "]"
	}
	if not {
		e = "!(" + e + ")"
	}
	return celFilter(e)
}

// celString returns a CEL string literal. Go's escapes are valid in CEL.
func celString(s string) string { return strconv.Quote(s) }

const kindRoute = "MeshHTTPRoute"

// aboutRoutes reports whether some rule applies to the requests of a route.
func aboutRoutes(k *policy.KindRules) bool {
	if k == nil {
		return false
	}
	return slices.ContainsFunc(k.ToResources, func(r *policy.ResourceRule) bool { return r.Resource.Kind == kindRoute }) ||
		slices.ContainsFunc(k.To, func(r *policy.Rule) bool { return len(r.Subset) > 1 })
}

// routeRule is a rule for the requests of some routes.
type routeRule struct {
	rule  *policy.Rule
	names []string // of the routes, sorted
}

// routes returns the specific rules of a chain's routes, and the names of all these routes. The
// rule for the service applies to the other routes.
func (w *writer) routes(s draft.Service, h *draft.HTTP, rule *policy.Rule) (specific []routeRule, every []string) {
	at := map[*policy.Rule]int{}
	for route := range toolkit.Routes(h) {
		name := route.GetName()
		r := w.rules.Route(s, name, h.Origins[name])
		if r == rule || r == nil || name == "" {
			continue
		}
		i, ok := at[r]
		if !ok {
			i = len(specific)
			specific, at[r] = append(specific, routeRule{rule: r}), i
		}
		specific[i].names = append(specific[i].names, name)
		every = append(every, name)
	}
	for i := range specific {
		specific[i].names = unique(specific[i].names)
	}
	return specific, unique(every)
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// byPath returns the condition on the path that identifies the requests of a route at an inbound of
// a service. The list is empty if the route matches every path. byPath returns false if the paths
// of the route are unknown.
func byPath(route *resource.Resource, service string) ([]*accesslogv3.AccessLogFilter, bool) {
	var matches, others []policy.PathMatch
	if spec, ok := route.Spec.(*resource.Policy); ok {
		for i := range spec.To {
			conf, ok := spec.To[i].Conf.(policy.PathConf)
			if !ok {
				continue
			}
			if spec.To[i].TargetRef.Name == service {
				matches = append(matches, conf.PathMatches()...)
			} else {
				others = append(others, conf.PathMatches()...)
			}
		}
	}
	if len(matches) == 0 { // the route does not refer to the service by tag
		matches = others
	}
	if len(matches) == 0 {
		return nil, false
	}
	filters := make([]*accesslogv3.AccessLogFilter, 0, len(matches))
	for _, m := range matches {
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

// pathRegex returns a regular expression for the whole :path header, including the query, which
// routes do not match. It returns "" if every path matches.
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
