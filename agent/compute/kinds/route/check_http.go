package route

import (
	"net/netip"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxEntries bounds what the rules of one destination become: for each match its route, with the
// destinations and the changed headers once more. Without it a document of 1 MiB could become
// gigabytes.
const maxEntries = 200_000

// maxName bounds the name of a query parameter, as Envoy does.
const maxName = 1024

// Validate checks matches, filters and destinations.
func (c *HTTPConf) Validate(v *resource.Validator) {
	rules, entries := v.Field("rules"), 0
	for i := range c.Rules {
		r := &c.Rules[i]
		r.Validate(rules.Index(i))
		entries += len(r.Matches) * r.Default.size()
	}
	if entries > maxEntries {
		rules.Faultf("the rules have %d matches with destinations and headers of their own, "+
			"at most %d are allowed: distribute them over several services", entries, maxEntries)
	}
}

// size counts what every route of a rule repeats.
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

// Validate checks a rule.
func (r *HTTPRule) Validate(v *resource.Validator) {
	matches := v.Field("matches")
	if len(r.Matches) == 0 {
		matches.Faultf("the matches are missing: give at least one, {} takes every request")
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
			at.Field("name").Faultf("the parameter %q is matched twice: remove one, as a request has to agree with both", q.Name)
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
		value.Faultf("the path is missing: it begins with /")
	case p.Value[0] != '/':
		value.Faultf("%q is not an absolute path: it begins with /", p.Value)
	case p.Type == pathPrefix && len(p.Value) > 1 && strings.HasSuffix(p.Value, "/"):
		value.Faultf("%q ends in /: write %q, which takes whole elements of the path only",
			p.Value, strings.TrimRight(p.Value, "/"))
	}
}

func (q *QueryMatch) validate(v *resource.Validator) {
	switch {
	case q.Name == "":
		v.Field("name").Faultf("the name of the parameter is missing")
	case len(q.Name) > maxName:
		v.Field("name").Faultf("the name has %d characters, at most %d are allowed", len(q.Name), maxName)
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
			value.Faultf("the prefix is empty: give one, or type Present for any value")
		}
		value.HeaderValue(h.Value)
	case pattern:
		value.Pattern(h.Value)
	case toolkit.MatchPresent, toolkit.MatchAbsent:
		if h.Value != "" {
			value.Faultf("type %s is about the header alone: remove the value", h.Type)
		}
	default:
		v.Field("type").OneOf(h.Type, exact, toolkit.MatchPresent, pattern, toolkit.MatchAbsent, toolkit.MatchPrefix)
	}
}

// checkHostname checks a name to send requests to: RFC 1123 in lower case, and no address.
func checkHostname(v *resource.Validator, s string) {
	if _, err := netip.ParseAddr(s); err == nil {
		v.Faultf("%q is an IP address: a host name is wanted", s)
		return
	}
	if s != strings.ToLower(s) || strings.HasSuffix(s, ".") || strings.Contains(s, "_") {
		v.Faultf("%q is not a host name: write it in lower case, with letters, digits and '-' between the dots and no dot "+
			"at the end", s)
		return
	}
	v.HostName(s, "a host name")
}

// checkHTTP checks what goes together with the targetRef of the policy.
func checkHTTP(p *resource.Policy, v *resource.Validator) {
	gateway := checkTargets(p, v)
	for i := range p.To {
		c, ok := p.To[i].Conf.(*HTTPConf)
		if !ok {
			continue
		}
		at := v.Field("to").Index(i)
		if len(c.Hostnames) > 0 && !gateway {
			at.Field("hostnames").Faultf("host names are for targetRef kind %s alone: remove them", kindGateway)
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

// checkTargets checks the destinations against the targetRef of the policy, and says whether that
// is a gateway: one has no service of its own, so its routes are about the whole mesh and name
// their destinations.
func checkTargets(p *resource.Policy, v *resource.Validator) (gateway bool) {
	gateway = p.TargetRef != nil && p.TargetRef.Kind == kindGateway
	for i := range p.To {
		at := v.Field("to").Index(i).Field("targetRef").Field("kind")
		switch kind := p.To[i].TargetRef.Kind; {
		case gateway && kind != kindMesh:
			at.Faultf("%q is not allowed with targetRef kind %s: give Mesh", kind, kindGateway)
		case !gateway && kind == kindMesh:
			at.Faultf("a route is about one destination: give %s, %s or %s", mesh.KindMeshService, mesh.KindMeshExternalService,
				mesh.KindMeshMultiZoneService)
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
				Faultf("this is for targetRef kind %s alone: remove it", kindGateway)
		}
	}
	if gateway && !redirects && len(toolkit.Or(a.BackendRefs, nil)) == 0 {
		v.Field("backendRefs").Faultf("the destinations are missing: a gateway has no service of its own")
	}
}
