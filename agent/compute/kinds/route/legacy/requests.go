package legacy

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/route"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Types of matches and filters of a MeshHTTPRoute.
const (
	pathPrefix         = "PathPrefix"
	requestHeaders     = "RequestHeaderModifier"
	responseHeaders    = "ResponseHeaderModifier"
	rewrite            = "URLRewrite"
	replacePrefixMatch = "ReplacePrefixMatch"
)

// http returns the route for requests. weaker are the routes that it overrides. Requests without a
// rule would fall back to their rules, so it contains a rule for each of them.
func (t *translation) http(weaker []*route.HTTPConf) *route.HTTPConf {
	refs, self := t.refs(t.conf.Split, t.conf.Destination)
	rest := route.Action{BackendRefs: &refs}
	if self {
		rest.BackendRefs = nil // the service itself, restricted to the tags of the outbound
		if len(weaker) > 0 {
			rest.BackendRefs = &[]route.BackendRef{}
		}
	}
	if len(weaker) > 0 {
		rest.Filters = &[]route.Filter{}
	}
	out := &route.HTTPConf{}
	known := map[string]bool{}
	add := func(r route.HTTPRule) {
		if key := route.RouteName(r.Matches); !known[key] {
			known[key] = true
			out.Rules = append(out.Rules, r)
		}
	}
	open := false // some rule has lower precedence than path prefixes
	for i := range t.conf.HTTP {
		h := &t.conf.HTTP[i]
		if r, ok := t.rule(fmt.Sprintf("conf.http[%d]", i), h, open, len(weaker) > 0); ok {
			add(r)
			for _, m := range r.Matches {
				open = open || m.Path == nil || m.Path.Type == toolkit.MatchRegex
			}
		}
	}
	t.order(out.Rules)
	last := route.HTTPRule{Matches: []route.Match{*route.Everything()}, Default: rest}
	if open {
		last.Matches = []route.Match{{}} // lowest precedence
	}
	add(last)
	for _, b := range weaker {
		for _, r := range b.Rules {
			if !known[route.RouteName(r.Matches)] && len(t.conf.HTTP) > 0 {
				t.notef("a weaker route has rules that this TrafficRoute does not have: their requests go to the " +
					"destinations for requests without a rule")
			}
			add(route.HTTPRule{Matches: r.Matches, Default: rest})
		}
	}
	return out
}

// rule converts one rule. It returns false if the match has no equivalent.
func (t *translation) rule(at string, h *HTTP, open, override bool) (route.HTTPRule, bool) {
	refs, self := t.refs(h.Split, h.Destination)
	r := route.HTTPRule{Default: route.Action{BackendRefs: &refs}}
	if self {
		r.Default.BackendRefs = nil
		if override {
			r.Default.BackendRefs = &[]route.BackendRef{}
		}
	}
	m, reason := t.match(h.Match, open)
	if reason == "" {
		r.Matches = m
		reason = invalid(&r)
	}
	if reason != "" {
		t.notef("the rule of %s.match was dropped because it has no equivalent: %s", at, reason)
		return r, false
	}
	var filters []route.Filter
	for _, f := range t.filters(at, h) {
		copied := r
		one := []route.Filter{f}
		copied.Default.Filters = &one
		if reason := invalid(&copied); reason != "" {
			t.notef("%s.modify was dropped because it has no equivalent: %s", at, reason)
			continue
		}
		filters = append(filters, f)
	}
	if len(filters) > 0 || override {
		filters = append([]route.Filter{}, filters...)
		r.Default.Filters = &filters
	}
	return r, true
}

// invalid returns the reason why a rule is invalid, or "".
func invalid(r *route.HTTPRule) string {
	var faults []resource.Fault
	r.Validate(resource.NewValidator("", &faults))
	if len(faults) == 0 {
		return ""
	}
	return faults[0].Field + ": " + faults[0].Reason
}

// methods are the methods that a match can name.
var methods = [...]string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

