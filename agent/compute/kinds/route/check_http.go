package route

import (
	"net/netip"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxEntries limits the size of the routes that the rules of one destination expand to: each match
// becomes a route that repeats the destinations and changed headers. Without the limit, a document
// of 1 MiB could expand to gigabytes.
const maxEntries = 200_000

// maxName is Envoy's limit for the name of a query parameter.
const maxName = 1024

// Validate validates matches, filters, and destinations.
func (c *HTTPConf) Validate(v *resource.Validator) {
	rules, entries := v.Field("rules"), 0
	for i := range c.Rules {
		r := &c.Rules[i]
		r.Validate(rules.Index(i))
		entries += len(r.Matches) * r.Default.size()
	}
	if entries > maxEntries {
		rules.Faultf("the rules expand to %d matches with destinations and headers, and at most %d are allowed: distribute "+
			"them over several services", entries, maxEntries)
	}
}

// size returns the number of entries that every route of a rule repeats.
func (a *Action) size() int {
	n := 1 + len(toolkit.Or(a.BackendRefs, nil))
	for _, f := range toolkit.Or(a.Filters, nil) {
		n++
		for _, h := range []*HeaderModifier{f.RequestHeaderModifier, f.ResponseHeaderModifier} {
			if h != nil {
				n += len(h.Set) + len(h.Add) + len(h.Remove)
			}
		}
	}
	return n
}

// Validate validates a rule.
func (r *HTTPRule) Validate(v *resource.Validator) {
	matches := v.Field("matches")
	if len(r.Matches) == 0 {
		matches.Faultf("the matches are missing: give at least one, such as {}, which matches every request")
	}
	for i := range r.Matches {
		r.Matches[i].validate(matches.Index(i))
	}
	at := v.Field("default")
	checkFilters(at.Field("filters"), r)
	checkBackends(at.Field("backendRefs"), toolkit.Or(r.Default.BackendRefs, nil))
}

func (m *Match) validate(v *resource.Validator) {
	m.Path.validate(v.Field("path"))
	if m.Method != "" {
		v.Field("method").OneOf(m.Method, "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
	}
	seen := make(map[string]bool, len(m.QueryParams))
	for i := range m.QueryParams {
		q, at := &m.QueryParams[i], v.Field("queryParams").Index(i)
		q.validate(at)
		if seen[q.Name] {
			at.Field("name").Faultf("the parameter %q is matched twice: remove one", q.Name)
		}
		seen[q.Name] = true
	}
	for i := range m.Headers {
		checkHeaderMatch(v.Field("headers").Index(i), m.Headers[i])
	}
}

func (p *PathMatch) validate(v *resource.Validator) {
	if p == nil || !v.Field("type").OneOf(p.Type, exact, pathPrefix, pattern) {
		return
	}
	value := v.Field("value")
	switch {
	case p.Type == pattern:
		value.Pattern(p.Value)
	case p.Value == "":
		value.Faultf("the path is missing: give a path that begins with /")
	case p.Value[0] != '/':
		value.Faultf("%q is not absolute: the path must begin with /", p.Value)
	case p.Type == pathPrefix && len(p.Value) > 1 && strings.HasSuffix(p.Value, "/"):
		value.Faultf("%q ends with /: use %q, which matches only whole path segments",
			p.Value, strings.TrimRight(p.Value, "/"))
	}
}

func (q *QueryMatch) validate(v *resource.Validator) {
	switch {
	case q.Name == "":
		v.Field("name").Faultf("the name of the parameter is missing")
	case len(q.Name) > maxName:
		v.Field("name").Faultf("the name has %d characters, and at most %d are allowed", len(q.Name), maxName)
	}
	if v.Field("type").OneOf(q.Type, exact, pattern) && q.Type == pattern {
		v.Field("value").Pattern(q.Value)
	}
}

func checkHeaderMatch(v *resource.Validator, h toolkit.HeaderMatch) {
	v.Field("name").HeaderName(h.Name)
	value := v.Field("value")
	switch h.Type {
	case "", exact:
		value.HeaderValue(h.Value)
	case toolkit.MatchPrefix:
		if h.Value == "" {
			value.Faultf("the prefix is empty: give a prefix, or type Present for any value")
		}
		value.HeaderValue(h.Value)
	case pattern:
		value.Pattern(h.Value)
	case toolkit.MatchPresent, toolkit.MatchAbsent:
		if h.Value != "" {
			value.Faultf("type %s does not compare the value: use type %s to compare it", h.Type, exact)
		}
	default:
		v.Field("type").OneOf(h.Type, exact, toolkit.MatchPresent, pattern, toolkit.MatchAbsent, toolkit.MatchPrefix)
	}
}

// checkHostname validates a host name for requests: RFC 1123 in lower case, and not an IP address.
func checkHostname(v *resource.Validator, s string) {
	if _, err := netip.ParseAddr(s); err == nil {
		v.Faultf("%q is an IP address: give a host name", s)
		return
	}
	if s != strings.ToLower(s) || strings.HasSuffix(s, ".") || strings.Contains(s, "_") {
		v.Faultf("%q is not a host name: use lower case, with letters, digits, and '-' between the dots and no trailing dot",
			s)
		return
	}
	v.HostName(s, "a host name")
}

// checkHTTP validates the confs in combination with the targetRef of the policy.
func checkHTTP(p *resource.Policy, v *resource.Validator) {
	gateway := checkTargets(p, v)
	for i := range p.To {
		c, ok := p.To[i].Conf.(*HTTPConf)
		if !ok {
			continue
		}
		at := v.Field("to").Index(i)
		if len(c.Hostnames) > 0 && !gateway {
			at.Field("hostnames").Faultf("hostnames requires targetRef kind %s: remove it", kindGateway)
		}
		for j, h := range c.Hostnames {
			if gateway && h != "*" {
				checkHostname(at.Field("hostnames").Index(j), strings.TrimPrefix(h, "*."))
			}
		}
		for j := range c.Rules {
			checkGateway(at.Field("rules").Index(j).Field("default"), &c.Rules[j].Default, gateway)
		}
	}
}

// checkTargets validates the destinations in combination with the targetRef of the policy. It
// reports whether the targetRef selects a gateway. A gateway has no service, so its routes apply to
// the whole mesh and must name destinations.
func checkTargets(p *resource.Policy, v *resource.Validator) (gateway bool) {
	gateway = p.TargetRef != nil && p.TargetRef.Kind == kindGateway
	for i := range p.To {
		at := v.Field("to").Index(i).Field("targetRef").Field("kind")
		switch kind := p.To[i].TargetRef.Kind; {
		case gateway && kind != kindMesh:
			at.Faultf("%q is not allowed with targetRef kind %s: use Mesh", kind, kindGateway)
		case !gateway && kind == kindMesh:
			at.Faultf("a route applies to one destination: use %s, %s, or %s",
				mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService)
		}
	}
	return gateway
}

func checkGateway(v *resource.Validator, a *Action, gateway bool) {
	redirects := false
	for i, f := range toolkit.Or(a.Filters, nil) {
		redirects = redirects || f.Type == redirect
		if f.URLRewrite != nil && f.URLRewrite.HostToBackendHostname && !gateway {
			v.Field("filters").Index(i).Field("urlRewrite").Field("hostToBackendHostname").
				Faultf("hostToBackendHostname requires targetRef kind %s: remove it", kindGateway)
		}
	}
	if gateway && !redirects && len(toolkit.Or(a.BackendRefs, nil)) == 0 {
		v.Field("backendRefs").Faultf("the destinations are missing: a gateway requires them, because it has no service")
	}
}
