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

// Types of matches and filters, as a MeshHTTPRoute has them.
const (
	pathPrefix         = "PathPrefix"
	requestHeaders     = "RequestHeaderModifier"
	responseHeaders    = "ResponseHeaderModifier"
	rewrite            = "URLRewrite"
	replacePrefixMatch = "ReplacePrefixMatch"
)

// http is the route for requests. below are the routes over which this one takes precedence:
// requests that this one has no rule for would fall back to theirs, so it has a rule for each.
func (t *translation) http(below []*route.HTTPConf) *route.HTTPConf {
	refs, self := t.refs(t.conf.Split, t.conf.Destination)
	rest := route.Action{BackendRefs: &refs}
	if self {
		rest.BackendRefs = nil // the service itself, narrowed by the tags of the outbound
		if len(below) > 0 {
			rest.BackendRefs = &[]route.BackendRef{}
		}
	}
	if len(below) > 0 {
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
	open := false // some rule stands behind those about a prefix
	for i := range t.conf.HTTP {
		h := &t.conf.HTTP[i]
		if r, ok := t.rule(fmt.Sprintf("conf.http[%d]", i), h, open, len(below) > 0); ok {
			add(r)
			for _, m := range r.Matches {
				open = open || m.Path == nil || m.Path.Type == toolkit.MatchRegex
			}
		}
	}
	t.order(out.Rules)
	last := route.HTTPRule{Matches: []route.Match{*route.Everything()}, Default: rest}
	if open {
		last.Matches = []route.Match{{}} // behind them too
	}
	add(last)
	for _, b := range below {
		for _, r := range b.Rules {
			if !known[route.RouteName(r.Matches)] && len(t.conf.HTTP) > 0 {
				t.notef("a weaker route has rules that this TrafficRoute has not: their requests go where it sends what it has " +
					"no rule for")
			}
			add(route.HTTPRule{Matches: r.Matches, Default: rest})
		}
	}
	return out
}

// rule translates one rule; false when no request can be matched by it here.
func (t *translation) rule(at string, h *HTTP, open, over bool) (route.HTTPRule, bool) {
	refs, self := t.refs(h.Split, h.Destination)
	r := route.HTTPRule{Default: route.Action{BackendRefs: &refs}}
	if self {
		r.Default.BackendRefs = nil
		if over {
			r.Default.BackendRefs = &[]route.BackendRef{}
		}
	}
	m, reason := t.match(h.Match, open)
	if reason == "" {
		r.Matches = m
		reason = refused(&r)
	}
	if reason != "" {
		t.notef("%s.match cannot be said: %s: the rule is left out", at, reason)
		return r, false
	}
	var filters []route.Filter
	for _, f := range t.filters(at, h) {
		with := r
		one := []route.Filter{f}
		with.Default.Filters = &one
		if reason := refused(&with); reason != "" {
			t.notef("%s.modify cannot be said: %s: it is left out", at, reason)
			continue
		}
		filters = append(filters, f)
	}
	if len(filters) > 0 || over {
		filters = append([]route.Filter{}, filters...)
		r.Default.Filters = &filters
	}
	return r, true
}

// refused says why a rule is not valid, "" when it is.
func refused(r *route.HTTPRule) string {
	var faults []resource.Fault
	r.Validate(resource.NewValidator("", &faults))
	if len(faults) == 0 {
		return ""
	}
	return faults[0].Field + ": " + faults[0].Reason
}

// methods are those that a match can name.
var methods = [...]string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

// match translates a match. A pattern of methods becomes a match for each method that it takes.
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
				t.notef("the prefix %q takes whole elements of the path now, such as %s and %s/x and not %sx",
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
			with := m
			with.Method = name
			out = append(out, with)
		}
	}
	if len(out) == 0 {
		return nil, "method takes none of " + strings.Join(methods[:], ", ")
	}
	return out, ""
}

// takes reports whether a text is what is matched.
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

// order says where rules change places: a TrafficRoute tries them in their order, a MeshHTTPRoute
// by the precedence of their matches.
func (t *translation) order(rules []route.HTTPRule) {
	for j := range rules {
		for i := range j {
			for a := range rules[i].Matches {
				for b := range rules[j].Matches {
					if rules[i].Matches[a].Compare(&rules[j].Matches[b]) > 0 {
						t.notef("the rules are tried by the precedence of their matches now, no longer in their order: %s takes "+
							"precedence over %s", shown(&rules[j].Matches[b]), shown(&rules[i].Matches[a]))
						return
					}
				}
			}
		}
	}
}

// shown is a match in a message.
func shown(m *route.Match) string {
	b, _ := json.Marshal(m) // strings and lists of them always have a JSON form
	if len(b) > 120 {
		b = append(b[:120], "…"...)
	}
	return strings.ToValidUTF8(string(b), "")
}

// filters translates what a rule changes.
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
			t.notef("%s.modify.host.fromPath cannot be said by a MeshHTTPRoute: it is left out; a MeshProxyPatch can say it", at)
		}
	}
	if p := m.Path; p != nil {
		if p.RewritePrefix != nil {
			to := *p.RewritePrefix
			if prefix := *h.Match.Path.Prefix; strings.HasSuffix(prefix, "/") && !strings.HasSuffix(to, "/") {
				t.notef("what follows the prefix is kept apart: of the path %sx, %sx becomes %s/x", prefix, to, to)
			}
			out = append(out, route.Filter{Type: rewrite,
				URLRewrite: &route.Rewrite{Path: &route.PathRewrite{Type: replacePrefixMatch, ReplacePrefixMatch: &to}}})
		} else {
			t.notef("%s.modify.path.regex cannot be said by a MeshHTTPRoute: it is left out; a MeshProxyPatch can say it", at)
		}
	}
	return out
}

// headerFilters translates changes of headers. A filter takes each header once and a limited number
// of them.
func headerFilters(kind string, h *Headers) []route.Filter {
	if h == nil {
		return nil
	}
	var out []route.Filter
	var seen []string
	current := func(name string) *route.HeaderModifier {
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
		m := current(name)
		if a.Append {
			m.Add = append(m.Add, route.Header{Name: name, Value: a.Value})
		} else {
			m.Set = append(m.Set, route.Header{Name: name, Value: a.Value})
		}
	}
	for _, r := range h.Remove {
		name := strings.ToLower(r.Name)
		m := current(name)
		m.Remove = append(m.Remove, name)
	}
	return out
}