// match converts a match. A pattern of methods becomes one match for each matching method.
func (t *translation) match(l *Match, open bool) ([]route.Match, string) {
	m := route.Match{}
	if !open {
		m.Path = &route.PathMatch{Value: "/", Type: pathPrefix}
	}
	if l == nil {
		return []route.Match{m}, ""
	}
	if p := l.Path; p != nil {
		switch {
		case p.Exact != nil:
			m.Path = &route.PathMatch{Value: *p.Exact, Type: toolkit.MatchExact}
		case p.Regex != nil:
			m.Path = &route.PathMatch{Value: *p.Regex, Type: toolkit.MatchRegex}
		case p.Prefix != nil:
			m.Path = &route.PathMatch{Value: *p.Prefix, Type: pathPrefix}
			if *p.Prefix != "/" {
				m.Path.Value = strings.TrimRight(*p.Prefix, "/")
				t.notef("the prefix %q now matches only whole path segments, such as %s and %s/x but not %sx",
					*p.Prefix, m.Path.Value, m.Path.Value, m.Path.Value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		s := l.Headers[name]
		h := toolkit.HeaderMatch{Name: strings.ToLower(name)}
		switch {
		case s.Exact != nil:
			h.Type, h.Value = toolkit.MatchExact, *s.Exact
		case s.Prefix != nil:
			h.Type, h.Value = toolkit.MatchPrefix, *s.Prefix
		case s.Regex != nil:
			h.Type, h.Value = toolkit.MatchRegex, *s.Regex
		}
		m.Headers = append(m.Headers, h)
	}
	if l.Method == nil {
		return []route.Match{m}, ""
	}
	var out []route.Match
	for _, name := range methods {
		if l.Method.takes(name) {
			copied := m
			copied.Method = name
			out = append(out, copied)
		}
	}
	if len(out) == 0 {
		return nil, "method matches none of " + strings.Join(methods[:], ", ")
	}
	return out, ""
}

// takes reports whether the condition matches a string.
func (s *String) takes(text string) bool {
	switch {
	case s.Exact != nil:
		return text == *s.Exact
	case s.Prefix != nil:
		return strings.HasPrefix(text, *s.Prefix)
	case s.Regex != nil:
		re, err := regexp.Compile("^(?:" + *s.Regex + ")$")
		return err == nil && re.MatchString(text)
	}
	return false
}

// order notes a change of the rules' order: a TrafficRoute evaluates them in order, a MeshHTTPRoute
// by the precedence of their matches.
func (t *translation) order(rules []route.HTTPRule) {
	for j := range rules {
		for i := range j {
			for a := range rules[i].Matches {
				for b := range rules[j].Matches {
					if rules[i].Matches[a].Compare(&rules[j].Matches[b]) > 0 {
						t.notef("rules are now evaluated by the precedence of their matches instead of in order: %s takes "+
							"precedence over %s", shown(&rules[j].Matches[b]), shown(&rules[i].Matches[a]))
						return
					}
				}
			}
		}
	}
}

// shown formats a match for a message.
func shown(m *route.Match) string {
	b, _ := json.Marshal(m) // encoding strings and lists of strings never fails
	if len(b) > 120 {
		b = append(b[:120], "…"...)
	}
	return strings.ToValidUTF8(string(b), "")
}

// filters converts the modifications of a rule.
func (t *translation) filters(at string, h *HTTP) []route.Filter {
	m := h.Modify
	if m == nil {
		return nil
	}
	var out []route.Filter
	out = append(out, headerFilters(requestHeaders, m.RequestHeaders)...)
	out = append(out, headerFilters(responseHeaders, m.ResponseHeaders)...)
	if m.Host != nil {
		if m.Host.Value != nil {
			out = append(out, route.Filter{Type: rewrite, URLRewrite: &route.Rewrite{Hostname: m.Host.Value}})
		} else {
			t.notef("%s.modify.host.fromPath was dropped because MeshHTTPRoute has no equivalent; use a MeshProxyPatch", at)
		}
	}
	if p := m.Path; p != nil {
		if p.RewritePrefix != nil {
			to := *p.RewritePrefix
			if prefix := *h.Match.Path.Prefix; strings.HasSuffix(prefix, "/") && !strings.HasSuffix(to, "/") {
				t.notef("the part after the prefix is now a separate segment: of the path %sx, %sx becomes %s/x", prefix, to, to)
			}
			out = append(out, route.Filter{Type: rewrite,
				URLRewrite: &route.Rewrite{Path: &route.PathRewrite{Type: replacePrefixMatch, ReplacePrefixMatch: &to}}})
		} else {
			t.notef("%s.modify.path.regex was dropped because MeshHTTPRoute has no equivalent; use a MeshProxyPatch", at)
		}
	}
	return out
}

// headerFilters converts changes of headers. A filter may contain each header once and a limited
// number of headers.
func headerFilters(kind string, h *Headers) []route.Filter {
	if h == nil {
		return nil
	}
	var out []route.Filter
	var seen []string
	modifier := func(name string) *route.HeaderModifier {
		if len(out) == 0 || len(seen) == route.MaxHeaders || slices.Contains(seen, name) {
			f := route.Filter{Type: kind}
			if kind == requestHeaders {
				f.RequestHeaderModifier = &route.HeaderModifier{}
			} else {
				f.ResponseHeaderModifier = &route.HeaderModifier{}
			}
			out, seen = append(out, f), nil
		}
		seen = append(seen, name)
		if m := out[len(out)-1].RequestHeaderModifier; m != nil {
			return m
		}
		return out[len(out)-1].ResponseHeaderModifier
	}
	for _, a := range h.Add {
		name := strings.ToLower(a.Name)
		m := modifier(name)
		if a.Append {
			m.Add = append(m.Add, route.Header{Name: name, Value: a.Value})
		} else {
			m.Set = append(m.Set, route.Header{Name: name, Value: a.Value})
		}
	}
	for _, r := range h.Remove {
		name := strings.ToLower(r.Name)
		m := modifier(name)
		m.Remove = append(m.Remove, name)
	}
	return out
}
