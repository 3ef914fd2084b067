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

// celFilter is a condition in the Common Expression Language. Where an attribute that it asks for
// does not exist the entry is dropped, so expressions ask first whether it does.
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

// ofClients is the condition that a client is one of a subset by its certificate; nil for all
// clients.
func ofClients(mesh string, s policy.Subset) *accesslogv3.AccessLogFilter {
	if len(s) == 0 {
		return nil
	}
	parts := make([]string, len(s))
	for i, t := range s {
		parts[i] = hasTag(mesh, t)
	}
	return celFilter(strings.Join(parts, " && "))
}

// ofMatch is the condition that a match holds for a client by its certificate, or with not that it
// does not. Of a connection Envoy tells the first SPIFFE ID alone, of a request all that the
// inbound has put into the header.
func ofMatch(m *resource.ClientMatch, not, request bool) *accesslogv3.AccessLogFilter {
	if request {
		return headerFilter(toolkit.OfMatch(m, not))
	}
	is := " == " + celString(m.SpiffeID.Value)
	if m.SpiffeID.Type == resource.MatchPrefix {
		is = ".startsWith(" + celString(m.SpiffeID.Value) + ")"
	}
	e := "connection.mtls && connection.uri_san_peer_certificate" + is
	if not {
		e = "!(" + e + ")"
	}
	return celFilter(e)
}

// tellable is what of a subset can be told of the clients of connections. What Envoy tells of these
// is the first URI of the certificate, the SPIFFE id with the service; the other tags stand behind
// it, and are known of requests alone, from the header that the inbound makes of the certificate.
// Clients that are meant for such a tag cannot be told, and the tag is returned; what is said of
// clients that do not have it then holds for all.
func tellable(s policy.Subset) (policy.Subset, string) {
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

// hasTag is the condition that the certificate of a client has a tag.
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

// onlyMesh returns the rule about clients that no item tells apart: what is said of the whole mesh.
// Nil for none.
func onlyMesh(rules []*policy.Rule) *policy.Rule {
	for _, r := range rules {
		told := false
		for _, t := range r.Subset {
			told = told || !t.Not
		}
		if !told {
			return r
		}
	}
	return nil
}

// ofRoutes is the condition that a request went, or did not go, by one of some routes.
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

// celString is a string literal of the language, whose escapes are those of Go.
func celString(s string) string { return strconv.Quote(s) }

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

// routes returns the routes of a chain that have rules of their own, by their rule, and the names
// of all of them: what is logged by the rule about the service is then the rest.
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

// byPath is the condition that a request that arrives for a service goes by a route: a condition on
// its path. The list is empty where the route takes every path. False where nothing is known of the
// route's paths.
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

// pathRegex matches the whole of a :path header, whose query is not part of what routes match. It
// is "" where every path matches.
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
