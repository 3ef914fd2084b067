package legacy

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/kinds/route"
)

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
			if !strings.HasSuffix(to, "/") && !strings.HasSuffix(*h.Match.Path.Prefix, "/") {
				to += "/" // what follows the prefix comes behind it without its slash
				t.notef("the prefix becomes %q, so that what follows it is kept apart: of the path %s itself, without more, it is %s too", to, *h.Match.Path.Prefix, to)
			}
			out = append(out, route.Filter{Type: rewrite, URLRewrite: &route.Rewrite{Path: &route.PathRewrite{Type: replacePrefixMatch, ReplacePrefixMatch: &to}}})
		} else {
			t.notef("%s.modify.path.regex cannot be said by a MeshHTTPRoute: it is left out; a MeshProxyPatch can say it", at)
		}
	}
	return out
}

// headerFilters translates changes of headers. A filter takes each header once and a limited number of them.
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
